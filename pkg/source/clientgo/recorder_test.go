package clientgo

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a handler that notes what it receives, a line per signal.
type recorder struct {
	hook func(ctx context.Context, s source.Signal) error // may be nil

	mu      sync.Mutex
	signals []source.Signal
	lines   []string
}

func (r *recorder) Handle(ctx context.Context, s source.Signal) error {
	r.mu.Lock()
	r.signals, r.lines = append(r.signals, s), append(r.lines, describe(s))
	r.mu.Unlock()
	if r.hook != nil {
		return r.hook(ctx, s)
	}
	return nil
}

// describe writes a signal as "added a@11 >10": the object, its version, and the
// version to resume from.
func describe(s source.Signal) string {
	switch s.Kind {
	case source.ListBegun:
		if s.NewEpoch {
			return "begun " + string(s.Reason) + " from " + s.RV + ", a new epoch"
		}
		return "begun " + string(s.Reason) + " from " + s.RV
	case source.ListEnded:
		return "ended " + s.RV + " >" + s.Resume
	case source.Progress:
		return "progress " + s.RV + " >" + s.Resume
	case source.Listed:
		return "listed " + s.Object.Name + "@" + s.Object.ResourceVersion
	}
	kind := map[source.SignalKind]string{source.Added: "added", source.Modified: "modified", source.Deleted: "deleted"}[s.Kind]
	return kind + " " + s.Object.Name + "@" + s.Object.ResourceVersion + " >" + s.Resume
}

func (r *recorder) received() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
}

func hashOf(o *source.Object) uint64 {
	h := xxhash.New()
	o.Hash(h)
	return h.Sum64()
}
