package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// Object is one Kubernetes object as the API server sent it: its JSON, and the
// few fields that the bridge needs, found in one pass without decoding the rest.
type Object struct {
	// Raw is the object's JSON. It always has apiVersion and kind.
	Raw             []byte
	APIVersion      string
	Kind            string
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string

	gvk           [2]span // the members apiVersion and kind in Raw
	metadata      span    // the member metadata in Raw, until it is restored
	managedFields span    // the member metadata.managedFields in Raw
}

// span is a member of a JSON object, from the end of what stands before it (the
// brace, or the member in front) to the end of its value. The zero span is an
// absent member.
type span struct{ start, end int }

func (s span) empty() bool { return s.end == 0 }

func (s span) shift(n int) span {
	if s.empty() {
		return s
	}
	return span{s.start + n, s.end + n}
}

// Hash is a 64-bit digest of the body without apiVersion, kind and
// managedFields: what decides, beside UID and resourceVersion, that an object is
// unchanged, whichever of list or watch it came from.
func (o *Object) Hash() uint64 {
	var d xxhash.Digest
	d.Reset()
	o.each([3]span{o.gvk[0], o.gvk[1], o.managedFields}, func(p span) { _, _ = d.Write(o.Raw[p.start:p.end]) })
	return d.Sum64()
}

// AppendWithoutManagedFields appends Raw without metadata.managedFields.
func (o *Object) AppendWithoutManagedFields(dst []byte) []byte {
	o.each([3]span{o.managedFields}, func(p span) { dst = append(dst, o.Raw[p.start:p.end]...) })
	return dst
}

// each calls f with the pieces of Raw that lie outside the members, and are valid
// JSON together: a member goes with the comma in front of it, the first ones of
// their object with the comma behind.
func (o *Object) each(members [3]span, f func(piece span)) {
	slices.SortFunc(members[:], func(a, b span) int { return a.start - b.start })
	at := 0
	for i := 0; i < len(members); i++ {
		m := members[i]
		if m.empty() {
			continue
		}
		for i+1 < len(members) && members[i+1].start == m.end {
			i++
			m.end = members[i].end
		}
		f(span{at, m.start})
		at = m.end
		if rest := bytes.TrimLeft(o.Raw[at:], whiteSpace); o.Raw[m.start-1] == '{' && rest[0] == ',' {
			at = len(o.Raw) - len(rest) + 1
		}
	}
	f(span{at, len(o.Raw)})
}

const whiteSpace = " \t\r\n" // RFC 8259, section 2

// scanner finds objects in JSON texts. It is reused; the zero value is ready.
type scanner struct {
	dec  jsontext.Decoder
	buf  bytes.Buffer
	text []byte
}

// reset begins a text. Duplicate names would cost a map per object to look for,
// and strings are passed on as they came, so neither is checked.
func (s *scanner) reset(text []byte) {
	s.text = text
	s.buf = *bytes.NewBuffer(text)
	s.dec.Reset(&s.buf, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func (s *scanner) offset() int { return int(s.dec.InputOffset()) }

// members reads an object and calls f for each of its members, with the offset
// where its span begins; f must read the value.
func (s *scanner) members(f func(name string, start int) error) error {
	t, err := s.dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() == 'n' {
		return nil
	}
	if t.Kind() != '{' {
		return fmt.Errorf("offset %d: %s where an object should be", s.offset(), t.Kind())
	}
	for s.dec.PeekKind() != '}' {
		start := s.offset()
		name, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := f(name.String(), start); err != nil {
			return err
		}
	}
	_, err = s.dec.ReadToken()
	return err
}

// end checks that nothing but white space is left.
func (s *scanner) end() error {
	switch t, err := s.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("offset %d: %s behind the end", s.offset(), t.Kind())
	}
}

// str reads a string, or null as "".
func (s *scanner) str(dst *string) error {
	t, err := s.dec.ReadToken()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case '"':
		*dst = t.String()
	case 'n':
		*dst = ""
	default:
		return fmt.Errorf("offset %d: %s where a string should be", s.offset(), t.Kind())
	}
	return nil
}

// once reads the value of a member that is cut out or replaced, and must not stand
// there a second time.
func (s *scanner) once(member *span, name string, start int, value func() error) error {
	if !member.empty() {
		return fmt.Errorf("offset %d: a second %s", start, name)
	}
	err := value()
	*member = span{start, s.offset()}
	return err
}

// object reads one Kubernetes object. Its spans and Raw refer to the text.
func (s *scanner) object() (Object, error) {
	var o Object
	if k := s.dec.PeekKind(); k != '{' {
		return o, fmt.Errorf("offset %d: %s where a Kubernetes object should be", s.offset(), k)
	}
	begin := -1
	err := s.members(func(name string, start int) error {
		if begin < 0 { // the first member: the brace stands right before it
			begin = start - 1
		}
		switch name {
		case "apiVersion":
			return s.once(&o.gvk[0], name, start, func() error { return s.str(&o.APIVersion) })
		case "kind":
			return s.once(&o.gvk[1], name, start, func() error { return s.str(&o.Kind) })
		case "metadata":
			return s.once(&o.metadata, name, start, func() error { return s.metadata(&o) })
		default:
			return s.dec.SkipValue()
		}
	})
	if err != nil {
		return o, err
	}
	if begin < 0 {
		return o, fmt.Errorf("offset %d: an empty object", s.offset())
	}
	o.Raw = s.text[begin:s.offset()]
	o.gvk[0], o.gvk[1] = o.gvk[0].shift(-begin), o.gvk[1].shift(-begin)
	o.metadata, o.managedFields = o.metadata.shift(-begin), o.managedFields.shift(-begin)
	return o, nil
}

func (s *scanner) metadata(o *Object) error {
	return s.members(func(name string, start int) error {
		switch name {
		case "name":
			return s.str(&o.Name)
		case "namespace":
			return s.str(&o.Namespace)
		case "uid":
			return s.str(&o.UID)
		case "resourceVersion":
			return s.str(&o.ResourceVersion)
		case "managedFields":
			return s.once(&o.managedFields, name, start, s.dec.SkipValue)
		default:
			return s.dec.SkipValue()
		}
	})
}

// ParseObject finds the fields of one Kubernetes object's JSON, which must have
// apiVersion and kind.
func ParseObject(raw []byte) (Object, error) {
	var s scanner
	s.reset(raw)
	o, err := s.object()
	if err == nil {
		err = s.end()
	}
	if err == nil && (o.APIVersion == "" || o.Kind == "") {
		err = errors.New("it has no apiVersion or no kind")
	}
	if err != nil {
		return Object{}, fmt.Errorf("parse object: %w", err)
	}
	return o, nil
}
