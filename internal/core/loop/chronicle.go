package loop

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Delayer lets changes wait, and decides nothing else about them: audit records can be forged (docs/security.md). Only Run's goroutine
// calls it, and it does not block.
type Delayer interface {
	// MayWait returns for how long a change that a watch has seen may wait until it is known who made it. 0: it is handled now.
	// known is the inventory entry of the object's key, nil for none. received is when the API server sent the change.
	MayWait(collection string, s *reconcile.Sighting, known *reconcile.Object, received time.Time) time.Duration
}

// Chronicle is a source of events that are about no object's state, for example of who made a change. Each has a number, which
// [reconcile.Attribution] carries to the encoder. Only Run's goroutine calls the methods. They do not block.
type Chronicle interface {
	// Restore continues a collection from the store: batches do not have its events and its notes any more. "": all
	// collections, and what was there before is forgotten. An error ends the loop.
	Restore(store checkpoint.Store, collection string, now time.Time) error
	// Write writes what is ready, while the page has room. It is called every second, and behind each call of [Loop.Page].
	Write(p Page)
	// Sealed is called when the filling batch goes on its way: what is written next belongs to another batch.
	Sealed()
	// Committed is called when the batch on its way is on the bus and in the store.
	Committed(items []reconcile.Item)
}

// Place says what becomes of an event of a [Chronicle].
type Place uint8

// The places of an event about a collection:
//
//	collection                           place
//	any, and the batch has no room       Full
//	suspended                            Suspended
//	not named by a plan yet              Later: it is not known how its events are published
//	before the gap of its present copy   Later for events about the present copy; Open for those about a former one
//	others                               Open
const (
	Open      Place = iota
	Full            // no event can be added to this page
	Later           // it can be added to a later page
	Suspended       // the same, and [Chronicle.Restore] is called before
)

// Page is the filling batch, as a [Chronicle] sees it. It is valid during the call that it is passed to.
type Page struct {
	At   time.Time // of the events
	loop *Loop
}

// Place returns what becomes of events about a copy of a collection, by its incarnation; 0: the present one.
func (p Page) Place(collection string, incarnation uint64) Place {
	c := p.loop.core.Collection(collection)
	switch {
	case p.loop.batches.full():
		return Full
	case p.loop.suspended.has(collection):
		return Suspended
	case p.loop.unnamed(collection), c != nil && c.Incarnation == 0 && incarnation == 0:
		return Later
	}
	return Open
}

// AddEvent adds an event about an open collection, by its number. incarnation is that of the copy that it is about; 0: the present
// one. It returns false if consumers have no such copy any more.
func (p Page) AddEvent(collection string, incarnation, number uint64) bool {
	c := p.loop.core.Collection(collection)
	if c == nil {
		return false
	}
	incarnation = cmp.Or(incarnation, c.Incarnation)
	return p.loop.core.Attribute(collection, incarnation, reconcile.Attribution{ID: number})
}

// Note adds changes of the store that become durable before the batch, or in the same commit.
func (p Page) Note(changes ...event.KV) {
	b := &p.loop.batches.open
	b.entries = append(b.entries, changes...)
}

// NoteLatest is Note for a change that replaces earlier ones of its key: while nothing can be sent, there may be one every second.
func (p Page) NoteLatest(change event.KV) {
	b := &p.loop.batches.open
	b.entries = append(without(b.entries, []event.KV{change}), change)
}

// Remove is Note for removals of keys that events of the filling batch may write, which are committed behind its notes. So these
// events do not write them any more.
func (p Page) Remove(removals ...event.KV) {
	p.Note(removals...)
	if len(removals) == 0 {
		return
	}
	items := p.loop.core.Items()
	for i := range items {
		if e, _ := items[i].Payload.(*payload); e != nil {
			e.changes, e.record.State = without(e.changes, removals), without(e.record.State, removals)
		}
	}
}

// Settling reports whether the bus may have events of the batch on its way whose changes the store does not have yet.
func (p Page) Settling() bool {
	f := p.loop.batches.inFlight
	return f != nil && f.settled.items != nil
}

// Epochs returns the epoch of each storage that is not in its first one, among others. The caller does not change it.
func (p Page) Epochs() map[string]uint64 { return p.loop.core.Epochs() }

// Page has Run's goroutine call write, and then [Chronicle.Write]. It blocks while the loop accepts no message. bytes is the size
// in memory of what write uses. It returns false if there is no plan yet, or if the loop begins again; then write was not called.
// write is not called after Page has returned.
func (l *Loop) Page(ctx context.Context, bytes int, write func(p Page)) (planned bool, err error) {
	answer, dropped := make(chan bool, 1), make(chan struct{})
	var claimed atomic.Bool // by the call, or by the end of ctx
	m := message{bytes: bytesOf(bytes), call: func(l *Loop) {
		if claimed.Swap(true) {
			return
		}
		if l.plan.made {
			write(Page{l.at, l})
			l.reads.delays.pages++
			l.write(l.at)
		}
		answer <- l.plan.made
	}, release: func() { close(dropped) }}
	if err := l.reads.budget.Acquire(ctx, m.bytes); err != nil {
		return false, err
	}
	if err := l.reads.pass(ctx, m); err != nil {
		l.reads.budget.Release(m.bytes)
		return false, err
	}
	select {
	case planned := <-answer:
		return planned, nil
	case <-dropped: // when the message was handled, or when a reset discarded it
	case <-ctx.Done():
		if !claimed.Swap(true) {
			return false, ctx.Err()
		}
		<-dropped // write is called now
	}
	select {
	case planned := <-answer:
		return planned, nil
	default:
		return false, nil
	}
}

// write lets the chronicle write what is ready.
func (l *Loop) write(at time.Time) {
	if l.Chronicle == nil || l.core == nil {
		return
	}
	l.Chronicle.Write(Page{at, l})
	l.batches.encode("", at)
}
