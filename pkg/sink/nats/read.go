package nats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// readStall is how long a server may take to count what a reader will get, or to find the
// next of it in a long stream.
const readStall = 30 * time.Second

// ReaderOptions are what a [Reader] is made of.
type ReaderOptions struct {
	Config   Config // completed by NewReader
	Identity event.Identity
	// Subjects are patterns of the subjects that are read, Collections of those of
	// collection events alone. Patterns of one list must not overlap.
	Subjects, Collections []string
}

// Reader is a [sink.Reader] of a sink's stream.
type Reader struct {
	link        *link
	stop        func()
	part        sink.Part
	subjects    []string
	collections []string
}

// NewReader connects and looks the stream up. An embedded server is asked as its
// subscribers do; one that does not run is run meanwhile, for nobody else.
func NewReader(ctx context.Context, o ReaderOptions) (_ *Reader, err error) {
	conf, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	if conf.Delivery == atMostOnce {
		return nil, errors.New("read: delivery at-most-once keeps no events")
	}
	l := &link{config: conf, id: o.Identity, log: zap.NewNop(), name: conf.StreamName(o.Identity.Cluster), subjects: conf.subjects(o.Identity)}
	if err := l.startBeside(ctx); err != nil {
		l.disconnect()
		return nil, err
	}
	r := &Reader{link: l, stop: l.disconnect, subjects: o.Subjects, collections: o.Collections}
	if conf.Delivery == atLeastOnce {
		err = (&Shared{link: link{config: conf, id: o.Identity, conn: l.conn}}).chooseInto(ctx, l)
	}
	if err == nil {
		err = r.lookUp(ctx)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// chooseInto finds the stream's name for l.
func (s *Shared) chooseInto(ctx context.Context, l *link) error {
	s.name, s.subjects = l.name, l.subjects
	err := s.choose(ctx)
	l.name = s.name
	return err
}

// startBeside is start, beside a bridge that may be running.
func (l *link) startBeside(ctx context.Context) (err error) {
	e := l.config.Embedded
	if e == nil {
		return l.start(ctx)
	}
	alone := *e
	alone.Listen, alone.TLS, alone.Leaf = "127.0.0.1:0", nil, nil
	conf := l.config
	l.config.Embedded = &alone
	_, started := os.Stat(e.Dir) // who only reads makes no directory
	if started == nil {
		started = l.start(ctx)
	}
	if started == nil {
		return nil
	}
	if errors.Is(started, fs.ErrNotExist) {
		started = fmt.Errorf("embedded server: no bridge has written to %s", e.Dir)
	}
	l.disconnect()
	host, port, err := e.hostPort()
	if err != nil || port == 0 {
		return started
	}
	l.config = conf
	l.config.Embedded, l.config.URL = nil, fmt.Sprintf("nats://%s:%d", reachable(host), port)
	if e.TLS != nil {
		l.config.URL = fmt.Sprintf("tls://%s:%d", reachable(host), port)
	}
	if err := l.start(ctx); err != nil {
		return errors.Join(started, err)
	}
	return nil
}

// reachable is where a server that listens on host is found.
func reachable(host string) string {
	if host == "" || host == "0.0.0.0" || host == "::" {
		return "127.0.0.1"
	}
	return host
}

func (r *Reader) lookUp(ctx context.Context) error {
	handle, err := r.link.lookUp(ctx)
	if err != nil {
		return err
	}
	s := describe(handle)
	r.part = sink.Part{Name: r.link.name, Log: r.link.name, First: int64(s.state.FirstSeq), End: int64(s.state.LastSeq) + 1}
	r.part.Latest = handle.CachedInfo().Config.MaxMsgsPerSubject > 0
	if r.part.First == 0 {
		r.part.First = 1
	}
	return nil
}

// Parts implements [sink.Reader]: the stream is one.
func (r *Reader) Parts() []sink.Part { return []sink.Part{r.part} }

// At implements [sink.Reader].
func (r *Reader) At(ctx context.Context, t time.Time) ([]int64, error) {
	at := r.part.End
	err := r.with(ctx, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &t, HeadersOnly: true},
		1, func(m jetstream.Msg, seq uint64) error {
			at = min(at, int64(seq))
			return sink.ErrEnough
		})
	return []int64{at}, err
}

// Read implements [sink.Reader].
func (r *Reader) Read(ctx context.Context, ranges []sink.Range, collections bool, fn func(*sink.Message) error) error {
	want := ranges[0]
	if want.From >= want.To {
		return nil
	}
	subjects := r.subjects
	if collections {
		subjects = r.collections
	}
	var m sink.Message
	return r.with(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(want.From), FilterSubjects: subjects,
	}, readAhead, func(raw jetstream.Msg, seq uint64) error {
		if int64(seq) >= want.To {
			return sink.ErrEnough
		}
		m.Offset, m.Value, m.Headers = int64(seq), raw.Data(), m.Headers[:0]
		for name, values := range raw.Headers() {
			if len(values) > 0 {
				m.Headers = append(m.Headers, sink.Header{Name: name, Value: []byte(values[0])})
			}
		}
		return fn(&m)
	})
}

// with reads what a consumer gives until there is nothing more, and removes it.
func (r *Reader) with(ctx context.Context, config jetstream.ConsumerConfig, ahead int, fn func(jetstream.Msg, uint64) error) error {
	config.AckPolicy, config.InactiveThreshold, config.Replicas, config.MemoryStorage = jetstream.AckNonePolicy, readerTTL, 1, true
	l := r.link
	asking, cancel := context.WithTimeout(ctx, readStall)
	defer cancel()
	consumer, err := l.conn.js.CreateConsumer(asking, l.name, config)
	if err != nil {
		return l.explain("read", err)
	}
	remove := func() {
		_ = l.conn.do(context.Background(), func(ctx context.Context) error {
			return l.conn.js.DeleteConsumer(ctx, l.name, consumer.CachedInfo().Name)
		})
	}
	left := consumer.CachedInfo().NumPending
	if left == 0 {
		remove()
		return nil
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(ahead, max(readBytes, 2*int(l.conn.nc.MaxPayload()))))
	if err != nil {
		remove()
		return l.explain("read", err)
	}
	defer remove()
	defer messages.Stop()
	for n := uint64(1); ; n++ {
		raw, meta, err := nextOf(ctx, messages)
		if err != nil {
			return l.explain("read", err)
		}
		if meta.Sequence.Consumer != n {
			return fmt.Errorf("read stream %q on %s: message %d: %w: try again", l.name, l.conn.address, meta.Sequence.Stream, errDropped)
		}
		if err := fn(raw, meta.Sequence.Stream); err != nil {
			if errors.Is(err, sink.ErrEnough) {
				return nil
			}
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

func nextOf(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, readStall)
	defer cancel()
	raw, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	meta, err := raw.Metadata()
	return raw, meta, err
}

// Close implements [sink.Reader].
func (r *Reader) Close() { r.stop() }
