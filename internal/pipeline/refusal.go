package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Oversize says what becomes of an object's event that the bus does not take,
// because of its size or for another reason.
type Oversize string

const (
	// Truncate cuts its body down; so does the zero value. An event that is refused
	// even so holds the lane, as with Hold.
	Truncate Oversize = "truncate"
	// ToDeadLetters sends it to the dead letters; a deletion is cut down.
	ToDeadLetters Oversize = "dead-letter"
	// Hold stops the lane there until the bus takes it.
	Hold Oversize = "fail"
)

// refused deals with a record that the bus does not take: it replaces it by what
// the bus may take, or returns an error that lets the lane wait.
func (l *Lane) refused(ctx context.Context, b *batch, e *sink.RecordError) error {
	ev := *b.Records[e.Index].Event
	fresh := ev.DeadLetter == nil
	switch policy := l.shape.Oversize; {
	case e.Limit > 0 && (ev.Before != nil || ev.Patch != nil): // the body itself may fit
		ev.Before, ev.Patch, ev.Base = nil, nil, ""
	case ev.Type.OfCollection(), fresh && policy == Hold:
		return held(&ev, e)
	case fresh && policy == ToDeadLetters && ev.Type != event.Deleted:
		return l.bury(ctx, b, e)
	case ev.Object == nil:
		return held(&ev, e)
	case ev.Truncated != nil:
		ev.Object = nil
	default:
		if fresh {
			l.log.Warn("event truncated: its body does not fit the bus", zap.String("id", ev.ID()),
				zap.String("object", objectName(&ev)), zap.String("resource", ev.Collection.ResourceID()),
				zap.Int("bytes", e.Size), zap.Int("limit", e.Limit), zap.NamedError("because", e.Err))
			l.metrics.truncated.WithLabelValues(l.id.Sink, ev.Collection.ResourceID()).Inc()
		}
		truncate(&ev, e.Limit)
		if fresh {
			b.untoldBody(e.Index, 0)
		}
	}
	b.replace(e.Index, &ev)
	return nil
}

// held is the error of a lane that waits for the bus to take an event.
func held(ev *event.Event, e *sink.RecordError) error {
	what, size := "gap", ""
	if !ev.Type.OfCollection() {
		what = objectName(ev)
	}
	if e.Limit > 0 {
		size = fmt.Sprintf(" has %d bytes, the bus takes %d, and it", e.Size, e.Limit)
	}
	return fmt.Errorf("event %s (%s of %s %s)%s is refused: %w: nothing passes it: raise the limit on the bus, or restart with another `oversize` (truncate, dead-letter)",
		ev.ID(), ev.Type, ev.Collection.ResourceID(), what, size, e.Err)
}

func objectName(ev *event.Event) string {
	if ev.Namespace == "" {
		return ev.Name
	}
	return ev.Namespace + "/" + ev.Name
}

// bury sends an event to the dead letters. Of an object that it would have
// announced, the bus then knows nothing (design rule 5).
func (l *Lane) bury(ctx context.Context, b *batch, e *sink.RecordError) error {
	ev := *b.Records[e.Index].Event
	ev.DeadLetter = &event.DeadLetter{Reason: event.Rejected}
	if e.Limit > 0 {
		ev.DeadLetter = &event.DeadLetter{Reason: event.Oversize, Size: e.Size, Limit: e.Limit}
	}
	b.untoldBody(e.Index, b.of[e.Index].was)
	b.replace(e.Index, &ev)
	l.logDeadLetter(&ev, e.Err)
	if b.of[e.Index].announces == nil {
		return nil
	}
	intents := len(b.before)
	b.unannounce(e.Index)
	b.Commit.Changes = changes(b.moves)
	if l.intends() && len(b.before) > intents {
		return l.commit(ctx, changes(b.before[intents:]))
	}
	return nil
}

func (l *Lane) logDeadLetter(ev *event.Event, because error) {
	d := ev.DeadLetter
	l.log.Warn("event goes to the dead letters", zap.String("id", ev.ID()), zap.String("object", objectName(ev)),
		zap.String("resource", ev.Collection.ResourceID()), zap.String("reason", d.Reason),
		zap.Int("bytes", d.Size), zap.Int("limit", d.Limit), zap.NamedError("because", because))
}

// replace puts another event's record, which moves the same, in a record's place.
func (b *batch) replace(at int, ev *event.Event) {
	r := b.of[at].member.shaper.record(ev)
	r.State = b.Records[at].State
	b.Records[at] = r
}

// unheard is an object whose announcement went to the dead letters, while later
// events may have been enqueued as of one that the bus knows.
type unheard struct {
	key   []byte // in the inventory
	uid   string
	entry string // of the later event that announces it after all; "": none does yet
	over  bool   // what is enqueued from here on does not depend on it
}

// unannounce has the inventory know that the bus was not told of the object that
// the record was to announce, and corrects what stands behind it in the batch.
func (b *batch) unannounce(at int) {
	from, key := b.of[at].origin, b.of[at].announces
	i := slices.IndexFunc(b.moves, func(v move) bool { return v.origin == from && bytes.Equal(v.Key, key) })
	e, err := checkpoint.DecodeEntry(b.moves[i].Value)
	if err != nil {
		return // made by EncodeEntry: cannot be
	}
	b.of[at].announces = nil
	b.restate(at, i, untold(e))
	b.unheard = slices.DeleteFunc(b.unheard, func(u *unheard) bool { return u.uid == e.UID && bytes.Equal(u.key, key) })
	u := &unheard{key: key, uid: e.UID}
	u.correct(b, i+1)
	b.unheard = append(b.unheard, u)
}

// untold is the entry of an object whose announcement was not told. Its ids are
// the same when it is tried again.
func untold(e checkpoint.Entry) checkpoint.Entry {
	e.Told, e.Entry, e.Body = false, "", 0
	if e.Again > 0 {
		e.Again--
		e.Entry = event.Revision(e.RV, e.Again)
	}
	return e
}

// restate changes an entry that a batch moves, in the move and in its record's
// state; at is -1 when it has no record.
func (b *batch) restate(at, move int, e checkpoint.Entry) {
	kv := event.KV{Key: b.moves[move].Key, Value: checkpoint.EncodeEntry(e)}
	b.moves[move].KV = kv
	if at < 0 {
		return
	}
	r := &b.Records[at]
	r.State = slices.Clone(r.State)
	for i := range r.State {
		if bytes.Equal(r.State[i].Key, kv.Key) {
			r.State[i] = kv
		}
	}
}

// correct makes what a batch holds of the object, from a move on, what it would be
// had the fate of its announcement been known: the next change announces it, and an
// end that nobody awaits is taken out.
func (u *unheard) correct(b *batch, from int) {
	for i, end := from, len(b.moves); i < end && !u.over; i++ {
		v := b.moves[i]
		if !bytes.Equal(v.Key, u.key) {
			continue
		}
		at := slices.IndexFunc(b.of, func(o enqueued) bool { return o.origin == v.origin })
		var e checkpoint.Entry
		if v.Value != nil {
			var err error
			if e, err = checkpoint.DecodeEntry(v.Value); err != nil || e.UID != u.uid {
				u.over = true
				return
			}
		}
		if v.Value == nil || !e.Told { // the end
			u.over = true
			u.end(b, at, i)
			continue
		}
		if at >= 0 && u.entry == "" && b.Records[at].Event.DeadLetter == nil {
			u.announce(b, at, &e)
		}
		e.Told, e.Entry = u.entry != "", u.entry
		b.restate(at, i, e)
	}
}

// announce makes a record the one that announces the object.
func (u *unheard) announce(b *batch, at int, e *checkpoint.Entry) {
	ev := *b.Records[at].Event
	if ev.Type == event.Modified {
		ev.Type = event.Added
	}
	ev.Before, ev.Patch, ev.Base = nil, nil, ""
	u.entry = event.Revision(e.RV, e.Again)
	ev.Entry, e.Entry = u.entry, u.entry
	b.replace(at, &ev)
	b.of[at].announces = u.key
	b.intend(b.of[at].origin, intentKey(u.key, u.uid), checkpoint.EncodeEntry(*e))
}

// end deals with the end of the object, which the move says, and a record unless
// at is -1.
func (u *unheard) end(b *batch, at, move int) {
	switch {
	case at >= 0 && u.entry == "":
		b.silence(at)
	case at >= 0:
		ev := *b.Records[at].Event
		ev.Entry = u.entry
		b.replace(at, &ev)
	}
	if e, err := checkpoint.DecodeEntry(b.moves[move].Value); err == nil { // it only left the selection
		e.Entry = u.entry
		if u.entry == "" {
			at, e.Again = -1, 0
		}
		b.restate(at, move, e)
	}
}

// silence takes a record out; what it moves is moved without one, and told to a
// log's reader by the next one of its collection.
func (b *batch) silence(at int) {
	o := b.of[at].origin
	for i := range b.moves {
		if b.moves[i].origin == o {
			b.moves[i].record = quiet
		}
	}
	for i := at + 1; i < len(b.of); i++ {
		if b.of[i].member == o.member {
			b.Records[i].State = slices.Concat(b.Records[at].State, b.Records[i].State)
			break
		}
	}
	b.of = slices.Delete(b.of, at, at+1)
	b.Records = slices.Delete(b.Records, at, at+1)
}

// unheardOf corrects what was enqueued while the batch was written.
func (l *Lane) unheardOf(b *batch) {
	for _, u := range b.unheard {
		u.correct(l.current, 0)
		l.inv.restate(u.key, l.current.moves)
	}
	for _, key := range b.unread {
		l.current.strip(key, 0)
	}
}
