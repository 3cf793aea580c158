package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// header is the header type of either client library.
type header interface {
	~struct {
		Key   string
		Value []byte
	}
}

// message is a message on the wire.
type message[H header] struct {
	key, value []byte // nil: null
	headers    []H
	time       time.Time // zero: now
}

// arena is the memory of many messages. They are valid until reset is called. Call reset
// only after the client no longer uses any of them.
type arena[H header] struct {
	bytes   []byte
	headers []H
	names   names
}

func (a *arena[H]) reset() { a.bytes, a.headers = a.bytes[:0], a.headers[:0] }

// reserve makes room for the messages of the items, so that appending to them does not allocate again and again.
func (a *arena[H]) reserve(b *event.Batch, items ...[]item) {
	all, bytes := 0, 0
	for _, of := range items {
		for _, it := range of {
			all += headers(&b.Records[it.index])
			bytes += it.size - len(b.Records[it.index].Value)
		}
	}
	a.headers, a.bytes = slices.Grow(a.headers, all), slices.Grow(a.bytes, bytes)
}

// message returns the message for r. Its value is the value of r, not a copy.
func (a *arena[H]) message(t *topic, r *event.Record, now time.Time) message[H] {
	m := message[H]{value: r.Value}
	first := len(a.headers)
	a.header(contentType, r.Format.ContentType())
	for i := range r.Attributes {
		if at := &r.Attributes[i]; stands(r, at) {
			a.header(a.names.header(at.Name), at.Value)
		}
	}
	for i := range r.Headers {
		a.header(r.Headers[i].Name, r.Headers[i].Value)
	}
	m.headers = a.headers[first:len(a.headers):len(a.headers)]
	if key := t.key(r); key != "" {
		m.key = a.copy(key)
	}
	if r.Event != nil {
		m.time = notAhead(r.Event.Time, now)
	}
	return m
}

// notAhead returns the earlier one of t and now. Brokers refuse timestamps that are an hour ahead of them
// (message.timestamp.after.max.ms). Without this, they would refuse events that were seen while the clock
// was ahead.
func notAhead(t, now time.Time) time.Time {
	if now = now.Round(0); t.Round(0).After(now) { // compare wall clocks, not monotonic times
		return now
	}
	return t
}

// tombstone returns the tombstone that follows m, the message of r, if [topic.buries] reports true.
func (m message[H]) tombstone(r *event.Record) message[H] {
	t := message[H]{key: m.key, time: m.time}
	if describes(r) {
		t.headers = m.headers
	}
	return t
}

func (a *arena[H]) header(key, value string) {
	a.headers = append(a.headers, H(struct {
		Key   string
		Value []byte
	}{key, a.copy(value)}))
}

func (a *arena[H]) copy(s string) []byte {
	first := len(a.bytes)
	a.bytes = append(a.bytes, s...)
	return a.bytes[first:len(a.bytes):len(a.bytes)]
}

// names maps attributes to headers. Attributes always come in the same order, possibly with some left out, so the
// search for the next name starts at the last one.
type names struct {
	known []struct{ attribute, header string }
	at    int
}

func (n *names) header(attribute string) string {
	for range n.known {
		if n.at++; n.at >= len(n.known) {
			n.at = 0
		}
		if k := &n.known[n.at]; k.attribute == attribute {
			return k.header
		}
	}
	n.known = append(n.known, struct{ attribute, header string }{attribute, headerPrefix + attribute})
	n.at = len(n.known) - 1
	return n.known[n.at].header
}

// Headers returns the headers of the message that carries a record.
func Headers(r *event.Record) []event.Attribute {
	var (
		a   arena[kgo.RecordHeader]
		all []event.Attribute
	)
	for _, h := range a.message(&topic{}, r, time.Now()).headers {
		all = append(all, event.Attribute{Name: h.Key, Value: string(h.Value)})
	}
	return all
}

// Buries reports whether a null value with the key of a record follows it on a topic with tombstones.
func Buries(r *event.Record) bool { return (&topic{tombstones: true}).buries(r) }
