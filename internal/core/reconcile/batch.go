package reconcile

import (
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Slot is the place of an object in the inventories.
type Slot struct{ Collection, Key string }

// Change is a change of the inventory.
type Change struct {
	Slot
	Object *Object // nil: it is removed
}

// copied is a change that is valid for longer than a batch.
func (c Change) copied() Change {
	if c.Object != nil {
		o := *c.Object
		c.Object = &o
	}
	return c
}

// CollectionEvent is an event about a collection.
type CollectionEvent struct {
	Type    event.Type
	Reason  event.Reason
	Reset   bool
	Version string // of synced: the collection is complete up to it; "" if the resource does not exist
	From    string // of gap: the collection was complete up to it before
	Nth     uint64 // of synced: its number in the run, from 1
	// Selection, of gap and synced, is what the collection has by its properties.
	Selection event.Selection
}

// Item is what one event of a batch is made of.
type Item struct {
	Collection  string
	Run         uint64
	Incarnation uint64
	Epoch       uint64
	Route       string
	Object      *ObjectEvent     // exactly one of these
	Event       *CollectionEvent // three is not
	Attribution *Attribution     // nil
	// Changes, Record and Progress are for a reader that has the item and not the batch. With them it can
	// continue after the item. Changes also has changes without an event since the item before. Record is
	// nil if it is as of the item before.
	Changes  []Change
	Record   *Record
	Progress Progress

	Payload any // the caller's: the encoded record
}

// Attribution is an item that says who made the change of an earlier item. It changes neither the inventory nor the collection.
type Attribution struct {
	ID uint64 // the caller's, of the change
}

// Batch is what is made durable together. Its items and changes are valid until the [Core.Seal] behind the
// batch's [Core.Committed].
type Batch struct {
	Items    []Item
	Changes  []Change            // of the inventory, the last of each slot
	Records  map[string]Record   // that have changed, by collection
	Progress map[string]Progress // of the collections of which anything has changed
	Epochs   map[string]uint64   // that have changed
	// Drafts and Intents must be durable before the sink gets the items, if the store is not
	// atomic with it. The commit removes them.
	Drafts  map[string]Draft
	Intents map[Slot][]Intent
	// The commit also removes drafts, by collection, and intents of earlier batches. Even a store that is atomic with its
	// sink has some if it was not before.
	SettledDrafts []string
	Settled       []SettledIntent
}

// SettledIntent is an intent that a commit removes.
type SettledIntent struct {
	Slot
	UID string
}

// without is the batch without what is of a collection.
func (b *Batch) without(collection string) *Batch {
	d := *b
	d.Items = slices.DeleteFunc(slices.Clone(b.Items), func(i Item) bool { return i.Collection == collection })
	d.Changes = slices.DeleteFunc(slices.Clone(b.Changes), func(c Change) bool { return c.Collection == collection })
	d.Settled = slices.DeleteFunc(slices.Clone(b.Settled), func(i SettledIntent) bool { return i.Collection == collection })
	d.SettledDrafts = slices.DeleteFunc(slices.Clone(b.SettledDrafts), func(id string) bool { return id == collection })
	d.Records, d.Progress, d.Drafts, d.Intents = maps.Clone(b.Records), maps.Clone(b.Progress), maps.Clone(b.Drafts), maps.Clone(b.Intents)
	delete(d.Records, collection)
	delete(d.Progress, collection)
	delete(d.Drafts, collection)
	maps.DeleteFunc(d.Intents, func(slot Slot, _ []Intent) bool { return slot.Collection == collection })
	return &d
}

// intend notes what becomes of an object if the bus gets an item.
func (b *Batch) intend(i *Item, earlier doubts) {
	e, slot := i.Object, Slot{i.Collection, i.Object.Key}
	if e.DeadLetter || e.Null || earlier.overtake(slot, e) {
		return
	}
	next := Intent{Object: e.Object, Deleted: e.Type == event.Deleted, Epoch: i.Epoch}
	next.Version = e.Version
	list := slices.DeleteFunc(b.Intents[slot], func(x Intent) bool { return x.UID == next.UID })
	b.Intents[slot] = append(list, next)
}

// pending is a batch that is not committed yet.
type pending struct {
	items   []Item
	changes []Change     // of the inventory: the last of each slot, in the order of the first ones
	places  map[Slot]int // in changes
	dirty   []string     // collections of which anything has changed
	epochs  map[string]uint64
	settled []SettledIntent
	memory  *memory
}

func newPending() *pending {
	return &pending{places: map[Slot]int{}, epochs: map[string]uint64{}, memory: &memory{}}
}

// again is an empty batch in the memory of one that is committed; nil: there is none.
func (p *pending) recycle() *pending {
	next := newPending()
	if p != nil {
		clear(p.items)
		clear(p.changes)
		clear(p.places)
		p.memory.takeBack()
		next.items, next.changes, next.places, next.memory = p.items[:0], p.changes[:0], p.places, p.memory
	}
	return next
}

// set changes the inventory.
func (p *pending) set(slot Slot, o *Object) {
	if n, again := p.places[slot]; again {
		p.changes[n].Object = o
		return
	}
	p.places[slot] = len(p.changes)
	p.changes = append(p.changes, Change{slot, o})
}

// object returns what the batch changes an inventory entry to; false: it does not change it.
func (p *pending) object(slot Slot) (o *Object, changed bool) {
	n, changed := p.places[slot]
	if !changed {
		return nil, false
	}
	return p.changes[n].Object, true
}

// drop removes what is of a collection. What was handed out of the batch stays as it is.
func (p *pending) drop(collection string) {
	p.items = slices.DeleteFunc(slices.Clone(p.items), func(i Item) bool { return i.Collection == collection })
	p.settled = slices.DeleteFunc(slices.Clone(p.settled), func(i SettledIntent) bool { return i.Collection == collection })
	p.dirty = slices.DeleteFunc(p.dirty, func(id string) bool { return id == collection })
	p.changes = slices.DeleteFunc(slices.Clone(p.changes), func(c Change) bool { return c.Collection == collection })
	p.places = make(map[Slot]int, len(p.changes))
	for n := range p.changes {
		p.places[p.changes[n].Slot] = n
	}
}

// batches are the batch that fills and the one on its way.
type batches struct {
	current  *pending
	inFlight *pending // nil: none is on its way
	sealed   *Batch   // made of flying
	recycled *pending // the last one that is committed
	number   uint64   // of the batch that fills
	done     uint64   // the last one that is committed
}

// both are the batches that are not committed, the later one first.
func (b *batches) both() []*pending {
	if b.inFlight == nil {
		return []*pending{b.current}
	}
	return []*pending{b.current, b.inFlight}
}

// drop removes what is of a collection.
func (b *batches) drop(collection string) {
	for _, p := range b.both() {
		p.drop(collection)
	}
	if b.sealed != nil {
		b.sealed = b.sealed.without(collection)
	}
}

// Pending reports how many items the filling batch has.
func (b *batches) Pending() int { return len(b.current.items) }

// Items are those of the filling batch. The caller may set their Payload.
func (b *batches) Items() []Item { return b.current.items }

// Changes reports how many inventory changes the filling batch has.
func (b *batches) Changes() int { return len(b.current.changes) }

// Idle reports whether nothing waits to be committed.
func (b *batches) Idle() bool { return b.inFlight == nil && b.Empty() }

// Empty reports whether the batch that fills has nothing.
func (b *batches) Empty() bool {
	return len(b.current.dirty) == 0 && len(b.current.changes) == 0 // an item makes its collection dirty
}

// seal has the batch that fills on its way, and begins another one.
func (b *batches) seal() (*Batch, *pending) {
	p := b.current
	b.sealed = &Batch{
		Items: p.items, Changes: p.changes, Records: map[string]Record{}, Progress: map[string]Progress{}, Epochs: p.epochs,
		Drafts: map[string]Draft{}, Settled: p.settled,
	}
	b.inFlight, b.current = p, b.recycled.recycle()
	b.number++
	return b.sealed, p
}

// Published says that the bus has the first n items of the batch on its way. [Core.Sealed] does
// not have them any more; their changes are committed with the others.
func (b *batches) Published(n int) {
	rest := *b.sealed
	rest.Items = rest.Items[n:]
	b.sealed = &rest
}

// Sealed is the batch on its way, after [Core.Drop] and [Core.Published].
func (b *batches) Sealed() *Batch { return b.sealed }

// Committed says that the batch on its way is durable.
func (b *batches) Committed() {
	b.done = b.number - 1
	b.recycled, b.inFlight, b.sealed = b.inFlight, nil, nil
}
