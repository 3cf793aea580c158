package bridge

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// fullDisk is a store whose reads fail a number of times.
type fullDisk struct {
	checkpoint.Store
	fails   int
	with    error
	between bool // reads of several keys fail behind the first one
}

func (s *fullDisk) fail() error {
	if s.fails == 0 {
		return nil
	}
	s.fails--
	return s.with
}

func (s *fullDisk) Get([]byte) ([]byte, error) { return []byte("value"), s.fail() }

func (s *fullDisk) Scan(_ []byte, fn func(key, value []byte) error) error {
	for _, key := range []string{"key", "next"} {
		if s.between != (key == "key") {
			if err := s.fail(); err != nil {
				return err
			}
		}
		if err := fn([]byte(key), nil); err != nil {
			return err
		}
	}
	return nil
}

// TestReadsOutliveAFullDisk: a pipeline that reads its checkpoint while the disk is full waits, as its commits do. It
// does not end the program.
func TestReadsOutliveAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &retryingReader{&fullDisk{fails: 3, with: syscall.ENOSPC}, t.Context(), nil, newReminder(zap.NewNop()), "s"}
		if value, err := p.Get(nil); string(value) != "value" || err != nil {
			t.Errorf("Get: %q, %v", value, err)
		}
		for _, between := range []bool{false, true} {
			p.Store = &fullDisk{fails: 3, with: syscall.ENOSPC, between: between}
			var keys []string
			err := p.Scan(nil, func(key, _ []byte) error { keys = append(keys, string(key)); return nil })
			if err != nil || !slices.Equal(keys, []string{"key", "next"}) {
				t.Errorf("Scan that fails behind the first key (%t): %q, %v", between, keys, err)
			}
		}
		stop := errors.New("enough")
		if err := p.Scan(nil, func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("Scan that is broken off: %v", err)
		}
		p.Store = &fullDisk{fails: 1, with: checkpoint.ErrCorrupt}
		if _, err := p.Get(nil); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("Get of what is damaged: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		p = &retryingReader{&fullDisk{fails: 9, with: syscall.ENOSPC}, ended, nil, newReminder(zap.NewNop()), "s"}
		if _, err := p.Get(nil); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Get at the end: %v", err)
		}
	})
}

// A bridge that starts while the disk of its checkpoint or of audit.path is full waits for space. Another error ends it.
func TestOpensOnceThereIsSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{outage: newOutage(zap.NewNop())}
		open := func(ctx context.Context, disk *fullDisk) error {
			return b.onceThereIsSpace(ctx, "open", failure{message: "open failed"}, disk.fail)
		}
		if err := open(t.Context(), &fullDisk{fails: 3, with: syscall.ENOSPC}); err != nil {
			t.Errorf("there is space after three attempts: %v", err)
		}
		if err := open(t.Context(), &fullDisk{fails: 1, with: checkpoint.ErrCorrupt}); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("what is damaged: %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := open(ended, &fullDisk{fails: 9, with: syscall.ENOSPC}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("at the end: %v", err)
		}
	})
}
