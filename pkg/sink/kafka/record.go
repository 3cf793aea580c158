package kafka

import (
	"math/bits"

	"github.com/segmentio/kafka-go"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	contentType  = "application/cloudevents+json; charset=UTF-8"
	headerPrefix = "ce_" // CloudEvents Kafka protocol binding, section 3.2.3.1

	// batchOverhead is the header of a record batch, format version 2.
	batchOverhead = 61
	// recordOverhead is the most that a record's length, attributes, timestamp
	// and offset (both relative to the batch's first) take.
	recordOverhead = 5 + 1 + 10 + 5
)

// encode makes what goes on the wire. Values are shared with r.
func encode(r *event.Record) kafka.Record {
	headers := make([]kafka.Header, 0, 1+len(r.Attributes))
	headers = append(headers, kafka.Header{Key: "content-type", Value: []byte(contentType)})
	for _, a := range r.Attributes {
		headers = append(headers, kafka.Header{Key: headerPrefix + a.Name, Value: []byte(a.Value)})
	}
	k := kafka.Record{Value: kafka.NewBytes(r.Value), Headers: headers}
	if r.Key != "" {
		k.Key = kafka.NewBytes([]byte(r.Key))
	}
	if r.Event != nil {
		k.Time = r.Event.Time // else kafka-go takes the present
	}
	return k
}

// size is the most bytes that r takes in a record batch.
func size(r *event.Record) int {
	n := recordOverhead + sized(len(r.Key)) + sized(len(r.Value)) + varint(1+len(r.Attributes))
	n += sized(len("content-type")) + sized(len(contentType))
	for _, a := range r.Attributes {
		n += sized(len(headerPrefix)+len(a.Name)) + sized(len(a.Value))
	}
	return n
}

// sized is the bytes of n bytes with their length in front.
func sized(n int) int { return varint(n) + n }

// varint is the bytes of a zigzag varint that is not negative.
func varint(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }
