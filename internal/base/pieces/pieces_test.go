package pieces_test

import (
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/pieces"
)

func TestPiecesDoNotOverlap(t *testing.T) {
	p := pieces.Pieces[int]{Small: 4, Large: 16}
	for range 3 {
		var lists [][]int
		for n := range 40 {
			list := p.Take(n)
			for i := range list {
				list[i] = n
			}
			lists = append(lists, list)
		}
		for n, list := range lists {
			if len(list) != n || cap(list) != n {
				t.Errorf("length %d, capacity %d, want %d", len(list), cap(list), n)
			}
			if i := slices.IndexFunc(list, func(x int) bool { return x != n }); i >= 0 {
				t.Errorf("piece %d was written to by another one", n)
			}
		}
		p.Reset()
	}
}

func TestMemoryIsUsedAgain(t *testing.T) {
	p := pieces.Pieces[int]{}
	use := func() {
		for n := range 1000 {
			*p.New(n)++
		}
		p.Clear()
	}
	use()
	if n := testing.AllocsPerRun(10, use); n != 0 {
		t.Errorf("%v allocations by a second use of the memory, want none", n)
	}
}

func TestRoomIsFreeUnlessKept(t *testing.T) {
	p := pieces.Pieces[byte]{}
	first := append(p.Room(10), "abc"...)
	second := append(p.Room(10), "def"...)
	if string(first) != "def" {
		t.Errorf("%q, want the memory to be given out again", first)
	}
	p.Keep(len(second))
	third := append(p.Room(10), "ghi"...)
	if string(second) != "def" || string(third) != "ghi" {
		t.Errorf("%q and %q, want def and ghi", second, third)
	}
}

func TestAppended(t *testing.T) {
	p := pieces.Pieces[byte]{Small: 4}
	room := p.Room(2)
	inside := p.Appended(room, append(room, "ab"...))
	room = p.Room(2)
	outgrown := p.Appended(room, append(room, "a longer text"...))
	last := p.Appended(p.Room(2), append(p.Room(2), "cd"...))
	if string(inside) != "ab" || string(outgrown) != "a longer text" || string(last) != "cd" {
		t.Errorf("%q, %q and %q, want ab, a longer text, and cd", inside, outgrown, last)
	}
	if cap(inside) != 2 {
		t.Errorf("capacity %d, want 2: the memory behind it is given out again", cap(inside))
	}
}

// TestMemoryOfABurstIsGivenUp: memory that is no longer needed is released, one chunk at a time.
func TestMemoryOfABurstIsGivenUp(t *testing.T) {
	p := pieces.Pieces[int]{Small: 4, Large: 4}
	use := func(n int) {
		for range n {
			p.New(1)
		}
		p.Reset()
	}
	use(4 * 10)
	for range 10 {
		use(1)
		use(4 * 10)
	}
	if n := testing.AllocsPerRun(1, func() { use(4 * 10) }); n != 0 {
		t.Errorf("%v allocations for what is needed every second time, want none", n)
	}
	for range 9 + 16 {
		use(1)
	}
	if n := testing.AllocsPerRun(1, func() { use(1) }); n != 0 {
		t.Errorf("%v allocations for what is always needed, want none", n)
	}
	calls := 0
	again := testing.AllocsPerRun(1, func() { // the first of its two calls does not count
		if calls++; calls == 1 {
			use(1)
		} else {
			use(4 * 10)
		}
	})
	if again != 9 {
		t.Errorf("%v allocations by another burst, want 9 of its 10 chunks", again)
	}
}
