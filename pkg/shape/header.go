package shape

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Limits of configured headers. NATS accepts 64 KiB of headers per message, which the attributes and
// the changes of the checkpoint share.
const (
	MaxHeaders      = 16
	maxHeaderName   = 64      // bytes
	maxHeaderValue  = 1 << 10 // bytes; a longer one is left out
	reservedHeaders = "content-type, and what begins with ce_, ce-, nats- or kubebridge-"
)

var (
	headerForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]*$`)
	reserved   = regexp.MustCompile(`(?i)^(content-type$|ce[_-]|nats-|kubebridge-)`)
)

// Headers are the configured headers of messages, beside the attributes. The zero value has none.
type Headers struct {
	list   []header
	wanted []string // label:KEY and annotation:KEY of all templates
}

type header struct {
	name  string
	value *Template
}

// ParseHeaders reads templates; the map's keys are the names of the headers. The error has one
// line for each invalid header, which begins with the header's name.
func ParseHeaders(templates map[string]string) (Headers, error) {
	var h Headers
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		value, err := ParseTemplate(templates[name], HeaderNames)
		switch {
		case !headerForm.MatchString(name) || len(name) > maxHeaderName:
			err = fmt.Errorf("a header's name has letters, digits, -, _ and ., at most %d", maxHeaderName)
		case reserved.MatchString(name):
			err = fmt.Errorf("%s are the bridge's own: choose another name", reservedHeaders)
		case h.index(name) >= 0:
			err = errors.New("it is there twice, in capitals or not")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		h.list = append(h.list, header{name, value})
	}
	if len(h.list) > MaxHeaders {
		errs = append(errs, fmt.Errorf("%s: it is one of %d headers, %d are the most", h.list[MaxHeaders].name, len(h.list), MaxHeaders))
	}
	h.want()
	return h, errors.Join(errs...)
}

// index returns the index of the header with the name, ignoring case; -1 if there is none.
func (h *Headers) index(name string) int {
	return slices.IndexFunc(h.list, func(x header) bool { return strings.EqualFold(x.name, name) })
}

func (h *Headers) want() {
	h.wanted = nil
	for _, x := range h.list {
		for _, name := range x.value.names {
			if strings.Contains(name, ":") && !slices.Contains(h.wanted, name) {
				h.wanted = append(h.wanted, name)
			}
		}
	}
}

// With returns the headers of h and others. If both have a header of one name, it is that of others.
func (h Headers) With(others Headers) Headers {
	out := Headers{list: slices.Clone(h.list)}
	for _, x := range others.list {
		if i := out.index(x.name); i >= 0 {
			out.list[i] = x
		} else {
			out.list = append(out.list, x)
		}
	}
	out.want()
	return out
}

// Len returns the number of headers.
func (h *Headers) Len() int { return len(h.list) }

// Append appends the headers of an event. body is the body as it is published; nil if it is not
// known. A header is left out if a name in its template has no value, or if it would be longer
// than 1 KiB. text provides the memory of the values. {entry} is the name alone, without the @
// that keys have behind it.
func (h *Headers) Append(dst []event.Attribute, v Values, body []byte, text *event.Text) []event.Attribute {
	var (
		found  [2 * MaxHeaders][]byte
		buffer [maxHeaderValue]byte
		values = found[:]
	)
	if len(h.wanted) > len(found) {
		values = make([][]byte, len(h.wanted))
	}
	if len(h.wanted) > 0 && body != nil {
		h.find(values, body)
	}
	v.Entry = strings.TrimSuffix(v.Entry, "@")
next:
	for _, x := range h.list {
		value := append(buffer[:0], x.value.literals[0]...)
		for i, name := range x.value.names {
			var part []byte
			if at := slices.Index(h.wanted, name); at >= 0 {
				part = values[at]
				if part == nil {
					continue next
				}
				value = append(value, part...)
			} else if known := v.get(name); known != "" {
				value = append(value, known...)
			} else {
				continue next
			}
			value = append(value, x.value.literals[i+1]...)
		}
		if len(value) <= maxHeaderValue {
			dst = append(dst, event.Attribute{Name: x.name, Value: text.Of(value)})
		}
	}
	return dst
}

var errFound = errors.New("metadata was read")

// find puts the wanted labels and annotations of an object into values. A value stays nil if the object does not
// have it, or if it cannot be read.
func (h *Headers) find(values [][]byte, body []byte) {
	var s scan.Scanner
	s.Reset(body)
	among := func(prefix string) error {
		return s.Members(func(name []byte, _ int) error {
			for i, wanted := range h.wanted {
				if key, ok := strings.CutPrefix(wanted, prefix); ok && key == string(name) {
					value, err := s.Unquoted()
					if err == nil {
						values[i] = append(make([]byte, 0, len(value)), value...)
					}
					return err
				}
			}
			return s.Skip()
		})
	}
	_ = s.Members(func(name []byte, _ int) error { // a body that is no object has no labels and annotations
		if string(name) != "metadata" {
			return s.Skip()
		}
		err := s.Members(func(name []byte, _ int) error {
			switch string(name) {
			case "labels":
				return among(labelPrefix)
			case "annotations":
				return among(annotationPrefix)
			default:
				return s.Skip()
			}
		})
		return cmp.Or(err, errFound)
	})
}
