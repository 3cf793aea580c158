package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	minWatch = 5 * time.Minute // minimum timeout in the request; the maximum is twice as long
	// graceWatch is how much longer than its timeout a watch may last before it counts
	// as dead.
	graceWatch = 30 * time.Second
	// maxBlocked is how long a watch stays open while it is not read. The server
	// would close it soon, and until then it uses buffers here.
	maxBlocked = 10 * time.Second
	// openTimeout is how long a server may take to begin its answer. A server begins at
	// once, and a proxy that waits for content gets a bookmark within this time.
	openTimeout = 90 * time.Second
	// Maximum number and bytes of frames that are read ahead of the handler.
	aheadFrames = 32
	aheadBytes  = 32 << 10
)

var (
	// ErrExpired is the error of a [State] whose collection will be listed again, because the API server
	// no longer has the changes after its resourceVersion.
	ErrExpired = errors.New("no longer served")
	errDead    = errors.New("the watch is dead: another watch received a change that it did not")
)

// stream is an open watch, read by a goroutine of its own. The goroutine reads ahead as far as aheadFrames and aheadBytes
// allow. The rest waits in the connection's buffers, which are bounded.
type stream struct {
	frames chan watchFrame // the last one has an error
	ahead  atomic.Int64    // bytes of frames that have been read but not handled
	room   chan struct{}   // signals that ahead is below aheadBytes
	cancel context.CancelFunc
	body   io.Closer
	once   sync.Once
	closed chan struct{}
	reader sync.WaitGroup
}

type watchFrame struct {
	kind   string
	object *Object
	busy   bool // the watch is busy
	err    error
}

// open opens a watch from rv that the server should end after timeout. Its frames
// share buffers of at most keepBuffer bytes, or of keepWide where ctx is wide.
func (c *Collection) open(ctx context.Context, rv string, timeout, grace time.Duration) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+grace)
	unanswered := time.AfterFunc(openTimeout, cancel)
	body, err := c.request(watchForm).
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(timeout/time.Second))).
		Param("resourceVersion", rv).
		Stream(ctx)
	if !unanswered.Stop() {
		err = fmt.Errorf("no answer within %s", openTimeout)
		if body != nil {
			body.Close()
		}
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{
		frames: make(chan watchFrame, aheadFrames), room: make(chan struct{}, 1), cancel: cancel, body: body, closed: make(chan struct{}),
	}
	keep := keepBuffer
	if isWide(ctx) {
		keep = keepWide
	}
	s.reader.Go(func() { s.read(newFrameReader(body, keep, &c.client.memory)) })
	return s, nil
}

// size returns the bytes of a frame that count for ahead.
func (f *watchFrame) size() int64 {
	if f.object == nil {
		return 0
	}
	return int64(len(f.object.Raw))
}

func (s *stream) read(r *frameReader) {
	for {
		kind, o, err := r.next()
		f := watchFrame{kind, o, r.busy, err}
		s.ahead.Add(f.size())
		select {
		case s.frames <- f:
		case <-s.closed:
			return
		}
		if err != nil {
			return
		}
		for s.ahead.Load() >= aheadBytes {
			select {
			case <-s.room:
			case <-s.closed:
				return
			}
		}
	}
}

// handled records that a frame was handled and no longer counts for ahead.
func (s *stream) handled(size int64) {
	if now := s.ahead.Add(-size); now < aheadBytes && now+size >= aheadBytes {
		select {
		case s.room <- struct{}{}:
		default: // the reader has not received the last signal yet
		}
	}
}

// close ends the watch and frees its buffers. It may be called more than once. A goroutine that waits
// for a frame is not woken.
func (s *stream) close() {
	s.once.Do(func() {
		close(s.closed)
		s.cancel()
		s.body.Close()
	})
	s.reader.Wait()
}

// watch opens one watch, passes its frames on and returns their number. A nil error
// means that the server ended the watch in order. doubt is the reason why it is unknown whether the position
// belongs to the server's history, nil if it does.
func (r *reader) watch(ctx context.Context, doubt error) (frames int, err error) {
	at := &r.at
	began := at.resume
	timeout, opening := minWatch+rand.N(minWatch), ctx
	switch {
	case r.elsewhere != nil:
		opening = elsewhere(ctx, r.elsewhere)
	case r.throwAway:
		opening = throwAway(ctx)
	case r.busy:
		select {
		case r.client.wide <- struct{}{}:
			defer func() { <-r.client.wide }()
			opening = widely(ctx)
		default:
		}
	}
	r.busy = false
	s, err := r.open(opening, at.resume, timeout, graceWatch)
	if err != nil {
		return 0, r.watchError(err)
	}
	defer s.close()
	r.state(State{Phase: Watching, Err: doubt})
	at.last = at.resume // the next watch repeats events after resume
	watchdog := r.newWatchdog(ctx, doubt)
	defer watchdog.stop()
	tooLong := time.AfterFunc(time.Hour, s.close)
	defer tooLong.Stop()
	var armed time.Time // time at which tooLong was set; zero: stopped
	for {
		var f watchFrame
		select { // findings of the watchdog take precedence over frames
		case found := <-watchdog.findings:
			err = watchdog.judge(found)
		default:
			select {
			case f = <-s.frames:
			default:
				tooLong.Stop()
				armed = time.Time{}
				select {
				case found := <-watchdog.findings:
					err = watchdog.judge(found)
				case <-watchdog.timer.C:
					watchdog.check()
				case <-s.closed: // the watch was not read for too long
					return frames, nil
				case f = <-s.frames:
				}
			}
		}
		switch {
		case err != nil:
			return frames, err
		case errors.Is(f.err, io.EOF):
			return frames, nil
		case f.err != nil:
			if statusCode(f.err) >= http.StatusInternalServerError || errors.Is(f.err, errFrameTooLarge) {
				at.failures++
			}
			return frames, r.watchError(f.err)
		case f.object == nil:
			continue
		}
		frames++
		if event.Older(f.object.ResourceVersion, at.last) {
			return frames, fmt.Errorf("%w: a watch is at resourceVersion %s, and %s was seen", errHistory, f.object.ResourceVersion, at.last)
		}
		at.saw(f.object.ResourceVersion)
		size := f.size() // before the signal changes the size and the handler releases the object
		signal, err := r.signal(ctx, f)
		if err != nil {
			return frames, err
		}
		if armed.IsZero() || watchdog.last.Sub(armed) > maxBlocked/10 { // resetting the timer for each frame would cost more
			tooLong.Reset(maxBlocked)
			armed = time.Now()
		}
		if err = r.handler.Handle(ctx, signal); err != nil {
			return frames, handlerError{err}
		}
		s.handled(size)
		watchdog.heard(f.kind)
		// Continue a busy watch on a wide connection, unless it would begin again at the same
		// resourceVersion.
		if f.busy && at.resume != began && !r.throwAway && r.elsewhere == nil && !isWide(opening) && len(r.client.wide) < wideWatches {
			r.busy = true
			return frames, nil
		}
	}
}

// signal returns the signal for a frame.
func (r *reader) signal(ctx context.Context, f watchFrame) (Signal, error) {
	s := Signal{Object: f.object, Resume: r.at.resume}
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
		return Signal{Kind: Progress, RV: f.object.ResourceVersion, Resume: r.at.resume}, nil
	default:
		return s, fmt.Errorf("watch: a frame of unknown type %q", f.kind)
	}
	r.restore(s.Object, nil)
	return s, nil
}

func (r *reader) watchError(err error) error {
	if isExpired(err) || r.at.failures >= maxFailures {
		return fmt.Errorf("resourceVersion %s is %w: %w", r.at.resume, ErrExpired, err)
	}
	return fmt.Errorf("watch: %w", plainCause(err))
}
