package source

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Phase is the phase of a collection.
type Phase string

// The phases of a collection.
const (
	Discovering Phase = "discovering" // looking up the resource
	Reconciling Phase = "reconciling" // listing
	Watching    Phase = "watching"    // receiving changes
	Waiting     Phase = "waiting"     // a request failed; the next attempt is at Until
	Stalled     Phase = "stalled"     // a watch is open without events, and probes fail
	Gone        Phase = "gone"        // the CRD or the namespace was deleted
	// Buffered: what was buffered on disk is read. A [Collection] has no such phase; its user may show it.
	Buffered Phase = "buffered"
)

// State is a collection's phase, for people and metrics.
type State struct {
	Phase Phase
	Since time.Time
	Until time.Time // for Waiting and Stalled: time of the next attempt
	// Left is, for Reconciling, the number of objects on the pages that have not been read.
	// nil: the server does not report it (it does for lists without selectors).
	Left *int64
	// Err is the reason for Waiting and Stalled. For Watching it is the error because of which it is unknown whether
	// the server still has the history of the position.
	Err error
}

// Attempt says whether the previous list of a collection ended because the server was slow.
type Attempt uint8

// The attempts.
const (
	First Attempt = iota // there was no previous list, or it did not end for that reason
	Retry                // the server sent no answer, or stalled in it; or the list failed after 5 s or more, or with 504
)

// Slots limit the lists that are read at once: a list holds a slot while it is read. One Release follows each successful Acquire.
type Slots interface {
	// Acquire waits for a slot. An implementation should reserve slots for first attempts, because a retry may be for a list that
	// the server never answers.
	Acquire(ctx context.Context, a Attempt) error
	Release(a Attempt)
}

// Options of a [Collection]. The zero value of each optional field is usable.
type Options struct {
	Client *Client // required
	// Target is required. Its Resource.Version is "" if the server does not
	// serve the resource: Run then reads no objects, and looks for a proof of absence.
	Target  Target
	Handler Handler // required
	// Owner is the owner of the last complete list, see [Signal.Owner]. A CRD with
	// another UID proves that the objects do not exist any more.
	Owner Owner
	// Lists bounds how many lists run at once, over all collections
	// that share it. nil: no bound.
	Lists Slots
	// Seen returns the highest resourceVersion that was seen in the server's present history; "": none. A server
	// that is behind it has another history. It is called from Run's goroutine.
	// nil: only resourceVersions that Run itself has seen count.
	Seen func() string
	// Epochs is shared by the collections that read one storage for one handler of epochs. nil: the collection has its own.
	Epochs *Epochs
	// OnState is called with every change of state, from Run's goroutine. May be nil.
	OnState func(State)
	// OnInStep is called, from Run's goroutine, when it is known that the handler has received every change that was made before a time: the
	// time is that of the begin of a complete list, or of a probe that the watch has passed. While a watch is in step with the API server, that is
	// about once a minute, and about every two minutes if the server sends no bookmarks. While it blocks, the collection stops reading. May be nil.
	OnInStep func(before time.Time)
	// OnReconnect is called, from Run's goroutine, before a watch that does not continue another one, at the start and after a failure. A probe has
	// shown that the server is not behind Seen, or has failed. Whether the server has the history of the position is not known: it may have
	// been restored from a backup, and written since. May be nil.
	OnReconnect func()
}

// Collection lists and watches one set of objects.
type Collection struct {
	client      *Client
	target      Target
	handler     Handler // the relay
	relay       *relay
	lists       Slots
	seen        func() string
	onState     func(State)
	onInStep    func(before time.Time)
	onReconnect func()
	epochs      *Epochs
	leavable    bool
	asked       questions
	streams     pause       // begins when a streamed list breaks off; until its end, lists are paged
	slow        atomic.Bool // the last list failed because the server was slow, see Attempt
	bounds      Target      // the key of its bounds, see listwatch.Bounds

	// Only Run's goroutine uses the fields below.
	owner     Owner
	untouched bool // no watch has reported an object since owner was read
	bookmarks bool // the server has sent bookmarks
}

// NewCollection returns a collection that is not yet running.
func NewCollection(o Options) *Collection {
	c := &Collection{
		client: o.Client, target: o.Target, lists: o.Lists, seen: o.Seen, onState: o.OnState, onInStep: o.OnInStep, onReconnect: o.OnReconnect,
		leavable: o.Target.leavable(), owner: o.Owner, epochs: o.Epochs,
	}
	c.bounds = o.Target
	c.bounds.Collection.Entry = "" // as for watches
	c.relay = &relay{c: c, to: o.Handler}
	c.handler = c.relay
	if c.lists == nil {
		c.lists = unbounded{}
	}
	if c.onInStep == nil {
		c.onInStep = func(time.Time) {}
	}
	if c.onReconnect == nil {
		c.onReconnect = func() {}
	}
	if c.epochs == nil {
		c.epochs = new(Epochs)
	}
	if c.seen == nil {
		c.seen = func() string { return "" }
	}
	if c.onState == nil {
		c.onState = func(State) {}
	}
	return c
}

// unbounded implements [Slots] without a limit.
type unbounded struct{}

func (unbounded) Acquire(ctx context.Context, _ Attempt) error { return ctx.Err() }
func (unbounded) Release(Attempt)                              {}

// highest returns the later one of rv, "" for none, and the result of [Options].Seen.
func (c *Collection) highest(rv string) string {
	if seen := c.seen(); rv == "" || event.Older(rv, seen) {
		return seen
	}
	return rv
}

func (c *Collection) state(s State) {
	s.Since = time.Now()
	c.onState(s)
}
