// Package raw reads what stands in JSON texts by name and index, without decoding
// them.
package raw

import (
	"bytes"
	"slices"

	"github.com/kubebridge/kubebridge/internal/scan"
)

// Member is a member of an object.
type Member struct {
	Name  []byte // what the name says, unquoted
	Value []byte
}

// AppendMembers appends the members of the object text, in its order; null has
// none. Where a name stands twice all of its members are there: the last one
// counts, as encoding/json has it.
func AppendMembers(s *scan.Scanner, dst []Member, text []byte) ([]Member, error) {
	s.Reset(text)
	return ReadMembers(s, dst)
}

// ReadMembers is AppendMembers of the text that a scanner has begun.
func ReadMembers(s *scan.Scanner, dst []Member) ([]Member, error) {
	err := s.Members(func(name []byte, _ int) error {
		v, err := s.Value()
		dst = append(dst, Member{name, v})
		return err
	})
	if err == nil {
		err = s.End()
	}
	return dst, err
}

// AppendElements appends the values of the array text; null has none.
func AppendElements(s *scan.Scanner, dst [][]byte, text []byte) ([][]byte, error) {
	s.Reset(text)
	return ReadElements(s, dst)
}

// ReadElements is AppendElements of the text that a scanner has begun.
func ReadElements(s *scan.Scanner, dst [][]byte) ([][]byte, error) {
	err := s.Elements(func() error {
		v, err := s.Value()
		dst = append(dst, v)
		return err
	})
	if err == nil {
		err = s.End()
	}
	return dst, err
}

// few is up to how many members are searched one by one.
const few = 16

// Sort puts members into the order in which [Lookup] and [Search] find them quickly.
func Sort(members []Member) {
	if len(members) > few {
		slices.SortStableFunc(members, func(a, b Member) int { return bytes.Compare(a.Name, b.Name) })
	}
}

// Lookup is [Find] in members that [Sort] has sorted.
func Lookup(members []Member, name []byte) []byte {
	if i := Search(members, name); i >= 0 {
		return members[i].Value
	}
	return nil
}

// Search returns which of the members that [Sort] has sorted is the last that has the name, -1 if none has it.
func Search(members []Member, name []byte) int {
	if len(members) <= few {
		i := len(members) - 1
		for i >= 0 && !bytes.Equal(members[i].Name, name) {
			i--
		}
		return i
	}
	i, _ := slices.BinarySearchFunc(members, name, func(m Member, name []byte) int {
		if bytes.Compare(m.Name, name) <= 0 {
			return -1 // behind the last one
		}
		return 1
	})
	if i > 0 && bytes.Equal(members[i-1].Name, name) {
		return i - 1
	}
	return -1
}

// Budget is how many steps the work on objects of so many bytes may take: bytes that are read, written, or compared
// in an order. perByte is above what any ordinary object needs, so that the budget is a bound only on what others wait for one that
// was made to be costly.
func Budget(perByte, bytes int) int64 { return int64(perByte)*int64(bytes) + 1<<20 }

// Find returns the value of the last of the members that has the name, nil if none
// has it.
func Find(members []Member, name []byte) []byte {
	for i := len(members) - 1; i >= 0; i-- {
		if bytes.Equal(members[i].Name, name) {
			return members[i].Value
		}
	}
	return nil
}

// Get returns the value at the end of a path of names, nil if there is none: also
// where something on the way is no object.
func Get(s *scan.Scanner, text []byte, names ...string) ([]byte, error) {
	for _, name := range names {
		var found []byte
		s.Reset(text)
		if c, err := s.Peek(); err != nil || c != '{' {
			return nil, err
		}
		err := s.Members(func(n []byte, _ int) error {
			v, err := s.Value()
			if string(n) == name {
				found = v
			}
			return err
		})
		if err != nil || found == nil {
			return nil, err
		}
		text = found
	}
	return text, nil
}
