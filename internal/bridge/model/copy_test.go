package model

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// message is one event on the bus, as a consumer reads it.
type message struct {
	ID, Type, Collection, UID, Name, Namespace string
	Origin                                     string
	Route, Key                                 string
	Broadcast                                  bool // it is written to every partition
	Version                                    int  // resourceVersion; of a deletion, the one at which it was seen or proved
	At                                         int  // resourceVersion of the publication; of a deletion, that of the publication that it ends
	Run, Incarnation, Birth                    uint64
	Epoch                                      int
	DeadLetter                                 bool
	Data                                       struct {
		Reason string          `json:"reason"`
		Reset  bool            `json:"reset"`
		From   string          `json:"from"`
		To     string          `json:"to"`
		Object json.RawMessage `json:"object"`
		// BodyKnown is nil if the attribute is missing.
		BodyKnown *bool           `json:"bodyknown"`
		Truncated json.RawMessage `json:"truncated"`
	}
	Value  []byte // as written to the bus
	Step   int    // step of the run
	Number int    // among the messages of the bus
}

// short returns the last word of the type: added, modified, deleted, present, gap, synced, closed.
func (m *message) short() string {
	parts := strings.Split(m.Type, ".")
	return parts[len(parts)-2]
}

func (m *message) ofCollection() bool { return strings.HasPrefix(m.Type, "io.kubebridge.collection.") }

func (m message) String() string {
	s := fmt.Sprintf("%d: %s %s", m.Step, m.short(), m.Collection)
	if m.UID != "" {
		s += fmt.Sprintf(" %s/%s %s", m.Namespace, m.Name, m.UID)
	}
	s += fmt.Sprintf(" rv=%d", m.Version)
	if m.Epoch > 1 {
		s += fmt.Sprintf(" epoch=%d", m.Epoch)
	}
	if m.Data.Reason != "" {
		s += " " + m.Data.Reason
	}
	if m.Data.Reset {
		s += " reset"
	}
	if m.DeadLetter {
		s += " (dead letter)"
	}
	return s + "  [" + m.ID + "]"
}

// parse reads a structured CloudEvent.
func parse(route string, value []byte) (message, error) {
	var wire struct {
		ID, Type, Collection, UID, Name, Namespace, Epoch, Origin string
		Run, Incarnation, Birth                                   string
		ResourceVersion                                           string          `json:"resourceversion"`
		DeletionVersion                                           string          `json:"deletionversion"`
		DeadLetter                                                string          `json:"deadletterreason"`
		Data                                                      json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(value, &wire); err != nil {
		return message{}, err
	}
	m := message{
		ID: wire.ID, Type: wire.Type, Collection: wire.Collection, UID: wire.UID, Name: wire.Name, Namespace: wire.Namespace,
		Origin: wire.Origin, Route: route, DeadLetter: wire.DeadLetter != "", Epoch: 1,
	}
	m.At, _ = number(wire.ResourceVersion)
	m.Version = m.At
	m.Run, _ = strconv.ParseUint(wire.Run, 10, 64)
	m.Incarnation, _ = strconv.ParseUint(wire.Incarnation, 10, 64)
	m.Birth, _ = strconv.ParseUint(wire.Birth, 10, 64)
	if m.short() == "deleted" {
		m.Version, _ = number(wire.DeletionVersion)
	}
	if wire.Epoch != "" {
		m.Epoch, _ = strconv.Atoi(wire.Epoch)
	}
	return m, json.Unmarshal(wire.Data, &m.Data)
}

// version orders the states of an object.
type version struct{ epoch, rv int }

func (v version) less(o version) bool {
	return v.epoch < o.epoch || v.epoch == o.epoch && v.rv < o.rv
}

// held is an object in a consumer's copy.
type held struct {
	collection string
	at         version
	partition  int
	name       string // namespace and name
	body       body
}

// body is the content of an event's object.
type body struct {
	truncated, spec bool // whether the body was truncated, and whether it has a spec
	x               string
	keep, big       bool
}

// body parses the object of an event.
func (m *message) body() body {
	var o struct {
		Metadata struct{ Labels struct{ X string } }
		Spec     *struct {
			Keep    bool
			Padding string
		}
	}
	if err := json.Unmarshal(m.Data.Object, &o); err != nil {
		panic(fmt.Sprintf("%s: the object: %v", m, err))
	}
	b := body{truncated: m.Data.Truncated != nil, x: o.Metadata.Labels.X, spec: o.Spec != nil}
	if b.spec {
		b.keep, b.big = o.Spec.Keep, o.Spec.Padding != ""
	}
	return b
}

// of reports whether a body is the one that an entry publishes for a state of an object.
func (b body) of(o *object, e entry) bool {
	switch {
	case b.truncated && b.x == "": // only the identity is left
		return true
	case b.x != strconv.Itoa(o.x):
		return false
	case b.truncated:
		return true
	}
	return b.spec != e.metadata && (!b.spec || b.keep == o.keep && (b.big == o.big || e.redact))
}

// whole is the partition number of a reader that sees all messages of a bus in one order.
const whole = -1

// partitions is the number of partitions of a topic, for readers that read it by partition.
const partitions = 2

// in reports whether a message is in a partition.
func (m *message) in(partition int) bool {
	h := fnv.New32a()
	h.Write([]byte(m.Key))
	return m.Broadcast || int(h.Sum32()%partitions) == partition
}

// byPartition returns the copy of a consumer that reads one partition after the other.
func byPartition(messages []message) *consumerCopy {
	c := newCopy()
	for p := range partitions {
		for i := range messages {
			if messages[i].in(p) {
				c.apply(&messages[i], p)
			}
		}
	}
	return c
}

// compacted returns the copy of a consumer that reads a topic after compaction: for each key only the last message is
// left.
func compacted(messages []message) *consumerCopy {
	c := newCopy()
	for p := range partitions {
		last := map[string]int{}
		for i := range messages {
			if messages[i].in(p) {
				last[messages[i].Route+" "+messages[i].Key] = i
			}
		}
		for i := range messages {
			if messages[i].in(p) && last[messages[i].Route+" "+messages[i].Key] == i {
				c.apply(&messages[i], p)
			}
		}
	}
	return c
}
