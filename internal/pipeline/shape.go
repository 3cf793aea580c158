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
	return fmt.Sprintf("format=1 secrets=%s key=%s managedFields=%t", s.Secrets.Mode(), key, s.KeepManagedFields)
}

// record encodes and routes an event.
func (s Shape) record(ev *event.Event) event.Record {
	r := s.header(ev, s.Encoder.Of(ev.Collection))
	r.Value = event.AppendStructured(make([]byte, 0, len(ev.Object)+envelopeBytes), r.Attributes, ev)
	return r
}

// envelopeBytes is what a record's value usually has beside the object, at most.
const envelopeBytes = 1024

// header is a record without its value.
func (s Shape) header(ev *event.Event, encoder event.CollectionEncoder) event.Record {
	c := ev.Collection
	v := shape.Values{Cluster: s.Encoder.Cluster, Group: c.Group, Resource: c.Resource, Namespace: ev.Namespace, Name: ev.Name}
	r := event.Record{Event: ev, Route: s.route(ev, v)}
	if d := ev.DeadLetter; d != nil {
		d.Route, r.Route = r.Route, s.deadRoute(v)
	}
	r.Attributes = encoder.Attributes(ev)
	r.ID = r.Attributes[1].Value
	if ev.Type.OfCollection() {
		r.Broadcast = true
	} else {
		r.Key = shape.Key(v)
	}
	return r
}

func (s Shape) route(ev *event.Event, v shape.Values) string {
	switch {
	case s.Topic != nil:
		return s.Topic.Topic(v)
	case s.Subject != nil && ev.Type.OfCollection():
		return s.Subject.CollectionSubject(v, ev.Type)
	case s.Subject != nil:
		return s.Subject.Subject(v)
	}
	return ""
}

func (s Shape) deadRoute(v shape.Values) string {
	if s.Subject != nil {
		return s.DeadLetters.Subject(v)
	}
	return s.DeadLetters.Topic(v)
}

// encode encodes an event of a member into the current batch's memory, with the body
// of o, nil if it is not known. A Secret's is the event's Object, or not to be seen.
func (l *Lane) encode(m *member, ev *event.Event, o *source.Object) event.Record {
	if m.encoder == nil {
		encoder := l.shape.Encoder.Of(&m.target.Collection)
		m.encoder = &encoder
	}
	r := l.shape.header(ev, *m.encoder)
	size := envelopeBytes + len(ev.Object)
	if o != nil {
		size += len(o.Raw)
	}
	room := l.current.memory(size)
	r.Value = event.AppendWithBody(room, r.Attributes, ev, func(dst []byte) []byte {
		switch {
		case o == nil || m.ofSecrets():
			return append(dst, ev.Object...)
		case l.shape.KeepManagedFields:
			return append(dst, o.Raw...)
		default:
			return o.AppendWithoutManagedFields(dst)
		}
	})
	l.current.keep(room, r.Value)
	return r
}

func (m *member) ofSecrets() bool {
	c := &m.target.Collection
	return c.Group == "" && c.Resource == "secrets"
}

// redacted is a Secret as it may be seen, and nil of any other object, which leaves
// as it is.
func (l *Lane) redacted(m *member, o *source.Object) ([]byte, error) {
	if !m.ofSecrets() {
		return nil, nil
	}
	raw := o.Raw
	if !l.shape.KeepManagedFields {
		raw = o.AppendWithoutManagedFields(make([]byte, 0, len(raw)))
	}
	redacted, err := l.shape.Secrets.Append(make([]byte, 0, len(raw)+256), raw, o.Namespace+"/"+o.Name)
	if err == nil && !l.shape.Secrets.Plain {
		l.metrics.redacted.WithLabelValues(l.id.Sink, m.resource).Inc()
	}
	return redacted, err
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
