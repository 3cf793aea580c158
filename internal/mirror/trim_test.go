package mirror

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/internal/mirror/store"
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
