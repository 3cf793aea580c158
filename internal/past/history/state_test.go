package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	mirrorstore "github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer rebuilds the state of pods at a point in the form of --at.
func (w *world) answer(at string) (*history.State, error) {
	w.t.Helper()
	p, err := history.ParsePoint(at)
	if err != nil {
		w.t.Fatal(err)
	}
	return history.Rebuild(w.t.Context(), history.Query{Reader: w, Cluster: "prod", At: p, Resources: discovery.ParseAll([]string{"pods"})})
}

func (w *world) rebuild(at string) *history.State {
	w.t.Helper()
	s, err := w.answer(at)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func stamp(t time.Time) string { return t.Format(time.RFC3339Nano) }

// objects returns the objects of a state: name, version, and the entry of the collection that published it, if it has one.
func objects(s *history.State) []string {
	out := []string{}
	for i := range s.Objects {
		o := &s.Objects[i]
		_, entry, _ := strings.Cut(o.Collection, ":")
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s %s", o.Received.Name, o.ResourceVersion, entry), " "))
	}
	return out
}

// question is a query with the expected answer.
type question struct {
	at   string
	want []string
	err  string // nil: the state is covered
	gap  bool   // a gap is open
	// behind are the collections that had not reached the resourceVersion of the query.
	behind []string
}

func (w *world) ask(questions ...question) {
	w.t.Helper()
	for _, q := range questions {
		s, err := w.answer(q.at)
		if err == nil {
			err = s.Err()
		}
		switch {
		case q.err != "" && (!errors.Is(err, history.ErrNotCovered) || !strings.Contains(err.Error(), q.err)):
			w.t.Errorf("at %s the error is %v, want one with %q", q.at, err, q.err)
			continue
		case q.err != "":
			continue
		case err != nil:
			w.t.Errorf("at %s: %v", q.at, err)
			continue
		}
		if diff := cmp.Diff(q.want, objects(s)); diff != "" {
			w.t.Errorf("at %s (-want +got):\n%s", q.at, diff)
		}
		gap := slices.ContainsFunc(s.Collections, func(c history.Covered) bool { return c.Gap != nil })
		if gap != q.gap {
			w.t.Errorf("at %s a gap is open: %t", q.at, gap)
		}
		var behind []string
		for _, c := range s.Collections {
			if c.Behind {
				behind = append(behind, c.Collection+" "+c.Reached)
			}
		}
		if diff := cmp.Diff(q.behind, behind); diff != "" {
			w.t.Errorf("at %s what had not reached it (-want +got):\n%s", q.at, diff)
		}
	}
}

// An object that moves between two entries is in the state as long as one of them holds it, with the
// higher version. Otherwise a restore would delete it or write an old state.
func TestObjectMoves(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.Cluster.Set("x", "1") // 1
	w.Cluster.Set("y", "2") // 2
	w.settle()
	before := w.mark()
	w.paused["pods:a"] = true
	w.Cluster.Set("x", "2") // 3
	w.settle()
	both := w.mark()
	w.paused["pods:a"] = false
	w.settle()
	moved := w.mark()
	w.paused["pods:a"] = true
	w.Cluster.Set("x", "1") // 4
	w.settle()
	none := w.mark()
	w.paused["pods:a"] = false
	w.settle()
	w.Cluster.Set("z", "1") // 5
	w.Cluster.Set("v", "2") // 6
	w.settle()
	w.ask(
		question{at: stamp(before), want: []string{"x 1 a", "y 2 b"}},
		question{at: stamp(both), want: []string{"x 3 b", "y 2 b"}},
		question{at: stamp(moved), want: []string{"x 3 b", "y 2 b"}},
		question{at: stamp(none), want: []string{"y 2 b"}},
		question{at: stamp(w.mark()), want: []string{"v 6 b", "x 4 a", "y 2 b", "z 5 a"}},
		// At each resourceVersion, exactly one of the two collections holds the object.
		question{at: "2", want: []string{"x 1 a", "y 2 b"}},
		question{at: "3", want: []string{"x 3 b", "y 2 b"}},
		question{at: "4", want: []string{"x 4 a", "y 2 b"}},
		question{at: "5", want: []string{"x 4 a", "y 2 b", "z 5 a"}},
		question{at: "6", want: []string{"v 6 b", "x 4 a", "y 2 b", "z 5 a"}, behind: []string{"pods:a 5"}},
		question{at: "1", err: "pods:a: what the bus holds of it begins after resourceVersion 1"},
	)
}

// Two entries may hold one object. If they have the same version, the first collection by ID is shown.
func TestObjectInTwo(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": ""})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	two := w.mark()
	w.Cluster.Set("x", "2") // 2
	w.settle()
	one := w.mark()
	w.Cluster.Remove("x")
	w.settle()
	w.ask(
		question{at: stamp(two), want: []string{"x 1 a"}},
		question{at: stamp(one), want: []string{"x 2 b"}},
		question{at: stamp(w.mark()), want: []string{}},
	)
	s := w.rebuild(stamp(w.mark()))
	if c := s.Collections; len(c) != 2 || c[0].Reached != "2" || c[1].Reached != "3" {
		t.Errorf("the answer does not name how far each collection had reached: %+v", c)
	}
}

// A reset begins with an empty copy. While it is incomplete, the state is not known: it is neither the former state
// nor the part that was published so far.
func TestReset(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	before := w.mark()
	w.Cluster.Remove("a") // 3
	w.reset("pods")
	for range 5 { // the gap and a part of the list
		w.advance()
	}
	middle := w.mark()
	w.settle()
	w.Cluster.Set("a", "1") // 4
	w.Cluster.Set("b", "1") // 5
	w.settle()
	w.ask(
		question{at: stamp(before), want: []string{"a 1", "b 2"}},
		question{at: stamp(middle), err: "a list that publishes every object began at"},
		question{at: stamp(w.mark()), want: []string{"a 4", "b 5"}},
		question{at: "2", want: []string{"a 1", "b 2"}},
		question{at: "3", want: []string{"b 2"}},
		question{at: "4", want: []string{"a 4", "b 2"}},
	)
}

// The state is complete before a gap, marked as possibly incomplete during it, and complete again after it.
func TestGap(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	before := w.mark()
	w.Cluster.Set("b", "1") // 3
	w.Cluster.Remove("a")   // 4
	w.Cluster.Set("c", "1") // 5
	w.Expire()
	for range 2 {
		w.advance()
	}
	within := w.mark()
	w.settle()
	after := w.mark()
	w.ask(
		question{at: stamp(before), want: []string{"a 1", "b 2"}},
		question{at: stamp(within), want: []string{"a 1", "b 3"}, gap: true},
		question{at: stamp(after), want: []string{"b 3", "c 5"}},
		question{at: "2", want: []string{"a 1", "b 2"}},
		question{at: "4", want: []string{"a 1", "b 3"}, gap: true}, // when a was deleted is not known
		question{at: "5", want: []string{"b 3", "c 5"}},
		question{at: "6", err: "resourceVersion 6 is not on the bus, which holds epoch 1 up to resourceVersion 5"},
	)
}

// A resourceVersion that some partition has not reached is marked, unless a synced event proves it for all.
func TestNotReached(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	w.Cluster.Set("a", "1") // 3
	w.settle()
	w.ask(question{at: "3", want: []string{"a 3", "b 2"}, behind: []string{"pods 2"}})
	w.demand(reconcile.Confirm, "pods")
	w.settle()
	w.ask(question{at: "3", want: []string{"a 3", "b 2"}})
}

// A collection that was closed before the point has no objects, and is named in Missing. At earlier points it has its objects.
func TestClosed(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.Cluster.Set("x", "1")
	w.Cluster.Set("y", "2")
	w.settle()
	open := w.mark()
	w.configure(map[string]string{"pods:a": "1"})
	w.settle()
	w.Cluster.Set("x", "1") // 3
	w.Cluster.Set("u", "1") // 4
	w.settle()
	closed := w.mark()
	w.ask(
		question{at: stamp(open), want: []string{"x 1 a", "y 2 b"}},
		question{at: stamp(closed), want: []string{"u 4 a", "x 3 a"}},
		question{at: "2", want: []string{"x 1 a", "y 2 b"}},
		question{at: "3", want: []string{"x 3 a"}},
	)
	if m := w.rebuild(stamp(closed)).Missing; len(m) != 1 || m[0].Name != "pods:b" || !m[0].LeftOut || !strings.Contains(m[0].Why, "not watched since") {
		t.Errorf("what is left out: %+v", m)
	}
	if m := w.rebuild("3").Missing; len(m) != 1 || m[0].Name != "pods:b" || !m[0].LeftOut {
		t.Errorf("what is left out at 3: %+v", m)
	}
}

// A closed event has no resourceVersion. A collection that was open at the point must not count as closed because a partition has
// no newer event.
func TestClosedLater(t *testing.T) {
	w := newWorld(t, 3, map[string]string{"pods:a": "1", "pods:b": "2"})
	for _, name := range []string{"x", "y", "z"} {
		w.Cluster.Set(name, "1") // 1 to 3
	}
	w.settle()
	w.Cluster.Set("x", "1") // 4
	w.settle()
	w.Cluster.Set("v", "2") // 5
	w.settle()
	w.configure(map[string]string{"pods:b": "2"})
	w.settle()
	w.Cluster.Set("v", "2") // 6
	w.settle()
	w.ask(
		question{at: "4", want: []string{"x 4 a", "y 2 a", "z 3 a"}, behind: []string{"pods:a 3", "pods:b 3"}},
		question{at: "5", want: []string{"v 5 b", "x 4 a", "y 2 a", "z 3 a"}, behind: []string{"pods:a 3", "pods:b 3"}},
		question{at: "6", want: []string{"v 6 b"}, behind: []string{"pods:b 3"}},
	)
}

// After a backup of the cluster was restored, the same resourceVersions occur again, in another epoch.
func TestRestored(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	w.Cluster.Set("a", "1") // 3
	w.Cluster.Set("b", "1") // 4
	w.settle()
	first := w.mark()
	w.Back(2)
	w.settle()
	second := w.mark()
	w.Cluster.Set("b", "1") // 3
	w.Cluster.Set("a", "1") // 4
	w.settle()
	w.ask(
		question{at: stamp(first), want: []string{"a 3", "b 4"}},
		question{at: stamp(second), want: []string{"a 1", "b 2"}},
		question{at: stamp(w.mark()), want: []string{"a 4", "b 3"}},
		question{at: "e1:3", want: []string{"a 3", "b 2"}},
		question{at: "e1:4", want: []string{"a 3", "b 4"}, behind: []string{"pods 3"}},
		question{at: "e2:2", want: []string{"a 1", "b 2"}},
		question{at: "e2:3", want: []string{"a 1", "b 3"}},
		question{at: "e2:1", err: "its first list of epoch 2 was not complete at resourceVersion 1"},
		question{at: "e3:1", err: "resourceVersion 1 of epoch 3 is not on the bus, which holds epoch 1 up to resourceVersion 4 and epoch 2 up to resourceVersion 4"},
	)
	p, _ := history.ParsePoint("3")
	if _, err := history.Rebuild(t.Context(), history.Query{Reader: w, Cluster: "prod", At: p, Resources: discovery.ParseAll([]string{"pods"})}); err == nil || !strings.Contains(err.Error(), "write e2:3") {
		t.Errorf("without an epoch the error is %v", err)
	}
}

// A collection that moves to another topic is complete in each topic while it was there.
func TestMoves(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.addTopic("u", 3)
	w.Cluster.Set("x", "1") // 1
	w.Cluster.Set("y", "2") // 2
	w.settle()
	before := w.mark()
	w.paused["pods:b"] = true
	w.move("pods:b", "u")
	w.demand(reconcile.Confirm, "pods:a") // has the new plan
	w.settle()
	middle := w.mark()
	w.paused["pods:b"] = false
	w.settle()
	w.Cluster.Set("x", "1") // 3
	w.Cluster.Set("y", "2") // 4
	w.Cluster.Set("z", "2") // 5
	w.settle()
	after := w.mark()
	w.move("pods:b", "t")
	w.settle()
	w.Cluster.Remove("z") // 6
	w.settle()
	w.ask(
		question{at: stamp(before), want: []string{"x 1 a", "y 2 b"}},
		question{at: stamp(middle), err: "pods: the configuration has other collections"},
		question{at: stamp(after), want: []string{"x 3 a", "y 4 b", "z 5 b"}},
		question{at: stamp(w.mark()), want: []string{"x 3 a", "y 4 b"}},
		question{at: "2", want: []string{"x 1 a", "y 2 b"}},
		question{at: "6", want: []string{"x 3 a", "y 4 b"}, behind: []string{"pods:a 2", "pods:b 5"}},
	)
	s := w.rebuild(stamp(after))
	if len(s.Collections) != 2 || s.Collections[1].Gap != nil || s.Collections[1].Reached != "2" {
		t.Errorf("the collections are %+v", s.Collections)
	}
}

// A state that two entries published has the publications of both, because one of them may lack fields that a restore needs.
func TestViews(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "12"})
	w.Cluster.Set("x", "1") // 1
	w.settle()
	two := w.mark()
	w.paused["pods:a"] = true
	w.Cluster.Set("x", "1") // 2
	w.settle()
	for at, want := range map[time.Time][]string{two: {"pods:a 1", "pods:b 1"}, w.mark(): {"pods:b 2"}} {
		var got, held []string
		o := &w.rebuild(stamp(at)).Objects[0]
		for _, e := range o.Views() {
			got = append(got, e.Collection+" "+e.ResourceVersion)
		}
		for _, e := range o.Held {
			held = append(held, e.Collection)
		}
		if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(held, []string{"pods:a", "pods:b"}) {
			t.Errorf("held by %v (-want +got):\n%s", held, diff)
		}
	}
}

// Between two times an object may move to another entry, and an entry may be added or removed. Objects that only such an entry held
// count neither as added nor as removed, because they may have existed.
func TestCompare(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	for i, name := range []string{"v", "w", "x", "y", "z"} {
		w.Cluster.Set(name, []string{"1", "2"}[i%2]) // v, x and z are a's
	}
	w.settle()
	first := w.mark()
	w.Cluster.Set("x", "2") // moves from a to b
	w.Cluster.Remove("y")
	w.Cluster.Set("z", "1")
	w.Cluster.Set("u", "2")
	w.configure(map[string]string{"pods:b": "2", "pods:c": "13"})
	w.Cluster.Set("t", "3")
	w.settle()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := history.Compare(ended, w.rebuild(stamp(first)), w.rebuild(stamp(w.mark()))); !errors.Is(err, context.Canceled) {
		t.Errorf("comparing does not end: %v", err)
	}
	d, err := history.Compare(t.Context(), w.rebuild(stamp(first)), w.rebuild(stamp(w.mark())))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range d.Objects {
		got = append(got, strings.TrimSpace(o.What+" "+o.Name+" "+o.Note))
	}
	want := []string{
		"added ns/u", "changed ns/x published by pods:a before and by pods:b after: fields that only one of them has differ, too",
		"removed ns/y", "changed ns/z nothing but its resourceVersion or managedFields",
	}
	if diff := cmp.Diff(want, got); diff != "" || d.Unchanged != 2 { // v and w
		t.Errorf("%d are unchanged (-want +got):\n%s", d.Unchanged, diff)
	}
}

// Two entries may leave out different fields. A field that only one of them publishes is no change if the other entry proves
// that there was none. Otherwise the difference has a note.
func TestCompareViews(t *testing.T) {
	object := func(published ...string) *history.State {
		s := &history.State{}
		o := history.Object{ResourceID: "pods"}
		for _, p := range published {
			id, body, _ := strings.Cut(p, " ")
			o.Held = append(o.Held, &event.Received{Collection: id, Name: "x", UID: "u", ResourceVersion: "1", BodyKnown: true, Object: []byte(body)})
			s.Collections = append(s.Collections, history.Covered{Collection: id, Resource: "pods"})
		}
		o.Received = o.Held[0]
		s.Objects = []history.Object{o}
		return s
	}
	for name, c := range map[string]struct {
		before, after *history.State
		unchanged     int
		note          string
	}{
		"one of both shows it": {object(`pods:a {}`, `pods:b {"spec":1}`), object(`pods:b {"spec":1}`), 1, ""},
		"no collection in both": {
			object(`pods:a {}`), object(`pods:b {"spec":1}`), 0,
			"published by pods:a before and by pods:b after: fields that only one of them has differ, too",
		},
	} {
		d, err := history.Compare(t.Context(), c.before, c.after)
		if err != nil || d.Unchanged != c.unchanged || len(d.Objects) != 1-c.unchanged || c.note != "" && d.Objects[0].Note != c.note {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// A collection of a lost checkpoint does not count as watched.
func TestLostCheckpoint(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.Cluster.Set("x", "1")
	w.Cluster.Set("y", "2")
	w.settle()
	before := w.mark()
	delete(w.Wanted, "pods:b")
	delete(w.edits, "pods:b")
	w.forget()
	w.settle()
	after := w.mark()
	w.ask(
		question{at: stamp(before), want: []string{"x 1 a", "y 2 b"}},
		question{at: stamp(after), want: []string{"x 1 a"}},
	)
	if m := w.rebuild(stamp(after)).Missing; len(m) != 1 || m[0].Name != "pods:b" || !m[0].LeftOut {
		t.Errorf("what is left out: %+v", m)
	}
}

// The state is incomplete if the bus has no event of an entry yet.
func TestUnpublishedEntry(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1"})
	w.Cluster.Set("x", "1")
	w.settle()
	w.paused["pods:b"] = true
	w.configure(map[string]string{"pods:a": "1", "pods:b": "2"})
	for p := range w.bus { // the new collection's gap has not reached the bus
		w.bus[p] = slices.DeleteFunc(w.bus[p], func(m message) bool { return strings.Contains(string(m.value), `"collection":"pods:b"`) })
	}
	w.demand(reconcile.Confirm, "pods:a")
	w.settle()
	w.ask(question{at: stamp(w.mark()), err: "pods: the configuration has other collections of it than the bus had by then"})
}

// A resourceVersion that the cluster has not reached is an error. It is enough that another resource has reached it.
func TestUnknownPoint(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	other := newWorld(t, 1, map[string]string{"services": ""})
	for range 5 {
		other.Cluster.Set("s", "1")
	}
	other.settle()
	for at, want := range map[string]string{"2": "", "5": "", "6": "resourceVersion 6 is not on the bus, which holds epoch 1 up to resourceVersion 5"} {
		p, _ := history.ParsePoint(at)
		_, err := history.Rebuild(t.Context(), history.Query{
			Reader: w, Cluster: "prod", At: p, Resources: discovery.ParseAll([]string{"pods"}),
			Whole: func(context.Context) (sink.Reader, error) { return other, nil },
		})
		if want == "" && err != nil || want != "" && (!errors.Is(err, history.ErrNotCovered) || !strings.Contains(err.Error(), want)) {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

// A collection without objects is covered.
func TestEmpty(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.settle()
	w.ask(question{at: stamp(w.mark()), want: []string{}})
}

// A collection without a complete list on the bus is not covered.
func TestNotCovered(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		want   string // in the error; "": it is covered
	}{
		"all":             {func(*world) {}, ""},
		"retention":       {func(w *world) { w.first[0], w.first[1] = 1, 1 }, "no reset or resync by then"},
		"retention, then": {func(w *world) { w.demand(reconcile.Demand, "pods"); w.settle(); w.first[0], w.first[1] = 1, 1 }, ""},
		"a dead letter":   {func(w *world) { w.lose = "b"; w.reset("pods"); w.settle() }, "of the 2 objects of the list of"},
		"a list that was cut": {func(w *world) {
			w.Cluster.Set("a", "1")
			w.settle()
			for p := range w.bus {
				w.bus[p] = slices.DeleteFunc(w.bus[p], func(m message) bool { return strings.Contains(string(m.value), ":u1:1:present") })
			}
		}, "of the 2 objects of the list of"},
		"objects that were not published": {func(w *world) {
			p := w.Wanted["pods"]
			p.Skip = true
			w.Wanted["pods"] = p
			w.forget()
			w.settle()
		}, "2 objects of the list of"},
		"an interrupted reset": {func(w *world) {
			w.reset("pods")
			for range 3 {
				w.advance()
			}
			w.Expire()
			w.settle()
			w.first[0], w.first[1] = 2, 2 // without the list before
		}, ""},
		"nothing": {func(w *world) { clear(w.bus) }, "the bus holds no events of it"},
		"half a reset": {func(w *world) {
			w.reset("pods")
			w.settle()
			w.bus[0] = w.bus[0][:len(w.bus[0])-1]
		}, "a list that publishes every object began"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, map[string]string{"pods": ""})
			w.Cluster.Set("a", "1")
			w.Cluster.Set("b", "1")
			w.settle()
			c.change(w)
			q := question{at: stamp(w.mark()), err: c.want, want: []string{"a 1", "b 2"}}
			w.ask(q)
		})
	}
}

// A copy of an old event that follows the base list does not bring an object back.
func TestLateCopy(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	late := w.bus[0][2] // b
	w.Cluster.Remove("b")
	w.settle()
	w.demand(reconcile.Demand, "pods")
	w.settle()
	w.bus[0] = append(w.bus[0], late)
	w.ask(question{at: stamp(w.mark()), want: []string{"a 1"}})
}

// A query for one namespace uses only collections that may have objects in it, and returns only its objects.
func TestNamespace(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b@shop": "2"})
	w.Cluster.Set("x", "1")
	w.settle()
	w.reset("pods:b@shop") // is not complete
	for namespace, want := range map[string][]string{"ns": {"x 1 a"}, "other": {}} {
		s, err := history.Rebuild(t.Context(), history.Query{
			Reader: w, Cluster: "prod", At: history.Point{Time: w.mark()}, Resources: discovery.ParseAll([]string{"pods"}), Namespace: namespace,
		})
		if err != nil || s.Err() != nil {
			t.Fatal(err, s.Err())
		}
		if diff := cmp.Diff(want, objects(s)); diff != "" || len(s.Collections) != 1 {
			t.Errorf("%s: %+v (-want +got):\n%s", namespace, s.Collections, diff)
		}
	}
}

// A resource whose deletions are not published is left out of an answer about all resources. If the query names it, it is an error.
func TestLeavesOut(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": "", "events": ""})
	w.edit("events", func(p *reconcile.Properties) { p.Types = p.Types.Without(event.Deleted) })
	w.Cluster.Set("x", "1")
	w.settle()
	for _, resources := range [][]string{nil, {"events"}} {
		s, err := history.Rebuild(t.Context(), history.Query{
			Reader: w, Cluster: "prod", At: history.Point{Time: w.mark()}, Resources: discovery.ParseAll(resources),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Err()
		if named := resources != nil; (err != nil) != named || len(s.Missing) != 1 || !strings.Contains(s.Missing[0].Why, "its deleted events are not published") {
			t.Errorf("of %v: %v, %+v", resources, err, s.Missing)
		}
		if resources == nil && !cmp.Equal(objects(s), []string{"x 1"}) {
			t.Errorf("the objects are %v", objects(s))
		}
	}
}

// A collection whose deletions were not published is closed. It does not keep the resource's other collection from an answer that names the resource.
func TestLeavesOutClosed(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
	w.edit("pods:b", func(p *reconcile.Properties) { p.Types = p.Types.Without(event.Deleted) })
	w.Cluster.Set("x", "1")
	w.Cluster.Set("y", "2")
	w.settle()
	w.configure(map[string]string{"pods:a": "1"})
	w.settle()
	s, err := history.Rebuild(t.Context(), history.Query{
		Reader: w, Cluster: "prod", At: history.Point{Time: w.mark()}, Resources: discovery.ParseAll([]string{"pods"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil || !cmp.Equal(objects(s), []string{"x 1 a"}) {
		t.Errorf("the objects are %v (%v)", objects(s), err)
	}
	if m := s.Missing; len(m) != 1 || m[0].Name != "pods:b" || !m[0].LeftOut || !strings.Contains(m[0].Why, "not watched since") {
		t.Errorf("what is left out: %+v", m)
	}
}

// What a collection left out is that of the point: the settings may be others before and after it.
func TestSelectionOfPoint(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.edit("pods", func(p *reconcile.Properties) { p.Types = p.Types.Without(event.Deleted) })
	w.Cluster.Set("a", "1") // 1
	w.settle()
	without := w.mark()
	w.edit("pods", func(p *reconcile.Properties) { p.Types, p.Contents.Filtered, p.Filter = 0, true, "f" })
	w.Cluster.Set("a", "1") // 2
	w.settle()
	filtered := w.mark()
	w.edit("pods", func(p *reconcile.Properties) { p.Contents.Filtered, p.Filter = false, "" })
	w.Cluster.Set("a", "1") // 3
	w.settle()
	whole := w.mark()
	w.edit("pods", func(p *reconcile.Properties) { p.Types = p.Types.Without(event.Modified) })
	w.settle()
	w.ask(
		question{at: stamp(without), err: "its deleted events are not published"},
		question{at: stamp(filtered), want: []string{"a 2"}},
		question{at: stamp(whole), want: []string{"a 3"}},
		question{at: "2", want: []string{"a 2"}},
		question{at: stamp(w.mark()), err: "its modified events are not published"},
	)
	for at, want := range map[time.Time]event.Selection{filtered: {Filtered: true}, whole: {}} {
		if s := w.rebuild(stamp(at)); len(s.Collections) != 1 || s.Collections[0].Selection != want {
			t.Errorf("at %s: %+v, want the selection %+v", stamp(at), s.Collections, want)
		}
	}
}

// A state can be rebuilt from every format of messages, including plain ones, whose attributes are headers.
func TestFormats(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary, event.Plain} {
		w := newWorld(t, 1, map[string]string{"pods:a": "1", "pods:b": "2"})
		w.format = format
		w.configure(map[string]string{"pods:a": "1", "pods:c": "2"})
		w.Cluster.Set("x", "1") // 1
		w.Cluster.Set("y", "2") // 2
		w.settle()
		w.Cluster.Set("x", "2") // 3
		w.Cluster.Remove("y")   // 4
		w.settle()
		w.ask(
			question{at: stamp(w.mark()), want: []string{"x 3 c"}},
			question{at: "2", want: []string{"x 1 a", "y 2 c"}},
		)
		want := []string{"present 1 pods:a", "deleted 3 pods:a left", "added 3 pods:c"}
		if diff := cmp.Diff(want, w.changes(time.Time{}, time.Time{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", format, diff)
		}
	}
}

// Events that waited during an outage count by their own time, not by the time of the bus. The same holds for complete lists.
func TestOutage(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"pods": ""})
	w.late = time.Hour
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	listed := w.mark()
	w.Cluster.Set("a", "1")
	w.settle()
	w.ask(
		question{at: stamp(listed), want: []string{"a 1", "b 2"}},
		question{at: stamp(w.mark()), want: []string{"a 3", "b 2"}},
	)
}

// After a clock was set back, a time that occurs twice means its first occurrence, never a mixture of both.
func TestClockWasSetBack(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": "", "services": "9"}) // services have no later events
	w.Cluster.Set("a", "1")
	w.Cluster.Set("b", "1")
	w.settle()
	twice := w.mark()
	w.Cluster.Set("a", "1") // 3
	w.settle()
	w.clock = w.clock.Add(-time.Hour)
	w.Cluster.Set("b", "1") // 4
	w.settle()
	w.ask(
		question{at: stamp(twice), want: []string{"a 1", "b 2"}},
		question{at: stamp(twice.Add(time.Minute)), want: []string{"a 3", "b 4"}},
	)
}

// A complete list near the time is found without reading earlier messages.
func TestLooksBackOnly(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"pods": ""})
	w.Cluster.Set("a", "1")
	w.settle()
	for range 5_000 {
		w.bus[0] = append(w.bus[0], w.bus[0][1])
	}
	w.reset("pods")
	w.settle()
	w.ask(question{at: stamp(w.mark()), want: []string{"a 1"}})
	if w.read > 5_000 {
		t.Errorf("%d messages were read", w.read)
	}
}

// At every time the state equals the copy of a consumer that has read until then, and after every complete list it is covered.
func TestEveryTime(t *testing.T) {
	covered := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 1+int(seed%3), map[string]string{"pods:a": "1", "pods:b": "12"})
		for range 60 {
			w.act(r)
		}
		for range 25 {
			at := start.Add(time.Duration(r.Int64N(int64(w.clock.Sub(start)))))
			s := w.rebuild(stamp(at))
			want, complete := w.consumed(at)
			if err := s.Err(); err != nil && complete {
				t.Fatalf("seed %d at %s: a consumer is complete; %v", seed, at, err)
			}
			if s.Err() != nil {
				continue
			}
			covered++
			if diff := cmp.Diff(want, objects(s)); diff != "" {
				t.Fatalf("seed %d at %s (-consumer +state):\n%s", seed, at, diff)
			}
		}
	}
	if covered < 200 {
		t.Errorf("%d times were covered", covered)
	}
}

// On a compacted topic the present state is covered as soon as a consumer's copy is complete. For an earlier time, an answer
// without a mark equals the answer from the uncompacted topic.
func TestCompacted(t *testing.T) {
	present, past := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, 1+int(seed%3), map[string]string{"pods:a": "1", "pods:b": "12"})
		for range 60 {
			w.act(r)
		}
		if seed%2 == 0 {
			w.settle()
		}
		answers := map[string]*history.State{}
		for range 25 {
			at := stamp(start.Add(time.Duration(r.Int64N(int64(w.clock.Sub(start))))))
			answers[at] = w.rebuild(at)
		}
		end := w.mark()
		want, complete := w.consumed(end)
		w.latest = true
		w.compact(r.IntN(10))
		s := w.rebuild(stamp(end))
		switch {
		case s.Err() != nil && complete:
			t.Fatalf("seed %d: a consumer is complete; %v", seed, s.Err())
		case s.Err() == nil:
			present++
			if diff := cmp.Diff(want, objects(s)); diff != "" {
				t.Fatalf("seed %d (-consumer +state):\n%s", seed, diff)
			}
		}
		for at, whole := range answers {
			s := w.rebuild(at)
			if s.Err() != nil || whole.Err() != nil || slices.ContainsFunc(s.Collections, func(c history.Covered) bool { return c.Replaced }) {
				continue
			}
			past++
			if diff := cmp.Diff(objects(whole), objects(s)); diff != "" {
				t.Fatalf("seed %d at %s (-whole topic +compacted):\n%s", seed, at, diff)
			}
		}
	}
	if present < 10 {
		t.Errorf("%d present and %d past states were covered", present, past)
	}
}

// At every resourceVersion the state, and a mirror as bridge serve keeps it, have the objects that the selections had in the cluster at that
// version. So two answers of the program for a version do not contradict each other.
func TestEveryVersion(t *testing.T) {
	covered, both := 0, 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, 1+int(seed%3), map[string]string{"pods:a": "1", "pods:b": "12"})
		w.Cluster.Set("a", "1")
		for range 60 {
			w.write(r)
			switch id := []string{"pods:a", "pods:b"}[r.IntN(2)]; r.IntN(24) {
			case 0:
				w.reset(id)
			case 1:
				w.demand(reconcile.Demand, id)
			case 2:
				w.Expire()
			case 3:
				w.settle()
				w.demand(reconcile.Confirm, "pods:a")
				w.demand(reconcile.Confirm, "pods:b")
			default:
				for range r.IntN(20) {
					w.advance()
				}
			}
		}
		mirrored := w.mirror()
		for version := int(seed % 3); version < w.Cluster.Version(); version += 3 {
			at := strconv.Itoa(version + 1)
			want := []string{}
			for name, o := range w.Cluster.At(version+1, "") {
				want = append(want, fmt.Sprintf("%s %d %s", name, o.Version, map[string]string{"1": "a", "2": "b"}[o.Group]))
			}
			slices.Sort(want)
			copied, mirrors := mirrored(uint64(version + 1))
			if diff := cmp.Diff(want, copied); mirrors && diff != "" {
				t.Fatalf("seed %d at %s (-cluster +mirror):\n%s", seed, at, diff)
			}
			s, err := w.answer(at)
			if err != nil || s.Err() != nil || slices.ContainsFunc(s.Collections, func(c history.Covered) bool { return c.Gap != nil || c.Behind }) {
				continue
			}
			covered++
			if mirrors {
				both++
			}
			if diff := cmp.Diff(want, objects(s)); diff != "" {
				t.Fatalf("seed %d at %s (-cluster +state):\n%s", seed, at, diff)
			}
		}
	}
	if covered < 50 || both < 20 {
		t.Errorf("%d versions were covered, %d of them by the mirror", covered, both)
	}
}

// mirror reads the whole bus into a mirror, and returns a function that lists pods in it, if it covers a resourceVersion.
func (w *world) mirror() func(version uint64) (pods []string, ok bool) {
	must := func(err error) {
		if w.t.Helper(); err != nil {
			w.t.Fatal(err)
		}
	}
	db, err := mirrorstore.Open(w.t.TempDir(), mirrorstore.Options{})
	must(err)
	w.t.Cleanup(func() { must(db.Close()) })
	m, err := mirror.Open(db)
	must(err)
	w.t.Cleanup(func() { must(m.Close()) })
	l := history.NewLog(w, history.LogOptions{Cluster: "prod"})
	var ranges []sink.Range
	for _, p := range l.Parts() {
		ranges = append(ranges, sink.Range{To: p.End})
	}
	must(l.Events(w.t.Context(), ranges, func(_ *sink.Message, at consumer.Message, e *event.Received) error { return m.Apply(at, e) }))
	must(m.Commit(nil))
	r := m.Resource(mirrorstore.Resource{Cluster: "prod", Name: "pods"})
	return func(version uint64) ([]string, bool) {
		at, err := r.AtVersion(version, 0)
		if err != nil {
			return nil, false
		}
		pods := []string{}
		must(db.List(mirrorstore.View{Resource: r.ID, At: at}, "", mirrorstore.Name{}, func(o *mirrorstore.Object) bool {
			pods = append(pods, fmt.Sprintf("%s %d %s", o.Name.Name, o.ResourceVersion, strings.TrimPrefix(o.Collection, "pods:")))
			return true
		}))
		return pods, true
	}
}

// write makes a random change to the cluster.
func (w *world) write(r *rand.Rand) {
	name := string(rune('a' + r.IntN(4)))
	if w.Cluster.At(w.Cluster.Version(), "")[name] != nil && r.IntN(4) == 0 {
		w.Cluster.Remove(name)
		return
	}
	w.Cluster.Set(name, string(rune('1'+r.IntN(2))))
}

// act does a random action of a cluster or a bridge.
func (w *world) act(r *rand.Rand) {
	id := []string{"pods:a", "pods:b"}[r.IntN(2)]
	switch n := r.IntN(30); {
	case n < 15:
		w.write(r)
	case n == 15:
		w.reset(id)
	case n == 16:
		w.demand(reconcile.Demand, id)
	case n == 17:
		w.Expire()
	case n == 18:
		w.configure(map[string]string{"pods:a": "1", "pods:b": []string{"2", "12"}[r.IntN(2)]})
	case n == 19:
		w.configure(map[string]string{id: "12"})
	case n == 20:
		w.forget()
	case n == 21 && w.Cluster.Version() > 3:
		w.settle()
		w.Back(1)
		w.settle()
	default:
		for range r.IntN(12) {
			w.advance()
		}
	}
}

// consumed returns the copy of a consumer that has read everything up to a time, and whether it is complete.
func (w *world) consumed(at time.Time) (copy []string, complete bool) {
	var copied consumer.State
	for p, messages := range w.bus {
		for _, m := range messages {
			if m.time.After(at) {
				break
			}
			if _, err := copied.Apply(consumer.Message{Topic: "t", Partition: p, Partitions: len(w.bus), Value: m.value}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	var s history.State
	for name := range copied.All() {
		e, _ := copied.Get(name) // of several objects of the name, the newest
		if n := len(s.Objects); n == 0 || s.Objects[n-1].Received != e {
			s.Objects = append(s.Objects, history.Object{Received: e, ResourceID: "pods"})
		}
	}
	_, complete = copied.Complete("prod", "pods")
	return objects(&s), complete
}
