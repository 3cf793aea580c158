package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	readAhead = 2000             // messages asked for at a time
	readBytes = 8 << 20          // bytes asked for at a time, unless messages may be larger
	readIdle  = 5 * time.Second  // the longest wait for a message that is known to exist
	readerTTL = 30 * time.Second // after which the server drops an abandoned reader
)

var (
	// errHole is returned by read when a message within the range is not there.
	errHole = errors.New("messages were deleted from it")
	// errDropped is of a message that the server has sent and the client has not got.
	errDropped = errors.New("it was lost on the way")
)

// rereads is how often a message is asked for again that was dropped.
const rereads = 3

// message is what the sink reads back of one message.
type message struct {
	seq       uint64
	delivered uint64 // how many the reader was sent, this one included
	term      string
	id        string // "" in the record that begins a term
	state     string
}

// Tail calls fn for every record after from up to the record that began this
// term. See [sink.Log].
func (s *Sink) Tail(ctx context.Context, from []byte, fn func(state []event.KV, mark []byte) error) error {
	if s.conn == nil {
		return errors.New("tail: not open")
	}
	handle, err := s.lookUp(ctx)
	if err != nil {
		return err
	}
	now := describe(handle)
	start, after, err := s.tailStart(now, from)
	if err != nil {
		return err
	}
	foreign := 0
	err = s.read(ctx, start, s.opened, func(m message) error {
		switch {
		case after != nil && m.seq == after.seq:
			if m.term != after.term {
				return s.gone("message %d was written in term %s, the recorded one in %s: the recorded one was lost", m.seq, m.term, after.term)
			}
			return nil
		case m.term == "":
			foreign++
			return nil
		case m.id == "": // a term begins
			return nil
		}
		if m.state == stateOmitted {
			return s.gone("what message %d moved did not fit it, and is not known", m.seq)
		}
		state, err := decodeState(m.state)
		if err != nil {
			return s.gone("what message %d moved is not known: %v", m.seq, err)
		}
		return fn(state, mark{now.created, m.seq, m.term}.encode())
	})
	if foreign > 0 {
		s.log.Warn("stream holds messages that no bridge wrote", zap.String("stream", s.name), zap.Int("messages", foreign))
	}
	if errors.Is(err, errHole) {
		return s.gone("%v", err)
	}
	return err
}

// tailStart is the first sequence to read: of the message that from speaks of,
// where it is still there (after is then not nil), else of the one behind it.
func (s *Sink) tailStart(now stream, from []byte) (start uint64, after *mark, err error) {
	first := now.state.FirstSeq
	if now.created != s.stream.created {
		return 0, nil, s.gone("it was deleted and created anew")
	}
	if from == nil {
		if first > now.after+1 {
			return 0, nil, s.gone("nothing is recorded, and it begins at sequence %d: what it held before is not known", first)
		}
		return first, nil, nil
	}
	m, err := decodeMark(from)
	switch {
	case err != nil:
		return 0, nil, s.gone("%v", err)
	case m.created != now.created:
		return 0, nil, s.gone("it was created at %s, the recorded one at %s", utc(now.created), utc(m.created))
	case m.seq >= s.opened:
		return 0, nil, s.gone("it ended at sequence %d, and %d is recorded", s.opened-1, m.seq)
	case m.seq+1 < first:
		return 0, nil, s.gone("it begins at sequence %d, and %d is recorded: retention has removed what follows", first, m.seq)
	case m.seq < first:
		return first, nil, nil
	}
	return m.seq, &m, nil
}

func (s *Sink) gone(format string, args ...any) error {
	return fmt.Errorf("%w: stream %q on %s: %s", sink.ErrReset, s.name, s.conn.address, fmt.Sprintf(format, args...))
}

func utc(nanoseconds int64) string { return time.Unix(0, nanoseconds).UTC().Format(time.RFC3339) }

// read calls fn for the messages from first to last. It returns errHole when one
// is not there.
func (s *Sink) read(ctx context.Context, first, last uint64, fn func(message) error) error {
	for tries := 0; ; {
		next, err := s.readOnce(ctx, first, last, fn)
		if !errors.Is(err, errDropped) {
			return err
		}
		if next > first {
			tries = 0
		}
		if tries++; tries > rereads {
			return err
		}
		first = next
	}
}

// readOnce is read; after an error next is the first message that fn was not called for.
func (s *Sink) readOnce(ctx context.Context, first, last uint64, fn func(message) error) (next uint64, err error) {
	if first > last {
		return first, nil
	}
	var consumer jetstream.Consumer
	err = s.conn.do(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.conn.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       first,
			AckPolicy:         jetstream.AckNonePolicy,
			HeadersOnly:       true,
			InactiveThreshold: readerTTL,
			Replicas:          1,
			MemoryStorage:     true,
		})
		return err
	})
	if err != nil {
		return first, s.explain("read", err)
	}
	limit := max(readBytes, 2*int(s.conn.nc.MaxPayload()))
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(readAhead, limit))
	if err != nil {
		return first, s.explain("read", err)
	}
	defer s.endReader(messages, consumer)
	for next = first; next <= last; next++ {
		m, err := s.next(ctx, messages)
		if err != nil {
			return next, err
		}
		if want := next - first + 1; m.delivered != want {
			return next, fmt.Errorf("read message %d of stream %q on %s: %w", next, s.name, s.conn.address, errDropped)
		}
		if m.seq != next {
			return next, fmt.Errorf("%w: %d follows %d", errHole, m.seq, next-1)
		}
		if err := fn(m); err != nil {
			return next, err
		}
	}
	return next, nil
}

// endReader removes the reader from the server; one that is left behind there ends
// by itself.
func (s *Sink) endReader(messages jetstream.MessagesContext, consumer jetstream.Consumer) {
	messages.Stop()
	_ = s.conn.do(context.Background(), func(ctx context.Context) error {
		return s.conn.js.DeleteConsumer(ctx, s.name, consumer.CachedInfo().Name)
	})
}

func (s *Sink) next(ctx context.Context, messages jetstream.MessagesContext) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, readIdle)
	defer cancel()
	raw, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return message{}, s.explain("read", err)
	}
	meta, err := raw.Metadata()
	if err != nil {
		return message{}, s.explain("read", err)
	}
	h := raw.Headers()
	return message{
		seq:       meta.Sequence.Stream,
		delivered: meta.Sequence.Consumer,
		term:      h.Get(headerTerm),
		id:        h.Get(headerID),
		state:     h.Get(headerState),
	}, nil
}
