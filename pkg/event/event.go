// Package event holds what every part of kubebridge speaks of: the normalised
// event, the batch that makes events durable, and the identities both carry.
//
// It imports nothing else of the project, so that a source, a sink or a store
// can be written against it alone.
package event

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"
)

// Type says what happened.
type Type uint8

// The types of an event. The first four concern one object, the last three a
// whole collection.
const (
	// Added announces an object that the bus has not been told of.
	Added Type = iota + 1
	// Modified tells a new state of an announced object. With origin Reconcile
	// the updates in between are not known.
	Modified
	// Deleted ends an object. With reason "left" it only left the selection.
	Deleted
	// Present repeats the state of an object after a reset or a resync.
	Present
	// Gap opens a snapshot, reconcile, resync or reset: from here until Synced
	// the bus does not mirror the collection.
	Gap
	// Synced closes what Gap opened: the bus is complete up to ResourceVersion.
	Synced
	// Closed says that a collection is no longer watched. Its objects live on.
	Closed
)

var typeNames = [...]string{"", "added", "modified", "deleted", "present", "gap", "synced", "closed"}

// String is the last word of the type's name on the bus: "added", "gap", ….
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// OfCollection reports whether t concerns a whole collection.
func (t Type) OfCollection() bool { return t >= Gap }

// CollectionKind is the kind of an event about a collection, in the contract of docs/adr/0017:
// "reset" of a gap with Reset and of closed, otherwise the type. It is part of compaction keys and
// subjects, of which a bus may keep the last message only. A reset and the closing of a collection
// replace each other there; a later gap replaces neither.
func (e *Event) CollectionKind() string {
	if e.Type == Closed || e.Type == Gap && e.Report != nil && e.Report.Reset {
		return "reset"
	}
	return e.Type.String()
}

var cloudEventTypes = [...]string{
	"io.kubebridge.resource..v1",
	"io.kubebridge.resource.added.v1", "io.kubebridge.resource.modified.v1", "io.kubebridge.resource.deleted.v1",
	"io.kubebridge.resource.present.v1", "io.kubebridge.collection.gap.v1", "io.kubebridge.collection.synced.v1",
	"io.kubebridge.collection.closed.v1",
}

// CloudEvent is the CloudEvents "type" attribute, for example
// "io.kubebridge.resource.added.v1".
func (t Type) CloudEvent() string {
	if int(t) < len(cloudEventTypes) {
		return cloudEventTypes[t]
	}
	return "io.kubebridge.collection.unknown.v1"
}

// Origin says how the bridge learned of an event.
type Origin string

// The origins of an event.
const (
	Watch     Origin = "watch"     // a live or replayed watch event
	Snapshot  Origin = "snapshot"  // the first list of a collection
	Reconcile Origin = "reconcile" // a list compared with the inventory
	Resync    Origin = "resync"    // the present state told again on request
)

// Event is one change of one object, or one statement about a collection.
type Event struct {
	Type       Type
	Origin     Origin
	Time       time.Time   // when the bridge saw it
	Collection *Collection // never nil
	Epoch      uint64      // 0 and 1 are the first history of a cluster

	// The object. Empty in events about a collection.
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	UID        string

	// ResourceVersion is the object's; of a deletion, the deletion's or, when
	// that is not known, the list's that proved the absence; of a collection
	// event, the position it speaks of.
	ResourceVersion string

	// Entry is the revision (see [Revision]) at which the object was announced,
	// and part of a deletion's id (see [Event.ID]).
	Entry string

	// Again counts how often the bus was told of this ResourceVersion of the
	// object before: with another body, or before the object left the selection.
	Again uint64

	// Object is the body as it may be seen, JSON with apiVersion and kind, or
	// nil when it is not known (a synthesised deletion).
	Object []byte

	// Before is the body last told of the object, where it is kept and known; Patch
	// what makes Object of it, a JSON Patch (RFC 6902); Base its resourceVersion. They
	// are JSON, and nil on anything but Modified.
	Before []byte
	Patch  []byte
	Base   string

	// ChangedBy tells by whom Object was changed, in JSON; nil where that is not known.
	ChangedBy []byte

	// Run tells one resync or reset from another: of Present, and of collection
	// events that may come again at one ResourceVersion.
	Run string

	// Reason refines a type: "left" on Deleted; with Incarnation also "unknown": the object is
	// gone or left.
	Reason string

	// Incarnation is the run of the collection's last gap with Reset. It is not zero in events
	// of the contract of docs/adr/0017, in which Run is a decimal number that every event
	// has. Of Deleted, Run and ResourceVersion are those of the publication that it ends.
	Incarnation uint64
	// DeletionVersion, of Deleted with Incarnation: the resourceVersion of the deletion, or of
	// the list that proved the absence; "" where neither is known.
	DeletionVersion string
	// Nth, of Synced with Incarnation: how many synced events the run has had, this one
	// included.
	Nth uint64
	// Plan, of events about a collection, with Incarnation.
	Plan *Plan

	// Truncated is set when Object was cut down to fit the bus.
	Truncated *Truncation

	// DeadLetter is set on an event that goes to the dead letters.
	DeadLetter *DeadLetter

	// Report is the body of a collection event, and nil otherwise.
	Report *Report
}

// Plan says to which collections of a resource an event's collection belongs. It stands in the
// attributes plan, plandigest, edit and birth of events about a collection.
type Plan struct {
	Number uint64 // grows with every change of the plan, like a run
	Digest string // of the IDs of the resource's collections, each with its Edit: [PlanDigest]
	Edit   uint64 // the Number with which the collection's properties changed last
	Birth  uint64 // when the checkpoint began, a number like a run
}

// DeadLetter says why an event is not where it belongs. It stands in the
// attributes deadletterreason, deadletterroute, deadlettersize, deadletterlimit.
type DeadLetter struct {
	Reason string // one of those below
	Route  string // the topic or subject that it would have gone to
	Size   int    // bytes that the bus was asked to take; 0: size is not the matter
	Limit  int    // bytes that it takes; 0: size is not the matter
}

// The reasons of a dead letter.
const (
	Oversize   = "oversize"   // it is larger than the bus takes
	Rejected   = "rejected"   // the bus does not take it, whatever its size
	Unredacted = "unredacted" // its body could not be redacted, and is left out
)

// Truncation describes the body that did not fit.
type Truncation struct {
	Size   int    `json:"size"`   // bytes of the body left out
	SHA256 string `json:"sha256"` // hex digest of that body
	Limit  int    `json:"limit"`  // bytes a record may have on that bus
}

// Report is the data of a collection event. Zero fields are left out.
type Report struct {
	Reason string     `json:"reason"`          // see docs/events.md
	Detail string     `json:"detail,omitzero"` // one sentence for a human
	Reset  bool       `json:"reset,omitzero"`  // the consumer drops its copy of the collection
	From   string     `json:"from,omitzero"`   // the last resourceVersion known to be complete
	To     string     `json:"to,omitzero"`     // the resourceVersion complete again (synced)
	Since  *time.Time `json:"since,omitzero"`  // when the gap opened (synced)
	Counts *Counts    `json:"counts,omitzero"` // what the list and the inventory differed by (synced)
}

// MarshalJSON writes Since in [TimeFormat].
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	since := ""
	if r.Since != nil {
		since = r.Since.UTC().Format(TimeFormat)
	}
	return json.Marshal(struct {
		plain
		Since string `json:"since,omitzero"`
	}{plain(r), since})
}

// Counts are numbers of objects. Of a resync, beside which the watch goes on, Modified are
// those listed that the watch told instead, Added what it told beyond the list, Deleted
// what it ended of Present, and Unchanged what nothing told.
type Counts struct {
	Listed    int `json:"listed"`
	Added     int `json:"added"`
	Modified  int `json:"modified"`
	Deleted   int `json:"deleted"`
	Present   int `json:"present"`
	Unchanged int `json:"unchanged"`
	Skipped   int `json:"skipped,omitzero"`  // not announced, as configured
	Filtered  int `json:"filtered,omitzero"` // a filter leaves them out
}

// ID is the event's identity (design rule 7): the same change has the same id
// however often and from wherever it is told.
func (e *Event) ID() string { return string(e.appendID(nil)) }

// appendEntryID appends collection, run, uid, resourceVersion and type; of an event about a
// collection, collection, run and type, with Nth before the type of Synced. No two events
// share an ID: a run has one gap, and one publication and one end of each uid and version.
func (e *Event) appendEntryID(dst []byte) []byte {
	dst = append(append(dst, e.Collection.ID()...), ':')
	dst = append(append(dst, e.Run...), ':')
	switch {
	case e.Type == Synced:
		dst = append(strconv.AppendUint(dst, e.Nth, 10), ':')
	case !e.Type.OfCollection():
		dst = append(append(dst, e.UID...), ':')
		dst = append(append(dst, e.ResourceVersion...), ':')
	}
	return append(dst, e.Type.String()...)
}

func (e *Event) appendID(dst []byte) []byte {
	if e.Incarnation != 0 {
		return e.appendEntryID(dst)
	}
	if e.Type.OfCollection() {
		dst = append(append(dst, e.Collection.ID()...), ':')
		dst = append(strconv.AppendUint(dst, max(e.Epoch, 1), 10), ':')
		dst = append(dst, cmp.Or(e.ResourceVersion, "0")...) // before the first snapshot
		dst = append(append(dst, ':'), e.Type.String()...)
		if e.Run != "" {
			dst = append(append(dst, ':'), e.Run...)
		}
		return dst
	}
	if e.Epoch > 1 {
		dst = append(strconv.AppendUint(append(dst, 'e'), e.Epoch, 10), ':')
	}
	dst = append(append(dst, e.UID...), ':')
	switch e.Type {
	case Deleted:
		dst = append(dst, e.Entry...)
	case Present:
		dst = append(dst, e.ResourceVersion...)
	default:
		dst = append(dst, Revision(e.ResourceVersion, e.Again)...)
	}
	dst = append(append(dst, ':'), e.Type.String()...)
	if e.Type == Present {
		dst = append(append(dst, ':'), e.Run...)
	}
	return dst
}

// Revision is a resourceVersion as it stands in ids: with a counter behind it
// from the second time on that the bus is told of it.
func Revision(resourceVersion string, again uint64) string {
	if again == 0 {
		return resourceVersion
	}
	return resourceVersion + "." + utoa(again+1)
}
