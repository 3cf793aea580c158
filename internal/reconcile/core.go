package reconcile

import (
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Storage is the committed inventory. Its methods have no errors: a storage that cannot be
// read returns nil and keeps its error, and the caller of [Core.Step] looks at it and
// gives up the core before the next [Core.Seal].
type Storage interface {
	// Object returns the inventory entry of a key, nil for none.
	Object(collection, key string) *Object
	// After returns the first key of an inventory entry that is greater than key; false: there is none.
	After(collection, key string) (string, bool)
}

// State is what a store holds beside the inventory.
type State struct {
	Records  map[string]Record   // by collection
	Progress map[string]Progress // by collection
	Epochs   map[string]uint64   // by storage
	// Drafts and Intents are what was written before a batch of which it is not known whether
	// the bus has it. Both are empty where the store is atomic with the sink.
	Drafts  map[string]Draft
	Intents map[Slot][]Intent
}

// Reset is the state from which every collection that is not closed ends its incarnation at the next
// start, and begins another one if it is wanted. What is in doubt counts as published.
func (s State) Reset() State {
	next := State{Records: maps.Clone(s.Records), Progress: maps.Clone(s.Progress), Epochs: s.Epochs, Intents: s.Intents}
	for id, d := range s.Drafts {
		next.Records[id], next.Progress[id] = d.ending(s.Records[id]), d.Progress
	}
	for id, r := range next.Records {
		if r.Phase != New && r.Phase != Closed {
			r.Phase, r.Unwanted = Ending, r.Unwanted || r.Phase == Leaving
			next.Records[id] = r
		}
	}
	return next
}

// Draft is the record and the progress of a collection as a batch would have left them.
type Draft struct {
	Record
	Progress
	Gap    bool `json:"gapindoubt,omitzero"`    // the batch has the gap of its run
	Synced bool `json:"syncedindoubt,omitzero"` // the batch has the synced event of a list
	Resync bool `json:"resyncindoubt,omitzero"` // the batch has the gap or the synced event of a resync
	// Confirmed: the batch has a periodic synced event.
	Confirmed bool `json:"confirmedindoubt,omitzero"`
	// From is [CollectionEvent].From of the last gap in doubt, which is emitted again as it was.
	From string `json:"from,omitzero"`
}

// ending is the record of an ending that the draft leads to. before is the record in the store: where its
// null values are in doubt, their incarnation ends once more.
func (d Draft) ending(before Record) Record {
	r := d.Record
	r.ClosedFirst, r.Incarnation = before.ClosedFirst, max(d.Incarnation, before.Incarnation)
	return r
}

// Slot is the place of an object in the inventories.
type Slot struct{ Collection, Key string }

// Change is a change of the inventory.
type Change struct {
	Slot
	Object *Object // nil: it is removed
}

// Item is what one event of a batch is made of.
type Item struct {
	Collection  string
	Run         uint64
	Incarnation uint64
	Epoch       uint64
	Route       string
	Object      *ObjectEvent     // exactly one of the two
	Event       *CollectionEvent // is not nil
	// Changes, Record and Progress are for a reader that has the item and not the batch. With them it can
	// continue after the item. Changes also has changes without an event since the item before. Record is
	// nil if it is as of the item before.
	Changes  []Change
	Record   *Record
	Progress Progress

	Payload any // the caller's: the encoded record
}

// Batch is what is made durable together.
type Batch struct {
	Items    []Item
	Changes  []Change            // of the inventory, the last of each slot
	Records  map[string]Record   // that have changed, by collection
	Progress map[string]Progress // of the collections of which anything has changed
	Epochs   map[string]uint64   // that have changed
	// Drafts and Intents must be durable before the sink gets the items, if the store is not
	// atomic with it. The commit removes them, and the intents of earlier batches in Settled.
	Drafts  map[string]Draft
	Intents map[Slot][]Intent
	Settled []SettledIntent
}

// SettledIntent is an intent that a commit removes.
type SettledIntent struct {
	Slot
	UID string
}

// Core decides what one sink gets. It is not safe for concurrent use.
type Core struct {
	storage     Storage
	collections map[string]*Collection
	epochs      map[string]uint64
	intents     map[Slot][]Intent

	reads   uint64 // numbers of reads
	seq     uint64 // of the batch that fills
	filling *pending
	flying  *pending
	sealed  *Batch // made of flying
	done    uint64 // the last batch that is committed
	found   found  // the object that was looked up last
	omits   omission

	coverage *coverage // of tests; nil: nobody counts
}

// coverage counts what of the two tables was used.
type coverage struct {
	rows        [rows]uint64
	transitions [phases][inputs]uint64
}

// found is an inventory entry as it will be once everything is committed.
type found struct {
	Slot
	o     *Object
	valid bool
}

// omission is what batches do not have.
type omission struct {
	intents bool // Drafts and Intents of a [Batch]
	alone   bool // Changes, Record and Progress of each [Item]
}

// Omit has batches leave out what the caller does not need: the drafts and intents of a [Batch], or
// what an [Item] has for a reader without the batch.
func (k *Core) Omit(intents, alone bool) { k.omits = omission{intents, alone} }

// pending is a batch that is not committed yet, and the state that it leads to.
type pending struct {
	items   []Item
	objects map[Slot]*Object
	dirty   map[string]bool // collections of which anything has changed, and whether their record has
	epochs  map[string]uint64
	settled []SettledIntent
}

// newPending returns a batch with room for n items.
func newPending(n int) *pending {
	return &pending{items: make([]Item, 0, n), objects: make(map[Slot]*Object, n), dirty: map[string]bool{}, epochs: map[string]uint64{}}
}

// NewCore returns a core that continues from what a store holds. now is as in [Input].
func NewCore(storage Storage, s State, now uint64) *Core {
	k := &Core{
		storage: storage, collections: map[string]*Collection{}, epochs: map[string]uint64{}, intents: map[Slot][]Intent{},
		seq: 1, filling: newPending(0),
	}
	maps.Copy(k.epochs, s.Epochs)
	ids := map[string]struct{}{}
	for id := range s.Records {
		ids[id] = struct{}{}
	}
	for id := range s.Drafts {
		ids[id] = struct{}{}
	}
	// A commit that raises an epoch may be missing where a record or a draft already has it.
	for id := range ids {
		for _, r := range []Record{s.Records[id], s.Drafts[id].Record} {
			k.epochs[r.Properties.Storage] = max(k.epochOf(r.Properties.Storage), r.Epoch)
		}
	}
	for _, id := range sorted(ids) {
		k.Restore(id, s, now)
	}
	return k
}

// Restore continues a collection from what the store holds: at the start, and after [Core.Drop].
func (k *Core) Restore(collection string, s State, now uint64) {
	for slot, list := range s.Intents {
		if slot.Collection == collection {
			k.intents[slot] = slices.Clone(list)
		}
	}
	k.reads++
	c := &Collection{ID: collection, read: k.reads}
	k.collections[collection] = c
	c.recover(k, s, now)
}

// Drop gives up what is not committed of a collection, and the collection until [Core.Restore]
// continues it from what the store holds. The batch on its way is another one afterwards:
// [Core.Sealed]. The caller drops a collection whose route refuses records, and one of which
// a record was rejected.
func (k *Core) Drop(collection string) {
	delete(k.collections, collection)
	k.found.valid = false
	for _, p := range []*pending{k.filling, k.flying} {
		if p != nil {
			p.drop(collection)
		}
	}
	if k.sealed != nil {
		k.sealed = k.sealed.without(collection)
	}
	maps.DeleteFunc(k.intents, func(slot Slot, _ []Intent) bool { return slot.Collection == collection })
}

func (p *pending) drop(collection string) {
	p.items = slices.DeleteFunc(slices.Clone(p.items), func(i Item) bool { return i.Collection == collection })
	maps.DeleteFunc(p.objects, func(slot Slot, _ *Object) bool { return slot.Collection == collection })
	p.settled = slices.DeleteFunc(slices.Clone(p.settled), func(i SettledIntent) bool { return i.Collection == collection })
	delete(p.dirty, collection)
}

// recover continues a collection from what the store holds of it.
//
//	draft                           continues as
//	none                            the record
//	Ending, Leaving                 the draft; Leaving with a reset in doubt is Ending; closed in doubt is emitted again
//	with a reset and more in doubt  the draft; another reset is emitted
//	with synced in doubt            the draft; another gap is emitted
//	Listing, its gap in doubt       the draft; the gap is emitted again, with its id
//	with a resync in doubt          the record, with a resync due; its gap is emitted again if it is in doubt
//	with a periodic synced in doubt the record; the number of the synced event is not used again
//
// A draft of another kind, or of another phase, is not made: see [Core.draft].
func (c *Collection) recover(k *Core, s State, now uint64) {
	c.Record, c.Progress = s.Records[c.ID], s.Progress[c.ID]
	c.emitted, c.kept = c.Record, c.Progress
	defer c.sawIntents(s)
	d, drafted := s.Drafts[c.ID]
	switch {
	case !drafted:
	case d.Phase == Ending || d.Phase == Leaving:
		inDoubt := d.Incarnation != c.Incarnation
		c.Record, c.Progress = d.ending(c.Record), d.Progress
		if c.Phase == Leaving && inDoubt {
			c.end(k, true)
		}
	case d.Incarnation != c.Incarnation && (d.Synced || d.Run != d.Incarnation):
		c.Record, c.Progress = d.Record, d.Progress
		c.begin(k, now)
	case d.Synced:
		synced := c.Synced
		c.Record, c.Seen = d.Record, d.Seen
		c.Synced = synced
		c.gap(k, now, ReasonInterrupted)
	case d.Gap:
		c.Record, c.Progress = d.Record, d.Progress
		k.emit(c, CollectionEvent{Type: event.Gap, Reason: c.Reason, Reset: c.Run == c.Incarnation, From: d.From})
	case d.Resync: // another one follows
		c.Resync = true
		if c.Run != d.Run {
			c.Run = d.Run
			k.emit(c, CollectionEvent{Type: event.Gap, Reason: ReasonResync, From: d.From})
		}
	case d.Confirmed:
		c.Syncs = d.Syncs
	}
	c.closeFirst(k)
	if e := k.epochOf(c.Properties.Storage); c.Epoch < e && (c.Phase.watching() || c.Phase == Listing) {
		c.gap(k, now, ReasonHistory)
	}
}

// sawIntents: a server that is behind what the bus may have has another history.
func (c *Collection) sawIntents(s State) {
	for slot, list := range s.Intents {
		for i := range list {
			if slot.Collection == c.ID && list[i].Epoch == c.Epoch {
				c.saw(list[i].Version)
			}
		}
	}
}

// Step handles one input.
func (k *Core) Step(in *Input) {
	c := k.collections[in.Collection]
	if c == nil {
		if in.Kind != Configure {
			return
		}
		k.reads++
		c = &Collection{ID: in.Collection, read: k.reads}
		k.collections[c.ID] = c
	}
	switch in.Kind {
	case ListBegun, Sighted, ListEnded, Bookmark:
		if in.Read != c.read && in.Side == 0 {
			return
		}
	case ListLacks, ListDone:
		if in.Read != 0 && in.Read != c.read {
			return
		}
	}
	if in.Side != 0 && (c.side == nil || in.Side != c.side.number) {
		return
	}
	if k.coverage != nil {
		k.coverage.transitions[c.Phase][in.Kind]++
	}
	c.step(k, in)
	record := c.stored() != c.emitted
	if record || c.Progress != c.kept {
		k.dirty(c, record)
	}
}

// dirty notes that something of a collection has changed since the last batch, and whether its record
// has.
func (k *Core) dirty(c *Collection, record bool) {
	k.filling.dirty[c.ID] = k.filling.dirty[c.ID] || record
}

// emit adds an event about a collection to the batch.
func (k *Core) emit(c *Collection, e CollectionEvent) {
	k.add(c, Item{Event: &e})
}

func (k *Core) add(c *Collection, i Item) {
	i.Collection, i.Run, i.Epoch, i.Route = c.ID, c.Run, c.Epoch, c.Route
	i.Incarnation = max(i.Incarnation, c.Incarnation)
	r := c.stored()
	k.dirty(c, r != c.emitted)
	if !k.omits.alone {
		i.Changes, c.silent = c.silent, nil
		i.Progress = c.Progress
		if r != c.emitted {
			i.Record = &r
			c.emitted = r
		}
	}
	k.filling.items = append(k.filling.items, i)
}

// judge decides what follows from a sighting, and reports whether it proves another history.
func (k *Core) judge(c *Collection, s *Sighting, now uint64) (newHistory bool) {
	slot := Slot{c.ID, s.Key}
	r := c.view().decide(k.object(c.ID, s.Key), k.doubts(c, s.Key), s)
	k.cover(r.row)
	if r.newRun && s.Origin == Watch {
		c.gap(k, now, ReasonRewritten)
		return false
	}
	if r.newRun {
		c.anotherRun(k, now, ReasonRewritten)
		r = c.view().decide(k.object(c.ID, s.Key), k.doubts(c, s.Key), s)
		k.cover(r.row)
	}
	if r.newHistory {
		return true
	}
	if r.changed {
		k.set(slot, r.entry)
	}
	for i := range r.events {
		e := &r.events[i]
		if !k.overtaken(slot, &e.Object) {
			k.settle(slot, e.Object.UID)
		}
		if !c.Properties.Types.has(e.Type) {
			continue
		}
		if i < len(r.events)-1 { // a deletion
			k.alone(c, Change{slot, nil})
		} else {
			k.alone(c, Change{slot, r.entry})
			r.changed = false
		}
		k.add(c, Item{Object: e})
	}
	if r.changed {
		k.alone(c, Change{slot, r.entry})
	}
	return false
}

// alone notes a change for the next item of a collection.
func (k *Core) alone(c *Collection, change Change) {
	if !k.omits.alone {
		c.silent = append(c.silent, change)
	}
}

func (k *Core) cover(r row) {
	if k.coverage != nil {
		k.coverage.rows[r]++
	}
}

// forget removes an inventory entry, with a null value if the ending has these.
func (k *Core) forget(c *Collection, key string) {
	slot := Slot{c.ID, key}
	last := k.object(c.ID, key)
	if !last.known() {
		last = nil
	}
	k.set(slot, nil)
	for _, i := range k.intents[slot] {
		if last == nil || comparePublications(i.Object, *last) > 0 {
			last = &i.Object
		}
		k.settle(slot, i.UID)
	}
	k.alone(c, Change{slot, nil})
	if c.ClosedFirst && last != nil {
		k.add(c, Item{Object: &ObjectEvent{Type: event.Deleted, Key: key, Object: *last, Fate: Unknown, Null: true}})
	}
}

func (k *Core) set(slot Slot, o *Object) {
	k.filling.objects[slot] = o
	k.found = found{slot, o, true}
}

// overtaken reports whether a later publication of the object than o is in doubt. That is so if a watch
// repeats events after a restart.
func (k *Core) overtaken(slot Slot, o *Object) bool {
	later := find(k.intents[slot], o.UID)
	return later != nil && comparePublications(later.Object, *o) > 0
}

// settle has the commit of the filling batch remove an intent.
func (k *Core) settle(slot Slot, uid string) {
	if find(k.intents[slot], uid) == nil {
		return
	}
	k.filling.settled = append(k.filling.settled, SettledIntent{slot, uid})
	k.intents[slot] = slices.DeleteFunc(slices.Clone(k.intents[slot]), func(i Intent) bool { return i.UID == uid })
}

// resolved removes the intents of a collection whose list is complete: none of its events is in
// doubt any more.
func (k *Core) resolved(c *Collection) {
	for slot, list := range k.intents {
		if slot.Collection != c.ID {
			continue
		}
		for _, i := range list {
			k.settle(slot, i.UID)
		}
	}
}

// Object returns the inventory entry of a key as it will be once everything is committed, nil for
// none, and whether an event of the key is in doubt.
func (k *Core) Object(collection, key string) (known *Object, inDoubt bool) {
	c := k.collections[collection]
	if c == nil {
		return nil, false
	}
	return k.object(collection, key), len(k.doubts(c, key)) > 0
}

// object returns the inventory entry of a key as it will be once everything is committed.
func (k *Core) object(collection, key string) *Object {
	slot := Slot{collection, key}
	if !k.found.valid || k.found.Slot != slot {
		k.found = found{slot, k.lookUp(slot), true}
	}
	return k.valid(collection, k.found.o)
}

func (k *Core) lookUp(slot Slot) *Object {
	for _, p := range [...]*pending{k.filling, k.flying} {
		if p == nil {
			continue
		}
		if o, ok := p.objects[slot]; ok {
			return o
		}
	}
	return k.storage.Object(slot.Collection, slot.Key)
}

// valid returns nil for an inventory entry of an earlier incarnation, and o otherwise.
func (k *Core) valid(collection string, o *Object) *Object {
	if o == nil || o.Judged < k.collections[collection].Incarnation {
		return nil
	}
	return o
}

// doubts returns the intents of a key that belong to the present incarnation.
func (k *Core) doubts(c *Collection, key string) []Intent {
	return slices.DeleteFunc(slices.Clone(k.intents[Slot{c.ID, key}]), func(i Intent) bool { return i.Run < c.Incarnation })
}

// uncommitted returns the keys of a collection with changes that are not committed, or with intents,
// sorted.
func (k *Core) uncommitted(collection string) []string {
	keys := map[string]struct{}{}
	for _, p := range []*pending{k.filling, k.flying} {
		if p == nil {
			continue
		}
		for slot := range p.objects {
			if slot.Collection == collection {
				keys[slot.Key] = struct{}{}
			}
		}
	}
	for slot := range k.intents {
		if slot.Collection == collection {
			keys[slot.Key] = struct{}{}
		}
	}
	return sorted(keys)
}

// each calls do for the inventory entries of a collection.
func (k *Core) each(collection string, do func(key string, o *Object)) {
	keys, cursor := k.uncommitted(collection), ""
	for {
		key, ok := k.next(collection, keys, cursor)
		if !ok {
			return
		}
		cursor = key
		if o := k.object(collection, key); o != nil {
			do(key, o)
		}
	}
}

// next is the first key behind cursor, of those given, which are sorted, or of the store.
func (k *Core) next(collection string, keys []string, cursor string) (string, bool) {
	i, found := slices.BinarySearch(keys, cursor)
	if found {
		i++
	}
	key, ok := k.storage.After(collection, cursor)
	if i < len(keys) && (!ok || keys[i] < key) {
		return keys[i], true
	}
	return key, ok
}

// Missing returns up to limit keys that a complete list lacks, in order, with the uids of the
// objects that consumers have or may have under each. The caller finds out what became of them
// and passes on [ListLacks] for each; when no key is left, [ListDone].
func (k *Core) Missing(collection string, limit int) (keys []Absentee) {
	c := k.collections[collection]
	if c == nil || !c.listEnded() {
		return nil
	}
	for cursor := c.list.cursor; len(keys) < limit; {
		key, ok := k.next(collection, c.list.keys, cursor)
		if !ok {
			break
		}
		cursor = key
		if _, seen := c.list.seen[key]; seen {
			continue
		}
		known, doubts := k.object(collection, key), k.doubts(c, key)
		if known == nil && len(doubts) == 0 {
			continue
		}
		a := Absentee{Key: key}
		for _, o := range holders(known, doubts) {
			a.UIDs = append(a.UIDs, o.UID)
		}
		keys = append(keys, a)
	}
	return keys
}

// Absentee is a key that a list lacks.
type Absentee struct {
	Key  string
	UIDs []string
}

// Forgettable returns up to limit keys of an ending collection's inventory, in order. The caller
// passes on [Forget] for each and asks again; done says that there are no more, and the caller
// passes on [Forgot]. Neither is the case while the ending is not committed.
func (k *Core) Forgettable(collection string, limit int) (keys []string, done bool) {
	c := k.collections[collection]
	if c == nil || c.Phase != Ending || c.barrier > k.done {
		return nil, false
	}
	if c.rest == nil {
		c.rest = &rest{keys: k.uncommitted(collection)}
	}
	for cursor := c.rest.cursor; len(keys) < limit; {
		key, ok := k.next(collection, c.rest.keys, cursor)
		if !ok {
			return keys, len(keys) == 0
		}
		keys, cursor = append(keys, key), key
	}
	return keys, false
}

// Read is what a collection should be reading.
type Read struct {
	Number uint64
	From   string // a watch starts from here; "": a list comes first
	Seen   string // a server that is behind it has another history
	Owner  string // of the last complete list
	Stop   bool   // it should not be read
	// Side is the number of the list that should be read beside the watch; 0: none.
	Side uint64
}

// Reading returns what a collection should be reading now.
func (k *Core) Reading(collection string) Read {
	c := k.collections[collection]
	if c == nil {
		return Read{Stop: true}
	}
	r := Read{Number: c.read, Seen: c.Seen, Owner: c.Owner}
	switch {
	case c.Phase == Leaving || c.Phase == Ending || c.Phase == Closed || c.barrier > k.done:
		r.Stop = true
	case c.Phase.watching():
		r.From = c.Position
		if c.side != nil && c.side.version == "" {
			r.Side = c.side.number
		}
	}
	return r
}

// Holds reports whether consumers have an object of a collection, or may have one.
func (k *Core) Holds(collection string) bool {
	if k.collections[collection] == nil {
		return false
	}
	keys, cursor := k.uncommitted(collection), ""
	for {
		key, ok := k.next(collection, keys, cursor)
		if !ok {
			return false
		}
		if k.object(collection, key).known() || len(k.doubts(k.collections[collection], key)) > 0 {
			return true
		}
		cursor = key
	}
}

// Settled reports whether a collection has synced in its incarnation, or has nothing to sync.
// Collections that it replaces may then be released.
func (k *Core) Settled(collection string) bool {
	c := k.collections[collection]
	return c != nil && (c.Phase == Absent || c.Synced != 0 && c.Phase != New && c.Phase != Ending)
}

// Collection returns the state of a collection, nil if there is none.
func (k *Core) Collection(id string) *Collection { return k.collections[id] }

func (k *Core) epochOf(storage string) uint64 { return max(k.epochs[storage], 1) }

// newEpoch begins another history of the storage that a collection reads from. The
// collection itself goes on with the list that is under way; the caller restarts it
// where there is none in the new epoch.
func (k *Core) newEpoch(c *Collection, now uint64) {
	storage := c.Properties.Storage
	k.epochs[storage] = k.epochOf(storage) + 1
	k.filling.epochs[storage] = k.epochs[storage]
	for _, id := range sorted(k.collections) {
		other := k.collections[id]
		if other.Properties.Storage != storage || !other.Phase.watching() && other.Phase != Listing && other != c {
			continue
		}
		other.gapHere(k, now, ReasonHistory)
		if other != c {
			other.restart(k)
		}
	}
}

// Pending reports how many items the filling batch has.
func (k *Core) Pending() int { return len(k.filling.items) }

// Items are those of the filling batch. The caller may set their Payload.
func (k *Core) Items() []Item { return k.filling.items }

// Changes reports how many inventory changes the filling batch has.
func (k *Core) Changes() int { return len(k.filling.objects) }

// IDs are the collections of the core, sorted.
func (k *Core) IDs() []string { return sorted(k.collections) }

// Idle reports whether nothing waits to be committed.
func (k *Core) Idle() bool { return k.flying == nil && k.Empty() }

// Empty reports whether the batch that fills has nothing.
func (k *Core) Empty() bool {
	return len(k.filling.dirty) == 0 && len(k.filling.objects) == 0 // an item makes its collection dirty
}

// Seal hands out the batch that fills, and begins another one. There is at most one batch on
// its way; nil: there is nothing to do, or one is on its way.
func (k *Core) Seal() *Batch {
	if k.flying != nil || k.Idle() {
		return nil
	}
	p := k.filling
	b := &Batch{
		Items: p.items, Records: map[string]Record{}, Progress: map[string]Progress{}, Epochs: p.epochs,
		Drafts: map[string]Draft{}, Intents: map[Slot][]Intent{}, Settled: p.settled,
	}
	b.Changes = make([]Change, 0, len(p.objects))
	for slot, o := range p.objects {
		b.Changes = append(b.Changes, Change{slot, o})
	}
	slices.SortFunc(b.Changes, func(x, y Change) int { return compareSlots(x.Slot, y.Slot) })
	for id, record := range p.dirty {
		c := k.collections[id]
		b.Progress[id] = c.Progress
		if record {
			b.Records[id] = c.stored()
		}
		if !k.omits.intents {
			if d := k.draft(c, p.items); d.Record != (Record{}) {
				b.Drafts[id] = d
			}
		}
		// Changes without an item are durable with this batch.
		c.silent, c.emitted, c.kept = nil, c.stored(), c.Progress
	}
	for i := range p.items {
		if !k.omits.intents {
			k.intend(b, &p.items[i])
		}
	}
	k.flying, k.filling, k.sealed = p, newPending(len(p.items)), b
	k.seq++
	return b
}

// Published says that the bus has the first n items of the batch on its way. [Core.Sealed] does
// not have them any more; their changes are committed with the others.
func (k *Core) Published(n int) {
	b := *k.sealed
	b.Items = b.Items[n:]
	k.sealed = &b
}

// Sealed is the batch on its way, after [Core.Drop] and [Core.Published].
func (k *Core) Sealed() *Batch { return k.sealed }

// without is the batch without what is of a collection.
func (b *Batch) without(collection string) *Batch {
	d := *b
	d.Items = slices.DeleteFunc(slices.Clone(b.Items), func(i Item) bool { return i.Collection == collection })
	d.Changes = slices.DeleteFunc(slices.Clone(b.Changes), func(c Change) bool { return c.Collection == collection })
	d.Settled = slices.DeleteFunc(slices.Clone(b.Settled), func(i SettledIntent) bool { return i.Collection == collection })
	d.Records, d.Progress, d.Drafts, d.Intents = maps.Clone(b.Records), maps.Clone(b.Progress), maps.Clone(b.Drafts), maps.Clone(b.Intents)
	delete(d.Records, collection)
	delete(d.Progress, collection)
	delete(d.Drafts, collection)
	maps.DeleteFunc(d.Intents, func(slot Slot, _ []Intent) bool { return slot.Collection == collection })
	return &d
}

// draft is what has to be known of a collection before the sink gets the items.
func (k *Core) draft(c *Collection, items []Item) Draft {
	d, ended := Draft{}, uint64(0)
	for i := range items {
		if items[i].Collection != c.ID || items[i].Event == nil {
			continue
		}
		switch e := items[i].Event; e.Type {
		case event.Gap:
			d.Resync, d.From = e.Reason == ReasonResync, e.From
			d.Gap = d.Gap || !d.Resync
		case event.Synced:
			d.Resync = d.Resync || e.Reason == ReasonResync
			d.Synced = d.Synced || e.Nth == 1 && e.Reason != ReasonResync
			d.Confirmed = e.Reason == ReasonPeriodic
		case event.Closed:
			ended = items[i].Incarnation
		}
	}
	if d.Gap || d.Synced || d.Resync || d.Confirmed || c.Phase == Ending || c.Phase == Leaving {
		d.Record, d.Progress = c.stored(), c.Progress
		d.Incarnation = max(d.Incarnation, ended) // it ends once more if closed is in doubt
	}
	return d
}

// intend notes what becomes of an object if the bus gets an item.
func (k *Core) intend(b *Batch, i *Item) {
	e := i.Object
	if e == nil || e.DeadLetter || e.Null {
		return
	}
	slot := Slot{i.Collection, e.Key}
	if k.overtaken(slot, &e.Object) {
		return
	}
	next := Intent{Object: e.Object, Deleted: e.Type == event.Deleted, Epoch: i.Epoch}
	next.Version = e.Version
	list := slices.DeleteFunc(b.Intents[slot], func(x Intent) bool { return x.UID == next.UID })
	b.Intents[slot] = append(list, next)
}

// Committed says that the batch on its way is durable.
func (k *Core) Committed() {
	k.done = k.seq - 1
	k.flying, k.sealed = nil, nil
}

func compareSlots(a, b Slot) int {
	switch {
	case a.Collection < b.Collection, a.Collection == b.Collection && a.Key < b.Key:
		return -1
	case a == b:
		return 0
	}
	return 1
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
