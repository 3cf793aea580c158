package source

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Phase is what a collection is doing.
type Phase string

// The phases of a collection.
const (
	Discovering Phase = "discovering" // finding out what the server calls it
	Reconciling Phase = "reconciling" // listing
	Watching    Phase = "watching"    // in step with the server
	Waiting     Phase = "waiting"     // a failure; trying again at Until
	Stalled     Phase = "stalled"     // a watch is open and says nothing, and probes fail
	Gone        Phase = "gone"        // what the objects lived in was deleted
)

// State is a collection's phase, for people and metrics.
type State struct {
	Phase Phase
	Since time.Time
	Until time.Time // of Waiting and Stalled: the next try
	// Left is how many objects of a list are on the pages to come, of Reconciling.
	// nil: the server does not say (it does for lists without selectors).
	Left *int64
	// Err says why, of Waiting and Stalled. Of Watching it is what keeps the
	// collection from knowing that the server's history is still the position's.
	Err error
}

// Attempt says whether a collection's list before this one ended because the server was slow.
type Attempt uint8

// The attempts.
const (
	First Attempt = iota // it did not, or there was none
	Retry                // it did: no answer or a stalled one, a failure after 5 s or more, or 504
)

// Slots are what a list needs one of while it is read. Of each there is one Release after one Acquire.
type Slots interface {
	// Acquire waits for a slot. Slots should be kept for first attempts: retries may be of lists that
	// the server never answers.
	Acquire(ctx context.Context, a Attempt) error
	Release(a Attempt)
}

// Options of a [Collection]. The zero value of each optional field is usable.
type Options struct {
	Client *Client // required
	// Target is required. Its Resource.Version is "" when the server is known not to
	// serve the resource: Run then reads nothing, and looks for a proof of absence.
	Target  Target
	Handler Handler // required
	// Owner is what the last complete list came with, see [Signal.Owner]. A CRD of
	// another UID proves that the objects are gone.
	Owner Owner
	// Lists bounds how many lists are under way at once, over all collections
	// that share it. nil: no bound.
	Lists Slots
	// Seen returns the highest resourceVersion that was seen of the server's present history, which
	// a server of that history cannot be behind; "": none was. It is called from Run's goroutine.
	// nil: only what Run itself saw since its position counts.
	Seen func() string
	// Epochs is shared by the collections that read one storage for one handler of epochs. nil: the collection has its own.
	Epochs *Epochs
	// OnState is called with every change of state, from Run's goroutine. May be nil.
	OnState func(State)
}

// Collection lists and watches one set of objects.
type Collection struct {
	client   *Client
	target   Target
	handler  Handler // the relay
	relay    *relay
	lists    Slots
	seen     func() string
	onState  func(State)
	epochs   *Epochs
	leavable bool
	asked    questions
	streams  pause       // after a streamed list that broke off
	slow     atomic.Bool // the last list failed for that, see Attempt

	// Of Run's goroutine.
	owner     Owner
	untouched bool // since owner was read no watch has reported an object
	bookmarks bool // were seen
}

// NewCollection returns a collection that is not yet running.
func NewCollection(o Options) *Collection {
	c := &Collection{
		client: o.Client, target: o.Target, lists: o.Lists, seen: o.Seen, onState: o.OnState,
		leavable: o.Target.leavable(), owner: o.Owner, epochs: o.Epochs,
	}
	c.relay = &relay{c: c, to: o.Handler}
	c.handler = c.relay
	if c.lists == nil {
		c.lists = unbounded{}
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

// unbounded are as many slots as are wanted.
type unbounded struct{}

func (unbounded) Acquire(ctx context.Context, _ Attempt) error { return ctx.Err() }
func (unbounded) Release(Attempt)                              {}

// highest is the later of rv, "" for none, and what was seen by [Options].Seen.
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
