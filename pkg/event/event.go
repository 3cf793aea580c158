// Package event holds what every part of kubebridge speaks of: the normalised
// event, the batch that makes events durable, and the identities both carry.
//
// It imports nothing else of the project, so that a source, a sink or a store
// can be written against it alone.
package event

import (
	"encoding/json"
	"strconv"
	"time"
)

// Type says what happened.
type Type uint8

// The types of an event. The first four concern one object, the last three a
// whole collection.
const (
	// Added: the object is new to the collection.
	Added Type = iota + 1
	// Modified: the object has another state. With origin Reconcile, states in between may be
	// missing.
	Modified
	// Deleted: the collection does not have the object any more.
	Deleted
	// Present: the object exists. It takes the place of Added until the first Synced of an
	// incarnation, and is published in a resync.
	Present
	// Gap: changes may be missing until Synced. With Reset, a new incarnation begins.
	Gap
	// Synced: the collection is complete up to ResourceVersion.
	Synced
	// Closed: the collection is not published any more. Its objects may exist.
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

// CollectionKind is the kind of an event about a collection: "reset" of a gap with Reset and of closed, otherwise the type. It is part of compaction keys and
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

// Origin says where an event comes from.
type Origin string

// The origins of an event.
const (
	Watch     Origin = "watch"     // a live or replayed watch event
	Snapshot  Origin = "snapshot"  // the first list of a collection
	Reconcile Origin = "reconcile" // a list compared with the inventory
	Resync    Origin = "resync"    // the present state, published again
)

// Event is one change of one object, or one event about a collection.
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

	// Run is the run of the collection, a decimal number. Of Deleted, it is the run of the
	// publication that it ends.
	Run string
	// Incarnation is the run of the collection's last gap with Reset.
	Incarnation uint64
	// Nth, of Synced: how many synced events the run has had, this one included.
	Nth uint64
	// Plan, of events about a collection.
	Plan *Plan

	// ResourceVersion is the object's. Of Deleted, it is that of the publication that it ends; of
	// Synced, the version up to which the collection is complete; of Gap, the one up to which it
	// was complete before.
	ResourceVersion string
	// DeletionVersion, of Deleted: the resourceVersion of the deletion, or of the list that proved
	// the absence; "": neither is known.
	DeletionVersion string
	// Reason, of Deleted: "left" if the object exists and is no longer selected, "unknown" if it is
	// gone or left, "" if it is gone.
	Reason string

	// Object is the body as consumers may see it, JSON with apiVersion and kind, or nil if it is
	// not known.
	Object []byte

	// Before is the body that was published of the object last, if it is kept and known; Patch
	// is the JSON Patch (RFC 6902) from Before to Object; Base is the resourceVersion of Before. They
	// are JSON, and nil on anything but Modified.
	Before []byte
	Patch  []byte
	Base   string

	// ChangedBy says which field managers changed Object, in JSON; nil if that is not known.
	ChangedBy []byte

	// LeftOut names the members of data that would have taken too many steps to find out: "changedby".
	LeftOut []string

	// Truncated is set when Object was cut down.
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
	Birth  uint64 // when the checkpoint began or was reset, a number like a run
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

// Truncation describes the body that was left out, and says why.
type Truncation struct {
	Size   int    `json:"size"`            // bytes of the body
	SHA256 string `json:"sha256,omitzero"` // hex digest of the body; "": it was nested too deeply to be redacted
	Limit  int    `json:"limit,omitzero"`  // bytes a record may have on that bus; 0: size is not the matter
	Levels int    `json:"levels,omitzero"` // MaxLevels, if the body was nested more deeply; 0: it was not
}

// Report is the data of a collection event. Zero fields are left out.
type Report struct {
	Reason Reason     `json:"reason"`
	Detail string     `json:"detail,omitzero"` // one sentence for a human
	Reset  bool       `json:"reset,omitzero"`  // a new incarnation begins: consumers drop their copy of the collection
	From   string     `json:"from,omitzero"`   // of Gap: the resourceVersion up to which the collection was complete before
	To     string     `json:"to,omitzero"`     // of Synced: the resourceVersion up to which the collection is complete
	Since  *time.Time `json:"since,omitzero"`  // of Synced: when the gap began
	Counts *Counts    `json:"counts,omitzero"` // of Synced: how the list differed from the inventory
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

// Counts are numbers of objects.
type Counts struct {
	Listed    int `json:"listed"`
	Added     int `json:"added"`
	Modified  int `json:"modified"`
	Deleted   int `json:"deleted"`
	Present   int `json:"present"`
	Unchanged int `json:"unchanged"`
	Skipped   int `json:"skipped,omitzero"`  // not published, as configured
	Filtered  int `json:"filtered,omitzero"` // a filter leaves them out
}

// ID is the event's id: the same event has the same id however often it is published. It is made of
// collection, run, uid, resourceVersion and type; of an event about a collection, of collection,
// run and type, with Nth before the type of Synced. No two events share an ID: a run has one gap,
// and one publication and one end of each uid and version.
func (e *Event) ID() string { return string(e.appendID(nil)) }

func (e *Event) appendID(dst []byte) []byte {
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
