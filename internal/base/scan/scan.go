// Package scan reads JSON without decoding it: it finds the members of objects and
// where their values stand, and checks that the whole is valid, in one pass and without
// allocating. A text may come from a stream, and is then scanned as it arrives.
//
// Valid is what RFC 8259 says, with two liberties: names may repeat, which would
// cost a map per object to look for, and strings need not be UTF-8, since they are
// passed on as they came.
package scan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// MaxDepth bounds how deeply [Scanner.Members] and [Scanner.Elements] descend, whose callers
// often call themselves: as deep as encoding/json, by which the API server reads objects. What
// is read whole may be nested more deeply.
const MaxDepth = 10000

// keptOuter is how much of its memory for levels a scanner keeps from one text to the next, in words.
const keptOuter = 1 << 10

// WhiteSpace is what may stand between tokens (RFC 8259, section 2).
const WhiteSpace = " \t\r\n"

// Scanner reads one text after another. The zero value has an empty one.
type Scanner struct {
	text    []byte
	at      int // what comes next; depth is that of this place
	depth   int
	from    int      // the depth where Measure was called,
	deepest int      // and the greatest one since
	outer   []uint64 // of Skip: the kinds of all levels but the 64 innermost, or fewer, a bit each
	more    func(text []byte) ([]byte, error)
	past    int64 // bytes read of the texts before
	ends    *Ends // of the text that this one is a part of; nil: it is read whole
	begin   int   // of this text in that one
}

// Reset begins a text that is all there.
func (s *Scanner) Reset(text []byte) { s.Stream(text, nil) }

// ResetWithin begins a text that is a part of the one that ends are of. [Scanner.Value] does not read arrays and objects whose
// end is known: they are not checked again, and do not count as levels or steps. If text is no part of it, it is read whole.
func (s *Scanner) ResetWithin(text []byte, ends *Ends) {
	s.Reset(text)
	if begin, ok := ends.within(text); ok {
		s.ends, s.begin = ends, begin
	}
}

// Stream begins a text of which only the beginning is there. more is called with
// what there is when more is needed, and returns it with at least one byte added,
// in the same memory or in other, or an error: io.EOF is the end of the text.
func (s *Scanner) Stream(begin []byte, more func(text []byte) ([]byte, error)) {
	s.past += int64(s.at)
	s.text, s.at, s.depth, s.more, s.ends = begin, 0, 0, more, nil
	if s.outer = s.outer[:0]; cap(s.outer) > keptOuter {
		s.outer = nil
	}
	s.Measure()
}

// Measure begins to count levels for [Scanner.Levels].
func (s *Scanner) Measure() { s.from, s.deepest = s.depth, s.depth }

// Levels is in how many levels arrays and objects stand in each other in what was read since
// [Scanner.Measure] was called, or since the begin of the text.
func (s *Scanner) Levels() int { return s.deepest - s.from }

// Text is what is there of the text. It is valid as long as the caller's memory.
func (s *Scanner) Text() []byte { return s.text }

// Offset is where the scanner stands in the text, in bytes: behind what was read
// last.
func (s *Scanner) Offset() int { return s.at }

// Steps is how many bytes the scanner has read of all its texts: what the work so far has cost.
func (s *Scanner) Steps() int64 { return s.past + int64(s.at) }

// fill gets more of the text. The end of the text is io.EOF between two values on
// the outermost level, and else io.ErrUnexpectedEOF.
func (s *Scanner) fill() error {
	err := io.EOF
	if s.more != nil {
		var text []byte
		if text, err = s.more(s.text); err == nil {
			s.text = text
			return nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("offset %d: %w", len(s.text), err)
}

// Peek skips white space and returns the byte that comes next.
func (s *Scanner) Peek() (byte, error) {
	if s.at >= len(s.text) || s.text[s.at] <= ' ' {
		return s.peek()
	}
	return s.text[s.at], nil
}

func (s *Scanner) peek() (byte, error) {
	for {
		for s.at < len(s.text) {
			if c := s.text[s.at]; !isSpace(c) {
				return c, nil
			}
			s.at++
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// End checks that nothing but white space is left.
func (s *Scanner) End() error {
	for s.at < len(s.text) && isSpace(s.text[s.at]) {
		s.at++
	}
	if s.more == nil && s.at == len(s.text) { // the usual end needs no error
		return nil
	}
	switch c, err := s.Peek(); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	case err != nil:
		return err
	case kind(c) == "":
		return s.invalid(c, "the end")
	default:
		return fmt.Errorf("offset %d: %s behind the end", s.at, kind(c))
	}
}

// Members reads an object, or null, and calls f for each of its members, with the
// name and the offset where the member begins: the end of what stands before it
// (the brace, or the member in front). f must read the value, and may not keep the
// name.
func (s *Scanner) Members(f func(name []byte, start int) error) error {
	c, err := s.Peek()
	if err != nil {
		return err
	}
	if c == 'n' {
		return s.Skip()
	}
	if c != '{' {
		return s.Unexpected("an object")
	}
	if err := s.descend(); err != nil {
		return err
	}
	start := s.at
	if c, err = s.Peek(); err != nil {
		return err
	}
	if c == '}' {
		s.leave()
		return nil
	}
	for {
		if c != '"' {
			return s.invalid(c, "a member's name")
		}
		name, err := s.Unquoted()
		if err != nil {
			return err
		}
		if err := s.colon(); err != nil {
			return err
		}
		if err := f(name, start); err != nil {
			return err
		}
		start = s.at
		if c, err = s.Peek(); err != nil {
			return err
		}
		s.at++
		switch c {
		case '}':
			s.at--
			s.leave()
			return nil
		case ',':
			if c, err = s.Peek(); err != nil {
				return err
			}
		default:
			s.at--
			return s.invalid(c, "a comma or the end of an object")
		}
	}
}

// Elements reads an array, or null, and calls f for each of its values, which f
// must read.
func (s *Scanner) Elements(f func() error) error {
	c, err := s.Peek()
	if err != nil {
		return err
	}
	if c == 'n' {
		return s.Skip()
	}
	if c != '[' {
		return s.Unexpected("an array")
	}
	if err := s.descend(); err != nil {
		return err
	}
	if c, err = s.Peek(); err != nil {
		return err
	}
	if c == ']' {
		s.leave()
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if c, err = s.Peek(); err != nil {
			return err
		}
		switch c {
		case ']':
			s.leave()
			return nil
		case ',':
			s.at++
		default:
			return s.invalid(c, "a comma or the end of an array")
		}
	}
}

// descend goes past the bracket that opens an object or an array, leave past the one that closes it.
func (s *Scanner) descend() error {
	if s.depth >= MaxDepth {
		return fmt.Errorf("offset %d: more than %d levels", s.at, MaxDepth)
	}
	s.at++
	s.depth++
	s.deepest = max(s.deepest, s.depth)
	return nil
}

func (s *Scanner) leave() {
	s.at++
	s.depth--
}

// Value reads a value and returns its text. It is valid as [Scanner.Text] is.
func (s *Scanner) Value() ([]byte, error) {
	if _, err := s.Peek(); err != nil {
		return nil, err
	}
	begin := s.at
	if s.ends != nil {
		if end, ok := s.ends.of(s.begin + begin); ok {
			s.at = end - s.begin
			s.past -= int64(s.at - begin)
			return s.text[begin:s.at], nil
		}
	}
	if err := s.Skip(); err != nil {
		return nil, err
	}
	return s.text[begin:s.at], nil
}

// Skip reads a value. It is one loop, with what a server writes in front: short
// strings, and nothing between tokens.
func (s *Scanner) Skip() error {
	open, deepest := 0, 0
	kinds := uint64(0) // of the 64 innermost levels, the innermost in the lowest bit: 1 for an object, 0 for an array
	name := false      // a member's name is next
	text, at := s.text, s.at
	for {
		if at >= len(text) || text[at] <= ' ' {
			s.at = at
			if _, err := s.peek(); err != nil {
				return err
			}
			text, at = s.text, s.at
		}
		switch c := text[at]; {
		case c == '"':
			end := at + 1
			if end+8 <= len(text) {
				if found := special(binary.LittleEndian.Uint64(text[end:])); found != 0 {
					end += bits.TrailingZeros64(found) / 8
				} else {
					end = plain(text, end+8)
				}
			}
			if end < len(text) && text[end] == '"' {
				at = end + 1
			} else {
				if err := s.skipString(end); err != nil {
					return err
				}
				text, at = s.text, s.at
			}
			if !name {
				break
			}
			if at >= len(text) || text[at] != ':' {
				s.at = at
				if err := s.colon(); err != nil {
					return err
				}
				text, at = s.text, s.at-1
			}
			at++
			name = false
			continue
		case name:
			s.at = at
			return s.invalid(c, "a member's name")
		case c == '{' || c == '[':
			at++
			deepest = max(deepest, open+1)
			if at >= len(text) || text[at] <= ' ' {
				s.at = at
				if _, err := s.Peek(); err != nil {
					return err
				}
				text, at = s.text, s.at
			}
			if text[at] == c+2 { // '}' or ']': it is empty
				at++
				break
			}
			if open&63 == 0 && open > 0 {
				s.outer = append(s.outer, kinds)
			}
			open++
			kinds = kinds<<1 | uint64(c>>5&1)
			name = c == '{'
			continue
		default:
			s.at = at
			if err := s.scalar(c); err != nil {
				return err
			}
			text, at = s.text, s.at
		}
		for { // behind a value
			if open == 0 {
				s.at = at
				s.deepest = max(s.deepest, s.depth+deepest)
				return nil
			}
			if at >= len(text) || text[at] <= ' ' {
				s.at = at
				if _, err := s.peek(); err != nil {
					return err
				}
				text, at = s.text, s.at
			}
			c := text[at]
			at++
			if c == ',' {
				name = kinds&1 != 0
				break
			}
			if c != ']'|byte(kinds&1)<<5 { // '}' is ']' with one bit more
				s.at = at - 1
				return s.invalid(c, "a comma or the end")
			}
			open--
			kinds >>= 1
			if open&63 == 0 && open > 0 {
				last := len(s.outer) - 1
				kinds, s.outer = s.outer[last], s.outer[:last]
			}
		}
	}
}

// Deeper reports whether arrays and objects stand in each other in more than so many levels. text is valid JSON.
func Deeper(text []byte, levels int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\':
			i++ // of a string
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > levels {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// scalar reads a value that begins with c and is no string.
func (s *Scanner) scalar(c byte) error {
	switch c {
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.number(c)
	}
}

// colon reads what stands between a member's name and its value.
func (s *Scanner) colon() error {
	c, err := s.Peek()
	if err != nil {
		return err
	}
	if c != ':' {
		return s.invalid(c, "a colon")
	}
	s.at++
	return nil
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special finds which of eight bytes ends a string or needs a closer look: a quote, a backslash, a control character.
// The lowest bit that is set belongs to the first; those above it may be wrong, since borrows go upwards.
func special(x uint64) uint64 {
	// With 2 exclusive-or'd the quote comes right behind the control characters.
	return (((x ^ 2*ones) - ('"'-1)*ones) | ((x ^ '\\'*ones) - ones)) &^ x & highs
}

// plain returns where the first special byte from at on stands, len(text) when there is none.
func plain(text []byte, at int) int {
	for ; at+8 <= len(text); at += 8 {
		if found := special(binary.LittleEndian.Uint64(text[at:])); found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for at < len(text) && text[at] != '"' && text[at] != '\\' && text[at] >= ' ' {
		at++
	}
	return at
}

// skipString reads a string from a place in it on.
func (s *Scanner) skipString(at int) error {
	for {
		at = plain(s.text, at)
		switch {
		case at == len(s.text):
			if err := s.fill(); err != nil {
				return err
			}
		case s.text[at] == '"':
			s.at = at + 1
			return nil
		case s.text[at] == '\\':
			if at+1 < len(s.text) && (s.text[at+1] == '"' || s.text[at+1] == '\\' || s.text[at+1] == 'n') { // most are
				at += 2
				continue
			}
			n, err := s.escape(at)
			if err != nil {
				return err
			}
			at += n
		default:
			s.at = at
			return s.invalid(s.text[at], "a string's next byte")
		}
	}
}

// escape returns the length of the escape sequence at a place.
func (s *Scanner) escape(at int) (int, error) {
	n := 2
	for i := 1; i < n; i++ {
		for at+i >= len(s.text) {
			if err := s.fill(); err != nil {
				return 0, err
			}
		}
		switch c := s.text[at+i]; {
		case i == 1 && c == 'u':
			n = 6
		case i == 1 && (c == '"' || c == '\\' || c == '/' || c == 'b' || c == 'f' || c == 'n' || c == 'r' || c == 't'):
		case i > 1 && ('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'):
		default:
			s.at = at + i
			return 0, s.invalid(c, "an escape sequence")
		}
	}
	return n, nil
}

func (s *Scanner) literal(word string) error {
	for len(s.text)-s.at < len(word) {
		if rest := s.text[s.at:]; string(rest) != word[:len(rest)] {
			break
		}
		if err := s.fill(); err != nil {
			return err
		}
	}
	for i := range len(word) {
		if s.text[s.at+i] != word[i] {
			s.at += i
			return s.invalid(s.text[s.at], word)
		}
	}
	s.at += len(word)
	return nil
}

// number reads a number, which begins with c (RFC 8259, section 6).
func (s *Scanner) number(c byte) error {
	if c == '-' {
		s.at++
		c = s.next()
	}
	if c == '0' {
		s.at++
		c = s.next()
	} else {
		var err error
		if c, err = s.digits(c); err != nil {
			return err
		}
	}
	if c == '.' {
		s.at++
		var err error
		if c, err = s.digits(s.next()); err != nil {
			return err
		}
	}
	if c|0x20 == 'e' {
		s.at++
		if c = s.next(); c == '+' || c == '-' {
			s.at++
			c = s.next()
		}
		if _, err := s.digits(c); err != nil {
			return err
		}
	}
	return nil
}

// digits reads digits, of which c is the first, and returns what follows them.
func (s *Scanner) digits(c byte) (byte, error) {
	if c < '0' || c > '9' {
		if s.at < len(s.text) {
			return 0, s.invalid(c, "a value")
		}
		return 0, s.fill()
	}
	for '0' <= c && c <= '9' {
		s.at++
		c = s.next()
	}
	return c, nil
}

// next is the byte that comes next, 0 at the end of the text: a number may end
// there, and if not, fill returns its error again.
func (s *Scanner) next() byte {
	if s.at < len(s.text) || s.fill() == nil {
		return s.text[s.at]
	}
	return 0
}

// Unexpected is the error that something else than what is wanted comes next,
// "a string" for example. The caller has peeked.
func (s *Scanner) Unexpected(want string) error {
	c := s.text[s.at]
	if k := kind(c); k != "" {
		return fmt.Errorf("offset %d: %s where %s should be", s.at, k, want)
	}
	return s.invalid(c, want)
}

func (s *Scanner) invalid(c byte, want string) error {
	return fmt.Errorf("offset %d: invalid character %q where %s should be", s.at, rune(c), want)
}

// kind names the sort of value or token that begins with c, "" for none.
func kind(c byte) string {
	switch {
	case c == '"':
		return "string"
	case c == 'n':
		return "null"
	case c == 't':
		return "true"
	case c == 'f':
		return "false"
	case c == '-' || '0' <= c && c <= '9':
		return "number"
	case c == '{' || c == '}' || c == '[' || c == ']':
		return string(rune(c))
	default:
		return ""
	}
}
