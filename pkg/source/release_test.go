package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// madeUp is an object of a watch that differs from all others in every byte of its text.
func madeUp(n int) string {
	return fmt.Sprintf(`{"kind":"A","apiVersion":"v1","metadata":{"name":"n%d","resourceVersion":"%d"},"text":%q}`,
		n, n, strings.Repeat(fmt.Sprint(n, "."), n*n*7%900/3))
}

// An object that was not released keeps its content while others are read. With the race detector, released memory is
// overwritten at once.
func TestHeldMemoryIsNotUsedAgain(t *testing.T) {
	const objects = 3000
	var text strings.Builder
	var page []Object
	for n := range objects {
		fmt.Fprintf(&text, `{"type":"ADDED","object":%s}`+"\n", madeUp(n))
		page = append(page, Object{Raw: []byte(madeUp(n)), APIVersion: "v1", Kind: "A"})
	}
	r := newFrameReader(iotest.HalfReader(strings.NewReader(text.String())), 4<<10, &pieces{})
	k := copier{Collection: fromNowhere(false), from: &pieces{}}
	for name, next := range map[string]func() (*Object, error){
		"frames": func() (*Object, error) {
			_, o, err := r.next()
			return o, err
		},
		"a page": func() (*Object, error) {
			if len(page) == 0 {
				return nil, io.EOF
			}
			o := page[0]
			page = page[1:]
			k.own(&o)
			return &o, nil
		},
	} {
		held := map[int]*Object{}
		check := func(n int, o *Object) {
			if want := madeUp(n); string(o.Raw) != want {
				t.Fatalf("%s: object %d is\n%s, not\n%s", name, n, o.Raw, want)
			}
		}
		n := 0
		for ; ; n++ {
			o, err := next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			check(n, o)
			if n%50 == 0 {
				o.Own()
			}
			held[n] = o
			for i, o := range held {
				if rand.IntN(12) > 0 {
					continue
				}
				check(i, o)
				shared := o.memory != nil
				o.Release()
				o.Release() // released once too often, which must have no effect
				if shared != (o.Raw == nil) {
					t.Fatalf("%s: object %d is released, shared: %t, and reads %s", name, i, shared, o.Raw)
				}
				delete(held, i)
			}
		}
		for i, o := range held {
			check(i, o)
		}
		if n != objects {
			t.Errorf("%s: %d objects", name, n)
		}
	}
}

// A piece of memory is used again after its reader and all objects in it have released it.
func TestMemoryIsUsedAgain(t *testing.T) {
	p := &pieces{}
	m := p.get(minBuffer)
	var a, b Object
	a.lies(m)
	b.lies(m)
	for i, release := range []func(){m.release, b.Release, a.Release} {
		if got := m.holders.Load(); got != int32(3-i) {
			t.Errorf("%d hold it, before %d have let go", got, i)
		}
		release()
	}
	again := p.get(minBuffer)
	if len(again.bytes) != 0 || cap(again.bytes) != minBuffer || again.holders.Load() != 1 {
		t.Errorf("got %d of %d bytes, held by %d", len(again.bytes), cap(again.bytes), again.holders.Load())
	}
	if m.holders.Load() > 0 && m != again {
		t.Error("it was not let go of")
	}
}

// An object that is too large for a shared piece has its own memory.
func TestLargeObjectsShareNothing(t *testing.T) {
	k := copier{Collection: fromNowhere(false), from: &pieces{}}
	defer k.close()
	o := Object{Raw: bytes.Repeat([]byte("x"), keepWide/4), APIVersion: "v1", Kind: "A"}
	k.own(&o)
	if o.memory != nil || len(o.Raw) != keepWide/4 {
		t.Errorf("%d bytes, shared: %t", len(o.Raw), o.memory != nil)
	}
}

// Each piece has room for what it was asked for, and not for much more.
func TestPieces(t *testing.T) {
	p := &pieces{}
	for _, n := range []int{1, minBuffer - 1, minBuffer, minBuffer + 1, keepBuffer, 3 * keepBuffer, keepWide} {
		m := p.get(n)
		if got := cap(m.bytes); got < n || got > max(2*n, minBuffer) {
			t.Errorf("%d bytes for %d", got, n)
		}
		m.release()
		if again := p.get(n); cap(again.bytes) != cap(m.bytes) {
			t.Errorf("%d bytes after %d", cap(again.bytes), cap(m.bytes))
		}
	}
	if m := p.get(keepWide + 1); m != nil {
		t.Errorf("%d bytes for more than a piece has", cap(m.bytes))
	}
}
