package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Message is one message of a bus.
type Message struct {
	// Topic is the Kafka topic, or the NATS stream. Messages are in order within one
	// partition.
	Topic string
	// Partition is the partition of the Kafka topic. It is 0 for other buses.
	Partition int
	// Partitions is the number of partitions that the topic has: a collection is complete when it is complete in
	// each of them. 0 counts as 1.
	Partitions int
	// AtEnd is true if the partition had no later message when this one was read. Only a
	// [State] with Compacted set needs it.
	AtEnd bool
	// Headers are the message's headers, by their names on the bus: ce_type on Kafka,
	// ce-type on NATS. They are only used if Value is not a structured
	// CloudEvent, and may be nil otherwise.
	Headers map[string]string
	// Value is the Kafka record's value, or the NATS message's data. It is not
	// retained. Nil is a null value: it acts as the deletion that its headers describe.
	Value []byte
}

func (m *Message) place() place { return place{m.Topic, m.Partition} }

// String returns the topic and partition of the message.
func (m *Message) String() string { return fmt.Sprintf("%s/%d", m.Topic, m.Partition) }

// Source returns the messages of one or several topics from their beginning, in order within
// each partition. It may return messages again.
type Source interface {
	// Next blocks until there is a message. It returns io.EOF if no other message will come.
	// A source that notices that it skipped messages must return another error: the
	// copy is incomplete then, and the caller starts again with an empty [State].
	Next(ctx context.Context) (Message, error)
}

// ErrNoEvent is returned for a message that does not change the copy: a null value
// without headers, or a dead letter. Skip it.
var ErrNoEvent = errors.New("the message holds no event of the copy")

// Decode reads the event of a message, in any format that the bridge writes. Errors
// wrap [ErrNoEvent], [event.ErrNotEvent] or [event.ErrUnknownType]. An event that is more than a day ahead of the clock is none: see [event.Received.CheckClock].
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
	if err := e.CheckClock(time.Now()); err != nil {
		return nil, fmt.Errorf("%s: %w", &m, err)
	}
	return e, nil
}

// fromHeaders builds a structured event if the attributes are only in headers. That is so in binary content
// mode, where the value is the event's data (CloudEvents Kafka binding, section 3.2; NATS binding, section
// 3.1, where header values are percent-encoded), and for a deletion that is a null value.
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
	case !json.Valid(m.Value): // otherwise the text that is joined below could hold more than one value
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

// structured reports whether the headers announce a structured event, whose value has all attributes.
func structured(headers map[string]string) bool {
	for name, value := range headers {
		if strings.EqualFold(name, "content-type") && strings.HasPrefix(value, "application/cloudevents") {
			return true
		}
	}
	return false
}

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

// join makes a structured event. It does not encode the data again, because that would escape characters that the API
// server did not escape.
func join(attributes map[string]string, data []byte) ([]byte, error) {
	head, err := json.Marshal(attributes)
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"data":`), data, []byte("}")), nil
}

// deletedData returns the data of a deletion of which only the attributes are known.
func deletedData(attributes map[string]string) []byte {
	metadata := map[string]string{"name": attributes["name"], "uid": attributes["uid"]}
	if namespace := attributes["namespace"]; namespace != "" {
		metadata["namespace"] = namespace
	}
	data, _ := json.Marshal(map[string]any{ // cannot fail: all values are strings, booleans and maps
		"object":    map[string]any{"apiVersion": attributes["apiversion"], "kind": attributes["kind"], "metadata": metadata},
		"bodyknown": false,
	})
	return data
}

// fromPlain builds the data of an event in plain format, where the value is the object alone (docs/events.md,
// formats). Such a message has no dataschema.
func fromPlain(attributes map[string]string, object []byte) ([]byte, error) {
	plain := struct {
		BodyKnown *bool             `json:"bodyknown,omitempty"`
		Reason    string            `json:"reason,omitempty"`
		Truncated *event.Truncation `json:"truncated,omitempty"`
	}{Reason: attributes["reason"]}
	if attributes["bodyknown"] == "false" {
		plain.BodyKnown = new(bool)
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
		if text := attributes["truncatedfields"]; text != "" {
			if err := json.Unmarshal([]byte(text), &t.Fields); err != nil {
				return nil, fmt.Errorf("header truncatedfields is %q: %w", text, err)
			}
		}
		plain.Truncated = t
	}
	rest, err := json.Marshal(plain)
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
