package mirror

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestTrim: what is not retained any more is also forgotten by the records, which would otherwise grow without end, and eras that are retained are
// there after a restart. A call after a restart returns the lowest position again, because the deletion may not have finished.
func TestTrim(t *testing.T) {
	fsys := vfs.NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := store.Position{Era: 1, Version: 5, Seq: 5}, store.Position{Era: 3, Version: 9, Seq: 9}
	eras := []Era{{Number: 1, Complete: true, Last: first}, {Number: 2, Reason: "a"}, {Number: 3, Reason: "b", Complete: true}}
	for start, want := range []struct {
		before time.Time
		floors map[store.Resource]store.Position
		eras   []Era
	}{
		{time.Unix(0, 0), map[store.Resource]store.Position{}, eras},
		{time.Unix(1, 0), map[store.Resource]store.Position{pods: first}, eras},
		{time.Unix(1, 0), map[store.Resource]store.Position{pods: first}, eras},
		{time.Unix(2, 0), map[store.Resource]store.Position{pods: second}, eras[2:]},
		{time.Unix(2, 0), map[store.Resource]store.Position{pods: second}, eras[2:]},
	} {
		s, err := store.Open("/data", store.Options{FS: fsys})
		must(err)
		m, err := Open(s)
		must(err)
		if start == 0 {
			r := m.resourceOf(pods)
			r.eras, r.Served, r.changed, r.changedEras = append([]Era{}, eras...), second, true, []uint64{1, 2}
			must(m.batch.SetMoment(pods, time.Unix(1, 0), first))
			must(m.batch.SetMoment(pods, time.Unix(2, 0), second))
			must(m.Commit(nil))
		}
		floors, err := m.Trim(want.before)
		must(err)
		if diff := cmp.Diff(want.floors, floors); diff != "" {
			t.Errorf("start %d: the lowest positions (-want +got):\n%s", start, diff)
		}
		if diff := cmp.Diff(want.eras, m.Resource(pods).Eras); diff != "" {
			t.Errorf("start %d: the eras (-want +got):\n%s", start, diff)
		}
		must(m.Close())
		must(s.Close())
	}
}

// TestTrimClosedAfterLoss: messages were lost after a resource was closed. The states before are kept for as long as others.
func TestTrimClosedAfterLoss(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	b.gap(0, 10, "100", event.ReasonReset)
	b.pod(0, 11, event.Present, 20)
	b.synced(0, 12, "100", 1, 30)
	b.collections, b.plan = map[string]uint64{}, 2
	b.apply(0, 20, event.Event{Type: event.Closed, Origin: event.Reconcile, Report: &event.Report{Reason: event.ReasonRemoved}})
	b.commit()
	b.readUntil(25)
	if err := b.mirror.Forget("messages were lost"); err != nil {
		t.Fatal(err)
	}
	trim := func(before int64) error {
		t.Helper()
		if _, err := b.mirror.Trim(time.Unix(before, 0)); err != nil {
			t.Fatal(err)
		}
		_, err := b.mirror.AtTime(b.mirror.Resource(pods), time.Unix(15, 0))
		return err
	}
	if err := trim(20); err != nil {
		t.Errorf("within the retention: %v", err)
	}
	if err := trim(21); !errors.Is(err, ErrExpired) {
		t.Errorf("after the retention: %v", err)
	}
}

// TestTrimClosed: nothing of a resource that was closed before the retention is kept. Its objects would stay on the disk for good. It can come back.
func TestTrimClosed(t *testing.T) {
	b := openBacklog(t)
	b.partitions = 1
	trim := func(before int64) (kept bool) {
		t.Helper()
		floors, err := b.mirror.Trim(time.Unix(before, 0))
		if err == nil {
			err = b.mirror.Store().Trim(t.Context(), pods, floors[pods])
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, _, kept, err = b.mirror.batch.Newest(pods, store.Name{Namespace: "shop", Name: "pods0"}, "pods"); err != nil {
			t.Fatal(err)
		}
		return kept
	}
	list := func(seconds int64, run string, version int) {
		t.Helper()
		b.gap(0, seconds, run, event.ReasonReset)
		b.pod(0, seconds+1, event.Present, version)
		b.synced(0, seconds+2, run, 1, version+10)
		b.commit()
		b.latest(uint64(version+10), uint64(version))
	}
	list(10, "100", 20)
	b.collections, b.plan = map[string]uint64{}, 2
	b.apply(0, 20, event.Event{Type: event.Closed, Origin: event.Reconcile, Report: &event.Report{Reason: event.ReasonRemoved}})
	b.commit()
	if !trim(20) {
		t.Error("the object is deleted within the retention")
	}
	b.want(15, false, 20)
	if trim(21) {
		t.Error("the object is not deleted")
	}
	r := b.mirror.Resource(pods)
	if _, err := r.Latest(); !errors.Is(err, ErrAbsent) {
		t.Errorf("the present: %v", err)
	}
	if _, err := b.mirror.AtTime(r, time.Unix(15, 0)); !errors.Is(err, ErrExpired) {
		t.Errorf("the past: %v", err)
	}
	b.collections, b.plan, b.incarnation = map[string]uint64{"pods": 1}, 3, 300
	list(30, "300", 40)
	if !trim(25) {
		t.Error("the object that came back is deleted")
	}
	b.latest(50, 40)
}
