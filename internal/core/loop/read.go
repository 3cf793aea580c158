package loop

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
)

// reads are the reads from the API server. They own the messages that are not handled yet, and bound their memory. Run's
// goroutine starts and stops reads; each read has a goroutine of its own, which uses in and budget only.
type reads struct {
	reader  Reader
	log     *zap.Logger
	in      chan message
	budget  *semaphore.Weighted // bytes of frames that have been read but not delivered
	running sync.WaitGroup
	open    map[string]*reading // by collection
	waits   int64               // bytes of all waiting messages
	delays  *delays
	// committed implements [Handler.Committed].
	committed func(ctx context.Context, collection string) (position string, epoch uint64, err error)
	// source implements [Handler.Direct] and [Handler.Buffered], and editWaits [Handler.EditWaits].
	source    func(ctx context.Context, collection string, read uint64, direct bool) error
	editWaits func(ctx context.Context, collection string) (bool, error)
}

func newReads(o *Options) *reads {
	return &reads{reader: o.Reader, log: o.Log, in: make(chan message, 64), budget: semaphore.NewWeighted(frameBudget), open: map[string]*reading{}, delays: newDelays()}
}

// reading is a collection that is being read.
type reading struct {
	number uint64
	stop   context.CancelFunc
	side   uint64    // the last started list beside the watch
	direct bool      // it reads from the API server: see [Handler.Direct]
	inStep time.Time // see [Handler.InStep]
	// start runs f in a goroutine of its own until stop is called.
	start func(f func(ctx context.Context) error)
	// waiting are listed objects that replace another object of the same name, by key: see [Handler.Listed].
	waiting map[string]message
}

// message is a message from a reader to the loop.
type message struct {
	collection string           // "": it is not about one
	input      *reconcile.Input // nil: call or ended is set
	call       func(l *Loop)
	ended      error  // the reader failed; the loop ends with this error
	bytes      int64  // taken from the budget
	own        func() // makes the memory of the input's object independent of that of others; nil: it must not wait
	release    func() // frees the memory; may be nil
	detail     string // why the list begins
	// received is when the API server sent what the input says; zero: now.
	received time.Time
}

// Handler passes the items of one collection to the loop. Its methods block while the loop accepts no
// message. If ctx ends first, they return its error.
type Handler struct {
	// Received is when the API server sent the inputs that are passed on next; zero: now. Only the goroutine that passes them on sets it.
	Received time.Time

	reads      *reads
	collection string
	read, side uint64
}

// Committed returns the position from which a restart would watch the collection: everything up to it is on the bus and in the store. "":
// a restart would begin with a list, or the gap of the last list is not committed yet. epoch is that of the position.
func (h *Handler) Committed(ctx context.Context) (position string, epoch uint64, err error) {
	return h.reads.committed(ctx, h.collection)
}

// Direct says that what comes next is read from the API server, and not from the disk buffer. An edit that waited for that then takes effect, and
// ctx ends if it makes another read necessary. A reader that can use a buffer calls Direct each time before it asks the API server, and
// Buffered before it begins to record.
//
// Direct does not wait for messages before it: see Handled.
func (h *Handler) Direct(ctx context.Context) error {
	return h.reads.source(ctx, h.collection, h.read, true)
}

// Buffered says that what comes next may be read from the disk buffer: from now on, an edit may wait.
func (h *Handler) Buffered(ctx context.Context) error {
	return h.reads.source(ctx, h.collection, h.read, false)
}

// InStep says that all changes that were made before a time have been passed on. Without it, no periodic synced event is published: see
// inStepFor.
func (h *Handler) InStep(ctx context.Context, before time.Time) error {
	return h.send(ctx, message{collection: h.collection, call: func(l *Loop) {
		if now := l.reads.open[h.collection]; now != nil && now.number == h.read {
			now.inStep = before
		}
	}})
}

// Handled waits until all messages before it are handled.
func (h *Handler) Handled(ctx context.Context) error {
	_, err := ask(ctx, h, func(*Loop) []struct{} { return nil })
	return err
}

// EditWaits reports whether an edit waits: see Direct.
func (h *Handler) EditWaits(ctx context.Context) (waits bool, err error) {
	return h.reads.editWaits(ctx, h.collection)
}

// ListBegun passes on that a list begins. detail gives the reason, in one sentence for a human. If the list leads to a
// gap, the gap event has this reason.
func (h *Handler) ListBegun(ctx context.Context, in *reconcile.Input, detail string) error {
	return h.pass(ctx, in, message{detail: detail})
}

// Input passes an input on. size is the size of the object in bytes. release, which may be nil, is
// called when the object's memory is no longer needed.
func (h *Handler) Input(ctx context.Context, in *reconcile.Input, size int, release func()) error {
	return h.pass(ctx, in, message{bytes: bytesOf(size), release: release})
}

// Listed is like Input, for an object of a list. If another object had this name before, the listed object waits until
// [Handler.Former] or the end of the list, unless memory is short. own makes its memory independent of
// the memory of other objects.
func (h *Handler) Listed(ctx context.Context, in *reconcile.Input, size int, own, release func()) error {
	return h.pass(ctx, in, message{bytes: bytesOf(size), own: own, release: release})
}

// Replaced returns the keys of the waiting objects, with the objects that had these names before: see Listed.
func (h *Handler) Replaced(ctx context.Context) ([]reconcile.Absentee, error) {
	return ask(ctx, h, func(l *Loop) (replaced []reconcile.Absentee) {
		for _, key := range l.reads.waitingKeys(h.collection) {
			in := l.reads.open[h.collection].waiting[key].input
			replaced = append(replaced, reconcile.Absentee{Key: key, Objects: l.core.Replaces(in)})
		}
		return replaced
	})
}

// Former passes on the last body of the object that previously had the name of a waiting object. It ends the wait. size and
// release belong to body.
func (h *Handler) Former(ctx context.Context, key string, body any, size int, release func()) error {
	return h.send(ctx, message{collection: h.collection, bytes: bytesOf(size), release: release, call: func(l *Loop) {
		if m, waits := l.reads.takeWaiting(h.collection, key); waits {
			m.input.Sighting.Former = body
			l.decide(m)
		}
	}})
}

// bytesOf returns the share of the budget that an object takes.
func bytesOf(size int) int64 { return min(int64(size), frameBudget/4) }

func (h *Handler) pass(ctx context.Context, in *reconcile.Input, m message) error {
	in.Collection, in.Read, in.Side = h.collection, h.read, h.side
	m.collection, m.input, m.received = h.collection, in, h.Received
	return h.send(ctx, m)
}

func (h *Handler) send(ctx context.Context, m message) error {
	if err := h.reads.budget.Acquire(ctx, m.bytes); err != nil {
		return err
	}
	if err := h.reads.pass(ctx, m); err != nil {
		h.reads.budget.Release(m.bytes)
		return err
	}
	return nil
}

// Missing returns up to limit keys that are missing in the list that has just ended. The caller passes on
// [reconcile.ListLacks] for each key and calls Missing again. When no key is left, it passes on
// [reconcile.ListDone].
func (h *Handler) Missing(ctx context.Context, limit int) ([]reconcile.Absentee, error) {
	return ask(ctx, h, func(l *Loop) []reconcile.Absentee { return l.core.Missing(h.collection, limit) })
}

// ask runs f in Run's goroutine after all earlier messages, and returns its result.
func ask[T any](ctx context.Context, h *Handler, f func(l *Loop) []T) ([]T, error) {
	answer := make(chan []T, 1)
	if err := h.reads.pass(ctx, message{collection: h.collection, call: func(l *Loop) { answer <- f(l) }}); err != nil {
		return nil, err
	}
	select {
	case list := <-answer:
		return list, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *reads) pass(ctx context.Context, m message) error {
	select {
	case r.in <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow starts and stops the reading of a collection.
func (r *reads) follow(ctx context.Context, id string, want reconcile.Read) {
	now := r.open[id]
	if now != nil && (want.Stop || now.number != want.Number) {
		r.stop(id)
		now = nil
	}
	if want.Stop {
		return
	}
	if now == nil {
		now = r.newReading(ctx, want.Number)
		r.open[id] = now
		h := &Handler{reads: r, collection: id, read: want.Number}
		now.start(func(ctx context.Context) error { return r.reader.Read(ctx, id, want, h) })
	}
	if want.Side != 0 && now.side != want.Side {
		now.side = want.Side
		h := &Handler{reads: r, collection: id, side: want.Side}
		now.start(func(ctx context.Context) error { return r.readBeside(ctx, want, h) })
	}
}

// inStep returns the time before which all changes of a collection are known to have been passed on; zero: it is not known.
func (r *reads) inStep(id string) time.Time {
	now := r.open[id]
	if now == nil {
		return time.Time{}
	}
	return now.inStep
}

// isDirect reports whether a read has said that it reads from the API server.
func (r *reads) isDirect(id string, read uint64) bool {
	now := r.open[id]
	return now != nil && now.number == read && now.direct
}

func (r *reads) newReading(ctx context.Context, number uint64) *reading {
	ctx, cancel := context.WithCancel(ctx)
	return &reading{number: number, stop: cancel, start: func(f func(ctx context.Context) error) { r.run(ctx, f) }}
}

// readBeside lists a collection beside its watch. A failure ends that list only.
func (r *reads) readBeside(ctx context.Context, want reconcile.Read, h *Handler) error {
	err := r.reader.Side(ctx, h.collection, want, h)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	r.log.Warn("list beside the watch failed, retrying later", zap.String("collection", h.collection), zap.Error(err))
	return h.Input(ctx, &reconcile.Input{Kind: reconcile.SideBroken}, 0, nil)
}

// run runs f until it returns. An error other than the end of ctx ends the loop.
func (r *reads) run(ctx context.Context, f func(ctx context.Context) error) {
	r.running.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			_ = r.pass(ctx, message{ended: err}) // fails only if ctx has ended
		}
	})
}

// stop ends the reading of a collection.
func (r *reads) stop(id string) {
	r.dropWaiting(id)
	for r.delays.has(id) {
		r.drop(r.delays.take(id))
	}
	r.open[id].stop()
	delete(r.open, id)
}

// wait makes a listed object wait. It returns false if there is no memory for the object.
func (r *reads) wait(m message) bool {
	now := r.open[m.input.Collection]
	if now == nil || r.waits+m.bytes > maxWaiting {
		return false
	}
	m.own()
	r.waits += m.bytes
	if now.waiting == nil {
		now.waiting = map[string]message{}
	}
	now.waiting[m.input.Sighting.Key] = m
	return true
}

// waitingKeys returns the keys of the waiting objects of a collection, sorted.
func (r *reads) waitingKeys(id string) []string {
	now := r.open[id]
	if now == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(now.waiting))
}

// takeWaiting removes the waiting object of a key and returns it.
func (r *reads) takeWaiting(id, key string) (m message, waits bool) {
	now := r.open[id]
	if now == nil {
		return m, false
	}
	if m, waits = now.waiting[key]; waits {
		delete(now.waiting, key)
		r.waits -= m.bytes
	}
	return m, waits
}

// dropWaiting discards the waiting objects of a collection.
func (r *reads) dropWaiting(id string) {
	for _, key := range r.waitingKeys(id) {
		m, _ := r.takeWaiting(id, key)
		r.drop(m)
	}
}

func (r *reads) stopAll() {
	for id := range r.open {
		r.stop(id)
	}
}

// discard waits until the stopped reads have ended, and discards their messages. The next core
// numbers its reads from 1, so it would accept inputs of these reads as its own.
func (r *reads) discard() {
	r.running.Wait()
	for {
		select {
		case m := <-r.in:
			r.drop(m)
		default:
			return
		}
	}
}

// drop discards a message.
func (r *reads) drop(m message) {
	if m.release != nil {
		m.release()
	}
	r.budget.Release(m.bytes)
}
