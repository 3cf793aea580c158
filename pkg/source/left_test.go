package source

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Watches, DELETED with a selector: the object may live on outside the selection.
// Calling that a deletion would be false, and so would the contrary.
func TestLeft(t *testing.T) {
	const path = "/api/v1/namespaces/s/configmaps/a"
	alive := text200(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",` + item("a", "12")[1:])
	for _, c := range []struct {
		name       string
		collection event.Collection
		get        answer
		asked      int
		left       bool
	}{
		{"alive", event.Collection{LabelSelector: "a=b"}, alive, 1, true},
		{"alive, by a field selector", event.Collection{FieldSelector: "status.phase!=Failed"}, alive, 1, true},
		{"gone", event.Collection{LabelSelector: "a=b"}, notThere("configmaps", "a"), 1, false},
		{"another of that name", event.Collection{LabelSelector: "a=b"}, owner("another"), 1, false},
		{"forbidden", event.Collection{LabelSelector: "a=b"}, failing(403), 1, false},
		{"no answer", event.Collection{LabelSelector: "a=b"}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, false},
		{"no selector", event.Collection{}, alive, 0, false},
		{"a selector that nothing can leave", event.Collection{FieldSelector: "metadata.namespace!=x,metadata.name=a"}, alive, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{open(frame("DELETED", "a", "12"))})
				s.others = map[string]answer{path: c.get}
				r := run(t, Options{Client: inMemory(t, s), Target: configMaps(c.collection)}, event.Position{RV: "10"}, nil)
				pass(10 * time.Second)
				r.stop()
				want := "deleted a@12 >10"
				if c.left {
					want = "left a@12 >10"
				}
				compare(t, r.told(), []string{want})
				if got := s.elsewhere[path]; got != c.asked {
					t.Errorf("asked %d times, want %d", got, c.asked)
				}
			})
		})
	}
}

// Where nobody may ask, or nothing answers, a burst of deletions must not be held
// back by one question each.
func TestAliveStopsAsking(t *testing.T) {
	const path = "/api/v1/namespaces/s/configmaps/"
	type answered struct{ alive, known bool }
	for _, c := range []struct {
		name  string
		get   answer
		want  answered
		stops bool
	}{
		{"forbidden", failing(403), answered{}, true},
		{"500", failing(500), answered{}, true},
		{"a lone 404", failing(404), answered{}, false},
		{"gone", notThere("configmaps", "a"), answered{false, true}, false},
		{"alive", owner("u"), answered{true, true}, false},
		{"another", owner("v"), answered{false, true}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, nil)
				s.others = map[string]answer{path + "a": c.get}
				col := NewCollection(Options{Client: inMemory(t, s), Target: configMaps(event.Collection{})})
				ask := func() {
					t.Helper()
					if alive, known := col.Alive(t.Context(), "s", "a", "u"); (answered{alive, known}) != c.want {
						t.Errorf("got alive=%t known=%t", alive, known)
					}
				}
				for range 9 {
					ask()
				}
				want := 9
				if c.stops {
					want = aliveFailures
				}
				if got := s.elsewhere[path+"a"]; got != want {
					t.Errorf("asked %d times, want %d", got, want)
				}
				time.Sleep(alivePause)
				ask()
				if got := s.elsewhere[path+"a"]; got != want+1 {
					t.Errorf("after a minute: asked %d times, want %d", got, want+1)
				}
			})
		})
	}
	t.Run("failures in a row only", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t, nil, nil)
			s.others = map[string]answer{path + "up": owner("u")}
			col := NewCollection(Options{Client: inMemory(t, s), Target: configMaps(event.Collection{})})
			for i := range 9 {
				col.Alive(t.Context(), "s", "down", "u")
				if i%2 == 1 {
					col.Alive(t.Context(), "s", "up", "u")
				}
			}
			if got := s.elsewhere[path+"down"]; got != 9 {
				t.Errorf("asked %d times, want 9", got)
			}
		})
	})
}
