package source

import (
	"bytes"
	"errors"
	"fmt"
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
	managedFields span    // the member metadata.managedFields in Raw
}

// span is a member of a JSON object with one of the commas beside it, so that
// leaving it out leaves valid JSON. The zero span is an absent member.
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
	o.each([3]span{o.gvk[0], o.gvk[1], o.managedFields}, func(b []byte) { _, _ = d.Write(b) })
	return d.Sum64()
}

// AppendWithoutManagedFields appends Raw without metadata.managedFields.
func (o *Object) AppendWithoutManagedFields(dst []byte) []byte {
	o.each([3]span{o.managedFields}, func(b []byte) { dst = append(dst, b...) })
	return dst
}

// each calls f with the pieces of Raw that lie outside the spans.
func (o *Object) each(spans [3]span, f func([]byte)) {
	at := 0
	for {
		next := -1
		for i, s := range spans {
			if !s.empty() && s.start >= at && (next < 0 || s.start < spans[next].start) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		f(o.Raw[at:spans[next].start])
		at = spans[next].end
		spans[next] = span{}
	}
	f(o.Raw[at:])
}

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
// where the member begins; f must read the value.
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

// memberSpan is the span of the member that began at start and has just been
// read. It takes the comma in front, or the one behind where it is the first, or
// where the members in front of it, taken out too, left none.
func (s *scanner) memberSpan(start int, takenOut ...span) span {
	end := s.offset()
	if start < len(s.text) && s.text[start] == ',' {
		if !slices.ContainsFunc(takenOut, func(t span) bool { return t.end == start+1 }) {
			return span{start, end}
		}
		start++
	}
	for i := end; i < len(s.text); i++ {
		switch s.text[i] {
		case ' ', '\t', '\r', '\n':
			continue
		case ',':
			return span{start, i + 1}
		}
		break
	}
	return span{start, end}
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

// object reads one Kubernetes object. Its spans and Raw refer to the text.
func (s *scanner) object() (Object, error) {
	var o Object
	if k := s.dec.PeekKind(); k != '{' {
		return o, fmt.Errorf("offset %d: %s where a Kubernetes object should be", s.offset(), k)
	}
	begin := -1
	err := s.members(func(name string, start int) error {
		if begin < 0 { // the first member: the brace stands right before it
			begin = bytes.LastIndexByte(s.text[:start], '{')
		}
		var err error
		switch name {
		case "apiVersion":
			err = s.str(&o.APIVersion)
			o.gvk[0] = s.memberSpan(start, o.gvk[1])
		case "kind":
			err = s.str(&o.Kind)
			o.gvk[1] = s.memberSpan(start, o.gvk[0])
		case "metadata":
			err = s.metadata(&o)
		default:
			err = s.dec.SkipValue()
		}
		return err
	})
	if err != nil {
		return o, err
	}
	if begin < 0 {
		return o, fmt.Errorf("offset %d: an empty object", s.offset())
	}
	o.Raw = s.text[begin:s.offset()]
	o.gvk[0], o.gvk[1] = o.gvk[0].shift(-begin), o.gvk[1].shift(-begin)
	o.managedFields = o.managedFields.shift(-begin)
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
			err := s.dec.SkipValue()
			o.managedFields = s.memberSpan(start)
			return err
		default:
			return s.dec.SkipValue()
		}
	})
}

// restoreGVK puts apiVersion and kind in front where the server left them out,
// as it does in lists of built-in types.
func (o *Object) restoreGVK(apiVersion, kind string) {
	if o.APIVersion != "" && o.Kind != "" {
		return
	}
	head := append(make([]byte, 0, 64), `{"apiVersion":`...)
	head, _ = jsontext.AppendQuote(head, apiVersion) // discovery's names are valid UTF-8
	head = append(head, `,"kind":`...)
	head, _ = jsontext.AppendQuote(head, kind)
	head = append(head, ',')

	raw := append(make([]byte, 0, len(head)+len(o.Raw)), head...)
	openingBrace := span{0, 1}
	o.each([3]span{openingBrace, o.gvk[0], o.gvk[1]}, func(b []byte) { raw = append(raw, b...) })
	o.Raw = raw
	cut := 0
	for _, s := range o.gvk {
		if !s.empty() && s.start < o.managedFields.start {
			cut += s.end - s.start
		}
	}
	o.managedFields = o.managedFields.shift(len(head) - 1 - cut)
	o.gvk = [2]span{{1, len(head)}, {}}
	o.APIVersion, o.Kind = apiVersion, kind
}

// ParseObject finds the fields of one Kubernetes object's JSON, which must have
// apiVersion and kind.
func ParseObject(raw []byte) (Object, error) {
	var s scanner
	s.reset(raw)
	o, err := s.object()
	if err == nil && (o.APIVersion == "" || o.Kind == "") {
		err = errors.New("it has no apiVersion or no kind")
	}
	if err != nil {
		return Object{}, fmt.Errorf("parse object: %w", err)
	}
	return o, nil
}
