package patch

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// maxRecognised is how many elements of one list are recognised, not counting those
// that are the same at both ends. Where more differ they are compared by index.
const maxRecognised = 4096

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

// arrays writes what makes the array b of a.
func (m *Maker) arrays(a, b []byte) error {
	elements, ints := len(m.elements), len(m.ints)
	defer func() { m.elements, m.ints = m.elements[:elements], m.ints[:ints] }()
	as, err := m.elementsOf(a)
	if err != nil {
		return err
	}
	bs, err := m.elementsOf(b)
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
	order := m.take(len(as))[:0]
	if len(as) <= maxRecognised && len(bs) <= maxRecognised {
		if err := m.recognise(from, as, bs); err != nil {
			return err
		}
		m.pair(from, len(as))
	} else {
		for j := range from {
			from[j] = j
			if j >= len(as) {
				from[j] = -1
			}
		}
	}

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
	for i := len(as) - 1; i >= 0; i-- {
		if used[i] == 0 {
			place(i)
			m.operation("remove", nil)
		}
	}
	for i, u := range used {
		if u == 1 {
			order = append(order, i)
		}
	}
	m.path = m.path[:path]
	m.moves(first, order, from)
	for j, i := range from {
		if i < 0 {
			place(j)
			m.operation("add", bs[j])
		}
	}
	for j, i := range from {
		if i >= 0 {
			place(j)
			if err := m.diff(as[i], bs[j]); err != nil {
				return err
			}
		}
	}
	m.path = m.path[:path]
	return nil
}

func (m *Maker) elementsOf(text []byte) (elements [][]byte, err error) {
	low := len(m.elements)
	m.elements, err = raw.AppendElements(&m.scan, m.elements, text)
	return m.elements[low:], err
}

// take returns n zeros of the stack. It may move; what was taken stays.
func (m *Maker) take(n int) []int {
	low := len(m.ints)
	m.ints = append(m.ints, make([]int, n)...)
	return m.ints[low : low+n : low+n]
}

// recognise sets from[j] to the i of which as[i] is the same thing as bs[j]. Of
// things that look the same the first is the first.
func (m *Maker) recognise(from []int, as, bs [][]byte) error {
	for j := range from {
		from[j] = -1
	}
	if len(as) == 0 || len(bs) == 0 {
		return nil
	}
	if m.ids == nil {
		m.ids = map[uint64]int{}
	}
	clear(m.ids)
	for j, b := range bs {
		id, err := m.id(b)
		if err != nil {
			return err
		}
		for {
			if _, taken := m.ids[id]; !taken {
				break
			}
			id++
		}
		m.ids[id] = j
	}
	for i, a := range as {
		id, err := m.id(a)
		if err != nil {
			return err
		}
		for {
			j, ok := m.ids[id]
			if !ok {
				break
			}
			if from[j] < 0 {
				from[j] = i
				break
			}
			id++
		}
	}
	return nil
}

// id is the same for elements that are the same thing.
func (m *Maker) id(element []byte) (uint64, error) {
	if element[0] != '{' {
		return xxhash.Sum64(element), nil
	}
	best, by := 99, element // nothing but itself
	s := &m.scan
	s.Reset(element)
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

// moves writes the operations that bring the elements order of a, which are in a's
// order, into that of from, with as few as possible.
func (m *Maker) moves(first int, order, from []int) {
	want := order[:0:0]
	for _, i := range from {
		if i >= 0 {
			want = append(want, i)
		}
	}
	if slices.IsSorted(want) {
		return
	}
	stay := rising(want)
	path := len(m.path)
	for j, i := range want {
		if stay[j] {
			continue
		}
		at, to := slices.Index(order, i), 0
		order = slices.Delete(order, at, at+1)
		if j > 0 {
			to = slices.Index(order, want[j-1]) + 1
		}
		order = slices.Insert(order, to, i)
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

// rising marks a longest rising subsequence of different numbers.
func rising(of []int) []bool {
	var ends []int // ends[n] is the index of the least number that ends a subsequence of n+1
	previous := make([]int, len(of))
	for i, x := range of {
		n, _ := slices.BinarySearchFunc(ends, x, func(end, x int) int { return of[end] - x })
		previous[i] = -1
		if n > 0 {
			previous[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	marks := make([]bool, len(of))
	for i := ends[len(ends)-1]; i >= 0; i = previous[i] {
		marks[i] = true
	}
	return marks
}
