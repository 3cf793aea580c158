package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// requestTimeout bounds one request; the broker gives up on its
// replicas after half of it.
const requestTimeout = 30 * time.Second

// Sink is a [sink.Sink] for `delivery: at-least-once`.
type Sink struct {
	topics  *topics
	timeout time.Duration // of one request

	link     *link // nil when there is none
	open     bool
	progress progress
	marked   int // how many pins the latest mark has; none is ever taken back
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink for `delivery: at-least-once` that has not connected yet. An error is about the
// configuration, or a file it names.
func New(o Options) (*Sink, error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	return &Sink{topics: newTopics(newAdmin(a), o.Identity), timeout: requestTimeout}, nil
}

// Open connects and authenticates. Wrong credentials are a [sink.RefusedError], and
// so is a topic whose number of partitions is not what the mark says; brokers that
// cannot be reached are an ordinary error. Topics that the mark does not know are
// looked up when they are first written to.
func (s *Sink) Open(ctx context.Context, mark []byte) (err error) {
	s.drop()
	s.open, s.progress = false, progress{}
	if s.topics.pins, err = decodePins(mark); err != nil {
		return err
	}
	s.marked = len(s.topics.pins)
	if err := s.topics.open(ctx); err != nil {
		return err
	}
	if err := s.checkPins(ctx); err != nil {
		s.drop()
		return refuse(err)
	}
	s.open = true
	s.topics.connected()
	return nil
}

// checkPins compares the topics with what they were.
func (s *Sink) checkPins(ctx context.Context) error {
	if len(s.topics.pins) == 0 {
		return nil
	}
	found, _, err := s.topics.lookUp(ctx, slices.Sorted(maps.Keys(s.topics.pins)))
	if err != nil {
		return err
	}
	if _, moved := s.topics.pins.compare(found); len(moved) > 0 { // one that is gone or hidden is dealt with when it is written to
		return moved[0]
	}
	return nil
}

// pin notes how many partitions the topics have that are written to for the first time.
func (s *Sink) pin(names []string) error {
	for _, name := range names {
		is := len(s.topics.known[name].partitions)
		switch was, ok := s.topics.pins[name]; {
		case !ok:
			s.topics.pins[name] = pin{partitions: is}
		case was.partitions != is:
			return &partitionsError{topic: name, was: was.partitions, is: is}
		}
	}
	return nil
}

// Write implements [sink.Sink]. A record that Kafka will not take is a
// [sink.RecordError]: the records before it in its partition are written, it and
// those after it there are not; other partitions may be further. The record that
// stands at that Index on the next Write with the same Seq replaces it. A topic that
// may not be written to, or is not there, is a [sink.RouteError]; what other topics
// have taken is not written again. A topic whose number of partitions changes is a
// [sink.RefusedError]. The mark is nil while it is what it was.
func (s *Sink) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if !s.open {
		return nil, errors.New("write to Kafka: the sink is not open")
	}
	if s.progress.seq != b.Seq {
		s.progress = progress{seq: b.Seq, acked: map[delivery]bool{}}
	}
	if s.progress.complete {
		return s.progress.mark, nil
	}
	err := ctx.Err()
	if err == nil {
		err = s.write(ctx, b)
	}
	for until := time.Now().Add(spread); isAny(err, protocol.ErrNoTopic, protocol.ErrNoPartition) && time.Now().Before(until); {
		s.dropLink() // franz-go has found the topics since kafka-go learned the layout
		if err = pause(ctx, spread/40); err == nil {
			err = s.write(ctx, b)
		}
	}
	if s.topics.sasl != nil && isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) && ctx.Err() == nil {
		// So a broker ends a session that has expired (KIP-368): kafka-go does not
		// authenticate again on the same connection. Any other retry would be the same.
		s.drop()
		err = s.write(ctx, b)
	}
	if err == nil {
		return s.completed()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("write to Kafka: %w", ctx.Err())
	}
	var poison *sink.RecordError
	if !errors.As(err, &poison) {
		s.drop() // ends what may be in flight; the next connection learns the leaders again
	}
	return nil, refuse(err)
}

func (s *Sink) write(ctx context.Context, b *event.Batch) error {
	names := routes(b, s.pending(b.Records))
	err := s.topics.resolve(ctx, names)
	if err == nil {
		err = s.pin(names)
	}
	if err != nil {
		return s.refusedRoute(b, err)
	}
	queues, err := s.topics.plan(ctx, b, s.progress.acked)
	if err != nil {
		return err
	}
	return s.refusedRoute(b, s.send(ctx, b, queues))
}

// refusedRoute makes a [sink.RouteError] of a refusal, with where in the batch it begins.
func (s *Sink) refusedRoute(b *event.Batch, err error) error {
	err = routeError(b, err)
	var e *sink.RouteError
	if errors.As(err, &e) {
		for pending := s.pending(b.Records); !pending(e.Index) || b.Records[e.Index].Route != e.Route; {
			e.Index++ // one of them is: it was refused
		}
	}
	return err
}

// completed ends a batch that is durable.
func (s *Sink) completed() (mark []byte, err error) {
	if s.marked < len(s.topics.pins) {
		if mark, err = s.topics.pins.encode(); err != nil {
			return nil, fmt.Errorf("record the topics' partitions: %w", err)
		}
		s.marked = len(s.topics.pins)
	}
	s.progress = progress{seq: s.progress.seq, complete: true, mark: mark}
	return mark, nil
}

// Close implements [sink.Sink].
func (s *Sink) Close() error {
	s.drop()
	s.open = false
	return nil
}

// connection is the link in use, made when there is none.
func (s *Sink) connection() *link {
	if s.link == nil {
		s.link = newLink(s)
	}
	return s.link
}

// drop ends every connection: the next ones learn the cluster's layout again.
func (s *Sink) drop() {
	s.topics.close()
	s.topics.forget()
	s.dropLink()
}

func (s *Sink) dropLink() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}
