package event

import (
	"fmt"
	"strconv"
	"strings"
)

// EscapeToken turns any string into a single NATS subject token, KV key token or
// topic part with the characters [A-Za-z0-9_=-]: "." becomes "_", every other byte
// outside [A-Za-z0-9-] becomes "=XX" (upper-case hex), and the empty string
// becomes "_". [UnescapeToken] reverses it.
func EscapeToken(s string) string {
	if s == "" {
		return "_"
	}
	if s == "." { // "_" alone is the empty string
		return "=2E"
	}
	plain := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
	}
	n := 0
	for n < len(s) && plain(s[n]) {
		n++
	}
	if n == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	b.WriteString(s[:n])
	for i := n; i < len(s); i++ {
		switch c := s[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// UnescapeToken reverses [EscapeToken]. It returns an error for a token that EscapeToken cannot
// return, so that no two tokens mean the same string.
func UnescapeToken(s string) (string, error) {
	if s == "_" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '_':
			b.WriteByte('.')
		case s[i] == '=' && i+2 < len(s):
			x, _ := strconv.ParseUint(s[i+1:i+3], 16, 8) // without a number, the result does not escape to s, which is checked below
			b.WriteByte(byte(x))
			i += 2
		default:
			b.WriteByte(s[i])
		}
	}
	if EscapeToken(b.String()) != s {
		return "", fmt.Errorf("token %q is not what escaping makes", s)
	}
	return b.String(), nil
}

// EscapeHeader writes an attribute's value as a header's (CloudEvents HTTP binding 3.1.3.2, which the NATS binding refers to): other
// bytes than printable ASCII, and the space, the quote and the percent sign, become "%XX".
func EscapeHeader(s string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	for i := range len(s) {
		if plain(s[i]) {
			continue
		}
		var b strings.Builder
		b.WriteString(s[:i])
		for ; i < len(s); i++ {
			if plain(s[i]) {
				b.WriteByte(s[i])
			} else {
				fmt.Fprintf(&b, "%%%02X", s[i])
			}
		}
		return b.String()
	}
	return s
}
