package shape

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Redacted stands for a value when there is no key to hash it with. Like a hash
// it is valid base64, so that a Secret's data still decodes.
const Redacted = "redacted"

// hashPrefix and 64 hexadecimal digits are 76 letters of base64.
const hashPrefix = "hmac+sha256/"

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Secrets replaces the values of core Secrets. The zero value replaces each by
// "redacted".
type Secrets struct {
	// Plain lets the values pass.
	Plain bool
	// Key makes values keyed hashes (HMAC-SHA-256): a change shows, the value does
	// not, and equal values in two places do not look equal.
	Key []byte
}

// Mode says in a word what happens to values: "plain", "hash" or "redacted".
func (s Secrets) Mode() string {
	switch {
	case s.Plain:
		return "plain"
	case len(s.Key) > 0:
		return "hash"
	default:
		return Redacted
	}
}

// Append appends the Secret raw to dst with every value under data and
// stringData, and the last-applied-configuration annotation, replaced. where is
// the object's namespace/name. On an error nothing of raw may be used.
func (s Secrets) Append(dst, raw []byte, where string) ([]byte, error) {
	if s.Plain {
		return append(dst, raw...), nil
	}
	w := splicer{src: raw, dst: dst}
	w.dec = jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	err := w.object(func(name string) error {
		switch name {
		case "data", "stringData":
			return w.object(func(key string) error { return w.replace(func(v []byte) string { return s.hide(where, key, v) }) })
		case "metadata":
			return w.object(func(name string) error {
				if name != "annotations" {
					return w.dec.SkipValue()
				}
				return w.object(func(name string) error {
					if name != lastApplied {
						return w.dec.SkipValue()
					}
					return w.replace(func(v []byte) string { return s.hide(where, name, v) })
				})
			})
		default:
			return w.dec.SkipValue()
		}
	})
	if err == nil {
		err = w.end()
	}
	if err != nil {
		return nil, fmt.Errorf("redact secret %s: %w", where, err)
	}
	return append(w.dst, raw[w.done:]...), nil
}

// hide is what stands for the JSON value v.
func (s Secrets) hide(where, key string, v []byte) string {
	if len(s.Key) == 0 {
		return Redacted
	}
	mac := hmac.New(sha256.New, s.Key)
	for _, part := range [][]byte{[]byte(where), []byte(key), plain(v)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		mac.Write(n[:])
		mac.Write(part)
	}
	return hashPrefix + hex.EncodeToString(mac.Sum(nil))
}

// plain is the value itself where v is a string of base64, else v's text.
func plain(v []byte) []byte {
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return v
	}
	if b, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
		return b
	}
	return text
}

// splicer copies JSON while replacing some of its values.
type splicer struct {
	src, dst []byte
	dec      *jsontext.Decoder
	done     int // bytes of src copied or replaced
}

// object reads an object, or null, and calls f for each member; f must read the
// value. Anything else is an error.
func (w *splicer) object(f func(name string) error) error {
	t, err := w.dec.ReadToken()
	if err != nil || t.Kind() == 'n' {
		return err
	}
	if t.Kind() != '{' {
		return fmt.Errorf("offset %d: %s where an object should be", w.dec.InputOffset(), t.Kind())
	}
	for w.dec.PeekKind() != '}' {
		name, err := w.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := f(name.String()); err != nil {
			return err
		}
	}
	_, err = w.dec.ReadToken()
	return err
}

// end returns an error when more stands behind what was read: nobody looked at it.
func (w *splicer) end() error {
	if _, err := w.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("offset %d: more behind the object", w.dec.InputOffset())
	}
	return nil
}

// replace reads a value and writes by(value) as a string in its place.
func (w *splicer) replace(by func(value []byte) string) error {
	v, err := w.dec.ReadValue()
	if err != nil {
		return err
	}
	end := int(w.dec.InputOffset())
	w.dst = append(w.dst, w.src[w.done:end-len(v)]...)
	w.dst, err = jsontext.AppendQuote(w.dst, by(v))
	w.done = end
	return err
}
