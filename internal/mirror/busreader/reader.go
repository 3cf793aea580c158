// Package busreader reads a bus into a mirror, from its beginning or from where the mirror was, and goes on as it receives messages.
package busreader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/history"
	"github.com/kubebridge/kubebridge/internal/mirror"
	"github.com/kubebridge/kubebridge/internal/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
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
	Log    *zap.Logger
}

// busReader is one run.
type busReader struct {
	Options
	decoder  *history.Decoder
	messages int // of the open batch
	bytes    int
	next     map[string]mirror.Offset // of the open batch
	trimmed  time.Time
	foreign  bool
}

// Run reads until ctx ends. It connects again after errors of the bus. It returns an error that another try does not cure.
func Run(ctx context.Context, o Options) error {
	f := &busReader{Options: o, decoder: history.NewDecoder(o.Cluster, o.Mirror.ClusterUID()), next: map[string]mirror.Offset{}}
	pause := retryFirst
	for {
		began := time.Now()
		err := f.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLatest), errors.Is(err, store.ErrFailed), errors.Is(err, history.ErrClusters), errors.Is(err, history.ErrNewer), errors.As(err, new(*sink.RefusedError)), errors.As(err, new(*mirrorError)):
			return err
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

// connect reads over one connection.
func (f *busReader) connect(ctx context.Context) error {
	r, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	live, ok := r.(sink.Follower)
	if !ok {
		return ofMirror(errors.New("bridge serve cannot follow this bus yet"))
	}
	for _, p := range r.Parts() {
		if p.Latest {
			return fmt.Errorf("%s: %w", p.Log, ErrLatest)
		}
		if err := f.check(p); err != nil {
			return err
		}
	}
	f.Log.Info("connected to the bus", zap.Int("parts", len(r.Parts())))
	for {
		read, err := f.read(ctx, r)
		if err != nil {
			return errors.Join(err, f.commit())
		}
		if err := f.trim(ctx); err != nil {
			return err
		}
		if !read {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(poll):
			}
		}
		if err := live.Refresh(ctx); err != nil {
			return err
		}
	}
}

// check begins with an empty copy if messages of a part were lost.
func (f *busReader) check(p sink.Part) error {
	o, known := f.Mirror.Offset(p.Name)
	reason := ""
	switch {
	case !known:
		return nil
	case o.Log != p.ID:
		reason = p.Log + " was deleted and created again"
	case o.Next > p.End:
		reason = p.Log + " has lost messages that were read"
	case o.Next < p.First:
		reason = p.Log + " does not have messages any more that were not read"
	default:
		return nil
	}
	f.Log.Warn("copy dropped, reading what the bus has", zap.String("reason", reason), zap.Int64("next", o.Next), zap.Int64("first", p.First), zap.Int64("end", p.End))
	return ofMirror(f.Mirror.Forget(reason))
}

// read reads all parts to their ends, and reports whether there was anything.
func (f *busReader) read(ctx context.Context, r sink.Reader) (bool, error) {
	parts := r.Parts()
	size := map[string]int{}
	index := make([]int, len(parts))
	for i, p := range parts {
		index[i] = size[p.Log]
		size[p.Log]++
	}
	ranges, more := make([]sink.Range, len(parts)), false
	for i, p := range parts {
		o, known := f.Mirror.Offset(p.Name)
		if !known {
			o.Next = p.First
		}
		if o.Next < p.First {
			return false, fmt.Errorf("%s has removed messages that were not read: the first one is %d, and %d is next", p.Name, p.First, o.Next)
		}
		ranges[i] = sink.Range{From: o.Next, To: p.End}
		more = more || o.Next < p.End
	}
	if !more {
		return false, nil
	}
	err := r.Read(ctx, ranges, false, func(m *sink.Message) error {
		p := parts[m.Part]
		message := consumer.Message{Topic: p.Log, Partition: index[m.Part], Partitions: size[p.Log]}
		if err := f.take(m, message, p); err != nil {
			return err
		}
		f.next[p.Name] = mirror.Offset{Log: p.ID, Next: m.Offset + 1}
		f.messages, f.bytes = f.messages+1, f.bytes+len(m.Value)
		if f.messages < batchMessages && f.bytes < batchBytes {
			return nil
		}
		return f.commit()
	})
	if err != nil {
		return true, err
	}
	for i, p := range parts { // behind messages that the reader left out
		f.next[p.Name] = mirror.Offset{Log: p.ID, Next: max(ranges[i].From, ranges[i].To)}
	}
	return true, f.commit()
}

// take applies a message.
func (f *busReader) take(m *sink.Message, message consumer.Message, p sink.Part) error {
	e, err := f.decoder.Decode(m)
	switch {
	case errors.Is(err, history.ErrForeign):
		if !f.foreign {
			f.foreign = true
			f.Log.Warn("message ignored, and others like it", zap.String("part", p.Name), zap.Int64("offset", m.Offset), zap.Error(err))
		}
		return nil
	case err != nil:
		return fmt.Errorf("message %d of %s: %w", m.Offset, p.Name, err)
	case e == nil:
		return nil
	}
	return ofMirror(f.Mirror.Apply(message, e))
}

func (f *busReader) commit() error {
	if len(f.next) == 0 {
		return nil
	}
	err := ofMirror(f.Mirror.Commit(f.next))
	f.next, f.messages, f.bytes = map[string]mirror.Offset{}, 0, 0
	return err
}

// trim deletes the history that is older than it is to be kept.
func (f *busReader) trim(ctx context.Context) error {
	if f.Retain == 0 || time.Since(f.trimmed) < trimEvery {
		return nil
	}
	f.trimmed = time.Now()
	return ofMirror(f.Mirror.Trim(time.Now().Add(-f.Retain), func(r store.Resource, floor store.Position) error {
		return f.Mirror.Store().Trim(ctx, r, floor)
	}))
}
