package event

import (
	"encoding/json"
	"fmt"
)

// Format is how an event stands in a message: what of it is the value, and what
// stands in headers alone. The zero value is Structured.
type Format uint8

// The formats of a message. Attributes are headers in each of them.
const (
	// Structured: the value is the whole event (CloudEvents JSON format).
	Structured Format = iota
	// Binary: the value is the event's data, its attributes are in the headers
	// alone (CloudEvents binary content mode).
	Binary
	// Plain: the value is the object, or the report of a collection event. What
	// else data would say is in attributes of [Encoder.Attributes]. A CloudEvent
	// in binary content mode, too, with other data.
	Plain
)

var formatNames = [...]string{"structured", "binary", "plain"}

// String is the format's name in the configuration.
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return "unknown"
}

// ParseFormat reads a name that [Format.String] returns; "" is Structured.
func ParseFormat(name string) (Format, error) {
	for i, known := range formatNames {
		if name == known || name == "" {
			return Format(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of structured, binary, plain", name)
}

// DataContentType is the media type of every event's data.
const DataContentType = "application/json"

// ContentType is the media type of a value, for the header content-type.
func (f Format) ContentType() string {
	if f == Structured {
		return "application/cloudevents+json; charset=UTF-8"
	}
	return DataContentType
}

// Append appends the value of e, whose attributes are given; they do not matter
// unless the format is Structured.
func (f Format) Append(dst []byte, attributes []Attribute, e *Event) []byte {
	dst, _, _ = f.append(dst, attributes, e, func(dst []byte) []byte { return append(dst, e.Object...) })
	return dst
}

// AppendWithBody is [Format.Append] for an event whose Object is yet to be made:
// body appends it, or nothing when it is not known. Object is then part of what was
// appended, in the same memory.
func (f Format) AppendWithBody(dst []byte, attributes []Attribute, e *Event, body func(dst []byte) []byte) []byte {
	dst, begin, end := f.append(dst, attributes, e, body)
	if begin < end {
		e.Object = dst[begin:end:end]
	}
	return dst
}

// append also returns where in dst the object stands.
func (f Format) append(dst []byte, attributes []Attribute, e *Event, body func([]byte) []byte) (_ []byte, begin, end int) {
	switch {
	case f == Structured:
		dst = appendHead(dst, attributes)
		dst, begin, end = e.appendData(dst, body)
		return append(dst, '}'), begin, end
	case f == Binary:
		return e.appendData(dst, body)
	case e.Type.OfCollection():
		return e.appendReport(dst), 0, 0
	default:
		return e.appendObject(dst, body)
	}
}

// appendReport writes the data of a collection event.
func (e *Event) appendReport(dst []byte) []byte {
	b, _ := json.Marshal(e.Report) // plain strings, numbers and times: cannot fail
	return append(dst, b...)
}

// appendObject writes the object, or what identifies it where body appends nothing;
// begin is then end.
func (e *Event) appendObject(dst []byte, body func([]byte) []byte) (_ []byte, begin, end int) {
	begin = len(dst)
	dst = body(dst)
	end = len(dst)
	if begin == end {
		dst = e.appendIdentityOnly(dst)
	}
	return dst, begin, end
}

// appendUndata appends the attributes that say what a plain value cannot.
func (e *Event) appendUndata(dst []Attribute) []Attribute {
	if e.Type.OfCollection() {
		return dst
	}
	if e.Object == nil {
		dst = append(dst, Attribute{"bodyknown", "false"})
	}
	if e.Reason != "" {
		dst = append(dst, Attribute{"reason", e.Reason})
	}
	if t := e.Truncated; t != nil {
		for _, a := range [...]Attribute{
			{"truncatedsize", utoa(uint64(t.Size))},
			{"truncatedsha256", t.SHA256},
			{"truncatedlimit", positive(t.Limit)},
			{"truncatedlevels", positive(t.Levels)},
		} {
			if a.Value != "" {
				dst = append(dst, a)
			}
		}
	}
	return dst
}
