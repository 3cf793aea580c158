package attribution

import (
	"testing"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// A request of which one collection has published the change is needed until the other collections of the resource have done so. One of these may have no
// position, because it lists, or is suspended: then a user that is not the right one would be named if the request was forgotten. Requests for a resource of
// which all collections are absent make no change that is published. They are forgotten, as far as it is known that they are over.
func TestPassed(t *testing.T) {
	of := attribute.Resource{Storage: "core", Resource: join.Resource{Resource: "configmaps"}}
	floors := map[attribute.Resource]floor{of: {version: "90"}}
	for _, test := range []struct {
		what    string
		states  map[string]loop.State
		unnamed []string
		want    string
	}{
		{"one collection", map[string]loop.State{"configmaps@a": {Position: "50"}}, nil, "50"},
		{"two, and one lists", map[string]loop.State{"configmaps@a": {Position: "50"}, "configmaps@b": {}}, nil, ""},
		{"two", map[string]loop.State{"configmaps@a": {Position: "50"}, "configmaps@b": {Position: "9"}}, nil, "9"},
		{"before the first list", map[string]loop.State{"configmaps@a": {}}, nil, ""},
		{"absent", map[string]loop.State{"configmaps@a": {Absent: true}}, nil, "90"},
		{"one is absent", map[string]loop.State{"configmaps@a": {Absent: true}, "configmaps@b": {Position: "50"}}, nil, "50"},
		{"one is not named yet", map[string]loop.State{"configmaps@a": {Position: "50"}}, []string{"configmaps@b"}, ""},
	} {
		scope := Scope{Read: map[string]source.Target{}, Unnamed: test.unnamed}
		s := storages{of: map[join.Resource]string{}}
		s.set(&configMaps, "core")
		for id := range test.states {
			scope.Read[id] = source.Target{Collection: event.ParseCollection(id)}
		}
		for range 100 { // the order of the collections is random
			if got := s.passed(&scope, func(id string) loop.State { return test.states[id] }, floors)[of]; got != test.want {
				t.Fatalf("%s: ConfigMaps are published up to %q, want %q", test.what, got, test.want)
			}
		}
	}
}

// The storage that the checkpoint has counts until another one is known. Complete records of a resource whose entry was removed take no room: no
// position says any more up to where its changes are published.
func TestStorages(t *testing.T) {
	s := storages{of: map[join.Resource]string{}}
	pods, gadgets := event.Collection{Resource: "pods"}, event.Collection{Group: "example.com", Resource: "gadgets"}
	s.set(&pods, "core")
	s.setIfUnknown(&pods, "other")
	s.setIfUnknown(&gadgets, "crds")
	for of, want := range map[event.Collection]string{pods: "core", gadgets: "crds", {Group: "batch", Resource: "jobs"}: "none"} {
		if storage, known := s.find(attribute.ResourceOf(&of)); storage != want || known != (want != "none") {
			t.Errorf("the storage of %s is %q, want %q", of.ID(), storage, want)
		}
	}
	read := Scope{Read: map[string]source.Target{"pods@a": {Collection: pods}}, Unnamed: []string{"gadgets.example.com@b"}}
	if idle := s.idle(&read); len(idle) != 0 {
		t.Errorf("%v have no collections", idle)
	}
	read.Read = nil
	want := attribute.Resource{Storage: "core", Resource: join.Resource{Resource: "pods"}}
	if idle := s.idle(&read); len(idle) != 1 || idle[0] != want {
		t.Errorf("%v have no collections, want %v", idle, want)
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
			scope := Scope{Read: map[string]source.Target{}}
			for i, id := range test.ids {
				if unnamed && i == 0 {
					scope.Unnamed = append(scope.Unnamed, id)
					continue
				}
				scope.Read[id] = source.Target{Collection: event.ParseCollection(id)}
			}
			if got := scope.overlapping()[join.Resource{Resource: "pods"}]; got != test.want {
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
