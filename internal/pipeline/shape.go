package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Shape is what a lane does to objects and where it sends their events.
type Shape struct {
	Encoder event.Encoder
	Secrets shape.Secrets
	// KeepManagedFields leaves metadata.managedFields in.
	KeepManagedFields bool
	// Topic or Subject is the route; neither: the sink has none.
	Topic   *shape.Template
	Subject *shape.Template
	// Oversize says what becomes of events that the bus does not take.
	Oversize Oversize
	// DeadLetters is the route of dead letters, beside Topic or Subject. It is
	// required for [ToDeadLetters], and nil otherwise.
	DeadLetters *shape.Template
}

// Digest changes with what the bus is told of an unchanged object (design
// rule 9). It tells the key's identity, not the key.
func (s Shape) Digest() string {
	key := "none"
	if len(s.Secrets.Key) > 0 {
		sum := sha256.Sum256(append([]byte("kubebridge key id\n"), s.Secrets.Key...))
		key = hex.EncodeToString(sum[:4])
	}
	format := "1"
	if f := s.Encoder.Format; f != event.Structured {
		format += "/" + f.String()
	}
	return fmt.Sprintf("format=%s secrets=%s key=%s managedFields=%t", format, s.Secrets.Mode(), key, s.KeepManagedFields)
}

// record encodes and routes an event, in memory of its own.
func (s *Shape) record(ev *event.Event) event.Record {
	r := s.of(ev.Collection).header(ev, nil, new(event.Text))
	r.Value = r.Format.Append(make([]byte, 0, len(ev.Object)+len(ev.Before)+len(ev.Patch)+len(ev.ChangedBy)+envelopeBytes), r.Attributes, ev)
	return r
}

// envelopeBytes is what a record's value usually has beside the object, at most.
const envelopeBytes = 1024

// shaper makes records of one collection's events. What they share is made once.
type shaper struct {
	*Shape
	encoder event.CollectionEncoder
	values  shape.Values // but for namespace and name
	topic   string       // "" where routes are none
}

func (s *Shape) of(c *event.Collection) *shaper {
	h := &shaper{
		Shape: s, encoder: s.Encoder.Of(c),
		values: shape.Values{Cluster: s.Encoder.Cluster, Group: c.Group, Resource: c.Resource},
	}
	if s.Topic != nil {
		h.topic = s.Topic.Topic(h.values)
	}
	return h
}

// header is a record without its value. Its attributes are appended to room.
func (s *shaper) header(ev *event.Event, room []event.Attribute, text *event.Text) event.Record {
	var buffer [512]byte
	v := s.values
	v.Namespace, v.Name = ev.Namespace, ev.Name
	r := event.Record{Event: ev, Route: s.topic, Format: s.Encoder.Format}
	switch {
	case s.Topic != nil || s.Subject == nil:
	case ev.Type.OfCollection():
		r.Route = s.Subject.CollectionSubject(v, ev.Type)
	default:
		r.Route = text.Of(s.Subject.AppendSubject(buffer[:0], v))
	}
	if d := ev.DeadLetter; d != nil {
		d.Route, r.Route = r.Route, s.deadRoute(v)
	}
	r.Attributes = s.encoder.AppendAttributes(room, ev, text)
	r.ID = r.Attributes[1].Value
	if ev.Type.OfCollection() {
		r.Broadcast = true
	} else {
		r.Key = text.Of(shape.AppendKey(buffer[:0], v))
	}
	return r
}

// body appends an object as it leaves.
func (s *shaper) body(dst []byte, o *source.Object) []byte {
	if s.KeepManagedFields {
		return append(dst, o.Raw...)
	}
	return o.AppendWithoutManagedFields(dst)
}

func (s *Shape) deadRoute(v shape.Values) string {
	if s.Subject != nil {
		return s.DeadLetters.Subject(v)
	}
	return s.DeadLetters.Topic(v)
}

// encode encodes an event of a member into the current batch's memory, with the body
// of o, nil if it is not known. One that has been made is the event's Object, or
// not to be seen.
func (l *Lane) encode(m *member, ev *event.Event, o *source.Object) event.Record {
	if m.shaper == nil {
		m.shaper = l.shape.of(&m.target.Collection)
	}
	b := l.current
	format := l.shape.Encoder.Format
	var r event.Record
	header := func() {
		r = m.shaper.header(ev, b.attributes.room(event.MaxAttributes, smallChunk, largeChunk), &l.text)
		b.attributes.keep(len(r.Attributes))
	}
	if format == event.Structured { // of which they are part
		header()
	}
	size := envelopeBytes + len(ev.Object) + len(ev.Before) + len(ev.Patch) + len(ev.ChangedBy)
	if o != nil && !m.makes() {
		size += len(o.Raw)
	}
	room := b.room(size)
	value := format.AppendWithBody(room, r.Attributes, ev, func(dst []byte) []byte {
		if o == nil || m.makes() {
			return append(dst, ev.Object...)
		}
		return m.shaper.body(dst, o)
	})
	if format != event.Structured { // where they may tell of the body
		header()
	}
	r.Value = b.keep(room, value)
	return r
}

// withhold deals with an event whose body could not be redacted: it goes without
// one, and to the dead letters where there are any, but for a deletion.
func (l *Lane) withhold(m *member, ev *event.Event, because error) {
	ev.Collection, ev.Epoch = &m.target.Collection, m.position.Epoch // of its id
	if l.shape.Oversize == ToDeadLetters && ev.Type != event.Deleted {
		ev.DeadLetter = &event.DeadLetter{Reason: event.Unredacted}
		l.logDeadLetter(ev, because)
		return
	}
	l.log.Error("body withheld: it could not be redacted", zap.String("id", ev.ID()), zap.Error(because))
	l.metrics.unredacted.WithLabelValues(l.id.Sink, m.resource).Inc()
}

// truncate replaces an event's body by its head, with the size and digest of
// what was left out.
func truncate(ev *event.Event, limit int) {
	sum := sha256.Sum256(ev.Object)
	ev.Truncated = &event.Truncation{Size: len(ev.Object), SHA256: hex.EncodeToString(sum[:]), Limit: limit}
	head, err := shape.AppendHead(nil, ev.Object)
	if err != nil {
		head = nil // the identity is left
	}
	ev.Object = head
}
