package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// result is what became of a batch.
type result struct {
	batch *batch
	err   error
}

// dispatch hands the current batch to the writer when the writer is free and the
// batch has waited long enough.
func (l *Lane) dispatch(ctx context.Context) {
	if l.writing || l.idle() || l.wait() > 0 {
		return
	}
	b := l.current
	for _, s := range l.suspended { // nothing may overtake what its route refused
		b.drop(s.member, 0)
		delete(l.moved, s.member)
	}
	for m, p := range l.moved {
		room := b.room(positionBytes)
		b.move(origin{m, position}, event.KV{Key: m.at, Value: b.keep(room, checkpoint.AppendPosition(room, p))})
	}
	clear(l.moved)
	b.Commit.Changes = appendChanges(b.Commit.Changes, b.moves)
	l.current = l.fresh(b.Seq + 1)
	l.inv.dispatched()
	l.writing = true
	l.inFlight = len(b.Records)
	l.status.flying.is(b)
	go func() { l.written <- result{b, l.deliver(ctx, b)} }()
}

// deliver makes a batch durable: what must be known before, the records, then
// the commit. Failures that may heal are tried again until ctx ends.
func (l *Lane) deliver(ctx context.Context, b *batch) error {
	if len(b.Records) == 0 {
		return l.commit(ctx, b.Commit.Changes)
	}
	if l.intends() && len(b.before) > 0 {
		if err := l.commit(ctx, changes(b.before)); err != nil {
			return err
		}
	}
	var mark []byte
	err := l.retry(ctx, "write to the bus", func() (err error) {
		started := time.Now()
		mark, err = l.sink.Write(ctx, &b.Batch)
		var (
			poison *sink.RecordError
			route  *sink.RouteError
		)
		for {
			b.spoilt = b.spoilt || err != nil
			switch {
			case errors.As(err, &poison):
				err = l.refused(ctx, b, poison)
			case errors.As(err, &route):
				b.suspend(route)
				err = nil
			default:
				l.metrics.writes.WithLabelValues(l.id.Sink).Observe(time.Since(started).Seconds())
				return err
			}
			if err == nil && len(b.Records) > 0 {
				mark, err = l.sink.Write(ctx, &b.Batch)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(b.Records) == 0 { // all suspended
		return l.commit(ctx, b.Commit.Changes)
	}
	if mark != nil {
		b.Commit.Changes = append(b.Commit.Changes, event.KV{Key: checkpoint.MarkKey(), Value: mark})
	}
	if err := l.record(ctx, b.Commit.Changes); err != nil {
		return err
	}
	_, isLog := l.sink.(sink.Log)
	if _, trails := l.store.(checkpoint.Loader); !isLog || !trails {
		return nil
	}
	// A store beside a log may let commits with a mark trail, since the log has what
	// they hold. It does not have what was moved without a record: once more, and
	// without a mark, has the store catch up before a later record leads behind it.
	if quietly := b.unrecorded(); len(quietly) > 0 {
		return l.record(ctx, quietly)
	}
	return nil
}

// intends reports whether the store must know of announcements before the bus does
// (design rule 1).
func (l *Lane) intends() bool {
	_, isLog := l.sink.(sink.Log)
	_, atOnce := l.sink.(sink.Transactional)
	return !isLog && !atOnce
}

// commit makes changes of the checkpoint durable that come with no record.
func (l *Lane) commit(ctx context.Context, changes []event.KV) error {
	if _, ok := l.sink.(sink.Transactional); ok {
		err := l.retry(ctx, "write the checkpoint to the bus", func() error {
			_, err := l.sink.Write(ctx, &event.Batch{Commit: event.Commit{Changes: changes}})
			return err
		})
		if err != nil {
			return err
		}
	}
	return l.record(ctx, changes)
}

func (l *Lane) record(ctx context.Context, changes []event.KV) error {
	return l.retry(ctx, "commit the checkpoint", func() error {
		started := time.Now()
		err := l.store.Commit(ctx, changes)
		l.metrics.commits.WithLabelValues(l.id.Sink).Observe(time.Since(started).Seconds())
		if err == nil {
			l.metrics.lastCommit.WithLabelValues(l.id.Sink).SetToCurrentTime()
			l.status.commits()
		}
		return err
	})
}

// committed accounts for a batch that is durable.
func (l *Lane) committed(r result) {
	l.writing, l.inFlight = false, 0
	l.status.flying.is(nil)
	l.budget.Release(r.batch.held)
	l.inv.committed()
	l.unheardOf(r.batch)
	maps.DeleteFunc(l.shut, func(_ string, s shut) bool { return s.batch <= r.batch.Seq })
	l.delivered(r.batch.Records)
	for _, o := range r.batch.of {
		if o.member.pause != 0 {
			o.member.pause = 0
			l.reminder().works(l.routeKey(o.member.id))
		}
	}
	l.suspended = append(l.suspended, r.batch.suspended...)
	if l.onDelivery != nil {
		l.onDelivery(r.batch.Records)
	}
	l.retire(r.batch)
}

// cutShort is the error of a stop that could not wait for the bus.
func (l *Lane) cutShort() error {
	return fmt.Errorf("stopped while %d events were not acknowledged by the bus: they come again at the next start",
		l.inFlight+len(l.current.Records))
}

// finish deals with the end of a batch, good or bad.
func (l *Lane) finish(ctx context.Context, r result) error {
	l.writing = false
	l.status.flying.is(nil)
	switch {
	case r.err == nil:
		l.committed(r)
		return nil
	case errors.Is(r.err, sink.ErrReset):
		l.budget.Release(r.batch.held)
		return l.reset(ctx, r.err.Error())
	default:
		return r.err
	}
}
