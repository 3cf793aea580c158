package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// value is the text of a JSON value that is valid. nil: it is absent, which means the same as null.
type value []byte

var (
	errNoText   = errors.New("a member is not the text that it should be")
	errNoNumber = errors.New("a member is not the number that it should be")
)

func (v value) isNull() bool { return len(v) == 0 || v[0] == 'n' }

func (v value) isObject() bool { return len(v) > 0 && v[0] == '{' }

// bytes returns what a string says, in the memory of v where possible.
func (v value) bytes() ([]byte, error) {
	switch {
	case v.isNull():
		return nil, nil
	case v[0] != '"':
		return nil, errNoText
	default:
		return scan.Unquote(v), nil
	}
}

// text returns what a string says, as [Shortened] returns it: a client can make most texts as long as it likes, and must not hide a request so.
func (v value) text() (string, error) {
	b, err := v.bytes()
	return Shortened(string(b)), err
}

// Shortened returns a text that names something: if it has more than 4 KiB, a part of it with a digest of the whole. So two of them are equal if the
// texts are, and one that is cut is neither a UID nor a resourceVersion of the API server.
func Shortened(text string) string { return ShortenedTo(text, maxShort) }

// ShortenedTo is [Shortened] for another limit of at least 80 bytes.
func ShortenedTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	digest := "~sha256:" + hex.EncodeToString(sum[:])
	n := limit - len(digest)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + digest
}

// version is text for a resourceVersion. The API server reads one with any number of leading zeros.
func (v value) version() (string, error) {
	b, err := v.bytes()
	if len(b) > maxShort {
		return Shortened(plainVersion(string(b))), err
	}
	return string(b), err
}

// cutText is text, but cuts what is longer.
func (v value) cutText(limit int) (s string, cut bool, err error) {
	b, err := v.bytes()
	if n := max(limit, 0); len(b) > n {
		for n > 0 && !utf8.RuneStart(b[n]) {
			n--
		}
		b, cut = b[:n], true
	}
	return string(b), cut, err
}

func (v value) integer() (int, error) {
	if v.isNull() {
		return 0, nil
	}
	n, err := strconv.Atoi(string(v))
	if err != nil {
		err = errNoNumber // without the value
	}
	return n, err
}

func (v value) time() (time.Time, error) {
	s, err := v.text()
	if err != nil || s == "" {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, s) // accepts fractions of a second
	if err != nil || !hasYear(t) {
		return time.Time{}, errNoText
	}
	return t.UTC(), nil
}

// members calls f for each member of an object; null has none. f may keep a value, and not the name.
func (v value) members(f func(name []byte, v value) error) error {
	if v.isNull() {
		return nil
	}
	var s scan.Scanner
	s.Reset(v)
	return s.Members(func(name []byte, _ int) error {
		one, err := s.Value()
		if err != nil {
			return err
		}
		return f(name, one)
	})
}

// at returns the member that a path of names leads to; nil: there is none. Of several with one name, the last counts.
func (v value) at(path ...string) (value, error) {
	for _, name := range path {
		var found value
		err := v.members(func(n []byte, one value) error {
			if string(n) == name {
				found = one
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		v = found
	}
	return v, nil
}

// elements calls f for each element of an array; null has none.
func (v value) elements(f func(v value) error) error {
	if v.isNull() {
		return nil
	}
	var s scan.Scanner
	s.Reset(v)
	return s.Elements(func() error {
		one, err := s.Value()
		if err != nil {
			return err
		}
		return f(one)
	})
}
