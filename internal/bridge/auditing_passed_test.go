package bridge

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// passedNow returns what passed returns for ConfigMaps if the last floor of each resource is 90; "": the resource is not in it.
func (r *rig) passedNow() (version string) {
	r.t.Helper()
	configMaps := attribute.Resource{Resource: join.Resource{Resource: "configmaps"}}
	planned, err := r.loop.Page(r.t.Context(), 0, func(loop.Page) {
		version = r.passed(map[attribute.Resource]floor{configMaps: {version: "90"}})[configMaps]
	})
	if err != nil || !planned {
		r.t.Fatalf("planned is %t, error %v", planned, err)
	}
	return version
}

// A request of which one collection has published the change is needed until the other collections of the resource have done so. One of these may have no
// position, because it lists, or is suspended: then a user that is not the right one would be named if the request was forgotten.
func TestACollectionWithoutAPosition(t *testing.T) {
	a, store := newDenying(t)
	r := newUnplannedRig(t, &nowhere{}, store, a.spec)
	defer r.stop()
	first, second := event.Collection{Resource: "configmaps", Namespace: "a"}, event.Collection{Resource: "configmaps", Namespace: "b"}
	r.setCollection(first, CollectionOptions{})
	r.reads(append([]*reconcile.Input{{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot}}, listEnd("50")...)...)
	if version := r.passedNow(); version != "50" {
		t.Fatalf("ConfigMaps are published up to %q, want 50", version)
	}
	r.setCollections(CollectionOptions{}, first, second)
	for range 100 { // the order of the collections is random
		if version := r.passedNow(); version != "" {
			t.Fatalf("ConfigMaps are published up to %q, and one collection has no position", version)
		}
	}
}

// Requests for a resource of which all collections are absent make no change that is published. They are forgotten, as far as it is known that they are
// over.
func TestAbsentCollections(t *testing.T) {
	a, store := newDenying(t)
	r := newUnplannedRig(t, &nowhere{}, store, a.spec)
	defer r.stop()
	r.setCollection(event.Collection{Resource: "configmaps", Namespace: "a"}, CollectionOptions{})
	if version := r.passedNow(); version != "" {
		t.Fatalf("ConfigMaps are published up to %q before the first list", version)
	}
	r.reads(&reconcile.Input{Kind: reconcile.ListBegun, Reason: source.ReasonSnapshot, Absent: true})
	if version := r.passedNow(); version != "90" {
		t.Errorf("ConfigMaps are published up to %q, want 90", version)
	}
}

// A collection of one namespace has no object of another namespace. All other collections of a resource may have the same ones.
func TestOverlappingCollections(t *testing.T) {
	for _, test := range []struct {
		ids  []string
		want bool
	}{
		{[]string{"pods"}, false},
		{[]string{"pods@a", "pods@b", "pods:web@c"}, false},
		{[]string{"pods@a", "pods:web@a"}, true},
		{[]string{"pods", "pods:web"}, true},
		{[]string{"pods@a", "pods:web"}, true},
		{[]string{"pods", "services"}, false},
	} {
		for _, unnamed := range []bool{false, true} {
			p := newPipeline(pipelineOptions{Identity: identity, Sink: &nowhere{}, Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry())})
			for i, id := range test.ids {
				if unnamed && i == 0 {
					p.unnamed[id] = true
					continue
				}
				p.setTarget(id, target{Target: source.Target{Collection: event.ParseCollection(id)}, selection: id})
			}
			if got := p.overlapping()[join.Resource{Resource: "pods"}]; got != test.want {
				t.Errorf("the collections %v overlap: %t, want %t", test.ids, got, test.want)
			}
		}
	}
}

func TestLowerPosition(t *testing.T) {
	for _, test := range []struct{ a, b, want string }{
		{"100", "100", "100"},
		{"99", "100", "99"},
		{"", "100", ""},
		{"", "", ""},
		{"other", "100", ""},
		{"other", "other", "other"},
		{"other", "another", ""},
	} {
		if got := lowerPosition(test.a, test.b); got != test.want {
			t.Errorf("of %q and %q, the lower one is %q, want %q", test.a, test.b, got, test.want)
		}
		if got := lowerPosition(test.b, test.a); got != test.want {
			t.Errorf("of %q and %q, the lower one is %q, want %q", test.b, test.a, got, test.want)
		}
	}
}
