package patch

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/internal/base/rising"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// identity ranks the members by which an element is recognised; 0 means that the member is not one of them. An element is recognised
// by the lowest rank that it has. They are the keys of the API's lists of type map
// (x-kubernetes-list-map-keys), and keys that custom resources commonly use.
func identity(name []byte) (rank int) {
	switch string(name) {
	case "uid":
		return 1
	case "mountPath": // before "name", which is the volume's name: a volume may be mounted twice
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

// arrays writes the operations that change the array a into b. It may end early once there are more than limit bytes.
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
	from := m.pushInts(len(bs)) // for each element of b: the index of the element of a that becomes it, or -1
	if err := m.recognise(from, as, bs); err != nil {
		return err
	}
	m.pair(from, len(as))

	// Each operation applies to the list that the previous ones have left. So the order is: removals from the
	// end, moves, additions, and then changes, when every element is in its place.
	path := len(m.path)
	place := func(i int) { m.path = m.path[:path]; m.pushIndex(first + i) }
	used := m.pushInts(len(as))
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

// elementsOf returns the elements of an array of side 0 (before) or 1 (after).
func (m *Maker) elementsOf(side int, text []byte) (elements [][]byte, err error) {
	low := len(m.elements)
	m.scan.ResetWithin(text, &m.ends[side])
	m.elements, err = raw.ReadElements(&m.scan, m.elements)
	return m.elements[low:], err
}

// pushInts pushes n zeros on the stack and returns them. The stack may be reallocated; slices that were returned before stay valid.
func (m *Maker) pushInts(n int) []int {
	low := len(m.ints)
	m.ints = append(m.ints, make([]int, n)...)
	return m.ints[low : low+n : low+n]
}

// identified is an element's index with its identifier.
type identified struct {
	id    uint64
	index int
}

// recognise sets from[j] to the i for which as[i] and bs[j] have the same identifier, or to -1. Elements with
// equal identifiers are matched in their order.
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

// id returns the identifier of an element: the hash of the member that ranks first in identity, or of the whole element.
func (m *Maker) id(side int, element []byte) (uint64, error) {
	if element[0] != '{' {
		return xxhash.Sum64(element), nil
	}
	best, by := 99, element // without such a member, the whole element identifies it
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

// pair matches the remaining elements of b with removed elements of a that stand between the same neighbours: changing
// an element is shorter than removing one and adding another.
func (m *Maker) pair(from []int, n int) {
	low := len(m.ints)
	defer func() { m.ints = m.ints[:low] }()
	to := m.pushInts(n)
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

// moves writes the operations that bring the used elements of a into the order of from, with as few moves as
// possible. It may end early once there are more than limit bytes.
func (m *Maker) moves(first int, used, from []int, limit int) {
	low := len(m.ints)
	defer func() { m.ints = m.ints[:low] }()
	want := m.pushInts(len(from))[:0]
	for _, i := range from {
		if i >= 0 {
			want = append(want, i)
		}
	}
	if slices.IsSorted(want) {
		return
	}
	// An element that moves goes behind an element that stays (its anchor), or to the front, and behind elements that moved there
	// before. So places counts, for each element of a, how many elements stand at its place. Place 0 is the front.
	places := counts(m.pushInts(len(used) + 2))
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

// counts is a Fenwick tree: a list of numbers with fast updates and prefix sums. Element 0 is not used.
type counts []int

func (c counts) add(i, n int) {
	for i++; i < len(c); i += i & -i {
		c[i] += n
	}
}

// below returns the sum of the numbers before i.
func (c counts) below(i int) (sum int) {
	for ; i > 0; i -= i & -i {
		sum += c[i]
	}
	return sum
}
