package manager

import (
	"bytes"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// maxDepth is how deeply fields are followed: a place at this depth is reported as a whole.
const maxDepth = 100

// walk adds to the change the places of a FieldsV1 where a and b differ, nil for what is
// not there. What is the same is not looked into, so that a change costs about what it
// touches. FieldsV1 is the format of sigs.k8s.io/structured-merge-diff, fieldpath
// (serialize.go): an object whose names are places, "f:" and a member's name, "k:"
// and the key of an element, "v:" and an element's value, "i:" and its index, or "."
// for the container itself; {} ends a path.
func (f *Finder) walk(fields, a, b []byte) error {
	if bytes.Equal(a, b) || fields == nil { // or neither is there
		return nil
	}
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	places, err := f.scratchOf(fields)
	if err != nil {
		return err
	}
	if len(places) == 0 && f.depth == 0 {
		return nil // nothing is owned, where further down {} means all that is there
	}
	whole := len(places) == 0 || f.depth == maxDepth
	switch {
	case a == nil || b == nil: // then what its owner has in it comes or goes with it
		whole = whole || raw.Find(places, []byte(".")) != nil
	case whole:
		if others, err := f.othersHave(a, b); others || err != nil {
			return err
		}
	}
	if whole {
		if f.gone == (b == nil) {
			f.addPath()
		}
		return nil
	}
	as, bs, err := f.both(a, b)
	if err != nil {
		return err
	}
	f.depth++
	defer func() { f.depth-- }()
	path := len(f.path)
	for _, p := range places {
		if len(p.Name) < 2 || p.Name[1] != ':' {
			continue // "."
		}
		x, y, err := f.child(p.Name, as, bs)
		if err == nil {
			f.places = append(f.places, p.Name)
			err = f.walk(p.Value, x, y)
			f.places = f.places[:len(f.places)-1]
		}
		if err != nil {
			return err
		}
		f.path = f.path[:path]
	}
	return nil
}

// othersHave reports whether a change from a to b, both at a place that a FieldsV1 has as
// {}, is not its owner's: {} is all that is there, such as an atomic list, or only the
// container of places that other managers own or have owned. Without any such manager it
// may still be the latter if b is empty: it is not noted who removed the last.
func (f *Finder) othersHave(a, b []byte) (bool, error) {
	container := func(v []byte) bool { return v[0] == '{' || v[0] == '[' }
	null := func(v []byte) bool { return v[0] == 'n' } // may be an empty container
	switch {
	case container(a) && (a[0] == b[0] || null(b)), null(a) && container(b):
	default:
		return false, nil
	}
	for i := range f.entries {
		if found, err := f.below(f.entries[i].fields); found || err != nil {
			return found, err
		}
	}
	_, bs, err := f.both(a, b)
	return !f.certain && len(bs.members)+len(bs.elements) == 0, err
}

// below reports whether a FieldsV1 has places below the present one.
func (f *Finder) below(fields []byte) (bool, error) {
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	for _, place := range f.places {
		if fields == nil {
			return false, nil
		}
		places, err := f.scratchOf(fields)
		if err != nil {
			return false, err
		}
		fields = raw.Find(places, place)
	}
	if fields == nil {
		return false, nil
	}
	places, err := f.scratchOf(fields)
	return len(places) > 0, err
}

func (f *Finder) addPath() {
	if len(f.change.Paths) == f.MaxPaths {
		f.change.More++
		return
	}
	path := f.path
	if len(path) > 0 && path[0] == '.' {
		path = path[1:]
	}
	f.change.Paths = append(f.change.Paths, string(path))
}

// children are what stands in a container.
type children struct {
	members  []raw.Member
	elements [][]byte
	differ   [][]byte // of the elements: without those that are the same at both ends
}

// pair is a container in both states. Each is read once, for all managers.
type pair struct {
	a, b   *byte
	as, bs children
}

func (f *Finder) both(a, b []byte) (as, bs children, err error) {
	var p pair
	if len(a) > 0 {
		p.a = &a[0]
	}
	if len(b) > 0 {
		p.b = &b[0]
	}
	for i := range f.pairs {
		if f.pairs[i].a == p.a && f.pairs[i].b == p.b {
			return f.pairs[i].as, f.pairs[i].bs, nil
		}
	}
	if p.as, err = f.children(a); err != nil {
		return as, bs, err
	}
	if p.bs, err = f.children(b); err != nil {
		return as, bs, err
	}
	x, y := p.as.elements, p.bs.elements
	for len(x) > 0 && len(y) > 0 && bytes.Equal(x[0], y[0]) {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && bytes.Equal(x[len(x)-1], y[len(y)-1]) {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	p.as.differ, p.bs.differ = x, y
	f.pairs = append(f.pairs, p)
	return p.as, p.bs, nil
}

func (f *Finder) children(of []byte) (c children, err error) {
	switch {
	case len(of) == 0:
	case of[0] == '{':
		low := len(f.members)
		f.members, err = raw.AppendMembers(&f.scan, f.members, of)
		c.members = f.members[low:]
	case of[0] == '[':
		low := len(f.elements)
		f.elements, err = raw.AppendElements(&f.scan, f.elements, of)
		c.elements = f.elements[low:]
	}
	return c, err
}

func (f *Finder) scratchOf(text []byte) (members []raw.Member, err error) {
	low := len(f.scratch)
	f.scratch, err = raw.AppendMembers(&f.scan, f.scratch, text)
	return f.scratch[low:], err
}

// child finds what a place names in both containers, and adds the place to the path.
// Elements that did not change are not found.
func (f *Finder) child(place []byte, as, bs children) (x, y []byte, err error) {
	what := place[2:]
	switch place[0] {
	case 'f':
		x, y = raw.Find(as.members, what), raw.Find(bs.members, what)
		if !bytes.Equal(x, y) {
			f.pushName(what)
		}
		return x, y, nil
	case 'i':
		if i, err := strconv.Atoi(string(what)); err == nil && i >= 0 {
			if i < len(as.elements) {
				x = as.elements[i]
			}
			if i < len(bs.elements) {
				y = bs.elements[i]
			}
		}
		f.path = append(append(append(f.path, '['), what...), ']')
		return x, y, nil
	case 'v':
		f.scan.Reset(what)
		err := f.scan.Skip()
		if err == nil {
			err = f.scan.End()
		}
		if err != nil {
			return nil, nil, err
		}
		is := func(element []byte) (bool, error) { return equal(element, what), nil }
		x, y, err = as.find(bs, is)
		f.path = append(append(append(f.path, "[="...), what...), ']')
		return x, y, err
	case 'k':
		low := len(f.scratch)
		defer func() { f.scratch = f.scratch[:low] }()
		keys, err := f.scratchOf(what)
		if err != nil {
			return nil, nil, err
		}
		x, y, err = as.find(bs, func(element []byte) (bool, error) { return f.has(element, keys) })
		for i, k := range keys {
			f.path = append(f.path, "[,"[min(i, 1)])
			f.path = append(append(append(f.path, k.Name...), '='), k.Value...)
		}
		f.path = append(f.path, ']')
		return x, y, err
	}
	return nil, nil, nil // of a format that is not known yet
}

// find returns the first element of each that differs and is the one wanted.
func (c children) find(other children, is func(element []byte) (bool, error)) (x, y []byte, err error) {
	if x, err = c.findOne(is); err == nil {
		y, err = other.findOne(is)
	}
	return x, y, err
}

func (c children) findOne(is func(element []byte) (bool, error)) ([]byte, error) {
	for _, e := range c.differ {
		if ok, err := is(e); ok || err != nil {
			return e, err
		}
	}
	return nil, nil
}

// has reports whether an element has all the keys.
func (f *Finder) has(element []byte, keys []raw.Member) (bool, error) {
	if element[0] != '{' {
		return false, nil
	}
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	members, err := f.scratchOf(element)
	if err != nil {
		return false, err
	}
	for _, k := range keys {
		if v := raw.Find(members, k.Name); v == nil || !equal(v, k.Value) {
			return false, nil
		}
	}
	return true, nil
}

// equal compares scalars.
func equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	return a[0] == '"' && len(b) > 0 && b[0] == '"' && bytes.Equal(scan.Unquote(a), scan.Unquote(b))
}

// pushName adds a member's name to the path: quoted unless it is a word.
func (f *Finder) pushName(name []byte) {
	word := len(name) > 0
	for i, c := range name {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			word = false
		}
	}
	if word {
		f.path = append(append(f.path, '.'), name...)
		return
	}
	f.path = append(quote(append(f.path, '['), string(name)), ']')
}
