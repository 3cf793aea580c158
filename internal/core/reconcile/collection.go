package reconcile

import (
	"fmt"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Phase is what a collection is doing. It is part of its durable state.
//
// The table has the inputs that start most transitions; a dash means that nothing changes. SideBroken returns
// to InStep. Every arrow that says gap starts a run. All of them but that to Resyncing void the position.
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
//	    objects before (the reason is interrupted then): gap.
//	 4. Absent if the list was empty because the resource or its namespace is absent.
//	 5. A resync is due; otherwise a verification.
//	 6. If the list and the inventory differ: gap → Listing.
//	 7. Recorded. At its end, when the inventory of the incarnation is forgotten, an ending
//	    emits closed where the collection is not wanted (→ Closed) or its route differs
//	    (→ New), and nothing where it is to begin again (→ New). With [Properties].Tombstones
//	    every ending emits closed when it begins, and then a null value for each key.
//
//	 8. Absent if the resource or its namespace does not exist and nothing was published before.
//	 9. Only where the route differs from that of an incarnation that is not closed.
//
// Absent also becomes Listing, with a gap, when a list of another collection shows that the resource exists again: see [Core.exists].
//
// A reset of all collections is made in the store, before a start: see [State.Reset]. Leaving becomes
// Ending with the input Release: every wanted collection of the resource
// has synced once, see [Core.Settled]. A storage's new epoch is a gap in every phase that has a position
// or a list (New, Leaving, Ending, Closed have neither).
//
// Forgetting begins only when the batch that ends the incarnation is committed, and a new incarnation only
// when the forgetting is: see [Core.Reading] and [Core.Forgettable].
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
// of them. The core interprets Skip, Types, Tombstones, Route and Storage; the others it only compares.
type Properties struct {
	Selection string `json:"selection,omitzero"` // selectors, API version
	Filter    string `json:"filter,omitzero"`    // a digest of filter and ignore rules
	Shape     string `json:"shape,omitzero"`     // what is hidden or left out of objects, format
	Storage   string `json:"storage,omitzero"`   // whose history and resourceVersions the objects have
	Route     string `json:"route,omitzero"`     // topic or subject, key
	Skip      bool   `json:"skip,omitzero"`      // the first list is not published
	// Types are the object events that are published. The inventory changes as if all types were published.
	Types event.Types `json:"types,omitzero"`
	// Tombstones: the topic is compacted, and an ending writes a null value for each key.
	Tombstones bool `json:"tombstones,omitzero"`
	// FilterText is what Filter is a digest of, for a restart that has to go on with it; "": there is none, or it is too long. It is not compared.
	FilterText string `json:"filterText,omitzero"`
	// Contents is what Selection, Filter and Shape mean for consumers, without Types. It is not compared: it changes with them.
	Contents event.Selection `json:"contents,omitzero"`
}

// needsReset reports whether consumers have to drop what was published by other properties.
func (p Properties) needsReset(o Properties) bool {
	return p.Shape != o.Shape || p.Storage != o.Storage || p.Types != o.Types
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

// moved moves the position.
func (p *Progress) moved(resume string) {
	if resume != "" {
		p.Position = resume
		p.saw(resume)
	}
}

// saw raises the highest resourceVersion that was seen.
func (p *Progress) saw(version string) {
	if version != "" && event.Newer(version, p.Seen) { // any is newer than none
		p.Seen = version
	}
}

// Record is what is durable of a collection beside its inventory and its progress.
type Record struct {
	Phase       Phase        `json:"phase,omitzero"`
	Run         uint64       `json:"run,omitzero"`         // of the last gap; 0: there was none
	Incarnation uint64       `json:"incarnation,omitzero"` // the run of the last gap with reset; 0: nothing to close
	Epoch       uint64       `json:"epoch,omitzero"`       // the history that the run belongs to
	EpochRun    uint64       `json:"epochRun,omitzero"`    // the first run of the epoch
	Reason      event.Reason `json:"reason,omitzero"`      // of the last gap
	Syncs       uint64       `json:"syncs,omitzero"`       // synced events of the run
	Resync      bool         `json:"resync,omitzero"`      // a resync is due or under way
	// Full is the last run in which every object was, or is being, published: that of a reset or a
	// resync.
	Full uint64 `json:"full,omitzero"`
	// EndedAny: the list of the run has ended objects. If it begins again, another run does: a backup may
	// have brought the objects back, and consumers would ignore them in this run.
	EndedAny bool `json:"ended,omitzero"`
	LastList
	// Properties are those that are recorded as wanted, and Route is that of the
	// incarnation. Unwanted, of Ending: it is not to begin again.
	Properties Properties `json:"properties,omitzero"`
	Route      string     `json:"route,omitzero"`
	Unwanted   bool       `json:"unwanted,omitzero"`
	// ClosedEmitted, of Ending: closed is emitted already, and forgotten keys get null values.
	ClosedEmitted bool `json:"closedFirst,omitzero"`
}

// LastList is what is recorded of the last complete list.
type LastList struct {
	SyncedEpoch     uint64 `json:"synced,omitzero"` // its epoch; 0: there was none in the incarnation
	ListedSelection string `json:"listed,omitzero"` // its selection
	Owner           string `json:"owner,omitzero"`  // what it came with, for the reader of the next one
	// Partial: a list of another selection has ended objects since. An object that is not in the inventory
	// proves nothing then.
	Partial bool `json:"partial,omitzero"`
}

// stored returns the record as it is stored. A list beside the watch is not stored.
func (r Record) stored() Record {
	if r.Phase.watching() {
		r.Phase = InStep
	}
	return r
}

// nextRun gives the collection the number of its next run, and reports whether the run is the first one of
// an epoch.
func (r *Record) nextRun(now, epoch uint64) (first bool) {
	r.Run, r.Syncs, r.EndedAny = max(r.Run+1, now), 0, false
	first = r.Epoch != epoch
	if first {
		r.Epoch, r.EpochRun = epoch, r.Run
	}
	return first
}

// closedReason is the reason of the closed event of an ending.
func (r *Record) closedReason() event.Reason {
	switch {
	case r.Unwanted:
		return event.ReasonRemoved
	case r.Route != r.Properties.Route:
		return event.ReasonRoute
	}
	return event.ReasonReset
}

// view is what decisions about objects depend on.
func (r *Record) view(position string) view {
	v := view{
		run: r.Run, first: r.SyncedEpoch == 0, skip: r.Properties.Skip, sameHistory: r.SyncedEpoch == r.Epoch, history: r.EpochRun,
		resync: r.Phase == Resyncing,
	}
	if v.sameHistory && r.ListedSelection == r.Properties.Selection && !r.Partial {
		v.complete = position
	}
	return v
}

// Collection is one collection of a core.
type Collection struct {
	ID string
	Record
	Progress

	core       *Core
	read       uint64      // number of the present read
	list       *list       // that reconciles; nil: none has begun, as in all phases but Listing
	side       *side       // nil in all phases but Resyncing and Verifying
	forgetting *forgetting // nil in all phases but Ending
	listed     uint64      // the run of the last gap before a list that was emitted since the start or [Core.Restore]; 0: none was
	broken     uint64      // the run of a resync whose list broke off; 0: none did, or it has synced since
	samples    []Sample    // see Collection.reconnected; nil: the position belongs to the API server's history, as far as is known
	barrier    uint64      // the batch that must be committed before an ending or a beginning goes on
	batch      batchState
}

// batchState is what the batches have of a collection.
type batchState struct {
	record   Record   // as of the last item, or of the last batch
	progress Progress // as of the last batch
	recorded bool     // an item of the batch that fills has the record
	drafted  bool     // the store has a draft, since [Core.Restore]
	dirty    bool     // the batch that fills has something of the collection
	silent   []Change // without an event since the last item
}

// with adds to an item what a reader without the batch needs.
func (h *batchState) with(i *Item, c *Collection) {
	i.Changes, h.silent = h.silent, nil
	i.Progress = c.Progress
	if c.stored() != h.record {
		r := c.stored()
		i.Record = &r
		h.record, h.recorded = r, true
	}
}

// step applies the table of [Phase].
func (c *Collection) step(in *Input) {
	switch in.Kind {
	case Configure:
		c.configure(in)
	case Remove:
		c.remove()
	case Release:
		if c.Phase == Leaving {
			c.end(true)
		}
	case ListBegun:
		c.listBegun(in)
	case Sighted:
		c.sighted(in)
	case ListEnded:
		if c.list != nil {
			c.saw(in.Version)
			c.list.end(in, c.core.uncommitted(c.ID))
		}
	case ListLacks:
		if c.list.comparing() && in.Key > c.list.cursor {
			c.list.cursor = in.Key
			c.noteEnded()
			c.applySighting(in.Sighting)
		}
	case ListDone:
		if c.list.comparing() {
			c.completeList()
		}
	case Bookmark:
		if c.Phase.watching() {
			c.moved(in.Resume)
			c.sidePassed()
		}
	case Demand:
		c.Resync = c.Resync || c.Phase == InStep || c.Phase == Listing || c.Phase == Verifying
	case SideBegun:
		c.sideBegun()
	case SideEnded:
		if c.side != nil {
			c.sideEnded(in)
		}
	case SideBroken:
		c.sideBroken()
	case Reconnected:
		if c.Phase.watching() {
			c.reconnected()
		}
	case Forget:
		if c.forgetting != nil && in.Key > c.forgetting.cursor {
			c.forgetting.cursor = in.Key
			c.forget(in.Key)
		}
	case Forgot:
		if c.Phase == Ending {
			c.forgotten()
		}
	case Confirm:
		if c.Phase == InStep && !c.Resync && c.samples == nil {
			c.emitSynced(event.ReasonPeriodic)
		}
	}
}

func (c *Collection) configure(in *Input) {
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
		c.end(false)
	case c.Phase == Absent:
	case was.Selection != c.Properties.Selection:
		c.gap(event.ReasonSelection)
	case was.Filter != c.Properties.Filter:
		c.gap(event.ReasonFilter)
	case c.Phase == Leaving:
		c.gap(event.ReasonReturned)
	}
	if was.Selection != c.Properties.Selection || was.needsReset(c.Properties) {
		c.restart() // what is read by another selection, from another storage or in another form must not be listed
	}
}

// Relists reports whether all that follows from properties, if they are configured now, is a gap with a list.
func (c *Collection) Relists(p Properties) bool {
	switch {
	case !c.Phase.watching() && c.Phase != Listing, c.Properties.needsReset(p), c.Route != p.Route:
		return false
	}
	return c.Properties.Selection != p.Selection || c.Properties.Filter != p.Filter
}

// Ends reports whether nothing is published of the collection any more but the end of its last incarnation.
func (c *Collection) Ends() bool {
	return c.Phase == New || c.Phase == Leaving || c.Phase == Ending || c.Phase == Closed
}

func (c *Collection) remove() {
	switch {
	case c.Phase == Leaving || c.Phase == Closed:
	case c.Phase == Ending:
		c.Unwanted = true
	case c.Phase == New || c.Incarnation == 0:
		c.end(true)
	default:
		c.Phase = Leaving
		c.restart()
	}
}

func (c *Collection) listBegun(in *Input) {
	switch {
	case c.Phase == Leaving || c.Phase == Ending || c.Phase == Closed:
		return
	case in.Absent && c.Incarnation == 0:
		c.Phase = Absent // there is nothing to end
		return
	case in.Absent && c.Phase == Absent:
		return
	}
	if !in.Absent {
		c.core.exists(c)
	}
	switch {
	case c.Phase == New, c.Incarnation == 0:
		c.begin()
	case in.NewEpoch && c.Epoch == c.core.epochOf(c.Properties.Storage):
		c.core.newEpoch(c)
	case c.Phase != Listing, in.Absent != (c.Reason == event.ReasonGone):
		c.gapHere(in.Reason)
	case c.EndedAny:
		c.gapHere(event.ReasonInterrupted)
	}
	c.list = &list{seen: keySet{}, absent: in.Absent}
}

// begin begins an incarnation.
func (c *Collection) begin() {
	c.newRun()
	c.Phase, c.Incarnation, c.SyncedEpoch, c.Position, c.Route = Listing, c.Run, 0, "", c.Properties.Route
	c.Reason, c.Resync, c.Full = event.ReasonReset, false, c.Run
	c.emit(CollectionEvent{Type: event.Gap, Reason: c.Reason, Reset: true})
}

// gap starts a run, and another read, which begins with a list.
func (c *Collection) gap(reason event.Reason) {
	c.gapHere(reason)
	c.restart()
}

// gapHere starts a run; the present read goes on.
func (c *Collection) gapHere(reason event.Reason) {
	c.Phase, c.side = Listing, nil
	c.anotherRun(reason)
}

// anotherRun starts a run; the phase and the present list go on.
func (c *Collection) anotherRun(reason event.Reason) {
	c.newRun()
	c.Reason = reason
	from := c.Position
	if !event.GapCause(reason).NewEpoch && c.SyncedEpoch != c.Epoch {
		from = "" // the position is of a history before
	}
	c.emit(CollectionEvent{Type: event.Gap, Reason: reason, From: from})
}

// newRun gives the collection the number of its next run. A run belongs to the present history of its
// storage. Seen is dropped if it is of another history.
func (c *Collection) newRun() {
	if c.nextRun(c.core.now, c.core.epochOf(c.Properties.Storage)) {
		c.Seen = ""
	}
}

// restart begins another read: frames of the read before are dropped.
func (c *Collection) restart() {
	c.read = c.core.nextRead()
	c.list, c.side = nil, nil
}

// end begins to forget the incarnation.
func (c *Collection) end(unwanted bool) {
	c.Phase, c.Unwanted, c.barrier = Ending, unwanted, c.core.number
	c.restart()
	c.closeFirst()
}

// closeFirst emits closed before the null values of an ending: a copy that reads these while it takes
// its collection for complete would lose objects that exist.
func (c *Collection) closeFirst() {
	if c.Phase != Ending || !c.Properties.Tombstones || c.ClosedEmitted || c.Incarnation == 0 {
		return
	}
	c.ClosedEmitted = true
	c.emit(CollectionEvent{Type: event.Closed, Reason: c.closedReason()})
}

// forgotten ends the phase Ending: the inventory of the incarnation is forgotten.
func (c *Collection) forgotten() {
	incarnation, closed, reason := c.Incarnation, c.ClosedEmitted, c.closedReason()
	c.Phase, c.barrier, c.forgetting, c.ClosedEmitted = New, c.core.number, nil, false
	if c.Unwanted {
		c.Phase = Closed
	}
	switch {
	case closed:
		c.Incarnation = 0
	case incarnation != 0 && reason != event.ReasonReset:
		c.Incarnation = 0
		c.core.add(c, Item{Event: &CollectionEvent{Type: event.Closed, Reason: reason}, Incarnation: incarnation})
	}
}

// sighted handles what was seen of an object.
func (c *Collection) sighted(in *Input) {
	s := in.Sighting
	switch {
	case s.Origin == Watch && c.Phase.watching():
		c.moved(in.Resume) // an event that follows is behind it
		c.saw(s.Version)
		if c.side != nil {
			known, _ := c.known(s.Key)
			c.side.touch(known, s)
		}
		c.applySighting(s)
		c.sidePassed()
	case s.Origin == List && c.list != nil:
		c.list.sighted(s)
		if s.Form != Seen {
			c.noteEnded()
		}
		c.saw(s.Version)
		if c.applySighting(s) {
			c.anotherHistory()
		}
	case s.Origin == Resync:
		c.side.seen.add(s.Key)
		known, _ := c.known(s.Key)
		switch {
		case c.side.samples != nil:
			c.compareSample(known, s, in.Version)
			return
		case c.Phase == Verifying:
			c.side.compare(known, s)
			return
		}
		c.applySighting(s)
		c.side.resync(known, s, c.Run)
	}
}

// noteEnded notes that the list ends an object.
func (c *Collection) noteEnded() {
	c.EndedAny = true
	c.Partial = c.Partial || c.ListedSelection != c.Properties.Selection
}

// completeList ends a list that reconciles.
func (c *Collection) completeList() {
	c.Phase, c.SyncedEpoch, c.ListedSelection, c.Partial = InStep, c.Epoch, c.Properties.Selection, false
	if c.list.absent {
		c.Phase = Absent
	} else {
		c.Position = c.list.version
	}
	c.Owner, c.list, c.samples = c.list.owner, nil, nil
	c.emitSynced(c.Reason)
	c.core.resolved(c.ID)
}

// emitSynced emits a synced event. What does not exist has no version.
func (c *Collection) emitSynced(reason event.Reason) {
	c.Syncs++
	e := CollectionEvent{Type: event.Synced, Reason: reason, Nth: c.Syncs}
	if c.Phase != Absent {
		e.Version = c.Position
	}
	c.emit(e)
}

// sideBegun begins a list beside the watch. A resync whose list broke off goes on in its run: what was published in it is not published again,
// so that the resync ends also if each attempt publishes only a part.
func (c *Collection) sideBegun() {
	if c.Phase != InStep {
		return
	}
	c.side = newSide(c.core.nextRead(), c.Seen)
	switch {
	case c.samples != nil:
		c.Phase = Verifying
		if len(c.samples) > 0 { // otherwise a verification of everything
			c.side.samples, c.side.since = c.samples, ""
		}
		return
	case !c.Resync:
		c.Phase = Verifying
		return
	case c.broken == c.Run:
		c.Phase = Resyncing
		return
	}
	c.newRun()
	c.Phase, c.Full = Resyncing, c.Run
	c.emit(CollectionEvent{Type: event.Gap, Reason: event.ReasonResync, From: c.Position})
}

// sideEnded notes what the watch has yet to report, or what the list lacks. A list that is older than
// what was seen before it is of another history.
func (c *Collection) sideEnded(in *Input) {
	if event.Older(in.Version, c.side.since) { // it has gone back
		c.anotherHistory()
		return
	}
	c.saw(in.Version)
	c.side.version = in.Version
	if c.side.samples != nil {
		c.sidePassed()
		return
	}
	c.core.each(c.ID, func(key string) bool {
		known, _ := c.known(key)
		c.side.lacks(key, known, c.Phase == Verifying, c.Run)
		return true
	})
	c.sidePassed()
}

// sidePassed ends a complete list beside the watch once the watch has shown all that the list left to
// it, or has passed the version of the list.
func (c *Collection) sidePassed() {
	done, passed := c.side.done(c.Position)
	switch {
	case c.Phase == Resyncing && (done || passed):
		c.Phase, c.side, c.Resync, c.broken = InStep, nil, false, 0
		c.emitSynced(event.ReasonResync)
	case done:
		c.Phase, c.side, c.samples = InStep, nil, nil
	case passed && c.side.samples != nil:
		c.anotherHistory()
	case passed:
		c.gap(event.ReasonDrift)
	}
}

// sideBroken ends a list beside the watch before its end.
func (c *Collection) sideBroken() {
	if c.side == nil {
		return
	}
	if c.Phase == Resyncing {
		c.broken = c.Run
	}
	c.Phase, c.side = InStep, nil
}

// anotherHistory begins another epoch, with a list.
func (c *Collection) anotherHistory() {
	c.core.newEpoch(c)
	c.restart()
}

// reconnected takes samples before a watch goes on from the position: no synced event is emitted until they are compared with the API server,
// or a list is complete. A resync that is under way would emit one, so it begins again afterwards.
//
// If a backup was restored and later writes have passed the position, the API server continues the watch as if nothing had happened. But the
// restore has changed or removed what was written last. A collection without objects is verified as a whole.
func (c *Collection) reconnected() {
	if c.Phase == Resyncing {
		c.sideBroken()
	}
	if !event.Older("1", c.Position) {
		return // resourceVersions that are no numbers do not show which objects are the newest ones
	}
	c.samples = make([]Sample, 0, maxSamples)
	c.core.entries(c.ID, func(key string, o *Object) {
		if o.Judged < c.Incarnation {
			return
		}
		at := c.Position
		if event.Newer(o.Version, at) { // the position is behind the events of one version until a later one comes
			at = o.Version
		}
		c.samples = addSample(c.samples, Sample{key, at, o.UID, o.Version, o.Digest})
	})
}

// SamplesDue reports whether samples are to be compared before the next synced event. A list beside the watch reads them.
func (c *Collection) SamplesDue() bool { return c.samples != nil }

// compareSample compares a sample with a state of the API server at a version. known is the present inventory entry. The first match applies:
//
//	the state has the same uid, resourceVersion and digest                 –
//	the state has the same uid and resourceVersion                         gap (drift): the list finds out
//	the state is that at the position of the sample, or what it shows is   another history: the object was as in the sample
//	not newer than that position
//	the entry has changed since                                            –
//	otherwise                                                              the watch has yet to explain it, see side.done
func (c *Collection) compareSample(known *Object, s *Sighting, version string) {
	n := slices.IndexFunc(c.side.samples, func(x Sample) bool { return x.Key == s.Key })
	if n < 0 {
		return
	}
	x := &c.side.samples[n]
	same := s.UID == x.UID && s.Version == x.Version
	switch {
	case same && s.Digest == x.Digest:
	case same:
		c.gap(event.ReasonDrift)
	case version == x.Position, !event.Newer(s.Version, x.Position):
		c.anotherHistory()
	case known != nil && known.Version == x.Version:
		c.side.open[s.Key] = struct{}{}
	}
}

// applySighting does what follows from a sighting, and reports whether it proves another history.
func (c *Collection) applySighting(s *Sighting) (newHistory bool) {
	r := c.decide(s)
	if r.newRun && s.Origin == Watch {
		c.gap(event.ReasonRewritten)
		return false
	}
	if r.newRun {
		c.anotherRun(event.ReasonRewritten)
		r = c.decide(s)
	}
	if r.newHistory {
		return true
	}
	slot := Slot{c.ID, s.Key}
	if r.changed {
		c.core.set(slot, r.entry)
	}
	for i := range r.events {
		e := &r.events[i]
		if !c.core.intents.overtake(slot, e) {
			c.core.settle(slot, e.Object.UID)
		}
		if !c.Properties.Types.Has(e.Type) || s.lost(e) {
			continue
		}
		if i < len(r.events)-1 { // a deletion
			c.core.alone(c, Change{slot, nil})
		} else {
			c.core.alone(c, Change{slot, r.entry})
			r.changed = false
		}
		c.core.add(c, Item{Object: e})
	}
	if r.changed {
		c.core.alone(c, Change{slot, r.entry})
	}
	return false
}

// decide applies the table of [Sighting].
func (c *Collection) decide(s *Sighting) verdict {
	known, inDoubt := c.known(s.Key)
	v := c.view(c.Position)
	v.memory = c.core.current.memory
	r := v.decide(known, inDoubt, s)
	r.events = v.memory.keepEvents(r.events)
	c.core.cover(r.row)
	return r
}

// forget removes an inventory entry, with a null value if the ending has these.
func (c *Collection) forget(key string) {
	slot := Slot{c.ID, key}
	last, _ := c.known(key)
	if !last.known() {
		last = nil
	}
	c.core.set(slot, nil)
	for _, i := range c.core.intents[slot] {
		if last == nil || comparePublications(i.Object, *last) > 0 {
			last = &i.Object
		}
		c.core.settle(slot, i.UID)
	}
	c.core.alone(c, Change{slot, nil})
	if c.ClosedEmitted && last != nil {
		c.core.add(c, Item{Object: &ObjectEvent{Type: event.Deleted, Key: key, Object: *last, Fate: Unknown, Null: true}})
	}
}

// known returns the inventory entry of a key, nil for none, and its intents. What is of an earlier
// incarnation does not count.
func (c *Collection) known(key string) (o *Object, inDoubt []Intent) {
	slot := Slot{c.ID, key}
	if o = c.core.object(slot); o != nil && o.Judged < c.Incarnation {
		o = nil
	}
	return o, c.core.intents.since(c.Incarnation, slot)
}

// emit adds an event about the collection to the batch.
func (c *Collection) emit(e CollectionEvent) {
	if e.Type == event.Gap && !event.GapCause(e.Reason).Resync {
		c.listed = c.Run
	}
	if e.Type != event.Closed {
		e.Selection = c.Properties.Contents
		e.Selection.Types = c.Properties.Types
	}
	c.core.add(c, Item{Event: &e})
}

// Continues reports whether the collection goes on from the position that the store has with a record: all gaps since then are of resyncs, before which
// nothing is missing.
func (c *Collection) Continues(stored *Record) bool {
	return c.Epoch == stored.Epoch && c.listed <= stored.Run
}
