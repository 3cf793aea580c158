package manager

import (
	"bytes"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// maxDepth is how deeply fields are followed: what is owned below is told as one.
const maxDepth = 100

// walk tells the places of a FieldsV1 where a and b differ, nil for what is not
// there. What is the same is not looked into, so that a change costs about what it
// touches. FieldsV1 is the format of sigs.k8s.io/structured-merge-diff, fieldpath
// (serialize.go): an object whose names are places, "f:" and a member's name, "k:"
// and the key of an element, "v:" and an element's value, "i:" and its index, or "."
// for the container itself; {} ends a path.
func (t *Teller) walk(fields, a, b []byte) error {
	if bytes.Equal(a, b) || fields == nil { // or neither is there
		return nil
	}
	low := len(t.scratch)
	defer func() { t.scratch = t.scratch[:low] }()
	places, err := t.scratchOf(fields)
	if err != nil {
		return err
	}
	if len(places) == 0 && t.depth == 0 {
		return nil // nothing is owned, where further down {} means all that is there
	}
	whole := len(places) == 0 || t.depth == maxDepth
	switch {
	case a == nil || b == nil: // then what its owner has in it comes or goes with it
		whole = whole || raw.Find(places, []byte(".")) != nil
	case whole:
		if others, err := t.othersHave(a, b); others || err != nil {
			return err
		}
	}
	if whole {
		if t.gone == (b == nil) {
			t.tell()
		}
		return nil
	}
	as, bs, err := t.both(a, b)
	if err != nil {
		return err
	}
	t.depth++
	defer func() { t.depth-- }()
	path := len(t.path)
	for _, p := range places {
		if len(p.Name) < 2 || p.Name[1] != ':' {
			continue // "."
		}
		x, y, err := t.child(p.Name, as, bs)
		if err == nil {
			t.places = append(t.places, p.Name)
			err = t.walk(p.Value, x, y)
			t.places = t.places[:len(t.places)-1]
		}
		if err != nil {
			return err
		}
		t.path = t.path[:path]
	}
	return nil
}

// othersHave reports whether a change from a to b, both at a place that a FieldsV1 has as
// {}, is not its owner's: {} is all that is there, such as an atomic list, or only the
// container of places that other managers own or have owned. Without any such manager it
// may still be the latter if b is empty: it is not noted who removed the last.
func (t *Teller) othersHave(a, b []byte) (bool, error) {
	container := func(v []byte) bool { return v[0] == '{' || v[0] == '[' }
	null := func(v []byte) bool { return v[0] == 'n' } // may be an empty container
	switch {
	case container(a) && (a[0] == b[0] || null(b)), null(a) && container(b):
	default:
		return false, nil
	}
	for i := range t.entries {
		if found, err := t.below(t.entries[i].fields); found || err != nil {
			return found, err
		}
	}
	_, bs, err := t.both(a, b)
	return !t.certain && len(bs.members)+len(bs.elements) == 0, err
}

// below reports whether a FieldsV1 has places below the present one.
func (t *Teller) below(fields []byte) (bool, error) {
	low := len(t.scratch)
	defer func() { t.scratch = t.scratch[:low] }()
	for _, place := range t.places {
		if fields == nil {
			return false, nil
		}
		places, err := t.scratchOf(fields)
		if err != nil {
			return false, err
		}
		fields = raw.Find(places, place)
	}
	if fields == nil {
		return false, nil
	}
	places, err := t.scratchOf(fields)
	return len(places) > 0, err
}

func (t *Teller) tell() {
	if len(t.change.Paths) == t.MaxPaths {
		t.change.More++
		return
	}
	path := t.path
	if len(path) > 0 && path[0] == '.' {
		path = path[1:]
	}
	t.change.Paths = append(t.change.Paths, string(path))
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

func (t *Teller) both(a, b []byte) (as, bs children, err error) {
	var p pair
	if len(a) > 0 {
		p.a = &a[0]
	}
	if len(b) > 0 {
		p.b = &b[0]
	}
	for i := range t.pairs {
		if t.pairs[i].a == p.a && t.pairs[i].b == p.b {
			return t.pairs[i].as, t.pairs[i].bs, nil
		}
	}
	if p.as, err = t.children(a); err != nil {
		return as, bs, err
	}
	if p.bs, err = t.children(b); err != nil {
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
	t.pairs = append(t.pairs, p)
	return p.as, p.bs, nil
}

func (t *Teller) children(of []byte) (c children, err error) {
	switch {
	case len(of) == 0:
	case of[0] == '{':
		low := len(t.members)
		t.members, err = raw.AppendMembers(&t.scan, t.members, of)
		c.members = t.members[low:]
	case of[0] == '[':
		low := len(t.elements)
		t.elements, err = raw.AppendElements(&t.scan, t.elements, of)
		c.elements = t.elements[low:]
	}
	return c, err
}

func (t *Teller) scratchOf(text []byte) (members []raw.Member, err error) {
	low := len(t.scratch)
	t.scratch, err = raw.AppendMembers(&t.scan, t.scratch, text)
	return t.scratch[low:], err
}

// child finds what a place names in both containers, and adds the place to the path.
// Elements that did not change are not found.
func (t *Teller) child(place []byte, as, bs children) (x, y []byte, err error) {
	what := place[2:]
	switch place[0] {
	case 'f':
		x, y = raw.Find(as.members, what), raw.Find(bs.members, what)
		if !bytes.Equal(x, y) {
			t.pushName(what)
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
		t.path = append(append(append(t.path, '['), what...), ']')
		return x, y, nil
	case 'v':
		t.scan.Reset(what)
		err := t.scan.Skip()
		if err == nil {
			err = t.scan.End()
		}
		if err != nil {
			return nil, nil, err
		}
		is := func(element []byte) (bool, error) { return equal(element, what), nil }
		x, y, err = as.find(bs, is)
		t.path = append(append(append(t.path, "[="...), what...), ']')
		return x, y, err
	case 'k':
		low := len(t.scratch)
		defer func() { t.scratch = t.scratch[:low] }()
		keys, err := t.scratchOf(what)
		if err != nil {
			return nil, nil, err
		}
		x, y, err = as.find(bs, func(element []byte) (bool, error) { return t.has(element, keys) })
		for i, k := range keys {
			t.path = append(t.path, "[,"[min(i, 1)])
			t.path = append(append(append(t.path, k.Name...), '='), k.Value...)
		}
		t.path = append(t.path, ']')
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

// has tells whether an element has all the keys.
func (t *Teller) has(element []byte, keys []raw.Member) (bool, error) {
	if element[0] != '{' {
		return false, nil
	}
	low := len(t.scratch)
	defer func() { t.scratch = t.scratch[:low] }()
	members, err := t.scratchOf(element)
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
func (t *Teller) pushName(name []byte) {
	word := len(name) > 0
	for i, c := range name {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			word = false
		}
	}
	if word {
		t.path = append(append(t.path, '.'), name...)
		return
	}
	t.path = append(quote(append(t.path, '['), string(name)), ']')
}
