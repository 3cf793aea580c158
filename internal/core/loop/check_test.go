package loop_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// checkedBus is a bus that says how it is while nothing is written to it.
type checkedBus struct {
	*bus
	checks  atomic.Int64
	inUse   atomic.Int64
	overlap atomic.Bool
	check   func(ctx context.Context) error
}

func (b *checkedBus) use() func() {
	if b.inUse.Add(1) > 1 {
		b.overlap.Store(true)
	}
	return func() { b.inUse.Add(-1) }
}

func (b *checkedBus) Check(ctx context.Context) error {
	defer b.use()()
	b.checks.Add(1)
	return b.check(ctx)
}

func (b *checkedBus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	defer b.use()()
	return b.bus.Write(ctx, batch)
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A bus that has lost what it acknowledged is filled again although nothing is written. Checks go on, also while there are writes, and
// never at the same time.
func TestQuietBusIsChecked(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	var lost atomic.Bool
	checked := &checkedBus{bus: b, check: func(context.Context) error {
		if !lost.CompareAndSwap(true, false) {
			return nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = nil
		return fmt.Errorf("%w: the stream is empty", sink.ErrReset)
	}}
	c.write("name", false)
	p := start(t, c, checked, store, "pods")
	defer p.kill()
	wait(t, c, b, "pods")
	for range 2 {
		birth := storedBirth(t, store)
		lost.Store(true)
		await(t, "a reset", func() bool { return storedBirth(t, store) > birth })
		wait(t, c, b, "pods")
	}
	for i, before := 0, checked.checks.Load(); checked.checks.Load() < before+3; i++ {
		c.write(fmt.Sprint("name-", i%100), false)
		wait(t, c, b, "pods")
	}
	if checked.overlap.Load() {
		t.Error("the bus was checked while something was written")
	}
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
}

// A stop does not wait for the answer to a check, and an error for good ends the loop.
func TestCheckEnds(t *testing.T) {
	c, store := newCluster(), memory(t)
	begun := make(chan struct{}, 1)
	hangs := &checkedBus{bus: &bus{}, check: func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	p := start(t, c, hangs, store, "pods")
	<-begun
	c.write("name", false)
	p.stop()
	if err := <-p.done; err != nil {
		t.Errorf("a stop during a check: %v", err)
	}
	p.kill()

	p = start(t, c, &checkedBus{bus: &bus{}, check: func(context.Context) error { return sink.ErrFenced }}, store, "pods")
	defer p.kill()
	if err := <-p.done; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("%v, want that another writer has taken over", err)
	}
}
