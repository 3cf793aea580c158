// Package pieces is memory that is given out in pieces and taken back all at once, to be used again.
package pieces

import (
	"cmp"
	"slices"
)

// The sizes of chunks if Small and Large are 0, in values.
const small, large = 32, 1 << 10

// Pieces is memory for values of one type. The zero value is ready for use.
type Pieces[T any] struct {
	// The sizes of chunks double from Small to Large values; 0: 32 and 1024. A piece that is larger has a chunk of its own.
	Small, Large int
	// Once: full chunks are left to the garbage collector until Reset is called for the first time.
	Once bool

	chunks [][]T
	at     int // chunks before it are full
	spare  int // how often in succession the last chunk was not needed
}

// patience is how often a chunk is kept that is not needed: uses that are larger and smaller in turn would otherwise
// allocate again and again.
const patience = 16

// Room returns memory for n values, or more, which stays free unless it is kept.
func (p *Pieces[T]) Room(n int) []T {
	size := cmp.Or(p.Small, small)
	for ; p.at < len(p.chunks); p.at++ {
		if c := p.chunks[p.at]; cap(c)-len(c) >= n {
			return c[len(c):]
		}
		size = min(2*cap(p.chunks[p.at]), cmp.Or(p.Large, large))
	}
	if p.Once {
		p.chunks, p.at = p.chunks[:0], 0
	}
	p.chunks = append(p.chunks, make([]T, 0, max(n, size)))
	return p.chunks[p.at]
}

// Keep takes n values out of what Room returned last.
func (p *Pieces[T]) Keep(n int) {
	c := &p.chunks[p.at]
	*c = (*c)[:len(*c)+n]
}

// Appended keeps a list that was appended to room, which Room returned last, and returns it. The list may have outgrown it.
func (p *Pieces[T]) Appended(room, list []T) []T {
	if cap(list) == cap(room) { // append did not allocate
		p.Keep(len(list))
	}
	return slices.Clip(list) // the memory behind it is for others
}

// Take returns n values that are not given out. They are not cleared.
func (p *Pieces[T]) Take(n int) []T {
	room := p.Room(n)
	p.Keep(n)
	return room[:n:n]
}

// New returns a copy of a value in memory of its own.
func (p *Pieces[T]) New(value T) *T {
	one := p.Take(1)
	one[0] = value
	return &one[0]
}

// Reset takes everything back. It drops chunks of more than Large values. Where the last chunk has not been needed for a while, each
// call drops one: what a burst took is given up little by little.
func (p *Pieces[T]) Reset() {
	last := len(p.chunks) - 1
	if p.spare++; last <= p.at {
		p.spare = 0
	}
	if p.spare > patience {
		p.chunks[last] = nil
		p.chunks = p.chunks[:last]
	}
	p.at, p.Once = 0, false
	p.chunks = slices.DeleteFunc(p.chunks, func(c []T) bool { return cap(c) > cmp.Or(p.Large, large) })
	for i := range p.chunks {
		p.chunks[i] = p.chunks[i][:0]
	}
}

// Clear sets what is given out to zero, so that it keeps no other memory alive, and takes it back.
func (p *Pieces[T]) Clear() {
	for _, c := range p.chunks {
		clear(c)
	}
	p.Reset()
}
