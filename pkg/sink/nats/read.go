package nats

import (
	"cmp"
	"context"
	"encoding/json"
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

	// behindWait is how long messages that the stream's leader has may be missing on the replicas that are read.
	behindWait = 10 * time.Second
	// behindPause is the time between two attempts to read them.
	behindPause = 50 * time.Millisecond
)

// errDropped is the error of a message that the server has sent and the client has not received.
var errDropped = errors.New("it was lost on the way")

// reading says which messages of a stream to read.
type reading struct {
	config jetstream.ConsumerConfig
	last   uint64 // a sequence to read up to, which is known to exist; 0: to the stream's end
	before uint64 // all messages with lower sequences that the stream's leader has must be read; 0: those that some replica has
	ahead  int    // messages asked for at a time; 0: readAhead
}

// from makes r begin at a sequence.
func (r *reading) from(seq uint64) {
	subjects, headers := r.config.FilterSubjects, r.config.HeadersOnly
	r.config = sequences(seq, 0).config
	r.config.FilterSubjects, r.config.HeadersOnly = subjects, headers
}

// sequences returns a reading of all messages from first to last.
func sequences(first, last uint64) reading {
	return reading{last: last, config: jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(first, 1)}}
}

// read calls fn for messages in order, each once. It stops at fn's error, and returns it unless
// it is [sink.ErrEnough].
func (l *link) read(ctx context.Context, r reading, fn func(m jetstream.Msg, seq uint64) error) error {
	var behind time.Time // since when messages are missing on replicas
	for tries := 0; ; {
		seen, err := l.readOnce(ctx, r, fn)
		if seen > 0 {
			tries, behind = 0, time.Time{}
			r.from(seen + 1)
		}
		switch {
		case errors.Is(err, sink.ErrEnough):
			return nil
		case errors.Is(err, errDropped):
			if tries++; tries > rereads {
				return err
			}
			continue
		case err != nil || r.config.OptStartSeq >= r.before:
			return err
		}
		seq, err := l.nextOnLeader(ctx, r.config.OptStartSeq, r.config.FilterSubjects)
		if err != nil || seq == 0 || seq >= r.before {
			return err
		}
		if behind.IsZero() {
			behind = time.Now()
		}
		if time.Since(behind) > behindWait {
			return fmt.Errorf("read stream %q on %s: the replica that was read lags: it does not have message %d, which the stream's leader has: check the servers if this lasts", l.name, l.conn.address, seq)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(behindPause):
		}
	}
}

// nextOnLeader returns the sequence of the first message at or behind one that the stream's leader has on one of the subjects; 0 if there is
// none. The reader's consumer may be on a replica that does not have it yet.
func (l *link) nextOnLeader(ctx context.Context, from uint64, subjects []string) (first uint64, err error) {
	m, err := l.messageOnLeader(ctx, reading{config: jetstream.ConsumerConfig{OptStartSeq: from, FilterSubjects: subjects}})
	if m == nil {
		return 0, err
	}
	return m.Sequence, nil
}

// messageOnLeader returns the message that the reading begins with, as the stream's leader has it; nil if there is none.
func (l *link) messageOnLeader(ctx context.Context, r reading) (first *singleMessage, err error) {
	subjects := r.config.FilterSubjects
	if len(subjects) == 0 {
		subjects = []string{">"}
	}
	for _, subject := range subjects {
		request, err := json.Marshal(messageRequest{r.config.OptStartSeq, r.config.OptStartTime, subject})
		if err != nil {
			return nil, err
		}
		var answer *nats.Msg
		to := l.config.api() + "STREAM.MSG.GET." + l.name
		err = l.conn.do(ctx, func(ctx context.Context) (err error) {
			answer, err = l.conn.nc.RequestWithContext(ctx, to, request)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%w: check that the user may publish to %s: bridge rbac --bus prints the permissions", l.explain("ask the leader for messages of", err), to)
		}
		var found struct {
			Error   *jetstream.APIError `json:"error"`
			Message singleMessage       `json:"message"`
		}
		err = json.Unmarshal(answer.Data, &found)
		switch {
		case err != nil:
			return nil, l.explain("read a message of", err)
		case found.Error != nil && found.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
			continue
		case found.Error != nil:
			return nil, l.explain("read a message of", found.Error)
		}
		if first == nil || found.Message.Sequence < first.Sequence {
			first = &found.Message
		}
	}
	return first, nil
}

// readOnce is read from one consumer. It returns all errors of fn. seen is the last message that fn was called for, 0 for none.
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
	if errors.Is(err, jetstream.ErrMaximumConsumersLimit) {
		return l.readSingly(ctx, r, fn)
	}
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
		if err := fn(m, seq); err != nil {
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
