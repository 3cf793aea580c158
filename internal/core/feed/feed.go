// Package feed reads the collections of one sink from an API server: it implements
// [loop.Reader] with pkg/source.
//
//	source.Signal                      input of internal/core/reconcile
//	ListBegun                          ListBegun; Absent if its reason is gone
//	Listed                             Sighted, origin List
//	Deleted during a list              Sighted, Ended, origin List
//	ListEnded                          ListEnded, ListLacks for each key that is missing, ListDone
//	Added, Modified, Deleted           Sighted, origin Watch
//	Progress                           Bookmark
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

const (
	maxLists = 4 // see Options.MaxLists
	// After a proof of absence, the reader tries again after 1 s, 2 s, 4 s and so on up to a minute, or earlier
	// if Options.Changed wakes it. It does not wait only for discovery, because a resource may be deleted and created again so quickly
	// that discovery does not show it.
	firstAgain, lastAgain = time.Second, time.Minute
)

// Options are the options of a [Reader].
type Options struct {
	Client *source.Client // required
	// Lists bounds how many lists are read at once, over all readers that share it. A list does not count
	// while it waits for its sink. nil: no bound.
	Lists *Lists
	// MaxLists bounds the lists of this reader that have begun and not ended, including lists that wait
	// for the sink: each holds up to two pages in memory. 0: as many as Lists, or four.
	MaxLists int
	// Target returns the target of a collection with a selection. false: the target is not known yet, or the collection has another
	// selection and the loop is about to start another read. Required. It is called from several
	// goroutines. It must return the target of a new selection before [loop.Loop.Set] is called with the properties of that selection.
	Target func(collection, selection string) (source.Target, bool)
	// Changed returns a channel that is closed as soon as Target returns another result for any
	// collection. nil: results never change.
	Changed func() <-chan struct{}
	// OnState is called with every change of a collection's state, from several goroutines. May be
	// nil.
	OnState func(collection string, s source.State)
	// Backlog returns what holds the signals of a collection for one read while the sink is behind. nil: nothing does.
	Backlog func(collection string, onState func(source.State)) Backlog
	Log     *zap.Logger // required
}

// Reader implements [loop.Reader].
type Reader struct {
	Options
	own      *Lists
	released sync.Pool // of *sighted

	mu     sync.Mutex
	epochs map[string]*source.Epochs // by storage; kept between reads
	failed map[string]*side          // by collection: see takeSide
}

// New returns a reader of one sink's collections.
func New(o Options) *Reader {
	if o.MaxLists == 0 && o.Lists != nil {
		o.MaxLists = o.Lists.n
	}
	o.MaxLists = cmp.Or(o.MaxLists, maxLists)
	if o.Lists == nil {
		o.Lists = NewLists(1 << 30)
	}
	if o.Changed == nil {
		o.Changed = func() <-chan struct{} { return nil }
	}
	if o.OnState == nil {
		o.OnState = func(string, source.State) {}
	}
	return &Reader{Options: o, own: NewLists(o.MaxLists), epochs: map[string]*source.Epochs{}, failed: map[string]*side{}}
}

// epochsOf returns the epochs of one storage. Each reader has its own, because each sink counts epochs separately.
func (r *Reader) epochsOf(storage string) *source.Epochs {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epochs[storage] == nil {
		r.epochs[storage] = new(source.Epochs)
	}
	return r.epochs[storage]
}

// Read implements [loop.Reader]. If the resource or the namespace of a collection is proved absent,
// Read waits until Options.Changed wakes it, at most for a minute (see firstAgain), and then begins with a list. It
// returns when ctx ends or another cluster answers.
func (r *Reader) Read(ctx context.Context, collection string, want reconcile.Read, h *loop.Handler) error {
	defer r.forget(collection)
	f := &follower{
		Reader: r, collection: collection, selection: want.Selection, handler: h, resume: want.From, seen: want.Seen,
		before: want.Before, owner: parseOwner(want.Owner), slot: r.newSlot(), epochs: r.epochsOf(want.Storage),
	}
	if r.Backlog != nil {
		f.backlog = r.Backlog(collection, func(s source.State) { r.OnState(collection, s) })
	}
	again := firstAgain
	for {
		changed := r.Changed()
		target, known := r.Target(collection, want.Selection)
		if !known { // the target is unknown, or the loop is about to start another read
			r.OnState(collection, source.State{Phase: source.Discovering, Since: time.Now()})
			if err := wait(ctx, changed, nil); err != nil {
				return err
			}
			continue
		}
		f.target = target
		begun := time.Now()
		switch err := f.follow(ctx); {
		case ctx.Err() != nil:
			if f.backlog != nil {
				f.backlog.End(target)
			}
			return ctx.Err()
		case err == nil, errors.Is(err, errMoved), errors.Is(err, errBehind): // the next target, or a recording
		case errors.Is(err, source.ErrGone):
			if time.Since(begun) > lastAgain { // the resource existed in between
				again = firstAgain
			}
			timer := time.NewTimer(again)
			err := wait(ctx, changed, timer.C)
			timer.Stop()
			if err != nil {
				return err
			}
			again = min(2*again, lastAgain)
		default:
			return fmt.Errorf("read %s: %w", collection, err)
		}
	}
}

func wait(ctx context.Context, changed <-chan struct{}, again <-chan time.Time) error {
	select {
	case <-changed:
		return nil
	case <-again:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errMoved ends a run because the resource is served in another version.
var errMoved = errors.New("the API server serves the resource in another version")

// moved waits until a collection's resource is served in another version than in t. It returns false if ctx ends first.
// It ignores a resource that is no longer served, because the run finds that out.
func (r *Reader) moved(ctx context.Context, collection, selection string, t source.Target) bool {
	for {
		changed := r.Changed()
		if now, known := r.Target(collection, selection); known && now.Resource != t.Resource && now.Resource.Version != "" {
			return true
		}
		if wait(ctx, changed, nil) != nil {
			return false
		}
	}
}

// side lists a collection beside its watch. One goroutine uses it.
type side struct {
	target source.Target
	source *source.Collection
	slot   *slot
}

// takeSide returns what lists a collection beside its watch: after a failed list, the same one, because the next attempt waits longer for a
// server that was slow. See [source.Attempt].
func (r *Reader) takeSide(collection string, t source.Target) *side {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.failed[collection]
	delete(r.failed, collection)
	if s == nil || s.target != t {
		slot := r.newSlot()
		s = &side{target: t, source: source.NewCollection(source.Options{Client: r.Client, Target: t, Lists: slot}), slot: slot}
	}
	return s
}

func (r *Reader) keepSide(collection string, s *side) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[collection] = s
}

// forget forgets the failed list of a collection that is not read any more.
func (r *Reader) forget(collection string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, collection)
}

// Side implements [loop.Reader].
func (r *Reader) Side(ctx context.Context, collection string, want reconcile.Read, h *loop.Handler) error {
	target, known := r.Target(collection, want.Selection)
	if !known || target.Resource.Version == "" {
		return fmt.Errorf("list %s: %w", collection, discovery.ErrNoResource)
	}
	if len(want.Samples) > 0 {
		return r.readSamples(ctx, target, want.Samples, h)
	}
	s := r.takeSide(collection, target)
	rv, err := s.source.Survey(ctx, source.HandlerFunc(func(ctx context.Context, sig source.Signal) error {
		in := r.newSighted(sig.Object, reconcile.Resync)
		return s.slot.lend(ctx, func() error { return h.Input(ctx, &in.Input, len(in.object.Raw), in.release) })
	}))
	if err != nil {
		if ctx.Err() == nil { // else the collection may not be read any more
			r.keepSide(collection, s)
		}
		return err
	}
	return h.Input(ctx, &reconcile.Input{Kind: reconcile.SideEnded, Version: rv}, 0, nil)
}

// run reads f's target from f's position, until ctx ends or the resource or namespace is absent.
func (f *follower) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	running.Go(func() {
		if f.moved(ctx, f.collection, f.selection, f.target) {
			stop(errMoved)
		}
	})
	f.watching.Store(f.resumable())
	running.Go(func() {
		if f.fallsBehind(ctx) {
			stop(errBehind)
		}
	})
	f.source = source.NewCollection(source.Options{
		Client: f.Client, Target: f.target, Handler: f, Owner: f.owner, Lists: f.slot, Epochs: f.epochs,
		Seen:        func() string { return f.seen },
		OnState:     func(s source.State) { f.OnState(f.collection, s) },
		OnInStep:    func(before time.Time) { _ = f.handler.InStep(ctx, before) },                       // fails only if ctx has ended
		OnReconnect: func() { _ = f.input(ctx, &reconcile.Input{Kind: reconcile.Reconnected}, 0, nil) }, // likewise
	})
	err := f.source.Run(ctx, event.Position{RV: f.resume, Void: f.list != nil})
	if cause := context.Cause(ctx); errors.Is(cause, errMoved) || errors.Is(cause, errBehind) {
		return cause
	}
	return err
}
