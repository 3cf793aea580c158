package source

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// joinWithin is how long a collection waits for another one that opens a watch of the same target.
	joinWithin = 2 * time.Second
	// reopenWithin is how long after its end a watch is opened again from its own position, for all that read it.
	reopenWithin = 10 * time.Second
)

// watches are the open watches of a client. All collections that read one target share one watch, if it covers their positions:
//
//	a collection needs a watch, and               it
//	the shared watch covers its position          joins it
//	another collection is opening one             waits for joinWithin, and looks again
//	there is none                                 opens one, which is shared
//	the shared watch does not cover its position  opens a watch for itself
//
//	a collection with a watch for itself, all of whose frames are handled, and
//	the shared watch covers its position now      closes its own, and joins
//	there is none, or it covers less              shares its own, which the others join
//
// A collection that is slower than others loses its place in the shared watch (see slowFrames), so it never delays them. One that has seen what the
// shared watch has still to read leaves it, and shares a watch from its own position.
//
// After an answer from another history of the server, no watch that was opened before is joined.
type watches struct {
	history atomic.Uint64 // number of times that another history was found
	slow    atomic.Int64  // see slowTotal
	open    atomic.Int64  // number of open watches

	mu sync.Mutex
	of map[Target]*watched
}

// distrust records that the server has another history than some watch before.
func (w *watches) distrust() { w.history.Add(1) }

// watched has the watches of one target.
type watched struct {
	all  *watches
	busy atomic.Bool // the next watch gets a wide connection

	mu      sync.Mutex
	readers int           // number of collections that read the target
	shared  *stream       // nil: none
	opening chan struct{} // closed when a collection has opened the shared watch, or failed to; nil: none opens it
	last    ended         // the last shared watch
}

// ended is a shared watch that has ended, and that another one continues. The zero value is none. A watch that ended at once is not
// continued: each collection has to find out what the server does with its own position.
type ended struct {
	resume  string // from here a watch sends everything that the last one did not
	at      time.Time
	history uint64
}

// enter counts a collection as a reader of a target, until leave is called.
func (w *watches) enter(t Target) (of *watched, leave func()) {
	t.Collection.Entry = "" // the name of a selection does not change it
	w.mu.Lock()
	defer w.mu.Unlock()
	of = w.of[t]
	if of == nil {
		of = &watched{all: w}
		w.of[t] = of
	}
	of.count(1)
	return of, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if of.count(-1) == 0 {
			delete(w.of, t)
		}
	}
}

func (w *watched) count(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readers += n
	return w.readers
}

// ended records the end of a watch. w.mu is held.
func (w *watched) ended(s *stream, err error) {
	if w.shared != s {
		return
	}
	w.shared, w.last = nil, ended{}
	if w.readers > 1 && !s.endedAtOnce() && (errors.Is(err, io.EOF) || errors.Is(err, errAgain)) {
		w.last = ended{s.at.Resume, time.Now(), s.history}
	}
}

// joinable returns the watch that a collection may join that has seen everything up to at. It returns nil if there is none, or if the watch still has
// far to go to at: what comes after would be late. w.mu is held.
func (w *watched) joinable(at string) *stream {
	s := w.shared
	if s == nil || s.history != w.all.history.Load() || s.backlog && event.Older(s.at.Last, at) {
		return nil
	}
	return s
}

// subscribe returns the frames after r's position: from the shared watch, or from a watch of its own.
func (r *reader) subscribe(ctx context.Context) (*subscriber, error) {
	at := r.at.Resume
	switch {
	case r.elsewhere != nil:
		return r.openFrom(elsewhere(ctx, r.elsewhere), at)
	case r.throwAway:
		return r.openFrom(throwAway(ctx), at)
	}
	u, from, opens := r.watched.join(ctx, at)
	if u != nil {
		return u, nil
	}
	opening := ctx
	if r.watched.busy.Swap(false) {
		select {
		case r.client.wide <- struct{}{}:
			opening = widely(ctx)
		default:
		}
	}
	u, err := r.openFrom(opening, from)
	if from != at && listwatch.IsExpired(err) {
		u, err = r.openFrom(ctx, at)
	}
	if opens {
		r.watched.opened(u)
	}
	return u, err
}

// openFrom opens a watch for r. If ctx is wide, it has a slot of [Client].wide, which is given back if the watch cannot be opened.
func (r *reader) openFrom(ctx context.Context, from string) (*subscriber, error) {
	u, err := r.open(ctx, r.watched, from, r.at.Resume, listwatch.MinWatch+rand.N(listwatch.MinWatch), listwatch.GraceWatch)
	if err != nil && isWide(ctx) {
		<-r.client.wide
	}
	return u, err
}

// join joins the shared watch if that covers a position. Otherwise the caller has to open a watch, from the returned resourceVersion. If opens is true,
// it will be the shared one, and the caller has to call opened.
func (w *watched) join(ctx context.Context, at string) (u *subscriber, from string, opens bool) {
	late := time.NewTimer(joinWithin)
	defer late.Stop()
	for {
		w.mu.Lock()
		shared, opening := w.joinable(at), w.opening
		switch {
		case shared != nil && shared.covers(at):
			u = shared.join(at)
		case shared == nil && opening == nil:
			w.opening, from, opens = make(chan struct{}), w.last.from(at, w.all.history.Load()), true
		}
		w.mu.Unlock()
		switch {
		case u != nil || opens:
			return u, from, opens
		case shared != nil:
			return nil, at, false
		}
		select {
		case <-opening:
		case <-late.C:
			return nil, at, false
		case <-ctx.Done():
			return nil, at, false
		}
	}
}

// opened shares a watch that was opened after join returned opens. nil: opening it failed.
func (w *watched) opened(u *subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.opening)
	w.opening = nil
	if u != nil && !u.stream.over {
		w.shared = u.stream
	}
}

// from returns the resourceVersion from which the next watch begins for a collection that has seen everything up to at. It is at, or an
// earlier one that covers the other collections, too.
func (e *ended) from(at string, history uint64) string {
	if e.history == history && time.Since(e.at) < reopenWithin && event.Older(e.resume, at) {
		return e.resume
	}
	return at
}

// canJoin reports whether a subscriber that has handled all frames and has a watch for itself can join the shared one. If not,
// its watch becomes the shared one, unless that covers more.
func (u *subscriber) canJoin(at string) bool {
	w, own := u.stream.watched, u.stream
	w.mu.Lock()
	defer w.mu.Unlock()
	shared := w.joinable(at)
	switch {
	case w.readers < 2 || w.shared == own || w.opening != nil:
		return false
	case shared != nil && shared.covers(at):
		return true
	case own.over || own.history != w.all.history.Load():
		return false
	case shared == nil || event.Older(own.recent.floor, shared.recent.floor):
		w.shared = own
	}
	return false
}
