package source

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// Object is one Kubernetes object as the API server sent it: its JSON, and the
// few fields that the bridge needs, found in one pass without decoding the rest.
type Object struct {
	// Raw is the object's JSON. It always has apiVersion and kind. Objects of one
	// collection may share memory: a small object may keep up to 256 KiB alive. Call Own
	// for an object that is kept for long.
	Raw             []byte
	APIVersion      string
	Kind            string
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	Ending          bool // it has a deletionTimestamp
	// CutFrom is the original size of an object in bytes if it was nested in more than
	// [event.MaxLevels] levels. A [Collection] then keeps in Raw only its apiVersion, its kind, and its metadata without annotations and
	// managedFields. 0: Raw is whole.
	CutFrom int

	gvk           [2]span // the members apiVersion and kind in Raw
	metadata      span    // the member metadata in Raw, until it is restored
	managedFields span    // the member metadata.managedFields in Raw

	levels int // depth of nested arrays and objects in Raw

	memory *piece // the piece with Raw; nil: Raw is garbage collected
}

// span is the position of a member of a JSON object, from the end of the preceding brace or member to the end of its
// value. The zero span means that the member is absent.
type span struct{ start, end int }

func (s span) empty() bool { return s.end == 0 }

func (s span) shift(n int) span {
	if s.empty() {
		return s
	}
	return span{s.start + n, s.end + n}
}

// Hash writes the body without apiVersion, kind and managedFields to h. The result is the same for an
// object from a list and from a watch. With UID and resourceVersion it shows whether an object is
// unchanged.
func (o *Object) Hash(h hash.Hash) {
	o.each([3]span{o.gvk[0], o.gvk[1], o.managedFields}, func(p span) { h.Write(o.Raw[p.start:p.end]) })
}

// AppendWithoutManagedFields appends Raw without metadata.managedFields.
func (o *Object) AppendWithoutManagedFields(dst []byte) []byte {
	o.each([3]span{o.managedFields}, func(p span) { dst = append(dst, o.Raw[p.start:p.end]...) })
	return dst
}

// each calls f with the pieces of Raw outside the members. Together the pieces are valid JSON: each removes a member
// with the comma in front of it, or with the comma behind it for the first members of their object.
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
		if rest := bytes.TrimLeft(o.Raw[at:], scan.WhiteSpace); o.Raw[m.start-1] == '{' && rest[0] == ',' {
			at = len(o.Raw) - len(rest) + 1
		}
	}
	f(span{at, len(o.Raw)})
}

// scanner finds objects in JSON texts. It is reused; the zero value is ready.
type scanner struct {
	scan.Scanner
	// last has strings of the previous object. If the next object has the same strings, they
	// are not allocated again.
	last Object
}

// once reads the value of a member that is cut out or replaced, and returns an error if the member appears twice.
func (s *scanner) once(member *span, name string, start int, value func() error) error {
	if !member.empty() {
		return fmt.Errorf("offset %d: a second %s", start, name)
	}
	err := value()
	*member = span{start, s.Offset()}
	return err
}

// str reads a string, or null as "". known is the likely value, which is not allocated again.
func (s *scanner) str(dst *string, known string) (err error) {
	*dst, err = s.String(known)
	return err
}

// object reads one Kubernetes object. Its spans and Raw refer to the text.
func (s *scanner) object() (Object, error) {
	var o Object
	switch c, err := s.Peek(); {
	case err != nil:
		return o, err
	case c != '{':
		return o, s.Unexpected("a Kubernetes object")
	}
	begin := s.Offset()
	s.Measure()
	empty := true
	err := s.Members(func(name []byte, start int) error {
		empty = false
		switch string(name) {
		case "apiVersion":
			return s.once(&o.gvk[0], "apiVersion", start, func() error { return s.str(&o.APIVersion, s.last.APIVersion) })
		case "kind":
			return s.once(&o.gvk[1], "kind", start, func() error { return s.str(&o.Kind, s.last.Kind) })
		case "metadata":
			return s.once(&o.metadata, "metadata", start, func() error { return s.metadata(&o) })
		default:
			return s.Skip()
		}
	})
	if err != nil {
		return o, err
	}
	end := s.Offset()
	if empty {
		return o, fmt.Errorf("offset %d: an empty object", end)
	}
	s.last = Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace}
	o.Raw, o.levels = s.Text()[begin:end:end], s.Levels()
	o.gvk[0], o.gvk[1] = o.gvk[0].shift(-begin), o.gvk[1].shift(-begin)
	o.metadata, o.managedFields = o.metadata.shift(-begin), o.managedFields.shift(-begin)
	return o, nil
}

func (s *scanner) metadata(o *Object) error {
	return s.Members(func(name []byte, start int) error {
		switch string(name) {
		case "name":
			return s.str(&o.Name, "")
		case "namespace":
			return s.str(&o.Namespace, s.last.Namespace)
		case "uid":
			return s.str(&o.UID, "")
		case "resourceVersion":
			return s.str(&o.ResourceVersion, "")
		case "deletionTimestamp":
			c, err := s.Peek()
			if err != nil {
				return err
			}
			o.Ending = c != 'n'
			return s.Skip()
		case "managedFields":
			return s.once(&o.managedFields, "managedFields", start, s.Skip)
		default:
			return s.Skip()
		}
	})
}

// ParseObject finds the fields of one Kubernetes object's JSON, which must have
// apiVersion and kind.
func ParseObject(raw []byte) (Object, error) {
	o, err := parseText(raw)
	if err == nil && (o.APIVersion == "" || o.Kind == "") {
		err = errors.New("it has no apiVersion or no kind")
	}
	if err != nil {
		return Object{}, fmt.Errorf("parse object: %w", err)
	}
	return o, nil
}

func parseText(raw []byte) (Object, error) {
	var s scanner
	s.Reset(raw)
	o, err := s.object()
	if err == nil {
		err = s.End()
	}
	return o, err
}
