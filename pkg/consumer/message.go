package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Message is one message of a bus.
type Message struct {
	// Topic is the Kafka topic, or the NATS stream. Order holds within a
	// partition of it.
	Topic string
	// Partition is Kafka's. 0 elsewhere.
	Partition int
	// Partitions is how many the topic has: a collection is complete when every
	// one of them says so. 0 counts as 1.
	Partitions int
	// Headers are the message's, by their names on the bus: ce_type on Kafka,
	// ce-type on NATS. They are only looked at where Value is no structured
	// CloudEvent, and may be nil otherwise.
	Headers map[string]string
	// Value is the Kafka record's value, or the NATS message's data. It is not
	// kept. Nil is a tombstone.
	Value []byte
}

// String names where the message was found.
func (m *Message) String() string { return fmt.Sprintf("%s/%d", m.Topic, m.Partition) }

// Source gives out the messages of one or several topics from their beginning,
// each partition's in order. It may give out again what it gave out before.
type Source interface {
	// Next blocks until there is a message. io.EOF says that no other will come.
	// A source that notices that it skipped messages must return an error: the
	// copy is then no longer one, and a new [State] has to be begun.
	Next(ctx context.Context) (Message, error)
}

// ErrNoEvent is returned for a message that says nothing of the copy: a tombstone,
// or a dead letter. Skipping it is right.
var ErrNoEvent = errors.New("the message holds no event of the copy")

// Decode reads the event in a message, of any format that the bridge writes. Errors
// wrap [ErrNoEvent], [event.ErrNotEvent] or [event.ErrUnknownType].
func Decode(m Message) (*event.Received, error) {
	if len(m.Value) == 0 {
		return nil, fmt.Errorf("%s: %w", &m, ErrNoEvent)
	}
	value := m.Value
	if whole, ok, err := fromBinary(m); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", &m, event.ErrNotEvent, err)
	} else if ok {
		value = whole
	}
	e, err := event.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", &m, err)
	}
	if e.DeadLetter != nil {
		return nil, fmt.Errorf("%s: event %q is a dead letter: %w", &m, e.ID, ErrNoEvent)
	}
	return e, nil
}

// fromBinary puts an event in binary content mode together: its attributes are
// headers, its data is the value (CloudEvents Kafka binding, section 3.2; NATS
// binding, section 3.1, where values are percent-encoded).
func fromBinary(m Message) (value []byte, ok bool, err error) {
	attributes := map[string]string{}
	for name, value := range m.Headers {
		name = strings.ToLower(name)
		if name == "content-type" && strings.HasPrefix(value, "application/cloudevents") {
			return nil, false, nil
		}
		attribute, found := strings.CutPrefix(name, "ce_")
		if !found {
			if attribute, found = strings.CutPrefix(name, "ce-"); found {
				if value, err = url.PathUnescape(value); err != nil {
					return nil, false, fmt.Errorf("header %s is %q: %w", name, value, err)
				}
			}
		}
		switch {
		case !found:
			continue
		case !utf8.ValidString(value): // an event's attributes are texts
			return nil, false, fmt.Errorf("header %s is %q, which is not UTF-8", name, value)
		}
		if other, twice := attributes[attribute]; twice && other != value {
			return nil, false, fmt.Errorf("its %s is %q in one header and %q in another", attribute, min(value, other), max(value, other))
		}
		attributes[attribute] = value
	}
	if attributes["specversion"] == "" {
		return nil, false, nil
	}
	// What is spliced below could say more than one value does.
	if !json.Valid(m.Value) {
		return nil, false, errors.New("the value is no JSON")
	}
	head, err := json.Marshal(attributes)
	if err != nil {
		return nil, false, err
	}
	// Spliced: encoding it again would escape what the API server did not.
	data := m.Value
	if attributes["dataschema"] == "" {
		if data, err = fromPlain(attributes, data); err != nil {
			return nil, false, err
		}
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"data":`), data, []byte("}")), true, nil
}

// fromPlain puts the data of an event together of which a message holds the object
// alone (docs/events.md, formats): the data of such a one has no schema.
func fromPlain(attributes map[string]string, object []byte) ([]byte, error) {
	said := struct {
		BodyKnown *bool             `json:"bodyknown,omitempty"`
		Reason    string            `json:"reason,omitempty"`
		Truncated *event.Truncation `json:"truncated,omitempty"`
	}{Reason: attributes["reason"]}
	if attributes["bodyknown"] == "false" {
		said.BodyKnown = new(bool)
	}
	if size := attributes["truncatedsize"]; size != "" {
		said.Truncated = &event.Truncation{SHA256: attributes["truncatedsha256"]}
		_, err := fmt.Sscan(size+" "+attributes["truncatedlimit"], &said.Truncated.Size, &said.Truncated.Limit)
		if err != nil {
			return nil, fmt.Errorf("headers truncatedsize, truncatedlimit are %q, %q: %w", size, attributes["truncatedlimit"], err)
		}
	}
	rest, err := json.Marshal(said)
	if err != nil {
		return nil, err
	}
	if len(rest) > len("{}") {
		rest[0] = ','
	} else {
		rest = rest[1:]
	}
	return slices.Concat([]byte(`{"object":`), object, rest), nil
}
