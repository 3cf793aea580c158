package nats

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// progress is the progress of the writer.
type progress struct {
	seq  uint64 // the batch under way
	done int    // records of it that are at or before head
	// careful sends the rest of the batch one by one, to find the denied route.
	careful bool
}

// Write publishes the batch in chunks. The server stores the messages of a chunk in order, each at the
// expected sequence. After an error it has stored only the first
// messages of the chunk, or none. See [sink.Sink].
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
			if err := s.findStored(ctx, nil); err != nil { // the server's limit may have been raised
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

// Check returns why nothing can be written now. It looks at the stream as often as Write does.
func (s *Sink) Check(ctx context.Context) error {
	if s.fenced != nil {
		return s.fenced
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.conn.connected()
}

// ready connects again if the client has given up, begins a new term on a stream
// that has lost data, and looks at the settings of the stream at times.
func (s *Sink) ready(ctx context.Context) error {
	if err := s.renew(); err != nil {
		return err
	}
	if s.lost != "" {
		return s.reset(ctx)
	}
	if !s.lookDue(&s.stream) {
		return nil
	}
	now, err := s.lookAgain(ctx)
	if err == nil {
		s.stream = now
	}
	return err
}

// chunk encodes records from s.done on, up to one that the bus does not accept. An error
// concerns the record at s.done: the records before it are on the bus, as [sink.Log] requires.
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

// check returns at least the size of the message of the ith record, or an error if the bus does not accept it.
func (s *Sink) check(i int, r *event.Record, m *nats.Msg) (size int, err error) {
	if err := s.stream.outside(i, r); err != nil {
		return 0, err
	}
	size, wrong := s.checkMessage(m, r, int(s.stream.config.MaxMsgSize))
	if wrong != nil {
		wrong.Index = i
		return 0, wrong
	}
	return size, nil
}

// release drops the references to the records. The client keeps no part of the messages.
func (c *chunk) release() {
	for _, m := range c.msgs {
		clear(m.Header)
		m.Data = nil
	}
}

// message returns the ith message of a chunk, without content. It reuses its headers.
func (s *Sink) message(i int) *nats.Msg {
	if i == len(s.msgs) {
		s.msgs = append(s.msgs, &nats.Msg{Header: nats.Header{}})
	}
	m := s.msgs[i]
	clear(m.Header)
	m.Reply = ""
	return m
}

// publish stores a chunk, which begins the rest of the batch. After an error it reads the stream to find out
// whether the chunk was stored. If it was stored, or a foreign message took its place, the caller continues. If the read
// also fails, the next call sends the chunk again. The server refuses a chunk that was stored, and the stream is read then.
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
	case err != nil && errors.As(cause, new(*jetstream.APIError)): // what the stream refuses follows from its settings
		return err
	}
	if errors.Is(cause, nats.ErrPermissionViolation) {
		if len(c.msgs) == 1 {
			return &sink.RouteError{Index: s.done, Route: c.msgs[0].Subject, Err: cause}
		}
		s.careful = true
	}
	return cause
}
