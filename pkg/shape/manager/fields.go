package manager

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// maxDepth bounds how deeply fields are followed. A place at this depth is reported as a whole.
const maxDepth = 100

// walk adds to the change the places of a FieldsV1 in which the values a and b differ. nil stands for an absent value.
// It does not descend into equal values, so that its cost depends on the size of the change. FieldsV1 is the format of
// sigs.k8s.io/structured-merge-diff, fieldpath (serialize.go): an object whose names are places, "f:" and a member's
// name, "k:" and the key of an element, "v:" and an element's value, "i:" and its index, or "." for the container
// itself; {} ends a path.
//
// place identifies the place, as [Finder.within] says.
func (f *Finder) walk(fields, a, b []byte, place uint64) error {
	if bytes.Equal(a, b) || fields == nil { // or neither is there
		return nil
	}
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	if f.Steps() > f.budget {
		return ErrCostly
	}
	places, err := f.scratchOf(fields)
	if err != nil {
		return err
	}
	if len(places) == 0 && f.depth == 0 {
		return nil // at the top, {} means that nothing is owned; further down it means the whole value
	}
	whole := len(places) == 0 || f.depth == maxDepth
	switch {
	case a == nil || b == nil: // the container itself was added or removed, with everything that its owner has in it
		whole = whole || raw.Find(places, []byte(".")) != nil
	case whole:
		if others, err := f.mayBeOthers(a, b, place); others || err != nil {
			return err
		}
	}
	if whole {
		if f.gone == (b == nil) {
			f.addPath()
		}
		return nil
	}
	both, err := f.pairOf(a, b)
	if err != nil {
		return err
	}
	f.depth++
	defer func() { f.depth-- }()
	path := len(f.path)
	for _, p := range places {
		if len(p.Name) < 2 || p.Name[1] != ':' {
			continue // "." is the container itself
		}
		x, y, err := f.child(p.Name, both)
		if err == nil && !bytes.Equal(x, y) {
			err = f.walk(p.Value, x, y, f.within(place, p.Name))
		}
		if err != nil {
			return err
		}
		f.path = f.path[:path]
	}
	return nil
}

// mayBeOthers reports whether a change from a to b may be another manager's, although the FieldsV1 owns the place as
// {}. {} means either the whole value, such as an atomic list, or only the
// container of places that other managers own. If no other manager owns a place in it now, but b is
// empty, another manager may have removed the last one: managedFields do not record that.
func (f *Finder) mayBeOthers(a, b []byte, place uint64) (bool, error) {
	container := func(v []byte) bool { return v[0] == '{' || v[0] == '[' }
	null := func(v []byte) bool { return v[0] == 'n' } // may be an empty container
	switch {
	case container(a) && (a[0] == b[0] || null(b)), null(a) && container(b):
	default:
		return false, nil
	}
	if f.parents == nil {
		f.parents = map[uint64]bool{}
		for i := range f.entries {
			if fields := f.entries[i].fields; fields != nil {
				f.scan.Reset(fields)
				if err := f.readParents(0); err != nil {
					return false, err
				}
			}
		}
	}
	if f.parents[place] {
		return true, nil
	}
	both, err := f.pairOf(a, b)
	return err == nil && !f.certain && len(both.b.members)+len(both.b.elements) == 0, err
}

// readParents records the places of a FieldsV1 that have places below them.
func (f *Finder) readParents(place uint64) error {
	return f.scan.Members(func(name []byte, _ int) error {
		f.parents[place] = true
		return f.readParents(f.within(place, name))
	})
}

// within returns the identifier of a place from its name and the identifier of the place above, which is 0 for the whole object.
func (f *Finder) within(place uint64, name []byte) uint64 {
	return maphash.Comparable(f.seed, [2]uint64{place, maphash.Bytes(f.seed, name)})
}

func (f *Finder) addPath() {
	path := f.path
	if len(path) > 0 && path[0] == '.' {
		path = path[1:]
	}
	if f.HideValues {
		f.others += int64(len(path))
		if slices.Contains(f.change.Paths, string(path)) {
			return
		}
	}
	if len(f.change.Paths) == f.MaxPaths {
		f.change.More++
		return
	}
	f.others += int64(len(path))
	f.change.Paths = append(f.change.Paths, string(path))
}

// children are the members or elements of a container.
type children struct {
	members  []raw.Member // sorted
	elements [][]byte
	differ   [][]byte // elements without the equal ones at the beginning and the end of both lists
}

func (c *children) member(name string) []byte { return raw.Lookup(c.members, []byte(name)) }

// pair is a container in both states. It is read once, for all managers.
type pair struct {
	a, b    children
	indexes map[uint64]index // indexes of the elements that differ, by the names of their keys
}

func (f *Finder) pairOf(a, b []byte) (p *pair, err error) {
	var at [2]*byte
	if len(a) > 0 {
		at[0] = &a[0]
	}
	if len(b) > 0 {
		at[1] = &b[0]
	}
	if p := f.pairs[at]; p != nil {
		return p, nil
	}
	p = &pair{}
	if p.a, err = f.children(a); err != nil {
		return nil, err
	}
	if p.b, err = f.children(b); err != nil {
		return nil, err
	}
	x, y := p.a.elements, p.b.elements
	for len(x) > 0 && len(y) > 0 && bytes.Equal(x[0], y[0]) {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && bytes.Equal(x[len(x)-1], y[len(y)-1]) {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	p.a.differ, p.b.differ = x, y
	f.pairs[at] = p
	return p, nil
}

func (f *Finder) children(of []byte) (c children, err error) {
	switch {
	case len(of) == 0:
	case of[0] == '{':
		low := len(f.members)
		f.begin(of)
		f.members, err = raw.ReadMembers(&f.scan, f.members)
		c.members = f.members[low:]
		raw.Sort(c.members)
	case of[0] == '[':
		low := len(f.elements)
		f.begin(of)
		f.elements, err = raw.ReadElements(&f.scan, f.elements)
		c.elements = f.elements[low:]
	}
	return c, err
}

// begin begins to read a part of one of the objects. The known ends of its containers let the scanner skip them without reading.
func (f *Finder) begin(part []byte) {
	for i := range f.ends {
		if f.ends[i].Has(part) {
			f.scan.ResetWithin(part, &f.ends[i])
			return
		}
	}
	f.scan.Reset(part)
}

func (f *Finder) scratchOf(text []byte) (members []raw.Member, err error) {
	low := len(f.scratch)
	f.scratch, err = raw.AppendMembers(&f.scan, f.scratch, text)
	return f.scratch[low:], err
}

// child returns the values of a place in both containers, and appends the place to the path.
// It does not find elements that did not change.
func (f *Finder) child(place []byte, both *pair) (x, y []byte, err error) {
	what := place[2:]
	switch place[0] {
	case 'f':
		x, y = raw.Lookup(both.a.members, what), raw.Lookup(both.b.members, what)
		if !bytes.Equal(x, y) {
			f.pushName(what)
		}
		return x, y, nil
	case 'i':
		if i, err := strconv.Atoi(string(what)); err == nil && i >= 0 {
			if i < len(both.a.elements) {
				x = both.a.elements[i]
			}
			if i < len(both.b.elements) {
				y = both.b.elements[i]
			}
		}
		f.pushSelector(what)
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
		x, y, err = f.element(both, nil, f.scalar(0, what))
		f.pushSelector([]byte("="), what)
		return x, y, err
	case 'k':
		low := len(f.scratch)
		defer func() { f.scratch = f.scratch[:low] }()
		keys, err := f.scratchOf(what)
		if err != nil {
			return nil, nil, err
		}
		id := uint64(0)
		var selector [][]byte
		for i, k := range keys {
			id = f.scalar(id, k.Value)
			selector = append(selector, []byte(",")[:min(i, 1)], k.Name, []byte("="), k.Value)
		}
		x, y, err = f.element(both, keys, id)
		f.pushSelector(selector...)
		return x, y, err
	}
	return nil, nil, nil // a kind of place that this version does not know
}

// index finds the differing elements of both lists by the values of certain keys.
type index struct{ a, b map[uint64][]byte }

// element returns the first differing element of each list whose values of the keys have the identifier id. If keys is
// nil, id identifies the element itself.
func (f *Finder) element(both *pair, keys []raw.Member, id uint64) (x, y []byte, err error) {
	if len(both.a.differ)+len(both.b.differ) == 0 {
		return nil, nil, nil
	}
	names := uint64(0)
	for _, k := range keys {
		names = f.within(names, k.Name)
	}
	if keys != nil {
		names++ // an empty list of keys is not the same as nil
	}
	i, ok := both.indexes[names]
	if !ok {
		if i.a, err = f.index(both.a.differ, keys); err == nil {
			i.b, err = f.index(both.b.differ, keys)
		}
		if err != nil {
			return nil, nil, err
		}
		if both.indexes == nil {
			both.indexes = map[uint64]index{}
		}
		both.indexes[names] = i
	}
	return i.a[id], i.b[id], nil
}

func (f *Finder) index(elements [][]byte, keys []raw.Member) (map[uint64][]byte, error) {
	out := make(map[uint64][]byte, len(elements))
	for _, e := range elements {
		if f.Steps() > f.budget {
			return nil, ErrCostly
		}
		id, ok, err := f.identity(e, keys)
		if err != nil {
			return nil, err
		}
		if _, there := out[id]; ok && !there {
			out[id] = e
		}
	}
	return out, nil
}

// identity returns the identifier of the element's values of the keys; ok is false if it does not have all of them. If keys is nil
// it returns the identifier of the element itself.
func (f *Finder) identity(element []byte, keys []raw.Member) (id uint64, ok bool, err error) {
	if keys == nil {
		return f.scalar(0, element), true, nil
	}
	if element[0] != '{' {
		return 0, false, nil
	}
	low := len(f.scratch)
	defer func() { f.scratch = f.scratch[:low] }()
	members, err := f.scratchOf(element)
	if err != nil {
		return 0, false, err
	}
	raw.Sort(members)
	f.others += int64((len(members) + len(keys)) * bits.Len(uint(len(members))))
	for _, k := range keys {
		v := raw.Lookup(members, k.Name)
		if v == nil {
			return 0, false, nil
		}
		id = f.scalar(id, v)
	}
	return id, true, nil
}

// scalar returns the identifier of a value that follows other values. Strings are compared unquoted, because equal ones may
// be written in several ways.
func (f *Finder) scalar(before uint64, v []byte) uint64 {
	if len(v) > 0 && v[0] == '"' {
		return f.within(before+1, scan.Unquote(v))
	}
	return f.within(before, v)
}

// pushName appends a member's name to the path, quoted unless it is a word.
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
	f.pushSelector(quote(nil, string(name)))
}

// pushSelector appends parts in brackets to the path.
func (f *Finder) pushSelector(parts ...[]byte) {
	if f.HideValues {
		f.path = append(f.path, "[*]"...)
		return
	}
	f.path = append(f.path, '[')
	for _, part := range parts {
		f.path = append(f.path, part...)
	}
	f.path = append(f.path, ']')
}
