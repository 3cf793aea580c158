package nats

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Options are the options of a sink.
type Options struct {
	Config   Config         // completed by New
	Identity event.Identity // whose stream it is
	Logger   *zap.Logger    // nil: silent
}

// Sink is a [sink.Sink] and a [sink.Log] for JetStream: exactly once, on a stream
// without other writers.
type Sink struct {
	appender
	termSubject string
	store       *Store // the pipeline's; nil if it is not in a bucket

	term   uint64
	opened uint64 // the sequence of the record that began the term
	own    uint64 // the last sequence of this writer up to head

	msgs []*nats.Msg // of the last chunk, and more

	fenced error  // final
	lost   string // what the stream has lost; a new term must begin before the pipeline gets this error
	hole   bool   // it lost its first messages, or some between others, which cannot come back
	progress
}

var (
	_ sink.Sink = (*Sink)(nil)
	_ sink.Log  = (*Sink)(nil)

	_ sink.Exposed = (*Sink)(nil)
)

// lookEvery is how often a writer looks at its stream.
const lookEvery = time.Minute

// termRoot is the first token of the subjects on which terms begin.
const termRoot = "kubebridge"

// New returns the sink for the configured delivery: a [*Sink], a [*Shared] or a
// [*Core]. It has not connected yet. New returns an error if the configuration is wrong, or if a
// file that it names cannot be read.
func New(o Options) (sink.Sink, error) {
	c, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	if err := c.checkFiles(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	l := link{endpoint: newEndpoint(c, o.Identity, o.Logger), log: o.Logger, subjects: c.subjects(o.Identity), lookEvery: lookEvery}
	switch c.Delivery {
	case atLeastOnce:
		return &Shared{link: l, writer: nuid.Next()}, nil
	case atMostOnce:
		return &Core{link: l}, nil
	}
	l.name = c.StreamName(o.Identity.Cluster)
	return &Sink{
		appender:    appender{link: l, writer: nuid.Next(), most: chunkMessages, patience: ackTimeout},
		termSubject: termSubject(o.Identity),
	}, nil
}

func termSubject(id event.Identity) string {
	return fmt.Sprintf("%s.%s.%s.%s.term", termRoot,
		event.EscapeToken(id.Cluster), event.EscapeToken(id.Bridge), event.EscapeToken(id.Sink))
}

// Open starts the embedded server if there is one, connects, finds or creates the
// stream, checks that it belongs to this pipeline, and begins a term. If the pipeline's [Store] is in a bucket that cannot be continued,
// Open returns the error of [Store.Load] before it writes anything or fences a predecessor.
func (s *Sink) Open(ctx context.Context, recorded []byte) error {
	s.disconnect()
	s.lost, s.hole = "", false
	if err := s.open(ctx, recorded); err != nil {
		s.disconnect()
		return err
	}
	s.log.Info("stream opened", zap.String("server", s.conn.address), zap.String("stream", s.name),
		zap.Uint64("term", s.term), zap.Uint64("sequence", s.opened))
	return nil
}

func (s *Sink) open(ctx context.Context, recorded []byte) (err error) {
	if err := s.start(ctx); err != nil {
		return err
	}
	if m, err := decodeMark(recorded); err == nil {
		s.term = max(s.term, termNumber(m.term)) // Tail handles another mark
	}
	if s.store != nil {
		if err := s.store.refused(ctx, s.conn); err != nil {
			return err
		}
	}
	if s.stream, err = s.find(ctx); err != nil {
		return err
	}
	return s.beginTerm(ctx, s.stream)
}

// Foreign implements [sink.Exposed].
func (s *Sink) Foreign() uint64 { return s.foreign.count.Load() }
