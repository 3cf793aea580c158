package sinktest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

func testWriteObeysContext(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mustWrite(t, s, l.round(5, "a"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := l.round(5, "a")
	within(t, "Write with an ended context", func() {
		if _, err := s.Write(ctx, b); err == nil {
			t.Error("Write with an ended context returned no error")
		}
	})
	mustWrite(t, s, b)
	l.check(t, h.Read(t))
}

// A store that is on the bus has its mark only after Open: then the sink is opened a second time, with the mark.
func testOpenAgain(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mark := mustWrite(t, s, l.round(7, "a", "b"))
	for range 2 {
		reopen(t, s, mark)
		tail(t, s, mark)
		l.seq = 0 // the sink must not take the next batch for one of before
		mark = mustWrite(t, s, l.round(7, "a", "b"))
	}
	l.check(t, h.Read(t))
}

// After a reset the records of a batch that was given up may come in another batch: it must be written as a whole.
func testGivenUp(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mustWrite(t, s, l.round(5, "a", "b"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b := l.round(5, "a", "b")
	if _, err := s.Write(ended, b); err == nil {
		t.Error("Write with an ended context returned no error")
	}
	mustWrite(t, s, l.batch(append(b.Records, l.record("a", 0))...))
	l.check(t, h.Read(t))
}

// One pipeline's life over an outage: it writes, the bus goes away in the middle of
// a batch, Write is called again until it comes back.
func testBusStopped(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	size := 40
	var m memory
	w := startWriter(t, s, func() *event.Batch {
		size = 1540 - size // a small batch and a large one in turn
		return m.lend(l.round(size, "a", "b", "c", "d"))
	})
	for range 3 {
		acked := w.acked.Load()
		await(t, "batches to be acknowledged", func() bool { return w.acked.Load() > acked+3 || w.ended() })
		failed := w.failed.Load()
		h.Stop(t)
		await(t, "Write to return an error", func() bool { return w.failed.Load() > failed || w.ended() })
		h.Start(t)
	}
	acked := w.acked.Load()
	await(t, "batches to be acknowledged after the outage", func() bool { return w.acked.Load() > acked || w.ended() })
	if err := w.finish(t); err != nil {
		t.Fatalf("Write: %v", err)
	}
	l.check(t, h.Read(t))
}

func testBusDownAtWrite(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	mustWrite(t, s, l.round(5, "a", "b"))
	h.Stop(t)
	b := l.round(20, "a", "b")
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		within(t, "Write to a bus that is down", func() {
			if _, err := s.Write(ctx, b); err == nil || final(err) {
				t.Errorf("Write to a bus that is down: %v, want an error to be tried again", err)
			}
		})
		cancel()
	}
	h.Start(t)
	mustWrite(t, s, b)
	mustWrite(t, s, l.round(5, "a", "b"))
	l.check(t, h.Read(t))
}

// An outage must be seen also while there is nothing to write, and its end, too.
func testCheck(t *testing.T, h *Harness) {
	l := newLedger(h)
	s, _ := open(t, h, nil)
	c, ok := s.(sink.Checker)
	if !ok {
		t.Skip("the sink is no sink.Checker")
	}
	mustWrite(t, s, l.round(5, "a", "b"))
	for range 2 {
		await(t, "a check that the bus passes", func() bool { return c.Check(t.Context()) == nil })
		h.Stop(t)
		await(t, "a check that the bus fails", func() bool {
			err := c.Check(t.Context())
			if err != nil && final(err) {
				t.Errorf("a bus that is down is an error for good: %v", err)
			}
			return err != nil
		})
		h.Start(t)
	}
	await(t, "a check after the outage", func() bool { return c.Check(t.Context()) == nil })
	mustWrite(t, s, l.round(5, "a", "b"))
	l.check(t, h.Read(t))
}

func testBusDownAtOpen(t *testing.T, h *Harness) {
	l := newLedger(h)
	h.Stop(t)
	s := h.New(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	within(t, "Open of a bus that is down", func() {
		if err := s.Open(ctx, nil); err == nil || final(err) {
			t.Errorf("Open of a bus that is down: %v, want an error to be tried again", err)
		}
	})
	h.Start(t)
	reopen(t, s, nil)
	tail(t, s, nil)
	mustWrite(t, s, l.round(5, "a"))
	l.check(t, h.Read(t))
}

func testClose(t *testing.T, h *Harness) {
	l := newLedger(h)
	if err := h.New(t).Close(); err != nil {
		t.Errorf("Close of a sink that was never opened: %v", err)
	}
	life := func() {
		s := h.New(t)
		reopen(t, s, nil)
		tail(t, s, nil)
		mustWrite(t, s, l.round(20, "a", "b"))
		within(t, "Close", func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	life() // the bus may start what stays, such as a file's writer
	before := goleak.IgnoreCurrent()
	life()
	goleak.VerifyNone(t, append(h.IgnoreLeaks, before)...)
	l.check(t, h.Read(t))
}

func testCloseWhileDown(t *testing.T, h *Harness) {
	l := newLedger(h)
	before := goleak.IgnoreCurrent()
	s := h.New(t)
	reopen(t, s, nil)
	tail(t, s, nil)
	mustWrite(t, s, l.round(5, "a"))
	h.Stop(t)
	within(t, "Close while the bus is down", func() { _ = s.Close() }) // may report that it could not say goodbye

	s = h.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Open(ctx, nil); err == nil {
		t.Error("Open of a bus that is down returned no error")
	}
	within(t, "Close after a failed Open", func() { _ = s.Close() })
	goleak.VerifyNone(t, append(h.IgnoreLeaks, before)...)
	h.Start(t)
	l.check(t, h.Read(t))
}

func testFencing(t *testing.T, h *Harness) {
	l := newLedger(h)
	old, _ := open(t, h, nil)
	mark := mustWrite(t, old, l.round(10, "a", "b"))
	successor, _ := open(t, h, mark)

	zombie := newLedger(h) // the same keys and numbers: none of its records may be seen
	zombie.seq = l.seq
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := write(ctx, old, zombie.round(10, "zombie")); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("Write of the predecessor: %v, want ErrFenced", err)
		}
		cancel()
	}
	l.check(t, h.Read(t))
	mustWrite(t, successor, l.round(10, "a", "b"))
	l.check(t, h.Read(t))
}

// The predecessor is fenced in the middle of its writes: the successor must see
// on the bus everything that was acknowledged to the predecessor, and nothing may follow.
func testFencedWhileWriting(t *testing.T, h *Harness) {
	l := newLedger(h)
	old, _ := open(t, h, nil)
	acknowledged := map[string]int{}
	w := startWriter(t, old, func() *event.Batch {
		acknowledged = l.counts()
		return l.round(40, "a", "b", "c")
	})
	await(t, "batches to be acknowledged", func() bool { return w.acked.Load() > 5 || w.ended() })
	successor, recovered := open(t, h, nil)
	atOpen := h.Read(t)
	await(t, "the predecessor to notice", w.ended)
	if err := w.finish(t); !errors.Is(err, sink.ErrFenced) {
		t.Fatalf("Write of the predecessor: %v, want ErrFenced", err)
	}
	got := l.inspect(t, atOpen)
	for key, n := range acknowledged {
		if got[key] < n {
			t.Errorf("key %q: the successor sees %d records, %d were acknowledged", key, got[key], n)
		}
	}
	if _, isLog := successor.(sink.Log); isLog && len(recovered) != len(atOpen) {
		t.Errorf("the successor recovered %d records, the bus holds %d", len(recovered), len(atOpen))
	}
	l.checkUpTo(t, h.Read(t), got)

	next := *l // goes on where the bus stands
	next.next = got
	mustWrite(t, successor, next.round(20, "a", "b", "c"))
	next.check(t, h.Read(t))
}

// writer writes batch after batch as a pipeline does, until it is finished or gets an
// error that is not to be tried again.
type writer struct {
	acked, failed atomic.Int64
	stop          atomic.Bool
	done          chan struct{}
	cancel        context.CancelFunc
	err           error  // read after done
	mark          []byte // of the last acknowledged batch; read after done
}

func startWriter(t *testing.T, s sink.Sink, next func() *event.Batch) *writer {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writer{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(w.done)
		for !w.stop.Load() && w.err == nil {
			w.err = w.write(ctx, s, next())
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
	})
	return w
}

func (w *writer) write(ctx context.Context, s sink.Sink, b *event.Batch) error {
	for tries := 1; ; tries++ {
		attempt, cancel := context.WithTimeout(ctx, time.Duration(tries)*time.Second) // a batch may need longer on a busy machine
		mark, err := s.Write(attempt, b)
		cancel()
		if err == nil {
			w.mark = mark
			w.acked.Add(1)
			return nil
		}
		w.failed.Add(1)
		if final(err) || !pause(ctx) {
			return err
		}
	}
}

func (w *writer) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// finish lets the batch under way be acknowledged, and returns the final error.
func (w *writer) finish(t *testing.T) error {
	t.Helper()
	w.stop.Store(true)
	await(t, "the writer to end", w.ended)
	return w.err
}

// abandon ends the writer where it stands, as a crash would.
func (w *writer) abandon() {
	w.cancel()
	<-w.done
}

// within fails the test when f takes longer than what needs no bus may take.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > prompt {
		t.Errorf("%s took %v, want at most %v", what, took, prompt)
	}
}
