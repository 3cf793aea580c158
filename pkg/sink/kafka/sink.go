// Package kafka writes batches to Kafka, in order per key.
//
// [Transactional] does so exactly once, for consumers that read committed records
// only: a batch and what it moves in the checkpoint are one transaction.
//
// [Sink] does so at least once. One partition has one request in flight,
// acknowledged by all in-sync replicas; the first failure stops the partition, and
// Write goes on from the first record that was not acknowledged. What the broker
// has received but not answered in time is sent again: a record may be on the bus
// twice, and because kafka-go has no idempotent producer, the old copy may even
// land after newer records. Consumers therefore ignore, per uid, what is not newer
// than what they have seen.
//
// A record's key decides its partition as Java's default partitioner does. The
// number of partitions of a topic is remembered in the checkpoint: by a Sink in its
// mark, by a Transactional beside it.
//
// [Store] is the checkpoint store in a compacted topic. [Reader] reads what the topics
// of events hold.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// requestTimeout bounds one request; the broker is told to give up on its
// replicas after half of it.
const requestTimeout = 30 * time.Second

// A broker that hangs up while it authenticates us may refuse us, or be going
// down. Only so many times in a row are a refusal.
const (
	hangUps     = 3
	hangUpPause = 200 * time.Millisecond
)

// Options are what a sink is made of.
type Options struct {
	Config   Config         // completed by New
	Identity event.Identity // names the client on the brokers: quotas, logs
	Logger   *zap.Logger    // nil: silent
}

// Sink is a [sink.Sink] for `delivery: at-least-once`.
type Sink struct {
	config Config
	security
	client string // client.id
	dead   string // topic of dead letters, "" for none
	// gone is told that a topic is gone, and reports whether it would be noticed that
	// it is another one now, so that it can be made again; nil: of none.
	gone    func(topic string) bool
	log     *zap.Logger
	timeout time.Duration // of one request

	link     *link // nil when there is none
	open     bool
	topics   map[string]*topic
	progress progress
	pins     pins
	marked   int // how many pins the latest mark has; none is ever taken back
}

var _ sink.Sink = (*Sink)(nil)

// New returns a sink that has not connected yet. An error is about the
// configuration, or the CA file it names.
func New(o Options) (*Sink, error) {
	config, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	sec, err := newSecurity(config)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Sink{
		config:   config,
		security: sec,
		client:   clientID(o.Identity),
		dead:     config.DeadTopic(o.Identity),
		log:      o.Logger,
		timeout:  requestTimeout,
		topics:   map[string]*topic{},
		pins:     pins{},
	}, nil
}

// Open connects and authenticates. Wrong credentials are a [sink.RefusedError], and
// so is a topic whose number of partitions is not what the mark says; brokers that
// cannot be reached are an ordinary error. Topics that the mark does not know are
// looked up when they are first written to.
func (s *Sink) Open(ctx context.Context, mark []byte) (err error) {
	s.drop()
	s.open, s.progress = false, progress{}
	if s.pins, err = decodePins(mark); err != nil {
		return err
	}
	s.marked = len(s.pins)
	err = s.connect(ctx)
	for attempt := 1; attempt < hangUps && errors.Is(err, errHungUp); attempt++ {
		select {
		case <-time.After(hangUpPause):
		case <-ctx.Done():
		}
		err = s.connect(ctx)
	}
	if err != nil {
		return s.explainConnect(ctx, err)
	}
	if err := s.checkPins(ctx); err != nil {
		s.drop()
		return refuse(err)
	}
	s.open = true
	if s.config.SASL.Mechanism == mechanismPlain && !s.config.TLS.Enabled {
		s.log.Warn("sasl PLAIN without TLS sends the password in clear text: set `tls.enabled: true`")
	}
	s.log.Info("connected to Kafka", zap.Strings("brokers", s.config.Brokers))
	return nil
}

func (s *Sink) connect(ctx context.Context) error {
	_, err := s.metadata(ctx, nil)
	if err != nil {
		s.drop()
	}
	return err
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
	if s.sasl != nil && isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) && ctx.Err() == nil {
		// So a broker ends a session that is over (KIP-368): kafka-go does not
		// authenticate anew on the same connection. Any other retry would be the same.
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
		s.drop() // ends what may be in flight; the next connection learns the leaders anew
	}
	return nil, refuse(err)
}

func (s *Sink) write(ctx context.Context, b *event.Batch) error {
	names := s.routes(b)
	err := s.resolve(ctx, names)
	if err == nil {
		err = s.pin(names)
	}
	if err != nil {
		return s.refusedRoute(b, err)
	}
	queues, err := s.plan(ctx, b)
	if err != nil {
		return err
	}
	return s.refusedRoute(b, s.send(ctx, b, queues))
}

// refusedRoute tells the lane of a refusal, and where in the batch it begins.
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
	if s.marked < len(s.pins) {
		if mark, err = s.pins.encode(); err != nil {
			return nil, fmt.Errorf("record the topics' partitions: %w", err)
		}
		s.marked = len(s.pins)
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

func (s *Sink) drop() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}
