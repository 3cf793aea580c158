package encode

import (
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The sizes of chunks double from small to large. A piece that is larger has a chunk of its own.
const (
	smallChunk, largeChunk = 32, 1 << 10        // values
	smallBytes, largeBytes = 1 << 10, 256 << 10 // bytes
)

// arena is the memory of the records of one batch.
type arena struct {
	bytes      pieces[byte]
	events     pieces[event.Event]
	attributes pieces[event.Attribute]
	changes    pieces[event.KV]
}

// newArena returns an arena. One that is not reused leaves full chunks to the garbage collector.
func newArena(reused bool) *arena {
	a := &arena{}
	a.bytes.reused, a.events.reused, a.attributes.reused, a.changes.reused = reused, reused, reused, reused
	return a
}

// room returns memory for a text of n bytes.
func (a *arena) room(n int) []byte { return a.bytes.room(n, smallBytes, largeBytes) }

// keep returns a text that was appended to what room returned last.
func (a *arena) keep(room, text []byte) []byte {
	if cap(text) == cap(room) { // append did not allocate
		a.bytes.keep(len(text))
	}
	return text[:len(text):len(text)] // the memory behind it is for other texts
}

// copied returns a copy of a text.
func (a *arena) copied(text []byte) []byte {
	room := a.room(len(text))
	return a.keep(room, append(room, text...))
}

// reset takes everything back.
func (a *arena) reset() {
	for _, c := range a.events.chunks {
		clear(c) // unused events must not keep other memory alive
	}
	a.bytes.reset(largeBytes)
	a.events.reset(largeChunk)
	a.attributes.reset(largeChunk)
	a.changes.reset(largeChunk)
}

// pieces is memory that is given out in pieces and taken back all at once.
type pieces[T any] struct {
	chunks [][]T
	at     int // chunks before it are full
	reused bool
}

// room returns memory for n values, or more, which stays free unless it is kept.
func (p *pieces[T]) room(n, small, large int) []T {
	for ; p.at < len(p.chunks); p.at++ {
		if c := p.chunks[p.at]; cap(c)-len(c) >= n {
			return c[len(c):]
		}
		small = min(2*cap(p.chunks[p.at]), large)
	}
	if !p.reused {
		p.chunks, p.at = p.chunks[:0], 0
	}
	p.chunks = append(p.chunks, make([]T, 0, max(n, small)))
	return p.chunks[p.at]
}

// keep takes n values out of what room returned last.
func (p *pieces[T]) keep(n int) {
	c := &p.chunks[p.at]
	*c = (*c)[:len(*c)+n]
}

// take returns n values that are not given out. They are not cleared.
func (p *pieces[T]) take(n int) []T {
	room := p.room(n, smallChunk, largeChunk)
	p.keep(n)
	return room[:n:n]
}

// reset takes everything back, and drops chunks of more than most values.
func (p *pieces[T]) reset(most int) {
	p.at, p.reused = 0, true
	p.chunks = slices.DeleteFunc(p.chunks, func(c []T) bool { return cap(c) > most })
	for i := range p.chunks {
		p.chunks[i] = p.chunks[i][:0]
	}
}
