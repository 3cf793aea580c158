package scan

import (
	"encoding/binary"

	"github.com/go-json-experiment/json/jsontext"
)

// Unquoted reads a string and returns what it says. It is valid as [Scanner.Text]
// is. What is not UTF-8 becomes U+FFFD.
func (s *Scanner) Unquoted() ([]byte, error) {
	begin := s.at
	if err := s.skipString(begin + 1); err != nil {
		return nil, err
	}
	return Unquote(s.text[begin:s.at]), nil
}

// Unquote returns what a valid JSON string says, in its own memory where it can.
func Unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if isVerbatim(inner) {
		return inner
	}
	text, _ := jsontext.AppendUnquote(nil, quoted) // its error reports what is not UTF-8
	return text
}

// isVerbatim reports whether a string says what stands in it: all is ASCII, and nothing is escaped.
func isVerbatim(inner []byte) bool {
	for ; len(inner) >= 8; inner = inner[8:] {
		x := binary.LittleEndian.Uint64(inner)
		backslashes := x ^ '\\'*ones // 0 where one stands
		if (x|(backslashes-ones)&^backslashes)&highs != 0 {
			return false
		}
	}
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// String reads a string, or null as "". It returns known if that is the same.
func (s *Scanner) String(known string) (string, error) {
	c, err := s.Peek()
	if err != nil {
		return "", err
	}
	switch c {
	case '"':
		text, err := s.Unquoted()
		if err != nil || string(text) == known {
			return known, err
		}
		return string(text), nil
	case 'n':
		return "", s.Skip()
	default:
		return "", s.Unexpected("a string")
	}
}
