package encode_test

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// TestSelection: gap and synced events say what their collection leaves out and changes, so that no reader of the bus needs the bridge's configuration.
func TestSelection(t *testing.T) {
	pods := event.Collection{Resource: "pods"}
	for name, c := range map[string]struct {
		of       event.Collection
		settings encode.Settings
		change   func(*encode.Options)
		want     event.Selection
	}{
		"everything":      {of: pods},
		"all types":       {of: pods, settings: encode.Settings{Types: []event.Type{event.Added, event.Modified, event.Deleted}}},
		"without deleted": {of: pods, settings: encode.Settings{Types: []event.Type{event.Added, event.Modified}}, want: event.Selection{Types: event.Types(0).Without(event.Deleted)}},
		"no types": {of: pods, settings: encode.Settings{Types: []event.Type{}}, want: event.Selection{
			Types: event.Types(0).Without(event.Added).Without(event.Modified).Without(event.Deleted),
		}},
		"selectors": {
			of:   event.Collection{Resource: "pods", LabelSelector: "app=web", FieldSelector: "metadata.namespace!=kube-system"},
			want: event.Selection{Labels: "app=web", Fields: "metadata.namespace!=kube-system"},
		},
		"metadata":        {of: event.Collection{Resource: "pods", MetadataOnly: true}, want: event.Selection{MetadataOnly: true}},
		"a filter":        {of: pods, settings: encode.Settings{Filter: "object.metadata.name != 'a'"}, want: event.Selection{Filtered: true}},
		"ignored changes": {of: pods, settings: encode.Settings{Ignore: []string{"metadata.annotations"}}, want: event.Selection{Ignores: true}},
		"hashes":          {of: pods, settings: encode.Settings{Redact: []shape.Rule{{Paths: []string{"spec.a"}}}}, want: event.Selection{Redacted: true}},
		"a mask":          {of: pods, settings: encode.Settings{Redact: []shape.Rule{{Preset: shape.PodEnv, With: shape.WithMask}}}, want: event.Selection{Redacted: true}},
		"dropped fields": {
			of: pods, settings: encode.Settings{Redact: []shape.Rule{{Paths: []string{"metadata.managedFields", "spec.a"}, With: shape.WithRemove}}},
			want: event.Selection{Dropped: true},
		},
		"a dropped preset":      {of: pods, settings: encode.Settings{Redact: []shape.Rule{{Preset: shape.LastApplied, With: shape.WithRemove}}}, want: event.Selection{Dropped: true}},
		"dropped managedFields": {of: pods, settings: encode.Settings{Redact: []shape.Rule{{Paths: []string{"metadata.managedFields"}, With: shape.WithRemove}}}},
		"a dropped status": {
			of: pods, settings: encode.Settings{Redact: []shape.Rule{{Paths: []string{"status.podIP"}, With: shape.WithRemove}}},
			want: event.Selection{StatusDropped: true},
		},
		"rules of another resource": {of: pods, settings: encode.Settings{Redact: []shape.Rule{{Paths: []string{"data.a"}, Resources: []string{"configmaps"}}}}},
		"secrets":                   {of: event.Collection{Resource: "secrets"}, want: event.Selection{Redacted: true}},
		"secrets in clear":          {of: event.Collection{Resource: "secrets"}, change: func(o *encode.Options) { o.Secrets.Plain = true }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.of, c.settings, c.change)
			r.list("snapshot", "100", reconcile.Gone)
			for _, e := range r.values {
				if e.Report.Selection != c.want {
					t.Errorf("of %s: %+v, want %+v", e.Type, e.Report.Selection, c.want)
				}
			}
			if len(r.values) != 2 {
				t.Errorf("%d events, want gap and synced", len(r.values))
			}
		})
	}
}

// TestSelectionOfRun: an event that is published again after a crash, with other settings by then, says what holds for its own run.
func TestSelectionOfRun(t *testing.T) {
	r := newRig(t, event.Collection{Resource: "pods"}, encode.Settings{Filter: "object.metadata.name != 'a'"}, nil)
	r.list("snapshot", "100", reconcile.Gone)
	r.commit()
	r.step(&reconcile.Input{Kind: reconcile.ListBegun, Reason: event.ReasonExpired})
	r.settings = encode.Settings{}
	r.crash()
	again := r.values[len(r.values)-2:]
	if again[0].ID != r.values[2].ID || !again[0].Report.Selection.Filtered {
		t.Errorf("the gap that was in doubt is %s, %+v", again[0].ID, again[0].Report)
	}
	if again[1].Report.Reason != event.ReasonFilter || again[1].Report.Selection != (event.Selection{}) {
		t.Errorf("the gap of the other settings is %+v", again[1].Report)
	}
}
