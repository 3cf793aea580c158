package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/internal/delivery"
	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// encode makes the records of items that have none. If the items follow from the begin of a list,
// detail says why the list began.
func (l *Loop) encode(detail string) {
	items := l.core.Items()
	at := time.Now()
	first := len(items)
	for first > 0 && items[first-1].Payload == nil {
		first--
	}
	for n := first; n < len(items); n++ {
		why, e := "", items[n].Event
		if e != nil && e.Type == event.Gap {
			why = detail
		}
		r, changes := l.Encoder.Encode(&items[n], why, at)
		if l.Delivery.Mode() == delivery.Log {
			r.State = append(durable.ItemChanges(&items[n]), removals(changes)...)
			r.State = append(r.State, l.forgotten(r.State)...)
		}
		if e != nil {
			paid := l.paid(items[n].Collection)
			changes = append(changes, paid...)
			if l.Delivery.Mode() == delivery.Log {
				r.State = append(r.State, paid...)
			}
		}
		items[n].Payload = &encoded{r, changes}
		if w := l.wanted[items[n].Collection]; w != nil && e != nil && e.Type == event.Synced {
			w.synced, w.verified = at, at
		}
		l.filling.bytes += len(r.Value)
	}
}

// forgotten returns what the encoder removes with the inventory entries that changes remove.
func (l *Loop) forgotten(changes []event.KV) (more []event.KV) {
	for _, slot := range durable.Removed(changes) {
		more = append(more, l.Encoder.Forgotten(slot.Collection, slot.Key)...)
	}
	return more
}

// removals returns the changes that remove a key. The other changes write kept bodies. They are too
// large for the headers of a message, and the encoder notices if one is missing.
func removals(changes []event.KV) (out []event.KV) {
	for _, kv := range changes {
		if kv.Value == nil {
			out = append(out, kv)
		}
	}
	return out
}

// full reports whether the filling batch takes nothing more.
func (l *Loop) full() bool {
	return l.core.Pending() >= BatchRecords || l.filling.bytes >= BatchBytes || l.core.Changes() >= batchChanges
}

// wait returns how long the filling batch waits before it is sent.
func (l *Loop) wait() time.Duration {
	switch {
	case l.full() || l.stopping:
		return 0
	case l.core.Pending() == 0:
		return silentDelay - time.Since(l.filling.since)
	}
	return l.Linger - time.Since(l.filling.since)
}

// due fires when the filling batch has waited long enough; nil if there is nothing to wait for.
func (l *Loop) due() <-chan time.Time {
	if l.flying != nil || l.core.Idle() {
		return nil
	}
	return time.After(max(0, l.wait()))
}

// dispatch sends the filling batch on its way if its time has come.
func (l *Loop) dispatch(ctx context.Context) {
	if l.filling.since.IsZero() && !l.core.Empty() {
		l.filling.since = time.Now()
	}
	if l.flying != nil || l.core.Idle() || l.wait() > 0 {
		return
	}
	l.seq++
	sealed := l.core.Seal()
	l.flying = &flight{batch: l.filling, seq: l.seq, sealed: sealed, items: sealed.Items, unkept: l.Encoder.Sealed()}
	l.filling = batch{}
	l.deliver(ctx)
}

// queued says how full the batches are.
func (l *Loop) queued() {
	filling := Load{l.core.Pending(), l.filling.bytes, l.filling.since}
	if l.flying == nil {
		l.Observer.Queued(Load{}, filling)
		return
	}
	l.Observer.Queued(Load{len(l.flying.records), l.flying.bytes, l.flying.since}, filling)
}

// deliver writes the batch on its way. settled are records of it that the bus already has, and whose
// changes the store does not have.
func (l *Loop) deliver(ctx context.Context, settled ...event.Record) {
	f := l.flying
	mode := l.Delivery.Mode()
	changes := durable.Changes(f.sealed, mode == delivery.Intents)
	removed := joined(f.unkept, l.forgotten(changes))
	changes = append(changes, f.notes...)
	f.records = make([]event.Record, 0, len(f.items))
	for i := range f.items {
		f.records = append(f.records, f.items[i].Payload.(*encoded).record)
	}
	for _, items := range [][]reconcile.Item{f.settled.items, f.sealed.Items} {
		for i := range items {
			changes = append(changes, items[i].Payload.(*encoded).changes...)
		}
	}
	changes = append(changes, removed...) // an item of the batch may have written what is removed
	b := &delivery.Batch{Seq: f.seq, Records: f.records, Changes: changes}
	switch mode {
	case delivery.Log:
		b.Before, b.Silent = f.notes, durable.Silent(f.sealed)
		b.Silent = append(b.Silent, l.forgotten(b.Silent)...)
	case delivery.Intents:
		b.Before = append(durable.Before(f.sealed), f.notes...)
	}
	l.running.Go(func() {
		err := l.Delivery.Settle(ctx, settled)
		if err == nil {
			err = l.Delivery.Deliver(ctx, b)
		}
		l.written <- err
	})
}

// finished deals with the end of the batch on its way.
func (l *Loop) finished(ctx context.Context, err error) error {
	var (
		route  *sink.RouteError
		record *sink.RecordError
	)
	switch {
	case err == nil:
		l.committed()
		return nil
	case errors.As(err, &route):
		l.refused(ctx, route)
		return nil
	case errors.As(err, &record):
		l.rejected(ctx, record)
		return nil
	case errors.Is(err, sink.ErrReset):
		return l.reset(ctx, err)
	}
	return err
}

func (l *Loop) committed() {
	f := l.flying
	l.core.Committed()
	l.budget.Release(f.held)
	changed := slices.Collect(maps.Keys(f.sealed.Records))
	for id, n := range f.grown {
		l.objects[id] += n
		changed = append(changed, id)
	}
	l.Observer.Committed(&Commit{joined(f.settled.items, f.items), joined(f.settled.records, f.records), changed})
	l.Encoder.Committed(joined(f.settled.items, f.sealed.Items))
	for i := range f.sealed.Items {
		id := f.sealed.Items[i].Collection
		if _, paused := l.pauses[id]; paused {
			delete(l.pauses, id)
			l.Observer.Suspended(id, time.Time{}, nil)
		}
	}
	l.flying = nil
}

// joined is as [slices.Concat], and copies only if neither list is empty.
func joined[T any](before, list []T) []T {
	if len(before) == 0 {
		return list
	}
	return slices.Concat(before, list)
}

// refused takes out the collections whose route refuses, and delivers the others.
func (l *Loop) refused(ctx context.Context, e *sink.RouteError) {
	var ids []string
	for i := range l.flying.items {
		if id := l.flying.items[i].Collection; i >= e.Index && l.flying.records[i].Route == e.Route && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		l.suspend(id, e)
	}
	l.without(ctx, e.Index, ids)
}

// suspend suspends a collection. The pause doubles each time, until the collection delivers.
func (l *Loop) suspend(id string, why error) {
	pause := min(max(firstPause, 2*l.pauses[id]), LastPause)
	l.pauses[id] = pause
	l.suspended[id] = time.Now().Add(pause)
	l.Observer.Suspended(id, l.suspended[id], why)
}

// rejected takes out the collection of a record that the bus does not take. The collection continues
// from the store, where the same event is decided again; then it is made to fit, or is a dead letter.
func (l *Loop) rejected(ctx context.Context, e *sink.RecordError) {
	item := &l.flying.items[e.Index]
	id := item.Collection
	if err := l.Encoder.Reject(item, e); err != nil {
		l.suspend(id, err)
	} else {
		l.suspended[id] = time.Now()
	}
	l.without(ctx, e.Index, []string{id})
}

// without delivers the batch on its way again, without some collections. The items before index:
//
//	mode         is on the bus                what is delivered again
//	Transaction  no                           the items of the others
//	Log          yes, with its own changes    the items of the others from index on
//	Intents      yes, or with the next write  all items before index, and those of the others from it on
func (l *Loop) without(ctx context.Context, index int, ids []string) {
	f := l.flying
	dropped := func(i reconcile.Item) bool { return slices.Contains(ids, i.Collection) }
	before, after := slices.Clone(f.items[:index]), slices.DeleteFunc(slices.Clone(f.items[index:]), dropped)
	var settled []event.Record
	switch l.Delivery.Mode() {
	case delivery.Transaction:
		f.items = append(slices.DeleteFunc(before, dropped), after...)
	case delivery.Log:
		settled = slices.Clone(f.records[:index])
		l.core.Published(index)
		f.settled.items, f.settled.records, f.items = append(f.settled.items, before...), append(f.settled.records, settled...), after
		l.seq++ // a batch without its first records is another one
		f.seq = l.seq
	case delivery.Intents:
		f.items = append(before, after...)
	}
	for _, id := range ids {
		l.core.Drop(id)
		l.Encoder.Dropped(id)
		delete(f.grown, id)
		delete(l.filling.grown, id)
	}
	f.sealed = l.core.Sealed()
	l.deliver(ctx, settled...)
}

// resume continues suspended collections whose time has come from what the store holds.
func (l *Loop) resume(at time.Time) error {
	if l.flying != nil {
		return nil // the batch on its way may have items of these collections that the store does not have yet
	}
	var due []string
	for id, until := range l.suspended {
		if !at.Before(until) {
			due = append(due, id)
		}
	}
	if len(due) == 0 {
		return nil
	}
	state, err := durable.Load(l.Store)
	if err == nil {
		err = l.loadPlan() // an event that was dropped may have removed a note from owed
	}
	if err != nil {
		return err
	}
	for _, id := range due {
		delete(l.suspended, id)
		l.core.Restore(id, state, now())
		if err := l.count(id); err != nil { // in the mode Log, a part of a batch may be in the store
			return err
		}
		l.configure(id)
		if _, removed := l.removed[id]; removed {
			l.step(reconcile.Remove, id)
		}
	}
	return nil
}

// forget removes inventory entries of incarnations that end, as far as the batch has room.
func (l *Loop) forget() {
	for _, id := range l.core.IDs() {
		for !l.full() {
			keys, done := l.core.Forgettable(id, BatchRecords)
			for _, key := range keys {
				l.stepObject(&reconcile.Input{Kind: reconcile.Forget, Collection: id, Key: key}, key)
			}
			if done {
				l.core.Step(&reconcile.Input{Kind: reconcile.Forgot, Collection: id})
			}
			if len(keys) == 0 {
				break
			}
		}
	}
}

// stepObject passes on an input about an object, and counts the inventory entry that it adds or
// removes.
func (l *Loop) stepObject(in *reconcile.Input, key string) {
	before, _ := l.core.Object(in.Collection, key)
	l.core.Step(in)
	after, _ := l.core.Object(in.Collection, key)
	switch {
	case before == nil && after != nil:
		l.filling.grow(in.Collection, 1)
	case before != nil && after == nil:
		l.filling.grow(in.Collection, -1)
	}
}

func (b *batch) grow(collection string, n int64) {
	if b.grown == nil {
		b.grown = map[string]int64{}
	}
	b.grown[collection] += n
}

// count counts the objects in a collection's inventory.
func (l *Loop) count(collection string) (err error) {
	l.objects[collection], err = durable.Count(l.Store, collection)
	return err
}

// stopped is the error of a stop that could not wait for the bus.
func (l *Loop) stopped() error {
	n := l.core.Pending()
	if l.flying != nil {
		n += len(l.flying.sealed.Items)
	}
	return fmt.Errorf("stopped while %d events were not acknowledged by the bus: they are delivered after the next start", n)
}
