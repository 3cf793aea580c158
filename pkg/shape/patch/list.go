package patch

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/internal/rising"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// identity ranks the members by which an element is recognised, of which the
// first that it has counts; 0 is none. They are the keys of the API's lists of type map (x-kubernetes-
// list-map-keys) and what custom resources use alike.
func identity(name []byte) (rank int) {
	switch string(name) {
	case "uid":
		return 1
	case "mountPath": // before the name, which is the volume's: one may be mounted twice
		return 2
	case "devicePath":
		return 3
	case "name":
		return 4
	case "type":
		return 5
	case "key":
		return 6
	case "id":
		return 7
	case "containerPort":
		return 8
	case "port":
		return 9
	case "topologyKey":
		return 10
	case "ip":
		return 11
	case "manager":
		return 12
	}
	return 0
}

// arrays writes what makes the array b of a. It may end early once there are more than limit bytes.
func (m *Maker) arrays(a, b []byte, limit int) error {
	elements, ints := len(m.elements), len(m.ints)
	defer func() { m.elements, m.ints = m.elements[:elements], m.ints[:ints] }()
	as, err := m.elementsOf(0, a)
	if err != nil {
		return err
	}
	bs, err := m.elementsOf(1, b)
	if err != nil {
		return err
	}
	first := 0
	for first < len(as) && first < len(bs) && bytes.Equal(as[first], bs[first]) {
		first++
	}
	as, bs = as[first:], bs[first:]
	for len(as) > 0 && len(bs) > 0 && bytes.Equal(as[len(as)-1], bs[len(bs)-1]) {
		as, bs = as[:len(as)-1], bs[:len(bs)-1]
	}
	from := m.take(len(bs)) // of each element of b, the one of a that becomes it, or -1
	if err := m.recognise(from, as, bs); err != nil {
		return err
	}
	m.pair(from, len(as))

	// The operations see the list as those before them left it: what goes, from the
	// end, then what moves, then what comes, then changes where all is in place.
	path := len(m.path)
	place := func(i int) { m.path = m.path[:path]; m.pushIndex(first + i) }
	used := m.take(len(as))
	for _, i := range from {
		if i >= 0 {
			used[i] = 1
		}
	}
	for i := len(as) - 1; i >= 0 && len(m.dst) <= limit; i-- {
		if used[i] == 0 {
			place(i)
			m.operation("remove", nil)
		}
	}
	m.path = m.path[:path]
	m.moves(first, used, from, limit)
	for j, i := range from {
		if i < 0 && len(m.dst) <= limit {
			place(j)
			m.operation("add", bs[j])
		}
	}
	for j, i := range from {
		if i >= 0 && len(m.dst) <= limit {
			place(j)
			if err := m.diff(as[i], bs[j], limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// elementsOf returns the elements of an array of a side.
func (m *Maker) elementsOf(side int, text []byte) (elements [][]byte, err error) {
	low := len(m.elements)
	m.scan.ResetWithin(text, &m.ends[side])
	m.elements, err = raw.ReadElements(&m.scan, m.elements)
	return m.elements[low:], err
}

// take returns n zeros of the stack. It may move; what was taken stays.
func (m *Maker) take(n int) []int {
	low := len(m.ints)
	m.ints = append(m.ints, make([]int, n)...)
	return m.ints[low : low+n : low+n]
}

// identified is an element by what it says of itself.
type identified struct {
	id    uint64
	index int
}

// recognise sets from[j] to the i of which as[i] is the same thing as bs[j], or to -1. Of
// things that look the same the first is the first.
func (m *Maker) recognise(from []int, as, bs [][]byte) error {
	for j := range from {
		from[j] = -1
	}
	if len(as) == 0 || len(bs) == 0 {
		return nil
	}
	m.ids = m.ids[:0]
	for side, elements := range [][][]byte{as, bs} {
		for i, e := range elements {
			id, err := m.id(side, e)
			if err != nil {
				return err
			}
			m.ids = append(m.ids, identified{id, i})
		}
	}
	x, y := m.ids[:len(as)], m.ids[len(as):]
	for _, ids := range [][]identified{x, y} {
		slices.SortFunc(ids, func(a, b identified) int {
			m.others++
			return cmp.Or(cmp.Compare(a.id, b.id), a.index-b.index)
		})
	}
	for len(x) > 0 && len(y) > 0 {
		order := cmp.Compare(x[0].id, y[0].id)
		if order == 0 {
			from[y[0].index] = x[0].index
		}
		if order <= 0 {
			x = x[1:]
		}
		if order >= 0 {
			y = y[1:]
		}
	}
	return nil
}

// id is the same for elements, of either side, that are the same thing.
func (m *Maker) id(side int, element []byte) (uint64, error) {
	if element[0] != '{' {
		return xxhash.Sum64(element), nil
	}
	best, by := 99, element // nothing but itself
	s := &m.scan
	s.ResetWithin(element, &m.ends[side])
	err := s.Members(func(name []byte, _ int) error {
		v, err := s.Value()
		if err != nil {
			return err
		}
		if r := identity(name); 0 < r && r < best && v[0] != '{' && v[0] != '[' {
			best, by = r, v
		}
		return nil
	})
	return xxhash.Sum64(by) + uint64(best)<<56, err
}

// pair lets elements of b that nothing was recognised as take the place of elements
// of a that are no more, where they stand between the same ones: changing is shorter
// than removing and adding.
func (m *Maker) pair(from []int, n int) {
	low := len(m.ints)
	defer func() { m.ints = m.ints[:low] }()
	to := m.take(n)
	for i := range to {
		to[i] = -1
	}
	for j, i := range from {
		if i >= 0 {
			to[i] = j
		}
	}
	i := 0
	for j := range from {
		if from[j] >= 0 {
			i = from[j] + 1
			continue
		}
		if i < n && to[i] < 0 {
			from[j], to[i] = i, j
			i++
		}
	}
}

// moves writes the operations that bring the elements of a that are used into the order of from, with as few as
// possible. It may end early once there are more than limit bytes.
func (m *Maker) moves(first int, used, from []int, limit int) {
	low := len(m.ints)
	defer func() { m.ints = m.ints[:low] }()
	want := m.take(len(from))[:0]
	for _, i := range from {
		if i >= 0 {
			want = append(want, i)
		}
	}
	if slices.IsSorted(want) {
		return
	}
	// What moves goes behind an element that stays (the anchor), or to the front, and what moved there before. So
	// the list is that of a, of which each place holds any number of elements: the front is place 0.
	places := counts(m.take(len(used) + 2))
	for i, n := range used {
		if n > 0 {
			places.add(i+1, 1)
		}
	}
	stay, anchor := rising.Longest(want), 0
	path := len(m.path)
	for j, i := range want {
		if stay[j] {
			anchor = i + 1
			continue
		}
		if len(m.dst) > limit {
			return
		}
		at := places.below(i + 1)
		places.add(i+1, -1)
		to := places.below(anchor + 1)
		places.add(anchor, 1)
		if at == to {
			continue
		}
		m.pushIndex(first + to)
		m.open("move")
		m.path = m.path[:path]
		m.pushIndex(first + at)
		m.dst = append(append(m.dst, `,"from":"`...), m.path...)
		m.dst = append(m.dst, `"}`...)
		m.path = m.path[:path]
	}
}

// counts are numbers whose sums are kept while they change (a Fenwick tree). Element 0 is not used.
type counts []int

func (c counts) add(i, n int) {
	for i++; i < len(c); i += i & -i {
		c[i] += n
	}
}

// below is the sum of the numbers before i.
func (c counts) below(i int) (sum int) {
	for ; i > 0; i -= i & -i {
		sum += c[i]
	}
	return sum
}
