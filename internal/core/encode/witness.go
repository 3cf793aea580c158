package encode

import (
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Witness knows who made changes. It adds to events, and decides neither whether nor in which order they are published: audit records
// can be forged (docs/security.md). The goroutine that uses the encoder calls its methods. They do not block.
type Witness interface {
	// Publish is called once for the event of each object, before it is encoded. It returns the request that made the change,
	// if it is known and the event has room for it; otherwise the change of the store that is committed with the event. Without
	// a key there is none.
	Publish(p *Publication) (*event.Request, event.KV)
	// Carries reports whether an event that is not committed has its request.
	Carries(id PublicationID) bool
	// Published is called when the event is on the bus and in the store.
	Published(id PublicationID)
}

// Chronicle has the events that are about no object's state. The goroutine that uses the encoder calls its methods. They do not
// block.
type Chronicle interface {
	// Complete completes an event by the number of its item. Time, Collection, Epoch, Run and Incarnation are set; the last two
	// are the present ones. It returns the change of the store that is committed with the event.
	Complete(number uint64, e *event.Event) event.KV
	// Reject is called when the bus does not take the event: the next one is smaller. final says that there will be none.
	// object is the name of what it is about.
	Reject(number uint64) (object string, final bool)
}

// Publication is an object's event that is about to be encoded.
type Publication struct {
	*event.Event
	Item *reconcile.Item
	// Known says that the event follows from a sighting, and KnownUID and KnownVersion are of the inventory entry that it found;
	// "": there was none.
	Known                  bool
	KnownUID, KnownVersion string
	// Selects says that a filter or a selector may have left the object out before.
	Selects bool
	// Room says that the event has room for a request: it is not reduced, and consumers cannot have it without one.
	Room bool
}

// PublicationID identifies the event of an object within one incarnation. Version is its resourceversion.
type PublicationID struct {
	Collection, UID, Version string
	Deleted                  bool
}

// in returns the ID of a publication of a collection.
func (p publication) in(c *collection) PublicationID {
	return PublicationID{Collection: c.id, UID: p.uid, Version: p.version, Deleted: p.deleted}
}

// ask asks the witness for the request that made the change of an object's event. whole says that the event is not reduced.
func (e *Encoder) ask(c *collection, i *reconcile.Item, ev *event.Event, whole bool) (change event.KV) {
	if e.Witness == nil {
		return change
	}
	p := Publication{
		Event: ev, Item: i,
		Selects: c.filter != nil || c.eventCollection.LabelSelector != "" || c.eventCollection.FieldSelector != "",
	}
	if f := factsOf(i); f != nil {
		p.Known, p.KnownUID, p.KnownVersion = true, f.knownUID, f.knownVersion
		p.Room = whole && !f.inDoubt
	}
	ev.Actor, change = e.Witness.Publish(&p)
	return change
}

// chronicled makes the record of an event that is about no object's state.
func (e *Encoder) chronicled(c *collection, i *reconcile.Item, ev *event.Event) (event.Record, []event.KV) {
	changes := e.open.changes.Take(1)
	changes[0] = e.Chronicle.Complete(i.Attribution.ID, ev)
	return e.record(c, i, ev, nil), changes
}
