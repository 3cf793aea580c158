package kafka

import (
	"math/bits"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	contentType  = "content-type"
	headerPrefix = "ce_" // CloudEvents Kafka protocol binding, section 3.2.3.1

	// batchOverhead is the header of a record batch, format version 2.
	batchOverhead = 61
	// recordOverhead is the maximum size of a record's length, attributes, timestamp
	// and offset (the last two relative to the first record of the batch).
	recordOverhead = 5 + 1 + 10 + 5
)

// buries reports whether a tombstone follows r. A record with a null value is itself a tombstone.
func (t *topic) buries(r *event.Record) bool {
	return t.tombstones && r.Value != nil && r.Key != "" && r.Event != nil && r.Event.Type == event.Deleted
}

// describes reports whether the tombstone after r has the headers of r. A reader that is slower than
// compaction may find only the tombstone, and uses it as the deletion.
func describes(r *event.Record) bool { return r.Event.Incarnation != 0 }

// key returns the key of r. A compacted topic refuses records without a key. There a
// collection event has the key <cluster>/_collection/<collection>/<type>, which no
// object has, so that the last event of each type is kept. With Incarnation the kind
// takes the place of the type: see [event.Event.CollectionKind]. An event about a request has the key of its object with "/_attributed" or
// "/_denied" behind it there: it must not take the place of the object's last event. The partition is that of the object everywhere.
func (t *topic) key(r *event.Record) string {
	if t.compacted && !r.Broadcast && r.Event != nil && r.Event.Type.OfRequest() {
		return r.Key + "/_" + r.Event.Type.String()
	}
	if r.Key != "" || !r.Broadcast || !t.compacted {
		return r.Key
	}
	var cluster, collection, kind string
	for _, a := range r.Attributes {
		switch a.Name {
		case "cluster":
			cluster = a.Value
		case "collection":
			collection = a.Value
		case "type":
			kind = strings.TrimSuffix(strings.TrimPrefix(a.Value, "io.kubebridge.collection."), ".v1")
		}
	}
	if r.Event != nil && r.Event.Incarnation != 0 {
		kind = r.Event.CollectionKind()
	}
	return cluster + "/_collection/" + collection + "/" + kind
}

// size returns the maximum bytes of r's messages in a record batch.
func (t *topic) size(r *event.Record) int {
	key := sized(len(t.key(r)))
	all := varint(headers(r)) + sized(len(contentType)) + sized(len(r.Format.ContentType()))
	for _, a := range r.Attributes {
		all += sized(len(headerPrefix)+len(a.Name)) + sized(len(a.Value))
	}
	for _, a := range r.Headers {
		all += sized(len(a.Name)) + sized(len(a.Value))
	}
	n := recordOverhead + key + sized(len(r.Value)) + all
	switch {
	case !t.buries(r):
	case describes(r):
		n += recordOverhead + key + sized(0) + all
	default:
		n += recordOverhead + key + sized(0) + varint(0)
	}
	return n
}

// headers returns the maximum number of headers of r's message.
func headers(r *event.Record) int { return 1 + len(r.Attributes) + len(r.Headers) }

// stands reports whether an attribute has a header with its name. In binary mode datacontenttype is the
// header content-type (CloudEvents Kafka protocol binding, section 3.2.1).
func stands(r *event.Record, a *event.Attribute) bool {
	return r.Format == event.Structured || a.Name != "datacontenttype"
}

// sized returns the size of n bytes with their length in front.
func sized(n int) int { return varint(n) + n }

// varint returns the size of a zigzag varint that is not negative.
func varint(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
