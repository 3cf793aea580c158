package nats

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// window and windowBytes bound what is under way at once. The server answers 429
	// past 128 MB of all clients together.
	window      = 256
	windowBytes = 8 << 20

	headerMsgID = jetstream.MsgIDHeader
)

// Shared is a [sink.Sink] for a stream that others write to as well: at least once.
//
// Messages are sent in parallel, but only one at a time per subject, and a
// collection event only while no other message is being sent. So no message on a subject overtakes another one, even
// after failures and retries. After a failure no message is sent until all
// answers have arrived or are overdue. Then all messages without an answer are sent again, with the same
// Nats-Msg-Id. There is no fence: two bridges with one name both write.
//
// The server drops a message whose Nats-Msg-Id it has seen within its duplicate window,
// and acknowledges it as a duplicate of the message with that sequence. Two rules keep
// it from dropping messages that are no repeats:
//
//   - The id is made from everything that distinguishes a message from others, see [round.messageID].
//   - A duplicate of a message that cannot have been in doubt is sent again, under
//     an id of its own, see [round.repeats].
type Shared struct {
	link
	writer string // distinguishes this Shared's collection events from all others

	stream stream
	last   uint64 // the highest sequence acknowledged
	own    uint64 // the last sequence that this Shared has written
	// What a predecessor may have sent in vain, and this Shared repeats, has sequences
	// above committed and up to opened.
	committed, opened uint64
	look              bool   // whether the stream must be looked up before anything is sent
	lost              string // what the stream lost: the pipeline hears of it at the next Write
	suspect           bool   // its settings may have removed messages since it was accepted
	attempt           uint64

	seq     uint64
	begun   uint64              // what last was before batch seq
	written map[sink.Place]bool // of batch seq; nil: nothing
	acked   []bool              // the records of this Write
	careful bool                // one at a time, to find the route that is denied
}

var _ sink.Sink = (*Shared)(nil)

// Open connects and finds or creates the stream.
func (s *Shared) Open(ctx context.Context, recorded []byte) error {
	s.disconnect()
	s.seq, s.written, s.lost = 0, nil, ""
	err := s.start(ctx)
	if err == nil {
		s.stream, err = s.find(ctx)
	}
	if err != nil {
		s.disconnect()
		return err
	}
	s.own, s.suspect = 0, false
	if m, err := decodeMark(recorded); err == nil {
		s.compare(m.created, m.seq)
		if m.created == s.stream.created {
			s.committed = m.seq
		}
	}
	s.last, s.look = s.stream.state.LastSeq, false
	s.opened = s.last
	s.log.Info("stream opened", zap.String("server", s.conn.address), zap.String("stream", s.name),
		zap.String("delivery", atLeastOnce))
	return nil
}

// find looks for the stream that takes the pipeline's subjects, and creates it when there
// is none.
func (s *Shared) find(ctx context.Context) (found stream, err error) {
	if err := s.choose(ctx); err != nil {
		return stream{}, err
	}
	if found, err = s.lookUp(ctx); errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.create(ctx, s.subjects, nil)
	}
	if err == nil {
		err = s.inspect(found.config)
		s.suspect = s.suspect || err != nil
	}
	if err == nil {
		err = s.accept(found.config)
	}
	return found, err
}

// accept refuses a stream that belongs to one pipeline, or does not have the subjects.
func (s *Shared) accept(c jetstream.StreamConfig) error {
	if owner := c.Metadata[metaBridge]; owner != "" {
		return s.refuse(fmt.Errorf("it belongs to bridge %q (cluster %s, sink %q) alone, which this one would fence",
			owner, c.Metadata[metaClusterUID], c.Metadata[metaSink]), "set nats.stream.name and nats.subject to others")
	}
	if missing := uncovered(s.subjects, c.Subjects); len(missing) > 0 {
		return fmt.Errorf("stream %q has the subjects %s: add %s to them",
			s.name, strings.Join(c.Subjects, ", "), strings.Join(missing, ", "))
	}
	return nil
}

// compare records a loss if the stream is not the one that was written to, or has lost its
// end.
func (s *Shared) compare(created int64, last uint64) {
	switch {
	case s.stream.created != created:
		s.lost = fmt.Sprintf("it was created at %s, the one written to at %s", utc(s.stream.created), utc(created))
	case s.stream.state.LastSeq < last:
		s.lost = fmt.Sprintf("it ends at sequence %d, and %d was acknowledged", s.stream.state.LastSeq, last)
	}
}

// Write publishes the batch until every record is acknowledged. See [sink.Sink].
func (s *Shared) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if b.Seq != s.seq {
		s.seq, s.written, s.careful = b.Seq, nil, false
		s.begun = s.last
	}
	places := sink.Places(b.Records)
	s.acked = make([]bool, len(places))
	for i, p := range places {
		s.acked[i] = s.written[p]
	}
	err := s.round(ctx, b.Records, places)
	s.written = make(map[sink.Place]bool, len(places))
	for i, p := range places {
		s.written[p] = s.acked[i]
	}
	if err != nil {
		return nil, err
	}
	return mark{s.stream.created, s.last, "-"}.encode(), nil
}

// Check returns why nothing can be written now. It looks at the stream as often as Write does.
func (s *Shared) Check(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.conn.connected()
}

// ready connects again if the client has given up, looks the stream up if it may have changed, and
// reports a loss to the pipeline.
func (s *Shared) ready(ctx context.Context) error {
	if err := s.renew(); err != nil {
		return err
	}
	if s.look || s.lookDue(&s.stream) {
		before := s.stream
		found, err := s.find(ctx)
		if err != nil {
			return temporary(err)
		}
		found.own = before.ownAt(s.own)
		s.stream, s.look = found, false
		if s.compare(before.created, s.last); s.lost == "" {
			s.lost = before.loss(&found, s.suspect, s.largest())
		}
		s.suspect = false
	}
	if s.lost == "" {
		return nil
	}
	err := fmt.Errorf("%w: stream %q on %s: %s", sink.ErrReset, s.name, s.conn.address, s.lost)
	s.lost, s.last, s.own, s.stream.own = "", s.stream.state.LastSeq, 0, kept{}
	s.committed, s.opened = 0, 0 // after a reset nothing is repeated
	return err
}

// round is one attempt to publish the rest of a batch.
type round struct {
	*Shared
	records []event.Record
	places  []sink.Place // of the records
	fresh   []bool       // the records that the server has taken for older messages
	prefix  string       // of the replies
	before  uint64       // the last sequence that was acknowledged before it
	flight  map[string]int
	bytes   int
	alone   bool // a collection's own event is under way
	next    int  // the first record that is not sent yet
}

func (s *Shared) round(ctx context.Context, records []event.Record, places []sink.Place) error {
	s.attempt++
	s.conn.forget()
	r := &round{
		Shared: s, records: records, places: places, fresh: make([]bool, len(records)), before: s.last,
		prefix: s.conn.inbox + "." + strconv.FormatUint(s.attempt, 36) + ".", flight: map[string]int{},
	}
	err := r.fill()
	if len(r.flight) > 0 {
		err = s.collect(ctx, ackTimeout, err, func(m *nats.Msg, cause error) (end bool, _ error) {
			index, ours := strings.CutPrefix(m.Subject, r.prefix)
			if !ours {
				return false, nil
			}
			err := cmp.Or(cause, r.acknowledged(index, m, cause != nil))
			if err == nil {
				err = r.fill()
			}
			return len(r.flight) == 0, err
		})
	}
	return r.end(err)
}

// fill sends as many of the next records as there is room for.
func (r *round) fill() error {
	for ; r.next < len(r.records); r.next++ {
		if r.acked[r.next] {
			continue
		}
		if !r.room(&r.records[r.next]) {
			return nil
		}
		if err := r.send(r.next); err != nil {
			return err
		}
	}
	return nil
}

// room reports whether a record may be sent together with the messages without an answer.
func (r *round) room(record *event.Record) bool {
	_, busy := r.flight[record.Route]
	switch {
	case len(r.flight) == 0:
		return true
	case busy, r.alone, record.Broadcast, r.careful:
		return false
	}
	return len(r.flight) < window && r.bytes < windowBytes
}

func (r *round) send(index int) error {
	record := &r.records[index]
	if err := r.stream.outside(index, record); err != nil {
		return err
	}
	m := r.names.compose(record)
	m.Header[headerMsgID] = []string{r.messageID(index)}
	size, wrong := r.checkMessage(m, record, int(r.stream.config.MaxMsgSize))
	if wrong != nil {
		wrong.Index = index
		return wrong
	}
	m.Reply = r.prefix + strconv.Itoa(index)
	if err := r.conn.publish(m); err != nil {
		return err
	}
	r.flight[record.Route] = index
	r.alone = record.Broadcast
	r.bytes += size
	return nil
}

// messageID returns the Nats-Msg-Id of a message: the digest of everything that
// distinguishes it from other messages. It is the same when the message is sent again, even after a
// restart. It does not include the body, because a repeat may have more or less data about the
// same change (its time, origin, patch).
//
// A collection event may come again with the same event id, and so may an
// event within a batch, or an event that the server took for an older message. The id of such a
// message includes the writer and the batch, so that only this writer repeats it.
func (r *round) messageID(index int) string {
	record, place := &r.records[index], r.places[index]
	collection := ""
	for _, a := range record.Attributes {
		if a.Name == "collection" {
			collection = a.Value
		}
	}
	parts := []string{
		r.id.Bridge, r.id.ClusterUID, r.id.Sink, collection, record.ID,
		record.Route, strconv.Itoa(int(record.Format)), form(record.Event),
	}
	if record.Broadcast || place.Nth > 0 || r.fresh[index] {
		parts = append(parts, r.writer, strconv.FormatUint(r.seq, 10), strconv.Itoa(place.Nth))
	}
	sum := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part) // it never fails
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// form distinguishes the messages that one event can become. A deletion with and without a body has
// the same form, because the body may be unknown when the deletion is repeated.
func form(e *event.Event) string {
	switch {
	case e == nil, e.Type.IsBroadcast():
		return ""
	case e.DeadLetter != nil:
		return "dead letter: " + e.DeadLetter.Reason
	case e.Type == event.Deleted:
		return ""
	case e.Object == nil:
		return "no body"
	case e.Truncated != nil:
		return "truncated"
	}
	return "whole"
}

// repeats reports whether a message that the server has dropped, as a duplicate of the
// one with that sequence, is a repeat of it: that one is of this batch, or of a
// predecessor and was not committed. Anything older was acknowledged and committed; an
// event that comes again after that is another message.
func (r *round) repeats(sequence uint64) bool {
	return sequence > r.begun || r.committed < sequence && sequence <= r.opened
}

// acknowledged records an answer. failed: the round is ending, and no more messages are sent.
func (r *round) acknowledged(index string, m *nats.Msg, failed bool) error {
	i, err := strconv.Atoi(index)
	if err != nil || i >= len(r.records) {
		return fmt.Errorf("an acknowledgement for record %q of %d", index, len(r.records))
	}
	record := &r.records[i]
	delete(r.flight, record.Route)
	r.bytes = max(0, r.bytes-len(record.Value))
	r.alone = false
	if len(r.flight) == 0 {
		r.bytes = 0
	}
	ack, err := r.parseAck(m)
	switch {
	case err != nil:
		return err
	case ack.Error != nil:
		return fmt.Errorf("publish to stream %q on %s: %w", r.name, r.conn.address, ack.Error)
	case ack.Stream != r.name:
		return fmt.Errorf("subject %q belongs to stream %q, not %q", record.Route, ack.Stream, r.name)
	case !ack.Duplicate && ack.Sequence <= r.before: // while nothing was under way
		r.lost = fmt.Sprintf("it stored a message as sequence %d, and %d was acknowledged", ack.Sequence, r.before)
		return fmt.Errorf("stream %q on %s: %s: a reset is due", r.name, r.conn.address, r.lost)
	case ack.Duplicate && !r.repeats(ack.Sequence):
		if failed { // the next round finds it out again
			return nil
		}
		r.fresh[i] = true
		return r.send(i)
	}
	r.acked[i] = true
	r.last = max(r.last, ack.Sequence)
	if !ack.Duplicate {
		r.own = max(r.own, ack.Sequence)
	}
	return nil
}

// end returns the result of the round once no more answers are expected.
func (r *round) end(cause error) error {
	var (
		poison *sink.RecordError
		route  *sink.RouteError
	)
	switch {
	case cause == nil:
		return nil
	case errors.As(cause, &route):
		r.look = true // the stream may have the subject when this is tried again
		clear(r.acked[route.Index:])
		return cause
	case errors.As(cause, &poison):
		r.look = poison.Limit > 0 // the stream may take more when this is tried again
		return cause
	case !errors.Is(cause, nats.ErrPermissionViolation):
		r.look = true // the stream may have lost something, or takes other sizes now
		return cause
	}
	if !r.careful {
		r.careful = true // the next round finds out which it was
		return cause
	}
	index := slices.Index(r.acked, false)
	if index < 0 {
		return nil
	}
	clear(r.acked[index:]) // the pipeline may take records out
	return &sink.RouteError{Index: index, Route: r.records[index].Route, Err: cause}
}
