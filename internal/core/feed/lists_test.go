package feed

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// With one sink the configured bound applies, also if it is more than four.
func TestOneSinkHasAllLists(t *testing.T) {
	if r := New(Options{Lists: NewLists(10)}); !r.own.all.TryAcquire(10) || r.own.all.TryAcquire(1) {
		t.Error("a sink alone does not have the ten lists")
	}
}

// Retries leave half of the slots to other lists. The number of all lists is bounded.
func TestRetriesLeaveRoom(t *testing.T) {
	for n, want := range map[int]struct{ retries, all int }{1: {1, 1}, 4: {2, 4}, 5: {2, 5}} {
		synctest.Test(t, func(t *testing.T) {
			lists := NewLists(n)
			ctx, cancel := context.WithCancel(t.Context())
			running := 0
			begin := func(a source.Attempt) {
				go func() {
					if lists.acquire(ctx, a) == nil {
						running++
					}
				}()
				synctest.Wait()
			}
			for range 8 {
				begin(source.Retry)
			}
			if running != want.retries {
				t.Errorf("of %d lists at once %d are retries, want %d", n, running, want.retries)
			}
			for range 8 {
				begin(source.First)
			}
			if running != want.all {
				t.Errorf("of %d lists at once %d run", n, running)
			}
			cancel()
			synctest.Wait()
			for i := range want.all {
				attempt := source.First
				if i < want.retries {
					attempt = source.Retry
				}
				lists.release(attempt)
			}
			if !lists.all.TryAcquire(int64(n)) || !lists.retries.TryAcquire(int64(max(n/2, 1))) {
				t.Error("a list that is over, or was given up, still counts")
			}
		})
	}
}
