package reconcile

import (
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Phase is what a collection is doing. It is part of its durable state.
//
// The transitions; an input that has no column, or a row without an entry, changes
// nothing. Every arrow that says gap starts a run and voids the position.
//
//	phase      Configure 1    Configure 2  Remove     ListBegun              ListDone           SideBegun                       SideDone
//	New        –              → Ending 9   → Ending   reset gap → Listing 8  –                  –                               –
//	Listing    gap → Listing  → Ending     → Leaving  3                      synced → InStep 4  –                               –
//	InStep     gap → Listing  → Ending     → Leaving  gap → Listing          –                  gap → Resyncing 5, → Verifying  –
//	Resyncing  gap → Listing  → Ending     → Leaving  gap → Listing          –                  –                               synced → InStep
//	Verifying  gap → Listing  → Ending     → Leaving  gap → Listing          –                  –                               → InStep 6
//	Absent     –              → Ending     → Leaving  gap → Listing          –                  –                               –
//	Leaving    gap → Listing  → Ending     –          –                      –                  –                               –
//	Ending     7              7            7          –                      –                  –                               –
//	Closed     → New          → New        –          –                      –                  –                               –
//
//	 1. The properties that decide which objects are published differ from the recorded
//	    ones (selection, filter). Leaving and Closed: also where nothing differs.
//	 2. A property that needs a reset differs (shape, storage, types, route).
//	 3. The list begins again in the same run. If it is of a new epoch, or has ended
//	    objects before: gap.
//	 4. Absent if the list was empty because the resource or its namespace is absent.
//	 5. A resync is due; otherwise a verification.
//	 6. If the list and the inventory differ: gap → Listing.
//	 7. Recorded. At its end, when the inventory of the incarnation is forgotten, an ending
//	    emits closed where the collection is not wanted (→ Closed) or its route differs
//	    (→ New), and nothing where it is to begin again (→ New). With [Properties].Tombstones
//	    every ending emits closed when it begins, and then a null value for each key.
//
//	 8. Absent if nothing exists and nothing was published before.
//	 9. Only where the route differs from that of an incarnation that is not closed.
//
// A reset of all collections is made in the store, before a start: see [State.Reset]. Leaving becomes
// Ending with the input Release: every wanted collection of the resource
// has synced once, see [Core.Settled]. A storage's new epoch is a gap in every phase that has a position
// or a list (New, Leaving, Ending, Closed have neither).
//
// Neither a forgotten inventory nor a new incarnation begins before the batch is committed
// that ends the one before: see [Core.Reading] and [Core.Forgettable].
type Phase uint8

// The phases of a collection.
const (
	// New: nothing has been published in the incarnation that the next list begins.
	New Phase = iota
	// Listing: changes may have been missed; a list is under way or due.
	Listing
	// InStep: a watch may start from the position.
	InStep
	// Resyncing and Verifying: as InStep, with a list beside the watch. In the store
	// they are InStep.
	Resyncing
	Verifying
	// Absent: the resource or its namespace does not exist; so no object does.
	Absent
	// Leaving: no longer wanted. The collection is not read; it is closed once the
	// collections that replace it have synced.
	Leaving
	// Ending: the inventory of the incarnation is being forgotten.
	Ending
	// Closed: consumers drop the collection. Only the run is kept.
	Closed
	phases
)

func (p Phase) String() string {
	return [...]string{"new", "listing", "in step", "resyncing", "verifying", "absent", "leaving", "ending", "closed"}[p]
}

// MarshalText implements encoding.TextMarshaler.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Phase) UnmarshalText(text []byte) error {
	for q := New; q < phases; q++ {
		if q.String() == string(text) {
			*p = q
			return nil
		}
	}
	return fmt.Errorf("unknown phase %q", text)
}

// watching reports whether the phase has a position that a watch may start from.
func (p Phase) watching() bool { return p == InStep || p == Resyncing || p == Verifying }

// Properties are what the configuration says of a collection. Its identity is not part
// of them. The core compares them only.
type Properties struct {
	Selection string `json:"selection,omitzero"` // selectors
	Filter    string `json:"filter,omitzero"`    // filter and ignore rules
	Shape     string `json:"shape,omitzero"`     // what is hidden or left out of objects, format, types
	Storage   string `json:"storage,omitzero"`   // whose history and resourceVersions the objects have
	Route     string `json:"route,omitzero"`     // topic or subject, key
	Skip      bool   `json:"skip,omitzero"`      // the first list is not published
	Types     Types  `json:"types,omitzero"`     // object events that are published
	// Tombstones: the topic is compacted, and an ending writes a null value for each key.
	Tombstones bool `json:"tombstones,omitzero"`
}

// needsReset reports whether consumers have to drop what was published by other properties.
func (p Properties) needsReset(o Properties) bool {
	return p.Shape != o.Shape || p.Storage != o.Storage || p.Types != o.Types
}

// Types are the types of object events that are published; the zero value is all. The inventory
// changes as if all types were published.
type Types uint8

// Without returns t without a type.
func (t Types) Without(typ event.Type) Types { return t | 1<<typ }

// has reports whether events of the type are published. Present goes with Added.
func (t Types) has(typ event.Type) bool {
	if typ == event.Present {
		typ = event.Added
	}
	return t&(1<<typ) == 0
}

// Progress is what is durable of a collection and changes with each frame.
type Progress struct {
	// Position is the resourceVersion up to which the inventory was complete last. A watch
	// may start from it in the phases that have a position.
	Position string `json:"position,omitzero"`
	// Seen is the highest resourceVersion that was seen. A server that is behind it has
	// another history, also if it is not behind the position.
	Seen string `json:"seen,omitzero"`
}

// Record is what is durable of a collection beside its inventory and its progress.
type Record struct {
	Phase       Phase  `json:"phase,omitzero"`
	Run         uint64 `json:"run,omitzero"`         // of the last gap; 0: there was none
	Incarnation uint64 `json:"incarnation,omitzero"` // the run of the last gap with reset; 0: nothing to close
	Epoch       uint64 `json:"epoch,omitzero"`       // the history that the run belongs to
	EpochRun    uint64 `json:"epochRun,omitzero"`    // the first run of the epoch
	Synced      uint64 `json:"synced,omitzero"`      // the epoch of the last complete list of the incarnation; 0: there was none
	Reason      string `json:"reason,omitzero"`      // of the last gap
	Syncs       uint64 `json:"syncs,omitzero"`       // synced events of the run
	Resync      bool   `json:"resync,omitzero"`      // a resync is due or under way
	Listed      string `json:"listed,omitzero"`      // the selection of the last complete list
	// Owner is what the last complete list came with, for the reader of the next one.
	Owner string `json:"owner,omitzero"`
	// Full is the last run in which every object was, or is being, published: that of a reset or a
	// resync.
	Full uint64 `json:"full,omitzero"`
	// Ended: the list of the run has ended objects. If it begins again, another run does: a backup may
	// have brought the objects back, and consumers would ignore them in this run.
	Ended bool `json:"ended,omitzero"`
	// Properties are those that are recorded as wanted, and Route is that of the
	// incarnation. Unwanted, of Ending: it is not to begin again.
	Properties Properties `json:"properties,omitzero"`
	Route      string     `json:"route,omitzero"`
	Unwanted   bool       `json:"unwanted,omitzero"`
	// ClosedFirst, of Ending: closed is emitted already, and forgotten keys get null values.
	ClosedFirst bool `json:"closedFirst,omitzero"`
}

// Collection is one collection of a core.
type Collection struct {
	ID string
	Record
	Progress

	read    uint64 // number of the present read
	list    *list  // that reconciles; nil: none has begun, as in all phases but Listing
	side    *side  // nil in all phases but Resyncing and Verifying
	rest    *rest  // nil in all phases but Ending
	barrier uint64 // the batch that must be committed before an ending or a beginning goes on
	silent  []Change
	emitted Record   // as it was with the last item, or in the last batch
	kept    Progress // as it was in the last batch
}

// list is a list that reconciles.
type list struct {
	seen    map[string]struct{}
	absent  bool     // nothing exists: see Absent
	keys    []string // those of [Core.uncommitted] when the list ended
	cursor  string   // the last key that was compared
	ended   bool
	version string // of the list, once it has ended; "" if nothing exists
	owner   string // see [Record]
}

// side is a list beside the watch.
type side struct {
	number  uint64
	seen    map[string]struct{}
	late    map[string]struct{} // of a resync: keys that the watch has yet to publish or end
	suspect map[string]struct{} // of a verification: keys in which list and inventory differ
	touched map[string]struct{} // of a verification: keys that the watch has changed
	since   string              // the highest version that was seen when it began
	version string              // of the list; "" while it is under way
}

// rest is what is left of an ending inventory.
type rest struct {
	keys   []string // those of [Core.uncommitted] when the forgetting began
	cursor string   // the last key that was forgotten
}

// InputKind is the kind of an [Input].
type InputKind uint8

// The kinds of inputs. Those of a read or of a list beside it are dropped if the number in
// [Input].Read or [Input].Side is not the present one.
const (
	Configure InputKind = iota // the collection is wanted, with Properties
	Remove                     // it is not wanted
	Release                    // every wanted collection of the resource has synced
	ListBegun                  // the API server has answered the first page: Reason, NewEpoch, Absent
	Sighted                    // a watch event, or an object of a list: Sighting, Resume
	ListEnded                  // the list is complete at Version: Owner
	ListLacks                  // the inventory has a key that the list has not: Sighting
	ListDone                   // there are no more such keys
	Bookmark                   // Resume
	Demand                     // a resync is due
	SideBegun                  // a list beside the watch begins: of a resync if one is due, of a verification otherwise
	SideEnded                  // it is complete at Version
	SideBroken
	Forget  // the inventory entry of Key, of an ending
	Forgot  // there are no more entries
	Confirm // a periodic synced event is due
	inputs
)

func (k InputKind) String() string {
	return [...]string{
		"configure", "remove", "release", "list begun", "sighted", "list ended", "list lacks", "list done", "bookmark",
		"resync demanded", "side list begun", "side list ended", "side list broken", "forget", "forgot", "confirm",
	}[k]
}

// Input is one input of one collection.
type Input struct {
	Kind       InputKind
	Collection string
	Read       uint64 // of ListBegun, Sighted, ListEnded, Bookmark: from [Core.Reading]; of ListLacks and ListDone, 0 is any
	Side       uint64 // of Sighted, SideEnded, SideBroken of a list beside the watch: likewise
	Now        uint64 // milliseconds since 1970, for the numbers of runs
	Properties Properties
	Reason     string
	NewEpoch   bool
	Absent     bool
	Version    string
	Owner      string // see [Record]
	Resume     string // a watch may start from it once the input is handled; "": as before
	Key        string
	Sighting   *Sighting
}

// The reasons of a gap or a synced event that the core decides. Other reasons come with [ListBegun].
const (
	ReasonReset       = "reset"
	ReasonSelection   = "selection"
	ReasonFilter      = "filter"
	ReasonHistory     = "history"
	ReasonInterrupted = "interrupted"
	ReasonResync      = "resync"
	ReasonDrift       = "drift"
	ReasonGone        = "gone"      // the resource or its namespace does not exist; it comes with ListBegun
	ReasonRewritten   = "rewritten" // objects changed without a new resourceVersion
	ReasonPeriodic    = "periodic"  // of synced
	ReasonReturned    = "returned"  // it was Leaving, and is wanted again
	ReasonRemoved     = "removed"   // of closed: it is not wanted
	ReasonRoute       = "route"     // of closed: another incarnation begins on another route
)

// CollectionEvent is an event about a collection.
type CollectionEvent struct {
	Type    event.Type
	Reason  string
	Reset   bool
	Version string // of synced: the collection is complete up to it; "" if the resource does not exist
	From    string // of gap: the collection was complete up to it before
	Nth     uint64 // of synced: its number in the run, from 1
}

// step applies the table of [Phase].
func (c *Collection) step(k *Core, in *Input) {
	switch in.Kind {
	case Configure:
		c.configure(k, in)
	case Remove:
		c.remove(k)
	case Release:
		if c.Phase == Leaving {
			c.end(k, true)
		}
	case ListBegun:
		c.listBegun(k, in)
	case Sighted:
		c.sighted(k, in)
	case ListEnded:
		c.listComplete(k, in)
	case ListLacks:
		if c.listEnded() && in.Key > c.list.cursor {
			c.list.cursor, c.Ended = in.Key, true
			k.judge(c, in.Sighting, in.Now)
		}
	case ListDone:
		if c.listEnded() {
			c.synced(k)
		}
	case Bookmark:
		if c.Phase.watching() {
			c.moved(in.Resume)
			c.sidePassed(k, in.Now)
		}
	case Demand:
		c.Resync = c.Resync || c.Phase == InStep || c.Phase == Listing || c.Phase == Verifying
	case SideBegun:
		c.sideBegun(k, in)
	case SideEnded:
		if c.side != nil {
			c.sideEnded(k, in)
		}
	case SideBroken:
		if c.side != nil {
			c.Phase, c.side = InStep, nil
		}
	case Forget:
		if c.rest != nil && in.Key > c.rest.cursor {
			c.rest.cursor = in.Key
			k.forget(c, in.Key)
		}
	case Forgot:
		if c.Phase == Ending {
			c.ended(k)
		}
	case Confirm:
		if c.Phase == InStep && !c.Resync {
			c.sync(k, ReasonPeriodic)
		}
	}
}

// listComplete begins the comparison of a list with the inventory.
func (c *Collection) listComplete(k *Core, in *Input) {
	if c.list == nil {
		return
	}
	c.saw(in.Version)
	c.list.ended, c.list.version, c.list.owner, c.list.keys = true, in.Version, in.Owner, k.uncommitted(c.ID)
}

// listEnded reports whether a list is complete, and is being compared with the inventory.
func (c *Collection) listEnded() bool { return c.list != nil && c.list.ended }

func (c *Collection) configure(k *Core, in *Input) {
	was := c.Properties
	c.Properties, c.Unwanted = in.Properties, false
	if was.Storage != c.Properties.Storage {
		c.Seen = "" // resourceVersions of two storages cannot be compared
	}
	switch {
	case c.Phase == Ending, c.Phase == New && (c.Incarnation == 0 || c.Route == c.Properties.Route):
	case c.Phase == Closed:
		c.Phase = New
	case was.needsReset(c.Properties) || c.Route != c.Properties.Route:
		c.end(k, false)
	case c.Phase == Absent:
	case was.Selection != c.Properties.Selection:
		c.gap(k, in.Now, ReasonSelection)
	case was.Filter != c.Properties.Filter:
		c.gap(k, in.Now, ReasonFilter)
	case c.Phase == Leaving:
		c.gap(k, in.Now, ReasonReturned)
	}
	if was.Selection != c.Properties.Selection || was.Storage != c.Properties.Storage {
		c.restart(k) // what is read by another selection, or from another storage, must not be listed
	}
}

func (c *Collection) remove(k *Core) {
	switch {
	case c.Phase == Leaving || c.Phase == Closed:
	case c.Phase == Ending:
		c.Unwanted = true
	case c.Phase == New || c.Incarnation == 0:
		c.end(k, true)
	default:
		c.Phase = Leaving
		c.restart(k)
	}
}

func (c *Collection) listBegun(k *Core, in *Input) {
	switch {
	case c.Phase == Leaving || c.Phase == Ending || c.Phase == Closed:
		return
	case in.Absent && c.Incarnation == 0:
		c.Phase = Absent // there is nothing to end
		return
	case in.Absent && c.Phase == Absent:
		return
	case c.Phase == New, c.Incarnation == 0:
		c.begin(k, in.Now)
	case in.NewEpoch && c.Epoch == k.epochOf(c.Properties.Storage):
		k.newEpoch(c, in.Now)
	case c.Phase != Listing, c.Ended, in.Absent != (c.Reason == ReasonGone):
		c.gapHere(k, in.Now, in.Reason)
	}
	c.list = &list{seen: map[string]struct{}{}, absent: in.Absent}
}

// begin begins an incarnation.
func (c *Collection) begin(k *Core, now uint64) {
	c.nextRun(k, now)
	c.Phase, c.Incarnation, c.Synced, c.Position, c.Route = Listing, c.Run, 0, "", c.Properties.Route
	c.Reason, c.Resync, c.Full = ReasonReset, false, c.Run
	k.emit(c, CollectionEvent{Type: event.Gap, Reason: c.Reason, Reset: true})
}

// gap starts a run, and another read, which begins with a list.
func (c *Collection) gap(k *Core, now uint64, reason string) {
	c.gapHere(k, now, reason)
	c.restart(k)
}

// gapHere starts a run; the present read goes on.
func (c *Collection) gapHere(k *Core, now uint64, reason string) {
	c.Phase, c.side = Listing, nil
	c.anotherRun(k, now, reason)
}

// anotherRun starts a run; the phase and the present list go on.
func (c *Collection) anotherRun(k *Core, now uint64, reason string) {
	c.nextRun(k, now)
	c.Reason = reason
	k.emit(c, CollectionEvent{Type: event.Gap, Reason: reason, From: c.Position})
}

// nextRun gives the collection the number of its next run. A run belongs to the present history of its
// storage. Seen is dropped if it is of another history.
func (c *Collection) nextRun(k *Core, now uint64) {
	c.Run, c.Syncs, c.Ended = max(c.Run+1, now), 0, false
	if e := k.epochOf(c.Properties.Storage); c.Epoch != e {
		c.Epoch, c.EpochRun, c.Seen = e, c.Run, ""
	}
}

// restart begins another read: frames of the read before are dropped.
func (c *Collection) restart(k *Core) {
	k.reads++
	c.read = k.reads
	c.list, c.side = nil, nil
}

// end begins to forget the incarnation.
func (c *Collection) end(k *Core, unwanted bool) {
	c.Phase, c.Unwanted, c.barrier = Ending, unwanted, k.seq
	c.restart(k)
	c.closeFirst(k)
}

// closeFirst emits closed before the null values of an ending: a copy that reads these while it takes
// its collection for complete would lose objects that exist.
func (c *Collection) closeFirst(k *Core) {
	if c.Phase != Ending || !c.Properties.Tombstones || c.ClosedFirst || c.Incarnation == 0 {
		return
	}
	c.ClosedFirst = true
	k.emit(c, CollectionEvent{Type: event.Closed, Reason: c.closedReason()})
}

func (c *Collection) closedReason() string {
	switch {
	case c.Unwanted:
		return ReasonRemoved
	case c.Route != c.Properties.Route:
		return ReasonRoute
	}
	return ReasonReset
}

// ended is the end of the phase Ending: the inventory of the incarnation is forgotten.
func (c *Collection) ended(k *Core) {
	incarnation, closed, reason := c.Incarnation, c.ClosedFirst, c.closedReason()
	c.Phase, c.barrier, c.rest, c.ClosedFirst = New, k.seq, nil, false
	if c.Unwanted {
		c.Phase = Closed
	}
	switch {
	case closed:
		c.Incarnation = 0
	case incarnation != 0 && reason != ReasonReset:
		c.Incarnation = 0
		k.add(c, Item{Event: &CollectionEvent{Type: event.Closed, Reason: reason}, Incarnation: incarnation})
	}
}

// sighted handles what was seen of an object.
func (c *Collection) sighted(k *Core, in *Input) {
	s := in.Sighting
	switch {
	case s.Origin == Watch && c.Phase.watching():
		c.moved(in.Resume) // an event that follows is behind it
		c.saw(s.Version)
		c.touched(k, s)
		k.judge(c, s, in.Now)
		c.sidePassed(k, in.Now)
	case s.Origin == List && c.list != nil:
		if s.Form == Seen {
			c.list.seen[s.Key] = struct{}{}
		} else { // a streamed list: it is gone before the list's end
			delete(c.list.seen, s.Key)
			c.Ended = true
		}
		c.saw(s.Version)
		if k.judge(c, s, in.Now) {
			k.newEpoch(c, in.Now)
			c.restart(k)
		}
	case s.Origin == Resync:
		c.side.seen[s.Key] = struct{}{}
		if c.Phase == Verifying {
			c.compare(k, s)
			return
		}
		known := k.object(c.ID, s.Key)
		k.judge(c, s, in.Now)
		if known == nil || known.Version != s.Version && known.Run != c.Run {
			c.side.late[s.Key] = struct{}{}
		}
	}
}

func (c *Collection) view() view {
	v := view{run: c.Run, first: c.Synced == 0, skip: c.Properties.Skip, sameHistory: c.Synced == c.Epoch, history: c.EpochRun, resync: c.Phase == Resyncing}
	if v.sameHistory && c.Listed == c.Properties.Selection {
		v.complete = c.Position
	}
	return v
}

// moved moves the position.
func (c *Collection) moved(resume string) {
	if resume != "" {
		c.Position = resume
		c.saw(resume)
	}
}

// saw raises the highest resourceVersion that was seen.
func (c *Collection) saw(version string) {
	if version != "" && event.Newer(version, c.Seen) { // any is newer than none
		c.Seen = version
	}
}

// synced ends a list that reconciles.
func (c *Collection) synced(k *Core) {
	c.Phase, c.Synced, c.Listed = InStep, c.Epoch, c.Properties.Selection
	if c.list.absent {
		c.Phase = Absent
	} else {
		c.Position = c.list.version
	}
	c.Owner, c.list = c.list.owner, nil
	c.sync(k, c.Reason)
	k.resolved(c)
}

// sync emits a synced event. What does not exist has no version.
func (c *Collection) sync(k *Core, reason string) {
	c.Syncs++
	e := CollectionEvent{Type: event.Synced, Reason: reason, Nth: c.Syncs}
	if c.Phase != Absent {
		e.Version = c.Position
	}
	k.emit(c, e)
}

func (c *Collection) sideBegun(k *Core, in *Input) {
	if c.Phase != InStep {
		return
	}
	k.reads++
	c.side = &side{
		number: k.reads, since: c.Seen, seen: map[string]struct{}{}, late: map[string]struct{}{}, suspect: map[string]struct{}{}, touched: map[string]struct{}{},
	}
	if !c.Resync {
		c.Phase = Verifying
		return
	}
	c.nextRun(k, in.Now)
	c.Phase, c.Full = Resyncing, c.Run
	k.emit(c, CollectionEvent{Type: event.Gap, Reason: ReasonResync, From: c.Position})
}

// sideEnded notes what the watch has yet to report, or what the list lacks. A list that is older than
// what was seen before it is of another history.
func (c *Collection) sideEnded(k *Core, in *Input) {
	if event.Older(in.Version, c.side.since) { // it has gone back
		k.newEpoch(c, in.Now)
		c.restart(k)
		return
	}
	c.saw(in.Version)
	c.side.version = in.Version
	k.each(c.ID, func(key string, o *Object) {
		if _, seen := c.side.seen[key]; seen {
			return
		}
		if c.Phase == Verifying {
			if _, touched := c.side.touched[key]; !touched {
				c.side.suspect[key] = struct{}{}
			}
		} else if o.known() && o.Run != c.Run {
			c.side.late[key] = struct{}{}
		}
	})
	c.sidePassed(k, in.Now)
}

// touched notes that the watch changes a key. What it repeats after a restart is no change.
func (c *Collection) touched(k *Core, s *Sighting) {
	if c.side == nil {
		return
	}
	if known := k.object(c.ID, s.Key); known != nil && !event.Newer(s.Version, known.Version) {
		return
	}
	delete(c.side.late, s.Key)
	delete(c.side.suspect, s.Key)
	c.side.touched[s.Key] = struct{}{}
}

// compare notes an object in which a verification and the inventory differ.
func (c *Collection) compare(k *Core, s *Sighting) {
	if _, touched := c.side.touched[s.Key]; touched {
		return
	}
	known := k.object(c.ID, s.Key)
	if known == nil || known.Version != s.Version || known.Digest != s.Digest {
		c.side.suspect[s.Key] = struct{}{}
	}
}

// sidePassed ends a complete list beside the watch once the watch has shown all that the list left to
// it, or has passed the version of the list.
func (c *Collection) sidePassed(k *Core, now uint64) {
	s := c.side
	if s == nil || s.version == "" {
		return
	}
	passed := !event.Older(c.Position, s.version)
	switch {
	case c.Phase == Resyncing && (passed || len(s.late) == 0):
		c.Phase, c.side, c.Resync = InStep, nil, false
		c.sync(k, ReasonResync)
	case c.Phase == Verifying && len(s.suspect) == 0:
		c.Phase, c.side = InStep, nil
	case passed:
		c.gap(k, now, ReasonDrift)
	}
}

// stored returns the record as it is stored. A list beside the watch is not stored.
func (r Record) stored() Record {
	if r.Phase.watching() {
		r.Phase = InStep
	}
	return r
}
