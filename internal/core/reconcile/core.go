package reconcile

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Core decides what one sink gets. It is not safe for concurrent use.
//
// It has the collections, and the inventory with the batches. An input goes to its collection, which
// decides what follows, changes the inventory and adds items to the batch that fills.
type Core struct {
	inventory
	collections map[string]*Collection
	ids, open   []string          // of collections, and of those that are not closed, sorted; nil: to be sorted again
	epochs      map[string]uint64 // by storage
	reads       uint64            // numbers of reads
	now         uint64            // of the present input
	omits       omission
	coverage    *coverage // of tests; nil: nobody counts
}

// coverage counts what of the two tables was used.
type coverage struct {
	rows        [rows]uint64
	transitions [phases][inputs]uint64
}

// omission is what batches do not have.
type omission struct {
	intents bool // Drafts and Intents of a [Batch]
	alone   bool // Changes, Record and Progress of each [Item]
}

// Omit has batches leave out what the caller does not need: the drafts and intents of a [Batch], or
// what an [Item] has for a reader without the batch.
func (k *Core) Omit(intents, alone bool) { k.omits = omission{intents, alone} }

// NewCore returns a core that continues from what a store holds. now is as in [Input].
func NewCore(storage Storage, s State, now uint64) *Core {
	k := &Core{
		inventory:   inventory{storage: storage, intents: doubts{}, batches: batches{current: newPending(), number: 1}},
		collections: map[string]*Collection{}, epochs: map[string]uint64{},
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
	k.now = now
	for slot, list := range s.Intents {
		if slot.Collection == collection {
			k.intents[slot] = slices.Clone(list)
		}
	}
	k.newCollection(collection).recover(s)
}

func (k *Core) newCollection(id string) *Collection {
	c := &Collection{ID: id, core: k, read: k.nextRead()}
	k.collections[id], k.ids, k.open = c, nil, nil
	return c
}

// nextRead is the number of another read, or of a list beside one.
func (k *Core) nextRead() uint64 {
	k.reads++
	return k.reads
}

// Drop gives up what is not committed of a collection, and the collection until [Core.Restore]
// continues it from what the store holds. The batch on its way is another one afterwards:
// [Core.Sealed]. The caller drops a collection whose route refuses records, and one of which
// a record was rejected.
func (k *Core) Drop(collection string) {
	delete(k.collections, collection)
	k.ids, k.open = nil, nil
	k.drop(collection)
}

// Interrupt begins another read of a collection at its position: what the present read and a list beside the watch have read, and the core does
// not have yet, is dropped.
func (k *Core) Interrupt(collection string) {
	if c := k.collections[collection]; c != nil {
		k.Step(&Input{Kind: SideBroken, Collection: collection})
		c.restart()
	}
}

// Late reports whether an input is of a read, or of a list beside one, that is over. Step ignores it.
func (k *Core) Late(in *Input) bool {
	c := k.collections[in.Collection]
	return c != nil && in.late(c)
}

// Step handles one input.
func (k *Core) Step(in *Input) {
	c := k.collections[in.Collection]
	if c == nil {
		if in.Kind != Configure {
			return
		}
		c = k.newCollection(in.Collection)
	}
	if in.late(c) {
		return
	}
	if k.coverage != nil {
		k.coverage.transitions[c.Phase][in.Kind]++
	}
	k.now = in.Now
	wasClosed := c.Phase == Closed
	c.step(in)
	if wasClosed != (c.Phase == Closed) {
		k.open = nil
	}
	if !c.batch.dirty && (c.Progress != c.batch.progress || c.stored() != c.batch.record) {
		k.dirty(c)
	}
}

// dirty notes that something of a collection has changed since the last batch.
func (k *Core) dirty(c *Collection) {
	if !c.batch.dirty {
		c.batch.dirty = true
		k.current.dirty = append(k.current.dirty, c.ID)
	}
}

// add adds an item to the batch that fills.
func (k *Core) add(c *Collection, i Item) {
	i.Collection, i.Run, i.Epoch, i.Route = c.ID, c.Run, c.Epoch, c.Route
	i.Incarnation = max(i.Incarnation, c.Incarnation)
	k.dirty(c)
	if !k.omits.alone {
		c.batch.with(&i, c)
	}
	k.current.items = append(k.current.items, i)
}

// Attribute adds an attribution to the batch that fills. It returns false if consumers have no copy of the incarnation any more.
func (k *Core) Attribute(collection string, incarnation uint64, a Attribution) bool {
	c := k.collections[collection]
	if c == nil || c.Incarnation != incarnation || c.Phase == Ending || c.Phase == Closed {
		return false
	}
	k.add(c, Item{Attribution: &a})
	return true
}

// alone notes a change for the next item of a collection.
func (k *Core) alone(c *Collection, change Change) {
	if !k.omits.alone {
		c.batch.silent = append(c.batch.silent, change.copied())
	}
}

func (k *Core) cover(r row) {
	if k.coverage != nil {
		k.coverage.rows[r]++
	}
}

// Epochs returns the epoch of each storage that is not in its first one, among others. The caller does not change it.
func (k *Core) Epochs() map[string]uint64 { return k.epochs }

func (k *Core) epochOf(storage string) uint64 { return max(k.epochs[storage], 1) }

// Complete returns the resourceVersion up to which the inventory of a collection is complete, including uncommitted changes. "": it is not known, for
// example because the position is of an earlier history of the storage, and no list of the present one is done.
func (k *Core) Complete(collection string) string {
	c := k.collections[collection]
	if c == nil || c.SyncedEpoch != k.epochOf(c.Properties.Storage) {
		return ""
	}
	return c.Position
}

// newEpoch begins another history of the storage that a collection reads from. The
// collection itself goes on with the list that is under way; the caller restarts it
// where there is none in the new epoch.
func (k *Core) newEpoch(c *Collection) {
	storage := c.Properties.Storage
	k.epochs[storage] = k.epochOf(storage) + 1
	k.current.epochs[storage] = k.epochs[storage]
	for _, id := range k.IDs() {
		other := k.collections[id]
		if other.Properties.Storage != storage || !other.Phase.watching() && other.Phase != Listing && other != c {
			continue
		}
		other.gapHere(event.ReasonHistory)
		if other != c {
			other.restart()
		}
	}
}

// exists is called when a list of a collection begins, so its resource exists. If every other collection of the resource is absent, it may not have
// existed before. Then a gap in each of them says that its objects are unknown, before consumers learn that the first collection is complete as of a
// resourceVersion: they would take them for empty as of that version.
func (k *Core) exists(c *Collection) {
	if c.Phase != New && c.Phase != Absent {
		return
	}
	var absent []*Collection
	for other := range k.ofResource(c) {
		switch {
		case other.Incarnation == 0, other.Phase == Leaving, other.Phase == Ending: // consumers have no copy of it, or it is not read
		case other.Phase == Absent, other.list != nil && other.list.absent:
			absent = append(absent, other)
		default:
			return
		}
	}
	for _, other := range absent {
		other.gap(event.ReasonReturned)
	}
}

// ofResource returns the other collections of the resource of a collection, in the order of their IDs.
func (k *Core) ofResource(c *Collection) iter.Seq[*Collection] {
	parsed := event.ParseCollection(c.ID)
	resource := parsed.ResourceID()
	from, _ := slices.BinarySearch(k.IDs(), resource)
	return func(yield func(*Collection) bool) {
		for _, id := range k.IDs()[from:] {
			rest, same := strings.CutPrefix(id, resource)
			if !same {
				return
			}
			if of := rest == "" || rest[0] == ':' || rest[0] == '@'; of && id != c.ID && !yield(k.collections[id]) {
				return
			}
		}
	}
}

// Seal hands out the batch that fills, and begins another one. There is at most one batch on
// its way; nil: there is nothing to do, or one is on its way.
func (k *Core) Seal() *Batch {
	if k.inFlight != nil || k.Idle() {
		return nil
	}
	k.found.valid = false // it may be in memory that is used again
	b, p := k.seal()
	if !k.omits.intents {
		k.noteDoubts(b, p.dirty)
	}
	for _, id := range p.dirty {
		c := k.collections[id]
		b.Progress[id] = c.Progress
		if r := c.stored(); c.batch.recorded || r != c.batch.record {
			b.Records[id] = r
		}
		if c.batch.drafted {
			b.SettledDrafts = append(b.SettledDrafts, id)
		}
		c.batch = batchState{record: c.stored(), progress: c.Progress}
	}
	return b
}

// noteDoubts notes what a restart must know of a batch while it is unknown whether the bus has its items.
func (k *Core) noteDoubts(b *Batch, dirty []string) {
	drafts := map[string]Draft{}
	b.Intents = make(map[Slot][]Intent, len(b.Items))
	for n := range b.Items {
		i := &b.Items[n]
		switch {
		case i.Object != nil:
			b.intend(i, k.intents)
			continue
		case i.Event == nil:
			continue
		}
		d := drafts[i.Collection]
		d.note(i)
		drafts[i.Collection] = d
	}
	for _, id := range dirty {
		if d := drafts[id]; d.complete(k.collections[id]) {
			b.Drafts[id] = d
		}
	}
}

// Collection returns the state of a collection, nil if there is none.
func (k *Core) Collection(id string) *Collection { return k.collections[id] }

// IDs are the collections of the core, sorted. The caller does not change the slice.
func (k *Core) IDs() []string {
	if k.ids == nil {
		k.ids = sorted(k.collections)
	}
	return k.ids
}

// Open are the collections that are not closed, sorted. The caller does not change the slice. Of a closed collection nothing is due, and it is
// not read.
func (k *Core) Open() []string {
	if k.open == nil {
		k.open = slices.DeleteFunc(slices.Clone(k.IDs()), func(id string) bool { return k.collections[id].Phase == Closed })
	}
	return k.open
}

// Object returns the inventory entry of a key as it will be once everything is committed, nil for
// none, and whether an event of the key is in doubt.
func (k *Core) Object(collection, key string) (known *Object, inDoubt bool) {
	c := k.collections[collection]
	if c == nil {
		return nil, false
	}
	known, doubts := c.known(key)
	return known, len(doubts) > 0
}

// Holds reports whether consumers have an object of a collection, or may have one.
func (k *Core) Holds(collection string) (held bool) {
	c := k.collections[collection]
	if c == nil {
		return false
	}
	k.each(collection, func(key string) bool {
		known, doubts := c.known(key)
		held = known.known() || len(doubts) > 0
		return !held
	})
	return held
}

// Absentee is a key with the objects that consumers have or may have under it, and that a list lacks.
type Absentee struct {
	Key     string
	Objects []Object
}

// Had reports whether a state of the server from before the list may be the last one of an object: not one that is older than what was published.
func (a *Absentee) Had(uid, version string) bool {
	return slices.ContainsFunc(a.Objects, func(o Object) bool { return o.UID == uid && !event.Older(version, o.At) })
}

// Missing returns up to limit keys that a complete list lacks, in order, with the
// objects that consumers have or may have under each. The caller finds out what became of them
// and passes on [ListLacks] for each; when no key is left, [ListDone].
func (k *Core) Missing(collection string, limit int) (keys []Absentee) {
	c := k.collections[collection]
	if c == nil || !c.list.comparing() {
		return nil
	}
	for cursor := c.list.cursor; len(keys) < limit; {
		key, ok := k.next(collection, c.list.keys, cursor)
		if !ok {
			break
		}
		cursor = key
		if c.list.seen.has(key) {
			continue
		}
		known, doubts := c.known(key)
		if known == nil && len(doubts) == 0 {
			continue
		}
		keys = append(keys, Absentee{key, holders(known, doubts)})
	}
	return keys
}

// Replaces returns other objects that consumers have or may have under the name of a sighting of the list under way.
// They do not exist any more. The caller may pass the sighting on later in the list, with the last body of one of them.
func (k *Core) Replaces(in *Input) []Object {
	c, s := k.collections[in.Collection], in.Sighting
	if c == nil || in.Read != c.read || c.list == nil || c.list.comparing() || s.Form != Seen {
		return nil
	}
	return slices.DeleteFunc(holders(c.known(s.Key)), func(o Object) bool { return o.UID == s.UID })
}

// Forgettable returns up to limit keys of an ending collection's inventory, in order. The caller
// passes on [Forget] for each and asks again; done says that there are no more, and the caller
// passes on [Forgot]. Neither is the case while the ending is not committed.
func (k *Core) Forgettable(collection string, limit int) (keys []string, done bool) {
	c := k.collections[collection]
	if c == nil || c.Phase != Ending || c.barrier > k.done {
		return nil, false
	}
	if c.forgetting == nil {
		c.forgetting = &forgetting{keys: k.uncommitted(collection)}
	}
	for cursor := c.forgetting.cursor; len(keys) < limit; {
		key, ok := k.next(collection, c.forgetting.keys, cursor)
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
	Before string // like Seen, but without the versions of a list that was interrupted; "": not known
	Owner  string // of the last complete list
	// Selection is that of the collection's properties.
	Selection string
	Storage   string // of the collection's properties
	Stop      bool   // it should not be read
	// Side is the number of the list that should be read beside the watch; 0: none. With Samples, only these are read.
	Side    uint64
	Samples []Sample
}

// Reading returns what a collection should be reading now.
func (k *Core) Reading(collection string) Read {
	c := k.collections[collection]
	if c == nil {
		return Read{Stop: true}
	}
	r := Read{Number: c.read, Seen: c.Seen, Owner: c.Owner, Selection: c.Properties.Selection, Storage: c.Properties.Storage}
	switch {
	case c.Phase == Leaving || c.Phase == Ending || c.Phase == Closed || c.barrier > k.done:
		r.Stop = true
	case c.Phase.watching():
		r.From = c.Position
		if c.side != nil && c.side.version == "" {
			r.Side, r.Samples = c.side.number, c.side.samples
		}
	}
	if !r.Stop && c.SyncedEpoch == c.Epoch { // else the position is of a history before
		r.Before = c.Position
	}
	return r
}

// Settled reports whether a collection has synced in its incarnation, or has nothing to sync.
// Collections that it replaces may then be released.
func (k *Core) Settled(collection string) bool {
	c := k.collections[collection]
	return c != nil && (c.Phase == Absent || c.SyncedEpoch != 0 && c.Phase != New && c.Phase != Ending)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
