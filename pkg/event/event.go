// Package event has the types that all parts of kubebridge share: the
// event, the batch in which events become durable, and the identities of collections and pipelines.
//
// It imports no other package of the project, so that sources, sinks and stores
// depend on it alone.
package event

import (
	"encoding/json"
	"strconv"
	"time"
)

// Type says what happened.
type Type uint8

// The types of events. The first four are about one object, the next three about a whole collection, and the last ones about requests to the
// API server.
const (
	// Added: the object is new to the collection.
	Added Type = iota + 1
	// Modified: the object has changed. With origin Reconcile, states in between may be
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
	// Attributed: an earlier event's change was made by a user. It changes no object.
	Attributed
	// Denied: the API server has refused a request for an object, or for several. It changes no object.
	Denied
	// Lost: records of the audit log may be missing, so some changes are not attributed, and some refused requests have no event. It is not
	// about a gap of the collection: no change is missing.
	Lost
)

var typeNames = [...]string{"", "added", "modified", "deleted", "present", "gap", "synced", "closed", "attributed", "denied", "lost"}

// String returns the last word of the type's name on the bus: "added", "gap", ….
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "unknown"
}

// OfCollection reports whether t is about a whole collection.
func (t Type) OfCollection() bool { return t >= Gap && t <= Closed }

// OfRequest reports whether t is about requests to the API server: it changes no object.
func (t Type) OfRequest() bool { return t >= Attributed && t <= Lost }

// IsBroadcast reports whether an event of type t is in each partition of its topic, without a key.
func (t Type) IsBroadcast() bool { return t.OfCollection() || t == Lost }

// CollectionKind returns the kind of an event about a collection: "reset" for closed and for a gap with Reset, otherwise the type. It is
// part of compaction keys and subjects, for which a bus may keep the last message only. So a reset and the closing of a collection
// replace each other there, and a later gap replaces neither.
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
	"io.kubebridge.collection.closed.v1", "io.kubebridge.resource.attributed.v1",
	"io.kubebridge.request.denied.v1", "io.kubebridge.audit.lost.v1",
}

// CloudEvent returns the CloudEvents "type" attribute, for example
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
	Audit     Origin = "audit"     // the audit log of the API server
)

// Event is one change of one object, or one event about a collection.
type Event struct {
	Type       Type
	Origin     Origin
	Time       time.Time   // when the bridge saw it
	Collection *Collection // never nil
	Epoch      uint64      // 0 and 1 both mean the first epoch of a cluster

	// The object. Empty in events about a collection.
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	UID        string

	// Run is the run of the collection, a decimal number. In Deleted, it is the run of the
	// publication that the deletion ends.
	Run string
	// Incarnation is the run of the collection's last gap with Reset.
	Incarnation uint64
	// Nth is set in Synced: the number of synced events of the run up to this one.
	Nth uint64
	// Plan is set in events about a collection.
	Plan *Plan

	// ResourceVersion is the object's. In Deleted, it is that of the publication that the deletion ends; in
	// Synced, the version up to which the collection is complete; in Gap, the version up to which it
	// was complete before.
	ResourceVersion string
	// DeletionVersion is set in Deleted: the resourceVersion of the deletion, or of the list that proved
	// the absence; "" if neither is known.
	DeletionVersion string
	// Reason is set in Deleted: "left" if the object exists and is no longer selected, "unknown" if it is not known whether it is
	// gone or left, "" if it is gone.
	Reason string

	// Object is the body as it is published, JSON with apiVersion and kind; nil if it is
	// not known.
	Object []byte

	// These are set in Modified, if they are configured and known. Before is the body of the object that was published last; Patch
	// is the JSON Patch (RFC 6902) from Before to Object; Base is the resourceVersion of Before. Before and Patch
	// are JSON.
	Before []byte
	Patch  []byte
	Base   string

	// ChangedBy lists the field managers that changed Object, in JSON; nil if they are not known.
	ChangedBy []byte

	// LeftOut names the members of data that would have taken too many steps to compute: "changedby".
	LeftOut []string

	// Truncated is set if Object was truncated.
	Truncated *Truncation

	// Actor is the request that made the change, in Added, Modified and Deleted, if the bridge is configured to wait for it and knows it exactly.
	// Then no event of type Attributed follows. The format Plain has no place for it.
	Actor *Request

	// DeadLetter is set on an event that goes to the dead letters.
	DeadLetter *DeadLetter

	// Report is the data of a collection event; nil for others.
	Report *Report

	// Attribution is set in Attributed. The object, Run and ResourceVersion are those of the event that it explains, and Explained is
	// the type of that event.
	Attribution *Attribution
	Explained   Type

	// Denial is set in Denied. Namespace and Name are those of the request, "" if it has none. Kind, UID and ResourceVersion are "".
	// RequestID is part of the id: it identifies the request.
	Denial    *Denial
	RequestID string

	// Loss is set in Lost. There is no object. RequestID identifies the loss.
	Loss *Loss
}

// Plan describes the plan of the resource that an event's collection belongs to. It is in the
// attributes plan, plandigest, edit and birth of events about a collection.
type Plan struct {
	Number uint64 // grows with every change of the plan, like a run
	Digest string // [PlanDigest] of the resource's collections
	Edit   uint64 // the Number of the plan that last changed the collection's properties
	Birth  uint64 // when the checkpoint began or was reset, a number like a run
}

// DeadLetter says why an event is not on its own route. It is in the
// attributes deadletterreason, deadletterroute, deadlettersize and deadletterlimit.
type DeadLetter struct {
	Reason string // Oversize, Rejected or Unredacted
	Route  string // the topic or subject of the event
	Size   int    // size of the record in bytes; 0: the size is not the reason
	Limit  int    // the bus's limit in bytes; 0: the size is not the reason
}

// The reasons of a dead letter.
const (
	Oversize   = "oversize"   // it is larger than the bus's limit
	Rejected   = "rejected"   // the bus rejected it for a reason other than its size
	Unredacted = "unredacted" // its body could not be redacted, and is left out
)

// Truncation describes a body that was left out, and says why.
type Truncation struct {
	Size   int    `json:"size"`            // bytes of the body
	SHA256 string `json:"sha256,omitzero"` // hex digest of the body; "": it was nested too deeply to be redacted
	Limit  int    `json:"limit,omitzero"`  // the bus's limit for a record in bytes; 0: the size is not the reason
	Levels int    `json:"levels,omitzero"` // MaxLevels, if the body was nested more deeply; 0: it was not
	// Fields are the values in the body of the fields that field selectors know, by label, those that the body does not have as "". Values of more than
	// MaxName bytes are in the form of [BoundName]. Nil: they are not known.
	Fields map[string]string `json:"fields,omitzero"`
}

// Report is the data of a collection event. Zero fields are left out.
type Report struct {
	Reason Reason     `json:"reason"`
	Detail string     `json:"detail,omitzero"` // one sentence for people
	Reset  bool       `json:"reset,omitzero"`  // a new incarnation begins: consumers drop their copy of the collection
	From   string     `json:"from,omitzero"`   // in Gap: the resourceVersion up to which the collection was complete before
	To     string     `json:"to,omitzero"`     // in Synced: the resourceVersion up to which the collection is complete
	Since  *time.Time `json:"since,omitzero"`  // in Synced: when the gap began
	Counts *Counts    `json:"counts,omitzero"` // in Synced: how the list differed from the inventory
	// Selection, in Gap and Synced, is what the collection has from this event on.
	Selection Selection `json:"selection,omitzero"`
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

// ID returns the event's id. An event that is published again has the same id. The id consists of
// collection, run, uid, resourceVersion and type; for an event about a collection, of collection,
// run and type, and Nth before the type of Synced. That of an event of type Attributed is the id that it explains, with the type behind it.
// That of type Denied or Lost has no run: it consists of collection, RequestID and type.
// No two events share an id: a run has one gap, and, for each uid and version, one publication and one end.
func (e *Event) ID() string { return string(e.appendID(nil)) }

func (e *Event) appendID(dst []byte) []byte {
	dst = append(append(dst, e.Collection.ID()...), ':')
	if e.Type == Denied || e.Type == Lost {
		dst = append(append(dst, e.RequestID...), ':')
		return append(dst, e.Type.String()...)
	}
	dst = append(append(dst, e.Run...), ':')
	switch {
	case e.Type == Synced:
		dst = append(strconv.AppendUint(dst, e.Nth, 10), ':')
	case !e.Type.OfCollection():
		dst = append(append(dst, e.UID...), ':')
		dst = append(append(dst, e.ResourceVersion...), ':')
	}
	if e.Type == Attributed {
		dst = append(append(dst, e.Explained.String()...), ':')
	}
	return append(dst, e.Type.String()...)
}
