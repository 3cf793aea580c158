package loop

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// suspensions are the collections that are not in the core, because the bus refused their route or one of their
// records. Only Run's goroutine uses them.
type suspensions struct {
	observer Observer
	until    map[string]time.Time
	pauses   map[string]time.Duration // the last pause of each collection, until it delivers
}

func newSuspensions(o Observer) *suspensions {
	return &suspensions{observer: o, until: map[string]time.Time{}, pauses: map[string]time.Duration{}}
}

// add suspends a collection. The pause doubles each time, until the collection delivers.
func (s *suspensions) add(id string, why error) {
	pause := min(max(firstPause, 2*s.pauses[id]), LastPause)
	s.pauses[id] = pause
	s.until[id] = time.Now().Add(pause)
	s.observer.Suspended(id, s.until[id], why)
}

// addShort suspends a collection without a pause.
func (s *suspensions) addShort(id string) { s.until[id] = time.Now() }

// remove records that a collection is in the core again.
func (s *suspensions) remove(id string) { delete(s.until, id) }

// clear records that the core begins with all collections again.
func (s *suspensions) clear() { clear(s.until) }

func (s *suspensions) has(id string) bool {
	_, suspended := s.until[id]
	return suspended
}

// due returns the collections whose pause is over.
func (s *suspensions) due(at time.Time) (ids []string) {
	for id, until := range s.until {
		if !at.Before(until) {
			ids = append(ids, id)
		}
	}
	return ids
}

// delivered records that the bus has items, so the next pause of their collections is the short firstPause.
func (s *suspensions) delivered(items []reconcile.Item) {
	for i := range items {
		id := items[i].Collection
		if _, paused := s.pauses[id]; paused {
			delete(s.pauses, id)
			s.observer.Suspended(id, time.Time{}, nil)
		}
	}
}

// refused suspends the collections whose route refuses, and delivers the others. A route that does not exist has no consumers, so what only
// ends there is left out.
func (l *Loop) refused(ctx context.Context, e *sink.RouteError) {
	var ids []string
	f := l.batches.inFlight
	id := f.items[e.Index].Collection
	if c := l.core.Collection(id); e.Missing && c != nil && c.Ends() {
		l.Log.Info("collection ends without closed: its former route does not exist any more", zap.String("collection", id), zap.Error(e))
		l.batches.skip(ctx, e.Index)
		return
	}
	for i := range f.items {
		if id := f.items[i].Collection; i >= e.Index && f.records[i].Route == e.Route && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		l.suspended.add(id, e)
	}
	l.batches.without(ctx, e.Index, ids)
}

// rejected takes the collection of a refused record out of the core. The collection continues
// from the store and emits the same event again. The event is then truncated, or is a dead letter.
func (l *Loop) rejected(ctx context.Context, e *sink.RecordError) {
	item := &l.batches.inFlight.items[e.Index]
	id := item.Collection
	if err := l.Encoder.Reject(item, e); err != nil {
		l.suspended.add(id, err)
	} else {
		l.suspended.addShort(id)
	}
	l.batches.without(ctx, e.Index, []string{id})
}

// resume continues suspended collections whose pause is over from the content of the store.
func (l *Loop) resume(at time.Time) error {
	if l.batches.inFlight != nil {
		return nil // the batch on its way may have items of these collections that the store does not have yet
	}
	due := l.suspended.due(at)
	if len(due) == 0 {
		return nil
	}
	state, err := durable.Load(l.Store)
	if err == nil {
		err = l.plan.load(l.Store) // a dropped event may have removed a note of announce
	}
	if err != nil {
		return err
	}
	l.plan.announceAgain(l.batches.announcementsDue())
	for _, id := range due {
		l.suspended.remove(id)
		l.core.Restore(id, state, l.number(at))
		if err := l.batches.count(id, l.core.Collection(id).Incarnation); err != nil { // in the mode Log, the store may have a part of a batch
			return err
		}
		l.batches.open.grow(id, 0) // the next commit reports the number
		if l.Chronicle != nil {
			if err := l.Chronicle.Restore(l.Store, id, at); err != nil {
				return err
			}
		}
		l.adopt(id)
		if l.plan.made {
			l.batches.noteLatest(l.plan.number()...)
		}
		l.configure(id)
		if _, removed := l.plan.removed[id]; removed {
			l.step(reconcile.Remove, id)
		}
	}
	return nil
}
