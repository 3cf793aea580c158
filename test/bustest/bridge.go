package bustest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Thing is an object of the cluster.
type Thing struct {
	UID, Version int
	Group        string // compared with selectors
}

// Write is one resourceVersion of the cluster.
type Write struct {
	Name string
	Now  *Thing // nil: deleted
}

// Cluster is an API server with one resource. The first write has resourceVersion 1.
type Cluster struct {
	History []Write
	UIDs    int
	Expired int  // the lowest resourceVersion from which a watch can start
	Absent  bool // the resource does not exist
}

// Version returns the newest resourceVersion.
func (c *Cluster) Version() int { return len(c.History) }

// At returns the objects at a resourceVersion in a selection: "" selects everything, "12" selects groups 1 and 2.
func (c *Cluster) At(version int, selection string) map[string]*Thing {
	all := map[string]*Thing{}
	for _, w := range c.History[:min(version, len(c.History))] {
		if w.Now == nil {
			delete(all, w.Name)
		} else {
			all[w.Name] = w.Now
		}
	}
	maps.DeleteFunc(all, func(_ string, t *Thing) bool { return !selects(selection, t) })
	return all
}

func selects(selection string, t *Thing) bool {
	if selection == "" {
		return true
	}
	for _, r := range selection {
		if string(r) == t.Group {
			return true
		}
	}
	return false
}

// Set creates or updates an object.
func (c *Cluster) Set(name, group string) {
	next := Thing{Group: group, Version: c.Version() + 1}
	if now := c.At(c.Version(), "")[name]; now != nil {
		next.UID = now.UID
	} else {
		c.UIDs++
		next.UID = c.UIDs
	}
	c.History = append(c.History, Write{name, &next})
}

// Vanish deletes all objects, and then the resource.
func (c *Cluster) Vanish() {
	for _, name := range slices.Sorted(maps.Keys(c.At(c.Version(), ""))) {
		c.Remove(name)
	}
	c.Absent = true
}

// Remove deletes an object.
func (c *Cluster) Remove(name string) { c.History = append(c.History, Write{name, nil}) }

// Store is a checkpoint store in memory.
type Store struct {
	Objects map[reconcile.Slot]*reconcile.Object
	reconcile.State
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{map[reconcile.Slot]*reconcile.Object{}, reconcile.State{
		Records: map[string]reconcile.Record{}, Progress: map[string]reconcile.Progress{}, Epochs: map[string]uint64{}, Drafts: map[string]reconcile.Draft{},
		Intents: map[reconcile.Slot][]reconcile.Intent{},
	}}
}

// Object returns an inventory entry.
func (s *Store) Object(collection, key string) *reconcile.Object {
	return s.Objects[reconcile.Slot{Collection: collection, Key: key}]
}

// Each calls do for each inventory entry of a collection.
func (s *Store) Each(collection string, do func(key string, o *reconcile.Object)) {
	for slot, o := range s.Objects {
		if slot.Collection == collection {
			do(slot.Key, o)
		}
	}
}

// After returns the next key of a collection.
func (s *Store) After(collection, key string) (next string, found bool) {
	for slot := range s.Objects {
		if slot.Collection == collection && slot.Key > key && (!found || slot.Key < next) {
			next, found = slot.Key, true
		}
	}
	return next, found
}

// before stores what must be in the store before the bus gets the items of a batch.
func (s *Store) before(b *reconcile.Batch) {
	maps.Copy(s.Drafts, b.Drafts)
	for slot, list := range b.Intents {
		for _, i := range list {
			s.settle(slot, i.UID)
			s.Intents[slot] = append(s.Intents[slot], i)
		}
	}
}

func (s *Store) settle(slot reconcile.Slot, uid string) {
	rest := slices.DeleteFunc(slices.Clone(s.Intents[slot]), func(i reconcile.Intent) bool { return i.UID == uid })
	if s.Intents[slot] = rest; len(rest) == 0 {
		delete(s.Intents, slot)
	}
}

// Commit stores a batch whose items are on the bus.
func (s *Store) Commit(b *reconcile.Batch) {
	for _, c := range b.Changes {
		if c.Object == nil {
			delete(s.Objects, c.Slot)
		} else {
			o := *c.Object // the batch's memory is used again
			s.Objects[c.Slot] = &o
		}
	}
	maps.Copy(s.Records, b.Records)
	maps.Copy(s.Progress, b.Progress)
	maps.Copy(s.Epochs, b.Epochs)
	for id := range b.Progress {
		delete(s.Drafts, id)
	}
	for slot, list := range b.Intents {
		for _, i := range list {
			s.settle(slot, i.UID)
		}
	}
	for _, i := range b.Settled {
		s.settle(i.Slot, i.UID)
	}
}

// Reading is the state of one read of a collection.
type Reading struct {
	Number  uint64
	At      int // the resourceVersion up to which the core has seen the collection
	Listing bool
	Ended   bool
	Absent  bool     // the resource does not exist
	Names   []string // of the list, not handed on yet
	Side    []string // of the list beside the watch, not handed on yet
	SideAt  int      // resourceVersion of the list beside the watch; 0: none is running
	Listed  int      // resourceVersion of the last list beside the watch
}

// version returns that of a list; "": the resource does not exist.
func (r *Reading) version() string {
	if r.Absent {
		return ""
	}
	return strconv.Itoa(r.At)
}

// Bridge reads a cluster for a core, step by step.
type Bridge struct {
	Cluster  Cluster
	Store    *Store
	Core     *reconcile.Core
	Readings map[string]*Reading
	Wanted   map[string]reconcile.Properties // the configuration
	Step     func(*reconcile.Input)          // passes an input to the core
}

// Expire makes the API server forget its history: all watches end with 410 Gone.
func (b *Bridge) Expire() { b.Cluster.Expired, b.Readings = b.Cluster.Version(), map[string]*Reading{} }

// Back restores the cluster from a backup that is some versions older.
func (b *Bridge) Back(versions int) {
	b.Cluster.History = slices.Clip(b.Cluster.History[:b.Cluster.Version()-versions])
	b.Expire()
}

// Apply passes the configuration to the core.
func (b *Bridge) Apply() {
	for _, id := range b.Core.IDs() {
		if _, ok := b.Wanted[id]; !ok {
			b.Step(&reconcile.Input{Kind: reconcile.Remove, Collection: id})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Wanted)) {
		b.Step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: b.Wanted[id]})
	}
}

// ReadNext does the next step of a collection, and reports whether there was one.
func (b *Bridge) ReadNext(id string) bool {
	c := b.Core.Collection(id)
	switch {
	case c == nil:
		return false
	case c.Phase == reconcile.Ending:
		return b.end(id)
	case c.Phase == reconcile.Leaving:
		for id := range b.Wanted {
			if !b.Core.Settled(id) {
				return false
			}
		}
		b.Step(&reconcile.Input{Kind: reconcile.Release, Collection: id})
		return true
	}
	want := b.Core.Reading(id)
	if want.Stop {
		return false
	}
	r := b.Readings[id]
	switch {
	case c.Phase == reconcile.Absent && b.Cluster.Absent:
		return false
	case r == nil || r.Number != want.Number || r.Absent && !b.Cluster.Absent && !r.Listing:
		b.open(id, want)
	case b.Cluster.Absent && !r.Absent && !r.Listing && r.At == b.Cluster.Version():
		b.open(id, want)
	case r.Listing:
		b.list(id, r)
	case want.Side != 0:
		b.side(id, r, want)
	case c.Resync && c.Phase == reconcile.InStep:
		r.Side, r.SideAt = nil, 0
		b.Step(&reconcile.Input{Kind: reconcile.SideBegun, Collection: id})
	default:
		return b.watch(id, r)
	}
	return true
}

func (b *Bridge) end(id string) bool {
	keys, done := b.Core.Forgettable(id, 1)
	switch {
	case done:
		b.Step(&reconcile.Input{Kind: reconcile.Forgot, Collection: id})
	case len(keys) > 0:
		b.Step(&reconcile.Input{Kind: reconcile.Forget, Collection: id, Key: keys[0]})
	default:
		return false
	}
	return true
}

// open starts a watch or a list.
func (b *Bridge) open(id string, want reconcile.Read) {
	r := &Reading{Number: want.Number}
	b.Readings[id] = r
	from, _ := strconv.Atoi(want.From)
	seen, _ := strconv.Atoi(want.Seen)
	if b.Cluster.Absent {
		r.Absent, r.At = true, b.Cluster.Version()
		b.Step(&reconcile.Input{Kind: reconcile.ListBegun, Collection: id, Read: r.Number, Reason: event.ReasonGone, Absent: true})
		r.Listing = b.Core.Collection(id).Phase != reconcile.Absent // else nothing was published that could end
		return
	}
	if older := b.Cluster.Version() < seen; want.From == "" || from < b.Cluster.Expired || older {
		r.Listing, r.At = true, b.Cluster.Version()
		r.Names = slices.Sorted(maps.Keys(b.Selected(id, r.At)))
		in := &reconcile.Input{Kind: reconcile.ListBegun, Collection: id, Read: r.Number, Reason: "expired", NewEpoch: older}
		if older {
			in.Reason = event.ReasonHistory
		}
		b.Step(in)
		return
	}
	r.At = from
}

// Selected returns what a collection selects at a resourceVersion.
func (b *Bridge) Selected(id string, version int) map[string]*Thing {
	return b.Cluster.At(version, b.Core.Collection(id).Properties.Selection)
}

// list does the next step of a list.
func (b *Bridge) list(id string, r *Reading) {
	switch {
	case len(r.Names) > 0:
		name := r.Names[0]
		r.Names = r.Names[1:]
		b.Step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.Number, Sighting: sighting(reconcile.List, name, b.Selected(id, r.At)[name])})
	case !r.Ended:
		r.Ended = true
		b.Step(&reconcile.Input{Kind: reconcile.ListEnded, Collection: id, Read: r.Number, Version: r.version()})
	default:
		missing := b.Core.Missing(id, 1)
		if len(missing) == 0 {
			r.Listing = false
			b.Step(&reconcile.Input{Kind: reconcile.ListDone, Collection: id})
			return
		}
		s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: missing[0].Key, Version: r.version()}
		s.Fates = func(string) reconcile.Fate { return reconcile.Unknown }
		b.Step(&reconcile.Input{Kind: reconcile.ListLacks, Collection: id, Key: s.Key, Sighting: s})
	}
}

func sighting(from reconcile.Origin, name string, t *Thing) *reconcile.Sighting {
	return &reconcile.Sighting{Origin: from, Key: name, UID: strconv.Itoa(t.UID), Version: strconv.Itoa(t.Version), Digest: reconcile.Digest(fmt.Appendf(nil, "%016d", t.Version))}
}

// side does the next step of a list beside the watch.
func (b *Bridge) side(id string, r *Reading, want reconcile.Read) {
	if r.SideAt == 0 {
		r.SideAt = max(b.Cluster.Version(), 1)
		r.Listed = r.SideAt
		r.Side = slices.Sorted(maps.Keys(b.Selected(id, r.SideAt)))
	}
	if len(r.Side) == 0 {
		in := &reconcile.Input{Kind: reconcile.SideEnded, Collection: id, Side: want.Side, Version: strconv.Itoa(r.SideAt)}
		r.SideAt = 0
		b.Step(in)
		return
	}
	name := r.Side[0]
	r.Side = r.Side[1:]
	b.Step(&reconcile.Input{Kind: reconcile.Sighted, Collection: id, Side: want.Side, Sighting: sighting(reconcile.Resync, name, b.Selected(id, r.SideAt)[name])})
}

// watch hands on the next event of a watch, or a bookmark.
func (b *Bridge) watch(id string, r *Reading) bool {
	if r.At >= b.Cluster.Version() {
		at := strconv.Itoa(r.At)
		if b.Core.Collection(id).Position == at {
			return false
		}
		b.Step(&reconcile.Input{Kind: reconcile.Bookmark, Collection: id, Read: r.Number, Resume: at})
		return true
	}
	before := b.Selected(id, r.At)
	r.At++
	change := b.Cluster.History[r.At-1]
	now := b.Selected(id, r.At)[change.Name]
	was := before[change.Name]
	in := &reconcile.Input{Kind: reconcile.Sighted, Collection: id, Read: r.Number, Resume: strconv.Itoa(max(r.At-1, 1))}
	switch {
	case now != nil:
		in.Sighting = sighting(reconcile.Watch, change.Name, now)
	case was != nil:
		in.Sighting = &reconcile.Sighting{Form: reconcile.Ended, Key: change.Name, UID: strconv.Itoa(was.UID), Version: strconv.Itoa(r.At)}
		if change.Now != nil {
			in.Sighting.Fate = reconcile.Left
		}
	default:
		return true
	}
	b.Step(in)
	return true
}
