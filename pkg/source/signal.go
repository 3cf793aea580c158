// Package source reads Kubernetes collections: it lists and watches them over
// client-go's REST client, object by object as raw bytes, and passes what it saw on
// to a handler, with the position that a later watch may resume from.
package source

import (
	"context"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// SignalKind says what a [Signal] reports.
type SignalKind uint8

// The kinds of a signal. A list is ListBegun, any number of Listed, ListEnded;
// one that breaks off is followed by another ListBegun, never by ListEnded. While
// a list is streamed an object may change, and is Listed again, or be Deleted.
const (
	// ListBegun: the server has given the first page of a list. From here on
	// nothing is known until ListEnded. Reason and Detail
	// say why, RV is the last resourceVersion known to be complete, "" if none.
	ListBegun SignalKind = iota + 1
	// Listed: one object of the list.
	Listed
	// ListEnded: the list was complete at RV; what it lacked did not exist then.
	ListEnded
	// Added, Modified, Deleted: a watch event with its object. Deleted carries the
	// last body, and the deletion's resourceVersion.
	Added
	Modified
	Deleted
	// Progress: everything that happened before RV was passed on (a bookmark). More
	// can come at RV itself.
	Progress
)

// Signal is what a collection passes on to its handler, in the order of the server.
type Signal struct {
	Kind   SignalKind
	Object *Object      // of Listed, Added, Modified, Deleted
	RV     string       // of ListBegun, ListEnded, Progress
	Reason event.Reason // of ListBegun
	Detail string       // of ListBegun: one sentence for a human
	// NewEpoch, of ListBegun: the server's history is not the one that the
	// position belongs to (an etcd restored from a backup).
	NewEpoch bool
	// Left, of Deleted: the object was found alive; it only left the selection.
	Left bool
	// LeftUnknown, of Deleted: whether the object only left the selection could not be found out.
	LeftUnknown bool
	// Owner, of ListEnded: what the listed objects live and die with.
	Owner Owner
	// Resume is the resourceVersion that a watch may be started from when
	// everything up to this signal has been handled; "" during a list. One
	// resourceVersion can carry many events, so it trails what was seen.
	Resume string
}

// left notes what [Collection.Alive] returned for the object of a Deleted.
func (s *Signal) left(alive, known bool) { s.Left, s.LeftUnknown = alive, !known }

// Handler takes what a collection saw. Handle is called from one goroutine, in
// order, and may block: the collection then stops reading. An error ends the
// collection's Run.
type Handler interface {
	Handle(ctx context.Context, s Signal) error
}

// ReasonSnapshot is the reason of the first list of a collection. A list has it, or one of the reasons of
// [event.Gap].
const ReasonSnapshot event.Reason = "snapshot"

// Owner holds the UIDs of what a collection's objects cannot outlive. "" is: not
// known, or no such thing.
type Owner struct {
	CRD       string // the CustomResourceDefinition that defines the resource
	Namespace string // the collection's namespace
}
