// Package clientgo connects pkg/source with client-go: it reads from any cache.ListerWatcher, and restores apiVersion and
// kind, which client-go's decoder clears.
package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// ListerWatcherOptions of a [ListerWatcher].
type ListerWatcherOptions struct {
	Handler source.Handler // required
	// Scheme names the kinds of typed objects. nil: each object has its kind, or
	// has the kind of Resource.
	Scheme *runtime.Scheme
	// Resource has the Group, Version and Kind for objects without a kind of their own or
	// in Scheme, and for all metadata-only objects. With the zero value,
	// such an object ends Run with a [*GVKError].
	Resource source.Resource
	// OnState is called with every change of state, from Run's goroutine. May be nil.
	OnState func(source.State)
}

// ListerWatcher is a source like [source.Collection], over any client-go
// [cache.ListerWatcher], for example that of a typed client, or one that needs no API
// server. The cache.ListerWatcher must follow the API's conventions: a list has a
// resourceVersion, a watch continues after it, and a watch from a resourceVersion that is no longer
// served fails with 410 Gone (apierrors.NewResourceExpired).
//
// For an API server, Collection is the better choice: it passes JSON on
// unparsed, and detects stalls and proofs of absence, which ListerWatcher does not. ListerWatcher
// detects another history only if resourceVersions are numbers
// and a list has an earlier one.
type ListerWatcher struct {
	lw       cache.ListerWatcherWithContext
	handler  source.Handler
	scheme   *runtime.Scheme
	resource source.Resource
	onState  func(source.State)
	bounds   listwatch.Bounds[struct{}]
}

// FromListerWatcher returns a source over lw that is not yet running. Nothing that
// lw returns is changed, so it may be shared.
func FromListerWatcher(lw cache.ListerWatcher, o ListerWatcherOptions) *ListerWatcher {
	l := &ListerWatcher{
		lw: cache.ToListerWatcherWithContext(lw), handler: o.Handler,
		scheme: o.Scheme, resource: o.Resource, onState: o.OnState,
	}
	if l.onState == nil {
		l.onState = func(source.State) {}
	}
	return l
}

const adapterPage = 500 // objects; client-go's pager asks for as many

// finalError ends Run: it is an error of the handler, or of an object that a retry would get again.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// errAgain ends a watch that was closed because the handler blocked. Another watch follows at once.
var errAgain = errors.New("another watch goes on")

// Run lists and watches from position until ctx ends, the handler returns an
// error, which Run then returns, or the kind of an object is unknown (a
// [*GVKError]). With a void position, or one that is no longer served, Run begins with a
// list. Run returns after its running calls of the cache.ListerWatcher have returned.
// Calls that take a context return at once when ctx ends.
func (l *ListerWatcher) Run(ctx context.Context, from event.Position) error {
	at := listwatch.Cursor{Resume: from.RV, Last: from.RV}
	var due *source.Signal // the next list; nil: a watch is next
	switch {
	case from.Void:
		due = listDue(event.ReasonInterrupted, notToItsEnd)
	case !listwatch.Resumable(from.RV):
		due = listDue(source.ReasonSnapshot, "")
	}
	listed, fresh := "", false
	retry := listwatch.NewBackoff()
	var empty listwatch.EmptyWatches
	for {
		var err error
		if due != nil {
			l.state(source.State{Phase: source.Reconciling})
			due, err = l.list(ctx, &at, due)
			if err == nil {
				listed, fresh = at.Resume, true
				empty = listwatch.EmptyWatches{}
				continue
			}
		} else {
			before, began := at.Resume, time.Now()
			due, err = l.watch(ctx, &at, fresh, &empty)
			fresh = false
			if at.Resume != before || time.Since(began) > listwatch.SoundWatch {
				retry.Reset()
			}
			if due != nil && at.Resume != listed { // otherwise lists would follow each other without a pause
				continue
			}
		}
		var final finalError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &final):
			return final.error
		}
		d := retry.After(err)
		l.state(source.State{Phase: source.Waiting, Until: time.Now().Add(d), Err: err})
		if err := listwatch.Sleep(ctx, d); err != nil {
			return err
		}
	}
}

const notToItsEnd = "an earlier list did not come to its end"

func listDue(reason event.Reason, detail string) *source.Signal {
	return &source.Signal{
		Kind: source.ListBegun, Reason: reason, Detail: detail, NewEpoch: event.GapCause(reason).NewEpoch,
	}
}

func (l *ListerWatcher) state(s source.State) {
	s.Since = time.Now()
	l.onState(s)
}

// wentBack returns a sentence if the server's resourceVersion now is older than rv. The server then
// has another history, in which a watch from rv would get no event until its
// resourceVersions pass rv. It returns "" if now is not older or cannot be compared.
func wentBack(now, rv string) string {
	if !event.Older(now, rv) {
		return ""
	}
	return fmt.Sprintf("the position is at resourceVersion %s, what is served at %s", rv, now)
}

type anyList struct {
	metav1.ListInterface
	object runtime.Object
}

// page lists once. A page without a resourceVersion is an error: no watch could continue after it.
func (l *ListerWatcher) page(ctx context.Context, o metav1.ListOptions) (anyList, error) {
	ctx, cancel := context.WithTimeout(ctx, listwatch.PageTimeout)
	defer cancel()
	obj, err := l.lw.ListWithContext(ctx, o)
	if err != nil {
		return anyList{}, fmt.Errorf("list: %w", listwatch.PlainCause(err))
	}
	list, err := meta.ListAccessor(obj)
	if err != nil {
		return anyList{}, fmt.Errorf("list: a %T: %w", obj, err)
	}
	if !listwatch.Resumable(list.GetResourceVersion()) {
		return anyList{}, fmt.Errorf("list: %w: a %T", listwatch.ErrNoVersion, obj)
	}
	return anyList{list, obj}, nil
}

// nextPage is page with retries if the connection or the server fails, so that a long list does not begin again, except
// for a first page. A page whose size may be the reason is tried again with fewer objects, as by a source.Collection.
func (l *ListerWatcher) nextPage(ctx context.Context, token string) (anyList, error) {
	limit := l.bounds.Limit(struct{}{}, adapterPage)
	backoff, slow := listwatch.NewBackoff(), 0
	for try := 1; ; {
		began := time.Now()
		p, err := l.page(ctx, metav1.ListOptions{Limit: int64(limit), Continue: token})
		took := time.Since(began)
		if err == nil {
			l.bounds.Arrived(struct{}{}, meta.LenList(p.object), limit, limit < adapterPage || token == "", took)
			return p, nil
		}
		if took >= listwatch.PageTimeout {
			slow++
		}
		smaller := limit
		if ctx.Err() == nil && listwatch.SizeExplains(err, took) {
			smaller = l.bounds.Failed(struct{}{}, limit, took)
		}
		switch {
		case ctx.Err() != nil, token == "", slow > listwatch.SlowTries:
			return p, err
		case smaller < limit:
			limit = smaller
		case try == listwatch.PageTries, !listwatch.RetryPage(err):
			return p, err
		default:
			try++
		}
		if err := listwatch.Sleep(ctx, backoff.After(err)); err != nil {
			return p, err
		}
	}
}

// list reads all objects, page by page if lw supports pages, passes them on to the handler and moves at to the list's
// resourceVersion. With an error it also returns the next list to begin.
func (l *ListerWatcher) list(ctx context.Context, at *listwatch.Cursor, due *source.Signal) (*source.Signal, error) {
	p, err := l.nextPage(ctx, "")
	if err != nil {
		return due, err
	}
	rv := p.GetResourceVersion() // a watch continues from the first page
	if detail := wentBack(rv, at.Resume); detail != "" {
		due = listDue(event.ReasonHistory, detail)
	}
	begin := *due
	begin.RV = at.Resume
	if begin.NewEpoch {
		*at = listwatch.Cursor{} // no position in the new history is known yet
	}
	err = l.handle(ctx, begin)
	due = listDue(event.ReasonInterrupted, notToItsEnd)
	for err == nil {
		err = meta.EachListItem(p.object, func(item runtime.Object) error {
			o, err := l.encode(item)
			if err != nil {
				return err
			}
			return l.handle(ctx, source.Signal{Kind: source.Listed, Object: o})
		})
		if err != nil {
			break
		}
		token := p.GetContinue()
		if token == "" {
			*at = listwatch.Cursor{Resume: rv, Last: rv}
			return nil, l.handle(ctx, source.Signal{Kind: source.ListEnded, RV: rv, Resume: rv})
		}
		p, err = l.nextPage(ctx, token)
	}
	return due, err
}

func (l *ListerWatcher) handle(ctx context.Context, s source.Signal) error {
	if err := l.handler.Handle(ctx, s); err != nil {
		return finalError{err}
	}
	return nil
}

// watch opens watches from at, one after another, while they end without an error. It returns the next list, if any,
// and the error of the last watch. fresh says that a list has just ended at at. A failed probe proves nothing, but
// failures of the watch after it do not count: see listwatch.MaxFailures.
func (l *ListerWatcher) watch(
	ctx context.Context, at *listwatch.Cursor, fresh bool, empty *listwatch.EmptyWatches,
) (*source.Signal, error) {
	for {
		var doubt error
		if !fresh {
			var now anyList
			if now, doubt = l.page(ctx, metav1.ListOptions{Limit: 1}); doubt == nil {
				if detail := wentBack(now.GetResourceVersion(), at.Resume); detail != "" {
					return listDue(event.ReasonHistory, detail), errors.New(detail)
				}
			}
		}
		fresh = false
		before, began := at.Resume, time.Now()
		events, err := l.watchOnce(ctx, at, doubt)
		if at.Continues = errors.Is(err, errAgain); at.Continues {
			err = nil
		}
		lasted := time.Since(began)
		if err == nil && lasted > listwatch.SoundWatch {
			at.Failures = 0
		}
		switch {
		case events > 0 || lasted > listwatch.AtOnce:
			*empty = listwatch.EmptyWatches{}
		case err == nil:
			err = empty.Ended(before, began, doubt, false)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, new(finalError)):
			return nil, err
		case err == nil && events > 0 && at.Resume == before && lasted < listwatch.QuickWatch:
			return nil, listwatch.NoHeadway(events, before)
		case err == nil:
			continue
		case listwatch.IsExpired(err), doubt == nil && at.Failures >= listwatch.MaxFailures:
			err = fmt.Errorf("resourceVersion %s is %w: %w", at.Resume, source.ErrExpired, err)
		case !errors.Is(err, source.ErrExpired):
			return nil, fmt.Errorf("watch: %w", listwatch.PlainCause(err))
		}
		return listDue(event.ReasonExpired, err.Error()), err
	}
}

// watchOnce opens one watch, handles its events and returns their number. A nil error means that the server ended the watch
// in order, errAgain that the watch was closed because the handler blocked for listwatch.MaxBlocked. doubt is the error of
// the probe before it.
func (l *ListerWatcher) watchOnce(ctx context.Context, at *listwatch.Cursor, doubt error) (events int, err error) {
	timeout := listwatch.MinWatch + rand.N(listwatch.MinWatch)
	seconds := int64(timeout / time.Second)
	stream, cancel := context.WithTimeout(ctx, timeout+listwatch.GraceWatch)
	defer cancel()
	w, err := l.lw.WatchWithContext(stream, metav1.ListOptions{
		ResourceVersion: at.Resume, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		w.Stop()
		for range w.ResultChan() { // wait for the end of its goroutine
		}
	}()
	l.state(source.State{Phase: source.Watching})
	opened := time.Now()
	var blocked atomic.Bool
	tooLong := time.AfterFunc(time.Hour, func() { blocked.Store(true); cancel() })
	defer tooLong.Stop()
	at.Last = at.Resume // the next watch repeats events after resume
	for {
		var e watch.Event
		var open bool
		select {
		case <-stream.Done():
		case e, open = <-w.ResultChan():
		}
		switch {
		case blocked.Load():
			return events, errAgain
		case !open || stream.Err() != nil:
			return events, nil
		}
		s, rv, err := l.signal(e)
		if err != nil {
			if time.Since(opened) > listwatch.SoundWatch {
				at.Failures = 0
			}
			// client-go's decoder also returns 500 when the connection breaks.
			if doubt == nil && listwatch.StatusCode(err) >= http.StatusInternalServerError {
				at.Failures++
			}
			return events, err
		}
		events++
		at.Saw(rv)
		s.Resume = at.Resume
		var handled listwatch.Event
		if s.Object != nil {
			if handled = listwatch.NewEvent(string(e.Type), s.Object.ResourceVersion, s.Object.Raw); at.Repeats(handled) {
				continue
			}
		}
		tooLong.Reset(listwatch.MaxBlocked)
		err = l.handle(ctx, s)
		tooLong.Stop()
		if err != nil {
			return events, err
		}
		if s.Object != nil {
			at.Handle(handled)
		}
	}
}

// signal returns the signal for an event of the watch, without its Resume, and the event's resourceVersion.
func (l *ListerWatcher) signal(e watch.Event) (s source.Signal, rv string, err error) {
	switch e.Type {
	case watch.Added:
		s.Kind = source.Added
	case watch.Modified:
		s.Kind = source.Modified
	case watch.Deleted:
		s.Kind = source.Deleted
	case watch.Bookmark:
		o, err := meta.Accessor(e.Object)
		if err != nil {
			return s, "", fmt.Errorf("a bookmark of %T: %w", e.Object, err)
		}
		return source.Signal{Kind: source.Progress, RV: o.GetResourceVersion()}, o.GetResourceVersion(), nil
	case watch.Error:
		return s, "", apierrors.FromObject(e.Object)
	default:
		return s, "", fmt.Errorf("an event of unknown type %q", e.Type)
	}
	if s.Object, err = l.encode(e.Object); err != nil {
		return s, "", err
	}
	return s, s.Object.ResourceVersion, nil
}

// encode returns the JSON that an API server would send for obj. It does not change obj.
func (l *ListerWatcher) encode(obj runtime.Object) (*source.Object, error) {
	gvk, err := GVKOf(l.scheme, obj)
	if err != nil {
		if l.resource.Kind == "" || errors.Is(err, ErrNoObject) || errors.Is(err, ErrOtherKind) {
			return nil, finalError{err}
		}
		gvk.Group, gvk.Version, gvk.Kind = l.resource.Group, l.resource.Version, l.resource.Kind
	}
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		own := *m
		own.SetGroupVersionKind(gvk)
		obj = &own
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, finalError{fmt.Errorf("encode a %T: %w", obj, err)}
	}
	o, err := source.ParseItem(raw, gvk.GroupVersion().String(), gvk.Kind)
	if err != nil {
		return nil, finalError{fmt.Errorf("encode a %T: %w", obj, err)}
	}
	return &o, nil
}
