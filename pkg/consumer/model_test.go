package consumer_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// world is a cluster, a bridge that tells of it, and the bus between bridge and
// consumer: one topic of several partitions, of which messages come again.
type world struct {
	t          *rapid.T
	encoder    event.Encoder
	collection event.Collection
	rv, epoch  uint64
	uids, runs int
	clock      time.Time
	jumps      bool               // the clock does, by up to an hour
	objects    map[string]*object // by name, those that exist
	told       map[string]object  // what the bus was told, by uid
	returned   map[string]bool    // uids that came back into the selection as they were
	closed     bool
	bus        [][]consumer.Message
	truths     map[string]map[string]uint64 // by resourceVersion: uid to resourceVersion
}

type object struct {
	name, uid    string
	rv, entry, n uint64 // n: how often it was announced at rv
	out          bool   // of the selection
}

func newWorld(t *rapid.T) *world {
	return &world{
		t: t, encoder: event.Encoder{Cluster: "test", ClusterUID: "c"},
		collection: event.Collection{Resource: "pods"}, rv: 8, epoch: 1, clock: time.Unix(1e9, 0), jumps: rapid.Bool().Draw(t, "jumps"),
		objects: map[string]*object{}, told: map[string]object{}, returned: map[string]bool{}, truths: map[string]map[string]uint64{},
		bus: make([][]consumer.Message, rapid.IntRange(1, 3).Draw(t, "partitions")),
	}
}

func (w *world) send(e event.Event) {
	if w.jumps && rapid.IntRange(0, 9).Draw(w.t, "jump") == 0 {
		w.clock = w.clock.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(w.t, "by")) * time.Second)
	}
	w.clock = w.clock.Add(time.Millisecond)
	e.Time, e.Collection, e.Epoch = w.clock, &w.collection, w.epoch
	value := event.Structured.Append(nil, w.encoder.Attributes(&e), &e)
	for p := range w.bus {
		if e.Type.OfCollection() || p == w.partition(e.Name) {
			w.bus[p] = append(w.bus[p], consumer.Message{Topic: "k8s", Partition: p, Partitions: len(w.bus), Value: value})
		}
	}
}

func (w *world) partition(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32()) % len(w.bus)
}

func (w *world) tell(t event.Type, origin event.Origin, o object, e event.Event) {
	e.Type, e.Origin, e.APIVersion, e.Kind, e.Namespace = t, origin, "v1", "Pod", "ns"
	e.Name, e.UID, e.Again = o.name, o.uid, o.n
	if e.ResourceVersion == "" {
		e.ResourceVersion = strconv.FormatUint(o.rv, 10)
	}
	if t == event.Deleted {
		e.Entry = event.Revision(strconv.FormatUint(o.entry, 10), 0)
		delete(w.told, o.uid)
	} else {
		w.told[o.uid] = o
	}
	w.send(e)
}

// change changes the cluster, without telling.
func (w *world) change() {
	w.rv += rapid.Uint64Range(1, 3).Draw(w.t, "step")
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.t, "name")
	o := w.objects[name]
	switch {
	case o == nil:
		w.uids++
		w.objects[name] = &object{name: name, uid: "u" + strconv.Itoa(w.uids), rv: w.rv}
	case rapid.IntRange(0, 2).Draw(w.t, "delete") == 0:
		delete(w.objects, name)
	default:
		o.rv, o.out, o.n = w.rv, rapid.IntRange(0, 3).Draw(w.t, "out") == 0, 0
	}
}

// compare tells what the bus does not know, as a watch or a list would.
func (w *world) compare(origin event.Origin, run string) (counts event.Counts) {
	for _, uid := range slices.Sorted(maps.Keys(w.told)) {
		old := w.told[uid]
		now := w.objects[old.name]
		if now != nil && now.uid == uid && !now.out {
			continue
		}
		e := event.Event{ResourceVersion: strconv.FormatUint(w.rv, 10)}
		if now != nil && now.uid == uid {
			e.Reason = "left"
		}
		old.n = 0
		w.tell(event.Deleted, origin, old, e)
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		o := w.objects[name]
		old, known := w.told[o.uid]
		switch {
		case o.out, known && old.rv == o.rv:
		case known:
			o.entry = old.entry
			w.tell(event.Modified, origin, *o, event.Event{})
		case run != "":
			o.entry, o.n = o.rv, 0
			w.tell(event.Present, origin, *o, event.Event{Run: run})
		default:
			o.entry = o.rv
			w.tell(event.Added, origin, *o, event.Event{})
		}
	}
	return counts
}

func (w *world) say(t event.Type, at uint64, run string, r event.Report) {
	e := event.Event{Type: t, Origin: event.Reconcile, Run: run, Report: &r}
	if at > 0 {
		e.ResourceVersion = strconv.FormatUint(at, 10)
	}
	if t == event.Synced {
		w.truths[e.ResourceVersion] = w.truth()
	}
	w.send(e)
}

func (w *world) truth() map[string]uint64 {
	all := map[string]uint64{}
	for _, o := range w.objects {
		if !o.out {
			all[o.uid] = o.rv
		}
	}
	return all
}

func (w *world) run() string {
	w.runs++
	return fmt.Sprintf("r%d", w.runs)
}

// list is a first list, a reconcile, a reset, or a resync; perhaps broken off and
// begun again.
func (w *world) list(reason string) {
	from, run, report := w.rv, "", event.Report{Reason: reason}
	switch reason {
	case "snapshot":
		from = 0
		if w.runs++; w.runs > 1 {
			run = strconv.Itoa(w.runs)
		}
	case "reset":
		from, run, report.Reset = 0, w.run(), true
		clear(w.told)
	case "resync":
		run = w.run()
		w.compare(event.Watch, "")
	}
	if from > 0 {
		report.From = strconv.FormatUint(from, 10)
	}
	w.say(event.Gap, from, run, report)
	for range rapid.IntRange(0, 3).Draw(w.t, "meanwhile") {
		w.change()
	}
	if reason == "resync" {
		for _, uid := range slices.Sorted(maps.Keys(w.told)) {
			w.tell(event.Present, event.Resync, w.told[uid], event.Event{Run: run})
		}
		w.compare(event.Watch, "")
	} else {
		present := ""
		if reason == "reset" {
			present = run
		}
		w.compare(event.Reconcile, present)
		if rapid.IntRange(0, 4).Draw(w.t, "interrupted") == 0 {
			report.Reset = false
			w.say(event.Gap, from, run, report)
			w.change()
			w.compare(event.Reconcile, present)
		}
	}
	w.say(event.Synced, w.rv, run, event.Report{Reason: reason, To: strconv.FormatUint(w.rv, 10)})
	w.closed = false
}

func (w *world) step() {
	if w.closed {
		for range rapid.IntRange(0, 4).Draw(w.t, "unseen") {
			w.change()
		}
		w.list("snapshot")
		return
	}
	switch rapid.IntRange(0, 11).Draw(w.t, "op") {
	case 0:
		for range rapid.IntRange(0, 4).Draw(w.t, "unseen") {
			w.change()
		}
		w.list("expired")
	case 1:
		w.list("reset")
	case 2:
		w.list("resync")
	case 3:
		w.say(event.Synced, w.rv, strconv.FormatInt(w.clock.Unix(), 10)+strconv.Itoa(w.runs), event.Report{Reason: "periodic"})
	case 4:
		w.say(event.Closed, w.rv, "", event.Report{Reason: "removed"})
		clear(w.told)
		w.closed = true
	case 5: // back into the selection, as it was: a selection that was changed
		for _, name := range slices.Sorted(maps.Keys(w.objects)) {
			if o := w.objects[name]; o.out {
				o.out, w.returned[o.uid] = false, true
				o.n++
			}
		}
		w.list("expired")
	case 6: // an at-least-once bus gets the end again
		p := rapid.IntRange(0, len(w.bus)-1).Draw(w.t, "partition")
		n := min(len(w.bus[p]), rapid.IntRange(1, 6).Draw(w.t, "again"))
		w.bus[p] = append(w.bus[p], w.bus[p][len(w.bus[p])-n:]...)
	case 7: // an old copy lands late
		p := rapid.IntRange(0, len(w.bus)-1).Draw(w.t, "partition")
		if n := len(w.bus[p]); n > 0 {
			from := rapid.IntRange(max(0, n-12), n-1).Draw(w.t, "from")
			to := rapid.IntRange(from+1, n).Draw(w.t, "to")
			w.bus[p] = append(w.bus[p], slices.Clone(w.bus[p][from:to])...)
		}
	default:
		w.change()
		w.compare(event.Watch, "")
	}
}

// read is a source that gives out the partitions in any order between them, and
// goes back at times, as after a rebalance.
type read struct {
	t    *rapid.T
	bus  [][]consumer.Message
	next []int
	back int
}

func (r *read) Next(context.Context) (consumer.Message, error) {
	var open []int
	for p := range r.bus {
		if r.next[p] < len(r.bus[p]) {
			open = append(open, p)
		}
	}
	if len(open) == 0 {
		return consumer.Message{}, io.EOF
	}
	p := rapid.SampledFrom(open).Draw(r.t, "read")
	m := r.bus[p][r.next[p]]
	r.next[p]++
	if r.back > 0 && rapid.IntRange(0, 20).Draw(r.t, "back") == 0 {
		r.back--
		r.next[p] = rapid.IntRange(0, r.next[p]).Draw(r.t, "to")
	}
	return m, nil
}

// Whatever a bus may do, the copy ends as the cluster is, and never claims to be
// complete up to where it is not.
func TestCopyIsTheCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.list("snapshot")
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			w.step()
		}
		if w.closed {
			w.list("snapshot")
		}
		w.list("expired")
		var s consumer.State
		mirror := map[string]string{} // kept from the changes alone
		defer func() {
			if t.Failed() {
				for p := range w.bus {
					for _, m := range w.bus[p] {
						e, _ := event.Parse(m.Value)
						t.Logf("on the bus: %s %s at %s %s", &m, e.ID, e.ResourceVersion, e.Time.Format("05.000"))
					}
				}
			}
		}()
		for change, err := range s.Changes(context.Background(), &read{t: t, bus: w.bus, next: make([]int, len(w.bus)), back: 4}) {
			if err != nil {
				t.Fatal(err)
			}
			e := change.Event
			for _, gone := range change.Gone {
				if mirror[gone.UID] == "" {
					t.Fatalf("%s: %s is gone and was not there", e.ID, gone.UID)
				}
				delete(mirror, gone.UID)
			}
			if !e.Type.OfCollection() && e.Type != event.Deleted {
				mirror[e.UID] = e.ResourceVersion
			}
			w.holds(t, &s)
		}
		got, want := map[string]string{}, map[string]string{}
		for _, e := range s.All() {
			got[e.UID] = e.ResourceVersion
		}
		for uid, rv := range w.truth() {
			want[uid] = strconv.FormatUint(rv, 10)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the copy is not the cluster (-cluster +copy):\n%s", diff)
		}
		if diff := cmp.Diff(got, mirror); diff != "" {
			t.Fatalf("the changes do not add up to the copy (-copy +changes):\n%s", diff)
		}
		if rv, _, ok := s.Complete("test", "pods"); !ok || rv != strconv.FormatUint(w.rv, 10) {
			t.Fatalf("complete up to %q, %t; want %d", rv, ok, w.rv)
		}
	})
}

// holds checks a claim to be complete.
func (w *world) holds(t *rapid.T, s *consumer.State) {
	rv, _, ok := s.Complete("test", "pods")
	if !ok {
		return
	}
	at, _ := strconv.ParseUint(rv, 10, 64)
	live := map[string]uint64{}
	for _, e := range s.All() {
		live[e.UID], _ = strconv.ParseUint(e.ResourceVersion, 10, 64)
	}
	for uid, then := range w.truths[rv] {
		if now, there := live[uid]; there && now < then {
			t.Fatalf("complete up to %s, but %s is at %d, not %d", rv, uid, now, then)
		} else if !there && !s.Ended(uid) && !w.returned[uid] {
			t.Fatalf("complete up to %s, but %s is not there", rv, uid)
		}
	}
	for uid, now := range live {
		if _, then := w.truths[rv][uid]; !then && now <= at && !w.returned[uid] {
			t.Fatalf("complete up to %s, but %s, at %d, is still there", rv, uid, now)
		}
	}
}
