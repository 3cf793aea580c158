package bridge

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/buffer"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// BufferSpec describes the disk buffer.
type BufferSpec struct {
	// Open opens the spool. sealed says that it encrypts what it writes: otherwise no collection with values to hide is buffered. The
	// bridge closes the spool.
	Open   func(context.Context) (s *spool.Spool, sealed bool, err error)
	MaxAge time.Duration // 0: frames of any age are kept
	// Note is where the leader lists its recordings, so that standbys record the same. It needs an Elector. nil: only a leader records.
	Note Note
}

// openBuffer is an open disk buffer. The zero value has none.
type openBuffer struct {
	*buffer.Buffer
	sealed bool
	spool  *spool.Spool
	failed string    // why there is none, although it is configured
	shared *exchange // with the other replicas; nil: standbys do not buffer
}

// openBuffer opens the disk buffer of the cluster uid, and lets it run until the returned function is called.
func (b *Bridge) openBuffer(ctx context.Context, uid string) (o openBuffer, end func() error, err error) {
	if b.o.Buffer == nil {
		return o, func() error { return nil }, nil
	}
	o.spool, o.sealed, err = b.o.Buffer.Open(ctx)
	if errors.Is(err, spool.ErrUnusable) { // events are published without it, too
		b.o.Log.Error("disk buffer is not used, because its disk fails: outages cost what they cost without it; repair the disk, or delete the directory, and restart", zap.Error(err))
		return openBuffer{failed: err.Error()}, func() error { return nil }, nil
	}
	if err != nil {
		return o, nil, &planning.EnvironmentError{Err: err}
	}
	var sinks []string
	for i := range b.o.Sinks {
		sinks = append(sinks, b.o.Sinks[i].Sink)
	}
	o.Buffer = buffer.New(buffer.Options{
		Cluster: uid, Sinks: sinks,
		Spool: o.spool, Client: b.o.Client, Slots: func() source.Slots { return b.lists.Slots() }, MaxAge: b.o.Buffer.MaxAge, Log: b.o.Log,
	})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var run sync.WaitGroup
	o.Load(running)
	run.Go(func() { o.Run(running) })
	return o, func() error {
		stop()
		run.Wait()
		return o.spool.Close()
	}, nil
}

// status returns the state of the buffer; nil: none is configured.
func (o *openBuffer) status() *status.Buffer {
	if o.Buffer == nil && o.failed == "" {
		return nil
	}
	if o.Buffer == nil {
		return &status.Buffer{Error: o.failed}
	}
	s := o.State()
	out := &status.Buffer{Bytes: o.spool.Bytes(), MaxBytes: o.spool.MaxBytes(), Targets: s.Targets, Ended: s.Ended, Aged: s.Aged, Failed: s.Failed, Frames: s.Frames}
	if o.shared != nil {
		out.Unlisted, out.Problem = o.shared.status()
	}
	return out
}

// lagging is how a pipeline uses the disk buffer. The zero value does not use one.
type lagging struct {
	buffer openBuffer
	lag    buffer.Lag

	mu      sync.Mutex
	allowed map[string]bool // by collection
}

// options returns what the reader of the pipeline needs; nil: there is no buffer.
func (l *lagging) options(sink string) *feed.Buffering {
	if l.buffer.Buffer == nil {
		return nil
	}
	return &feed.Buffering{Buffer: l.buffer.Buffer, Sink: sink, Lag: &l.lag, Allowed: l.allows}
}

func (l *lagging) allows(collection string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed[collection]
}

// allow says whether a sink's collection is buffered. Values that are hidden on the bus are not on the disk in clear, so what was
// buffered of a collection that may not be buffered any more is deleted.
func (l *lagging) allow(sink, collection string, o *CollectionOptions, hides bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.allowed == nil {
		l.allowed = map[string]bool{}
	}
	allowed := !o.Unbuffered && (l.buffer.sealed || !hides)
	l.allowed[collection] = allowed
	if l.buffer.Buffer == nil {
		return
	}
	l.buffer.Hide(sink, collection, hides)
	if !allowed {
		l.buffer.Forbid(sink, collection)
	}
}

// forget forgets whether a collection is buffered.
func (l *lagging) forget(collection string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.allowed, collection)
}

// recorded returns the target of a recording of a sink's collection by a selection that the sink reads, or will read. Whether it has whole objects
// is as for c. ok is false if there is none.
func (l *lagging) recorded(sink string, c *event.Collection, selection string) (t source.Target, ok bool) {
	if l.buffer.Buffer == nil {
		return t, false
	}
	for _, t := range l.buffer.Recorded(sink, c.ID()) {
		if planning.InVersion(planning.SelectionOf(&t.Collection), t.Resource.Version) == selection && t.Collection.MetadataOnly == c.MetadataOnly {
			return t, true
		}
	}
	return t, false
}

// planned says that the sink has a plan, and so reads its collections.
func (l *lagging) planned(sink string) {
	if l.buffer.Buffer != nil {
		l.buffer.Come(sink)
	}
}

// queued says how long the oldest record waits for the bus.
func (l *lagging) queued(flying, filling loop.Load) {
	oldest := flying.Since
	if flying.Records == 0 {
		oldest = filling.Since
	}
	if flying.Records+filling.Records == 0 || oldest.IsZero() {
		l.lag.Waits(0)
		return
	}
	l.lag.Waits(time.Since(oldest))
}
