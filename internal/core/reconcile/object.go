package reconcile

import (
	"slices"

	"github.com/kubebridge/kubebridge/internal/base/pieces"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Status says what consumers know of an object.
type Status uint8

const (
	// Published means that consumers have its state at Object.At.
	Published Status = iota + 1
	// Outdated means the same, but a later state became a dead letter. The next change and the
	// next list publish it again.
	Outdated
	// Unpublished means that consumers do not have it, because a filter leaves it out or because it
	// became a dead letter. The next change and the next list may publish it.
	Unpublished
	// Skipped means that consumers do not have it, because the first list was not to be
	// published. Its next change publishes it.
	Skipped
)

// Digest stands for a body: the caller's digests of two bodies are equal if the bodies are, and otherwise differ, also if
// somebody chose the bodies. The zero value is none.
type Digest [16]byte

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// Object is the inventory entry of one object.
type Object struct {
	UID     string
	Version string // resourceVersion last seen
	Digest  Digest // of the body last seen
	Status  Status
	// Judged is the run in which the entry was last written. An entry that was judged
	// before the collection's incarnation began does not count.
	Judged uint64
	// Run and At are the run and the resourceVersion of the publication that a deletion
	// of the object ends. They are zero unless the status is Published or Outdated. AtDigest is
	// of its body; none: it is not certain that consumers have it.
	Run      uint64
	At       string
	AtDigest Digest
	// Significant is the caller's digest of what the ignore rules leave of the published body. Only
	// [Prepared] looks at it.
	Significant Digest

	APIVersion, Kind string
}

// known reports whether consumers have the object.
func (o *Object) known() bool { return o != nil && (o.Status == Published || o.Status == Outdated) }

// asInDoubt returns the entry with Run and At of the intent, if the intent has a later run and the watch is past it; otherwise
// the entry. Consumers that have the intent's publication ignore the end of an earlier one.
func (o *Object) asInDoubt(i *Intent, s *Sighting) *Object {
	if i == nil || !o.known() || o.UID != i.UID || o.Run >= i.Run || !event.Newer(s.Version, i.At) {
		return o
	}
	next := *o
	next.Run, next.At = i.Run, i.At
	return &next
}

// endsWith reports whether consumers ignore the publication of the entry, or give it up, at the end of an
// intent's object of the same name.
func (o *Object) endsWith(i Intent) bool {
	return o.Run < i.Run || o.Run == i.Run && !event.Newer(o.At, i.At)
}

// asPublished reports whether consumers have the object as it was seen.
func (o *Object) asPublished(s *Sighting) bool {
	return o.At == s.Version && o.AtDigest == s.Digest
}

// Intent is what a batch of which the outcome is not known did to one object: consumers
// have Object, or had it and it is deleted, or have neither. Its Version is that of the
// event.
type Intent struct {
	Object
	Deleted bool
	Epoch   uint64 // of the event
}

// Fate is what is known of an object that a collection no longer holds.
type Fate uint8

// The fates of an object. Their order is that of the reasons of a deleted event.
const (
	Gone    Fate = iota // it does not exist any more
	Left                // it exists and is not selected any more
	Unknown             // one of the two
)

// Origin is where a sighting comes from.
type Origin uint8

// The origins of a sighting.
const (
	Watch  Origin = iota
	List          // a list that reconciles: the position is void
	Resync        // a list beside the watch
)

// Sighting is one thing that is learned of one object. Exactly one of three forms:
//
// Seen: the object exists and the selectors select it. What is emitted depends on the
// inventory entry and on how it compares with the object:
//
//	entry        compared with the object watch          list           resync
//	none         –                        announce       announce 1     –
//	another uid  entry is not older       –              history 3      –
//	another uid  otherwise                end, announce  end, announce  –
//	any          entry is newer           –              history 3      –
//	any          same version, judged in  –              run 7          –
//	             this run, other digest
//	published    as published             –              – 6 8          present 2
//	published    otherwise                modified       modified       –
//	outdated     as published             –              – 6 8          modified 4
//	outdated     same version             –              modified 4     modified 4
//	outdated     otherwise                modified       modified       –
//	unpublished  same version             –              announce 4     announce 4
//	unpublished  otherwise                announce       announce       –
//	skipped      same version and digest  –              –              –
//	skipped      same version             –              announce       announce
//	skipped      otherwise                announce       announce       –
//	in doubt     entry is published and   as above       modified       as above
//	             no deletion is in doubt
//	in doubt     otherwise                as above       announce 5     as above
//
// Announce is `added`; before the first synced event of an incarnation it is `present`.
// Where the configuration says `snapshot: skip`, nothing is emitted for what the first
// list finds; the entry is skipped. End is `deleted`. A watch repeats what was in flight from the
// position, so it looks at intents for one purpose only: if a resync's publication is in doubt, a deletion from the
// watch ends that publication. Otherwise consumers that have it would ignore the deletion.
//
//  1. An object that should be in the inventory and is not proves another history.
//  2. Unless it has been published in this run.
//  3. The API server's history is not the one that the inventory belongs to.
//  4. Unless that has been tried in this run.
//  5. Consumers may have the object. A `modified` of an object that they do not have could be one
//     of a type that is not published. The same holds for a published object A, if an object B of its
//     name is in doubt with a later run, or in the same run with no earlier version: B's deletion is then
//     the later event of the name, and consumers have neither.
//  6. Unless the filter, which may be another one now, does not let it through: `deleted`
//     with the reason `left`.
//  7. Another run begins, since consumers ignore a second event of one run and version; then as
//     below. The same holds for an object in doubt, and where a watch repeats what is in doubt
//     with another body: its new run begins with a list.
//  8. An older state is back, as from a backup: the entry is published again.
//
// An event that the filter does not let through becomes: `deleted` with the reason
// `left` where consumers have the object or may have it, and nothing elsewhere. A change
// of ignored fields only moves the entry; in a resync it is published as `present` if the
// object has not been published in this run. A list publishes it once the fields are not
// ignored any more.
//
// Ended: the watch has seen the deletion. Lacking: a complete list does not have the
// object. Both are `deleted` where consumers have the object or, of Lacking, may have
// it; they remove the inventory entry in silence elsewhere. A deletion that is older
// than the entry, or of another uid, is nothing.
type Sighting struct {
	Form   Form
	Origin Origin
	Key    string // of the inventory: namespace and name

	UID     string // of Seen and Ended
	Version string // of the object; of Ended, of the deletion
	Digest  Digest
	Fate    Fate                  // of Ended
	Fates   func(uid string) Fate // of Lacking; nil: all are gone
	// Significant is kept in the inventory entry of what is published: see [Object].
	Significant Digest
	// Prepared is handed on in events; nil: the object passes, and its event is neither minor nor lost.
	Prepared Prepared

	APIVersion, Kind string
	// Body is handed on in events. The core does not look at it.
	Body any
	// Former is the last body of an object that had the name before; nil: it is not known. It is handed on in the
	// deletions of such objects instead of Body.
	Former any
	// DeadLetter: the event does not fit the bus and the configuration sends it to the
	// dead letters.
	DeadLetter bool
}

// Prepared is what the encoder knows of a sighting: what the configured rules say of the object, among other things.
type Prepared interface {
	// Passes reports whether the filter lets an event of the type through.
	Passes(t event.Type) bool
	// Minor reports whether only ignored fields of the object differ from what was published.
	Minor(known *Object) bool
	// Lost reports whether an event cannot be published: it is not emitted, and the state moves as if it were.
	Lost(e *ObjectEvent) bool
}

func (s *Sighting) passes(t event.Type) bool { return s.Prepared == nil || s.Prepared.Passes(t) }

func (s *Sighting) minor(known *Object) bool { return s.Prepared != nil && s.Prepared.Minor(known) }

func (s *Sighting) lost(e *ObjectEvent) bool { return s.Prepared != nil && s.Prepared.Lost(e) }

// Form is the form of a sighting.
type Form uint8

// The forms of a sighting.
const (
	Seen Form = iota
	Ended
	Lacking
)

// view is what a decision about an object depends on beside the object: a collection's
// state at the time of a sighting.
type view struct {
	memory *memory
	run    uint64
	first  bool // no synced event since the incarnation began
	skip   bool // objects of the first list are not published
	// resync: a resync is under way, beside the watch.
	resync bool
	// sameHistory: the inventory is of the history that is being read. Otherwise that holds for what was
	// judged since run history.
	sameHistory bool
	history     uint64
	// complete is the resourceVersion up to which the inventory holds every object of the
	// present selection; "" where that is not known.
	complete string
}

// verdict is what follows from one sighting.
type verdict struct {
	events     []ObjectEvent
	changed    bool    // the inventory entry is another one
	entry      *Object // if it has changed; nil: none
	newHistory bool    // nothing follows but a new epoch
	newRun     bool    // nothing follows but a new run, in which the sighting is judged again
	row        row     // of the table, for the coverage of tests

	memory *memory
}

// usualEvents is how many events follow from a sighting at most, usually.
const usualEvents = 2

// memory is where a batch has its events and inventory entries.
type memory struct {
	events  pieces.Pieces[ObjectEvent]
	objects pieces.Pieces[Object]
}

// verdict returns a verdict without events.
func (m *memory) verdict() verdict { return verdict{events: m.eventRoom(), memory: m} }

// eventRoom returns memory for the events of one verdict.
func (m *memory) eventRoom() []ObjectEvent { return m.events.Room(usualEvents) }

// keepEvents keeps events that were appended to what eventRoom returned last.
func (m *memory) keepEvents(events []ObjectEvent) []ObjectEvent {
	return m.events.Appended(m.eventRoom(), events)
}

// takeBack makes all memory available again.
func (m *memory) takeBack() {
	m.events.Clear()
	m.objects.Clear()
}

// ObjectEvent is an event about one object.
type ObjectEvent struct {
	Type event.Type
	Key  string
	// Object is what is published; of a deletion, the publication that it ends.
	Object Object
	// Version is the object's; of a deletion, the deletion's or the list's that proved it.
	Version    string
	Fate       Fate // of a deletion
	DeadLetter bool
	// Null: a deletion without a value, behind the closed event of the incarnation. Consumers ignore
	// it; compaction removes what the topic has under the key.
	Null     bool
	Prepared Prepared // of the sighting that the event follows from; nil: of none
	Body     any      // or Former of the sighting
}

// decide applies the table of [Sighting]. known is the inventory entry of the key, nil for
// none; doubts are the intents of the key, by uid.
func (v view) decide(known *Object, doubts []Intent, s *Sighting) verdict {
	if s.Origin == Watch {
		known = known.asInDoubt(find(doubts, s.UID), s)
	}
	switch s.Form {
	case Ended:
		return v.ended(known, s)
	case Lacking:
		return v.lacking(known, doubts, s)
	default:
		return v.seen(known, doubts, s)
	}
}

func (v view) seen(known *Object, doubts []Intent, s *Sighting) verdict {
	maybe := find(doubts, s.UID)
	if s.Origin != List {
		doubts = nil
	}
	if s.Origin == Watch && known != nil && !event.Newer(s.Version, known.Version) {
		return verdict{row: rowNotNewer}
	}
	if s.Origin == Resync && (known == nil || known.Version != s.Version) {
		return verdict{row: rowLeftToWatch}
	}
	if evidence := v.evidence(known, doubts, s); evidence != 0 {
		return verdict{newHistory: true, row: evidence}
	}
	if v.rewritten(known, maybe, s) {
		return verdict{newRun: true, row: rowRewritten}
	}
	r := v.memory.verdict()
	if known != nil && known.UID != s.UID || len(doubts) > 0 {
		for _, o := range holders(known, doubts) {
			if o.UID != s.UID {
				r.end(o, s, Gone)
			}
		}
	}
	if known != nil && known.UID != s.UID {
		known = nil
	}
	r.entry = known // unless another one is kept
	doubt := find(doubts, s.UID)
	if doubt == nil && known.known() && slices.ContainsFunc(doubts, known.endsWith) {
		doubt = &Intent{Deleted: true} // the end of the other object of the name ends this one for consumers
	}
	var typ event.Type
	switch typ, r.row = v.typeOf(known, doubt, s); {
	case r.row == rowSkippedFirst:
		r.keep(known, v.entry(s, Skipped))
	case r.row == rowSame && !s.passes(event.Added):
		r.row = rowSameFilteredOut
		r.end(*known, s, Left)
		r.keep(known, v.entry(s, Unpublished))
	case r.row == rowSame && (known.Version != s.Version || known.Status != Published):
		next := *known // an older state is back
		next.Status, next.Version, next.Digest, next.Judged = Published, s.Version, s.Digest, v.run
		r.keep(known, next)
	case typ != 0:
		v.publish(&r, typ, known, maybe, s)
	}
	return r
}

// evidence is the row by which a listed object proves that the API server's history is not
// the one of the inventory, 0 if it does not.
func (v view) evidence(known *Object, doubts []Intent, s *Sighting) row {
	if s.Origin != List {
		return 0
	}
	for i := range doubts { // a later object of a name has a later version
		d := &doubts[i]
		older := event.Older(s.Version, d.At) || d.UID != s.UID && !event.Newer(s.Version, d.At)
		if older && (v.sameHistory || d.Run >= v.history) {
			return rowOlder
		}
	}
	other := known == nil || known.UID != s.UID
	switch {
	case find(doubts, s.UID) != nil:
	case other && !event.Newer(s.Version, v.complete): // any is newer than ""
		return rowUnknownOld
	case known == nil || !v.sameHistory && known.Judged < v.history:
	case event.Older(s.Version, known.Version), other && !event.Newer(s.Version, known.Version):
		return rowOlder
	}
	return 0
}

// rewritten reports whether an object has another body, or is there again, at a resourceVersion
// that has been judged in this run. Consumers would ignore a second event of one run and version, and
// it might have the id of the first. A watch repeats what is in doubt: with the body of today. The intent of a deletion has the digest of
// the publication that it ends in AtDigest; a later minor change has moved Digest.
func (v view) rewritten(known *Object, maybe *Intent, s *Sighting) bool {
	switch {
	case s.Origin == Resync:
		return false
	case maybe != nil:
		return maybe.Run == v.run && maybe.At == s.Version && (maybe.Deleted && s.Origin == List || maybe.AtDigest != s.Digest)
	}
	return known != nil && known.Judged == v.run && known.Version == s.Version && known.Digest != s.Digest
}

// typeOf is the type of the event that a seen object leads to, before the filter; 0 is
// none.
func (v view) typeOf(known *Object, doubt *Intent, s *Sighting) (event.Type, row) {
	switch {
	case doubt != nil && known.known() && !doubt.Deleted:
		return event.Modified, rowDoubtKnown
	case doubt != nil:
		return v.announcement(), rowDoubt
	case v.first && v.skip: // a list: a watch comes behind the first synced event
		return 0, rowSkippedFirst
	case known == nil:
		return v.announcement(), rowNew
	}
	same, tried := known.Version == s.Version, known.Judged == v.run
	switch known.Status {
	case Skipped:
		if same && known.Digest == s.Digest {
			return 0, rowSkippedSame
		}
		return v.announcement(), rowSkippedOther
	case Unpublished:
		if same && tried {
			return 0, rowUnpublishedTried
		}
		return v.announcement(), rowUnpublished
	case Outdated:
		if known.asPublished(s) && s.Origin != Resync {
			return 0, rowSame
		}
		if same && tried {
			return 0, rowOutdatedTried
		}
		return event.Modified, rowOutdated
	}
	switch {
	case s.Origin == Resync && known.Run == v.run:
		return 0, rowResyncDone
	case s.Origin == Resync:
		return event.Present, rowResync
	case known.asPublished(s), same && known.Digest == s.Digest && s.minor(known):
		return 0, rowSame
	}
	return event.Modified, rowChanged
}

// announcement is the type of the event that makes an object known.
func (v view) announcement() event.Type {
	if v.first {
		return event.Present
	}
	return event.Added
}

// publish applies filter, ignore rule and dead letter to an event of a type. maybe is the intent of the
// object.
func (v view) publish(r *verdict, typ event.Type, known *Object, maybe *Intent, s *Sighting) {
	doubt := maybe
	if s.Origin != List {
		doubt = nil
	}
	var held *Object // what consumers have or may have
	switch {
	case doubt != nil:
		held = &doubt.Object
	case known.known():
		held = known
	}
	asked := typ
	if asked == event.Present {
		asked = event.Added
	}
	switch {
	case !s.passes(asked):
		r.row = rowFiltered
		if held != nil {
			r.end(*held, s, Left)
			slices.SortStableFunc(r.events, func(a, b ObjectEvent) int { return comparePublications(a.Object, b.Object) })
			r.row = rowFilteredOut
		}
		r.keep(known, v.entry(s, Unpublished))
		return
	case doubt == nil && typ == event.Modified && known.Status == Published && s.minor(known):
		if v.resync && known.Run < v.run {
			typ, r.row = event.Present, rowMinorResync
			break
		}
		next := *known
		next.Version, next.Digest, next.Judged = s.Version, s.Digest, v.run
		r.keep(known, next)
		r.row = rowMinor
		return
	}
	next := v.entry(s, Published)
	next.Run, next.At, next.AtDigest, next.Significant = v.run, s.Version, s.Digest, s.Significant
	r.events = append(r.events, ObjectEvent{Type: typ, Key: s.Key, Object: next, Version: s.Version, DeadLetter: s.DeadLetter, Prepared: s.Prepared, Body: s.Body})
	if s.DeadLetter {
		next = v.entry(s, Unpublished)
		switch {
		case maybe != nil: // the bus took it the first time, or may have
			next.Status, next.Run, next.At = Outdated, maybe.Run, maybe.At
		case held != nil:
			next.Status, next.Run, next.At, next.AtDigest, next.Significant = Outdated, held.Run, held.At, held.AtDigest, held.Significant
		}
	}
	r.keep(known, next)
}

// entry is the inventory entry of a seen object.
func (v view) entry(s *Sighting, status Status) Object {
	return Object{
		UID: s.UID, Version: s.Version, Digest: s.Digest, Status: status, Judged: v.run,
		APIVersion: s.APIVersion, Kind: s.Kind,
	}
}

// ended is the deletion that a watch has seen.
func (v view) ended(known *Object, s *Sighting) verdict {
	if known == nil || known.UID != s.UID || event.Older(s.Version, known.Version) {
		return verdict{row: rowEndedUnknown}
	}
	r := v.memory.verdict()
	r.changed, r.row = true, rowEndedSilent
	if known.known() {
		r.end(*known, s, s.Fate)
		r.row = rowEnded
	}
	return r
}

// lacking is what a complete list does not have.
func (v view) lacking(known *Object, doubts []Intent, s *Sighting) verdict {
	r := v.memory.verdict()
	r.changed, r.row = known != nil, rowLackingSilent
	for _, o := range holders(known, doubts) {
		fate := Gone
		if s.Fates != nil {
			fate = s.Fates(o.UID)
		}
		r.end(o, s, fate)
		r.row = rowLacking
	}
	return r
}

// keep sets the inventory entry.
func (r *verdict) keep(known *Object, next Object) {
	r.entry, r.changed = r.memory.objects.New(next), known == nil || *known != next
}

// end adds a deletion.
func (r *verdict) end(o Object, s *Sighting, fate Fate) {
	body := s.Body
	if s.Former != nil && o.UID != s.UID {
		body = s.Former
	}
	r.events = append(r.events, ObjectEvent{Type: event.Deleted, Key: s.Key, Object: o, Version: s.Version, Fate: fate, Prepared: s.Prepared, Body: body})
}

// holders are the objects of one name that consumers have or may have, the oldest first.
// An intent is later than the inventory entry of the same uid.
func holders(known *Object, doubts []Intent) []Object {
	var all []Object
	if known.known() && find(doubts, known.UID) == nil {
		all = append(all, *known)
	}
	for i := range doubts {
		all = append(all, doubts[i].Object)
	}
	slices.SortStableFunc(all, comparePublications)
	return all
}

// comparePublications is the order in which consumers expect the ends of two publications of one
// name.
func comparePublications(a, b Object) int {
	switch {
	case a.Run < b.Run, a.Run == b.Run && event.Older(a.At, b.At):
		return -1
	case a.Run == b.Run && a.At == b.At:
		return 0
	}
	return 1
}

func find(doubts []Intent, uid string) *Intent {
	for i := range doubts {
		if doubts[i].UID == uid {
			return &doubts[i]
		}
	}
	return nil
}
