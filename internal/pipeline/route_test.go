package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

func teamed(t *testing.T, rv, team, data string) *source.Object {
	t.Helper()
	o, err := source.ParseObject(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"u1","resourceVersion":%q,"labels":{"team":%q},"annotations":{"note":"x"}},"data":{"x":%q}}`, rv, team, data))
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

// A collection with a route of its own goes it with everything: what opens and closes
// a gap, an event that had to be cut down, a deletion without a body. So do its headers,
// in every format, and they tell what the body does.
func TestACollectionGoesItsOwnWay(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		t.Run(format.String(), func(t *testing.T) {
			store, b := openMem(t), &bus{}
			b.limit = func(r *event.Record) int {
				if r.Event.Type == event.Modified && r.Event.Truncated == nil {
					return 10
				}
				return 1 << 20
			}
			s := &script{t: t, store: store, bus: b, started: map[string]*collectionScript{}, done: make(chan error, 1)}
			s.run()
			defer s.finish()
			key, err := shape.ParseTemplate("{namespace}", shape.KeyNames)
			if err != nil {
				t.Fatal(err)
			}
			headers := func(templates map[string]string) shape.Headers {
				h, err := shape.ParseHeaders(templates)
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			if err := s.lane.do(t.Context(), func(context.Context) error {
				s.lane.shape.Topic, s.lane.shape.Encoder.Format = template(t, "shared"), format
				s.lane.shape.Headers = headers(map[string]string{"x-cluster": "{cluster}", "x-team": "none"})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			own := configMapsOf(event.Collection{})
			own.Options.Route = Route{Topic: template(t, "own.{resource}"), Key: key, Headers: headers(map[string]string{"X-Team": "{label:team}-{kind}", "x-note": "{annotation:note}"})}
			other := Wanted{Target: source.Target{Collection: event.Collection{Resource: "pods"}, Resource: source.Resource{Version: "v1", Name: "pods", Kind: "Pod"}}}
			s.set([]Wanted{own, other}, nil)
			c, g := s.collection("configmaps", nil), s.collection("pods", nil)
			c.lists("", source.ReasonSnapshot, "10", teamed(t, "5", "pay", ""))
			s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot")
			c.says(source.Signal{Kind: source.Modified, Object: teamed(t, "11", "ops", strings.Repeat("x", 100)), Resume: "10"})
			s.settle()
			c.lists("11", source.ReasonExpired, "20") // it has gone unseen
			s.settle()
			g.lists("", source.ReasonSnapshot, "21", objectAt("n", "p", "u3", "9", ""))
			s.told("configmaps:1:0:gap snapshot", "u1:5:added", "configmaps:1:10:synced snapshot", "u1:11:modified",
				"configmaps:1:11:gap expired", "u1:5:deleted", "configmaps:1:20:synced expired",
				"pods:1:0:gap snapshot", "u3:9:added", "pods:1:21:synced snapshot")
			s.settle()
			routes := map[string]string{}
			for _, of := range s.lane.Status().Collections {
				routes[of.Collection] = of.Route
			}
			if diff := cmp.Diff(map[string]string{"configmaps": "own.configmaps", "pods": ""}, routes); diff != "" {
				t.Errorf("the status shows other routes (-want +got):\n%s", diff)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			var got []string
			for _, r := range b.records {
				line := r.ID + " " + r.Route + " " + r.Key
				for _, h := range r.Headers {
					line += " " + h.Name + "=" + h.Value
				}
				got = append(got, line)
				checkValue(t, &r, format)
			}
			want := []string{
				"configmaps:1:0:gap own.configmaps  x-cluster=c",
				"u1:5:added own.configmaps n x-cluster=c X-Team=pay-ConfigMap x-note=x",
				"configmaps:1:10:synced own.configmaps  x-cluster=c",
				"u1:11:modified own.configmaps n x-cluster=c X-Team=ops-ConfigMap",
				"configmaps:1:11:gap own.configmaps  x-cluster=c",
				"u1:5:deleted own.configmaps n x-cluster=c",
				"configmaps:1:20:synced own.configmaps  x-cluster=c",
				"pods:1:0:gap shared  x-cluster=c x-team=none",
				"u3:9:added shared c/core/pods/n/p x-cluster=c x-team=none",
				"pods:1:21:synced shared  x-cluster=c x-team=none",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// checkValue compares a record with its event written alone: what they share in a lane's
// memory must not show.
func checkValue(t *testing.T, r *event.Record, format event.Format) {
	t.Helper()
	encoder := event.Encoder{Cluster: "c", ClusterUID: "u", Format: format}
	attributes := encoder.Attributes(r.Event)
	if diff := cmp.Diff(attributes, r.Attributes); diff != "" {
		t.Errorf("%s: attributes (-want +got):\n%s", r.ID, diff)
	}
	if want := format.Append(nil, attributes, r.Event); string(want) != string(r.Value) || !json.Valid(r.Value) || r.Format != format {
		t.Errorf("%s: %s, want %s", r.ID, r.Value, want)
	}
}

// The consumer's copy holds what it was told in one format and partition: another one
// of either begins anew, and nothing else of a route does.
func TestDigestOfRoutes(t *testing.T) {
	key := func(text string) *shape.Template {
		k, err := shape.ParseTemplate(text, shape.KeyNames)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	base := Shape{}.Digest()
	for name, c := range map[string]struct {
		shape Shape
		same  bool
	}{
		"structured":     {Shape{Encoder: event.Encoder{Cluster: "c", Format: event.Structured}}, true},
		"binary":         {Shape{Encoder: event.Encoder{Format: event.Binary}}, false},
		"the usual key":  {Shape{Route: Route{Key: key(shape.DefaultKey)}}, true},
		"another key":    {Shape{Route: Route{Key: key("{namespace}")}}, false},
		"a resource's":   {Shape{Keys: []string{"pods={name}"}}, false},
		"another topic":  {Shape{Route: Route{Topic: key("x")}}, true},
		"another bridge": {Shape{Encoder: event.Encoder{Cluster: "d"}}, true},
	} {
		if same := c.shape.Digest() == base; same != c.same {
			t.Errorf("%s: the digest is %q, of the usual shape %q", name, c.shape.Digest(), base)
		}
	}
}
