package loop

import (
	"context"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/reconcile"
)

// reading is a collection that is being read.
type reading struct {
	number uint64
	stop   context.CancelFunc
	side   uint64 // the list beside the watch that was started last
	// start runs f in a goroutine of its own until stop is called.
	start func(f func(ctx context.Context) error)
}

// message is what reaches the loop from a reader.
type message struct {
	input   *reconcile.Input
	bytes   int64  // taken from the budget
	release func() // gives up the memory of the input's object; nil: nothing to give up
	detail  string // of a list that begins: why
	missing *question
	ended   error // the reader failed; the loop ends with this error
}

// question asks which keys a list lacks.
type question struct {
	collection string
	limit      int
	answer     chan []reconcile.Absentee
}

// Handler passes on what is read of one collection. Its methods block while the loop takes nothing
// more. If ctx ends first, they return its error.
type Handler struct {
	loop       *Loop
	collection string
	read, side uint64
}

// ListBegun passes on that a list begins. detail says why, in one sentence for a human, for the
// gap that the list leads to, if it leads to one.
func (h *Handler) ListBegun(ctx context.Context, in *reconcile.Input, detail string) error {
	return h.pass(ctx, in, message{detail: detail})
}

// Input passes an input on. size is that of the object in bytes, and release, which may be nil, is
// called when its memory is not needed any more.
func (h *Handler) Input(ctx context.Context, in *reconcile.Input, size int, release func()) error {
	return h.pass(ctx, in, message{bytes: min(int64(size), frameBudget/4), release: release})
}

func (h *Handler) pass(ctx context.Context, in *reconcile.Input, m message) error {
	in.Collection, in.Read, in.Side, in.Now = h.collection, h.read, h.side, now()
	m.input = in
	if err := h.loop.budget.Acquire(ctx, m.bytes); err != nil {
		return err
	}
	if err := h.loop.pass(ctx, m); err != nil {
		h.loop.budget.Release(m.bytes)
		return err
	}
	return nil
}

// Missing returns up to limit keys that are missing in the list which has just ended. The caller passes on
// [reconcile.ListLacks] for each and asks again; when there are none, it passes on
// [reconcile.ListDone].
func (h *Handler) Missing(ctx context.Context, limit int) ([]reconcile.Absentee, error) {
	q := &question{h.collection, limit, make(chan []reconcile.Absentee, 1)}
	if err := h.loop.pass(ctx, message{missing: q}); err != nil {
		return nil, err
	}
	select {
	case keys := <-q.answer:
		return keys, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Loop) pass(ctx context.Context, m message) error {
	select {
	case l.in <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take handles a message and those that wait behind it, while the batch has room.
func (l *Loop) take(m message) error {
	for {
		if err := l.handle(m); err != nil {
			return err
		}
		if l.full() {
			return nil
		}
		select {
		case m = <-l.in:
		default:
			return nil
		}
	}
}

func (l *Loop) handle(m message) error {
	switch {
	case m.ended != nil:
		return m.ended
	case m.missing != nil:
		m.missing.answer <- l.core.Missing(m.missing.collection, m.missing.limit)
		return nil
	}
	if m.input.Kind == reconcile.ListBegun && m.input.Read == l.core.Reading(m.input.Collection).Number {
		l.Observer.ListBegun(m.input.Collection)
	}
	before := l.core.Pending()
	if s := m.input.Sighting; s != nil {
		known, inDoubt := l.core.Object(m.input.Collection, s.Key)
		l.Encoder.Prepare(m.input.Collection, s, known, inDoubt)
		l.stepObject(m.input, s.Key)
	} else {
		l.core.Step(m.input)
	}
	l.encode(m.detail)
	if m.release != nil {
		m.release() // records have copied what they need
	}
	if l.core.Pending() > before {
		l.filling.held += m.bytes // until it is delivered
	} else {
		l.budget.Release(m.bytes)
	}
	return nil
}

// follow starts and stops the reading of a collection as the core says.
func (l *Loop) follow(ctx context.Context, id string) {
	want, r := l.core.Reading(id), l.reads[id]
	stop := want.Stop || l.stopping
	if r != nil && (stop || r.number != want.Number) {
		r.stop()
		delete(l.reads, id)
		r = nil
	}
	if stop {
		return
	}
	if r == nil {
		r = l.newReading(ctx, want.Number)
		l.reads[id] = r
		h := &Handler{loop: l, collection: id, read: want.Number}
		r.start(func(ctx context.Context) error { return l.Reader.Read(ctx, id, want, h) })
	}
	if want.Side != 0 && r.side != want.Side {
		r.side = want.Side
		h := &Handler{loop: l, collection: id, side: want.Side}
		r.start(func(ctx context.Context) error { return l.readBeside(ctx, want, h) })
	}
}

func (l *Loop) newReading(ctx context.Context, number uint64) *reading {
	ctx, cancel := context.WithCancel(ctx)
	return &reading{number: number, stop: cancel, start: func(f func(ctx context.Context) error) { l.read(ctx, f) }}
}

// readBeside lists a collection beside its watch. A failure ends that list only.
func (l *Loop) readBeside(ctx context.Context, want reconcile.Read, h *Handler) error {
	err := l.Reader.Side(ctx, h.collection, want, h)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	l.Log.Warn("list beside the watch failed, retrying later", zap.String("collection", h.collection), zap.Error(err))
	return h.Input(ctx, &reconcile.Input{Kind: reconcile.SideBroken}, 0, nil)
}

// read runs f until it returns. An error that is not of ctx's end ends the loop.
func (l *Loop) read(ctx context.Context, f func(ctx context.Context) error) {
	l.running.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			_ = l.pass(ctx, message{ended: err}) // fails with ctx only
		}
	})
}

// discard waits until the stopped reads have ended, and drops what they have passed on. The next core
// numbers its reads from 1, so it would accept inputs of these reads as its own.
func (l *Loop) discard() {
	l.running.Wait()
	for {
		select {
		case m := <-l.in:
			if m.release != nil {
				m.release()
			}
			l.budget.Release(m.bytes)
		default:
			return
		}
	}
}

func (l *Loop) stopReads() {
	for id, r := range l.reads {
		r.stop()
		delete(l.reads, id)
	}
}
