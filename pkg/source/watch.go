package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// openTimeout is how long a server may take to begin its answer. A server begins at
	// once, and a proxy that waits for content gets a bookmark within this time.
	openTimeout = 90 * time.Second
	// continuedWithin is how long after a watch another one continues it, also if the first one broke: a proxy may break every watch before its
	// first bookmark. It is longer than the longest pause between two attempts.
	continuedWithin = time.Minute
)

var (
	// ErrExpired is the error of a [State] whose collection will be listed again, because the API server
	// no longer has the changes after its resourceVersion.
	ErrExpired = listwatch.ErrExpired
	errDead    = errors.New("the watch is dead: another watch received a change that it did not")
	// errAgain ends a watch for a reason that says nothing about the server, and another watch follows at once.
	errAgain = errors.New("another watch goes on")
)

// watch opens one watch, passes its frames on and returns their number. A nil error
// means that the server ended the watch in order. doubt is the reason why it is unknown whether the position
// belongs to the server's history, nil if it does.
func (r *reader) watch(ctx context.Context, doubt error) (frames int, err error) {
	at := &r.at
	began := at.Resume
	stream, err := r.subscribe(ctx)
	if err != nil {
		return 0, r.watchError(err)
	}
	defer func() {
		stream.close()
		r.lastOpen = time.Now()
	}()
	r.state(State{Phase: Watching, Err: doubt})
	if doubt != nil || time.Since(r.lastOpen) > continuedWithin {
		r.moved = time.Now()
	}
	at.Last = at.Resume // the next watch repeats events after resume
	w := openWatch{reader: r, stream: stream, began: began, opened: time.Now(), doubt: doubt, watchdog: r.newWatchdog(ctx, doubt)}
	defer w.watchdog.stop()
	w.tooLong = time.AfterFunc(time.Hour, stream.leave)
	defer w.tooLong.Stop()
	for {
		f, err := w.next(ctx)
		if err == nil && f.object != nil {
			frames++
			err = w.pass(ctx, f)
		}
		switch {
		case err == errInOrder: //nolint:errorlint // a handler's error may wrap anything
			return frames, nil
		case err != nil:
			return frames, err
		}
	}
}

// errInOrder is the error of [openWatch] when the watch has ended in order.
var errInOrder = errors.New("the watch has ended in order")

// openWatch is a watch that is read.
type openWatch struct {
	*reader
	stream   *subscriber
	watchdog *watchdog
	began    string // the resourceVersion from which it watches
	opened   time.Time
	doubt    error
	tooLong  *time.Timer // leaves the stream while the watch is not read
	armed    time.Time   // time at which tooLong was set; zero: stopped
}

// arm lets the watch be left if it is not read for too long.
func (w *openWatch) arm() {
	w.tooLong.Reset(listwatch.MaxBlocked)
	w.armed = time.Now()
}

// next returns the next frame. It has no object if there is none yet.
func (w *openWatch) next(ctx context.Context) (f watchFrame, err error) {
	select { // the watchdog takes precedence over frames
	case found := <-w.watchdog.findings:
		err = w.judge(found)
	case <-w.watchdog.timer.C:
		w.check()
	default:
		var ok bool
		if f, ok = w.stream.next(); ok {
			return f, w.ended(f.err)
		}
		if w.stream.canJoin(w.at.Resume) {
			return f, errAgain
		}
		w.tooLong.Stop()
		w.armed = time.Time{}
		select {
		case found := <-w.watchdog.findings:
			err = w.judge(found)
		case <-w.watchdog.timer.C:
			w.check()
		case <-w.stream.closed: // the watch was not read for too long
			return f, errAgain
		case <-ctx.Done():
			return f, ctx.Err()
		case <-w.stream.ready:
		}
	}
	if errors.Is(err, errDead) {
		w.stream.stream.end(err)
	}
	return f, err
}

func (w *openWatch) judge(found finding) error {
	w.arm()
	return w.watchdog.judge(found)
}

func (w *openWatch) check() {
	w.arm()
	w.watchdog.check()
}

// ended returns the error of a watch for that of a frame.
func (w *openWatch) ended(err error) error {
	own := w.stream.own
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errAgain), !own && (errors.Is(err, io.EOF) || listwatch.IsExpired(err)):
		return errAgain
	case errors.Is(err, io.EOF):
		return errInOrder
	case own && (listwatch.StatusCode(err) >= http.StatusInternalServerError || errors.Is(err, errFrameTooLarge)):
		return w.failed(err, time.Since(w.opened), w.doubt)
	}
	return w.watchError(err)
}

func (w *openWatch) pass(ctx context.Context, f watchFrame) error {
	at, rv := &w.at, f.object.ResourceVersion
	if event.Older(rv, at.Last) {
		return fmt.Errorf("%w: a watch is at resourceVersion %s, and %s was seen", errHistory, rv, at.Last)
	}
	at.Saw(rv)
	size := f.size() // before the handler releases the object
	e := listwatch.NewEvent(f.kind, rv, f.object.Raw)
	if at.Repeats(e) {
		f.object.Release()
		w.stream.handled(size)
		w.watchdog.heard(f.kind, rv)
		return nil
	}
	signal, err := w.signal(ctx, f)
	if err != nil {
		return err
	}
	if w.armed.IsZero() || w.watchdog.handled.Sub(w.armed) > listwatch.MaxBlocked/10 { // resetting the timer for each frame would cost more
		w.arm()
	}
	if err = w.handler.Handle(ctx, signal); err != nil {
		return handlerError{err}
	}
	at.Handle(e)
	w.stream.handled(size)
	w.watchdog.heard(f.kind, rv)
	if f.busy && w.widens() {
		w.watched.busy.Store(true)
		w.stream.stream.end(errAgain)
		return errInOrder
	}
	return nil
}

// widens reports whether a busy watch is to continue on a wide connection: not if it would begin again at the same resourceVersion.
func (w *openWatch) widens() bool {
	return w.at.Resume != w.began && !w.throwAway && w.elsewhere == nil && !w.stream.stream.wide && !w.stream.stream.stopped() &&
		len(w.client.wide) < wideWatches
}

func (r *reader) signal(ctx context.Context, f watchFrame) (Signal, error) {
	s := Signal{Object: f.object, Resume: r.at.Resume}
	switch f.kind {
	case "ADDED":
		s.Kind = Added
	case "MODIFIED":
		s.Kind = Modified
	case "DELETED":
		s.Kind = Deleted
		if r.leavable {
			s.left(r.Alive(ctx, f.object.Namespace, f.object.Name, f.object.UID))
		}
	case "BOOKMARK":
		return Signal{Kind: Progress, RV: f.object.ResourceVersion, Resume: r.at.Resume}, nil
	default:
		return s, fmt.Errorf("watch: a frame of unknown type %q", f.kind)
	}
	return s, nil
}

// failed returns the error for an internal error of the server in a watch. It does not count if the server may be in trouble, as it is
// when etcd has no leader: the probe before the watch has failed. After a long watch, failures before it do not count either.
func (r *reader) failed(err error, lasted time.Duration, doubt error) error {
	if lasted > listwatch.SoundWatch {
		r.at.Failures = 0
	}
	if doubt == nil {
		r.at.Failures++
	}
	if doubt == nil && r.at.Failures >= listwatch.MaxFailures {
		return fmt.Errorf("resourceVersion %s is %w: %w", r.at.Resume, ErrExpired, err)
	}
	return r.watchError(err)
}

func (r *reader) watchError(err error) error {
	if listwatch.IsExpired(err) {
		return fmt.Errorf("resourceVersion %s is %w: %w", r.at.Resume, ErrExpired, err)
	}
	return fmt.Errorf("watch: %w", listwatch.PlainCause(err))
}
