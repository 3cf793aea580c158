package buffer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// metadata is what a recording must know after a restart. The spool has it with the frames that follow.
type metadata struct {
	Target source.Target
	Start  string   // the position at which the recording begins
	Sinks  []string // that were behind
	End    end      // of the frames before
}

// end is how far a recording has come.
type end struct {
	Resume string       // the position; "": it is in the middle of a list
	Seen   string       // the highest resourceVersion of the present history
	Owner  source.Owner // of the last complete list
}

// add adds a frame.
func (e *end) add(f *Frame) {
	if f.NewEpoch {
		e.Seen = ""
	}
	if v := f.latest(); v != "" && (e.Seen == "" || event.Newer(v, e.Seen)) {
		e.Seen = v
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
	ended error           // why nothing is recorded any more; nil: it is recorded
	sinks map[string]sink // that are behind
	idle  time.Time       // since when no sink has needed the recording
	stop  context.CancelFunc
	fresh bool // frames were appended that have not been flushed
}

// sink is a sink that needs the recording.
type sink struct {
	use   *Use      // nil: the sink has to come first, so it is not known how far it is
	since time.Time // when it was known last that the sink needs the recording
}

// newRecording returns a recording that begins at the position of a sink.
func newRecording(st *spool.Stream, m metadata, log *zap.Logger) (*Recording, error) {
	r := &Recording{metadata: m, stream: st, log: log, sinks: awaited(m.Sinks)}
	return r, r.begin()
}

// awaited returns sinks that have to come first.
func awaited(names []string) map[string]sink {
	all := map[string]sink{}
	for _, name := range names {
		all[name] = sink{since: time.Now()}
	}
	return all
}

// begin writes the metadata, with an empty frame: the spool writes it only in front of a frame. r.mu is held.
func (r *Recording) begin() error {
	text, err := json.Marshal(r.metadata)
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

// continued returns a recording that is on disk. It has ended where frames are missing in it.
func continued(st *spool.Stream, log *zap.Logger) (*Recording, error) {
	parts := spool.Ranges(st.Segments())
	if len(parts) == 0 {
		return nil, errors.New("it has no frames")
	}
	tail := parts[0][len(parts[0])-1]
	r := &Recording{stream: st, log: log}
	if err := json.Unmarshal(tail.Meta, &r.metadata); err != nil {
		return nil, fmt.Errorf("its metadata: %w", err)
	}
	r.sinks = awaited(r.Sinks)
	if len(parts) > 1 || tail.Err != nil {
		r.ended = fmt.Errorf("frames are missing behind frame %d", tail.Last)
		return r, nil
	}
	return r, r.readEnd(tail)
}

// readEnd finds how far the recording has come: each frame says it, but for what only the metadata has.
func (r *Recording) readEnd(tail spool.Segment) error {
	reader := r.stream.Reader(tail.First)
	defer func() { _ = reader.Close() }()
	for n := tail.First; n <= tail.Last; n++ {
		raw, err := reader.Next()
		if err != nil {
			return fmt.Errorf("read its end: %w", err)
		}
		if len(raw.Data) == 0 {
			continue
		}
		f, err := decode(raw.Data)
		if err != nil {
			return fmt.Errorf("read its end: %w", err)
		}
		r.End.add(&f)
	}
	return nil
}

// run records until ctx ends or the recording ends. It must not be called for a recording that has ended.
func (r *Recording) run(ctx context.Context, client *source.Client, slots source.Slots) {
	r.mu.Lock()
	from := r.End
	r.mu.Unlock()
	c := source.NewCollection(source.Options{Client: client, Target: r.Target, Handler: r, Lists: slots, Owner: from.Owner, Seen: r.seen})
	err := c.Run(ctx, event.Position{RV: from.Resume, Void: from.Resume == ""})
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
	text := f.append(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.stream.Append(text); err != nil {
		return err
	}
	r.End.add(&f)
	r.frames.Add(1)
	r.fresh = true
	if s.Object != nil {
		s.Object.Release()
	}
	if s.Kind == source.ListEnded { // the metadata has the owner
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
// back to the position.
func (r *Recording) find(at string) (first uint64, reaches bool, err error) {
	segments := r.stream.Segments()
	if len(segments) == 0 {
		return 0, false, nil
	}
	whole := segments[0].First == 1
	first, reaches = segments[0].First, whole && !event.Newer(r.Start, at)
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
		f, err := decode(raw.Data)
		if err != nil {
			return 0, false, err
		}
		switch v := f.version(); {
		case f.NewEpoch: // versions behind it are of another history
			return first, reaches, nil
		case v == "": // in a list
		case event.Newer(v, at):
			return first, reaches, nil
		default:
			first, reaches = raw.Number+1, true
		}
	}
}

// use makes a sink, which has read up to a position and committed up to another one, use the recording. It returns nil if the recording
// does not reach back to what the sink has committed.
func (r *Recording) use(name, committed, read string) (*Use, error) {
	done, reaches, err := r.find(committed)
	if err != nil || !reaches {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, awaited := r.sinks[name]
	u := &Use{recording: r, sink: name, reader: r.stream.Reader(done), done: done - 1, read: read}
	r.sinks[name] = sink{u, time.Now()}
	if !awaited && r.ended == nil {
		r.Sinks = slices.Sorted(maps.Keys(r.sinks))
		err = r.begin()
	}
	return u, err
}

// leave records that a sink does not need the recording. It has no effect if the sink uses it in another way than use.
func (r *Recording) leave(name string, use *Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now, needs := r.sinks[name]; needs && now.use == use {
		r.drop(name)
	}
}

// drop is leave for a caller that holds r.mu.
func (r *Recording) drop(name string) {
	delete(r.sinks, name)
	if len(r.sinks) == 0 {
		r.idle = time.Now()
	}
}

// awaits records that a sink, which has used the recording, will come again.
func (r *Recording) awaits(name string, use *Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sinks[name].use == use {
		r.sinks[name] = sink{since: time.Now()}
	}
}

// overdue drops sinks that could have come for comeWithin. come has the time from which on each sink could come.
func (r *Recording) overdue(come map[string]time.Time, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.sinks {
		since, could := come[name]
		if since.Before(s.since) {
			since = s.since
		}
		if s.use == nil && could && now.Sub(since) > comeWithin {
			r.drop(name)
		}
	}
}

// trim deletes what every sink has committed.
func (r *Recording) trim() error { return r.stream.Trim(r.needed()) }

// needed returns the first frame that a sink may still need; 0: all may be needed.
func (r *Recording) needed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sinks) == 0 {
		return 0 // it is dropped soon, or used again
	}
	below := r.stream.Next()
	for _, s := range r.sinks {
		if s.use == nil {
			return 0
		}
		below = min(below, s.use.done)
	}
	return below
}

// unneeded reports whether no sink has needed the recording for a while.
func (r *Recording) unneeded(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sinks) == 0 && now.Sub(r.idle) > keepFor
}

// hasEnded returns why nothing is recorded any more; nil: it is recorded.
func (r *Recording) hasEnded() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}
