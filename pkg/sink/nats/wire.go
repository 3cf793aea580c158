package nats

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// The headers of a message beside the CloudEvents attributes.
const (
	headerContentType = "Content-Type"
	headerTerm        = "Kubebridge-Term"  // <number>.<writer>
	headerState       = "Kubebridge-State" // what the record moves in the checkpoint
	headerPlace       = "Kubebridge-Place" // see stream.place
	headerID          = "ce-id"

	// stateOmitted replaces a state that does not fit.
	stateOmitted = "-"
	// stateFormat begins every other state: the format of checkpoints, and what is not base64.
	stateFormat = string(rune('0'+checkpoint.Version)) + ":"
)

// maxHeader is the server's limit for the bytes of headers.
const maxHeader = 1<<16 - 1

// headerNames are the names of headers by that of their attribute. They are made once: only the event contract
// names attributes, so there are few. One goroutine uses them; the zero value is ready.
type headerNames struct{ made map[string]string }

func (n *headerNames) of(attribute string) string {
	name, ok := n.made[attribute]
	if !ok {
		if n.made == nil {
			n.made = map[string]string{}
		}
		name = "ce-" + attribute
		n.made[attribute] = name
	}
	return name
}

// headerValues is memory for the values of headers, which [nats.Header] wants in slices, and for text of one chunk. The zero value
// is ready.
type headerValues struct {
	memory []string
	text   event.Text
	buffer []byte // of the last text
}

// of is a slice that has one value. It is valid until clear.
func (v *headerValues) of(value string) []string {
	v.memory = append(v.memory, value)
	n := len(v.memory)
	return v.memory[n-1 : n : n]
}

// made returns what add appends, as a string that shares memory with others.
func (v *headerValues) made(add func(dst []byte) []byte) string {
	v.buffer = add(v.buffer[:0])
	return v.text.Of(v.buffer)
}

// clear takes back the memory of slices.
func (v *headerValues) clear() {
	clear(v.memory)
	v.memory = v.memory[:0]
}

// compose makes the message of a record, as every delivery sends it.
func (n *headerNames) compose(r *event.Record) *nats.Msg {
	m := &nats.Msg{Header: make(nats.Header, len(r.Attributes)+len(r.Headers)+8)}
	n.fill(m, r, &headerValues{memory: make([]string, 0, len(r.Attributes)+len(r.Headers)+2)})
	return m
}

// fill is compose into a message that has empty headers.
func (n *headerNames) fill(m *nats.Msg, r *event.Record, values *headerValues) {
	m.Subject, m.Data = r.Route, r.Value
	m.Header[headerContentType] = values.of(r.Format.ContentType())
	for _, a := range r.Attributes {
		m.Header[n.of(a.Name)] = values.of(event.EscapeHeader(a.Value))
	}
	for _, a := range r.Headers {
		m.Header[a.Name] = values.of(event.EscapeHeader(a.Value))
	}
	m.Header[headerID] = values.of(event.EscapeHeader(r.ID))
}

// Headers returns the headers of the message that carries a record, sorted by name, without those by which a bridge
// finds its own messages again.
func Headers(r *event.Record) (all []event.Attribute) {
	m := new(headerNames).compose(r)
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		all = append(all, event.Attribute{Name: name, Value: m.Header[name][0]})
	}
	return all
}

// encode makes m, which has empty headers, the message of a record on the pipeline's own
// stream. The expected sequence is added when it is sent.
func (a *appender) encode(m *nats.Msg, r *event.Record, term string) {
	a.names.fill(m, r, &a.values)
	m.Header[headerTerm] = a.values.of(term)
	if len(r.State) > 0 {
		m.Header[headerState] = a.values.of(a.values.made(func(dst []byte) []byte { return appendState(dst, r.State) }))
	}
}

// fit removes headers if their size exceeds the server's limit: first the state, so that
// a bridge that reads the message back must reset, and then the attributes, if the body also has
// them. It returns the remaining size, and whether it removed a header.
func fit(m *nats.Msg) (size int, cut bool) {
	if size = headerSize(m.Header); size <= maxHeader {
		return size, false
	}
	if _, ok := m.Header[headerState]; ok {
		m.Header[headerState] = []string{stateOmitted}
	}
	if whole := m.Header[headerContentType]; headerSize(m.Header) > maxHeader && whole[0] == event.Structured.ContentType() {
		maps.DeleteFunc(m.Header, func(name string, _ []string) bool {
			return strings.HasPrefix(name, "ce-") && name != headerID
		})
	}
	return headerSize(m.Header), true
}

// checkMessage compares the message of a record with the limits of the server and of the stream
// (in bytes; 0 and less: no limit). size is at least the size of the message.
func (l *link) checkMessage(m *nats.Msg, r *event.Record, streamLimit int) (size int, _ *sink.RecordError) {
	if err := checkSubject(m.Subject); err != nil {
		return 0, &sink.RecordError{Err: err}
	}
	limit := int(l.conn.nc.MaxPayload())
	byStream := streamLimit > 0 && streamLimit < limit
	if byStream {
		limit = streamLimit
	}
	if header := atMost(r); header <= maxHeader && header+len(m.Data) <= limit {
		return header + len(m.Data), nil
	}
	header, cut := fit(m)
	if cut {
		l.log.Warn("headers exceed the limit of a message, removed some; a crash before the next commit leads to a declared reset",
			zap.String("id", m.Header.Get(headerID)), zap.Int("limit", maxHeader))
	}
	if header > maxHeader {
		return 0, &sink.RecordError{Err: fmt.Errorf("headers of %d bytes: the server takes %d", header, maxHeader)}
	}
	if size = header + len(m.Data); size > limit {
		of := "the server (max_payload)"
		if byStream {
			of = fmt.Sprintf("stream %q (max_msg_size)", l.name)
		}
		return 0, &sink.RecordError{Size: size, Limit: limit, Err: fmt.Errorf("too large for %s", of)}
	}
	return size, nil
}

// outside returns a [sink.RouteError] for the ith record if the stream does not have its subject: that of a collection which ends on the route of an
// earlier configuration.
func (s stream) outside(i int, r *event.Record) error {
	if len(uncovered([]string{r.Route}, s.config.Subjects)) == 0 {
		return nil
	}
	return &sink.RouteError{Index: i, Route: r.Route, Missing: true, Err: fmt.Errorf("stream %q does not have subject %q: it has %s",
		s.config.Name, r.Route, strings.Join(s.config.Subjects, ", "))}
}

// addedHeaders is the maximum size of the headers that are added when a chunk is complete, and of what frames headers.
const addedHeaders = len("NATS/1.0\r\n\r\n") +
	len(headerExpected) + len(": \r\n") + len("18446744073709551615") +
	len(headerBatch) + len(": \r\n") + 64 + // the longest id that servers take
	len(headerBatchSequence) + len(": \r\n") + len("1000") +
	len(headerBatchCommit) + len(": \r\n") + len("1") +
	len(headerPlace) + len(": .\r\n") + 2*len("18446744073709551615")

// atMost returns more than the headers of a record's message can take. Unlike [headerSize] it does not read the headers, which
// takes much longer.
func atMost(r *event.Record) int {
	const others = 512 // Content-Type, Kubebridge-Term, Nats-Msg-Id, and names and framing of the state
	n := addedHeaders + others + len(headerID) + 3*len(r.ID)
	for _, a := range r.Attributes {
		n += len("ce-: \r\n") + len(a.Name) + 3*len(a.Value) // see event.EscapeHeader
	}
	for _, a := range r.Headers {
		n += len(": \r\n") + len(a.Name) + 3*len(a.Value)
	}
	for _, kv := range r.State {
		n += 2 * (len(kv.Key) + len(kv.Value) + 2*binary.MaxVarintLen64) // base64 makes three bytes four
	}
	return n
}

// headerSize returns the maximum size of a message's headers on the wire,
// including the headers that are added when its chunk is complete.
func headerSize(h nats.Header) int {
	n := addedHeaders
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(": \r\n") + len(v)
		}
	}
	return n
}

// appendState appends the header of changes: keys and values with their lengths in front. A value's length
// is one more than it has bytes, and 0 deletes the key.
func appendState(dst []byte, state []event.KV) []byte {
	dst = append(dst, stateFormat...)
	var memory [256]byte
	b := memory[:0]
	for _, kv := range state {
		b = binary.AppendUvarint(b, uint64(len(kv.Key)))
		b = append(b, kv.Key...)
		if kv.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(kv.Value))+1)
		b = append(b, kv.Value...)
	}
	return base64.RawStdEncoding.AppendEncode(dst, b)
}

var (
	errState       = errors.New("its header " + headerState + " does not parse")
	errStateFormat = errors.New("its header " + headerState + " has the format of another version")
)

// decodeState reverses appendState. A record without changes has no state.
func decodeState(s string) ([]event.KV, error) {
	if s == "" {
		return nil, nil
	}
	text, found := strings.CutPrefix(s, stateFormat)
	if !found {
		return nil, errStateFormat
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errState
	}
	take := func(n uint64) []byte {
		v := b[:n:n]
		b = b[n:]
		return v
	}
	length := func(most int) (uint64, bool) {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w+most) {
			return 0, false
		}
		b = b[w:]
		return n, true
	}
	var state []event.KV
	for len(b) > 0 {
		n, ok := length(0)
		if !ok {
			return nil, errState
		}
		kv := event.KV{Key: take(n)}
		if n, ok = length(1); !ok {
			return nil, errState
		}
		if n > 0 {
			kv.Value = take(n - 1)
		}
		state = append(state, kv)
	}
	return state, nil
}

// mark is where a record ends on the bus: the sequence of its message in the
// stream made at created (Unix nanoseconds), and the term it was written in.
type mark struct {
	created int64
	seq     uint64
	term    string
}

const markVersion = "1"

func (m mark) encode() []byte {
	return fmt.Appendf(nil, "%s %d %d %s", markVersion, m.created, m.seq, m.term)
}

func decodeMark(b []byte) (mark, error) {
	var version string
	var m mark
	if n, err := fmt.Sscanf(string(b), "%s %d %d %s", &version, &m.created, &m.seq, &m.term); n != 4 || err != nil || version != markVersion {
		return mark{}, fmt.Errorf("the recorded mark %q is not one of a JetStream sink", b)
	}
	return m, nil
}

// checkSubject returns an error for an invalid subject. The server
// accepts some invalid subjects, and then loses or misroutes their messages.
func checkSubject(s string) error {
	if len(s) > event.MaxSubject {
		return fmt.Errorf("subject of %d bytes: at most %d", len(s), event.MaxSubject)
	}
	for token := range strings.SplitSeq(s, ".") {
		switch token {
		case "":
			return errors.New("subject has an empty token")
		case "*", ">":
			return errors.New("subject has a wildcard")
		}
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return errors.New("subject has a space or control character")
		}
	}
	return nil
}

// overlap reports whether there is a subject that two patterns match.
func overlap(a, b string) bool {
	for {
		x, aRest, aMore := strings.Cut(a, ".")
		y, bRest, bMore := strings.Cut(b, ".")
		switch {
		case x == ">", y == ">":
			return true
		case x != y && x != "*" && y != "*":
			return false
		case !aMore || !bMore:
			return aMore == bMore
		}
		a, b = aRest, bRest
	}
}

// covers reports whether pattern matches every subject that subject, which may itself be a
// pattern, matches.
func covers(pattern, subject string) bool {
	for {
		p, pRest, pMore := strings.Cut(pattern, ".")
		s, sRest, sMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case s == ">", p != s && p != "*":
			return false
		case !pMore || !sMore:
			return pMore == sMore
		}
		pattern, subject = pRest, sRest
	}
}
