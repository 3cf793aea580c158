// Package terminal makes text from outside safe for a terminal.
package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Legible makes text from outside safe to show on one line. It replaces line ends, control characters of
// terminals, and characters that make text look like other text (right-to-left marks, characters
// without width) by escapes as in Go. Names of RBAC objects, values and field
// managers may hold any character.
func Legible(s string) string {
	if strings.IndexFunc(s, illegible) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		piece := s[:n]
		if s = s[n:]; illegible(r) {
			piece = strconv.Quote(piece)
			piece = piece[1 : len(piece)-1]
		}
		b.WriteString(piece)
	}
	return b.String()
}

// illegible is also true for bytes that are not UTF-8.
func illegible(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }

// NewLegible returns a writer for a terminal. Line ends and tabs pass. Other characters that
// [Legible] escapes become \u and four digits, which is the same text in JSON. One goroutine
// uses it.
func NewLegible(to io.Writer) io.Writer { return &legible{to: to} }

type legible struct {
	to  io.Writer
	cut []byte // the begin of a character that the next write completes
	buf []byte
}

// Write returns len(p), or 0 with the error of the underlying writer.
func (l *legible) Write(p []byte) (int, error) {
	text := append(l.cut, p...)
	l.buf = l.buf[:0]
	for len(text) > 0 && utf8.FullRune(text) {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || !illegible(r):
			l.buf = append(l.buf, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			l.buf = fmt.Appendf(l.buf, `\u%04x\u%04x`, high, low)
		default:
			l.buf = fmt.Appendf(l.buf, `\u%04x`, r)
		}
		text = text[n:]
	}
	l.cut = text
	if _, err := l.to.Write(l.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Show prints one line. It escapes control characters, so that text from the cluster or the bus cannot
// control the terminal or start another line.
func Show(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, Legible(fmt.Sprintf(format, args...)))
}

// Cell returns text in a form for a table cell.
func Cell(text string) string { return Legible(strings.Join(strings.Fields(text), " ")) }

// Count returns a number with its noun.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
