// Package busreader reads a bus into a mirror, from its beginning or from where the mirror was, and goes on as it
// receives messages.
package busreader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// A batch is committed after so many messages or bytes, or at the end of the bus.
	batchMessages = 2000
	batchBytes    = 4 << 20
	// poll is the time between two questions for the end of the bus, once it was reached.
	poll = 250 * time.Millisecond
	// The pause before the bus is connected to again doubles from retryFirst to retryLast.
	retryFirst, retryLast = time.Second, 30 * time.Second
	trimEvery             = time.Hour
	// lostAfter is how long a part must lack the last message that was read of it until the copy is dropped: a new leader
	// may lag.
	lostAfter = 10 * time.Second
	// publishing is how long an event may take until the bus shows it: batches, transactions, the difference of clocks,
	// and 10 s until a new topic is found. States are shown up to so long before the time of reading.
	publishing = 15 * time.Second
	// heldBack is how long messages of a part may wait for their transaction until the log says so and other parts go on.
	heldBack = time.Minute
)

// ErrLatest is returned for a topic or stream that keeps only the last messages of each key or subject.
var ErrLatest = errors.New("it keeps only the last messages of each object: changes that it removed look like changes that did not happen")

// Options of Run.
type Options struct {
	Open    func(ctx context.Context) (sink.Reader, error) // connects to the bus
	Mirror  *mirror.Mirror
	Cluster string // the configured name
	// Retain is how long history is kept; 0: always.
	Retain time.Duration
	// Progress is called with the number of messages that are not read; with 0 only when all is committed. It may be nil.
	Progress func(unread int64)
	// Dropped is called before the copy is dropped because messages were lost. It may be nil.
	Dropped func()
	Log     *zap.Logger

	lostAfter time.Duration // 0: lostAfter
	heldBack  time.Duration // 0: heldBack
}

type busReader struct {
	Options
	bus      *resumedReader
	messages int // of the open batch
	bytes    int
	next     map[string]mirror.Offset // of the open batch
	trimmed  time.Time
	trimming chan error // what is running sends its result; nil: history is not being deleted
	foreign  bool

	known    map[string]bool // the parts as of the last refresh
	unproved bool            // messages were applied, or there are other parts, since the last mark
	round    *round          // nil: none is open
	lacking  time.Time       // since when each look finds that a part lacks the last message that was read of it; zero: the last one did not
	waiting  map[string]heldPart
}

// round is the time until the ends that the parts had at one moment are read.
type round struct {
	began  time.Time        // before the ends were looked up
	marked bool             // what was applied before is marked
	ends   map[string]int64 // of the parts that the bus had then; nil: they are not looked up yet
}

// heldPart says since when a part has an end after which messages wait for their transaction.
type heldPart struct {
	end    int64
	since  time.Time
	logged bool
}

// Run reads until ctx ends. After errors of the bus it connects again; it returns an error that this does not cure.
func Run(ctx context.Context, o Options) error {
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	if o.Dropped == nil {
		o.Dropped = func() {}
	}
	o.lostAfter, o.heldBack = cmp.Or(o.lostAfter, lostAfter), cmp.Or(o.heldBack, heldBack)
	ctx, cancel := context.WithCancel(ctx)
	f := &busReader{Options: o, next: map[string]mirror.Offset{}, waiting: map[string]heldPart{}}
	f.Mirror.Ignored = f.ignored
	defer func() {
		cancel()
		if f.trimming != nil {
			if err := <-f.trimming; err != nil { // mostly because ctx has ended: the next start deletes the rest
				f.Log.Debug("history not deleted", zap.Error(err))
			}
		}
	}()
	pause := retryFirst
	for {
		began := time.Now()
		err := f.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, history.ErrClusters):
			return fmt.Errorf("%w: the bus must have events of one of them only; "+
				"if the cluster was created again, also use an empty data directory", err)
		case errors.Is(err, ErrLatest), errors.Is(err, store.ErrFailed), errors.Is(err, history.ErrNewer),
			errors.As(err, new(*sink.RefusedError)), errors.As(err, new(*mirrorError)):
			return err
		}
		if !errors.As(err, new(*lostError)) { // nobody knows whether the part still lacks the message
			f.lacking = time.Time{}
		}
		if time.Since(began) > retryLast {
			pause = retryFirst
		}
		f.Log.Warn("reading the bus failed, retrying", zap.Duration("in", pause), zap.Error(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, retryLast)
	}
}

// mirrorError is an error of the mirror, which another try does not cure.
type mirrorError struct{ error }

func (e *mirrorError) Unwrap() error { return e.error }

func ofMirror(err error) error {
	if err == nil {
		return nil
	}
	return &mirrorError{err}
}

func (f *busReader) connect(ctx context.Context) error {
	r, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	f.bus = &resumedReader{Reader: r, offset: f.Mirror.Offset}
	l := history.NewLog(f.bus, history.LogOptions{
		Cluster: f.Cluster, ClusterUID: f.Mirror.ClusterUID(), Ignored: f.ignored,
		Progress: func(p history.Progress) { f.Progress(p.Total - p.Messages) },
	})
	f.known, f.round = nil, nil
	for {
		if err := f.check(l.Parts()); err != nil {
			return err
		}
		read, err := f.read(ctx, l)
		if errors.As(err, new(*mirrorError)) { // the batch may have a part of a message
			return err
		}
		if err != nil {
			if failed := f.commit(); failed != nil {
				return errors.Join(err, failed)
			}
			if err := f.lost(err); err != nil {
				return err
			}
			continue
		}
		f.lacking = time.Time{}
		if err := f.trim(ctx); err != nil {
			return err
		}
		f.begin(read)
		if !read {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(poll):
			}
		}
		if err := l.Refresh(ctx); err != nil {
			return err
		}
		if err := f.end(l); err != nil {
			return err
		}
	}
}

// check compares the parts with what was read of them. If unread messages were lost, it begins with an empty copy.
func (f *busReader) check(parts []sink.Part) error {
	names, logs := map[string]bool{}, map[string]bool{}
	for _, p := range parts {
		if p.LatestErr != nil { // Latest may be wrong, and what is read of such a log is too
			return fmt.Errorf("%s: %w", p.Log, p.LatestErr)
		}
		if p.Latest {
			return fmt.Errorf("%s: %w", p.Log, ErrLatest)
		}
		names[p.Name] = true
		o, known := f.Mirror.Offset(p.Name)
		reason := ""
		switch {
		case !known:
		case o.Log != p.ID && o.Log != "" && p.ID != "":
			reason = p.Log + " was deleted and created again"
		case o.Next < p.First:
			reason = p.Log + " deleted messages before they were read"
		}
		logs[p.Log] = logs[p.Log] || known
		if reason != "" {
			return f.drop(p, reason)
		}
	}
	if maps.Equal(names, f.known) {
		return nil
	}
	for _, p := range parts {
		if _, read := f.Mirror.Offset(p.Name); !read && logs[p.Log] {
			f.Log.Warn("partition added: its topic's resources are incomplete until bridge checkpoint reset publishes them again", zap.String("partition", p.Name))
		}
	}
	for _, name := range f.Mirror.OpenLogs() {
		if !slices.ContainsFunc(parts, func(p sink.Part) bool { return p.Log == name }) {
			f.Log.Warn("topic or stream not found, or it may not be described: its resources are served as they were last", zap.String("name", name))
		}
	}
	f.Log.Info("reading the bus", zap.Int("parts", len(parts)))
	f.known, f.unproved = names, true
	return nil
}

// drop begins with an empty copy.
func (f *busReader) drop(p sink.Part, reason string) error {
	o, _ := f.Mirror.Offset(p.Name)
	f.Log.Warn("copy dropped, reading what the bus has; resources that stay incomplete need bridge resync",
		zap.String("reason", reason), zap.String("part", p.Name), zap.Int64("next", o.Next), zap.Int64("first", p.First), zap.Int64("end", p.End))
	f.unproved, f.round, f.lacking = true, nil, time.Time{}
	f.Dropped()
	return ofMirror(f.Mirror.Forget(reason))
}

// lost begins with an empty copy if an error proves that messages were lost that had been read. It returns other
// errors.
func (f *busReader) lost(err error) error {
	var e *lostError
	if !errors.As(err, &e) {
		return err
	}
	f.lacking = cmp.Or(f.lacking, time.Now())
	if !e.proved && time.Since(f.lacking) < f.lostAfter {
		return err
	}
	return f.drop(e.part, e.part.Log+" has lost messages that were read")
}

// begin begins a round, unless one is open. The ends of the parts, which are looked up later, prove what is applied.
func (f *busReader) begin(read bool) {
	f.unproved = f.unproved || read
	if f.round != nil {
		return
	}
	f.round = &round{began: time.Now(), marked: f.unproved}
	if f.unproved {
		f.Mirror.MarkReached()
		f.unproved = false
	}
}

// end ends the round if all parts are read to the ends that they had: then what was marked is proved, and all is read
// that the bus had when the round began. Other parts may have more. A part that is held back for long is not waited
// for, and nothing is proved about it: its messages may be of any resource, so no time is known meanwhile.
func (f *busReader) end(l *history.Log) error {
	parts := l.Parts()
	ordered := len(parts) > 0
	for _, p := range parts {
		ordered = ordered && p.Ordered
		f.warnHeldBack(p)
	}
	if f.round.ends == nil {
		f.round.ends, f.round.marked = map[string]int64{}, f.round.marked && ordered
		for _, p := range parts {
			f.round.ends[p.Name] = max(p.End, p.Written)
		}
	}
	proved, all := map[string]bool{}, true
	for i, p := range parts {
		end, known := f.round.ends[p.Name]
		o, read := f.Mirror.Offset(p.Name)
		if !read {
			o.Next = p.First
		}
		w, waits := f.waiting[p.Name]
		switch place := l.Place(i); {
		case !known:
		case o.Next >= end:
			proved[place.String()] = true
		case waits && time.Since(w.since) > f.heldBack:
			all = false
		default:
			return nil
		}
	}
	ended := f.round
	f.round = nil
	if ended.marked {
		f.Mirror.ProveMarked(proved)
		if err := ofMirror(f.Mirror.Commit(nil)); err != nil {
			return err
		}
	}
	if !all {
		return nil
	}
	return ofMirror(f.Mirror.ReadUntil(ended.began.Add(-publishing), proved))
}

// warnHeldBack logs a transaction that holds the messages of a part back.
func (f *busReader) warnHeldBack(p sink.Part) {
	w := f.waiting[p.Name]
	switch {
	case !p.Ordered || p.Written <= p.End:
		delete(f.waiting, p.Name)
	case w.end != p.End || w.since.IsZero():
		f.waiting[p.Name] = heldPart{end: p.End, since: time.Now()}
	case !w.logged && time.Since(w.since) > f.heldBack:
		w.logged = true
		f.waiting[p.Name] = w
		f.Log.Warn("a transaction is open and holds messages back: if this lasts, find it with kafka-transactions.sh find-hanging",
			zap.String("part", p.Name), zap.Int64("from", p.End), zap.Int64("written", p.Written))
	}
}

// read reads all parts to their ends, and reports whether there was anything.
func (f *busReader) read(ctx context.Context, l *history.Log) (bool, error) {
	parts := l.Parts()
	ranges, more := make([]sink.Range, len(parts)), !f.bus.checked
	for i, p := range parts {
		o, known := f.Mirror.Offset(p.Name)
		if !known {
			o.Next = p.First
		}
		ranges[i] = sink.Range{From: o.Next, To: p.End, Continued: known}
		more = more || o.Next != p.End
	}
	if !more {
		f.Progress(0)
		return false, nil
	}
	err := l.Events(ctx, ranges, func(m *sink.Message, at consumer.Message, e *event.Received) error {
		if err := ofMirror(f.Mirror.Apply(at, e)); err != nil {
			return err
		}
		p := parts[m.Part]
		f.next[p.Name] = mirror.Offset{Log: p.ID, Next: m.Offset + 1, Last: f.bus.read[m.Part]}
		f.messages, f.bytes = f.messages+1, f.bytes+len(m.Value)
		if f.messages < batchMessages && f.bytes < batchBytes {
			return nil
		}
		return f.commit()
	})
	if err != nil {
		return true, err
	}
	for i, p := range parts { // after messages that are no events of the cluster
		next := mirror.Offset{Log: p.ID, Next: p.End, Last: f.bus.read[i]}
		if o, known := f.Mirror.Offset(p.Name); !known || o != next {
			f.next[p.Name] = next
		} else {
			delete(f.next, p.Name)
		}
	}
	if err := f.commit(); err != nil {
		return true, err
	}
	f.Progress(0)
	return true, nil
}

func (f *busReader) ignored(err error) {
	if !f.foreign {
		f.foreign = true
		f.Log.Warn("message ignored, and others like it", zap.Error(err))
	}
}

func (f *busReader) commit() error {
	if len(f.next) == 0 {
		return nil
	}
	err := ofMirror(f.Mirror.Commit(f.next))
	f.next, f.messages, f.bytes = map[string]mirror.Offset{}, 0, 0
	return err
}

// trim begins at times to delete the history that is older than it is to be kept. Reading goes on meanwhile.
func (f *busReader) trim(ctx context.Context) error {
	if f.trimming != nil {
		select {
		case err := <-f.trimming:
			f.trimming = nil
			return ofMirror(err)
		default:
			return nil
		}
	}
	if f.Retain == 0 || time.Since(f.trimmed) < trimEvery {
		return nil
	}
	f.trimmed = time.Now()
	floors, err := f.Mirror.Trim(time.Now().Add(-f.Retain))
	if err != nil {
		return ofMirror(err)
	}
	f.trimming = make(chan error, 1)
	go func() { f.trimming <- f.deleteBelow(ctx, floors) }()
	return nil
}

func (f *busReader) deleteBelow(ctx context.Context, floors map[store.Resource]store.Position) error {
	for r, floor := range floors {
		if err := f.Mirror.Store().Trim(ctx, r, floor); err != nil {
			return err
		}
	}
	return nil
}
