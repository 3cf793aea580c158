package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// errHole is returned by readBack when a message within the range is missing.
var errHole = errors.New("messages were deleted from it")

// kind is the kind of a message on the stream.
type kind uint8

const (
	isForeign kind = iota // the bridge did not write it, or wrote it to another place
	isRecord
	isTerm // it begins a term
)

// message is a message that the sink reads back.
type message struct {
	kind  kind
	seq   uint64
	term  string
	id    string // of a record
	state string // of a record
}

// Tail calls fn for every record after from up to the record that began this
// term. See [sink.Log].
func (s *Sink) Tail(ctx context.Context, from []byte, fn func(state []event.KV, mark []byte) error) error {
	if s.conn == nil {
		return errors.New("tail: not open")
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	now, err := s.lookAgain(ctx)
	if err != nil {
		return err
	}
	// The checkpoint was loaded after Open, and may belong to a later writer that is running: a reset must not destroy it.
	if err := s.followed(ctx, now); err != nil {
		return err
	}
	start, after, err := s.tailStart(now, from)
	if err != nil {
		return err
	}
	err = s.readBack(ctx, start, s.opened, func(m message) error {
		switch {
		case after != nil && m.seq == after.seq:
			if m.term != after.term {
				return s.gone("message %d was written in term %q, the recorded one in %s: the recorded one was lost", m.seq, m.term, after.term)
			}
			return nil
		case m.kind != isRecord:
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
	if errors.Is(err, errHole) {
		return s.gone("%v", err)
	}
	return err
}

// tailStart returns the first sequence to read: the sequence of the message at the mark from
// if the stream still has it (after is then not nil), otherwise the next sequence.
func (s *Sink) tailStart(now stream, from []byte) (start uint64, after *mark, err error) {
	first := now.state.FirstSeq
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
	case m.seq < first && !now.expires(&now, time.Time{}, true, s.largest()):
		return 0, nil, s.gone("it begins at sequence %d, and its limits do not explain that message %d, which is recorded, is gone: it was purged", first, m.seq)
	case m.seq < first:
		return first, nil, nil
	}
	return m.seq, &m, nil
}

func (s *Sink) gone(format string, args ...any) error {
	return fmt.Errorf("%w: stream %q on %s: %s", sink.ErrReset, s.name, s.conn.address, fmt.Sprintf(format, args...))
}

func utc(nanoseconds int64) string { return time.Unix(0, nanoseconds).UTC().Format(time.RFC3339) }

// readBack calls fn for the messages from first to last, and counts foreign messages. It returns errHole if a message
// is missing.
func (s *Sink) readBack(ctx context.Context, first, last uint64, fn func(message) error) error {
	if first > last {
		return nil
	}
	r := sequences(first, last)
	r.config.HeadersOnly = true
	next := first
	return s.read(ctx, r, func(m jetstream.Msg, seq uint64) error {
		if seq != next {
			return fmt.Errorf("%w: %d follows %d", errHole, seq, next-1)
		}
		next++
		what := s.classify(s.stream, m, seq)
		if what.kind == isForeign {
			s.foreign.found(s.name, seq, m.Subject())
		}
		return fn(what)
	})
}

// classify parses a message of the stream. It ignores the content of a foreign message, which may be a copy of a record.
func (s *Sink) classify(of stream, m jetstream.Msg, seq uint64) message {
	h := m.Headers()
	switch h.Get(headerPlace) {
	case of.place(seq):
		return message{isRecord, seq, h.Get(headerTerm), h.Get(headerID), h.Get(headerState)}
	case of.place(anywhere):
		if m.Subject() == s.termSubject {
			return message{kind: isTerm, seq: seq, term: h.Get(headerTerm)}
		}
	}
	return message{seq: seq}
}
