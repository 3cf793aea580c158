package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
)

// beside is a feeder whose lists beside the watch fail while it is refused.
type beside struct {
	*feeder
	mu      sync.Mutex
	refused bool
	takes   time.Duration // a list that is not refused
	asked   int           // lists beside the watch
}

// Side implements [loop.Reader].
func (b *beside) Side(ctx context.Context, _ string, _ reconcile.Read, h *loop.Handler) error {
	b.mu.Lock()
	b.asked++
	refused := b.refused
	b.mu.Unlock()
	if refused {
		return errors.New("the API server is down")
	}
	time.Sleep(b.takes)
	for i := range b.objects {
		s := sighting(fmt.Sprintf("name-%06d", i), state{i + 1, i + 1}, reconcile.Resync)
		if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: s}, 0, nil); err != nil {
			return err
		}
	}
	return h.Input(ctx, &reconcile.Input{Kind: reconcile.SideEnded, Version: fmt.Sprint(b.objects)}, 0, nil)
}

// attempts returns how many lists beside the watch began in a time from now on.
func (b *beside) attempts(d time.Duration) int {
	b.mu.Lock()
	before := b.asked
	b.mu.Unlock()
	time.Sleep(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked - before
}

func (b *beside) refuse(refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = refused
}

// count returns how many events of a type the bus has.
func (b *bus) count(typ string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		if l.Type == typ {
			n++
		}
	}
	return n
}

func openGate() *gated {
	b := &gated{bus: &bus{}, gate: make(chan struct{})}
	close(b.gate)
	return b
}

// docs/compatibility.md: while the API server is down, a resync and a verification begin again after pauses of up to a minute. A resync goes on, without
// another gap.
func TestFailedListBesideTheWatchIsPaced(t *testing.T) {
	for name, resync := range map[string]bool{"resync": true, "verification": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := openGate(), &beside{feeder: &feeder{objects: 3}}
				p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &encoder{rejected: map[string]bool{}})
				time.Sleep(500 * time.Millisecond)
				f.refuse(true)
				if resync {
					if _, err := p.loop.Resync(t.Context(), func(string) bool { return true }); err != nil {
						t.Fatal(err)
					}
				} else {
					p.verifyEvery = time.Hour
					p.set(t, nil, "pods")
					time.Sleep(time.Hour - time.Second)
				}
				if n := f.attempts(10 * time.Minute); n < 12 || n > 16 {
					t.Errorf("%d attempts in ten minutes, want 12 to 16", n)
				}
				want := 1
				if resync {
					want = 2
				}
				if n := b.count("gap"); n != want {
					t.Errorf("%d gaps, want %d", n, want)
				}
				f.refuse(false)
				if n := f.attempts(10 * time.Minute); n != 1 {
					t.Errorf("%d lists after the API server is back, want 1", n)
				}
				if _, synced := b.copied("pods"); !synced {
					t.Error("the last gap is not closed")
				}
				p.kill()
				<-p.done
			})
		})
	}
}

// A periodic synced event does not stand for a verification: with syncedEvery below verifyEvery, verifications are due, too.
func TestVerificationsBesidePeriodicSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := openGate(), &beside{feeder: &feeder{objects: 3}}
		p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &encoder{rejected: map[string]bool{}})
		p.syncedEvery, p.verifyEvery = time.Minute, time.Hour
		p.set(t, nil, "pods")
		if n := f.attempts(10*time.Hour + time.Minute); n != 10 {
			t.Errorf("%d verifications in ten hours, want 10", n)
		}
		p.kill()
		<-p.done
	})
}

// A resync that is demanded while the collection is suspended, or while another resync runs, follows.
func TestResyncIsNotForgotten(t *testing.T) {
	demand := func(t *testing.T, p *program) {
		t.Helper()
		if ids, err := p.loop.Resync(t.Context(), func(string) bool { return true }); err != nil || !slices.Equal(ids, []string{"pods"}) {
			t.Fatal(ids, err)
		}
	}
	for name, c := range map[string]struct {
		before func(t *testing.T, p *program, b *gated, f *beside)
		lists  int
	}{
		"in step": {func(*testing.T, *program, *gated, *beside) {}, 1},
		"suspended": {func(t *testing.T, p *program, b *gated, _ *beside) {
			b.refuse("topic pods")
			p.syncedEvery = time.Second
			p.set(t, nil, "pods")
			time.Sleep(2 * time.Second) // a synced event is refused
		}, 1},
		"resyncing": {func(t *testing.T, p *program, _ *gated, f *beside) {
			f.takes = time.Minute
			demand(t, p)
			time.Sleep(2 * time.Second)
		}, 2},
		"broken off": {func(t *testing.T, p *program, _ *gated, f *beside) {
			f.refuse(true)
			demand(t, p)
			time.Sleep(2500 * time.Millisecond) // between two attempts
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := openGate(), &beside{feeder: &feeder{objects: 3}}
				p := runs(t, b, &mapStore{values: map[string][]byte{}}, f, &encoder{rejected: map[string]bool{}})
				time.Sleep(time.Minute)
				c.before(t, p, b, f)
				demand(t, p)
				b.refuse("")
				f.refuse(false)
				time.Sleep(time.Hour)
				if n := b.count("gap") - 1; n != c.lists {
					t.Errorf("%d resyncs, want %d", n, c.lists)
				}
				if _, synced := b.copied("pods"); !synced {
					t.Error("the last gap is not closed")
				}
				p.kill()
				<-p.done
			})
		})
	}
}
