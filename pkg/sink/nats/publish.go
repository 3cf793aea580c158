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
)

const (
	// chunkMessages bounds an atomic publish, for which the limit of the server is 1000 messages.
	// chunkBytes bounds every chunk: messages that the server has not stored yet count against
	// 128 MB for all clients together.
	chunkMessages = 1000
	chunkBytes    = 8 << 20

	// ackTimeout is how long the server may take to store a chunk, or between two
	// progress reports. A leader that steps down does not answer, so ackTimeout bounds that
	// stall. A retry that comes too early is safe, and costs only bandwidth.
	ackTimeout = 3 * time.Second
	// lateAck is the extra wait for an acknowledgement when the wait ends
	// early. An acknowledgement in this time saves reading the stream.
	lateAck = 300 * time.Millisecond

	// codeChunkTooLarge is the error for more messages than the server allows,
	// codeChunkIncomplete the error for a chunk with a missing message, and
	// codeChunkUnknown the error for a message of a fast batch that has ended, as one does with a missing message.
	codeChunkTooLarge   jetstream.ErrorCode = 10199
	codeChunkIncomplete jetstream.ErrorCode = 10176
	codeChunkUnknown    jetstream.ErrorCode = 10208

	headerExpected = jetstream.ExpectedLastSeqHeader
	// An atomic publish (NATS 2.12, ADR-50).
	headerBatch         = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"

	// The reply subject of a message of a fast batch says what it is: inbox, id, after how many
	// messages the server should report its progress, what a gap does, the place in
	// the batch, and what to do.
	fastMode   = ".500.fail."
	fastStart  = ".0.$FI"
	fastAppend = ".1.$FI"
	fastCommit = ".2.$FI"
)

// appender publishes at the end of a stream that has one writer. If a message of another writer comes
// in between, the server refuses the appender's next messages.
type appender struct {
	link
	writer   string        // distinguishes this appender from all others
	stream   stream        // as it was last looked up
	head     uint64        // every message up to this sequence is known to be on the stream
	most     int           // maximum messages of an atomic publish; lower if the server's limit is lower
	patience time.Duration // how long the server may take, see ackTimeout
	attempt  uint64        // distinguishes the acknowledgements of different chunks
	values   headerValues  // of the present chunk
}

// chunk has the messages of one publish.
type chunk struct {
	msgs  []*nats.Msg
	id    string
	reply string // of a chunk's own; of the messages of a fast batch it is the beginning
	fast  bool
}

// newChunk reuses the memory of the previous chunk.
func (a *appender) newChunk(msgs []*nats.Msg) *chunk {
	a.attempt++
	a.values.clear()
	id := a.writer + "-" + strconv.FormatUint(a.attempt, 36)
	return &chunk{msgs: msgs, id: id, reply: a.conn.inbox + "." + id}
}

// expect makes the server store the chunk only at the expected end of the stream, and writes its place into each message. A
// single message is atomic, and cheaper than a batch of one.
func (a *appender) expect(c *chunk, fast bool) {
	v := &a.values
	for i, m := range c.msgs {
		before := a.head + uint64(i)
		m.Header[headerPlace] = v.of(v.made(func(dst []byte) []byte { return a.stream.appendPlace(dst, before+1) }))
		if i == 0 || fast { // an atomic publish takes an expectation of the first message alone
			m.Header[headerExpected] = v.of(v.made(func(dst []byte) []byte { return strconv.AppendUint(dst, before, 10) }))
		} else {
			delete(m.Header, headerExpected)
		}
	}
	switch {
	case len(c.msgs) == 1:
		c.msgs[0].Reply = c.reply
	case fast:
		c.asFastBatch(v)
	default:
		c.asAtomic()
	}
}

// asFastBatch makes the chunk a fast batch that fails at a gap
// (NATS 2.14, ADR-50). The server stores the messages as they arrive. The first message that is
// refused or missing ends the batch, and no later message is stored.
func (c *chunk) asFastBatch(v *headerValues) {
	prefix := c.reply + fastMode
	for i, m := range c.msgs {
		op := fastAppend
		switch i {
		case 0:
			op = fastStart
		case len(c.msgs) - 1:
			op = fastCommit
		}
		m.Reply = v.made(func(dst []byte) []byte {
			return append(strconv.AppendInt(append(dst, prefix...), int64(i+1), 10), op...)
		})
	}
	c.fast = true
}

// asAtomic makes the chunk one that the server stores as a whole or not at all (NATS
// 2.12).
func (c *chunk) asAtomic() {
	for i, m := range c.msgs {
		m.Header[headerBatch] = []string{c.id}
		m.Header[headerBatchSequence] = []string{strconv.Itoa(i + 1)}
	}
	last := c.msgs[len(c.msgs)-1]
	last.Reply = c.reply
	last.Header[headerBatchCommit] = []string{"1"}
}

// knowsFastBatches reports whether the server supports fast batches. An older server refuses a stream that
// allows them.
func (c *conn) knowsFastBatches() bool {
	var major, minor int
	_, err := fmt.Sscanf(c.nc.ConnectedServerVersion(), "%d.%d", &major, &minor)
	return err == nil && (major > 2 || major == 2 && minor >= 14)
}

// appendChunk publishes a chunk and moves the head over it. After an error it is unknown how
// much of a fast batch is stored, or whether another chunk is stored.
func (a *appender) appendChunk(ctx context.Context, c *chunk) error {
	a.conn.forget()
	err := a.send(c)
	if err == nil {
		err = a.await(ctx, c)
	}
	var refused *jetstream.APIError
	switch {
	case err == nil:
		a.head += uint64(len(c.msgs))
	case errors.As(err, &refused) && refused.ErrorCode == codeChunkTooLarge:
		a.most = max(a.most/2, 1)
	}
	return err
}

func (a *appender) send(c *chunk) error {
	for _, m := range c.msgs {
		if err := a.conn.publish(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) publish(m *nats.Msg) error {
	err := c.nc.PublishMsg(m)
	if err == nil {
		return nil
	}
	if down := c.connected(); down != nil {
		return down
	}
	return fmt.Errorf("publish to %q: %w", m.Subject, err)
}

// await waits for the acknowledgement of a chunk.
func (a *appender) await(ctx context.Context, c *chunk) error {
	return a.collect(ctx, a.patience, nil, func(m *nats.Msg, cause error) (end bool, err error) {
		if m.Subject != c.reply && (!c.fast || !strings.HasPrefix(m.Subject, c.reply+".")) {
			return false, nil // of an earlier call
		}
		if end, err = a.checkAck(m, c); err != nil {
			err = cmp.Or(cause, err)
		}
		return end, err
	})
}

// collect passes answers to take until take reports the last one, and returns the error of take.
// Once there is a cause to give up, which it also passes to take, it waits at most lateAck longer.
func (l *link) collect(ctx context.Context, patience time.Duration, cause error, take func(m *nats.Msg, cause error) (end bool, err error)) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	fail := func(err error) {
		if err != nil && cause == nil {
			cause = err
			timeout.Reset(lateAck)
		}
	}
	if cause != nil {
		timeout.Reset(lateAck)
	}
	done := ctx.Done()
	for {
		select {
		case m := <-l.conn.acks:
			end, err := take(m, cause)
			if end {
				return err
			}
			fail(err)
			if cause == nil { // so far, so good
				timeout.Reset(patience)
			}
		case err := <-l.conn.events:
			fail(err)
			if !l.conn.nc.IsConnected() {
				return cause
			}
		case <-done:
			done = nil
			fail(ctx.Err())
		case <-timeout.C:
			return cmp.Or(cause, fmt.Errorf("stream %q on %s has not acknowledged what was published for %v", l.name, l.conn.address, patience))
		}
	}
}

// checkAck returns the error of a chunk, and with end whether the server
// has finished it: without an error, the whole chunk is then stored at its expected place.
func (a *appender) checkAck(m *nats.Msg, c *chunk) (end bool, _ error) {
	got, err := a.parseAck(m)
	if err != nil {
		return true, err
	}
	end = got.Type == ""
	missing := got.Type == "gap" || got.Error != nil && (got.Error.ErrorCode == codeChunkIncomplete || got.Error.ErrorCode == codeChunkUnknown)
	switch want := a.head + uint64(len(c.msgs)); {
	case missing && errors.Is(a.conn.nc.LastError(), nats.ErrPermissionViolation):
		return end, fmt.Errorf("publish to stream %q on %s: %w", a.name, a.conn.address, a.conn.nc.LastError())
	case got.Error != nil:
		return end, fmt.Errorf("publish to stream %q on %s: %w", a.name, a.conn.address, got.Error)
	case missing:
		return end, fmt.Errorf("publish to stream %q on %s: of %d messages one was lost on the way", a.name, a.conn.address, len(c.msgs))
	case !end:
		return false, nil
	case got.Stream != a.name:
		return true, fmt.Errorf("subject %q belongs to stream %q, not %q", c.msgs[0].Subject, got.Stream, a.name)
	case got.Sequence != want:
		return true, fmt.Errorf("stream %q stored a chunk up to sequence %d, want %d", a.name, got.Sequence, want)
	}
	return true, nil
}

// ack is what the server answers to a message.
type ack struct {
	Type      string              `json:"type"` // of what it says while a fast batch is under way
	Error     *jetstream.APIError `json:"error"`
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

func (l *link) parseAck(m *nats.Msg) (a ack, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return a, fmt.Errorf("stream %q on %s does not answer: it has no leader, is gone, or the account changes the subject (mappings)", l.name, l.conn.address)
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("acknowledgement of stream %q does not parse: %w", l.name, err)
	}
	return a, nil
}
