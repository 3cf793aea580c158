package mirror

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/mirror/store"
)

// TestTrimAgain: a trim that did not finish is repeated after a start, although the oldest retained position is the same. Otherwise the
// disk keeps the history of a resource that does not change any more.
func TestTrimAgain(t *testing.T) {
	fsys := vfs.NewMem()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	served := store.Position{Era: 1, Version: 5, Seq: 5}
	unfinished := errors.New("unfinished")
	for i, want := range []struct {
		trims  int
		result error
	}{{1, unfinished}, {1, nil}} {
		s, err := store.Open("/data", store.Options{FS: fsys})
		must(err)
		m, err := Open(s)
		must(err)
		if i == 0 {
			r := m.resourceOf(pods)
			r.Served, r.changed = served, true
			must(m.batch.SetMoment(pods, time.Unix(1, 0), served))
			must(m.Commit(nil))
		}
		trims := 0
		trim := func(_ store.Resource, floor store.Position) error {
			if trims++; floor != served {
				t.Errorf("it trims below %v, want %v", floor, served)
			}
			return want.result
		}
		if err := m.Trim(time.Unix(2, 0), trim); trims != want.trims || !errors.Is(err, want.result) {
			t.Errorf("start %d: %d trims (%v), want %d", i, trims, err, want.trims)
		}
		if want.result == nil {
			must(m.Trim(time.Unix(3, 0), trim))
			if trims != want.trims {
				t.Errorf("a finished trim is repeated")
			}
		}
		must(m.Close())
		must(s.Close())
	}
}
