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
	u, err := r.subscribe(ctx)
	if err != nil {
		return 0, r.watchError(err)
	}
	defer func() {
		u.close()
		r.lastOpen = time.Now()
	}()
	r.state(State{Phase: Watching, Err: doubt})
	if doubt != nil || time.Since(r.lastOpen) > continuedWithin {
		r.moved = time.Now()
	}
	at.Last = at.Resume // the next watch repeats events after resume
	opened := time.Now()
	watchdog := r.newWatchdog(ctx, doubt)
	defer watchdog.stop()
	tooLong := time.AfterFunc(time.Hour, u.leave)
	defer tooLong.Stop()
	var armed time.Time // time at which tooLong was set; zero: stopped
	arm := func() {
		tooLong.Reset(listwatch.MaxBlocked)
		armed = time.Now()
	}
	for {
		var f watchFrame
		select { // the watchdog takes precedence over frames
		case found := <-watchdog.findings:
			arm()
			err = watchdog.judge(found)
		case <-watchdog.timer.C:
			arm()
			watchdog.check()
		default:
			var ok bool
			if f, ok = u.next(); ok {
				break
			}
			if u.canJoin(at.Resume) {
				return frames, errAgain
			}
			tooLong.Stop()
			armed = time.Time{}
			select {
			case found := <-watchdog.findings:
				arm()
				err = watchdog.judge(found)
			case <-watchdog.timer.C:
				arm()
				watchdog.check()
			case <-u.closed: // the watch was not read for too long
				return frames, errAgain
			case <-ctx.Done():
				return frames, ctx.Err()
			case <-u.ready:
			}
		}
		switch {
		case errors.Is(err, errDead):
			u.stream.end(err)
			return frames, err
		case err != nil:
			return frames, err
		case errors.Is(f.err, errAgain), f.err != nil && !u.own && (errors.Is(f.err, io.EOF) || listwatch.IsExpired(f.err)):
			return frames, errAgain
		case errors.Is(f.err, io.EOF):
			return frames, nil
		case f.err != nil:
			if u.own && (listwatch.StatusCode(f.err) >= http.StatusInternalServerError || errors.Is(f.err, errFrameTooLarge)) {
				return frames, r.failed(f.err, time.Since(opened), doubt)
			}
			return frames, r.watchError(f.err)
		case f.object == nil:
			continue
		}
		frames++
		rv := f.object.ResourceVersion
		if event.Older(rv, at.Last) {
			return frames, fmt.Errorf("%w: a watch is at resourceVersion %s, and %s was seen", errHistory, rv, at.Last)
		}
		at.Saw(rv)
		size := f.size() // before the handler releases the object
		e := listwatch.NewEvent(f.kind, f.object.ResourceVersion, f.object.Raw)
		if at.Repeats(e) {
			f.object.Release()
			u.handled(size)
			watchdog.heard(f.kind, rv)
			continue
		}
		signal, err := r.signal(ctx, f)
		if err != nil {
			return frames, err
		}
		if armed.IsZero() || watchdog.handled.Sub(armed) > listwatch.MaxBlocked/10 { // resetting the timer for each frame would cost more
			arm()
		}
		if err = r.handler.Handle(ctx, signal); err != nil {
			return frames, handlerError{err}
		}
		at.Handle(e)
		u.handled(size)
		watchdog.heard(f.kind, rv)
		// Continue a busy watch on a wide connection, unless it would begin again at the same
		// resourceVersion.
		if f.busy && at.Resume != began && !r.throwAway && r.elsewhere == nil && !u.stream.wide && !u.stream.stopped() && len(r.client.wide) < wideWatches {
			r.watched.busy.Store(true)
			u.stream.end(errAgain)
			return frames, nil
		}
	}
}

// signal returns the signal for a frame.
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
