package shape

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/scan"
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
	w := splicer{dst: dst, where: where}
	if len(s.Key) > 0 {
		w.mac = hmac.New(sha256.New, s.Key)
	}
	w.Reset(raw)
	err := w.Members(func(name []byte, _ int) error {
		switch string(name) {
		case "data", "stringData":
			return w.Members(func(key []byte, _ int) error { return w.replace(key) })
		case "metadata":
			return w.Members(func(name []byte, _ int) error {
				if string(name) != "annotations" {
					return w.Skip()
				}
				return w.Members(func(name []byte, _ int) error {
					if string(name) != lastApplied {
						return w.Skip()
					}
					return w.replace(name)
				})
			})
		default:
			return w.Skip()
		}
	})
	if err == nil {
		err = w.End()
	}
	if err != nil {
		return nil, fmt.Errorf("redact secret %s: %w", where, err)
	}
	return append(w.dst, raw[w.done:]...), nil
}

// plain is the value itself where v is a string of base64, else v's text.
func plain(v []byte) []byte {
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return v
	}
	if b, err := base64.StdEncoding.AppendDecode(nil, text); err == nil {
		return b
	}
	return text
}

// splicer copies a Secret while replacing some of its values.
type splicer struct {
	scan.Scanner
	mac   hash.Hash // nil: values are not hashed
	where string
	dst   []byte
	done  int // bytes of the text copied or replaced
}

// replace reads the value of a key and writes what hides it in its place.
func (w *splicer) replace(key []byte) error {
	v, err := w.Value()
	if err != nil {
		return err
	}
	text, end := w.Text(), w.Offset()
	w.dst = append(w.dst, text[w.done:end-len(v)]...)
	w.dst = append(w.dst, '"')
	w.hide(key, v)
	w.dst = append(w.dst, '"')
	w.done = end
	return nil
}

// hide writes what stands for the JSON value v.
func (w *splicer) hide(key, v []byte) {
	if w.mac == nil {
		w.dst = append(w.dst, Redacted...)
		return
	}
	w.mac.Reset()
	for _, part := range [...][]byte{[]byte(w.where), key, plain(v)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		w.mac.Write(n[:])
		w.mac.Write(part)
	}
	w.dst = append(w.dst, hashPrefix...)
	w.dst = hex.AppendEncode(w.dst, w.mac.Sum(nil))
}
