// Package bus runs the buses of the end-to-end tests, as servers in this process, and reads the messages on
// them. It shares no code with the bridge: it decodes messages as a consumer would.
package bus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is one CloudEvent as a consumer receives it.
type Message struct {
	Place     string // its place on the bus, for people: a subject and sequence, or a topic, partition and offset
	Route     string // NATS subject or Kafka topic; "" in a file
	Key       string // Kafka key
	Partition int    // of Kafka
	Raw       []byte
	Writer    string // the writer, and Term its term, if the bus shows them: on Kafka the producer and its epoch
	Term      int
	At        time.Time // when the bus or the reader received it; zero: not known
	Forgotten bool      // the bus was made to lose it, and the checkpoint may not have that it was written

	Attributes map[string]string // CloudEvents attributes of the JSON
	Headers    map[string]string // those repeated as headers, decoded
	Data       Data
}

// Data is the data of an event about an object, or about a collection.
type Data struct {
	Object    json.RawMessage `json:"object"`
	BodyKnown *bool           `json:"bodyknown"`
	Reason    string          `json:"reason"`
	Truncated *struct {
		Size   int    `json:"size"`
		SHA256 string `json:"sha256"`
		Limit  int    `json:"limit"`
		Levels int    `json:"levels"`
	} `json:"truncated"`

	Detail string  `json:"detail"`
	Reset  bool    `json:"reset"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Since  string  `json:"since"`
	Counts *Counts `json:"counts"`

	Before    json.RawMessage `json:"before"`
	Patch     json.RawMessage `json:"patch"`
	Base      string          `json:"base"`
	ChangedBy json.RawMessage `json:"changedby"`
	LeftOut   []string        `json:"leftout"`
	Actor     json.RawMessage `json:"actor"`

	Selection Selection `json:"selection"`

	Explains   string          `json:"explains"`
	Request    json.RawMessage `json:"request"`
	Candidates json.RawMessage `json:"candidates"`
	Message    string          `json:"message"`
	More       uint64          `json:"more"`
	Warning    string          `json:"warning"`
	Until      string          `json:"until"`
}

// Counts are the counts of a synced event.
type Counts struct {
	Listed    int `json:"listed"`
	Added     int `json:"added"`
	Modified  int `json:"modified"`
	Deleted   int `json:"deleted"`
	Present   int `json:"present"`
	Unchanged int `json:"unchanged"`
	Skipped   int `json:"skipped"`
	Filtered  int `json:"filtered"`
}

// Selection says what a collection has of its resource, in gap and synced events.
type Selection struct {
	Labels        string   `json:"labels"`
	Fields        string   `json:"fields"`
	Types         []string `json:"types"`
	Filtered      bool     `json:"filtered"`
	Ignores       bool     `json:"ignores"`
	MetadataOnly  bool     `json:"metadataonly"`
	Dropped       bool     `json:"dropped"`
	StatusDropped bool     `json:"statusdropped"`
	Redacted      bool     `json:"redacted"`
}

// parse reads a CloudEvent in structured JSON. headers are the CloudEvents attributes in the message's headers.
func parse(raw []byte, headers map[string]string) (Message, error) {
	m, err := parseAlone(raw)
	m.Headers = headers
	if err == nil && !maps.Equal(m.Attributes, headers) {
		err = fmt.Errorf("headers %v differ from the attributes %v", headers, m.Attributes)
	}
	return m, err
}

// parseAlone reads a CloudEvent in structured JSON without headers.
func parseAlone(raw []byte) (Message, error) {
	m := Message{Raw: raw, Attributes: map[string]string{}}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return m, fmt.Errorf("not a JSON object: %w", err)
	}
	for name, value := range all {
		if name == "data" {
			continue
		}
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return m, fmt.Errorf("attribute %s is %s, want a string", name, value)
		}
		m.Attributes[name] = s
	}
	strict := json.NewDecoder(bytes.NewReader(all["data"]))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m.Data); err != nil {
		return m, fmt.Errorf("data: %w", err)
	}
	return m, nil
}

// ID, UID, and RV are attributes of that name.
func (m *Message) ID() string  { return m.Attributes["id"] }
func (m *Message) UID() string { return m.Attributes["uid"] }
func (m *Message) RV() string  { return m.Attributes["resourceversion"] }

// Collection is the attribute of that name, and Resource is the part of it that names the resource.
func (m *Message) Collection() string { return m.Attributes["collection"] }

// Resource returns the resource of the collection, for example deployments.apps.
func (m *Message) Resource() string {
	resource, _, _ := strings.Cut(m.Collection(), "@")
	resource, _, _ = strings.Cut(resource, ":")
	return resource
}

// Run returns the attribute of that name; 0 if it is absent.
func (m *Message) Run() uint64 { return m.Number("run") }

// Incarnation returns the attribute of that name; 0 if it is absent.
func (m *Message) Incarnation() uint64 { return m.Number("incarnation") }

// Number returns an attribute that is a decimal number; 0 if it is absent.
func (m *Message) Number(attribute string) uint64 {
	n, _ := strconv.ParseUint(m.Attributes[attribute], 10, 64)
	return n
}

// Part identifies the part of the bus within which messages are in order: a Kafka partition. Other buses have one part.
func (m *Message) Part() string {
	if m.Writer == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", m.Route, m.Partition)
}

// Epoch returns the event's epoch. The first epoch is 1; after a restore of etcd another one begins.
func (m *Message) Epoch() int {
	n, _ := strconv.Atoi(m.Attributes["epoch"])
	return max(n, 1)
}

// Type returns the distinctive word of the type attribute: added, modified, deleted, present, gap, synced, closed.
func (m *Message) Type() string {
	f := strings.Split(m.Attributes["type"], ".")
	return f[max(len(f)-2, 0)]
}

// OfCollection reports whether the event is about a collection and not about an object.
func (m *Message) OfCollection() bool {
	return strings.HasPrefix(m.Attributes["type"], "io.kubebridge.collection.")
}

// OfAudit reports whether the event is made from records of the audit log: attributed, denied, or lost. Copies of objects skip it.
func (m *Message) OfAudit() bool {
	t := m.Attributes["type"]
	return m.Is("attributed") || strings.HasPrefix(t, "io.kubebridge.request.") || strings.HasPrefix(t, "io.kubebridge.audit.")
}

// Is reports whether the message has one of the types.
func (m *Message) Is(types ...string) bool { return slices.Contains(types, m.Type()) }

// Name returns the object's namespace/name, or its name if it is cluster-scoped.
func (m *Message) Name() string { return m.Attributes["subject"] }

// Body returns the object, decoded.
func (m *Message) Body() map[string]any {
	var body map[string]any
	_ = json.Unmarshal(m.Data.Object, &body) // parse has checked it
	return body
}

func (m *Message) String() string {
	s := fmt.Sprintf("%-28s %-8s %-24s rv=%-6s id=%s origin=%s", m.Place, m.Type(), m.Name(), m.RV(), m.ID(), m.Attributes["origin"])
	if m.Data.Reason != "" {
		s += " reason=" + m.Data.Reason
	}
	if m.OfCollection() {
		s += " plan=" + m.Attributes["plan"] + " edit=" + m.Attributes["edit"]
	}
	if m.Data.Counts != nil {
		s += fmt.Sprintf(" counts=%+v", *m.Data.Counts)
	}
	return s
}
