package pipeline

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

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
	// Route is where events go whose collection has no other: by Topic or Subject;
	// neither: the sink has no routes.
	Route
	// Oversize says what becomes of events that the bus does not take.
	Oversize Oversize
	// DeadLetters is the route of dead letters, beside Topic or Subject. It is
	// required for [ToDeadLetters], and nil otherwise.
	DeadLetters *shape.Template
	// Tombstones: topics are compacted, and an incarnation ends with a null value for each key.
	Tombstones bool
	// Keys name the resources whose key is not the lane's, with its template. They
	// are for the digest alone.
	Keys []string
}

// Route says where events go, and with what.
type Route struct {
	Topic   *shape.Template
	Subject *shape.Template
	Key     *shape.Template // nil: [shape.DefaultKey]
	Headers shape.Headers
}

// or is the route where r leaves it to another's.
func (r Route) or(other Route) Route {
	return Route{
		Topic: cmp.Or(r.Topic, other.Topic), Subject: cmp.Or(r.Subject, other.Subject), Key: cmp.Or(r.Key, other.Key),
		Headers: other.Headers.With(r.Headers),
	}
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
	digest := fmt.Sprintf("format=%s secrets=%s key=%s managedFields=%t", format, s.Secrets.Mode(), key, s.KeepManagedFields)
	// With another key objects move to other partitions, and their last state stays in
	// the one they were in.
	if s.Key != nil && s.Key.String() != shape.DefaultKey {
		digest += " route=" + s.Key.String()
	}
	if len(s.Keys) > 0 {
		digest += " routes=" + strings.Join(s.Keys, ",")
	}
	return digest
}

// envelopeBytes is what a record's value usually has beside the object, at most.
const envelopeBytes = 1024

// place is where a member's own route leads, "" if it has none.
func (s *Shape) place(m *member) string {
	c := &m.target.Collection
	switch own := m.options.Route; {
	case own.Topic != nil:
		return own.Topic.Topic(shape.Values{Cluster: s.Encoder.Cluster, Group: c.Group, Resource: c.Resource})
	case own.Subject != nil:
		return own.Subject.String()
	}
	return ""
}

// shaper makes records of one collection's events. What they share is made once.
type shaper struct {
	*Shape
	route   Route
	encoder event.CollectionEncoder
	values  shape.Values // of the collection
	topic   string       // "" where routes are no topics
}

// of returns a shaper for a collection, which goes the lane's way but for its own.
func (s *Shape) of(c *event.Collection, own Route) *shaper {
	h := &shaper{
		Shape: s, route: own.or(s.Route), encoder: s.Encoder.Of(c),
		values: shape.Values{Cluster: s.Encoder.Cluster, Group: c.Group, Resource: c.Resource},
	}
	if h.route.Key == nil {
		h.route.Key, _ = shape.ParseTemplate(shape.DefaultKey, shape.KeyNames) // which it is
	}
	if h.route.Topic != nil {
		h.topic = h.route.Topic.Topic(h.values)
	}
	return h
}

// record encodes and routes an event, in memory of its own.
func (s *shaper) record(ev *event.Event) event.Record {
	text := new(event.Text)
	r := s.header(ev, nil, text)
	r.Value = r.Format.Append(make([]byte, 0, len(ev.Object)+len(ev.Before)+len(ev.Patch)+len(ev.ChangedBy)+envelopeBytes), r.Attributes, ev)
	if s.route.Headers.Len() > 0 {
		r.Headers = s.headers(ev, nil, text)
	}
	return r
}

// of an event, beside what its collection has.
func (s *shaper) valuesOf(ev *event.Event) shape.Values {
	v := s.values
	v.Kind, v.Namespace, v.Name, v.UID, v.Type = ev.Kind, ev.Namespace, ev.Name, ev.UID, ev.Type.String()
	return v
}

// header is a record without its value, and without other headers than the attributes,
// which are appended to room.
func (s *shaper) header(ev *event.Event, room []event.Attribute, text *event.Text) event.Record {
	var buffer [512]byte
	v := s.valuesOf(ev)
	r := event.Record{Event: ev, Route: s.topic, Format: s.Encoder.Format}
	switch subject := s.route.Subject; {
	case s.route.Topic != nil || subject == nil:
	case ev.Type.OfCollection():
		r.Route = subject.CollectionSubject(v, ev.Type)
	default:
		r.Route = text.Of(subject.AppendSubject(buffer[:0], v))
	}
	if d := ev.DeadLetter; d != nil {
		d.Route, r.Route = r.Route, s.deadRoute(v)
	}
	r.Attributes = s.encoder.AppendAttributes(room, ev, text)
	r.ID = r.Attributes[1].Value
	if ev.Type.OfCollection() {
		r.Broadcast = true
	} else {
		r.Key = text.Of(s.route.Key.AppendKey(buffer[:0], v))
	}
	return r
}

// headers appends what the configuration adds to an event's attributes. The event has
// its body.
func (s *shaper) headers(ev *event.Event, room []event.Attribute, text *event.Text) []event.Attribute {
	v := s.valuesOf(ev)
	v.Version = ev.APIVersion[strings.IndexByte(ev.APIVersion, '/')+1:]
	if ev.Type.OfCollection() {
		v.Namespace = ev.Collection.Namespace
	}
	return s.route.Headers.Append(room, v, ev.Object, text)
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
		m.shaper = l.shape.of(&m.target.Collection, m.options.Route)
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
	if n := m.shaper.route.Headers.Len(); n > 0 {
		r.Headers = m.shaper.headers(ev, b.attributes.room(n, smallChunk, largeChunk)[:0], &l.text)
		b.attributes.keep(len(r.Headers))
	}
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
