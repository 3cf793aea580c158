package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	readAhead = 2000             // messages asked for at a time
	readBytes = 8 << 20          // bytes asked for at a time, unless messages may be larger
	readIdle  = 5 * time.Second  // the longest wait for a message that is known to exist
	readerTTL = 30 * time.Second // after which the server drops an abandoned reader
	// readStall is how long a server may take to count the messages for a reader, or to find the
	// next one in a long stream.
	readStall = 30 * time.Second

	// rereads is how often a dropped message is requested again.
	rereads = 3
)

// errDropped is the error of a message that the server has sent and the client has not received.
var errDropped = errors.New("it was lost on the way")

// reading says which messages of a stream to read.
type reading struct {
	config jetstream.ConsumerConfig
	last   uint64 // a sequence to read up to, which is known to exist; 0: to the stream's end
	ahead  int    // messages asked for at a time; 0: readAhead
}

// sequences returns a reading of all messages from first to last.
func sequences(first, last uint64) reading {
	return reading{last: last, config: jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(first, 1)}}
}

// read calls fn for messages in order, each once. It stops at fn's error, and returns it unless
// it is [sink.ErrEnough].
func (l *link) read(ctx context.Context, r reading, fn func(m jetstream.Msg, seq uint64) error) error {
	for tries := 0; ; {
		seen, err := l.readOnce(ctx, r, fn)
		if !errors.Is(err, errDropped) {
			return err
		}
		if seen > 0 {
			tries = 0
			subjects, headers := r.config.FilterSubjects, r.config.HeadersOnly
			r.config = sequences(seen+1, 0).config
			r.config.FilterSubjects, r.config.HeadersOnly = subjects, headers
		}
		if tries++; tries > rereads {
			return err
		}
	}
}

// readOnce is read; after an error seen is the last message that fn was called for, 0 for none.
func (l *link) readOnce(ctx context.Context, r reading, fn func(m jetstream.Msg, seq uint64) error) (seen uint64, err error) {
	wait := readIdle
	if r.last == 0 {
		wait = readStall
	}
	r.config.AckPolicy, r.config.InactiveThreshold, r.config.Replicas, r.config.MemoryStorage = jetstream.AckNonePolicy, readerTTL, 1, true
	var consumer jetstream.Consumer
	err = l.conn.doWithin(ctx, wait, func(ctx context.Context) (err error) {
		consumer, err = l.conn.js.CreateConsumer(ctx, l.name, r.config)
		return err
	})
	if err != nil {
		return 0, l.explain("read", err)
	}
	defer func() { // the server drops an abandoned reader
		_ = l.conn.do(context.Background(), func(ctx context.Context) error {
			return l.conn.js.DeleteConsumer(ctx, l.name, consumer.CachedInfo().Name)
		})
	}()
	if r.last == 0 && consumer.CachedInfo().NumPending == 0 {
		return 0, nil
	}
	limit := max(readBytes, 2*int(l.conn.nc.MaxPayload()))
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(cmp.Or(r.ahead, readAhead), limit))
	if err != nil {
		return 0, l.explain("read", err)
	}
	defer messages.Stop()
	for n := uint64(1); ; n++ {
		m, meta, err := nextOf(ctx, messages, wait)
		if err != nil {
			return seen, l.explain("read", err)
		}
		seq := meta.Sequence.Stream
		if meta.Sequence.Consumer != n {
			return seen, fmt.Errorf("read stream %q on %s: before message %d: %w: try again", l.name, l.conn.address, seq, errDropped)
		}
		if err := fn(m, seq); errors.Is(err, sink.ErrEnough) {
			return seq, nil
		} else if err != nil {
			return seen, err
		}
		seen = seq
		if r.last == 0 && meta.NumPending == 0 || r.last > 0 && seq >= r.last {
			return seen, nil
		}
	}
}

func nextOf(ctx context.Context, messages jetstream.MessagesContext, wait time.Duration) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, err
	}
	meta, err := m.Metadata()
	return m, meta, err
}

// lastOf returns the last message on a subject; nil when there is none. It asks the stream's leader, because package jetstream may ask a
// replica that lags.
func (l *link) lastOf(ctx context.Context, subject string) (m *nats.RawStreamMsg, err error) {
	err = l.conn.do(ctx, func(ctx context.Context) (err error) {
		m, err = l.conn.leader.GetLastMsg(l.name, subject, nats.Context(ctx))
		return err
	})
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, l.explain("read a message of", err)
	}
	return m, nil
}
