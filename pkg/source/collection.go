package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

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
	Until time.Time // of Waiting: the next try
	Err   error     // of Waiting: why
}

// Options of a [Collection]. The zero value of each optional field is usable.
type Options struct {
	Client  *Client // required
	Target  Target  // required
	Handler Handler // required
	// Lists bounds how many lists are under way at once, over all collections
	// that share it. nil: no bound.
	Lists *semaphore.Weighted
	// OnState is told of every change of state, from Run's goroutine. May be nil.
	OnState func(State)
	Owner Owner
}

// Collection lists and watches one set of objects.
type Collection struct {
	client  *Client
	target  Target
	handler Handler
	lists   *semaphore.Weighted
	onState func(State)
}

// NewCollection returns a collection that is not yet running.
func NewCollection(o Options) *Collection {
	c := &Collection{client: o.Client, target: o.Target, handler: o.Handler, lists: o.Lists, onState: o.OnState}
	if c.lists == nil {
		c.lists = semaphore.NewWeighted(1 << 30)
	}
	if c.onState == nil {
		c.onState = func(State) {}
	}
	return c
}

const (
	minWatch = 5 * time.Minute // asked of the server; twice that at most
	// graceWatch is how much longer than asked a watch may last before it counts
	// as dead: over HTTP/1.1 a half-open connection is noticed by nothing else.
	graceWatch = 30 * time.Second
	// maxBlocked is how long a watch stays open that nobody reads: the server
	// would cut it off soon, and its buffers are ours until then.
	maxBlocked = 10 * time.Second
	// A server that ends watches at once, again and again, has lost the history.
	emptyCloses     = 3
	emptyCloseQuick = 2 * time.Second
	// So has one that ends watches from one resourceVersion with an error of its
	// own (an event whose previous value etcd has compacted away).
	maxFailures = 5
	// soundWatch is how long watches must last for the next failure to count as
	// the first.
	soundWatch = time.Minute
)

var errExpired = errors.New("no longer served")

// Run lists and watches from position until ctx ends or the handler returns an
// error, which Run then returns. A void position, or one that the server has
// forgotten, begins with a list.
func (c *Collection) Run(ctx context.Context, from event.Position) error {
	at := cursor{resume: from.RV, last: from.RV}
	reason, detail := ReasonSnapshot, ""
	if from.Void {
		reason, detail = ReasonInterrupted, "an earlier list did not come to its end"
	}
	void, listed := !from.Resumable(), ""
	retry := newBackoff()
	for {
		var err error
		if void {
			c.state(State{Phase: Reconciling})
			var rv string
			rv, err = c.list(ctx, Signal{Kind: ListBegun, RV: at.resume, Reason: reason, Detail: detail})
			if err == nil {
				at, void, listed = cursor{resume: rv, last: rv}, false, rv
				continue
			}
			if isExpired(err) {
				reason, detail = ReasonInterrupted, "the server forgot the list before it came to its end"
			}
		} else {
			before, began := at.resume, time.Now()
			err = c.watch(ctx, &at)
			if at.resume != before || time.Since(began) > soundWatch {
				retry.reset()
			}
			if errors.Is(err, errExpired) {
				void, reason, detail = true, ReasonExpired, err.Error()
				if at.resume != listed { // else lists would follow each other at once
					continue
				}
			}
		}
		var fromHandler handlerError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &fromHandler):
			return fromHandler.error
		case err == nil:
			continue
		}
		d := retry.after(err)
		c.state(State{Phase: Waiting, Until: time.Now().Add(d), Err: err})
		if err := sleep(ctx, d); err != nil {
			return err
		}
	}
}

func (c *Collection) state(s State) {
	s.Since = time.Now()
	c.onState(s)
}

// watch opens watches from at, one after another, as long as they end well. It
// returns nil never, errExpired when a list is due, and any other error when it
// is time to wait.
func (c *Collection) watch(ctx context.Context, at *cursor) error {
	empty, since := 0, time.Now()
	for {
		frames, err := c.watchOnce(ctx, at)
		switch {
		case err == nil && frames > 0:
			empty, since = 0, time.Now()
			continue
		case err != nil:
			return err
		}
		if empty++; empty >= emptyCloses {
			if time.Since(since) < emptyCloseQuick {
				return fmt.Errorf("resourceVersion %s is %w: %d watches from it ended at once", at.resume, errExpired, empty)
			}
			empty, since = 0, time.Now()
		}
	}
}

// watchOnce opens one watch and handles its frames, whose number it returns. A
// nil error is the server's own, orderly end.
func (c *Collection) watchOnce(ctx context.Context, at *cursor) (frames int, err error) {
	timeout := minWatch + rand.N(minWatch)
	stream, cancel := context.WithTimeout(ctx, timeout+graceWatch)
	defer cancel()
	body, err := c.request(watchForm).
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(timeout/time.Second))).
		Param("resourceVersion", at.resume).
		Stream(stream)
	if err != nil {
		return 0, c.watchError(at, err)
	}
	defer body.Close()
	c.state(State{Phase: Watching})
	var blocked atomic.Bool
	tooLong := time.AfterFunc(time.Hour, func() { blocked.Store(true); cancel() })
	defer tooLong.Stop()
	at.last = at.resume // what came after resume comes again
	r := newFrameReader(body)
	for {
		kind, o, err := r.next()
		if errors.Is(err, io.EOF) || blocked.Load() {
			return frames, nil
		}
		if err != nil {
			if statusCode(err) >= http.StatusInternalServerError {
				at.failures++
			}
			return frames, c.watchError(at, err)
		}
		frames++
		at.saw(o.ResourceVersion)
		s := Signal{Object: o, Resume: at.resume}
		switch kind {
		case "ADDED":
			s.Kind = Added
		case "MODIFIED":
			s.Kind = Modified
		case "DELETED":
			s.Kind = Deleted
		case "BOOKMARK":
			s.Kind, s.Object, s.RV = Progress, nil, o.ResourceVersion
		default:
			return frames, fmt.Errorf("watch: a frame of unknown type %q", kind)
		}
		if s.Object != nil {
			s.Object.restoreGVK(c.target.Resource.APIVersion(), c.target.Resource.Kind)
		}
		tooLong.Reset(maxBlocked)
		err = c.handler.Handle(ctx, s)
		tooLong.Stop()
		if err != nil {
			return frames, handlerError{err}
		}
	}
}

func (c *Collection) watchError(at *cursor, err error) error {
	if isExpired(err) || at.failures >= maxFailures {
		return fmt.Errorf("resourceVersion %s is %w: %w", at.resume, errExpired, err)
	}
	return fmt.Errorf("watch: %w", plainCause(err))
}
