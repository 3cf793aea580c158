package shape

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/scan"
)

// maxEmbedded is how many states of an object may stand in each other's
// annotations.
const maxEmbedded = 3

// walker reads an object once, beside all paths that lead into it, and copies it
// without what they hide. It descends only where a path leads.
type walker struct {
	scan.Scanner
	root  *node
	prune bool // what holds nothing but removed values is removed, too

	mac      hash.Hash // nil: values are not hashed
	resource string    // whose objects are read, part of every hash
	where    string    // the object
	level    int       // of states that stand in each other

	nodes []*node
	steps []byte // to the value that is read, for its hash: those from path on
	path  int
	cost  int64 // bytes that were hashed or made canonical
	dst   []byte
	done  int // bytes of the text copied or left out
	sum   [sha256.Size]byte

	decoded []byte // of a Secret's value
}

func newMAC(key []byte) hash.Hash {
	if len(key) == 0 {
		return nil
	}
	return hmac.New(sha256.New, key)
}

// walk appends to dst the object raw without what the paths hide, and reports
// whether that differs: if not, dst is as it was. On an error nothing of dst may be
// used.
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

// inside reads a value that stays, and reports whether it is removed completely.
func (w *walker) inside(f frame) (emptied bool, err error) {
	c, err := w.Peek()
	switch {
	case err != nil:
		return false, err
	case c != 'n' && w.has(f, isEmbedded):
		return false, w.earlier()
	case c == '{', w.has(f, isObject):
		return w.members(f)
	case c == '[':
		return w.elements(f)
	default:
		return false, w.Skip()
	}
}

// siblings are the members of an object or the elements of a list.
type siblings struct{ kept, removed bool }

func (s siblings) emptied(w *walker) bool { return w.prune && s.removed && !s.kept }

func (w *walker) members(f frame) (emptied bool, err error) {
	var s siblings
	kept := w.has(f, isKept)
	err = w.Members(func(name []byte, start int) error {
		return w.child(w.below(f, name, kept), &s, name, start)
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
		err := w.child(w.below(f, nil, kept), &s, nil, start)
		start = w.Offset()
		return err
	})
	w.nodes = w.nodes[:f.end]
	return s.emptied(w), err
}

// child reads a member or an element (name is nil), of which the text begins at
// start: with the comma, if it is not the first.
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
		emptied, err := w.inside(f)
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

// cut leaves out a part of the text.
func (w *walker) cut(begin, end int) {
	w.dst = append(w.dst, w.Text()[w.done:begin]...)
	w.done = end
}

// keep copies a member or an element, without the comma in front if it is the
// first that stays.
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

// earlier reads an annotation that holds an earlier state of the object, and hides
// in that the same. What is not understood is hidden as a whole.
func (w *walker) earlier() error {
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

// hide writes what stands for the JSON value v.
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

// digest hashes parts, so that none can be moved into another.
func (w *walker) digest(parts ...[]byte) {
	for _, part := range parts {
		n := binary.BigEndian.AppendUint64(w.sum[:0], uint64(len(part)))
		w.mac.Write(n)
		w.mac.Write(part)
		w.cost += int64(len(part))
	}
}

// longPath is from how many bytes on a path goes into the hashes of the values below it as a hash of its own: there
// may be as many values below a long path as it has bytes.
const longPath = 512

// step adds the last step to a value.
func (w *walker) step(name []byte) {
	w.steps = appendStep(w.steps, name)
	if long := w.steps[w.path:]; len(long) > longPath {
		w.cost += int64(len(long))
		sum := sha256.Sum256(long)
		w.path = len(w.steps)
		w.steps = append(append(w.steps, 2), sum[:]...)
	}
}

// appendStep appends a member's name, or that it is an element. Which one is left
// out: an element that gets another neighbour has not changed.
func appendStep(dst, name []byte) []byte {
	if name == nil {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	return append(dst, name...)
}

// maxOrdered is up to how many levels a container is hashed in one order of its members: sorting copies each level.
// A server writes the members of one object in one order.
const maxOrdered = 64

// canonical is what a string says, and any other value in one spelling.
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
