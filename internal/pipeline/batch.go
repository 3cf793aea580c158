package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// batch is an event.Batch while it fills.
//
// It owns the memory of its records: their values, events, attributes and state, and
// the keys and values of its moves. The sink and the store have it until they return,
// whoever listens to deliveries until he returns. Once it is committed, another batch
// is made in it, unless the sink failed meanwhile. Strings are the collector's.
type batch struct {
	event.Batch
	intends bool       // see Lane.intends
	spoilt  bool       // the sink failed with it: its memory is not used again
	of      []enqueued // Records
	moves   []move     // of the checkpoint; Commit, once it is dispatched
	// before is what a store that is not one with the sink must know before the
	// sink does: intents, and positions that become void (design rules 1 and 2).
	before    []move
	bytes     int   // of Records' values
	held      int64 // of the frame budget
	numbered  int   // records that joined, also those that were taken out
	suspended []suspension
	unheard   []*unheard // in the order of their dead letters
	unread    [][]byte   // inventory keys of objects whose last body the bus did not get

	memory     slab[byte]
	events     slab[event.Event]
	attributes slab[event.Attribute]
	states     slab[event.KV]
}

// enqueued is what a batch knows of a record.
type enqueued struct {
	origin
	announces []byte // the inventory key of the object that it announces; nil: of none
	key       []byte // the inventory key of its object, where bodies are kept
	was       uint64 // Body of that entry before it
}

// origin is where a record or a move comes from: the member, nil for the lane, and
// the record's number in its batch, which stays when others are taken out; or one
// of those below.
type origin struct {
	member *member
	record int
}

// stateRoom is how many changes a record usually states at most: of an entry, of an
// intent, of the position.
const stateRoom = 3

// entryBytes and positionBytes are what an encoded one usually has at most.
const (
	entryBytes    = 96
	positionBytes = 32
)

// unsaidBytes bounds what a record tells of beside its own: a message's headers
// hold 64 KiB.
const unsaidBytes = 8 << 10

const (
	quiet    = -1 // a move without a record
	position = -2 // how far a member's signals were handled
)

// move is a change of the checkpoint.
type move struct {
	origin
	event.KV
}

func newBatch(seq uint64) *batch { return &batch{Batch: event.Batch{Seq: seq}} }

// fresh returns an empty batch.
func (l *Lane) fresh(seq uint64) *batch {
	b := l.spare
	if l.spare = nil; b == nil {
		b = newBatch(seq)
	}
	b.Seq, b.intends = seq, l.intends()
	return b
}

// retire keeps the memory of a committed batch for another one.
func (l *Lane) retire(b *batch) {
	if b.spoilt {
		return
	}
	clear(b.Records) // what is left in it must not hold a collection that was closed
	clear(b.of[:cap(b.of)])
	clear(b.moves)
	clear(b.before)
	for _, c := range b.events.chunks {
		clear(c)
	}
	b.memory.reset(largestChunk)
	b.events.reset(largeChunk)
	b.attributes.reset(largeChunk)
	b.states.reset(largeChunk)
	l.spare = &batch{
		Batch: event.Batch{Records: b.Records[:0], Commit: event.Commit{Changes: b.Commit.Changes[:0]}},
		of:    b.of[:0], moves: b.moves[:0], before: b.before[:0],
		memory: b.memory, events: b.events, attributes: b.attributes, states: b.states,
	}
}

// release gives up the memory that an idle lane keeps.
func (l *Lane) release() {
	if l.writing || !l.idle() || l.spare == nil {
		return
	}
	l.spare = nil
	l.current = l.fresh(l.current.Seq)
}

func (b *batch) full() bool {
	return len(b.Records) >= batchRecords || b.bytes >= batchBytes || len(b.moves) >= batchChanges
}

func (b *batch) move(from origin, kvs ...event.KV) {
	for _, kv := range kvs {
		b.moves = append(b.moves, move{from, kv})
	}
}

// intend has a store that is not one with the sink know, from before the batch is
// written until it is committed, what is perhaps told of an object (ADR 1).
func (b *batch) intend(from origin, key, value []byte) {
	if !b.intends {
		return
	}
	b.before = append(b.before, move{from, event.KV{Key: key, Value: value}})
	b.move(from, event.KV{Key: key})
}

// unrecorded are the changes that no record tells of, without those that a record
// overtakes.
func (b *batch) unrecorded() []event.KV {
	last := make(map[string]int, len(b.moves))
	for i, v := range b.moves {
		last[string(v.Key)] = i
	}
	var kvs []event.KV
	for i, v := range b.moves {
		if v.record == quiet && last[string(v.Key)] == i {
			kvs = append(kvs, v.KV)
		}
	}
	return kvs
}

// drop takes out what is of a member and not of a record before that one.
func (b *batch) drop(m *member, from int) {
	goes := func(o origin) bool { return o.member == m && (o.record < 0 || o.record >= from) }
	kept := 0
	for i, o := range b.of {
		if !goes(o.origin) {
			b.of[kept], b.Records[kept] = o, b.Records[i]
			kept++
		}
	}
	clear(b.Records[kept:])
	b.of, b.Records = b.of[:kept], b.Records[:kept]
	b.moves = slices.DeleteFunc(b.moves, func(v move) bool { return goes(v.origin) })
	b.before = slices.DeleteFunc(b.before, func(v move) bool { return goes(v.origin) })
}

func changes(moves []move) []event.KV { return appendChanges(make([]event.KV, 0, len(moves)), moves) }

func appendChanges(kvs []event.KV, moves []move) []event.KV {
	for _, v := range moves {
		kvs = append(kvs, v.KV)
	}
	return kvs
}

// smallestChunk and largestChunk bound the memory that values share, in bytes.
const (
	smallestChunk = 1 << 10 // a lone event's batch is small
	largestChunk  = 256 << 10
)

// room returns memory for a value of n bytes.
func (b *batch) room(n int) []byte { return b.memory.room(n, smallestChunk, largestChunk) }

// keep returns a value that was appended to what room returned last.
func (b *batch) keep(room, value []byte) []byte {
	if cap(value) == cap(room) { // it did not outgrow it
		b.memory.keep(len(value))
	}
	return value[:len(value):len(value)] // what is behind is another's
}

// emit encodes an event without a body into the current batch, with what it moves
// in the inventory. The caller has made room.
func (l *Lane) emit(m *member, ev *event.Event, moved []event.KV) { l.emitObject(m, ev, nil, moved) }

// emitObject is emit for an event with the body of o, if it is not nil. What is beside
// is moved with it and not part of the record's state.
func (l *Lane) emitObject(m *member, ev *event.Event, o *source.Object, moved []event.KV, beside ...event.KV) {
	ev.Collection, ev.Epoch = &m.target.Collection, m.position.Epoch
	b := l.current
	r := l.encode(m, ev, o)
	r.State = moved
	l.begins()
	from := origin{m, b.numbered}
	b.numbered++
	b.move(from, moved...)
	b.move(from, beside...)
	// What was moved without a record is committed with its batch. A record of that
	// batch tells a log's reader of it too, or must not let it resume behind it.
	if m.quiet == b.Seq && size(m.unsaid) <= unsaidBytes {
		r.State = slices.Concat(m.unsaid, r.State)
		m.quiet, m.unsaid = 0, nil
	}
	if m.stated != m.position && (m.position.Void || m.quiet != b.Seq) {
		m.stated = m.position
		room := b.room(positionBytes)
		r.State = append(r.State, event.KV{Key: m.at, Value: b.keep(room, checkpoint.AppendPosition(room, m.position))})
	}
	switch {
	case !b.intends:
	case ev.Type == event.Added, ev.Type == event.Present, ev.Type == event.Modified && m.lens.ignore != nil:
		b.intend(from, checkpoint.IntentKey(m.resource, ev.Namespace, ev.Name, ev.UID), moved[0].Value)
	case ev.Type == event.Gap && m.position.Void:
		b.before = append(b.before, move{from, event.KV{
			Key: m.at, Value: checkpoint.EncodePosition(m.position),
		}})
	}
	b.Records, b.of = append(b.Records, r), append(b.of, enqueued{origin: from})
	b.bytes += len(r.Value)
	l.emitted++
}

// begins notes the time when something is about to join an idle lane.
func (l *Lane) begins() {
	if l.idle() {
		l.since = time.Now()
	}
}

// idle reports whether there is nothing to write or commit.
func (l *Lane) idle() bool {
	return len(l.current.Records) == 0 && len(l.moved) == 0 && len(l.current.moves) == 0
}

// quietly enqueues changes of the checkpoint that the bus is not told of, for a
// member, or nil for the lane. The caller has made room.
func (l *Lane) quietly(m *member, changes ...event.KV) {
	l.begins()
	l.current.move(origin{m, quiet}, changes...)
	if m == nil {
		return
	}
	if m.quiet != l.current.Seq {
		m.quiet, m.unsaid = l.current.Seq, nil
	}
	m.unsaid = append(m.unsaid, changes...)
}

func zapCount(n int) zap.Field { return zap.Int("objects", n) }

func size(kvs []event.KV) (n int) {
	for _, kv := range kvs {
		n += len(kv.Key) + len(kv.Value)
	}
	return n
}

var errBatchFailed = errors.New("the batch before failed")

// room waits until the current batch takes another record.
func (l *Lane) room(ctx context.Context) error {
	for l.current.full() {
		l.dispatch(ctx)
		if !l.current.full() { // many batches may follow each other without a wait
			l.answerPing()
			return nil
		}
		select {
		case r := <-l.written:
			if r.err != nil {
				l.written <- r // Run's loop deals with it
				return errBatchFailed
			}
			l.committed(r)
		case l.pings <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// wait is how long the current batch should still wait for company.
func (l *Lane) wait() time.Duration {
	if l.current.full() || l.stopping {
		return 0
	}
	delay := l.linger
	if len(l.current.Records) == 0 {
		delay = silentDelay
	}
	return delay - time.Since(l.since)
}

// due fires when the current batch has waited long enough; nil when there is
// nothing to wait for.
func (l *Lane) due() <-chan time.Time {
	if l.writing || l.idle() {
		return nil
	}
	return time.After(l.wait())
}

func zapReason(reason string) zap.Field { return zap.String("reason", reason) }

func zapDetail(detail string) zap.Field {
	if detail == "" {
		return zap.Skip()
	}
	return zap.String("detail", detail)
}

func zapRV(key, rv string) zap.Field {
	if rv == "" {
		return zap.Skip()
	}
	return zap.String(key, rv)
}

func zapPosition(p event.Position) zap.Field {
	switch {
	case p.Resumable():
		return zap.String("resumes", p.RV)
	case p.Void:
		return zap.String("resumes", "with a list: the last one did not come to its end")
	default:
		return zap.String("resumes", "with a first list")
	}
}

func zapCounts(c event.Counts) zap.Field {
	return zap.Any("counts", c)
}
