package source

import (
	"bytes"
	"math/bits"
	"sync"
	"sync/atomic"
)

// piece is memory with the bodies of several objects. Its reader holds it while
// filling it, and each object holds it until the object is released. When the last holder
// has released it, it is reused. A piece that is never released is garbage collected.
type piece struct {
	bytes   []byte // the filled part; its capacity is the size of the piece
	holders atomic.Int32
	from    *sync.Pool
}

// pieces are pools of free pieces. The zero value is empty.
type pieces struct {
	pools [sizes]sync.Pool // the first pool has pieces of minBuffer bytes, each next pool has pieces of twice the size
}

// sizes is the number of different sizes of pieces. The largest size is keepWide.
const sizes = 7

// get returns an empty piece with room for n bytes, which the caller holds. It returns nil if n is more than keepWide.
func (p *pieces) get(n int) *piece {
	class := max(bits.Len(uint(n-1)), bits.Len(minBuffer-1)) - bits.Len(minBuffer-1)
	if class >= sizes {
		return nil
	}
	m, ok := p.pools[class].Get().(*piece)
	if !ok {
		m = &piece{bytes: make([]byte, 0, minBuffer<<class), from: &p.pools[class]}
	}
	m.bytes = m.bytes[:0]
	m.holders.Store(1)
	return m
}

// release releases a piece, which may be nil.
func (m *piece) release() {
	if m != nil && m.holders.Add(-1) == 0 {
		scribble(m.bytes[:cap(m.bytes)])
		m.from.Put(m)
	}
}

// lies makes o hold the piece that has its body. in may be nil.
func (o *Object) lies(in *piece) {
	if in != nil {
		in.holders.Add(1)
		o.memory = in
	}
}

// Release frees Raw, so that its memory can be reused for other objects. Call it at most
// once per object, when Raw is no longer read. It is optional: the memory of other objects
// is garbage collected.
func (o *Object) Release() {
	if o.memory != nil {
		o.memory.release()
		o.memory, o.Raw = nil, nil
	}
}

// share returns another object with the same Raw, which is released separately.
func (o *Object) share() *Object {
	c := *o
	if c.memory != nil {
		c.memory.holders.Add(1)
	}
	return &c
}

// Own copies Raw into memory of its own if it shares memory with other objects. Call it for an object
// that is kept for long. Release then has no effect.
func (o *Object) Own() {
	raw := bytes.Clone(o.Raw)
	o.Release()
	o.Raw = raw
}

// copier makes objects of a list independent of their page, so that an object that waits for the
// bus does not hold the memory of the whole page.
type copier struct {
	*Collection
	from *pieces
	in   *piece
}

func (c *Collection) copier() copier { return copier{Collection: c, from: &c.client.memory} }

// own restores o in memory that is independent of its page.
func (k *copier) own(o *Object) {
	room := k.room(len(o.Raw) + gvkBytes)
	if !k.restore(o, room) {
		o.Raw = append(room, o.Raw...)
	}
	n := len(o.Raw)
	o.Raw = o.Raw[:n:n]
	if cap(room) > 0 && n > 0 && &room[:1][0] == &o.Raw[0] {
		k.in.bytes = k.in.bytes[:len(k.in.bytes)+n]
		o.lies(k.in)
	}
}

// room returns memory to which n bytes may be appended, or nil if n is too large to share a piece.
func (k *copier) room(n int) []byte {
	if n > keepWide/4 {
		return nil
	}
	if k.in == nil || cap(k.in.bytes)-len(k.in.bytes) < n {
		k.in.release()
		k.in = k.from.get(keepWide)
	}
	return k.in.bytes[len(k.in.bytes):]
}

func (k *copier) close() { k.in.release() }
