package loop

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/internal/base/pieces"
	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// batches has the batch that fills and the batch that is on its way to the bus. It owns the records of the core's
// items, and the number of objects in the store. Only Run's goroutine uses it. Delivery has a goroutine
// of its own, which sends its result to written.
type batches struct {
	*Options
	core     *reconcile.Core
	plan     *planState
	budget   *semaphore.Weighted // see reads
	open     batch
	inFlight *flight
	recycled *memory // of the batch that was committed last
	written  chan error
	check    busCheck

	running  sync.WaitGroup    // the delivery, or the check
	seq      uint64            // number of batches; unlike the core's number, it continues after a reset
	objects  map[string]int64  // in the inventories of the store, by collection
	counted  map[string]uint64 // the incarnations of objects, by collection
	draining bool              // the loop is stopping, so the filling batch does not wait for more records
}

// busCheck is the check of the bus. No batch is on its way while one runs.
type busCheck struct {
	due  bool               // before the next batch
	end  context.CancelFunc // nil: none runs
	done chan error         // gets its result
}

// batch is a batch with the loop's own data about it.
type batch struct {
	memory *memory
	bytes  int
	held   int64     // of the frame budget
	since  time.Time // when its first content came
	// notes become durable before the records, or in the same commit.
	notes   []event.KV
	entries []event.KV       // the same, of the chronicle
	added   map[string]int64 // number of added inventory entries, by collection
}

// memory holds the content of a batch. It is reused once the batch is committed.
type memory struct {
	durable  *durable.Memory
	payloads pieces.Pieces[payload]
	records  []event.Record
	changes  []event.KV
}

// reset empties the memory for reuse.
func (m *memory) reset() {
	m.durable.Reset()
	m.payloads.Clear()
	clear(m.records)
	clear(m.changes)
	m.records, m.changes = m.records[:0], m.changes[:0]
}

// flight is a batch on its way.
type flight struct {
	batch
	seq    uint64
	sealed *reconcile.Batch
	// items are the items to write: the items of sealed, and items of dropped collections that the bus may already
	// have, or gets before the others. records are the records of items.
	items        []reconcile.Item
	records      []event.Record
	settled      settledPart
	bodyRemovals []event.KV // of the encoder, for the commit
}

// settledPart is the records of a batch on its way that the bus already has, with their changes.
type settledPart struct {
	items   []reconcile.Item
	records []event.Record
}

// payload is the record of an item.
type payload struct {
	record  event.Record
	changes []event.KV // committed with the item, besides the item's own changes
}

// encode makes the records of items that have no record yet. If the items follow from the begin of a list,
// detail says why the list began. at is the time of their events.
func (b *batches) encode(detail string, at time.Time) {
	items, needs := b.core.Items(), b.Delivery.Needs()
	first := len(items)
	for first > 0 && items[first-1].Payload == nil {
		first--
	}
	for n := first; n < len(items); n++ {
		why, e := "", items[n].Event
		if e != nil && e.Type == event.Gap {
			why = detail
		}
		r, changes := b.Encoder.Encode(&items[n], why, at)
		if needs.State {
			r.State = append(b.open.memory.durable.ItemChanges(&items[n]), small(changes)...)
			r.State = append(r.State, b.forgotten(r.State)...)
		}
		if e != nil {
			removals := b.plan.announced(items[n].Collection)
			changes = append(changes, removals...)
			if needs.State {
				r.State = append(r.State, removals...)
			}
		}
		items[n].Payload = b.open.memory.payloads.New(payload{r, changes})
		if w := b.plan.wanted[items[n].Collection]; w != nil && e != nil && e.Type == event.Synced {
			w.synced = at
			if e.Reason != event.ReasonPeriodic { // otherwise it followed a list
				w.verified = at
			}
		}
		b.open.bytes += len(r.Value)
	}
}

// forgotten returns the changes with which the encoder follows the removal of inventory entries in changes.
func (b *batches) forgotten(changes []event.KV) (more []event.KV) {
	for _, slot := range durable.Removed(changes) {
		more = append(more, b.Encoder.Forgotten(slot.Collection, slot.Key)...)
	}
	return more
}

// small returns the changes without those that write kept bodies. These are too large for the headers of a message, and the encoder
// notices if one is missing.
func small(changes []event.KV) (out []event.KV) {
	for _, kv := range changes {
		if kv.Value == nil || !durable.IsBody(kv.Key) {
			out = append(out, kv)
		}
	}
	return out
}

// full reports whether the filling batch is full.
func (b *batches) full() bool {
	return b.core.Pending() >= BatchRecords || b.open.bytes >= BatchBytes || b.core.Changes() >= batchChanges
}

// wait returns how long the filling batch waits before it is sent.
func (b *batches) wait() time.Duration {
	switch {
	case b.full() || b.draining:
		return 0
	case b.core.Pending() == 0:
		return silentDelay - time.Since(b.open.since)
	}
	return b.Linger - time.Since(b.open.since)
}

// due returns a channel that fires when the filling batch has waited long enough; nil if the batch does not wait.
func (b *batches) due() <-chan time.Time {
	if b.inFlight != nil || b.core.Idle() {
		return nil
	}
	return time.After(max(0, b.wait()))
}

// dispatch delivers the filling batch if it is due and no other batch is on its way.
func (b *batches) dispatch(ctx context.Context) {
	if b.open.since.IsZero() && !b.core.Empty() {
		b.open.since = time.Now()
	}
	if b.inFlight != nil || b.check.end != nil {
		return
	}
	if b.check.due {
		b.check.due = false
		ctx, b.check.end = context.WithCancel(ctx)
		b.running.Go(func() { b.check.done <- b.Delivery.Check(ctx) })
		return
	}
	if b.core.Idle() || b.wait() > 0 {
		return
	}
	b.seq++
	sealed := b.core.Seal()
	b.inFlight = &flight{batch: b.open, seq: b.seq, sealed: sealed, items: sealed.Items, bodyRemovals: b.Encoder.Sealed()}
	if b.Chronicle != nil {
		b.Chronicle.Sealed()
	}
	b.open = b.newBatch()
	b.deliver(ctx)
}

// newBatch returns an empty batch. It reuses the memory of a committed batch if there is one.
func (b *batches) newBatch() batch {
	m := b.recycled
	b.recycled = nil
	if m == nil {
		m = &memory{durable: durable.NewMemory()}
	}
	return batch{memory: m}
}

// queued reports the sizes of the batches to the observer.
func (b *batches) queued() {
	filling := Load{b.core.Pending(), b.open.bytes, b.open.since}
	if b.inFlight == nil {
		b.Observer.Queued(Load{}, filling)
		return
	}
	b.Observer.Queued(Load{len(b.inFlight.records), b.inFlight.bytes, b.inFlight.since}, filling)
}

// deliver writes the batch on its way. settled are records of the batch that the bus already has, and whose
// changes the store does not have.
func (b *batches) deliver(ctx context.Context, settled ...event.Record) {
	f := b.inFlight
	needs := b.Delivery.Needs()
	changes := append(f.memory.changes[:0], f.memory.durable.Changes(f.sealed, needs.Intents)...)
	removed := joined(f.bodyRemovals, b.forgotten(changes))
	notes := joined(f.notes, f.entries)
	changes = append(changes, notes...)
	f.records = slices.Grow(f.memory.records[:0], len(f.items))
	for i := range f.items {
		f.records = append(f.records, f.items[i].Payload.(*payload).record)
	}
	for _, items := range [][]reconcile.Item{f.settled.items, f.sealed.Items} {
		for i := range items {
			changes = append(changes, items[i].Payload.(*payload).changes...)
		}
	}
	changes = append(changes, removed...) // removals come last, because an item of the batch may write the same key
	f.memory.records, f.memory.changes = f.records, changes
	d := &delivery.Batch{Seq: f.seq, Records: f.records, Before: notes, Changes: changes}
	if needs.Intents {
		d.Before = append(f.memory.durable.Before(f.sealed), notes...)
	}
	if needs.State {
		d.Silent = f.memory.durable.Silent(f.sealed)
		d.Silent = append(d.Silent, b.forgotten(d.Silent)...)
	}
	b.running.Go(func() {
		err := b.Delivery.Settle(ctx, settled)
		if err == nil {
			err = b.Delivery.Deliver(ctx, d)
		}
		b.written <- err
	})
}

// committed records that the batch on its way is on the bus and in the store.
func (b *batches) committed() *flight {
	f := b.inFlight
	b.core.Committed()
	b.budget.Release(f.held)
	changed := slices.Collect(maps.Keys(f.sealed.Records))
	for id, n := range f.added {
		b.objects[id] += n
		changed = append(changed, id)
	}
	for id, r := range f.sealed.Records {
		if b.counted[id] != r.Incarnation { // entries of the one before no longer count
			_ = b.count(id, r.Incarnation) // the number is only shown
		}
	}
	b.Observer.Committed(&Commit{joined(f.settled.items, f.items), joined(f.settled.records, f.records), changed})
	items := joined(f.settled.items, f.sealed.Items)
	b.Encoder.Committed(items)
	if b.Chronicle != nil {
		b.Chronicle.Committed(items)
	}
	f.memory.reset()
	b.recycled, b.inFlight = f.memory, nil
	return f
}

// joined is like [slices.Concat], but copies only if neither list is empty.
func joined[T any](before, list []T) []T {
	if len(before) == 0 {
		return list
	}
	return slices.Concat(before, list)
}

// without delivers the batch on its way again, without some collections. The items that are delivered again depend on
// where the items before index are:
//
//	NotWritten    the items of the others
//	WithChanges   the items of the others from index on
//	MaybeWritten  all items before index, and those of the others from it on
func (b *batches) without(ctx context.Context, index int, ids []string) {
	f := b.inFlight
	dropped := func(i reconcile.Item) bool { return slices.Contains(ids, i.Collection) }
	before, after := slices.Clone(f.items[:index]), slices.DeleteFunc(slices.Clone(f.items[index:]), dropped)
	var settled []event.Record
	switch b.Delivery.Needs().Preceding {
	case delivery.NotWritten:
		f.items = append(slices.DeleteFunc(before, dropped), after...)
	case delivery.WithChanges:
		settled = b.settle(index)
		f.items = after
	case delivery.MaybeWritten:
		f.items = append(before, after...)
	}
	for _, id := range ids {
		b.core.Drop(id)
		b.Encoder.Dropped(id)
		delete(f.added, id)
		delete(b.open.added, id)
	}
	b.measure()
	f.sealed = b.core.Sealed()
	b.deliver(ctx, settled...)
}

// settle takes the first n items out of the batch on its way, because the bus has what it is to have of them. It returns their records, whose
// changes the store does not have yet.
func (b *batches) settle(n int) []event.Record {
	f := b.inFlight
	records := slices.Clone(f.records[:n])
	b.core.Published(n)
	f.settled.items, f.settled.records, f.items = append(f.settled.items, f.items[:n]...), append(f.settled.records, records...), f.items[n:]
	b.seq++ // without its first records it is another batch
	f.seq = b.seq
	f.notes, f.entries = nil, nil // they are durable, and settled items may remove their keys
	return records
}

// skip delivers the batch on its way again, without one record, whose changes are committed.
func (b *batches) skip(ctx context.Context, index int) {
	f := b.inFlight
	if b.Delivery.Needs().Preceding != delivery.WithChanges {
		f.items = slices.Delete(slices.Clone(f.items), index, index+1)
		b.deliver(ctx)
		return
	}
	b.deliver(ctx, b.settle(index+1)...)
}

// measure follows [reconcile.Core.Drop]: the filling batch has fewer records, or none. A batch without content is not sent, so it must not be
// full, and holds nothing of the frame budget.
func (b *batches) measure() {
	b.open.bytes = 0
	for _, i := range b.core.Items() {
		if e, ok := i.Payload.(*payload); ok {
			b.open.bytes += len(e.record.Value)
		}
	}
	if b.core.Empty() {
		b.budget.Release(b.open.held)
		b.open.held, b.open.since = 0, time.Time{}
	}
}

// forget removes inventory entries of ending incarnations, while the batch has room.
func (b *batches) forget() {
	for _, id := range b.core.Open() {
		for !b.full() {
			keys, done := b.core.Forgettable(id, BatchRecords)
			for _, key := range keys {
				known, _ := b.core.Object(id, key)
				b.stepObject(&reconcile.Input{Kind: reconcile.Forget, Collection: id, Key: key}, key, known != nil)
			}
			if done {
				b.core.Step(&reconcile.Input{Kind: reconcile.Forgot, Collection: id})
			}
			if len(keys) == 0 {
				break
			}
		}
	}
}

// stepObject passes on an input about an object, and counts the inventory entry that it adds or
// removes. had says whether there is an entry.
func (b *batches) stepObject(in *reconcile.Input, key string, had bool) {
	b.core.Step(in)
	after, _ := b.core.Object(in.Collection, key)
	switch has := after != nil; {
	case !had && has:
		b.open.grow(in.Collection, 1)
	case had && !has:
		b.open.grow(in.Collection, -1)
	}
}

func (b *batch) grow(collection string, n int64) {
	if b.added == nil {
		b.added = map[string]int64{}
	}
	b.added[collection] += n
}

// count counts the objects of an incarnation in a collection's inventory.
func (b *batches) count(collection string, incarnation uint64) (err error) {
	b.counted[collection] = incarnation
	b.objects[collection], err = durable.Count(b.Store, collection, incarnation)
	return err
}

// note adds changes that become durable before the records of the filling batch, or in the same commit.
func (b *batches) note(changes ...event.KV) { b.open.notes = append(b.open.notes, changes...) }

// noteLatest is note for changes that replace earlier ones of their keys.
func (b *batches) noteLatest(changes ...event.KV) {
	b.open.notes = append(without(b.open.notes, changes), changes...)
}

// without removes the changes of keys from a list.
func without(list, keys []event.KV) []event.KV {
	if len(list) == 0 || len(keys) == 0 {
		return list
	}
	removed := make(map[string]bool, len(keys))
	for _, kv := range keys {
		removed[string(kv.Key)] = true
	}
	return slices.DeleteFunc(list, func(kv event.KV) bool { return removed[string(kv.Key)] })
}

// announcementsDue returns the notes of the filling batch that no item of the batch removes.
func (b *batches) announcementsDue() []event.KV {
	removed := map[string]bool{}
	items := b.core.Items()
	for i := range items {
		if e, _ := items[i].Payload.(*payload); e != nil {
			for _, kv := range e.changes {
				removed[string(kv.Key)] = kv.Value == nil
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(b.open.notes), func(kv event.KV) bool { return removed[string(kv.Key)] })
}

// restart discards both batches, except for their notes, for another core. No batch is on its way to the bus. It returns the
// entries, which are not in the filling batch any more: with them the store has all that the chronicle has noted.
func (b *batches) restart() (entries []event.KV) {
	b.budget.Release(b.open.held)
	notes, entries := b.open.notes, b.open.entries
	if b.inFlight != nil {
		b.budget.Release(b.inFlight.held)
		notes, entries = slices.Concat(b.inFlight.notes, notes), slices.Concat(b.inFlight.entries, entries)
	}
	b.open, b.inFlight = b.newBatch(), nil
	b.open.notes = notes
	return entries
}

// load counts the inventories of a core that continues from the store.
func (b *batches) load(core *reconcile.Core) error {
	b.core = core
	clear(b.objects)
	for _, id := range core.IDs() {
		if err := b.count(id, core.Collection(id).Incarnation); err != nil {
			return err
		}
	}
	return nil
}

// unacknowledged returns how many events the bus has not acknowledged.
func (b *batches) unacknowledged() int {
	n := b.core.Pending()
	if b.inFlight != nil {
		n += len(b.inFlight.sealed.Items)
	}
	return n
}
