package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// chunkRecords and chunkBytes bound one atomic publish. The server takes 1000
	// messages; what it has not yet stored counts against 128 MB, of all clients
	// together.
	chunkRecords = 1000
	chunkBytes   = 8 << 20

	// ackTimeout is how long the server may take to store a chunk. A leader that
	// steps down answers nothing, so it bounds that stall; to ask again too early
	// is safe, and only costs the bytes.
	ackTimeout = 3 * time.Second
	// lateAck is how much longer an acknowledgement is waited for when the wait is
	// cut short: it saves reading the stream.
	lateAck = 300 * time.Millisecond

	// codeChunkTooLarge answers more messages than the server is set to take,
	// codeChunkIncomplete a chunk of which a message did not arrive.
	codeChunkTooLarge   jetstream.ErrorCode = 10199
	codeChunkIncomplete jetstream.ErrorCode = 10176
)

// progress is where the writer stands.
type progress struct {
	head uint64 // everything up to here is on the stream, and known to be
	seq  uint64 // the batch under way
	done int    // records of it that are at or before head
	// careful sends what is left of it one by one, to find the route that is denied.
	careful bool
}

// Write publishes the batch in chunks, each of which the server stores as a whole,
// at the sequence that the sink expects, or not at all. See [sink.Sink].
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
		if e := new(sink.RecordError); errors.As(err, &e) && s.stream.maxMessage > 0 && e.Limit == s.stream.maxMessage {
			if err := s.settle(ctx, nil); err != nil { // it may take more by now
				return nil, err
			}
			c, err = s.chunk(b.Records)
		}
		if err != nil {
			return nil, err
		}
		if err := s.publish(ctx, c, b.Records[s.done:]); err != nil {
			return nil, err
		}
	}
	return mark{s.stream.created, s.head, s.token(s.term)}.encode(), nil
}

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

// chunk is what is published at once.
type chunk struct {
	msgs  []*nats.Msg
	reply string
}

// chunk encodes records from s.done on. An error is about the first record that
// the bus does not take; those before it are then not sent either.
func (s *Sink) chunk(records []event.Record) (*chunk, error) {
	s.attempt++
	id := s.writer + "." + strconv.FormatUint(s.attempt, 36)
	c := &chunk{reply: s.conn.inbox + "." + id}
	bytes := 0
	most := s.chunkRecords
	if s.careful {
		most = 1
	}
	for i := s.done; i < len(records) && len(c.msgs) < most; i++ {
		r := &records[i]
		if err := s.outside(r); err != nil {
			return nil, err
		}
		m := encode(r, s.token(s.term))
		m.Header[headerBatch] = []string{id}
		m.Header[headerBatchSequence] = []string{strconv.Itoa(len(c.msgs) + 1)}
		size, err := s.checkMessage(m, s.stream.maxMessage)
		if err != nil {
			err.Index = i
			return nil, err
		}
		if bytes += size; bytes > chunkBytes && len(c.msgs) > 0 {
			break
		}
		c.msgs = append(c.msgs, m)
	}
	c.msgs[0].Header[headerExpected] = []string{strconv.FormatUint(s.head, 10)}
	last := c.msgs[len(c.msgs)-1]
	last.Reply = c.reply
	if len(c.msgs) > 1 {
		last.Header[headerBatchCommit] = []string{"1"}
	} else { // a message alone is atomic, and cheaper
		delete(last.Header, headerBatch)
		delete(last.Header, headerBatchSequence)
	}
	return c, nil
}

// publish stores a chunk, the first of the rest of the batch. After an error it reads
// what became of it. Where even that fails, the next call sends the chunk again: if
// it was stored, the server refuses it there, and the stream is read then.
func (s *Sink) publish(ctx context.Context, c *chunk, rest []event.Record) error {
	s.conn.forget()
	if err := s.send(c); err != nil {
		return err
	}
	stored := s.head + uint64(len(c.msgs))
	cause := s.await(ctx, c)
	if cause == nil {
		s.head = stored
		s.done += len(c.msgs)
		return nil
	}
	var refused *jetstream.APIError
	if errors.As(cause, &refused) && refused.ErrorCode == codeChunkTooLarge {
		s.chunkRecords = max(s.chunkRecords/2, 1)
	}
	if ctx.Err() != nil {
		return cause
	}
	switch err := s.settle(ctx, rest); {
	case s.fenced != nil, s.lost != "":
		return err
	case err == nil && s.head >= stored:
		return nil // stored, though the acknowledgement was lost
	}
	if errors.Is(cause, nats.ErrPermissionViolation) {
		if len(c.msgs) == 1 {
			return &sink.RouteError{Index: s.done, Route: c.msgs[0].Subject, Err: cause}
		}
		s.careful = true
	}
	return cause
}

func (s *Sink) send(c *chunk) error {
	for _, m := range c.msgs {
		if err := s.conn.nc.PublishMsg(m); err != nil {
			if down := s.conn.connected(); down != nil {
				return down
			}
			return fmt.Errorf("publish to %q: %w", m.Subject, err)
		}
	}
	return nil
}

// await waits for the acknowledgement of a chunk, a little longer when something
// else goes wrong first.
func (s *Sink) await(ctx context.Context, c *chunk) error {
	timeout := time.NewTimer(ackTimeout)
	defer timeout.Stop()
	done := ctx.Done()
	var cause error
	wait := func(err error) {
		if cause == nil {
			cause = err
			timeout.Reset(lateAck)
		}
	}
	for {
		select {
		case m := <-s.conn.acks:
			if m.Subject != c.reply {
				continue // of an earlier call
			}
			if err := s.checkAck(m, c); err == nil || cause == nil {
				return err
			}
			return cause
		case err := <-s.conn.events:
			if !s.conn.nc.IsConnected() {
				return err
			}
			wait(err)
		case <-done:
			done = nil
			wait(ctx.Err())
		case <-timeout.C:
			if cause == nil {
				cause = fmt.Errorf("stream %q on %s has not acknowledged %d messages for %v", s.name, s.conn.address, len(c.msgs), ackTimeout)
			}
			return cause
		}
	}
}

// checkAck returns nil when the whole chunk was stored where it belongs.
func (s *Sink) checkAck(m *nats.Msg, c *chunk) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return fmt.Errorf("stream %q on %s does not answer: it has no leader, or is gone", s.name, s.conn.address)
	}
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("acknowledgement of stream %q does not parse: %w", s.name, err)
	}
	switch want := s.head + uint64(len(c.msgs)); {
	case ack.Error != nil && ack.Error.ErrorCode == codeChunkIncomplete && errors.Is(s.conn.nc.LastError(), nats.ErrPermissionViolation):
		return fmt.Errorf("publish to stream %q on %s: %w", s.name, s.conn.address, s.conn.nc.LastError())
	case ack.Error != nil:
		return fmt.Errorf("publish to stream %q on %s: %w", s.name, s.conn.address, ack.Error)
	case ack.Stream != s.name:
		return fmt.Errorf("subject %q belongs to stream %q, not %q", c.msgs[0].Subject, ack.Stream, s.name)
	case ack.Sequence != want:
		return fmt.Errorf("stream %q stored a chunk up to sequence %d, want %d", s.name, ack.Sequence, want)
	}
	return nil
}
