package source

import (
	"bytes"
	"math/bits"
	"sync"
	"sync/atomic"
)

// piece is memory in which the bodies of objects stand one behind the other. Who
// fills it holds it, and so does each object that has not been released. When nobody
// holds it, it is used again; one that is never let go of is the collector's.
type piece struct {
	bytes   []byte // what is filled; its capacity is the piece
	holders atomic.Int32
	from    *sync.Pool
}

// pieces are those that nobody holds. The zero value has none.
type pieces struct {
	pools [sizes]sync.Pool // of minBuffer bytes, and of twice as many each
}

// sizes is how many sizes there are of pieces: the largest is keepWide.
const sizes = 7

// get returns an empty piece of n bytes or up to twice as many, or minBuffer, which the
// caller holds. It is nil for more than keepWide.
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

// release lets go of a piece. nil is none.
func (m *piece) release() {
	if m != nil && m.holders.Add(-1) == 0 {
		scribble(m.bytes[:cap(m.bytes)])
		m.from.Put(m)
	}
}

// lies has o's body hold the piece that it stands in; nil is none.
func (o *Object) lies(in *piece) {
	if in != nil {
		in.holders.Add(1)
		o.memory = in
	}
}

// Release says that nobody will read Raw, which it takes away: its memory can be used
// for other objects. It is for who reads many, and once for each; memory of objects
// that are not released is garbage collected.
func (o *Object) Release() {
	if o.memory != nil {
		o.memory.release()
		o.memory, o.Raw = nil, nil
	}
}

// Own copies Raw into memory of its own, where it shares that of others: for one
// that is kept for long. Release does nothing then.
func (o *Object) Own() {
	raw := bytes.Clone(o.Raw)
	o.Release()
	o.Raw = raw
}

// copier makes objects of a list independent of their page: one that waits for the
// bus must not hold the others for longer than it has to.
type copier struct {
	*Collection
	from *pieces
	in   *piece
}

func (c *Collection) copier() copier { return copier{Collection: c, from: &c.client.memory} }

// own restores o, in other memory.
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

// room is where n bytes may be appended, nil if they are too many to share a piece.
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

// close lets go of the last piece.
func (k *copier) close() { k.in.release() }
