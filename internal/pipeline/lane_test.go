package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

func openMem(t *testing.T) *file.Store {
	t.Helper()
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestRemovedCollectionIsClosed: who removes a resource from the configuration
// must not make consumers believe that its objects are gone (design rule 10).
func TestRemovedCollectionIsClosed(t *testing.T) {
	c, b, store := newCluster(), &bus{}, openMem(t)
	c.do(source.Added, "a")
	life(t, c, b, nil, store, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return c.same(consume(t, b.records))
	})
	b.records = nil
	lane := newTestLane(b, store)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- lane.Run(t.Context(), ctx) }()
	if err := lane.Set(ctx, nil, map[string]Fate{"configmaps": Removed}, true); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(b.records) != 1 || b.records[0].ID != "configmaps:1:1:closed" {
		t.Errorf("the bus was told:\n%s", dump(b.records))
	}
	for _, prefix := range [][]byte{checkpoint.PositionPrefix(), checkpoint.AllEntries()} {
		if err := store.Scan(prefix, func(key, _ []byte) error {
			t.Errorf("the checkpoint still holds %s", key)
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// choosy is a bus whose Write answers what the test wants.
type choosy struct {
	bus
	answer func(b *event.Batch) error
}

func (c *choosy) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := c.answer(b); err != nil {
		return nil, err
	}
	return c.bus.Write(ctx, b)
}

// TestOversizeIsCutDown: an object that the bus does not take loses its body,
// not its event, and nothing behind it waits.
func TestOversizeIsCutDown(t *testing.T) {
	const limit = 2000
	c, store := newCluster(), openMem(t)
	b := &choosy{}
	b.answer = func(batch *event.Batch) error {
		for i, r := range batch.Records {
			if len(r.Value) > limit {
				return &sink.RecordError{Index: i, Size: len(r.Value), Limit: limit, Err: errors.New("too large")}
			}
		}
		return nil
	}
	c.do(source.Added, "small")
	c.do(source.Added, "large")
	c.do(source.Added, "after")
	life(t, c, b, nil, store, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return c.same(consume(t, b.records))
	})
	cut := 0
	for _, r := range b.records {
		if r.Event.Truncated != nil {
			cut++
			if !strings.Contains(string(r.Value), `"truncated":{"size":`) || len(r.State) == 0 {
				t.Errorf("a cut record without its size or its state: %s", r.Value)
			}
		}
	}
	if cut == 0 {
		t.Error("nothing was cut: the test's limit is too high")
	}
}

// TestFencedLaneEnds: after another writer took over, nothing may be written any
// more, and what was not acknowledged is not committed.
func TestFencedLaneEnds(t *testing.T) {
	c, store := newCluster(), openMem(t)
	c.do(source.Added, "a")
	b := &choosy{answer: func(*event.Batch) error { return sink.ErrFenced }}
	lane := newTestLane(b, store)
	lane.cluster = modelReader{lane, c}
	done := make(chan error, 1)
	go func() { done <- lane.Run(t.Context(), t.Context()) }()
	if err := lane.Set(t.Context(), wantConfigMaps, nil, true); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("the lane ended with %v", err)
	}
	if v, err := store.Get(checkpoint.EntryKey("configmaps", "n", "a")); err != nil || v != nil {
		t.Errorf("what the bus did not take was committed: %q, %v", v, err)
	}
}

// TestStopWaitsForTheBus: what was read is delivered before the program ends, as
// long as the deadline allows; after it, the error says how much comes again.
func TestStopWaitsForTheBus(t *testing.T) {
	for _, inTime := range []bool{true, false} {
		c, store := newCluster(), openMem(t)
		c.do(source.Added, "a")
		asked := make(chan struct{}, 100)
		free := make(chan struct{})
		b := &choosy{}
		b.answer = func(*event.Batch) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			select {
			case <-free:
				return nil
			default:
				return errNoAck
			}
		}
		lane := newTestLane(b, store)
		lane.cluster = modelReader{lane, c}
		hard, kill := context.WithCancel(t.Context())
		soft, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- lane.Run(hard, soft) }()
		if err := lane.Set(t.Context(), wantConfigMaps, nil, true); err != nil {
			t.Fatal(err)
		}
		<-asked
		alive, cancel := context.WithTimeout(t.Context(), endsHang)
		if !lane.Alive(alive) {
			t.Error("a lane that waits for its bus does not answer")
		}
		cancel()
		stop()
		if inTime {
			close(free)
			if err := <-done; err != nil {
				t.Errorf("stop: %v", err)
			}
			v, err := store.Get(checkpoint.PositionKey("configmaps"))
			if err != nil || v == nil {
				t.Errorf("nothing was committed: %v", err)
			}
		} else {
			kill()
			if err := <-done; err == nil || !strings.Contains(err.Error(), "come again at the next start") {
				t.Errorf("the end says %v", err)
			}
		}
		kill()
	}
}
