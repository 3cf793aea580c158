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
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// requestTimeout bounds one request. The broker waits for its
// replicas for half of this time.
const requestTimeout = 30 * time.Second

// Sink is a [sink.Sink] for `delivery: at-least-once`.
type Sink struct {
	topics  *topics
	timeout time.Duration // of one request

	link     *link // nil: not connected
	open     bool
	progress progress
	marked   int // number of pins in the latest mark; pins are never removed
	answer   finding
}

var (
	_ sink.Sink    = (*Sink)(nil)
	_ sink.Checker = (*Sink)(nil)
)

// New returns a sink for `delivery: at-least-once` that has not connected yet. It returns an error if the
// configuration is wrong or a file that it names cannot be read.
func New(o Options) (*Sink, error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	return &Sink{topics: newTopics(newAdmin(a), o.Identity), timeout: requestTimeout}, nil
}

// Open connects and authenticates. It returns a [sink.RefusedError] for wrong credentials, and
// for a topic whose number of partitions differs from the mark. The error for brokers that
// cannot be reached is temporary. Topics that are not in the mark are
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

// checkPins compares the topics with their recorded numbers of partitions.
func (s *Sink) checkPins(ctx context.Context) error {
	if len(s.topics.pins) == 0 {
		return nil
	}
	found, _, err := s.topics.lookUp(ctx, slices.Sorted(maps.Keys(s.topics.pins)))
	if err != nil {
		return err
	}
	if _, moved := s.topics.pins.compare(found); len(moved) > 0 { // a missing or hidden topic is handled when it is written to
		return moved[0]
	}
	return nil
}

// pin records the number of partitions of topics that are written to for the first time.
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

// Write implements [sink.Sink]. For a record that Kafka refuses it returns a
// [sink.RecordError]: the records before it in its partition are written, this record and
// later ones in the partition are not, and other partitions may be further. In the next Write with the same
// Seq, the record at that Index replaces it. For a topic that
// is missing or may not be written to, it returns a [sink.RouteError]; records that other topics
// have are not written again. For a topic whose number of partitions has changed it returns a
// [sink.RefusedError]. The mark is nil if it has not changed.
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
		// This is how a broker ends an expired session (KIP-368): kafka-go does not
		// authenticate again on the same connection, so a retry needs a new connection.
		s.drop()
		err = s.write(ctx, b)
	}
	if err == nil {
		s.answer = finding{at: time.Now()}
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
	err = s.send(ctx, b, queues)
	var poison *sink.RecordError
	if errors.As(err, &poison) && errors.Is(err, kerr.InvalidRecord) {
		again, e := s.topics.rekeyed(ctx, b.Records[poison.Index].Route)
		switch {
		case e != nil:
			return e
		case again:
			return s.write(ctx, b)
		}
	}
	return s.refusedRoute(b, err)
}

// refusedRoute converts a refusal to a [sink.RouteError] with the index in the batch.
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

// Check implements [sink.Checker].
func (s *Sink) Check(ctx context.Context) error {
	return s.answer.latest(pingEvery, func() error { return s.topics.ping(ctx) })
}

// completed finishes a durable batch.
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

// connection returns the present link, and makes one if there is none.
func (s *Sink) connection() *link {
	if s.link == nil {
		s.link = newLink(s)
	}
	return s.link
}

// drop closes all connections. The next ones read the cluster's layout again.
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
