package consumer_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/bustest"
)

// reader reads the bus of a world into a copy, and computes what the copy must have.
type reader struct {
	*bustest.World
	state     consumer.State
	saved     map[string][]byte // the records of state
	lean      consumer.State    // reads the same messages, and keeps no objects
	leanSaved map[string][]byte
	pos       map[bustest.Place]int
	begun     map[bustest.Place]bool // partitions that were read from
	repeating map[string]bool        // by partition and collection: see repeats
	messages  []consumer.Message
	late      bool           // messages are repeated behind later ones
	cut       bool           // the first messages of the partitions are gone
	shown     map[string]int // number of objects in the copy according to the changes, by uid and version

	promised               map[bustest.Place]map[string]*bustest.Sent // by collection: the newest message
	incarnations, closings map[string]uint64
	newestBirth, newest    uint64
	complete               int // how often the copy was complete
}

func newReader(w *bustest.World) *reader {
	r := &reader{
		World: w, saved: map[string][]byte{}, pos: map[bustest.Place]int{}, begun: map[bustest.Place]bool{}, repeating: map[string]bool{}, shown: map[string]int{}, promised: map[bustest.Place]map[string]*bustest.Sent{},
		incarnations: map[string]uint64{}, closings: map[string]uint64{},
	}
	r.state.Compacted, r.state.Durable = w.Compacts, true
	r.leanSaved = map[string][]byte{}
	r.lean = r.newLean()
	return r
}

// newLean returns a state that looks objects up in what was saved. It remembers as many deletions as there are.
func (r *reader) newLean() consumer.State {
	return consumer.State{Compacted: r.Compacts, Durable: true, Lookup: func(key string) ([]byte, error) { return r.leanSaved[key], nil }}
}

// saveLean saves what the lean state has not saved.
func (r *reader) saveLean() {
	err := r.lean.Save(func(key string, value []byte) error {
		switch {
		case value != nil:
			r.leanSaved[key] = value
		case strings.HasSuffix(key, ","):
			maps.DeleteFunc(r.leanSaved, func(k string, _ []byte) bool { return strings.HasPrefix(k, key) })
		default:
			delete(r.leanSaved, key)
		}
		return nil
	})
	if err != nil {
		r.T.Fatalf("%v", err)
	}
}

// applyLean checks that the same events count in a state that keeps no objects.
func (r *reader) applyLean(m consumer.Message, want consumer.Change) {
	got, err := r.lean.Apply(m)
	if err != nil && !errors.Is(err, consumer.ErrNoEvent) {
		r.T.Fatalf("%v", err)
	}
	slices.Sort(got.Dropped)
	slices.Sort(want.Dropped)
	if got.Applied != want.Applied || got.Phase != want.Phase || !slices.Equal(got.Dropped, want.Dropped) {
		r.T.Fatalf("without objects: applied %t, phase %s, dropped %q; want %t, %s, %q", got.Applied, got.Phase, got.Dropped, want.Applied, want.Phase, want.Dropped)
	}
	if diff := cmp.Diff(collections(&r.state), collections(&r.lean)); diff != "" {
		r.T.Fatalf("without objects (-with +without):\n%s", diff)
	}
	if rapid.IntRange(0, 2).Draw(r.T, "save") == 0 {
		r.saveLean()
	}
}

func (r *reader) places() []bustest.Place {
	var all []bustest.Place
	for topic, n := range r.Partitions {
		for p := range n {
			all = append(all, bustest.Place{Topic: topic, Partition: p})
		}
	}
	slices.SortFunc(all, func(a, b bustest.Place) int { return cmp2(a.Topic, b.Topic, a.Partition, b.Partition) })
	return all
}

func cmp2(a, b string, m, n int) int {
	if a != b {
		if a < b {
			return -1
		}
		return 1
	}
	return m - n
}

// next reads the next message of a partition, and checks the copy.
func (r *reader) next(at bustest.Place) bool {
	log := r.Bus[at]
	if r.pos[at] >= len(log) {
		return false
	}
	m := log[r.pos[at]]
	r.pos[at]++
	r.begun[at] = true
	r.apply(at, m, r.pos[at] == len(log))
	return true
}

func (r *reader) apply(at bustest.Place, m *bustest.Sent, atEnd bool) {
	message := m.Message
	message.AtEnd = atEnd
	r.messages = append(r.messages, message)
	change, err := r.state.Apply(message)
	if err != nil && !errors.Is(err, consumer.ErrNoEvent) {
		r.T.Fatalf("%v", err)
	}
	err = r.state.Save(func(key string, value []byte) error {
		if r.saved[key] = value; value == nil {
			delete(r.saved, key)
		}
		return nil
	})
	if err != nil {
		r.T.Fatalf("%v", err)
	}
	r.applyLean(message, change)
	for _, e := range change.Gone {
		if !r.drop(e.UID, e.ResourceVersion) {
			r.T.Fatalf("%s: object %s is gone at %s, and was not shown so", change.Event.ID, e.UID, e.ResourceVersion)
		}
	}
	for _, e := range change.Shown {
		r.shown[e.UID+"@"+e.ResourceVersion]++
	}
	r.note(at, m)
	r.T.Logf("%s/%d %d: %s", at.Topic, at.Partition, r.pos[at], m.What)
	r.check()
}

func (r *reader) drop(uid, version string) bool {
	key := uid + "@" + version
	if r.shown[key] == 0 {
		return false
	}
	if r.shown[key]--; r.shown[key] == 0 {
		delete(r.shown, key)
	}
	return true
}

// note records what a message says about the collection in its partition.
func (r *reader) note(at bustest.Place, m *bustest.Sent) {
	r.newest, r.newestBirth = max(r.newest, m.Plan), max(r.newestBirth, m.Birth)
	if m.Incarnation < r.incarnations[m.Collection] || m.Incarnation <= r.closings[m.Collection] {
		return
	}
	r.incarnations[m.Collection] = m.Incarnation
	if m.Closed {
		r.closings[m.Collection] = m.Incarnation
		return
	}
	if r.promised[at] == nil {
		r.promised[at] = map[string]*bustest.Sent{}
	}
	was := r.promised[at][m.Collection]
	if was != nil {
		r.repeats(at, m, was)
	}
	if was == nil || slices.Compare(progress(was), progress(m)) <= 0 {
		r.promised[at][m.Collection] = m
	}
}

// repeats records that the copy goes back. This happens after a crash in at-least-once delivery: in the run of a resync, the
// watch repeats events that the bus already has from the run before.
func (r *reader) repeats(at bustest.Place, m, was *bustest.Sent) {
	key := at.Topic + strconv.Itoa(at.Partition) + m.Collection
	switch {
	case m.Incarnation != was.Incarnation || m.Epoch != was.Epoch || m.At >= was.At:
		delete(r.repeating, key)
	case m.Run > was.Run && m.At > 0 && !r.Exact:
		r.repeating[key] = true
	}
}

// progress orders what a collection has published. In at-least-once delivery a later run can be behind what was on the bus
// before a crash.
func progress(m *bustest.Sent) []uint64 { return []uint64{m.Incarnation, m.Epoch, uint64(m.At), m.Run} }

// check compares the copy with the published state wherever the copy says that it is complete.
func (r *reader) check() {
	at, ok := r.state.Complete("test", "pods")
	if !ok || len(r.repeating) > 0 {
		return
	}
	r.complete++
	want, seen := map[string]int{}, map[string]bool{}
	for p, promised := range r.promised {
		for id, m := range promised {
			if m.Incarnation != r.incarnations[id] || m.Incarnation <= r.closings[id] || m.Incarnation < r.newestBirth {
				continue
			}
			seen[id] = true
			if n, _ := strconv.Atoi(at.ResourceVersion); m.Epoch == at.Epoch && m.At < n {
				r.T.Fatalf("the copy says that it is complete at %s, and %s has been read to %d of %s", at.ResourceVersion, id, m.At, p.Topic)
			}
			for name, h := range m.Holds {
				if r.Partition(p.Topic, name) == p.Partition {
					want[h.UID] = max(want[h.UID], h.Version)
				}
			}
		}
	}
	if diff := cmp.Diff(want, r.copied()); diff != "" {
		r.T.Fatalf("the copy says that it is complete at %s (-published +copy):\n%s", at.ResourceVersion, diff)
	}
	if diff := cmp.Diff(r.Plans[r.newest], slices.Sorted(maps.Keys(seen))); diff != "" {
		r.T.Fatalf("the copy says that it is complete (-plan +collections):\n%s", diff)
	}
}

func (r *reader) copied() map[string]int {
	got := map[string]int{}
	for _, e := range r.state.All() {
		got[e.UID], _ = strconv.Atoi(e.ResourceVersion)
	}
	return got
}

// act does one random step of a cluster, a bridge, a bus or a reader.
func (r *reader) act() {
	ids := r.Core.IDs()
	if len(ids) == 0 {
		r.Configure()
		return
	}
	id := rapid.SampledFrom(ids).Draw(r.T, "id")
	switch n := rapid.IntRange(0, 99).Draw(r.T, "action"); {
	case n < 20:
		r.Change()
	case n < 50:
		for range rapid.IntRange(1, 8).Draw(r.T, "steps") {
			r.ReadNext(id)
		}
	case n < 62:
		r.Seal()
	case n < 65:
		r.Configure()
	case n < 69:
		r.disturb(id)
	case n < 70:
		r.Crash()
	case n < 72:
		r.Drain()
	case n < 74 && !r.Compacts: // in a compacted topic, it is not known whether the last message was the end
		r.restart()
	default:
		r.consume()
	}
}

// collections returns the collections of a state.
func collections(s *consumer.State) []consumer.Collection {
	all := s.Collections()
	for i := range all {
		if all[i].Phase != consumer.InStep { // its position is not that of all partitions
			all[i].AsOf = consumer.AsOf{}
		}
	}
	return all
}

// restart continues with what was saved.
func (r *reader) restart() {
	before := collections(&r.state)
	at, ok := r.state.Complete("test", "pods")
	objects := r.copied()
	r.state = consumer.State{Durable: true}
	r.saveLean()
	r.lean = r.newLean()
	needed := maps.Clone(r.leanSaved)
	maps.DeleteFunc(needed, func(key string, _ []byte) bool { return consumer.OfObject(key) })
	if err := errors.Join(r.state.Load(maps.All(r.saved)), r.lean.Load(maps.All(needed))); err != nil {
		r.T.Fatalf("%v", err)
	}
	if diff := cmp.Diff(before, collections(&r.state)); diff != "" {
		r.T.Fatalf("after a restart (-before +after):\n%s", diff)
	}
	if at2, ok2 := r.state.Complete("test", "pods"); at2 != at || ok2 != ok {
		r.T.Fatalf("complete as of %v (%t), after a restart %v (%t)", at, ok, at2, ok2)
	}
	if diff := cmp.Diff(objects, r.copied()); diff != "" {
		r.T.Fatalf("after a restart (-before +after):\n%s", diff)
	}
}

// disturb does one of the rare steps.
func (r *reader) disturb(id string) {
	switch rapid.IntRange(1, 6).Draw(r.T, "disturbance") {
	case 1:
		r.Reset()
	case 2:
		r.Step(&reconcile.Input{Kind: reconcile.Demand, Collection: id})
	case 3:
		r.Expire()
	case 4:
		r.Step(&reconcile.Input{Kind: reconcile.Confirm, Collection: id})
	case 5:
		r.Restore()
	case 6:
		if rapid.IntRange(0, 2).Draw(r.T, "lost") == 0 {
			r.Forget()
		}
	}
}

// consume reads a message, reads messages again, or changes the messages that can be read.
func (r *reader) consume() {
	at := rapid.SampledFrom(r.places()).Draw(r.T, "place")
	log := r.Bus[at]
	if len(log) == 0 {
		return
	}
	switch n := rapid.IntRange(0, 9).Draw(r.T, "reading"); {
	case n == 0:
		r.pos[at] -= rapid.IntRange(0, r.pos[at]).Draw(r.T, "again")
	case n == 1 && r.late:
		r.Bus[at] = append(log, log[rapid.IntRange(0, len(log)-1).Draw(r.T, "late")])
	case n < 3 && r.Compacts:
		r.pos[at] = r.Compact(at, rapid.IntRange(0, len(log)).Draw(r.T, "compacted"), r.pos[at], !r.begun[at] && rapid.Bool().Draw(r.T, "gone"))
	case n < 4 && r.cut && !r.begun[at]:
		r.Bus[at] = slices.Clone(log[rapid.IntRange(0, len(log)).Draw(r.T, "gone"):])
	default:
		for range rapid.IntRange(1, 8).Draw(r.T, "messages") {
			r.next(at)
		}
	}
}

// Whatever happens to a cluster, a bridge and a bus, a copy that says that it is complete has the published state. Once
// everything is read, it has the state of the cluster.
func TestCopy(t *testing.T) {
	complete := 0
	rapid.Check(t, func(t *rapid.T) {
		w := bustest.New(t, event.Structured, event.Binary, event.Plain)
		w.Vanishes = rapid.Bool().Draw(t, "vanishes")
		r := newReader(w)
		if !w.Compacts {
			// A world does not get both faults: if the beginning is missing, late copies of gap and synced without the objects
			// between them would look like a beginning.
			r.cut = rapid.IntRange(0, 3).Draw(t, "cut") == 0
			r.late = !r.cut && rapid.Bool().Draw(t, "late")
		}
		for range rapid.IntRange(20, 150).Draw(t, "actions") {
			r.act()
		}
		w.Cluster.Absent = false
		w.Drain()
		for len(w.Wanted) == 0 {
			w.Configure()
		}
		w.Drain()
		r.readAll()
		if r.cut {
			for id := range w.Wanted {
				w.Step(&reconcile.Input{Kind: reconcile.Demand, Collection: id})
			}
			w.Drain()
			r.readAll()
		}
		r.final()
		complete += r.complete
	})
	if complete == 0 {
		t.Error("no copy was ever complete")
	}
}

func (r *reader) readAll() {
	for more := true; more; {
		more = false
		for _, at := range r.places() {
			more = r.next(at) || more
		}
	}
}

// final checks what must hold when everything is published and read.
func (r *reader) final() {
	at, ok := r.state.Complete("test", "pods")
	if !ok {
		r.T.Fatalf("the copy is not complete when everything is read: %+v", r.state.Collections())
	}
	want := map[string]int{}
	for _, p := range r.Wanted {
		for _, t := range r.Cluster.At(r.Cluster.Version(), p.Selection) {
			want[strconv.Itoa(t.UID)] = t.Version
		}
	}
	if diff := cmp.Diff(want, r.copied()); diff != "" {
		r.T.Fatalf("at the end, complete as of %s (-cluster +copy):\n%s", at.ResourceVersion, diff)
	}
	shown := map[string]int{}
	for _, e := range r.state.All() {
		shown[e.UID+"@"+e.ResourceVersion]++
	}
	if diff := cmp.Diff(shown, r.shown); diff != "" {
		r.T.Fatalf("the changes do not lead to the copy (-copy +changes):\n%s", diff)
	}
}
