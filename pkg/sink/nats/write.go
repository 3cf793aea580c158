package nats

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// progress is where the writer stands.
type progress struct {
	seq  uint64 // the batch under way
	done int    // records of it that are at or before head
	// careful sends what is left of it one by one, to find the route that is denied.
	careful bool
}

// Write publishes the batch in chunks. Of a chunk the server stores the first
// messages up to some point, all of them if nothing goes wrong, each at the sequence
// that the sink expects. See [sink.Sink].
func (s *Sink) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	switch {
	case s.fenced != nil:
		return nil, s.fenced
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if b.Seq != s.seq {
		s.seq, s.done, s.careful = b.Seq, 0, false
	}
	for s.done < len(b.Records) {
		c, err := s.chunk(b.Records)
		if e := new(sink.RecordError); errors.As(err, &e) && e.Limit > 0 && e.Limit == int(s.stream.config.MaxMsgSize) {
			if err := s.findStored(ctx, nil); err != nil { // it may take more by now
				return nil, err
			}
			c, err = s.chunk(b.Records)
		}
		if err != nil {
			return nil, err
		}
		err = s.publish(ctx, c, b.Records[s.done:])
		c.release()
		if err != nil {
			return nil, err
		}
	}
	return s.Mark(), nil
}

// Mark implements [sink.Log].
func (s *Sink) Mark() []byte { return mark{s.stream.created, s.own, s.token(s.term)}.encode() }

// ready connects again where the client has given up, and begins again on a stream
// that has lost data.
func (s *Sink) ready(ctx context.Context) error {
	if err := s.renew(); err != nil {
		return err
	}
	if s.lost != "" {
		return s.reset(ctx)
	}
	return nil
}

// chunk encodes records from s.done on, up to one that the bus does not take. An error
// is about the record at s.done: those before it are on the bus, as [sink.Log] asks.
func (s *Sink) chunk(records []event.Record) (*chunk, error) {
	c := s.newChunk(nil)
	bytes := 0
	most := s.most
	switch {
	case s.careful:
		most = 1
	case s.stream.config.AllowBatchPublish:
		most = len(records)
	}
	term := s.token(s.term)
	for i := s.done; i < len(records) && len(c.msgs) < most; i++ {
		r := &records[i]
		m := s.message(len(c.msgs))
		s.encode(m, r, term)
		size, err := s.check(i, r, m)
		if err != nil && len(c.msgs) == 0 {
			return nil, err
		} else if err != nil {
			break
		}
		if bytes += size; bytes > chunkBytes && len(c.msgs) > 0 {
			break
		}
		c.msgs = s.msgs[:len(c.msgs)+1]
	}
	s.expect(c, s.stream.config.AllowBatchPublish)
	return c, nil
}

// check returns a message's size, or why the bus does not take it. Its record is the ith.
func (s *Sink) check(i int, r *event.Record, m *nats.Msg) (size int, err error) {
	if err := s.outside(r); err != nil {
		return 0, err
	}
	size, wrong := s.checkMessage(m, int(s.stream.config.MaxMsgSize))
	if wrong != nil {
		wrong.Index = i
		return 0, wrong
	}
	return size, nil
}

// release lets go of the records. The client has kept nothing of the messages.
func (c *chunk) release() {
	for _, m := range c.msgs {
		clear(m.Header)
		m.Data = nil
	}
}

// message is the ith of a chunk, without content; its headers are used again.
func (s *Sink) message(i int) *nats.Msg {
	if i == len(s.msgs) {
		s.msgs = append(s.msgs, &nats.Msg{Header: nats.Header{}})
	}
	m := s.msgs[i]
	clear(m.Header)
	m.Reply = ""
	return m
}

// publish stores a chunk, the first of the rest of the batch. After an error it reads
// what became of it. If it was stored, or a foreign message took its place, the caller goes on. Where even reading
// fails, the next call sends the chunk again: if it was stored, the server refuses it there, and the stream is read then.
func (s *Sink) publish(ctx context.Context, c *chunk, rest []event.Record) error {
	before := s.head
	cause := s.appendChunk(ctx, c)
	if cause == nil {
		s.own, s.done = s.head, s.done+len(c.msgs)
		return nil
	}
	if ctx.Err() != nil {
		return cause
	}
	switch err := s.findStored(ctx, rest); {
	case s.fenced != nil, s.lost != "":
		return err
	case err == nil && s.head > before:
		return nil
	}
	if errors.Is(cause, nats.ErrPermissionViolation) {
		if len(c.msgs) == 1 {
			return &sink.RouteError{Index: s.done, Route: c.msgs[0].Subject, Err: cause}
		}
		s.careful = true
	}
	return cause
}
