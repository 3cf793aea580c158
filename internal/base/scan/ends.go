package scan

import (
	"bytes"
	"sort"
)

// Ends says where the larger arrays and objects of a text end. With it a [Scanner] passes over them instead of reading
// them again: see [Scanner.ResetWithin]. The zero value is of an empty text.
type Ends struct {
	text   []byte
	begins []int32 // of arrays and objects, in order
	ends   []int32 // behind each of them
	open   []int32 // places in begins: those that have no end yet
}

// fewBytes is how long an array or object is at most that is read again.
const fewBytes = 64

// Find reads a text, which must be valid JSON, and must not change while its ends are used.
func (e *Ends) Find(text []byte) {
	e.text, e.begins, e.ends, e.open = text, e.begins[:0], e.ends[:0], e.open[:0]
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = closingQuote(text, at+1)
		case '{', '[':
			e.open = append(e.open, int32(len(e.begins)))
			e.begins, e.ends = append(e.begins, int32(at)), append(e.ends, 0)
		case '}', ']':
			n := e.open[len(e.open)-1]
			e.open = e.open[:len(e.open)-1]
			if e.ends[n] = int32(at + 1); e.ends[n]-e.begins[n] <= fewBytes {
				e.begins, e.ends = e.begins[:n], e.ends[:n] // nothing in it is longer
			}
		}
	}
}

// Forget gives up the text. The memory is kept for the next one.
func (e *Ends) Forget() { e.Find(nil) }

// closingQuote is where the string ends that goes on at a place.
func closingQuote(text []byte, at int) int {
	for {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return len(text)
		}
		before := at + n
		for before > at && text[before-1] == '\\' {
			before--
		}
		if at += n; (at-before)%2 == 0 {
			return at
		}
		at++
	}
}

// Has reports whether part is a part of the text: the memory, not only the bytes.
func (e *Ends) Has(part []byte) bool {
	_, ok := e.within(part)
	return ok
}

// within returns where a part of the text begins in it, and false if it is no part of it.
func (e *Ends) within(part []byte) (begin int, ok bool) {
	begin = cap(e.text) - cap(part)
	ok = len(part) > 0 && begin >= 0 && begin+len(part) <= len(e.text) && &e.text[begin] == &part[0]
	return begin, ok
}

// of returns where the array or object ends that begins at a place; false: it is short, or there is none.
func (e *Ends) of(begin int) (end int, ok bool) {
	i := sort.Search(len(e.begins), func(i int) bool { return int(e.begins[i]) >= begin })
	if i == len(e.begins) || int(e.begins[i]) != begin {
		return 0, false
	}
	return int(e.ends[i]), true
}
