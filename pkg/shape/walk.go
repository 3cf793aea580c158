package shape

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// maxEmbedded bounds how deeply states of an object are nested in each other's annotations. Deeper ones are masked.
const maxEmbedded = 3

// walker reads an object once, following all paths at the same time, and copies it
// without the values that they hide. It skips values that no path leads into.
type walker struct {
	scan.Scanner
	root  *node
	prune bool // also remove containers of which all values were removed

	mac      hash.Hash // nil: values are not hashed
	resource string    // the resource of the objects, part of every hash
	where    string    // the object's namespace/name, part of every hash
	level    int       // how deeply this state is nested in annotations

	nodes []*node
	steps []byte // the path of the present value, encoded for its hash, which takes the bytes from path on
	path  int
	cost  int64 // bytes that were hashed or made canonical
	dst   []byte
	done  int // bytes of the text that were copied or left out
	sum   [sha256.Size]byte

	decoded []byte // buffer for a decoded value of a Secret
}

func newMAC(key []byte) hash.Hash {
	if len(key) == 0 {
		return nil
	}
	return hmac.New(sha256.New, key)
}

// walk appends the object raw to dst without the values that the paths hide. If they hide nothing, changed is false and
// nothing is appended. On an error dst must not be used.
func (w *walker) walk(dst, raw []byte, where string) (out []byte, changed bool, err error) {
	w.where, w.dst, w.done = where, dst, 0
	w.nodes, w.steps, w.path, w.cost = w.nodes[:0], w.steps[:0], 0, 0
	w.Reset(raw)
	w.enter(0, w.root)
	if _, err = w.members(frame{0, len(w.nodes)}); err == nil {
		err = w.End()
	}
	out = w.dst
	w.dst = nil
	w.Reset(nil)
	if err != nil {
		return nil, false, err
	}
	if w.done == 0 {
		return out, false, nil
	}
	return append(out, raw[w.done:]...), true, nil
}

// descend reads the children of a value that stays, and reports whether all of them were removed.
func (w *walker) descend(f frame) (emptied bool, err error) {
	c, err := w.Peek()
	switch {
	case err != nil:
		return false, err
	case c != 'n' && w.has(f, isEmbedded):
		return false, w.earlierState()
	case c == '{', w.has(f, isObject):
		return w.members(f)
	case c == '[':
		return w.elements(f)
	default:
		return false, w.Skip()
	}
}

// siblings says what was done with the members or elements of a container so far.
type siblings struct{ kept, removed bool }

func (s siblings) emptied(w *walker) bool { return w.prune && s.removed && !s.kept }

func (w *walker) members(f frame) (emptied bool, err error) {
	var s siblings
	kept := w.has(f, isKept)
	err = w.Members(func(name []byte, start int) error {
		return w.child(w.pushChild(f, name, kept), &s, name, start)
	})
	w.nodes = w.nodes[:f.end]
	return s.emptied(w), err
}

func (w *walker) elements(f frame) (emptied bool, err error) {
	var s siblings
	kept, start := w.has(f, isKept), -1
	err = w.Elements(func() error {
		if start < 0 {
			start = w.Offset()
		}
		err := w.child(w.pushChild(f, nil, kept), &s, nil, start)
		start = w.Offset()
		return err
	})
	w.nodes = w.nodes[:f.end]
	return s.emptied(w), err
}

// child reads a member, or an element if name is nil. Its text begins at
// start, and includes the comma before it unless it is the first.
func (w *walker) child(f frame, s *siblings, name []byte, start int) error {
	if f.begin == f.end {
		w.keep(s, start)
		return w.Skip()
	}
	c, err := w.Peek()
	if err != nil {
		return err
	}
	n, path := len(w.steps), w.path
	w.step(name)
	defer func() { w.steps, w.path = w.steps[:n], path }()
	switch act := w.action(f, c); act {
	case removed:
		if err := w.Skip(); err != nil {
			return err
		}
		w.remove(s, start)
	case pass:
		was, length, done := *s, len(w.dst), w.done
		w.keep(s, start)
		emptied, err := w.descend(f)
		if err != nil {
			return err
		}
		if emptied {
			*s, w.dst, w.done = was, w.dst[:length], done
			w.remove(s, start)
		}
	default:
		w.keep(s, start)
		v, err := w.Value()
		if err != nil {
			return err
		}
		w.cut(w.Offset()-len(v), w.Offset())
		return w.hide(act, name, v)
	}
	return nil
}

// cut leaves a part of the text out.
func (w *walker) cut(begin, end int) {
	w.dst = append(w.dst, w.Text()[w.done:begin]...)
	w.done = end
}

// keep keeps a member or an element. If it is the first that stays, the comma before it is cut.
func (w *walker) keep(s *siblings, start int) {
	if s.removed && !s.kept {
		w.cut(start, start+bytes.IndexByte(w.Text()[start:], ',')+1)
	}
	s.kept = true
}

func (w *walker) remove(s *siblings, start int) {
	w.cut(start, w.Offset())
	s.removed = true
}

// earlierState reads an annotation that holds an earlier state of the object, and hides the
// same paths in it. A value that cannot be parsed is masked as a whole.
func (w *walker) earlierState() error {
	v, err := w.Value()
	if err != nil {
		return err
	}
	begin, end := w.Offset()-len(v), w.Offset()
	if v[0] == '"' && w.level < maxEmbedded {
		inner := walker{root: w.root, prune: w.prune, mac: w.mac, resource: w.resource, level: w.level + 1}
		text, changed, err := inner.walk(nil, scan.Unquote(v), w.where)
		w.cost += inner.Steps() + inner.cost
		if err == nil && !changed {
			return nil
		}
		if err == nil {
			if v, err = jsontext.AppendQuote(nil, text); err == nil {
				w.cut(begin, end)
				w.dst = append(w.dst, v...)
				return nil
			}
		}
	}
	w.cut(begin, end)
	return w.hide(masked, nil, nil)
}

// hide writes the replacement of the JSON value v.
func (w *walker) hide(act action, name, v []byte) error {
	if act == masked || w.mac == nil {
		w.dst = append(w.dst, `"`+Redacted+`"`...)
		return nil
	}
	w.mac.Reset()
	if act == secretHash {
		w.digest([]byte(w.where), name, w.plain(v))
	} else {
		kind, value, err := canonical(v)
		if err != nil {
			return err
		}
		w.digest([]byte(w.where), []byte(w.resource), w.steps[w.path:], []byte(kind), value)
	}
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, hashPrefix...)
	w.dst = hex.AppendEncode(w.dst, w.mac.Sum(w.sum[:0]))
	w.dst = append(w.dst, '"')
	return nil
}

// digest hashes parts with their lengths, so that different parts never give the same input.
func (w *walker) digest(parts ...[]byte) {
	for _, part := range parts {
		n := binary.BigEndian.AppendUint64(w.sum[:0], uint64(len(part)))
		w.mac.Write(n)
		w.mac.Write(part)
		w.cost += int64(len(part))
	}
}

// longPath is the length in bytes above which a path is replaced by its hash before it goes into the hashes of the values
// below it. Otherwise an object with many values below a long path would take quadratic time.
const longPath = 512

func (w *walker) step(name []byte) {
	w.steps = appendStep(w.steps, name)
	if long := w.steps[w.path:]; len(long) > longPath {
		w.cost += int64(len(long))
		sum := sha256.Sum256(long)
		w.path = len(w.steps)
		w.steps = append(append(w.steps, 2), sum[:]...)
	}
}

// appendStep appends a member's name, or a mark for an element. It leaves out the element's index, so that the hash of
// an element does not change when elements are inserted before it.
func appendStep(dst, name []byte) []byte {
	if name == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	return append(dst, name...)
}

// maxOrdered bounds how deeply a container may be nested for its members to be sorted before it is hashed: sorting copies every
// level. Deeper containers are hashed in the order in which the server writes them, which is the same each time.
const maxOrdered = 64

// canonical returns the text of a string, and any other value in canonical form.
func canonical(v []byte) (kind string, value []byte, err error) {
	switch v[0] {
	case '"':
		return "text", scan.Unquote(v), nil
	case '{', '[':
		if scan.Deeper(v, maxOrdered) {
			return "json", v, nil
		}
		c := jsontext.Value(bytes.Clone(v))
		err := c.Format(
			jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(false),
			jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false),
		)
		return "json", c, err
	default:
		return "json", v, nil
	}
}
