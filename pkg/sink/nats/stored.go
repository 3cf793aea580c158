package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// lookAgain looks up the stream of this term, and its settings. It records a loss if the stream is another one, or has lost messages.
func (s *Sink) lookAgain(ctx context.Context) (stream, error) {
	now, err := s.lookUp(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return stream{}, s.lose("it was deleted")
	case err != nil:
		return stream{}, err
	case now.created != s.stream.created:
		return stream{}, s.lose("it was deleted and created again")
	case now.state.LastSeq < s.head:
		return stream{}, s.lose("it ends at sequence %d, and %d was acknowledged", now.state.LastSeq, s.head)
	}
	if now, err = s.fit(ctx, now); err != nil {
		return stream{}, temporary(err)
	}
	now.own = s.stream.ownAt(s.own)
	if why := s.stream.loss(&now, true, s.largest()); why != "" {
		s.hole = true
		return stream{}, s.lose("%s", why)
	}
	return now, nil
}

// findStored reads the stream after head, to find out how much of the rest of a batch is
// stored.
func (s *Sink) findStored(ctx context.Context, rest []event.Record) error {
	now, err := s.lookAgain(ctx)
	if err != nil {
		return err
	}
	if now.state.FirstSeq > s.head+1 {
		return s.lose("it begins at sequence %d, and what follows %d was just written", now.state.FirstSeq, s.head)
	}
	s.stream = now
	if last := now.state.LastSeq; last > s.head {
		err := s.readBack(ctx, s.head+1, last, func(m message) error {
			if err := s.recognise(m, rest); err != nil || m.kind != isRecord {
				return err
			}
			rest = rest[1:]
			s.own, s.head, s.done = m.seq, m.seq, s.done+1
			return nil
		})
		if errors.Is(err, errHole) {
			s.hole = true
			return s.lose("%v", err)
		}
		if err != nil {
			return err
		}
		s.head = last
	}
	return nil
}

// recognise returns an error unless m is foreign or the first record of rest: then another writer is at work.
func (s *Sink) recognise(m message, rest []event.Record) error {
	switch {
	case m.kind == isForeign:
	case m.kind == isTerm && termNumber(m.term) < s.term, m.kind == isTerm && m.term == s.token(s.term):
		s.foreign.found(s.name, m.seq, s.termSubject) // a copy of one that was there before
	case m.term != s.token(s.term):
		s.fenced = fmt.Errorf("%w: message %d of stream %q carries term %s, this writer's is %s", sink.ErrFenced, m.seq, s.name, m.term, s.token(s.term))
	case len(rest) == 0 || m.id != event.EscapeHeader(rest[0].ID):
		s.fenced = fmt.Errorf("%w: message %d of stream %q is %q, which this writer did not send there", sink.ErrFenced, m.seq, s.name, m.id)
	}
	return s.fenced
}

// lose records a loss of the stream. The reset follows in the next call, because a server
// that is still removing a stream's files cannot create the stream, or finds the files again.
func (s *Sink) lose(format string, args ...any) error {
	s.lost = fmt.Sprintf(format, args...)
	return fmt.Errorf("stream %q on %s: %s: it begins again", s.name, s.conn.address, s.lost)
}

// reset begins a new term on a stream that has lost data, and only then returns the loss:
// a server that is cut off from its cluster may show an old state, but it cannot
// store the record that begins the term. There is no loss if the stream shows
// all messages again: a member of a cluster without a leader may answer from old data.
func (s *Sink) reset(ctx context.Context) error {
	found, err := s.find(ctx)
	if err != nil {
		return temporary(err)
	}
	last, seq, err := s.lastTerm(ctx, found)
	if err != nil {
		return err
	}
	// A record of a new term, whose answer was lost, may have taken the sequence of a message that is lost.
	same := !s.hole && found.created == s.stream.created && (last == "" || last == s.token(s.term))
	if same && found.state.LastSeq >= s.head && found.state.FirstSeq <= s.head+1 {
		s.log.Info("stream is complete again", zap.String("stream", s.name), zap.String("before", s.lost))
		found.own = s.stream.ownAt(s.own)
		s.stream, s.lost = found, ""
		return nil
	}
	recreated := found.created != s.stream.created
	if last != "" && last != s.token(termNumber(last)) && (recreated || termNumber(last) >= s.term) {
		return s.fence(last)
	}
	if err := s.beginTermAfter(ctx, found, last, seq); err != nil {
		return err
	}
	err = s.gone("%s", s.lost)
	s.stream, s.lost, s.hole = found, "", false
	return err
}

// temporary converts a refusal, which only Open may return, to a temporary
// error.
func temporary(err error) error {
	var refused *sink.RefusedError
	if errors.As(err, &refused) {
		return errors.New(refused.Error())
	}
	return err
}
