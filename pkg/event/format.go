package event

import (
	"encoding/json"
	"fmt"
)

// Format says how an event is divided into the value and the headers of a message. The zero
// value is Structured.
type Format uint8

// The formats of a message. Attributes are headers in each of them.
const (
	// Structured: the value is the whole event (CloudEvents JSON format).
	Structured Format = iota
	// Binary: the value is the event's data; its attributes are only in the headers
	// (CloudEvents binary content mode).
	Binary
	// Plain: the value is the object, the report of a collection event, or an attribution. The other
	// members of data are in attributes of [Encoder.Attributes]. This is also a CloudEvent
	// in binary content mode, with other data.
	Plain
)

var formatNames = [...]string{"structured", "binary", "plain"}

// String returns the format's name in the configuration.
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

// Append appends the value of e. attributes are the event's attributes; only
// Structured uses them.
func (f Format) Append(dst []byte, attributes []Attribute, e *Event) []byte {
	dst, _, _ = f.append(dst, attributes, e, func(dst []byte) []byte { return append(dst, e.Object...) })
	return dst
}

// AppendWithBody is [Format.Append] for an event that has no Object yet: body appends the
// object, or nothing if it is not known. Then Object is set to the appended bytes, in the memory of
// the result.
func (f Format) AppendWithBody(dst []byte, attributes []Attribute, e *Event, body func(dst []byte) []byte) []byte {
	dst, begin, end := f.append(dst, attributes, e, body)
	if begin < end {
		e.Object = dst[begin:end:end]
	}
	return dst
}

// append appends the value. The object is in the result from begin to end.
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
	case e.Type.OfRequest():
		return e.appendRequest(dst), 0, 0
	default:
		return e.appendObject(dst, body)
	}
}

func (e *Event) appendReport(dst []byte) []byte {
	b, _ := json.Marshal(e.Report) // cannot fail: strings, numbers and times
	return append(dst, b...)
}

// appendObject appends the object. If body appends nothing, it appends the object's identity, and begin equals end.
func (e *Event) appendObject(dst []byte, body func([]byte) []byte) (_ []byte, begin, end int) {
	begin = len(dst)
	dst = body(dst)
	end = len(dst)
	if begin == end {
		dst = e.appendIdentityOnly(dst)
	}
	return dst, begin, end
}

// appendPlainAttributes appends the attributes that take the place of members of data, which a plain value does not have.
func (e *Event) appendPlainAttributes(dst []Attribute) []Attribute {
	if e.Type.OfCollection() || e.Type.OfRequest() {
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
			{"truncatedfields", t.fields()},
		} {
			if a.Value != "" {
				dst = append(dst, a)
			}
		}
	}
	return dst
}

// fields returns the fields in JSON; "": they are not known.
func (t *Truncation) fields() string {
	if t.Fields == nil {
		return ""
	}
	b, _ := json.Marshal(t.Fields) // texts
	return string(b)
}
