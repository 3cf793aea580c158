package event

import (
	"fmt"
	"strings"
)

// EscapeToken makes any string a single NATS subject token, KV key token or
// topic part of the alphabet [A-Za-z0-9_=-]: "." becomes "_", every other byte
// outside [A-Za-z0-9-] becomes "=XX" (upper-case hex), and the empty string
// becomes a bare "_". [UnescapeToken] reverses it.
func EscapeToken(s string) string {
	if s == "" {
		return "_"
	}
	if s == "." { // a bare "_" already means none
		return "=2E"
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// UnescapeToken reverses [EscapeToken]. It returns an error for what that cannot
// have made.
func UnescapeToken(s string) (string, error) {
	if s == "_" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		case c == '_':
			b.WriteByte('.')
		case c == '=':
			var x byte
			if i+2 >= len(s) {
				return "", fmt.Errorf("token %q: cut off after =", s)
			}
			if _, err := fmt.Sscanf(s[i+1:i+3], "%02X", &x); err != nil {
				return "", fmt.Errorf("token %q: byte %d: %w", s, i, err)
			}
			b.WriteByte(x)
			i += 2
		default:
			return "", fmt.Errorf("token %q: byte %d (%q) cannot be in a token", s, i, c)
		}
	}
	return b.String(), nil
}
