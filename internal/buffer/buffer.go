package buffer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	// flushEvery is how long a frame may be in memory before it is written. A process that is killed reads it again.
	flushEvery = 50 * time.Millisecond
	sweepEvery = 5 * time.Second
	// readAgain is the pause between two attempts to read the end of a recording.
	readAgain = time.Second
	// keepFor is how long a recording goes on when its sink does not need it any more. A restart in that time still finds it.
	keepFor = 30 * time.Second
	// comeWithin is how long a recording waits for a sink that reads its collections: longer than a suspended collection pauses.
	comeWithin = 5 * time.Minute
)

// Options of a buffer. All are required, except MaxAge.
type Options struct {
	Cluster string // UID of the cluster that Client reads
	Sealed  bool   // the spool encrypts: otherwise no collection with hidden values is recorded
	Spool   *spool.Spool
	Client  *source.Client
	Slots   func() source.Slots // returns the slots for the lists of one recording
	MaxAge  time.Duration       // frames that are older are deleted; 0: never
	Sinks   []string            // names of all sinks: recordings of others are deleted
	Log     *zap.Logger
}

// Buffer has the recordings of all targets.
type Buffer struct {
	Options

	frames     atomic.Uint64 // recorded since the start
	failed     atomic.Uint64 // recordings that could not begin
	mu         sync.Mutex
	ctx        context.Context         // of Run; nil: it does not run
	recordings map[string][]*Recording // by keyOf
	foreign    []*Recording            // of other clusters; nothing is done with them here
	come       map[string]time.Time    // when each sink began to read
	open       map[string]bool         // collections without hidden values, by sink and collection: see Hide
	running    sync.WaitGroup

	followed follower // of a standby
}

// New returns a buffer that does not run yet.
func New(o Options) *Buffer {
	return &Buffer{
		Options: o, recordings: map[string][]*Recording{}, come: map[string]time.Time{}, open: map[string]bool{},
		followed: follower{uses: map[string]*Use{}, tried: map[string]time.Time{}},
	}
}

// keyOf names the recordings of a sink's collection.
func keyOf(sink string, t source.Target) string {
	text, err := json.Marshal(struct {
		Sink   string
		Target source.Target
	}{sink, t})
	if err != nil {
		panic(err) // strings and booleans always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Run records until ctx ends. It does not close the spool. Load comes first.
func (b *Buffer) Run(ctx context.Context) {
	defer b.running.Wait()
	flush, sweep := time.NewTicker(flushEvery), time.NewTicker(sweepEvery)
	defer flush.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			b.mu.Lock()
			b.ctx = nil
			b.mu.Unlock()
			return
		case <-flush.C:
			for _, r := range b.all() {
				if err := r.flush(); err != nil {
					b.Log.Debug("flush of the buffer failed", zap.Error(err)) // the next frame ends the recording
				}
			}
		case now := <-sweep.C:
			b.sweep(now)
		}
	}
}

// Load continues the recordings on disk, until ctx ends. Those of other clusters stay as they are, for a bridge that reads their cluster again.
func (b *Buffer) Load(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = ctx
	var names []string
	for _, s := range b.Spool.List() {
		if err := s.Damage(); err != nil && !errors.Is(err, spool.ErrKey) {
			b.Log.Warn("part of the buffer is damaged; what is missing is read from the API server again, and a gap may follow", zap.String("file", s.File), zap.Error(err))
		}
		if s.Stream != "" && !slices.Contains(names, s.Stream) {
			names = append(names, s.Stream)
		}
	}
	otherKey := 0
	for _, name := range names {
		st := b.Spool.Stream(name)
		r, err := b.loaded(st)
		switch {
		case err == nil && r.Cluster == b.Cluster:
			b.add(r)
			continue
		case err == nil:
			b.foreign = append(b.foreign, r)
			continue
		case errors.Is(err, spool.ErrKey):
			otherKey++
		default:
			b.Log.Warn("part of the buffer cannot be used, deleting it", zap.Error(err))
		}
		if err := st.Delete(); err != nil {
			b.Log.Warn("delete from the buffer failed", zap.Error(err))
		}
	}
	if otherKey > 0 {
		b.Log.Warn("part of the buffer cannot be decrypted, deleting it: it was written with another hash key, or without one; a gap may follow. Keep the hash key (secrets.hashKeySecret, secrets.hashKeyFile) over restarts",
			zap.Int("recordings", otherKey))
	}
	if n := len(b.foreign); n > 0 {
		b.Log.Warn("part of the buffer is of another cluster, and stays until it is older than maxAge; start the bridge with that cluster to publish it",
			zap.String("uid", b.foreign[0].Cluster), zap.Int("recordings", n))
	}
}

// loaded returns a recording on disk, if it can be used.
func (b *Buffer) loaded(st *spool.Stream) (*Recording, error) {
	r, err := continued(st, b.Log)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(b.Sinks, r.Sink):
		return nil, fmt.Errorf("there is no sink %q", r.Sink)
	case r.Cluster == "":
		return nil, errors.New("it is not known of which cluster it is")
	}
	return r, nil
}

// add adds a recording and lets it run. b.mu is held.
func (b *Buffer) add(r *Recording) {
	r.idle, r.frames = time.Now(), &b.frames
	key := keyOf(r.Sink, r.Target)
	b.recordings[key] = append(b.recordings[key], r)
	if r.ended != nil {
		r.finish(r.ended)
		return
	}
	ctx, stop := context.WithCancel(b.ctx)
	r.stop = stop
	b.running.Go(func() { r.run(ctx, b.Client, b.Slots()) })
}

func (b *Buffer) all() (all []*Recording) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.recordings {
		all = append(all, list...)
	}
	return all
}

// Position is how far a sink has come with a collection.
type Position struct {
	Committed string // up to where everything is committed
	Epoch     uint64 // of Committed
	Read      string // up to where everything was read
	Seen      string // the highest resourceVersion that was seen: see [source.Options]
	Owner     source.Owner
}

// Find makes a sink use its recording of the target from before a restart, if that reaches back to the position that the sink has
// committed and read. It returns nil if there is none. Recordings that do not reach back, and waited for the sink, then wait no longer. After an error, which wraps [ErrUnreadable],
// it is not known whether a recording reaches back: it can be used by a later call, and must not be replaced by Begin.
func (b *Buffer) Find(sink string, t source.Target, at Position) (*Use, error) {
	for _, r := range b.of(sink, t) {
		use, err := r.use(at)
		if err != nil {
			return nil, fmt.Errorf("search the buffer: %w: %w", ErrUnreadable, err)
		}
		if use != nil {
			return use, nil
		}
		r.leave(nil)
	}
	return nil, nil
}

// Abandon says that a sink begins a collection with a list: recordings of it that waited for the sink wait no longer.
func (b *Buffer) Abandon(sink string, t source.Target) {
	for _, r := range b.of(sink, t) {
		r.leave(nil)
	}
}

// Expect says that a sink has stopped to read a collection, for example because it is suspended, and may read again what it has not committed:
// recordings of it that are still there wait for the sink.
func (b *Buffer) Expect(sink string, t source.Target) {
	for _, r := range b.of(sink, t) {
		r.awaitsSink()
	}
}

// Recorded returns the targets of a collection's recordings that a sink reads, or will read.
func (b *Buffer) Recorded(sink, collection string) (targets []source.Target) {
	for _, r := range b.all() {
		if r.Sink == sink && r.Target.Collection.ID() == collection && r.needed() {
			targets = append(targets, r.Target)
		}
	}
	return targets
}

// Begin begins a recording for a sink that has fallen behind. Earlier recordings of the collection are deleted: the API server has
// what the sink has not committed.
func (b *Buffer) Begin(sink string, t source.Target, at Position) (*Use, error) {
	key := keyOf(sink, t)
	b.mu.Lock()
	for _, r := range b.recordings[key] {
		b.discard(r)
	}
	delete(b.recordings, key)
	stream := b.Spool.Stream
	if b.open[collectionKey(sink, t.Collection.ID())] {
		stream = b.Spool.LocalStream
	}
	b.mu.Unlock()
	name := fmt.Sprint(key, "-", time.Now().UnixNano())
	m := metadata{Cluster: b.Cluster, Target: t, Sink: sink, Start: at.Committed, Epoch: at.Epoch, End: end{Resume: at.Committed, Seen: at.Seen, Owner: at.Owner, Reached: at.Committed}}
	r, err := newRecording(stream(name), m, b.Log)
	var use *Use
	if err == nil {
		use, err = r.use(at)
	}
	if err != nil {
		b.failed.Add(1)
		return nil, errors.Join(err, r.stream.Delete())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		return nil, errors.Join(context.Canceled, r.stream.Delete())
	}
	b.add(r)
	return use, nil
}

func collectionKey(sink, collection string) string { return sink + "/" + collection }

// Hide says whether values of a sink's collection are hidden on the bus. What is recorded of other collections from now on can be read at a later
// start also with another key of the spool. Until Hide is called, they count as hidden.
func (b *Buffer) Hide(sink, collection string, hides bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if hides {
		delete(b.open, collectionKey(sink, collection))
	} else {
		b.open[collectionKey(sink, collection)] = true
	}
}

// Forbid ends and deletes the recordings of a sink's collection: what they hold may not be on the disk.
func (b *Buffer) Forbid(sink, collection string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	forbidden := func(r *Recording) bool { return r.Sink == sink && r.Target.Collection.ID() == collection }
	b.remove(forbidden)
	b.foreign = b.discarded(b.foreign, forbidden)
}

// remove ends and deletes the recordings that match. b.mu is held.
func (b *Buffer) remove(match func(*Recording) bool) {
	for key, list := range b.recordings {
		b.recordings[key] = b.discarded(list, match)
		if len(b.recordings[key]) == 0 {
			delete(b.recordings, key)
		}
	}
}

// discarded discards the recordings that match, and returns the others. b.mu is held.
func (b *Buffer) discarded(list []*Recording, match func(*Recording) bool) []*Recording {
	return slices.DeleteFunc(list, func(r *Recording) bool {
		if !match(r) {
			return false
		}
		b.discard(r)
		return true
	})
}

// discard ends a recording and deletes its files. b.mu is held.
func (b *Buffer) discard(r *Recording) {
	if r.stop != nil {
		r.stop()
	}
	r.mu.Lock() // a frame that is being recorded comes before, so it does not bring the files back
	defer r.mu.Unlock()
	r.ended = errDiscarded // a sink that uses it goes on at the API server
	if err := r.stream.Delete(); err != nil {
		b.Log.Warn("delete from the buffer failed", zap.Error(err))
	}
}

func (b *Buffer) of(sink string, t source.Target) []*Recording {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.recordings[keyOf(sink, t)])
}

// Come says that a sink reads its collections from now on. A recording that waits for it does so for a few minutes more: the collection
// may not be wanted any more.
func (b *Buffer) Come(sink string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, before := b.come[sink]; !before {
		b.come[sink] = time.Now()
	}
}

// State describes the buffer.
type State struct {
	Targets, Ended, Aged int    // Aged: maxAge has deleted what is not published
	Frames, Failed       uint64 // since the start; Failed: recordings that could not begin
}

// State returns the present state.
func (b *Buffer) State() State {
	s := State{Frames: b.frames.Load(), Failed: b.failed.Load()}
	for _, r := range b.all() {
		s.Targets++
		if r.hasEnded() != nil {
			s.Ended++
		}
		if r.hasAged() {
			s.Aged++
		}
	}
	return s
}

// sweep deletes what is no longer needed.
func (b *Buffer) sweep(now time.Time) {
	var errs []error
	before := map[*Recording]int{} // segments that are not committed
	for _, r := range b.all() {
		errs = append(errs, r.trim())
		before[r] = len(r.stream.Segments())
	}
	if b.MaxAge > 0 {
		errs = append(errs, b.Spool.TrimBefore(now.Add(-b.MaxAge)))
	}
	for r, n := range before {
		if len(r.stream.Segments()) < n {
			r.age(b.MaxAge)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.recordings {
		for _, r := range list {
			r.overdue(b.come[r.Sink], now)
		}
	}
	b.remove(func(r *Recording) bool { return r.unneeded(now) })
	if err := errors.Join(errs...); err != nil {
		b.Log.Warn("delete from the buffer failed, trying again", zap.Error(err))
	}
}
