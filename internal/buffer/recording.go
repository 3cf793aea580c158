package buffer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// metadata is what a recording must know after a restart. The spool has it with the frames that follow.
type metadata struct {
	Cluster string // its UID
	Target  source.Target
	Sink    string // that is behind
	Start   string // the position at which the recording begins
	Epoch   uint64 // of Start, in the sink's count
	End     end    // of the frames before
}

// end is how far a recording has come.
type end struct {
	Resume  string       // the position; "": it is in the middle of a list
	Seen    string       // the highest resourceVersion of the present history
	Owner   source.Owner // of the last complete list
	Reached string       // the last position up to which it is complete; it is Resume or later, and stays in a list
	// NewHistory: the server has begun another history since the recording began. Positions do not compare with those before, and nothing
	// can be read from its beginning again.
	NewHistory bool
}

func (e *end) add(f *Frame) {
	if f.NewEpoch {
		e.Seen, e.NewHistory = "", true
	}
	if v := f.latest(); v != "" && (e.Seen == "" || event.Newer(v, e.Seen)) {
		e.Seen = v
	}
	if v := f.version(); v != "" {
		e.Reached = v
	}
	if f.Kind == source.ListEnded {
		e.Owner = f.Owner
	}
	e.Resume = f.after()
}

// Recording is what the API server has sent of one target since a position. See the table of its states above.
type Recording struct {
	stream *spool.Stream
	log    *zap.Logger
	frames *atomic.Uint64 // of the buffer

	mu sync.Mutex
	metadata
	tail  *spool.Segment // its end, which could not be read at the start; nil: how far the recording has come is known
	ended error          // why nothing is recorded any more; nil: it is recorded
	needs need
	idle  time.Time // since when the sink has not needed the recording
	at    Position  // the last known one of the sink. Committed is "" if it has not been known since the start. Read and Seen have no meaning
	stop  context.CancelFunc
	fresh bool   // frames were appended that have not been flushed
	aged  bool   // maxAge has deleted frames that the sink has not published
	since int64  // bytes of the frames behind the last metadata
	text  []byte // memory for the next frame
}

// mostText is the largest memory for a frame that is kept for the next one.
const mostText = 1 << 20

// metadataEvery returns how many bytes of frames follow metadata before it is written again. After a restart, no more than that has to be
// read to find the end of a recording, or a position in it.
func (r *Recording) metadataEvery() int64 { return 2 * r.stream.SegmentBytes() }

// errDiscarded is why a recording has ended whose files are deleted.
var errDiscarded = errors.New("it was deleted")

// need is how a sink needs its recording. The zero value: it does not.
type need struct {
	use   *Use      // nil: the sink has to come first, or does not need it
	since time.Time // when it was known last that the sink needs the recording; zero: it does not
}

// newRecording returns a recording that begins at the position of a sink.
func newRecording(st *spool.Stream, m metadata, log *zap.Logger) (*Recording, error) {
	r := &Recording{metadata: m, stream: st, log: log, needs: need{since: time.Now()}}
	return r, r.begin()
}

// begin writes the metadata, with an empty frame: the spool writes it only in front of a frame. r.mu is held.
func (r *Recording) begin() error {
	text, err := json.Marshal(r.metadata)
	r.since = 0
	if err == nil {
		_, err = r.stream.Begin(text, 0)
	}
	if err == nil {
		_, err = r.stream.Append(nil)
	}
	if err == nil {
		err = r.stream.Flush(false)
	}
	return err
}

// continued returns a recording that is on disk. It has ended where frames are missing in it, or its end is damaged.
func continued(st *spool.Stream, log *zap.Logger) (*Recording, error) {
	segments := st.Segments()
	parts := spool.Ranges(segments)
	if len(parts) == 0 {
		err := errors.New("it has no frames")
		for i := range segments {
			err = cmp.Or(segments[i].Damage(), err)
		}
		return nil, err
	}
	tail := parts[0][len(parts[0])-1]
	r := &Recording{stream: st, log: log}
	if err := json.Unmarshal(tail.Meta, &r.metadata); err != nil {
		return nil, fmt.Errorf("its metadata: %w", err)
	}
	r.needs.since, r.at = time.Now(), Position{Epoch: r.Epoch}
	if head := parts[0][0]; head.First == 1 {
		var m metadata
		if err := json.Unmarshal(head.Meta, &m); err != nil {
			return nil, fmt.Errorf("its metadata: %w", err)
		}
		r.at.Committed, r.at.Owner = m.Start, m.End.Owner
	}
	if len(parts) > 1 || tail.Err != nil {
		r.ended = fmt.Errorf("frames are missing behind frame %d", tail.Last)
		return r, nil
	}
	again, err := r.readEnd(tail)
	if again {
		r.tail = &tail
	} else {
		r.ended = err // what is there can be replayed all the same
	}
	return r, nil
}

// readEnd finds how far the recording has come: each frame says it, but for what only the metadata has. again says that the disk could not be
// read: the same call can be made again.
func (r *Recording) readEnd(tail spool.Segment) (again bool, err error) {
	reader := r.stream.Reader(tail.First)
	defer func() { _ = reader.Close() }()
	found := r.End
	for n := tail.First; n <= tail.Last && err == nil; n++ {
		var raw spool.Frame
		raw, err = reader.Next()
		if unreadable(err) {
			return true, fmt.Errorf("read its end: %w", err)
		}
		if err != nil || len(raw.Data) == 0 {
			continue
		}
		var f Frame
		if f, _, err = decodeHead(raw.Data); err == nil {
			found.add(&f)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.End = found
	if err != nil {
		return false, fmt.Errorf("read its end: %w", err)
	}
	return false, nil
}

// findEnd reads the end of the recording, if that could not be read at the start, until it succeeds, the end is damaged, or ctx ends.
func (r *Recording) findEnd(ctx context.Context) error {
	for warned := false; r.tail != nil; warned = true {
		again, err := r.readEnd(*r.tail)
		if !again {
			r.tail = nil
			return err
		}
		if !warned {
			r.log.Warn("the buffer cannot be read, trying again; nothing is recorded until then", zap.String("resource", r.Target.Collection.ResourceID()), zap.Error(err))
		}
		select {
		case <-time.After(readAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// run records until ctx ends or the recording ends. It must not be called for a recording that has ended.
func (r *Recording) run(ctx context.Context, client *source.Client, slots source.Slots) {
	err := r.findEnd(ctx)
	if err == nil {
		r.mu.Lock()
		from := r.End
		r.mu.Unlock()
		c := source.NewCollection(source.Options{Client: client, Target: r.Target, Handler: r, Lists: slots, Owner: from.Owner, Seen: r.seen})
		err = c.Run(ctx, event.Position{RV: from.Resume, Void: from.Resume == ""})
	}
	flushed := r.stream.Flush(true)
	if ctx.Err() == nil {
		r.finish(errors.Join(err, flushed))
	}
}

func (r *Recording) seen() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.End.Seen
}

// finish records why nothing is recorded any more.
func (r *Recording) finish(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = why
	r.log.Warn("buffering ended; what was buffered is still published, and a gap may follow", zap.String("resource", r.Target.Collection.ResourceID()), zap.Error(why))
}

// Handle implements [source.Handler].
func (r *Recording) Handle(_ context.Context, s source.Signal) error {
	f := Frame{Signal: s, At: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	text := f.append(r.text[:0])
	if r.text = text; cap(text) > mostText {
		r.text = nil
	}
	if _, err := r.stream.Append(text); err != nil {
		return err
	}
	r.End.add(&f)
	r.frames.Add(1)
	r.fresh = true
	if s.Object != nil {
		s.Object.Release()
	}
	if r.since += int64(len(text)); s.Kind == source.ListEnded || r.since >= r.metadataEvery() { // the metadata has the owner of the list
		return r.begin()
	}
	return nil
}

// flush makes what was recorded readable.
func (r *Recording) flush() error {
	r.mu.Lock()
	fresh := r.fresh
	r.fresh = false
	r.mu.Unlock()
	if !fresh {
		return nil
	}
	return r.stream.Flush(false)
}

// find returns the number of the first frame that a watch from a position would send. It returns false if the recording does not reach
// back to the position, or has a list where the changes around the position would be. If that list begins a new history, the position may
// be of that history, too: another bridge may have come there without noticing. If resourceVersions are not numbers, the recording
// reaches back to the positions that it has.
//
// What is damaged counts as missing. After an error the recording could not be read, and it is not known whether it reaches back.
func (r *Recording) find(at string) (first uint64, reaches bool, err error) {
	segments := r.stream.Segments()
	if len(segments) == 0 {
		return 0, false, nil
	}
	whole := segments[0].First == 1
	first, reaches = segments[0].First, whole && !event.Newer(r.Start, at)
	reached := r.Start // up to where the frames before are complete
	if n, position := latest(segments, at); n != 0 {
		first, reaches, reached = n, true, position
	}
	reader := r.stream.Reader(first)
	defer func() { _ = reader.Close() }()
	for {
		raw, err := reader.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, spool.ErrBroken) {
			return first, reaches, nil
		}
		if err != nil {
			return 0, false, err
		}
		if len(raw.Data) == 0 {
			continue
		}
		f, _, err := decodeHead(raw.Data)
		if err != nil {
			return first, reaches, nil
		}
		switch v := f.version(); {
		case f.NewEpoch: // versions behind it are of another history
			return first, reaches && !event.Newer(at, reached), nil
		case f.Kind == source.ListBegun && event.Newer(at, reached):
			reaches = false // until the position is reached again
		case v == "": // in a list
		case v == at || event.Older(v, at):
			first, reaches, reached = raw.Number+1, true, v
		case reaches || event.Older(at, v):
			return first, reaches, nil
		}
	}
}

// latest returns the last segment whose metadata says that the frames before it are complete up to a position that is not newer than at. It
// returns 0 if there is none. So not all frames before at have to be read.
func latest(segments []spool.Segment, at string) (first uint64, position string) {
	parts := spool.Ranges(segments)
	if len(parts) == 0 {
		return 0, ""
	}
	for _, s := range parts[0] {
		if s.First != s.Chain { // the metadata is of an earlier segment
			continue
		}
		var m metadata
		if json.Unmarshal(s.Meta, &m) != nil || m.End.NewHistory || event.Newer(m.End.Reached, at) {
			break
		}
		if m.End.Resume != "" { // not in a list
			first, position = s.First, m.End.Reached
		}
	}
	return first, position
}

// use makes the sink use the recording. It returns nil if the recording does not reach back to what the sink has committed, and an error if
// that is not known.
func (r *Recording) use(at Position) (*Use, error) {
	if at.Epoch != r.Epoch {
		return nil, nil
	}
	done, reaches, err := r.find(at.Committed)
	if err != nil || !reaches {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &Use{recording: r, reader: r.stream.Reader(done), done: done - 1, read: at.Read, ahead: at.Read != at.Committed, passed: at.Read == at.Committed, owner: at.Owner}
	r.needs, r.at = need{u, time.Now()}, at
	return u, nil
}

// leave records that the sink does not need the recording any more. It has no effect if the sink uses it in another way than use.
func (r *Recording) leave(use *Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.needs.use == use && !r.needs.since.IsZero() {
		r.needs, r.idle = need{}, time.Now()
	}
}

// awaits records that the sink, which has used the recording, will come again.
func (r *Recording) awaits(use *Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.needs.use == use {
		r.needs = need{since: time.Now()}
	}
}

// awaitsSink records that a sink will come, if nothing is known of it.
func (r *Recording) awaitsSink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.needs.since.IsZero() {
		r.needs = need{since: time.Now()}
	}
}

// overdue ends the wait for a sink that could have come for comeWithin. come is when the sink began to read; zero: it has not.
func (r *Recording) overdue(come, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if come.IsZero() || r.needs.use != nil || r.needs.since.IsZero() {
		return
	}
	if come.Before(r.needs.since) {
		come = r.needs.since
	}
	if now.Sub(come) > comeWithin {
		r.needs, r.idle = need{}, now
	}
}

// trim deletes what the sink has committed.
func (r *Recording) trim() error {
	r.mu.Lock()
	below := uint64(0) // all may be needed
	if r.needs.use != nil {
		below = r.needs.use.done
	}
	r.mu.Unlock()
	return r.stream.Trim(below)
}

// age records that frames were deleted because they were older than maxAge.
func (r *Recording) age(maxAge time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aged || r.needs.since.IsZero() {
		return
	}
	r.aged = true
	r.log.Warn("deleted from the buffer what is older than maxAge and not published; a gap follows", zap.String("sink", r.Sink), zap.String("resource", r.Target.Collection.ResourceID()), zap.Duration("maxAge", maxAge))
}

func (r *Recording) hasAged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aged
}

// unneeded reports whether the sink has not needed the recording for a while.
func (r *Recording) unneeded(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.needs.since.IsZero() && now.Sub(r.idle) > keepFor
}

// needed reports whether the sink uses the recording, or has to come for it.
func (r *Recording) needed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.needs.since.IsZero()
}

// hasEnded returns why nothing is recorded any more; nil: it is recorded.
func (r *Recording) hasEnded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}
