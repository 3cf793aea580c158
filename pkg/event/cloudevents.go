package event

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// The schemas of a CloudEvent's data, published in docs/schemas.
const (
	ObjectSchema     = "https://kubebridge.io/schemas/object-v1.json"
	CollectionSchema = "https://kubebridge.io/schemas/collection-v1.json"
)

// TimeFormat is how times stand in events: RFC 3339, UTC, microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// Encoder writes events as CloudEvents 1.0 in structured JSON.
type Encoder struct {
	Cluster    string // the configured name
	ClusterUID string
}

// Of returns an encoder for the events of one collection, which need not make
// again what they share.
func (c Encoder) Of(col *Collection) CollectionEncoder {
	return CollectionEncoder{c, col.ID(), "/clusters/" + c.Cluster + "/" + col.GroupOrCore() + "/" + col.Resource}
}

// CollectionEncoder writes the events of one collection. [Encoder.Of] makes it.
type CollectionEncoder struct {
	Encoder
	collection, source string
}

// Attributes returns the CloudEvents context attributes of e in the order of the
// specification, extensions last. Those without a value are left out.
func (c Encoder) Attributes(e *Event) []Attribute { return c.Of(e.Collection).Attributes(e) }

// Attributes is [Encoder.Attributes] for an event of the collection.
func (c CollectionEncoder) Attributes(e *Event) []Attribute {
	col := e.Collection
	subject, schema := "", CollectionSchema
	if !e.Type.OfCollection() {
		subject, schema = e.Name, ObjectSchema
		if e.Namespace != "" {
			subject = e.Namespace + "/" + e.Name
		}
	}
	namespace := e.Namespace
	if e.Type.OfCollection() {
		namespace = col.Namespace
	}
	epoch := ""
	if e.Epoch > 1 {
		epoch = utoa(e.Epoch)
	}
	var dead DeadLetter
	if e.DeadLetter != nil {
		dead = *e.DeadLetter
	}
	all := [...]Attribute{
		{"specversion", "1.0"},
		{"id", e.ID()},
		{"source", c.source},
		{"type", e.Type.CloudEvent()},
		{"subject", subject},
		{"time", e.Time.UTC().Format(TimeFormat)},
		{"datacontenttype", "application/json"},
		{"dataschema", schema},
		{"cluster", c.Cluster},
		{"clusteruid", c.ClusterUID},
		{"collection", c.collection},
		{"group", col.Group},
		{"apiversion", e.APIVersion},
		{"kind", e.Kind},
		{"resource", col.Resource},
		{"namespace", namespace},
		{"name", e.Name},
		{"uid", e.UID},
		{"resourceversion", e.ResourceVersion},
		{"epoch", epoch},
		{"origin", string(e.Origin)},
		{"deadletterreason", dead.Reason},
		{"deadletterroute", dead.Route},
		{"deadlettersize", positive(dead.Size)},
		{"deadletterlimit", positive(dead.Limit)},
	}
	out := make([]Attribute, 0, len(all))
	for _, a := range all {
		if a.Value != "" {
			out = append(out, a)
		}
	}
	return out
}

// positive writes a number, and nothing for 0.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return utoa(uint64(n))
}

// AppendStructured appends the CloudEvent with the given attributes and e's data
// (CloudEvents JSON format, section 3).
func AppendStructured(dst []byte, attributes []Attribute, e *Event) []byte {
	dst, _, _ = e.appendStructured(dst, attributes, func(dst []byte) []byte { return append(dst, e.Object...) })
	return dst
}

// AppendWithBody is [AppendStructured] for an event whose Object is yet to be made:
// body appends it, or nothing when it is not known. Object is then part of what was
// appended, in the same memory.
func AppendWithBody(dst []byte, attributes []Attribute, e *Event, body func(dst []byte) []byte) []byte {
	dst, begin, end := e.appendStructured(dst, attributes, body)
	if begin < end {
		e.Object = dst[begin:end:end]
	}
	return dst
}

// appendStructured also returns where in dst the object stands.
func (e *Event) appendStructured(dst []byte, attributes []Attribute, body func([]byte) []byte) (_ []byte, begin, end int) {
	dst = append(dst, '{')
	for _, a := range attributes {
		dst = append(dst, '"')
		dst = append(dst, a.Name...)
		dst = append(dst, '"', ':')
		dst = appendString(dst, a.Value)
		dst = append(dst, ',')
	}
	dst = append(dst, `"data":`...)
	if e.Type.OfCollection() {
		b, _ := json.Marshal(e.Report) // plain strings, numbers and times: cannot fail
		dst = append(dst, b...)
		return append(dst, '}'), 0, 0
	}
	dst = append(dst, `{"object":`...)
	begin = len(dst)
	dst = body(dst)
	end = len(dst)
	if begin == end {
		dst = e.appendIdentityOnly(dst)
		dst = append(dst, `,"bodyknown":false`...)
	}
	if e.Reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = appendString(dst, e.Reason)
	}
	if e.Truncated != nil {
		b, _ := json.Marshal(e.Truncated)
		dst = append(dst, `,"truncated":`...)
		dst = append(dst, b...)
	}
	return append(dst, '}', '}'), begin, end
}

// appendIdentityOnly writes an object of which only the identity is known.
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
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return appendQuote(dst, s)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// appendQuote quotes any s; AppendQuote's error only reports invalid UTF-8.
func appendQuote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
