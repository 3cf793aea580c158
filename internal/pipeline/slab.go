package pipeline

import "slices"

// slab is memory that is given out in pieces and taken back all at once. The zero
// value is ready.
type slab[T any] struct {
	chunks [][]T
	at     int // chunks before it are full
}

// The sizes of chunks double from small on, up to large, but a piece that is larger
// has one of its own.
const (
	smallChunk = 32
	largeChunk = 1 << 10
)

// room returns memory for n values, or more, which stays free unless it is kept.
func (s *slab[T]) room(n, small, large int) []T {
	for ; s.at < len(s.chunks); s.at++ {
		if c := s.chunks[s.at]; cap(c)-len(c) >= n {
			return c[len(c):]
		}
		small = min(2*cap(s.chunks[s.at]), large)
	}
	s.chunks = append(s.chunks, make([]T, 0, max(n, small)))
	return s.chunks[s.at]
}

// keep takes n values out of what room returned last.
func (s *slab[T]) keep(n int) {
	c := &s.chunks[s.at]
	*c = (*c)[:len(*c)+n]
}

// take returns n values that nobody else has. They may be used ones.
func (s *slab[T]) take(n int) []T {
	room := s.room(n, smallChunk, largeChunk)
	s.keep(n)
	return room[:n:n]
}

// reset takes everything back, and forgets chunks of more than most.
func (s *slab[T]) reset(most int) {
	s.at = 0
	s.chunks = slices.DeleteFunc(s.chunks, func(c []T) bool { return cap(c) > most })
	for i := range s.chunks {
		s.chunks[i] = s.chunks[i][:0]
	}
}
