package source

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
)

// ListerWatcherOptions of a [ListerWatcher].
type ListerWatcherOptions struct {
	Handler Handler // required
	// Scheme names the kinds of typed objects. nil: each object has its kind, or
	// has the kind of Resource.
	Scheme *runtime.Scheme
	// Resource has the Group, Version and Kind for objects without a kind of their own or
	// in Scheme, and for all metadata-only objects. With the zero value,
	// such an object ends Run with a [*GVKError].
	Resource Resource
	// OnState is called with every change of state, from Run's goroutine. May be nil.
	OnState func(State)
}

// ListerWatcher is a source like [Collection], over any client-go
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
	handler  Handler
	scheme   *runtime.Scheme
	resource Resource
	onState  func(State)
	bounds   pageBounds // for the zero Target
}

// FromListerWatcher returns a source over lw that is not yet running. Nothing that
// lw returns is changed, so it may be shared.
func FromListerWatcher(lw cache.ListerWatcher, o ListerWatcherOptions) *ListerWatcher {
	l := &ListerWatcher{
		lw: cache.ToListerWatcherWithContext(lw), handler: o.Handler,
		scheme: o.Scheme, resource: o.Resource, onState: o.OnState,
	}
	if l.onState == nil {
		l.onState = func(State) {}
	}
	return l
}

const adapterPage = 500 // objects; client-go's pager asks for as many

// objectError ends Run, because a retry would get the same object.
type objectError struct{ error }

func (e objectError) Unwrap() error { return e.error }

// final returns the error within err that ends Run, or nil if err can be
// retried.
func final(err error) error {
	var h handlerError
	var o objectError
	switch {
	case errors.As(err, &h):
		return h.error
	case errors.As(err, &o):
		return o.error
	default:
		return nil
	}
}

// Run lists and watches from position until ctx ends, the handler returns an
// error, which Run then returns, or the kind of an object is unknown (a
// [*GVKError]). With a void position, or one that is no longer served, Run begins with a
// list. Run returns after its running calls of the cache.ListerWatcher have returned.
// Calls that take a context return at once when ctx ends.
func (l *ListerWatcher) Run(ctx context.Context, from event.Position) error {
	at := cursor{resume: from.RV, last: from.RV}
	var due *Signal // the next list; nil: a watch is next
	switch {
	case from.Void:
		due = listDue(event.ReasonInterrupted, notToItsEnd)
	case !resumable(from.RV):
		due = listDue(ReasonSnapshot, "")
	}
	listed, fresh := "", false
	retry := newBackoff()
	var empty emptyWatches
	for {
		var err error
		if due != nil {
			l.state(State{Phase: Reconciling})
			due, err = l.list(ctx, &at, due)
			if err == nil {
				listed, fresh = at.resume, true
				empty = emptyWatches{}
				continue
			}
		} else {
			before, began := at.resume, time.Now()
			due, err = l.watch(ctx, &at, fresh, &empty)
			fresh = false
			if at.resume != before || time.Since(began) > soundWatch {
				retry.reset()
			}
			if due != nil && at.resume != listed { // otherwise lists would follow each other without a pause
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case final(err) != nil:
			return final(err)
		}
		d := retry.after(err)
		l.state(State{Phase: Waiting, Until: time.Now().Add(d), Err: err})
		if err := sleep(ctx, d); err != nil {
			return err
		}
	}
}

const notToItsEnd = "an earlier list did not come to its end"

func listDue(reason event.Reason, detail string) *Signal {
	return &Signal{Kind: ListBegun, Reason: reason, Detail: detail, NewEpoch: event.GapCause(reason).NewEpoch}
}

func (l *ListerWatcher) state(s State) {
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

// page lists once. A page without a resourceVersion is an error: no watch could
// continue after it.
func (l *ListerWatcher) page(ctx context.Context, o metav1.ListOptions) (anyList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	obj, err := l.lw.ListWithContext(ctx, o)
	if err != nil {
		return anyList{}, fmt.Errorf("list: %w", plainCause(err))
	}
	list, err := meta.ListAccessor(obj)
	if err != nil {
		return anyList{}, fmt.Errorf("list: a %T: %w", obj, err)
	}
	if !resumable(list.GetResourceVersion()) {
		return anyList{}, fmt.Errorf("list: %w: a %T", errNoVersion, obj)
	}
	return anyList{list, obj}, nil
}

// nextPage is page with retries if the connection or the server fails, so that a long
// list does not begin again, except for a first page. A page whose size may be the reason is tried again with fewer objects, as in Collection.page.
func (l *ListerWatcher) nextPage(ctx context.Context, token string) (anyList, error) {
	limit := l.bounds.limit(Target{}, adapterPage)
	backoff, slow := newBackoff(), 0
	for try := 1; ; {
		began := time.Now()
		p, err := l.page(ctx, metav1.ListOptions{Limit: int64(limit), Continue: token})
		took := time.Since(began)
		if err == nil {
			l.bounds.arrived(Target{}, meta.LenList(p.object), limit, limit < adapterPage || token == "", took)
			return p, nil
		}
		if took >= pageTimeout {
			slow++
		}
		smaller := limit
		if ctx.Err() == nil && sizeExplains(err, took) {
			smaller = l.bounds.failed(Target{}, limit, took)
		}
		switch {
		case ctx.Err() != nil, token == "", slow > slowTries:
			return p, err
		case smaller < limit:
			limit = smaller
		case try == pageTries, !retryPage(err):
			return p, err
		default:
			try++
		}
		if err := sleep(ctx, backoff.after(err)); err != nil {
			return p, err
		}
	}
}

// list reads all objects, page by page if lw supports pages, passes them on to the
// handler and moves at to the list's resourceVersion. With an error it also returns
// the next list to begin.
func (l *ListerWatcher) list(ctx context.Context, at *cursor, due *Signal) (*Signal, error) {
	p, err := l.nextPage(ctx, "")
	if err != nil {
		return due, err
	}
	rv := p.GetResourceVersion() // a watch continues from the first page
	if detail := wentBack(rv, at.resume); detail != "" {
		due = listDue(event.ReasonHistory, detail)
	}
	begin := *due
	begin.RV = at.resume
	if begin.NewEpoch {
		*at = cursor{} // no position in the new history is known yet
	}
	err = l.handle(ctx, begin)
	due = listDue(event.ReasonInterrupted, notToItsEnd)
	for err == nil {
		err = meta.EachListItem(p.object, func(item runtime.Object) error {
			o, err := l.encode(item)
			if err != nil {
				return err
			}
			return l.handle(ctx, Signal{Kind: Listed, Object: o})
		})
		if err != nil {
			break
		}
		token := p.GetContinue()
		if token == "" {
			*at = cursor{resume: rv, last: rv}
			return nil, l.handle(ctx, Signal{Kind: ListEnded, RV: rv, Resume: rv})
		}
		p, err = l.nextPage(ctx, token)
	}
	return due, err
}

func (l *ListerWatcher) handle(ctx context.Context, s Signal) error {
	if err := l.handler.Handle(ctx, s); err != nil {
		return handlerError{err}
	}
	return nil
}

// watch opens watches from at, one after another, while they end without an error. It
// returns the next list, if any, and the error of the last watch.
// fresh says that a list has just ended at at. A failed probe proves nothing, but failures of the watch after it do not count: see maxFailures.
func (l *ListerWatcher) watch(ctx context.Context, at *cursor, fresh bool, empty *emptyWatches) (*Signal, error) {
	for {
		var doubt error
		if !fresh {
			var now anyList
			if now, doubt = l.page(ctx, metav1.ListOptions{Limit: 1}); doubt == nil {
				if detail := wentBack(now.GetResourceVersion(), at.resume); detail != "" {
					return listDue(event.ReasonHistory, detail), errors.New(detail)
				}
			}
		}
		fresh = false
		before, began := at.resume, time.Now()
		events, err := l.watchOnce(ctx, at, doubt)
		if at.continues = errors.Is(err, errAgain); at.continues {
			err = nil
		}
		lasted := time.Since(began)
		if err == nil && lasted > soundWatch {
			at.failures = 0
		}
		switch {
		case events > 0 || lasted > atOnce:
			*empty = emptyWatches{}
		case err == nil:
			err = empty.ended(before, began, doubt, false)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case final(err) != nil:
			return nil, err
		case err == nil && events > 0 && at.resume == before && lasted < quickWatch:
			return nil, noHeadway(events, before)
		case err == nil:
			continue
		case isExpired(err), doubt == nil && at.failures >= maxFailures:
			err = fmt.Errorf("resourceVersion %s is %w: %w", at.resume, ErrExpired, err)
		case !errors.Is(err, ErrExpired):
			return nil, fmt.Errorf("watch: %w", plainCause(err))
		}
		return listDue(event.ReasonExpired, err.Error()), err
	}
}

// watchOnce opens one watch, handles its events and returns their number. A nil
// error means that the server ended the watch in order, errAgain that the watch was closed because the handler blocked for maxBlocked. doubt is the error of the probe before it.
func (l *ListerWatcher) watchOnce(ctx context.Context, at *cursor, doubt error) (events int, err error) {
	timeout := minWatch + rand.N(minWatch)
	seconds := int64(timeout / time.Second)
	stream, cancel := context.WithTimeout(ctx, timeout+graceWatch)
	defer cancel()
	w, err := l.lw.WatchWithContext(stream, metav1.ListOptions{
		ResourceVersion: at.resume, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		w.Stop()
		for range w.ResultChan() { // wait for the end of its goroutine
		}
	}()
	l.state(State{Phase: Watching})
	opened := time.Now()
	var blocked atomic.Bool
	tooLong := time.AfterFunc(time.Hour, func() { blocked.Store(true); cancel() })
	defer tooLong.Stop()
	at.last = at.resume // the next watch repeats events after resume
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
			if time.Since(opened) > soundWatch {
				at.failures = 0
			}
			// client-go's decoder also returns 500 when the connection breaks.
			if doubt == nil && statusCode(err) >= http.StatusInternalServerError {
				at.failures++
			}
			return events, err
		}
		events++
		at.saw(rv)
		s.Resume = at.resume
		var handled handledEvent
		if s.Object != nil {
			if handled = newHandledEvent(string(e.Type), s.Object); at.repeats(handled) {
				continue
			}
		}
		tooLong.Reset(maxBlocked)
		err = l.handle(ctx, s)
		tooLong.Stop()
		if err != nil {
			return events, err
		}
		if s.Object != nil {
			at.handle(handled)
		}
	}
}

// signal returns the signal for an event of the watch, without its Resume, and the
// event's resourceVersion.
func (l *ListerWatcher) signal(e watch.Event) (s Signal, rv string, err error) {
	switch e.Type {
	case watch.Added:
		s.Kind = Added
	case watch.Modified:
		s.Kind = Modified
	case watch.Deleted:
		s.Kind = Deleted
	case watch.Bookmark:
		o, err := meta.Accessor(e.Object)
		if err != nil {
			return s, "", fmt.Errorf("a bookmark of %T: %w", e.Object, err)
		}
		return Signal{Kind: Progress, RV: o.GetResourceVersion()}, o.GetResourceVersion(), nil
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

// encode returns the JSON that an API server would send for obj. It does not change
// obj.
func (l *ListerWatcher) encode(obj runtime.Object) (*Object, error) {
	gvk, err := GVKOf(l.scheme, obj)
	if err != nil {
		if l.resource.Kind == "" || errors.Is(err, ErrNoObject) || errors.Is(err, ErrOtherKind) {
			return nil, objectError{err}
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
		return nil, objectError{fmt.Errorf("encode a %T: %w", obj, err)}
	}
	var scan scanner
	scan.Reset(raw)
	o, err := scan.object()
	if err != nil {
		return nil, objectError{fmt.Errorf("encode a %T: %w", obj, err)}
	}
	o.restoreGVK(gvk.GroupVersion().String(), gvk.Kind, nil)
	return &o, nil
}
