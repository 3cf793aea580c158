package loop

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Attribute has Run's goroutine call read, which passes records of the audit log on, and then publishes what follows. The changes of the
// checkpoint that read returns are committed with the next batch. It blocks while the loop accepts no message. bytes is the size of the records in
// memory. It returns false if there is no plan yet, or if the loop begins again; then read was not called. read is not called after Attribute has
// returned.
func (l *Loop) Attribute(ctx context.Context, bytes int, read func(a *attribute.Attribution) []event.KV) (planned bool, err error) {
	answer, dropped := make(chan bool, 1), make(chan struct{})
	var claimed atomic.Bool // by the call, or by the end of ctx
	m := message{bytes: bytesOf(bytes), call: func(l *Loop) {
		if claimed.Swap(true) {
			return
		}
		if l.plan.made {
			l.batches.note(l.Attribution.Histories(l.core.Epochs(), l.at)...)
			for _, kv := range read(l.Attribution) {
				if attribute.IsPosition(kv.Key) {
					l.batches.noteLatest(kv)
				} else {
					l.batches.note(kv)
				}
			}
			l.reads.delays.records++
			l.attribute(l.at)
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
		<-dropped // read is called now
	}
	select {
	case planned := <-answer:
		return planned, nil
	default:
		return false, nil
	}
}

// attribute publishes who made the changes of which this is known now.
func (l *Loop) attribute(at time.Time) {
	if l.Attribution == nil || l.core == nil {
		return
	}
	l.batches.note(l.Attribution.Histories(l.core.Epochs(), at)...)
	ready := l.Attribution.Ready(at)
	var dropped []event.KV
	for n, c := range ready {
		if l.batches.full() {
			l.Attribution.Later(ready[n:])
			break
		}
		switch {
		case l.suspended.has(c.Collection): // it is ready again when the collection is resumed
		case l.unnamed(c.Collection):
			l.Attribution.Later(ready[n : n+1])
		case l.Attribution.Silent(c.Number), !l.core.Attribute(c.Collection, c.Incarnation, reconcile.Attribution{ID: c.Number}):
			dropped = append(dropped, l.Attribution.Drop(c.Number))
		}
	}
	l.batches.noteDropped(dropped)
	l.keepVerdicts(at)
	l.refuse()
	l.batches.encode("", at)
}

// keepEvery is how often verdicts are stored that cannot be published yet.
const keepEvery = time.Second

// keepVerdicts stores what is known about changes of collections that are suspended or not named yet, so that their records are not needed until
// that is published. After an error the next call tries again. It waits while the events of some of these changes may be settled: their entries are removed.
func (l *Loop) keepVerdicts(at time.Time) {
	if l.batches.full() || at.Sub(l.verdictsKept) < keepEvery || l.batches.flying != nil && l.batches.flying.settled.items != nil {
		return
	}
	l.verdictsKept = at
	waits := func(id string) bool { return l.suspended.has(id) || l.unnamed(id) }
	changes, _ := l.Attribution.Keep(waits) // the store reports the error
	l.batches.note(changes...)
}

// refuse publishes refused requests, while the batch has room:
//
//	collection                          refusal
//	suspended                           waits until it is resumed
//	not named by a plan yet             waits: it is not known how its events are published
//	in the core, before its first gap   waits
//	in the core                         is published
//	ends, or is not in the core         is dropped: the sink does not publish the resource any more
func (l *Loop) refuse() {
	for _, r := range l.Attribution.Refusals() {
		if l.batches.full() {
			return
		}
		c := l.core.Collection(r.Collection)
		switch {
		case l.suspended.has(r.Collection), l.unnamed(r.Collection), c != nil && c.Incarnation == 0:
		case r.Final(), c == nil, !l.core.Attribute(r.Collection, c.Incarnation, reconcile.Attribution{ID: r.ID}):
			l.batches.note(l.Attribution.DropRefusal(r))
		default:
			l.Attribution.Pass(r)
		}
	}
}
