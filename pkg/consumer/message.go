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
	// AtEnd says that the partition had no later message when this one was read. Only a
	// [State] that is Compacted needs it.
	AtEnd bool
	// Headers are the message's, by their names on the bus: ce_type on Kafka,
	// ce-type on NATS. They are only looked at where Value is no structured
	// CloudEvent, and may be nil otherwise.
	Headers map[string]string
	// Value is the Kafka record's value, or the NATS message's data. It is not
	// kept. Nil is a null value: it acts as the deletion that its headers describe.
	Value []byte
}

func (m *Message) place() place { return place{m.Topic, m.Partition} }

// String names where the message was found.
func (m *Message) String() string { return fmt.Sprintf("%s/%d", m.Topic, m.Partition) }

// Source returns the messages of one or several topics from their beginning, each
// partition's in order. It may return again what it returned before.
type Source interface {
	// Next blocks until there is a message. io.EOF says that no other will come.
	// A source that notices that it skipped messages must return an error: the
	// copy is then no longer one, and the caller begins with an empty [State].
	Next(ctx context.Context) (Message, error)
}

// ErrNoEvent is returned for a message that has no event of the copy: a null value
// without headers, or a dead letter. Skip it.
var ErrNoEvent = errors.New("the message holds no event of the copy")

// Decode reads the event in a message, of any format that the bridge writes. Errors
// wrap [ErrNoEvent], [event.ErrNotEvent] or [event.ErrUnknownType].
func Decode(m Message) (*event.Received, error) {
	value := m.Value
	whole, ok, err := fromHeaders(m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w: %w", &m, event.ErrNotEvent, err)
	case ok:
		value = whole
	case len(m.Value) == 0:
		return nil, fmt.Errorf("%s: %w", &m, ErrNoEvent)
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

// fromHeaders puts an event together whose attributes are headers alone: one in binary content
// mode, whose value is its data (CloudEvents Kafka binding, section 3.2; NATS binding, section
// 3.1, where values are percent-encoded), and a deletion that is a null value.
func fromHeaders(m Message) (value []byte, ok bool, err error) {
	if structured(m.Headers) && len(m.Value) > 0 {
		return nil, false, nil
	}
	attributes, err := attributesOf(m.Headers)
	switch {
	case err != nil || attributes["specversion"] == "":
		return nil, false, err
	case len(m.Value) == 0:
		if attributes["type"] != event.Deleted.CloudEvent() {
			return nil, false, nil
		}
		value, err = join(attributes, deletedData(attributes))
		return value, err == nil, err
	case !json.Valid(m.Value): // what is joined below could be more than one value
		return nil, false, errors.New("the value is no JSON")
	}
	data := m.Value
	if attributes["dataschema"] == "" {
		if data, err = fromPlain(attributes, data); err != nil {
			return nil, false, err
		}
	}
	value, err = join(attributes, data)
	return value, err == nil, err
}

// structured reports whether the value has the attributes, too.
func structured(headers map[string]string) bool {
	for name, value := range headers {
		if strings.EqualFold(name, "content-type") && strings.HasPrefix(value, "application/cloudevents") {
			return true
		}
	}
	return false
}

// attributesOf reads the attributes in headers.
func attributesOf(headers map[string]string) (attributes map[string]string, err error) {
	attributes = map[string]string{}
	for name, value := range headers {
		name = strings.ToLower(name)
		attribute, found := strings.CutPrefix(name, "ce_")
		if !found {
			if attribute, found = strings.CutPrefix(name, "ce-"); found {
				if value, err = url.PathUnescape(value); err != nil {
					return nil, fmt.Errorf("header %s is %q: %w", name, value, err)
				}
			}
		}
		switch {
		case !found:
			continue
		case !utf8.ValidString(value): // an event's attributes are texts
			return nil, fmt.Errorf("header %s is %q, which is not UTF-8", name, value)
		}
		if other, twice := attributes[attribute]; twice && other != value {
			return nil, fmt.Errorf("its %s is %q in one header and %q in another", attribute, min(value, other), max(value, other))
		}
		attributes[attribute] = value
	}
	return attributes, nil
}

// join makes a structured event. The data is not encoded again: that would escape what the API
// server did not.
func join(attributes map[string]string, data []byte) ([]byte, error) {
	head, err := json.Marshal(attributes)
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"data":`), data, []byte("}")), nil
}

// deletedData is the data of a deletion of which only the attributes are known.
func deletedData(attributes map[string]string) []byte {
	metadata := map[string]string{"name": attributes["name"], "uid": attributes["uid"]}
	if namespace := attributes["namespace"]; namespace != "" {
		metadata["namespace"] = namespace
	}
	data, _ := json.Marshal(map[string]any{ // texts: cannot fail
		"object":    map[string]any{"apiVersion": attributes["apiversion"], "kind": attributes["kind"], "metadata": metadata},
		"bodyknown": false,
	})
	return data
}

// fromPlain makes the data of an event of which a message holds the object alone (docs/events.md,
// formats): such data has no schema.
func fromPlain(attributes map[string]string, object []byte) ([]byte, error) {
	said := struct {
		BodyKnown *bool             `json:"bodyknown,omitempty"`
		Reason    string            `json:"reason,omitempty"`
		Truncated *event.Truncation `json:"truncated,omitempty"`
	}{Reason: attributes["reason"]}
	if attributes["bodyknown"] == "false" {
		said.BodyKnown = new(bool)
	}
	if attributes["truncatedsize"] != "" {
		t := &event.Truncation{SHA256: attributes["truncatedsha256"]}
		for name, to := range map[string]*int{"truncatedsize": &t.Size, "truncatedlimit": &t.Limit, "truncatedlevels": &t.Levels} {
			if text := attributes[name]; text != "" {
				if _, err := fmt.Sscan(text, to); err != nil {
					return nil, fmt.Errorf("header %s is %q: %w", name, text, err)
				}
			}
		}
		said.Truncated = t
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
