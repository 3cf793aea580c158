// Package source reads Kubernetes collections. It lists and watches them over
// client-go's REST client, and passes each object as raw bytes to
// a handler, with the position from which a later watch may resume.
package source

import (
	"context"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// SignalKind is the kind of a [Signal].
type SignalKind uint8

// The kinds of a signal. A list is ListBegun, any number of Listed, ListEnded.
// An interrupted list is followed by another ListBegun, never by ListEnded. While
// a list is streamed, an object may change and be Listed again, or be Deleted.
const (
	// ListBegun: the server has sent the first page of a list. The copy is
	// incomplete until ListEnded. Reason and Detail give the reason of the list.
	// RV is the last resourceVersion known to be complete, "" if none.
	ListBegun SignalKind = iota + 1
	// Listed: one object of the list.
	Listed
	// ListEnded: the list was complete at RV. Objects that it lacks did not exist at RV.
	ListEnded
	// Added, Modified, Deleted: a watch event with its object. Deleted carries the
	// last body, and the deletion's resourceVersion.
	Added
	Modified
	Deleted
	// Progress: every change before RV has been passed on (a bookmark). More
	// changes can come at RV itself.
	Progress
)

// Signal is a message from a collection to its handler. Signals come in the order of the server.
type Signal struct {
	Kind   SignalKind
	Object *Object      // of Listed, Added, Modified, Deleted
	RV     string       // of ListBegun, ListEnded, Progress
	Reason event.Reason // of ListBegun
	Detail string       // of ListBegun: one sentence for a human
	// NewEpoch, of ListBegun: the position does not belong to the server's
	// history (for example after etcd was restored from a backup).
	NewEpoch bool
	// Left, of Deleted: the object still exists; it only left the selection.
	Left bool
	// LeftUnknown, of Deleted: it is unknown whether the object only left the selection.
	LeftUnknown bool
	// Owner, of ListEnded: the CRD and the namespace whose deletion deletes the listed objects.
	Owner Owner
	// Resume is the resourceVersion from which a watch may start after
	// all signals up to this one have been handled; "" during a list. One
	// resourceVersion can have many events, so Resume trails the seen resourceVersion.
	Resume string
}

// left records the result of [Collection.Alive] for the object of a Deleted.
func (s *Signal) left(alive, known bool) { s.Left, s.LeftUnknown = alive, !known }

// Handler receives the signals of a collection. Handle is called from one goroutine, in
// order. While it blocks, the collection stops reading. An error ends the
// collection's Run.
type Handler interface {
	Handle(ctx context.Context, s Signal) error
}

// ReasonSnapshot is the reason of a list of a collection without a position: the first one, or one after its resource did not exist.
// Other lists have one of the reasons of [event.Gap].
const ReasonSnapshot event.Reason = "snapshot"

// Owner holds the UIDs of the objects whose deletion deletes all objects of a collection. "": not
// known, or there is none.
type Owner struct {
	CRD       string // the CustomResourceDefinition that defines the resource
	Namespace string // the collection's namespace
}
