// Package patch writes the difference between two JSON texts as a JSON Patch (RFC
// 6902), and applies such patches, without decoding the texts.
//
// Elements of lists are recognised by an identifying member (a uid, a name, a
// type, a key …), so that an inserted element does not make all following ones look
// changed. Recognition only affects the size of a patch, never its correctness.
//
// Two texts are equal if they decode to the same value. Numbers are compared as they are
// written: 1 and 1.0 differ. If a name occurs twice in an object, the last one
// counts.
package patch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

const (
	// maxDepth bounds how deeply containers are compared. Deeper values are replaced as a whole, as are all values
	// once the patch has used its budget.
	maxDepth = 100
	// endsDepth is the depth at which a container is read once more, to record where all containers in it
	// end. Above it, each level reads the text again.
	endsDepth = 3
	// perByte is the budget of a patch in steps per byte. Ordinary objects need up to 6.
	perByte = 8
	// copied is the number of bytes that are copied in the time in which one byte is read.
	copied = 16
)

// Append appends the patch that changes before into after: an array of operations, which
// is empty if they are equal. It is never longer than the operation that replaces
// the whole text. It returns an error, and dst must not be used, if a text is not valid JSON.
func Append(dst, before, after []byte) ([]byte, error) {
	var m Maker
	return m.Append(dst, before, after)
}

// Maker makes patches. The zero value is ready to use. A Maker reuses its memory for the next
// patch, and must not be used by two goroutines at a time.
type Maker struct {
	// WithoutManagedFields removes metadata.managedFields from both texts before they are
	// compared.
	WithoutManagedFields bool

	scan     scan.Scanner
	ends     [2]scan.Ends // where the containers within the two present containers of endsDepth end
	stripped [2][]byte

	dst   []byte
	begin int    // the index of the first operation in dst
	path  []byte // the current path: a JSON Pointer (RFC 6901), escaped as in a JSON string
	depth int

	start, budget int64 // steps
	others        int64 // steps other than bytes read
	coarse        bool

	// Stacks: each level uses the part above the one it found.
	members  []raw.Member
	elements [][]byte
	ints     []int
	ids      []identified
}

// Append is like the function [Append].
func (m *Maker) Append(dst, before, after []byte) ([]byte, error) {
	before, after = m.prepare(0, before), m.prepare(1, after)
	if bytes.Equal(before, after) || !alike(before, after) { // diff does not read these, so check here that they are valid
		for i, text := range [][]byte{before, after} {
			m.scan.Reset(text)
			err := m.scan.Skip()
			if err == nil {
				err = m.scan.End()
			}
			if err != nil {
				return nil, fmt.Errorf("patch: %s: %w", [...]string{"before", "after"}[i], err)
			}
		}
	}
	m.dst = append(dst, '[')
	m.begin, m.path, m.depth = len(m.dst), m.path[:0], 0
	m.members, m.elements, m.ints = m.members[:0], m.elements[:0], m.ints[:0]
	m.budget, m.others, m.coarse = raw.Budget(perByte, len(before)+len(after)), 0, false
	m.start = m.scan.Steps()
	err := m.diff(before, after, math.MaxInt)
	m.ends[0].Forget()
	m.ends[1].Forget()
	dst, m.dst = append(m.dst, ']'), nil
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	return dst, nil
}

// Coarse reports whether the last patch used up its budget, and so may replace more than has changed.
func (m *Maker) Coarse() bool { return m.coarse }

// Steps returns the cost of the last patch: bytes that were read, a part of the bytes that were written and dropped, and elements that
// were compared.
func (m *Maker) Steps() int64 { return m.scan.Steps() - m.start + m.others }

// prepare removes the parts of a text that are not compared. It returns an invalid text unchanged: the
// comparison reports it.
func (m *Maker) prepare(i int, text []byte) []byte {
	text = bytes.Trim(text, scan.WhiteSpace)
	if !m.WithoutManagedFields {
		return text
	}
	s := &m.scan
	s.Reset(text)
	from, to := 0, 0
	err := s.Members(func(name []byte, _ int) error {
		if c, err := s.Peek(); err != nil || string(name) != "metadata" || c != '{' {
			return s.Skip()
		}
		err := s.Members(func(name []byte, begin int) error {
			if err := s.Skip(); err != nil || string(name) != "managedFields" {
				return err
			}
			from, to = begin, s.Offset()
			if c, err := s.Peek(); err == nil && c == ',' && text[from-1] == '{' {
				to = s.Offset() + 1 // the first member is removed with the comma behind it
			}
			return nil
		})
		if err == nil {
			err = errDone
		}
		return err
	})
	if !errors.Is(err, errDone) || to == 0 {
		return text
	}
	m.stripped[i] = append(append(m.stripped[i][:0], text[:from]...), text[to:]...)
	return m.stripped[i]
}

// errDone ends a scan early.
var errDone = errors.New("done")

// alike reports whether both are objects, or both arrays.
func alike(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && a[0] == b[0] && (a[0] == '{' || a[0] == '[')
}

// diff writes the operations that change a into b, at the current path. It may end early once there are more than limit bytes:
// the caller then drops them.
func (m *Maker) diff(a, b []byte, limit int) error {
	if bytes.Equal(a, b) {
		return nil
	}
	m.coarse = m.coarse || m.Steps() > m.budget
	switch {
	case m.depth == maxDepth || m.coarse:
	case alike(a, b):
		return m.containers(a, b, limit)
	case a[0] == '"' && b[0] == '"' && bytes.Equal(scan.Unquote(a), scan.Unquote(b)):
		return nil
	}
	m.operation("replace", b)
	return nil
}

// containers is diff for two objects or two arrays. It replaces the whole container if that is shorter.
func (m *Maker) containers(a, b []byte, limit int) (err error) {
	begin, path := len(m.dst), len(m.path)
	whole := begin + len(`{"op":"replace","path":"","value":}`) + path + len(b)
	if begin > m.begin {
		whole++ // a comma
	}
	if m.depth == endsDepth {
		m.ends[0].Find(a)
		m.ends[1].Find(b)
		m.others += int64(len(a) + len(b))
	}
	m.depth++
	if a[0] == '{' {
		err = m.objects(a, b, min(whole, limit))
	} else {
		err = m.arrays(a, b, min(whole, limit))
	}
	m.depth--
	m.path = m.path[:path]
	if err == nil && len(m.dst) > whole {
		m.others += int64(len(m.dst)-begin) / copied
		m.dst = m.dst[:begin]
		m.operation("replace", b)
	}
	return err
}

// operation writes an operation at the current path, with a value if there is one.
func (m *Maker) operation(op string, value []byte) {
	m.open(op)
	if value != nil {
		m.dst = append(append(m.dst, `,"value":`...), value...)
	}
	m.dst = append(m.dst, '}')
}

func (m *Maker) open(op string) {
	if len(m.dst) > m.begin {
		m.dst = append(m.dst, ',')
	}
	m.dst = append(append(m.dst, `{"op":"`...), op...)
	m.dst = append(append(m.dst, `","path":"`...), m.path...)
	m.dst = append(m.dst, '"')
}

// objects writes the operations that change the object a into b. It may end early once there are more than limit bytes.
func (m *Maker) objects(a, b []byte, limit int) error {
	low := len(m.members)
	defer func() { m.members = m.members[:low] }()
	as, err := m.sorted(0, a)
	if err != nil {
		return err
	}
	bs, err := m.sorted(1, b)
	if err != nil {
		return err
	}
	path := len(m.path)
	for (len(as) > 0 || len(bs) > 0) && len(m.dst) <= limit {
		order := len(as) - len(bs)
		if len(as) > 0 && len(bs) > 0 {
			order = bytes.Compare(as[0].Name, bs[0].Name)
		} else {
			order = -order // one side is used up: the other side's member comes next
		}
		switch {
		case order < 0:
			m.push(as[0].Name)
			m.operation("remove", nil)
			as = as[1:]
		case order > 0:
			m.push(bs[0].Name)
			m.operation("add", bs[0].Value)
			bs = bs[1:]
		default:
			m.push(bs[0].Name)
			if err := m.diff(as[0].Value, bs[0].Value, limit); err != nil {
				return err
			}
			as, bs = as[1:], bs[1:]
		}
		m.path = m.path[:path]
	}
	return nil
}

// sorted returns the members of an object, sorted by name and each name once. side is 0 (before) or 1 (after).
func (m *Maker) sorted(side int, text []byte) (members []raw.Member, err error) {
	low := len(m.members)
	m.scan.ResetWithin(text, &m.ends[side])
	if m.members, err = raw.ReadMembers(&m.scan, m.members); err != nil {
		return nil, err
	}
	members = m.members[low:]
	byName := func(a, b raw.Member) int { return bytes.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(members, byName) {
		slices.SortStableFunc(members, byName)
	}
	unique := members[:0]
	for i, x := range members {
		if i+1 == len(members) || !bytes.Equal(x.Name, members[i+1].Name) {
			unique = append(unique, x)
		}
	}
	return unique, nil
}

func (m *Maker) push(name []byte) {
	m.path = append(m.path, '/')
	for i, c := range name {
		if c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			m.pushQuoted(name[i:])
			return
		}
		m.pushByte(c)
	}
}

func (m *Maker) pushByte(c byte) {
	switch c {
	case '~':
		m.path = append(m.path, "~0"...)
	case '/':
		m.path = append(m.path, "~1"...)
	default:
		m.path = append(m.path, c)
	}
}

func (m *Maker) pushQuoted(name []byte) {
	quoted, _ := jsontext.AppendQuote(nil, name) // its error reports what is not UTF-8
	for _, c := range quoted[1 : len(quoted)-1] {
		m.pushByte(c)
	}
}

func (m *Maker) pushIndex(i int) {
	m.path = strconv.AppendInt(append(m.path, '/'), int64(i), 10)
}
