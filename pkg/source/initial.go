package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// silentStream is how long a streamed list may wait for leastProgress bytes after its first object. A server that
	// ignores the parameters of streamed lists sends nothing after the last object. The limit before the first object is listwatch.FirstAnswer.
	silentStream = 10 * time.Second
	// streamTimeout is the timeout in the request. It ends the stream of a server that ignores the other parameters and whose
	// objects change all the time. A stream of a server that ignores streamTimeout as well is closed a little later.
	streamTimeout = 2 * time.Minute
	streamGrace   = 5 * time.Second
	// pagedFor is how long lists are paged after a streamed list failed.
	pagedFor = 10 * time.Minute
)

var (
	// errNotStreamed means that a list has to be paged; no signal of it was passed on.
	errNotStreamed = errors.New("not streamed")
	errNoEnd       = errors.New("the server streams objects and not the list's end")
	errBlocked     = fmt.Errorf("nobody read the stream for %s", listwatch.MaxBlocked)
)

// pause is a time in which an operation is not tried. The zero value is a pause that is over. It uses
// the monotonic clock, so setting the clock back does not make it longer.
type pause struct{ until atomic.Pointer[time.Time] }

func (p *pause) begin(d time.Duration) { p.until.Store(new(time.Now().Add(d))) }

func (p *pause) over() bool {
	until := p.until.Load()
	return until == nil || !time.Now().Before(*until)
}

// stream lists by a watch that begins with the present objects (WatchList, KEP-3157), and returns the resourceVersion
// at which the list was complete. errNotStreamed means that no signal was passed on. After any other error the
// collection's lists are paged for pagedFor.
func (c *Collection) stream(ctx context.Context, attempt Attempt, begun Signal) (string, error) {
	// Stream only first attempts, because a retry may have to wait longer than a stream may be silent, and only selections: docs/adr/0004-lists-are-paged.md.
	selects := c.target.Collection.LabelSelector != "" || c.target.Collection.FieldSelector != ""
	if attempt == Retry || !selects || !c.streams.over() || !c.client.streams.over() {
		return "", errNotStreamed
	}
	rv, passed, err := c.readInitial(ctx, begun)
	var fromHandler handlerError
	switch {
	case err == nil, ctx.Err() != nil, errors.As(err, &fromHandler):
		return rv, err
	case listwatch.StatusCode(err) == http.StatusTooManyRequests && !passed: // a page would be refused, too
		return "", fmt.Errorf("list: %w", listwatch.PlainCause(err))
	case errors.Is(err, errSlowPage): // this concerns only this resource, and its pages may be fast
		c.streams.begin(pagedFor)
	case errors.Is(err, errNoEnd), isUnknownForm(err):
		c.client.streams.begin(pagedFor)
	}
	if !passed {
		return "", errNotStreamed
	}
	c.streams.begin(pagedFor)
	return "", fmt.Errorf("streamed list: %w", listwatch.PlainCause(err))
}

// isUnknownForm reports whether the server refused a request because it does not support its form.
func isUnknownForm(err error) bool {
	switch listwatch.StatusCode(err) {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	default:
		return false
	}
}

// streamReader reads the body of a streamed list, and cancels it when the server is too slow: the list holds a slot.
type streamReader struct {
	body  io.Reader
	timer *time.Timer
	left  time.Duration // remaining time to wait for leastProgress bytes from the server
	n     int           // bytes since left was set
	last  time.Time     // when the last Read began
}

// Read implements [io.Reader].
func (r *streamReader) Read(b []byte) (int, error) {
	r.last = time.Now()
	r.timer.Reset(r.left)
	n, err := r.body.Read(b)
	r.left -= time.Since(r.last)
	if r.n += n; r.n >= leastProgress {
		r.progressed()
	}
	return n, err
}

func (r *streamReader) progressed() { r.left, r.n = silentStream, 0 }

// late returns why the list was cancelled. A server that has been silent for some time may not support streamed lists.
func (r *streamReader) late(passed bool) error {
	switch {
	case !passed:
		return slowPage("answer", listwatch.FirstAnswer)
	case time.Since(r.last) < silentStream/2:
		return slowError{slowPage(fmt.Sprintf("%d bytes more", leastProgress), silentStream)}
	}
	return errNoEnd
}

// readInitial is one attempt of stream. passed reports whether begun was passed on.
func (c *Collection) readInitial(ctx context.Context, begun Signal) (rv string, passed bool, err error) {
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	var late, over atomic.Bool
	began := time.Now()
	timer := time.AfterFunc(listwatch.FirstAnswer, func() { late.Store(true); cancel() })
	defer timer.Stop()
	end := time.AfterFunc(streamTimeout+streamGrace, func() { over.Store(true); cancel() })
	defer end.Stop()
	body, err := c.initialEvents().Stream(widely(watch))
	if late.Load() {
		return "", false, slowPage("answer", listwatch.FirstAnswer)
	}
	if err != nil {
		return "", false, err
	}
	defer body.Close()
	r := &streamReader{body: body, timer: timer, left: listwatch.FirstAnswer - time.Since(began)}
	frames := newFrameReader(r, keepWide, &c.client.memory)
	for {
		kind, o, err := frames.next()
		switch {
		case late.Load():
			return "", passed, r.late(passed)
		case over.Load():
			return "", passed, slowError{errNoEnd}
		case errors.Is(err, io.EOF):
			return "", passed, errNoEnd
		case err != nil:
			return "", passed, err
		}
		timer.Reset(listwatch.MaxBlocked) // the server would soon close the stream
		if !passed {
			passed = true
			r.progressed()
			if err := c.handler.Handle(ctx, begun); err != nil {
				return "", passed, handlerError{err}
			}
		}
		if kind == "BOOKMARK" {
			if !endsInitialEvents(o) {
				continue
			}
			if !listwatch.Resumable(o.ResourceVersion) {
				return "", passed, listwatch.ErrNoVersion
			}
			return o.ResourceVersion, passed, nil
		}
		s, err := c.initialSignal(ctx, kind, o)
		if err != nil {
			return "", passed, err
		}
		if err := c.handler.Handle(ctx, s); err != nil {
			return "", passed, handlerError{err}
		}
		if late.Load() {
			return "", passed, errBlocked
		}
	}
}

// initialSignal returns the signal for a frame of a streamed list.
func (c *Collection) initialSignal(ctx context.Context, kind string, o *Object) (Signal, error) {
	s := Signal{Kind: Listed, Object: o}
	switch kind {
	case "ADDED", "MODIFIED":
	case "DELETED": // since the stream began
		s.Kind = Deleted
		if c.leavable {
			s.left(c.Alive(ctx, o.Namespace, o.Name, o.UID))
		}
	default:
		return s, fmt.Errorf("a frame of unknown type %q", kind)
	}
	c.restore(o, nil)
	return s, nil
}

// endsInitialEvents reports whether a bookmark ends the initial events.
func endsInitialEvents(o *Object) bool {
	var bookmark struct {
		Metadata struct{ Annotations map[string]string }
	}
	err := json.Unmarshal(o.Raw, &bookmark)
	return err == nil && bookmark.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}
