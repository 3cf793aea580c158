package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// backlog applies events of collections, each on a topic of its own with a number of partitions.
type backlog struct {
	*testing.T
	mirror      *Mirror
	collections map[string]uint64 // and the plans that have edited them
	collection  string            // of the events that are applied next
	partitions  int
	plan        uint64
	incarnation uint64
	epoch       uint64
	selection   event.Selection // of the gap and synced events that are applied next
}

func openBacklog(t *testing.T) *backlog {
	s, err := store.Open("/data", store.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	b := &backlog{t, m, map[string]uint64{"pods": 1}, "pods", 2, 1, 100, 1, event.Selection{}}
	t.Cleanup(func() { _, _ = b.mirror.Close(), s.Close() })
	return b
}

// restart continues with what was committed.
func (b *backlog) restart() {
	b.Helper()
	s := b.mirror.Store()
	err := b.mirror.Close()
	if err == nil {
		b.mirror, err = Open(s)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (b *backlog) apply(partition int, seconds int64, e event.Event) {
	b.Helper()
	col := event.ParseCollection(b.collection)
	e.Collection, e.Time, e.Epoch, e.Incarnation = &col, time.Unix(seconds, 0), b.epoch, b.incarnation
	if e.Run == "" {
		e.Run = "100"
	}
	if e.Type.OfCollection() {
		e.Plan = &event.Plan{Number: b.plan, Edit: 1, Birth: 1, Digest: event.PlanDigest(b.collections)}
		e.Report.Selection = b.selection
	}
	encoder := event.Encoder{Cluster: "test", ClusterUID: "c", Format: event.Structured}
	message := consumer.Message{Topic: b.collection, Partition: partition, Partitions: b.partitions, Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
	received, err := consumer.Decode(message)
	if err == nil {
		err = b.mirror.Apply(message, received)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func (b *backlog) pod(partition int, seconds int64, t event.Type, version int) {
	b.Helper()
	e := b.event(partition, t, version)
	if e.Origin = event.Watch; t == event.Deleted {
		e.DeletionVersion = e.ResourceVersion
	}
	b.apply(partition, seconds, e)
}

// event is an event about the pod of a partition, without an origin.
func (b *backlog) event(partition int, t event.Type, version int) event.Event {
	name, rv := fmt.Sprint(b.collection, partition), strconv.Itoa(version)
	return event.Event{
		Type: t, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name, UID: name, ResourceVersion: rv,
		Object: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, name, rv),
	}
}

func (b *backlog) gap(partition int, seconds int64, run string, reason event.Reason) {
	b.Helper()
	origin := event.Watch
	if reason == event.ReasonReset {
		origin = event.Snapshot
	}
	b.apply(partition, seconds, event.Event{Type: event.Gap, Run: run, Origin: origin, Report: &event.Report{Reason: reason, Reset: reason == event.ReasonReset}})
}

func (b *backlog) synced(partition int, seconds int64, run string, nth uint64, version int) {
	b.Helper()
	rv := strconv.Itoa(version)
	b.apply(partition, seconds, event.Event{Type: event.Synced, Run: run, Origin: event.Snapshot, ResourceVersion: rv, Nth: nth, Report: &event.Report{Reason: event.ReasonReset, To: rv}})
}

func (b *backlog) commit() {
	b.Helper()
	if err := b.mirror.Commit(nil); err != nil {
		b.Fatal(err)
	}
}

// readUntil says that everything is read that the bus had at a time.
func (b *backlog) readUntil(seconds int64) {
	b.Helper()
	all := map[string]bool{}
	for _, c := range b.mirror.all[pods].Collections {
		for at := range c.Begun {
			all[at] = true
		}
	}
	if err := b.mirror.ReadUntil(time.Unix(seconds, 0), all); err != nil {
		b.Fatal(err)
	}
}

// want checks what is shown at a time, when the bus was read up to it.
func (b *backlog) want(seconds int64, gap bool, versions ...uint64) {
	b.Helper()
	b.readUntil(seconds)
	p, err := b.mirror.AtTime(b.mirror.Resource(pods), time.Unix(seconds, 0))
	if err != nil {
		b.Errorf("at %d: %v", seconds, err)
		return
	}
	if (p.Gap != "") != gap {
		b.Errorf("at %d the gap is %q, want one: %v", seconds, p.Gap, gap)
	}
	b.wantAt(p.At, versions)
}

// latest checks which resourceVersion is served, and the objects there.
func (b *backlog) latest(version uint64, versions ...uint64) {
	b.Helper()
	at, err := b.mirror.Resource(pods).Latest()
	if err != nil || at.Version != version {
		b.Errorf("served is %v (%v), want resourceVersion %d", at, err, version)
	}
	b.wantAt(at, versions)
}

func (b *backlog) wantAt(at store.Position, versions []uint64) {
	b.Helper()
	var got []uint64
	err := b.mirror.Store().List(store.View{Resource: pods, At: at}, "", store.Name{}, func(o *store.Object) bool {
		got = append(got, o.ResourceVersion)
		return true
	})
	if err != nil || !slices.Equal(got, versions) {
		b.Errorf("at %v are the versions %v (%v), want %v", at, got, err, versions)
	}
}

// TestMomentsOfBacklog: a time shows what was published by then, also if one partition was read to its end before another one, and if the
// served position went over all changes at once.
func TestMomentsOfBacklog(t *testing.T) {
	for _, proof := range []string{"synced", "marked"} {
		t.Run(proof, func(t *testing.T) {
			b := openBacklog(t)
			b.gap(0, 1, "100", event.ReasonReset)
			b.pod(0, 2, event.Present, 10)
			b.synced(0, 3, "100", 1, 20)
			for i := range 4 {
				b.pod(0, int64(100+10*i), event.Modified, 30+10*i)
			}
			b.gap(1, 1, "100", event.ReasonReset)
			b.pod(1, 2, event.Present, 11)
			b.synced(1, 3, "100", 1, 20)
			b.pod(1, 115, event.Modified, 45)
			if proof == "synced" {
				b.synced(0, 200, "100", 2, 70)
				b.synced(1, 200, "100", 2, 70)
			} else {
				b.commit()
				b.mirror.MarkReached()
				b.mirror.ProveMarked(map[string]bool{b.collection + "/0": true, b.collection + "/1": true})
			}
			b.commit()
			if _, err := b.mirror.AtTime(b.mirror.Resource(pods), time.Unix(2, 0)); err == nil {
				t.Error("a time before the first list ended is shown")
			}
			b.want(3, false, 10, 11)
			b.want(99, false, 10, 11)
			b.want(105, false, 30, 11)
			b.want(114, false, 40, 11)
			b.want(119, false, 40, 45)
			b.want(120, false, 50, 45)
			b.want(130, false, 60, 45)
			b.want(300, false, 60, 45)
		})
	}
}

// TestMomentsBeforeGap: if a partition that was read first ends an era, times at which changes of other partitions are not shown have a gap.
func TestMomentsBeforeGap(t *testing.T) {
	b := openBacklog(t)
	for i := range 2 {
		b.gap(i, 1, "100", event.ReasonReset)
		b.pod(i, 2, event.Present, 10+i)
		b.synced(i, 3, "100", 1, 20)
	}
	b.pod(0, 100, event.Modified, 30)
	b.gap(0, 200, "200", "expired")
	b.pod(1, 50, event.Modified, 25)
	b.gap(1, 200, "200", "expired")
	for i := range 2 {
		b.synced(i, 210, "200", 1, 40)
	}
	b.commit()
	b.want(49, false, 10, 11)
	b.want(50, true, 10, 11)
	b.want(205, true, 10, 11)
	b.want(210, false, 30, 25)
}

// TestResyncOfLaggingPartition: a partition that reads a resync after another one has begun an era with it writes to that era. Otherwise its later
// changes are shown at resourceVersions before them, and watches do not have them.
func TestResyncOfLaggingPartition(t *testing.T) {
	b := openBacklog(t)
	b.gap(1, 1, "100", event.ReasonReset)
	b.gap(0, 3, "200", "selection")
	b.synced(0, 4, "200", 1, 13)
	b.pod(1, 2, event.Present, 11)
	b.synced(1, 2, "100", 1, 12)
	b.gap(0, 5, "300", event.ReasonResync)
	b.synced(0, 6, "300", 1, 14)
	b.synced(0, 20, "300", 2, 30)
	b.gap(1, 3, "200", "selection")
	b.synced(1, 4, "200", 1, 13)
	b.gap(1, 5, "300", event.ReasonResync)
	b.synced(1, 6, "300", 1, 14)
	b.commit()
	b.pod(1, 10, event.Modified, 20)
	b.commit()
	b.want(9, false, 11)
	b.synced(1, 20, "300", 2, 30)
	b.commit()
	b.want(9, false, 11)
	b.want(300, false, 20)
}

// openTwo opens a backlog with one partition and the lists of two collections.
func openTwo(t *testing.T) *backlog {
	b := openBacklog(t)
	b.collections, b.partitions = map[string]uint64{"pods@a": 1, "pods@b": 1}, 1
	for i, id := range []string{"pods@a", "pods@b"} {
		b.collection = id
		b.gap(0, 1, "100", event.ReasonReset)
		b.pod(0, 2, event.Present, 10+i)
		b.synced(0, 3, "100", 1, 20)
	}
	return b
}

// TestGoneCollection: a namespace is deleted, and another one's collection has not come so far. Its states before the deletion are not shown without
// the objects that existed then.
func TestGoneCollection(t *testing.T) {
	b := openTwo(t)
	b.pod(0, 100, event.Deleted, 50)
	b.collection = "pods@a"
	b.pod(0, 50, event.Modified, 30)
	b.commit()
	b.latest(30, 30, 11)
	b.collection = "pods@b"
	b.gap(0, 110, "200", event.ReasonGone)
	b.apply(0, 111, event.Event{Type: event.Synced, Origin: event.Reconcile, Run: "200", Nth: 1, Report: &event.Report{Reason: event.ReasonGone}})
	b.commit()
	b.latest(30, 30, 11)
	b.collection = "pods@a"
	b.pod(0, 120, event.Modified, 45)
	b.commit()
	b.latest(30, 30, 11)
	b.pod(0, 130, event.Modified, 60)
	b.commit()
	b.latest(60, 60)
	b.want(60, false, 30, 11)
}

// TestResyncOfCutPartition: a resync completes a partition that has lost its first messages. The other partition, which was in step, is not behind it:
// otherwise its later changes are shown at resourceVersions before them.
func TestResyncOfCutPartition(t *testing.T) {
	b := openBacklog(t)
	b.gap(0, 1, "100", event.ReasonReset)
	b.pod(0, 2, event.Present, 11)
	b.synced(0, 3, "100", 1, 12)
	b.synced(1, 3, "100", 1, 12) // its gap and its objects are lost
	b.gap(0, 5, "300", event.ReasonResync)
	b.synced(0, 6, "300", 1, 14)
	b.gap(1, 5, "300", event.ReasonResync)
	b.synced(1, 6, "300", 1, 14)
	b.commit()
	b.pod(0, 10, event.Modified, 20)
	b.synced(0, 20, "300", 2, 30)
	b.synced(1, 20, "300", 2, 30)
	b.commit()
	b.want(9, false, 11)
	b.want(300, false, 20)
}

// A resync shows objects as they are. Changes that only ignored fields or types that are not published have had are not on the bus, so a watch goes on.
// What a resync shows above the served resourceVersion is served, once that is complete.
func TestResyncOfWhatIsIgnored(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	b.gap(0, 1, "100", event.ReasonReset)
	b.pod(0, 2, event.Present, 10)
	b.synced(0, 3, "100", 1, 20)
	b.synced(0, 4, "100", 2, 50)
	b.commit()
	b.latest(50, 10)
	era := b.mirror.Resource(pods).Served.Era
	b.gap(0, 5, "200", event.ReasonResync)
	b.resynced(6, "200", 40)
	b.synced(0, 7, "200", 1, 60)
	b.commit()
	b.latest(60, 10)
	b.gap(0, 8, "300", event.ReasonResync)
	b.resynced(9, "300", 70)
	b.synced(0, 10, "300", 1, 80)
	b.commit()
	b.latest(80, 70)
	if now := b.mirror.Resource(pods).Served.Era; now != era {
		t.Errorf("the era is %d, and was %d: a watch ends", now, era)
	}
}

// resynced applies what a resync shows of a pod.
func (b *backlog) resynced(seconds int64, run string, version int) {
	b.Helper()
	e := b.event(0, event.Present, version)
	e.Run, e.Origin = run, event.Resync
	b.apply(0, seconds, e)
}

// unread checks that the state of a time is not known yet.
func (b *backlog) unread(seconds int64) {
	b.Helper()
	if p, err := b.mirror.AtTime(b.mirror.Resource(pods), time.Unix(seconds, 0)); !errors.Is(err, ErrUnread) {
		b.Errorf("at %d is shown %+v (%v)", seconds, p, err)
	}
}

// TestMomentsOfCopyReadAgain: messages were lost, and everything is read again. Meanwhile the past is shown as before, and later times are not shown with
// an older state.
func TestMomentsOfCopyReadAgain(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	first := func() {
		b.gap(0, 1, "100", event.ReasonReset)
		b.pod(0, 2, event.Present, 10)
		b.synced(0, 3, "100", 1, 20)
		b.commit()
	}
	first()
	b.pod(0, 4, event.Modified, 30)
	b.gap(0, 5, "200", "expired")
	b.synced(0, 6, "200", 1, 35)
	b.pod(0, 10, event.Modified, 40)
	b.commit()
	past := func() {
		t.Helper()
		b.want(3, false, 10)
		b.want(4, false, 30)
		b.want(9, false, 30)
		b.want(10, false, 40)
		b.want(11, false, 40)
		b.unread(12)
	}
	past()
	for range 2 { // messages can be lost again before all are read
		if err := b.mirror.Forget("messages were lost"); err != nil {
			t.Fatal(err)
		}
		past()
		first()
		b.latest(20, 10)
		past()
		b.pod(0, 4, event.Modified, 30)
		b.gap(0, 5, "200", "expired")
		b.commit()
		past()
		b.synced(0, 6, "200", 1, 35)
		b.commit()
		past()
	}
	b.pod(0, 10, event.Modified, 40)
	b.commit()
	past()
	b.pod(0, 12, event.Modified, 50)
	b.commit()
	past()
	b.want(12, false, 50)
}

// TestUnreadTimes: a time is shown once everything is read that was published by then, and served. Before that the answer would be an older state.
func TestUnreadTimes(t *testing.T) {
	b := openTwo(t)
	b.commit()
	b.unread(3)
	b.want(5, false, 10, 11)
	b.unread(6)
	b.collection = "pods@a"
	b.pod(0, 10, event.Modified, 30)
	b.pod(0, 12, event.Modified, 32)
	b.commit()
	b.unread(9)
	b.want(9, false, 10, 11)
	b.readUntil(20)
	b.want(9, false, 10, 11)
	b.unread(10) // the change is not served, because the other collection is behind
	b.unread(20)
	b.collection = "pods@b"
	b.pod(0, 18, event.Modified, 31)
	b.commit()
	b.unread(12)
	b.readUntil(20)
	b.want(10, false, 30, 11)
	b.want(11, false, 30, 11)
	b.unread(12)
	b.synced(0, 25, "100", 2, 40)
	b.collection = "pods@a"
	b.synced(0, 25, "100", 2, 40)
	b.commit()
	b.want(12, false, 30, 11)
	b.want(18, false, 32, 31)
	b.want(20, false, 32, 31)
	b.unread(25)
	b.want(25, false, 32, 31)
}

// TestUnreadFirstTimes: a resource becomes complete below changes that were read already. The times of these changes are not shown before they are served,
// also after a restart.
func TestUnreadFirstTimes(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restarts), func(t *testing.T) {
			b := openBacklog(t)
			b.collections, b.partitions = map[string]uint64{"pods@a": 1, "pods@b": 1}, 1
			b.collection = "pods@a"
			b.gap(0, 1, "100", event.ReasonReset)
			b.pod(0, 2, event.Present, 10)
			b.synced(0, 3, "100", 1, 20)
			b.pod(0, 4, event.Modified, 30)
			b.collection = "pods@b"
			b.gap(0, 1, "100", event.ReasonReset)
			b.pod(0, 2, event.Present, 11)
			b.synced(0, 5, "100", 1, 25)
			b.commit()
			b.latest(25, 10, 11)
			if restarts {
				b.restart()
			}
			b.readUntil(20)
			b.unread(10)
			if restarts {
				b.restart()
				b.unread(10)
			}
			b.synced(0, 25, "100", 2, 40)
			b.commit()
			b.latest(30, 30, 11)
			b.want(10, false, 30, 11)
		})
	}
}

// TestUnreadPartition: how far another partition was read says nothing about a resource of one that is not seen any more.
func TestUnreadPartition(t *testing.T) {
	b := openBacklog(t)
	for i := range 2 {
		b.gap(i, 1, "100", event.ReasonReset)
		b.pod(i, 2, event.Present, 10+i)
		b.synced(i, 3, "100", 1, 20)
	}
	b.commit()
	b.want(5, false, 10, 11)
	if err := b.mirror.ReadUntil(time.Unix(9, 0), map[string]bool{"pods/0": true}); err != nil {
		t.Fatal(err)
	}
	b.unread(6)
	b.want(6, false, 10, 11)
}

// TestMomentsOfClosedCollection: when a collection is closed, what is left is complete at once. The time before shows the collection's objects.
func TestMomentsOfClosedCollection(t *testing.T) {
	b := openTwo(t)
	b.commit()
	delete(b.collections, "pods@b")
	b.plan = 2
	b.apply(0, 5, event.Event{Type: event.Closed, Run: "100", Origin: event.Reconcile, Report: &event.Report{Reason: "removed"}})
	b.commit()
	b.latest(20, 10)
	b.want(4, false, 10, 11)
	b.want(5, false, 10)
}

// TestKindOfNewestEvent: the API version is that of the newest object, not that of a deletion or of a partition that is behind.
func TestKindOfNewestEvent(t *testing.T) {
	b := openBacklog(t)
	pod := func(partition int, seconds int64, kind event.Type, apiVersion string) {
		t.Helper()
		e := b.event(partition, kind, int(10+seconds))
		e.APIVersion, e.Origin = apiVersion, event.Watch
		if kind == event.Deleted {
			e.DeletionVersion = e.ResourceVersion
		}
		b.apply(partition, seconds, e)
		b.commit()
	}
	want := func(apiVersion string) {
		t.Helper()
		if got := b.mirror.Resource(pods).Kind; got != (Kind{apiVersion, "Pod", true}) {
			t.Errorf("it is %v, want %s", got, apiVersion)
		}
	}
	b.gap(0, 1, "100", event.ReasonReset)
	b.gap(1, 1, "100", event.ReasonReset)
	pod(0, 2, event.Deleted, "v1alpha1") // nothing else is known
	want("v1alpha1")
	pod(1, 3, event.Added, "v1beta1")
	want("v1beta1")
	pod(1, 5, event.Modified, "v1")
	want("v1")
	pod(0, 4, event.Added, "v1beta1")
	want("v1")
	pod(0, 6, event.Deleted, "v1beta1")
	want("v1")
	if err := b.mirror.Forget("messages were lost"); err != nil {
		t.Fatal(err)
	}
	b.gap(1, 1, "100", event.ReasonReset)
	pod(1, 3, event.Added, "v1beta1")
	want("v1")
	pod(1, 7, event.Modified, "v2")
	want("v2")
}

// TestFormerErasAreForgotten: the eras of former gaps are kept only while a partition is behind them.
func TestFormerErasAreForgotten(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	for i := range 3 {
		b.gap(0, int64(1+i), strconv.Itoa(100+100*i), "expired")
	}
	if n := len(b.mirror.all[pods].Collections["pods"].Former); n != 0 {
		t.Errorf("%d are kept", n)
	}
}

// TestSkippedInALaggingPartition: a resync shows that no object is left that the first list has skipped. States before it can lack objects that have
// changed since, so they are not served when only one partition has read it.
func TestSkippedInALaggingPartition(t *testing.T) {
	b := openBacklog(t)
	listed := func(partition int, seconds int64, run string, version, skipped int) {
		t.Helper()
		rv := strconv.Itoa(version)
		b.apply(partition, seconds, event.Event{
			Type: event.Synced, Run: run, Origin: event.Snapshot, ResourceVersion: rv, Nth: 1,
			Report: &event.Report{Reason: event.ReasonReset, To: rv, Counts: &event.Counts{Skipped: skipped}},
		})
		b.commit()
	}
	incomplete := func() {
		t.Helper()
		if at, err := b.mirror.Resource(pods).Latest(); !errors.Is(err, ErrIncomplete) {
			t.Errorf("it serves %v (%v)", at, err)
		}
	}
	for i := range 2 {
		b.gap(i, 1, "100", event.ReasonReset)
		listed(i, 2, "100", 20, 1)
		incomplete()
	}
	b.gap(0, 5, "200", event.ReasonResync)
	listed(0, 6, "200", 40, 0)
	incomplete()
	b.pod(1, 4, event.Added, 30) // that the first list has skipped
	b.commit()
	incomplete()
	b.gap(1, 5, "200", event.ReasonResync)
	listed(1, 6, "200", 40, 0)
	b.latest(40, 30)
}

// TestFirstListsAreNotCopied: while the first lists of many collections are read, gaps and closed collections write little, and do not copy what
// was read of other collections. Otherwise a batch does not fit in memory. What is then served is what the last list of each collection has shown.
func TestFirstListsAreNotCopied(t *testing.T) {
	const collections, objects = 20, 40
	for _, partitions := range []int{1, 2} {
		b := openBacklog(t)
		b.partitions, b.collections = partitions, map[string]uint64{}
		id := func(i int) string { return fmt.Sprintf("pods@n%02d", i) }
		for i := range collections {
			b.collections[id(i)] = 1
		}
		pod := func(i, n int, run string, version int) {
			e := b.event(0, event.Present, version)
			e.Name, e.UID, e.Run, e.Origin = fmt.Sprint(id(i), "-", n), fmt.Sprint(id(i), "-", n), run, event.Snapshot
			e.Object = fmt.Appendf(nil, `{"filler":%q}`, strings.Repeat("x", 1000))
			b.apply(partitions-1, 2, e) // that reads gaps after the others
		}
		small := func(what string) {
			t.Helper()
			if n := b.mirror.batch.Len(); n > 20_000 {
				t.Errorf("%s of one collection writes %d bytes, with %d partitions", what, n, partitions)
			}
			b.commit()
		}
		for i := range collections {
			b.collection = id(i)
			for p := range partitions {
				b.gap(p, 1, "100", event.ReasonReset)
			}
			for n := range objects {
				pod(i, n, "100", 100+n)
			}
			b.commit()
		}
		for i := range collections / 2 { // the lists begin again, with another selection: versions can be lower
			b.collection = id(i)
			for p := range partitions {
				b.gap(p, 3, "200", "expired")
				small("a gap")
			}
			for n := range 2 {
				pod(i, n, "200", 50+n)
			}
			small("a list")
		}
		for i := range 3 {
			b.plan++
			b.collection = id(i)
			delete(b.collections, b.collection)
			b.apply(0, 4, event.Event{Type: event.Closed, Run: "200", Origin: event.Reconcile, Report: &event.Report{Reason: "removed"}})
			small("a closed collection")
		}
		for i := 3; i < collections; i++ {
			b.collection = id(i)
			run := "100"
			if i < collections/2 {
				run = "200"
			}
			for p := range partitions {
				b.synced(p, 5, run, 1, 200)
			}
		}
		b.commit()
		var want []uint64
		for i := 3; i < collections; i++ {
			for n := range objects {
				version := uint64(100 + n)
				if i < collections/2 && n < 2 {
					version = uint64(50 + n)
				}
				want = append(want, version)
			}
		}
		r := b.mirror.Resource(pods)
		at, err := r.Latest()
		if err != nil || at.Version != 200 || at.Era != 1 {
			t.Errorf("served is %v (%v)", at, err)
		}
		var got []uint64
		err = b.mirror.Store().List(store.View{Resource: pods, At: at}, "", store.Name{}, func(o *store.Object) bool {
			got = append(got, o.ResourceVersion)
			return true
		})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the objects %v are served (%v), want %v", got, err, want)
		}
		err = b.mirror.Store().Changes(b.Context(), pods, "", store.Position{Era: at.Era, Version: r.Present().Base, Seq: ^uint64(0)}, at, func(c *store.Change) bool {
			t.Errorf("a watch sees the change %v of %s", c.At, c.Name.Name)
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestUnorderedEnds: a resourceVersion that is not a number counts only until all collections of the resource are dropped.
func TestUnorderedEnds(t *testing.T) {
	for _, forget := range []bool{true, false} {
		b := openBacklog(t)
		b.partitions = 1
		b.gap(0, 1, "100", event.ReasonReset)
		e := b.event(0, event.Present, 10)
		e.ResourceVersion, e.Origin = "ten", event.Snapshot
		b.apply(0, 2, e)
		b.commit()
		if _, err := b.mirror.Resource(pods).Latest(); !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "ten") {
			t.Errorf("the error is %v", err)
		}
		if forget {
			if err := b.mirror.Forget("messages were lost"); err != nil {
				t.Fatal(err)
			}
		} else {
			b.apply(0, 3, event.Event{Type: event.Closed, Run: "100", Origin: event.Reconcile, Report: &event.Report{Reason: "removed"}})
			b.incarnation = 200
		}
		b.gap(0, 4, "200", event.ReasonReset)
		e = b.event(0, event.Present, 10)
		e.Run, e.Origin = "200", event.Snapshot
		b.apply(0, 5, e)
		b.synced(0, 6, "200", 1, 20)
		b.commit()
		b.latest(20, 10)
	}
}

// TestRestoreDuringFirstLists: an object was deleted at a higher resourceVersion than that to which the cluster was restored, and no list has ended in
// between. No event says so again, and it is not shown.
func TestRestoreDuringFirstLists(t *testing.T) {
	b := openBacklog(t)
	b.partitions, b.collections = 1, map[string]uint64{"pods@a": 1, "pods@b": 1}
	for _, id := range []string{"pods@a", "pods@b"} {
		b.collection = id
		b.gap(0, 1, "100", event.ReasonReset)
	}
	for _, id := range []string{"pods@b", "pods@a"} { // the other one deletes its pod after this one has noticed the restore
		b.collection, b.epoch = id, 1
		b.pod(0, 2, event.Added, 34)
		b.pod(0, 3, event.Deleted, 37)
		b.epoch = 2
		b.gap(0, 4, "200", event.ReasonHistory)
		b.synced(0, 5, "200", 1, 35)
		b.commit()
	}
	b.latest(35)
}
