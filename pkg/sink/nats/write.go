package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// chunkRecords bounds an atomic publish, of which the server takes 1000 messages,
	// and chunkBytes every chunk: what the server has not yet stored counts against
	// 128 MB, of all clients together.
	chunkRecords = 1000
	chunkBytes   = 8 << 20

	// ackTimeout is how long the server may take to store a chunk, or between two
	// signs that it does. A leader that steps down answers nothing, so it bounds that
	// stall; to ask again too early is safe, and only costs the bytes.
	ackTimeout = 3 * time.Second
	// lateAck is how much longer an acknowledgement is waited for when the wait is
	// cut short: it saves reading the stream.
	lateAck = 300 * time.Millisecond

	// codeChunkTooLarge answers more messages than the server is set to take,
	// codeChunkIncomplete a chunk of which a message did not arrive.
	codeChunkTooLarge   jetstream.ErrorCode = 10199
	codeChunkIncomplete jetstream.ErrorCode = 10176

	// The reply subject of a message of a run says what it is: inbox, id, after how many
	// messages the server should tell how far it is, what a gap does, the place in
	// the run, and what to do.
	runMode   = ".500.fail."
	runStart  = ".0.$FI"
	runAppend = ".1.$FI"
	runCommit = ".2.$FI"
)

// progress is where the writer stands.
type progress struct {
	head uint64 // everything up to here is on the stream, and known to be
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
		if e := new(sink.RecordError); errors.As(err, &e) && s.stream.maxMessage > 0 && e.Limit == s.stream.maxMessage {
			if err := s.settle(ctx, nil); err != nil { // it may take more by now
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
func (s *Sink) Mark() []byte { return mark{s.stream.created, s.head, s.token(s.term)}.encode() }

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

// chunk is what is published at once. Its messages are the sink's, until the next
// chunk is made.
type chunk struct {
	msgs  []*nats.Msg
	id    string
	reply string // of a chunk's own; of the messages of a run it is the beginning
	run   bool
}

// chunk encodes records from s.done on, up to one that the bus does not take. An error
// is about the record at s.done: those before it are on the bus, as [sink.Log] asks.
func (s *Sink) chunk(records []event.Record) (*chunk, error) {
	s.attempt++
	id := s.writer + "-" + strconv.FormatUint(s.attempt, 36)
	c := &chunk{id: id, reply: s.conn.inbox + "." + id}
	bytes := 0
	most := s.chunkRecords
	switch {
	case s.careful:
		most = 1
	case s.stream.runs:
		most = len(records)
	}
	term := s.token(s.term)
	for i := s.done; i < len(records) && len(c.msgs) < most; i++ {
		r := &records[i]
		m := s.message(len(c.msgs))
		encode(m, r, term)
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
	switch {
	case len(c.msgs) == 1: // a message alone is atomic, and cheaper
		expect(c.msgs[0], s.head)
		c.msgs[0].Reply = c.reply
	case s.stream.runs:
		c.asRun(s.head)
	default:
		c.asAtomic(s.head)
	}
	return c, nil
}

// check returns a message's size, or why the bus does not take it. Its record is the ith.
func (s *Sink) check(i int, r *event.Record, m *nats.Msg) (size int, err error) {
	if err := s.outside(r); err != nil {
		return 0, err
	}
	size, wrong := s.checkMessage(m, s.stream.maxMessage)
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

func expect(m *nats.Msg, last uint64) {
	m.Header[headerExpected] = []string{strconv.FormatUint(last, 10)}
}

// asRun makes the chunk a run: what the server calls a fast batch that fails at a gap
// (NATS 2.14, ADR-50). It stores the messages as they come; the first one that is
// refused, or missing, ends the run, and nothing behind it is stored.
func (c *chunk) asRun(head uint64) {
	prefix := c.reply + runMode
	for i, m := range c.msgs {
		expect(m, head+uint64(i))
		op := runAppend
		switch i {
		case 0:
			op = runStart
		case len(c.msgs) - 1:
			op = runCommit
		}
		m.Reply = prefix + strconv.Itoa(i+1) + op
	}
	c.run = true
}

// asAtomic makes the chunk one that the server stores as a whole or not at all (NATS
// 2.12). It takes an expectation of the first message alone.
func (c *chunk) asAtomic(head uint64) {
	for i, m := range c.msgs {
		m.Header[headerBatch] = []string{c.id}
		m.Header[headerBatchSequence] = []string{strconv.Itoa(i + 1)}
	}
	expect(c.msgs[0], head)
	last := c.msgs[len(c.msgs)-1]
	last.Reply = c.reply
	last.Header[headerBatchCommit] = []string{"1"}
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
			if m.Subject != c.reply && (!c.run || !strings.HasPrefix(m.Subject, c.reply+".")) {
				continue // of an earlier call
			}
			end, err := s.checkAck(m, c)
			switch {
			case end && err == nil:
				return nil
			case end:
				return cmp.Or(cause, err)
			case err != nil:
				wait(err)
			case cause == nil: // so far, so good
				timeout.Reset(ackTimeout)
			}
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

// checkAck returns nil when nothing is wrong with the chunk, and whether the server
// has done with it: then all of it is stored where it belongs.
func (s *Sink) checkAck(m *nats.Msg, c *chunk) (end bool, _ error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return true, fmt.Errorf("stream %q on %s does not answer: it has no leader, or is gone", s.name, s.conn.address)
	}
	var ack struct {
		Type     string              `json:"type"` // of what is told while a run is under way
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return true, fmt.Errorf("acknowledgement of stream %q does not parse: %w", s.name, err)
	}
	end = ack.Type == ""
	missing := ack.Type == "gap" || ack.Error != nil && ack.Error.ErrorCode == codeChunkIncomplete
	switch want := s.head + uint64(len(c.msgs)); {
	case missing && errors.Is(s.conn.nc.LastError(), nats.ErrPermissionViolation):
		return end, fmt.Errorf("publish to stream %q on %s: %w", s.name, s.conn.address, s.conn.nc.LastError())
	case ack.Error != nil:
		return end, fmt.Errorf("publish to stream %q on %s: %w", s.name, s.conn.address, ack.Error)
	case missing:
		return end, fmt.Errorf("publish to stream %q on %s: of %d messages one was lost on the way", s.name, s.conn.address, len(c.msgs))
	case !end:
		return false, nil
	case ack.Stream != s.name:
		return true, fmt.Errorf("subject %q belongs to stream %q, not %q", c.msgs[0].Subject, ack.Stream, s.name)
	case ack.Sequence != want:
		return true, fmt.Errorf("stream %q stored a chunk up to sequence %d, want %d", s.name, ack.Sequence, want)
	}
	return true, nil
}
