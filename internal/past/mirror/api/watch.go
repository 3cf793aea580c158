package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/auth"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

type watcher struct {
	s    *Server
	w    eventWriter
	q    *request
	o    *options
	form form
	at   store.Position // everything up to here was sent
	rows bool           // the next table is not the first
	live bool           // at is a position that was served while the watch was open
	// checked is when it was last known that the client may read this, and nextCheck when that is asked again.
	checked, nextCheck time.Time
}

// watch serves a watch, over HTTP or a WebSocket. It ends with 410 Expired, as an event, where changes may be missing,
// also at the beginning: after the status 410 kopf ends, and client-go's RetryWatcher repeats without end.
func (s *Server) watch(w *countingWriter, q *request, o *options) error {
	form, err := negotiate(q.Request)
	if err != nil {
		return err
	}
	now := time.Now()
	x := &watcher{s: s, q: q, o: o, form: form, checked: now, nextCheck: now.Add(s.rechecks.every)}
	list, warnings, expired := x.begin()
	if expired != nil && !apierrors.IsResourceExpired(expired) {
		return expired
	}
	o.readIn(q.resource, x.at.Era)
	warn(w, warnings)
	if auth.IsWebSocket(q.Request) {
		return s.webSocket(w, q.Request, func(ctx context.Context, events eventWriter) {
			q.Request = q.WithContext(ctx)
			x.w = events
			x.serve(list, expired)
		})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	x.w = responseWriter{w}
	x.serve(list, expired)
	return nil
}

// serve sends the events until the watch ends. expired is the error of a watch that cannot begin.
func (x *watcher) serve(list bool, expired error) {
	open := x.s.Metrics.watches.WithLabelValues(x.q.resource.ID.Name)
	open.Inc()
	defer open.Dec()
	limit := watchTime + rand.N(watchTime)
	if x.o.TimeoutSeconds != nil && *x.o.TimeoutSeconds > 0 { // 0 is the default, as at the API server
		limit = time.Duration(*x.o.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(x.q.Context(), limit)
	defer cancel()
	err := expired
	if err == nil {
		err = x.run(ctx, list)
	}
	if err == nil || errors.Is(err, errGone) || x.q.Context().Err() != nil { // the client is gone, or bridge serve ends
		return
	}
	text, err := json.Marshal(statusOf(err))
	if err != nil {
		return
	}
	if x.send(apiwatch.Error, text) == nil {
		x.flush()
	}
}

// begin finds where the watch begins. list is set if the objects that exist are sent first.
func (x *watcher) begin() (list bool, warnings []string, err error) {
	q, o := x.q, x.o
	at, warnings, err := x.s.notOlder(q, o.version)
	if err != nil {
		return false, nil, err
	}
	if list = o.version == 0; o.SendInitialEvents != nil {
		list = *o.SendInitialEvents
	}
	if list || o.version == 0 {
		x.at = at
		return list, warnings, nil
	}
	if x.at, err = q.resource.Watch(o.version, at); err != nil {
		return false, nil, x.s.failed(q, err)
	}
	if x.at.Seq != ^uint64(0) { // the first position of the version that was served
		return false, warnings, nil
	}
	n, err := x.s.Mirror.Store().CountAt(q.resource.ID, x.at.Era, o.version)
	if err != nil {
		return false, nil, err
	}
	if n > 1 { // the client may have seen only the first change of the version
		x.at.Seq = 0
	}
	return false, warnings, nil
}

func (x *watcher) run(ctx context.Context, list bool) error {
	if list {
		if err := x.initial(); err != nil {
			return err
		}
	}
	if !x.flush() {
		return errGone
	}
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	recheck := time.NewTimer(time.Until(x.nextCheck))
	defer recheck.Stop()
	for {
		committed := x.s.Mirror.Commits()
		if err := x.follow(); err != nil {
			return err
		}
		select {
		case <-committed:
		case <-bookmark.C:
			if err := x.bookmark(nil); err != nil {
				return err
			}
		case <-recheck.C:
			if err := x.recheck(); err != nil {
				return err
			}
			recheck.Reset(time.Until(x.nextCheck))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && x.q.Context().Err() == nil {
				return x.bookmark(nil)
			}
			return errGone
		}
	}
}

// recheck checks at times whether the client may still read this.
func (x *watcher) recheck() error {
	now := time.Now()
	if now.Before(x.nextCheck) {
		return nil
	}
	ctx, cancel := context.WithDeadline(x.q.Context(), x.checked.Add(x.s.rechecks.last))
	defer cancel()
	err := x.s.check(x.q.WithContext(ctx), &x.q.attributes)
	switch {
	case err == nil:
		x.checked, x.nextCheck = now, now.Add(x.s.rechecks.every)
		return nil
	case !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) || time.Since(x.checked) >= x.s.rechecks.last:
		return err
	}
	x.nextCheck = now.Add(x.s.rechecks.retry)
	return nil
}

// initial sends the objects that exist, and the bookmark that ends them.
func (x *watcher) initial() error {
	_, err := x.s.page(x.q, x.o, x.at, store.Name{}, func(o *store.Object) error { return x.object(apiwatch.Added, o, o.Body) })
	if err != nil {
		return err
	}
	if x.o.SendInitialEvents != nil {
		return x.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return nil
}

// follow sends the changes up to the served position.
func (x *watcher) follow() error {
	r := x.s.Mirror.Resource(x.q.resource.ID).For(x.q.sees)
	x.q.resource = r
	if x.at.Compare(r.Floor) < 0 {
		return x.s.failed(x.q, fmt.Errorf("%w: the changes behind resourceVersion %d are not retained any more", mirror.ErrExpired, x.at.Version))
	}
	if x.q.past != "" {
		at, _, err := x.s.position(x.q)
		if err == nil && at.Era != x.at.Era {
			err = x.s.failed(x.q, fmt.Errorf("%w: changes may be missing behind resourceVersion %d", mirror.ErrExpired, x.at.Version))
		}
		if err != nil {
			return err
		}
		return x.changes(at)
	}
	upTo, ended := r.Served, ""
	if r.Present().Number != x.at.Era {
		ended = cmp.Or(r.Gap(), r.Present().Reason)
		if upTo.Era != x.at.Era {
			upTo = x.at // what was left of the era comes with the list
		}
	}
	if err := x.changes(upTo); err != nil {
		return err
	}
	if ended != "" {
		return x.s.failed(x.q, fmt.Errorf("%w: changes may be missing: %s", mirror.ErrExpired, ended))
	}
	return nil
}

// changes sends the changes up to a position, or a later one that is served; once it has caught up, with other watches.
func (x *watcher) changes(upTo store.Position) error {
	if upTo.Compare(x.at) <= 0 {
		if !x.live && upTo.Era == x.at.Era && upTo.Version == x.at.Version { // the watch began at what is served
			x.at, x.live = upTo, true
		}
		return nil
	}
	n := 0
	ctx, cancel := context.WithTimeoutCause(x.q.Context(), x.s.limits.list, x.s.tooLong())
	defer cancel()
	send := func(c *store.Change) error {
		n++
		if ctx.Err() != nil { // a selector may select nothing for long
			return context.Cause(ctx)
		}
		return x.change(c)
	}
	for x.live && x.q.past == "" && upTo.Compare(x.at) > 0 {
		t, err := x.s.recent.behind(ctx, x.q.resource.ID, x.at, upTo)
		if err != nil {
			return err
		}
		if t == nil {
			break
		}
		if err := x.sendAll(t, send); err != nil {
			return err
		}
		if t.upTo.Compare(upTo) > 0 {
			upTo = t.upTo
		}
		if x.at != t.upTo {
			break
		}
	}
	if upTo.Compare(x.at) > 0 {
		var failed error
		err := x.s.Mirror.Store().Changes(ctx, x.q.resource.ID, x.o.namespace, x.at, upTo, func(c *store.Change) bool {
			failed = send(c)
			return failed == nil
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		x.at, x.live = upTo, true
	}
	if n > 0 && !x.flush() {
		return errGone
	}
	return nil
}

// sendAll sends the changes of a stretch, and releases it. For a slow client it ends between two resourceVersions,
// behind all changes of the lower one: the next stretch would have only some of them.
func (x *watcher) sendAll(t *stretch, send func(c *store.Change) error) error {
	defer x.s.recent.release(t)
	began := time.Now()
	for _, c := range t.in(x.o.namespace) {
		if c.At.Version != x.at.Version && time.Since(began) > x.s.limits.share {
			x.at.Seq = ^uint64(0)
			return nil
		}
		if err := send(c); err != nil {
			return err
		}
		x.at = c.At
	}
	x.at = t.upTo
	return nil
}

// decide returns whether the client has selected an object. If that is not known, the watch ends with 410.
func (x *watcher) decide(o *store.Object) (bool, error) {
	is, err := x.o.selects(o)
	if err == nil && is == undecided {
		err = x.s.failed(x.q, undecidedError(mirror.ErrExpired, o))
	}
	return is == selected, err
}

// change sends what a change means for the client's selection.
func (x *watcher) change(c *store.Change) error {
	before, err := x.decide(c.Before)
	if err != nil {
		return err
	}
	after, err := x.decide(c.After)
	if err != nil {
		return err
	}
	another := c.Before != nil && c.After != nil && c.Before.UID != c.After.UID
	if before && (!after || another) {
		body := c.Before.Body
		if c.After == nil && c.Last.Deleted && c.Last.Extent == store.Whole && c.Last.UID == c.Before.UID {
			body = c.Last.Body
		}
		if body, err = withVersion(body, c.At.Version); err != nil {
			return err
		}
		if err := x.object(apiwatch.Deleted, c.Before, body); err != nil {
			return err
		}
	}
	switch {
	case !after:
		return nil
	case before && !another:
		return x.object(apiwatch.Modified, c.After, c.After.Body)
	}
	return x.object(apiwatch.Added, c.After, c.After.Body)
}

func (x *watcher) object(t apiwatch.EventType, o *store.Object, body []byte) (err error) {
	if err := x.recheck(); err != nil { // a client may read slowly
		return err
	}
	switch x.form {
	case asTable:
		row := *o
		row.Body = body
		table := x.q.table([]*store.Object{&row}, 0, "", !x.rows, x.s.now())
		x.rows = true
		if body, err = json.Marshal(table); err != nil {
			return err
		}
	case asMetadata:
		if body, err = metadataOnly(body); err != nil {
			return err
		}
	}
	return x.send(t, body)
}

func (x *watcher) send(t apiwatch.EventType, body []byte) error {
	if err := x.w.write(fmt.Appendf(nil, `{"type":%q,"object":`, t), body, []byte("}\n")); err != nil {
		x.s.Log.Debug("event not written", zap.Error(err))
		return errGone
	}
	return nil
}

// bookmark sends the position of the watch, if the client wants bookmarks.
func (x *watcher) bookmark(annotations map[string]string) error {
	if !x.o.AllowWatchBookmarks {
		return nil
	}
	kind, version := x.q.kind.Kind.Kind, x.q.kind.APIVersion
	var b any = map[string]any{
		"kind": kind, "apiVersion": version,
		"metadata": metav1.ObjectMeta{ResourceVersion: fmt.Sprint(x.at.Version), Annotations: annotations},
	}
	switch x.form {
	case asMetadata:
		b.(map[string]any)["kind"], b.(map[string]any)["apiVersion"] = "PartialObjectMetadata", "meta.k8s.io/v1"
	case asTable:
		t := x.q.table(nil, x.at.Version, "", false, x.s.now())
		t.Rows = []metav1.TableRow{bookmarkRow(b)}
		b = t
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := x.send(apiwatch.Bookmark, text); err != nil {
		return err
	}
	if !x.flush() {
		return errGone
	}
	return nil
}

func (x *watcher) flush() bool {
	if err := x.w.flush(); err != nil {
		x.s.Log.Debug("watch not flushed", zap.Error(err))
		return false
	}
	return true
}
