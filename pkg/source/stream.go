package source

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

const (
	// Maximum number and bytes of frames that are read ahead of the fastest subscriber.
	aheadFrames = 32
	aheadBytes  = 32 << 10
	// Maximum number and bytes of frames that wait for a subscriber because another one is faster. Beyond them, it has to open a
	// watch for itself.
	slowFrames = 1 << 10
	slowBytes  = 256 << 10
	// slowTotal is the maximum number of bytes that wait for the subscribers of a client with more than aheadBytes each.
	slowTotal = 16 << 20
)

// stream is an open watch. A goroutine of its own reads it, and gives each frame to every subscriber. It reads ahead of the fastest
// subscriber as far as aheadFrames and aheadBytes allow. The rest waits in the connection's buffers, which are bounded.
type stream struct {
	watched *watched
	history uint64 // the number of the server's history, see [watches]
	wide    bool   // it has a slot of [Client].wide, and a wide connection
	client  *Client
	cancel  context.CancelFunc
	body    io.Closer
	from    string        // the resourceVersion from which it was opened
	opened  time.Time     // when
	room    chan struct{} // has room for one: signals that a subscriber may have room again
	once    sync.Once
	closed  chan struct{}
	reader  sync.WaitGroup

	// The mutex of watched guards the fields below.
	at          listwatch.Cursor // of the frames that were read
	recent      recent
	subscribers []*subscriber
	over        bool // nothing more comes, and nobody can join
	backlog     bool // it had far to go to the position of a collection that joined it
}

// recent has the newest frames of a stream, for collections that join it.
type recent struct {
	floor  string // every later frame is in frames, or is still to come
	frames []watchFrame
	bytes  int
}

// subscriber receives the frames of a stream. Its methods are for one goroutine, except for leave.
type subscriber struct {
	stream *stream
	// own is true if the watch was opened from the position of this subscriber. Only then does a watch that ends without a frame, with an
	// error of the server, or because its history is gone, say something about that position.
	own    bool
	ready  chan struct{} // has room for one: signals that next may return something
	closed chan struct{} // closed by leave
	once   sync.Once
	batch  []watchFrame // taken from queue
	taken  int          // how many of batch were returned

	// The mutex of the stream's watched guards the fields below.
	after   string // frames up to this resourceVersion are left out; "": none
	skipped int    // how many were left out
	queue   []watchFrame
	frames  int   // given and not handled
	bytes   int   // of these frames
	ended   error // what ended the stream; nil: it goes on
	done    bool  // nothing more is handled: nothing counts
}

type watchFrame struct {
	kind   string
	object *Object
	busy   bool // the watch is busy
	err    error
}

// size returns the bytes of a frame that count as read ahead.
func (f *watchFrame) size() int {
	if f.object == nil {
		return 0
	}
	return len(f.object.Raw)
}

// open opens a watch from a resourceVersion for a subscriber that has seen everything up to at. The server should end it after timeout. ctx
// ends only the opening: the watch is closed when all subscribers have left. Its frames
// share buffers of at most keepBuffer bytes, or of keepWide where ctx is wide.
func (c *Collection) open(ctx context.Context, w *watched, from, at string, timeout, grace time.Duration) (*subscriber, error) {
	history := c.client.watches.history.Load() // asked before the server answers
	open, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout+grace)
	opening, unanswered := context.AfterFunc(ctx, cancel), time.AfterFunc(openTimeout, cancel)
	body, err := c.request(watchForm).
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(timeout/time.Second))).
		Param("resourceVersion", from).
		Stream(open)
	switch wanted, answered := opening(), unanswered.Stop(); {
	case !wanted:
		err = ctx.Err()
	case !answered:
		err = fmt.Errorf("no answer within %s", openTimeout)
	}
	if err != nil {
		if body != nil {
			body.Close()
		}
		cancel()
		return nil, err
	}
	s := &stream{
		watched: w, history: history, wide: isWide(ctx), client: c.client, cancel: cancel, body: body, from: from, opened: time.Now(),
		room: make(chan struct{}, 1), closed: make(chan struct{}), at: listwatch.Cursor{Resume: from, Last: from}, recent: recent{floor: from},
	}
	u := s.newSubscriber(at)
	if u.own = from == at; u.own {
		u.after = ""
	}
	s.subscribers = []*subscriber{u}
	w.all.open.Add(1)
	keep := keepBuffer
	if s.wide {
		keep = keepWide
	}
	s.reader.Go(func() { s.read(c, newFrameReader(body, keep, &c.client.memory)) })
	return u, nil
}

// endedAtOnce reports whether the stream ended at once and led no further than where it began.
func (s *stream) endedAtOnce() bool {
	return s.at.Resume == s.from && time.Since(s.opened) < listwatch.QuickWatch
}

func (s *stream) newSubscriber(at string) *subscriber {
	return &subscriber{stream: s, after: at, ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// covers reports whether a collection that has seen everything up to a resourceVersion gets everything later from the stream, if it
// joins now.
func (s *stream) covers(rv string) bool {
	return !s.over && (s.recent.floor == rv || event.Older(s.recent.floor, rv))
}

// join adds a subscriber that has seen everything up to a resourceVersion, which the stream has to cover.
func (s *stream) join(at string) *subscriber {
	u := s.newSubscriber(at)
	for _, f := range s.recent.frames {
		u.give(f.share())
	}
	s.subscribers = append(s.subscribers, u)
	s.signalRoom()
	return u
}

// read reads the watch to its end.
func (s *stream) read(c *Collection, r *frameReader) {
	for {
		kind, o, err := r.next()
		if err != nil {
			s.end(err)
			return
		}
		switch kind {
		case "ADDED", "MODIFIED", "DELETED":
			c.restore(o, nil)
		}
		s.give(watchFrame{kind: kind, object: o, busy: r.busy})
		for !s.hasRoom() {
			select {
			case <-s.room:
			case <-s.closed:
				return
			}
		}
	}
}

// give gives a frame to all subscribers. Those that are too slow, or have seen much of what comes, have to open a watch for themselves, when they have
// handled what they got.
func (s *stream) give(f watchFrame) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	if event.Older(f.object.ResourceVersion, s.at.Last) { // another history: each subscriber has to see that
		s.watched.all.distrust()
		for _, u := range s.subscribers {
			u.after = ""
		}
	}
	s.at.Saw(f.object.ResourceVersion)
	if s.watched.readers < 2 {
		s.recent = recent{floor: f.object.ResourceVersion}
	} else {
		s.recent.add(f.share())
	}
	s.subscribers = slices.DeleteFunc(s.subscribers, func(u *subscriber) bool {
		far := u.skipped >= aheadFrames && u.after != ""
		s.backlog = s.backlog || far
		leaves := far || u.tooSlow()
		if leaves {
			u.end(errAgain)
		}
		return leaves
	})
	for i, u := range s.subscribers {
		if i == len(s.subscribers)-1 {
			u.give(f)
		} else {
			u.give(f.share())
		}
	}
}

// share returns a frame with the same object, which is released separately.
func (f watchFrame) share() watchFrame {
	f.object = f.object.share()
	return f
}

// add adds a frame, and forgets old ones.
func (r *recent) add(f watchFrame) {
	r.frames, r.bytes = append(r.frames, f), r.bytes+f.size()
	n := 0
	for ; n < len(r.frames) && (r.bytes > aheadBytes || len(r.frames)-n > aheadFrames); n++ {
		old := r.frames[n]
		r.bytes, r.floor = r.bytes-old.size(), old.object.ResourceVersion
		old.object.Release()
	}
	r.frames = slices.Delete(r.frames, 0, n)
}

// hasRoom reports whether a subscriber has room for another frame.
func (s *stream) hasRoom() bool {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	return slices.ContainsFunc(s.subscribers, (*subscriber).hasRoom)
}

func (s *stream) signalRoom() {
	select {
	case s.room <- struct{}{}:
	default: // the reader has not received the last signal yet
	}
}

// end ends the stream for all subscribers, after the frames that they got. Only the first call has an effect.
func (s *stream) end(err error) {
	s.watched.mu.Lock()
	s.finish(err)
	s.watched.mu.Unlock()
	s.stop()
}

// finish is the part of end for which the mutex is held.
func (s *stream) finish(err error) {
	if s.over {
		return
	}
	s.over = true
	s.watched.ended(s, err)
	for _, u := range s.subscribers {
		u.end(err)
	}
	s.subscribers, s.recent = nil, recent{}
}

func (s *stream) stop() {
	s.once.Do(func() {
		close(s.closed)
		s.cancel()
		s.body.Close()
		s.watched.all.open.Add(-1)
		if s.wide {
			<-s.client.wide
		}
	})
}

// give adds a frame to the queue, unless the subscriber has seen it.
func (u *subscriber) give(f watchFrame) {
	if u.after != "" && !event.Newer(f.object.ResourceVersion, u.after) {
		f.object.Release()
		u.skipped++
		return
	}
	if listwatch.Resumable(f.object.ResourceVersion) { // otherwise it cannot be compared, and earlier frames may follow
		u.after = "" // all that follows is newer, too
	}
	u.queue = append(u.queue, f)
	u.account(1, f.size())
	u.signal()
}

// account adds to the frames that were given and not handled.
func (u *subscriber) account(frames, bytes int) {
	before := max(0, u.bytes-aheadBytes)
	u.frames, u.bytes = u.frames+frames, u.bytes+bytes
	u.stream.watched.all.slow.Add(int64(max(0, u.bytes-aheadBytes) - before))
}

// hasRoom reports whether the stream is to read another frame for the subscriber. The frame that is being handled does not count.
func (u *subscriber) hasRoom() bool { return u.frames <= aheadFrames && u.bytes < aheadBytes }

// tooSlow reports whether too much waits for the subscriber.
func (u *subscriber) tooSlow() bool {
	return u.frames >= slowFrames || u.bytes >= slowBytes || !u.hasRoom() && u.stream.watched.all.slow.Load() >= slowTotal
}

func (u *subscriber) end(err error) {
	u.ended = err
	u.signal()
}

func (u *subscriber) signal() {
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

// next returns the next frame, or false if there is none yet. The last frame has an error.
func (u *subscriber) next() (watchFrame, bool) {
	if u.taken == len(u.batch) {
		u.stream.watched.mu.Lock()
		u.batch, u.queue, u.taken = u.queue, u.batch[:0], 0
		ended := u.ended
		u.stream.watched.mu.Unlock()
		if len(u.batch) == 0 {
			return watchFrame{err: ended}, ended != nil
		}
	}
	f := u.batch[u.taken]
	u.batch[u.taken] = watchFrame{}
	u.taken++
	return f, true
}

func (u *subscriber) handled(size int) {
	u.stream.watched.mu.Lock()
	defer u.stream.watched.mu.Unlock()
	if u.done {
		return
	}
	full := !u.hasRoom()
	u.account(-1, -size)
	if full && u.hasRoom() {
		u.stream.signalRoom()
	}
}

// close leaves the stream, and drops what was not handled.
func (u *subscriber) close() {
	u.leave()
	u.stream.watched.mu.Lock()
	defer u.stream.watched.mu.Unlock()
	u.account(-u.frames, -u.bytes)
	u.done, u.queue = true, nil
}

// leave leaves the stream, which is closed when nobody is left. It may be called more than once, from any goroutine. next still returns
// what was given before, which counts until it is handled.
func (u *subscriber) leave() {
	u.once.Do(func() {
		s := u.stream
		s.watched.mu.Lock()
		s.subscribers = slices.DeleteFunc(s.subscribers, func(other *subscriber) bool { return other == u })
		last := len(s.subscribers) == 0
		if last {
			s.finish(errAgain) // in the same step: nobody joins in between
		}
		s.watched.mu.Unlock()
		close(u.closed)
		if last {
			s.stop()
		}
		s.signalRoom()
	})
	if u.stream.stopped() {
		u.stream.reader.Wait()
	}
}

func (s *stream) stopped() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}
