package event

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// The schemas of a CloudEvent's data, published in docs/schemas.
const (
	ObjectSchema      = "https://kubebridge.io/schemas/object-v1.json"
	CollectionSchema  = "https://kubebridge.io/schemas/collection-v1.json"
	AttributionSchema = "https://kubebridge.io/schemas/attribution-v1.json"
	LossSchema        = "https://kubebridge.io/schemas/loss-v1.json"
	DenialSchema      = "https://kubebridge.io/schemas/denial-v1.json"
)

// TimeFormat is the format of times in events: RFC 3339, UTC, microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// Encoder writes events as CloudEvents 1.0.
type Encoder struct {
	Cluster    string // the configured name
	ClusterUID string
	Format     Format // the format of the messages' values
}

// Of returns an encoder for the events of one collection. It computes once
// what these events have in common.
func (c Encoder) Of(col *Collection) CollectionEncoder {
	return CollectionEncoder{c, col.ID(), "/clusters/" + c.Cluster + "/" + col.GroupOrCore() + "/" + col.Resource}
}

// CollectionEncoder writes the events of one collection. [Encoder.Of] makes it.
type CollectionEncoder struct {
	Encoder
	collection, source string
}

// Attributes returns the CloudEvents context attributes of e in the order of the
// specification, extensions last. Attributes without a value are left out.
func (c Encoder) Attributes(e *Event) []Attribute {
	of := c.Of(e.Collection)
	return of.AppendAttributes(make([]Attribute, 0, MaxAttributes), e, new(Text))
}

// MaxAttributes is the largest number of attributes that an event has.
const MaxAttributes = 36

// AppendAttributes appends what [Encoder.Attributes] returns for an event of the
// collection. text provides the memory of values that are made for this event.
func (c *CollectionEncoder) AppendAttributes(dst []Attribute, e *Event, text *Text) []Attribute {
	var buffer [256]byte
	col := e.Collection
	subject, namespace := e.Name, e.Namespace
	switch {
	case e.Type.OfCollection():
		subject, namespace = "", col.Namespace
	case e.Namespace != "" && e.Name != "":
		b := append(append(buffer[:0], e.Namespace...), '/')
		subject = text.Of(append(b, e.Name...))
	}
	epoch := ""
	if e.Epoch > 1 {
		epoch = utoa(e.Epoch)
	}
	add := func(name, value string) {
		if value != "" {
			dst = append(dst, Attribute{name, value})
		}
	}
	add("specversion", "1.0")
	add("id", text.Of(e.appendID(buffer[:0])))
	add("source", c.source)
	add("type", e.Type.CloudEvent())
	add("subject", subject)
	add("time", text.ofTime(e.Time))
	add("datacontenttype", DataContentType)
	add("dataschema", c.schema(e.Type))
	add("cluster", c.Cluster)
	add("clusteruid", c.ClusterUID)
	add("collection", c.collection)
	add("group", col.Group)
	add("apiversion", e.APIVersion)
	add("kind", e.Kind)
	add("resource", col.Resource)
	add("namespace", namespace)
	add("name", e.Name)
	add("uid", e.UID)
	add("resourceversion", e.ResourceVersion)
	add("epoch", epoch)
	add("run", e.Run)
	add("incarnation", text.ofNumber(e.Incarnation))
	add("entry", col.Entry)
	add("deletionversion", e.DeletionVersion)
	if p := e.Plan; p != nil {
		add("plan", utoa(p.Number))
		add("plandigest", p.Digest)
		add("edit", utoa(p.Edit))
		add("birth", utoa(p.Birth))
	}
	add("origin", string(e.Origin))
	if e.DeadLetter != nil {
		add("deadletterreason", e.DeadLetter.Reason)
		add("deadletterroute", e.DeadLetter.Route)
		add("deadlettersize", positive(e.DeadLetter.Size))
		add("deadletterlimit", positive(e.DeadLetter.Limit))
	}
	if c.Format == Plain {
		dst = e.appendPlainAttributes(dst)
	}
	return dst
}

// schema returns the schema of the data of events of a type; "": a plain object has no schema of this project.
func (c *CollectionEncoder) schema(t Type) string {
	switch {
	case t.OfCollection():
		return CollectionSchema
	case t == Attributed:
		return AttributionSchema
	case t == Denied:
		return DenialSchema
	case t == Lost:
		return LossSchema
	case c.Format == Plain:
		return ""
	}
	return ObjectSchema
}

// positive formats a number; "" for 0.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return utoa(uint64(n))
}

// appendHead appends the beginning of a structured event (CloudEvents JSON format, section 3), up to its data.
func appendHead(dst []byte, attributes []Attribute) []byte {
	dst = append(dst, '{')
	for _, a := range attributes {
		dst = append(dst, '"')
		dst = append(dst, a.Name...)
		dst = append(dst, '"', ':')
		dst = appendString(dst, a.Value)
		dst = append(dst, ',')
	}
	return append(dst, `"data":`...)
}

// appendData appends the event's data. The object is in dst from begin to end.
func (e *Event) appendData(dst []byte, body func([]byte) []byte) (_ []byte, begin, end int) {
	switch {
	case e.Type.OfCollection():
		return e.appendReport(dst), 0, 0
	case e.Type.OfRequest():
		return e.appendRequest(dst), 0, 0
	}
	dst = append(dst, `{"object":`...)
	dst, begin, end = e.appendObject(dst, body)
	if begin == end {
		dst = append(dst, `,"bodyknown":false`...)
	}
	if e.Reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = appendString(dst, e.Reason)
	}
	if e.Base != "" {
		dst = append(dst, `,"base":`...)
		dst = appendString(dst, e.Base)
	}
	for _, v := range [...]struct {
		name  string
		value []byte
	}{{`,"before":`, e.Before}, {`,"patch":`, e.Patch}, {`,"changedby":`, e.ChangedBy}} {
		if v.value != nil {
			dst = append(dst, v.name...)
			dst = append(dst, v.value...)
		}
	}
	if len(e.LeftOut) > 0 {
		b, _ := json.Marshal(e.LeftOut)
		dst = append(dst, `,"leftout":`...)
		dst = append(dst, b...)
	}
	if e.Truncated != nil {
		b, _ := json.Marshal(e.Truncated)
		dst = append(dst, `,"truncated":`...)
		dst = append(dst, b...)
	}
	if e.Actor != nil {
		dst = append(dst, `,"actor":`...)
		dst = appendWho(dst, e.Actor)
	}
	return append(dst, '}'), begin, end
}

// appendIdentityOnly appends an object of which only the identity is known.
func (e *Event) appendIdentityOnly(dst []byte) []byte {
	dst = append(dst, `{"apiVersion":`...)
	dst = appendString(dst, e.APIVersion)
	dst = append(dst, `,"kind":`...)
	dst = appendString(dst, e.Kind)
	dst = append(dst, `,"metadata":{"name":`...)
	dst = appendString(dst, e.Name)
	if e.Namespace != "" {
		dst = append(dst, `,"namespace":`...)
		dst = appendString(dst, e.Namespace)
	}
	dst = append(dst, `,"uid":`...)
	dst = appendString(dst, e.UID)
	return append(dst, '}', '}')
}

// appendString quotes s. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	if !plain(s) {
		return appendQuote(dst, s)
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// plain reports whether s needs no escaping in JSON: it is ASCII without control characters, quotes and backslashes.
func plain(s string) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quote, slash := x^('"'*ones), x^('\\'*ones)
		// The high bit of a byte is set if the byte is 0x7f or above, below a space, a quote or a backslash. There may be false alarms.
		if (x|(x+ones)|(x-' '*ones)|(quote-ones)|(slash-ones)&^slash)&highs != 0 && !plainBytes(s[:8]) {
			return false
		}
	}
	return plainBytes(s)
}

func plainBytes(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// appendQuote quotes any s; AppendQuote's error only reports invalid UTF-8.
func appendQuote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
