package loop

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/internal/attribute"
	"github.com/kubebridge/kubebridge/internal/reconcile"
)

// Attribute has Run's goroutine call read, which passes records of the audit log on, and then publishes the verdicts that follow. A position
// that read returns is committed with the next batch. It blocks while the loop accepts no message. bytes is the size of the records in
// memory. It returns false if there is no plan yet; then read was not called.
func (l *Loop) Attribute(ctx context.Context, bytes int, read func(a *attribute.Attribution) (position []byte)) (planned bool, err error) {
	answer := make(chan bool, 1)
	m := message{bytes: bytesOf(bytes), call: func(l *Loop) {
		if l.plan.made {
			l.batches.note(l.Attribution.Histories(l.core.Epochs(), l.at)...)
			position := read(l.Attribution)
			l.reads.delays.records++
			l.attribute(l.at)
			if position != nil {
				l.batches.note(attribute.StorePosition(position))
			}
		}
		answer <- l.plan.made
	}}
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
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// attribute publishes who made the changes of which this is known now.
func (l *Loop) attribute(at time.Time) {
	if l.Attribution == nil || l.core == nil {
		return
	}
	l.batches.note(l.Attribution.Histories(l.core.Epochs(), at)...)
	for _, c := range l.Attribution.Ready(at) {
		switch {
		case l.suspended.has(c.Collection): // it is ready again when the collection is resumed
		case l.Attribution.Silent(c.Number), !l.core.Attribute(c.Collection, c.Incarnation, reconcile.Attribution{ID: c.Number}):
			l.batches.note(l.Attribution.Drop(c.Number))
		}
	}
	l.batches.encode("", at)
}
