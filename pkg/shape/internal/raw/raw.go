// Package raw reads values of JSON texts by name and index, without decoding
// the texts.
package raw

import (
	"bytes"
	"slices"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// Member is a member of an object.
type Member struct {
	Name  []byte // unquoted
	Value []byte
}

// AppendMembers appends the members of the object text, in its order. null has
// none. If a name occurs twice, both members are appended; the last one
// counts, as in encoding/json.
func AppendMembers(s *scan.Scanner, dst []Member, text []byte) ([]Member, error) {
	s.Reset(text)
	return ReadMembers(s, dst)
}

// ReadMembers is AppendMembers for the text that was given to the scanner.
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

// AppendElements appends the elements of the array text. null has none.
func AppendElements(s *scan.Scanner, dst [][]byte, text []byte) ([][]byte, error) {
	s.Reset(text)
	return ReadElements(s, dst)
}

// ReadElements is AppendElements for the text that was given to the scanner.
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

// maxLinear is the largest number of members that are searched one by one.
const maxLinear = 16

// Sort sorts members for [Lookup] and [Search].
func Sort(members []Member) {
	if len(members) > maxLinear {
		slices.SortStableFunc(members, func(a, b Member) int { return bytes.Compare(a.Name, b.Name) })
	}
}

// Lookup is like [Find], for members that [Sort] has sorted.
func Lookup(members []Member, name []byte) []byte {
	if i := Search(members, name); i >= 0 {
		return members[i].Value
	}
	return nil
}

// Search returns the index of the last member with the name, -1 if there is none. [Sort] must have sorted the members.
func Search(members []Member, name []byte) int {
	if len(members) <= maxLinear {
		i := len(members) - 1
		for i >= 0 && !bytes.Equal(members[i].Name, name) {
			i--
		}
		return i
	}
	i, _ := slices.BinarySearchFunc(members, name, func(m Member, name []byte) int {
		if bytes.Compare(m.Name, name) <= 0 {
			return -1 // so that the search ends behind the last member of that name
		}
		return 1
	})
	if i > 0 && bytes.Equal(members[i-1].Name, name) {
		return i - 1
	}
	return -1
}

// Budget returns how many steps the work on objects of so many bytes may take. A step is a byte that is read or written, or a
// comparison. perByte is more than ordinary objects need: the budget only bounds how long others wait for an object that was made to
// be costly.
func Budget(perByte, bytes int) int64 { return int64(perByte)*int64(bytes) + 1<<18 }

// Find returns the value of the last member with the name; nil if there is none.
func Find(members []Member, name []byte) []byte {
	for i := len(members) - 1; i >= 0; i-- {
		if bytes.Equal(members[i].Name, name) {
			return members[i].Value
		}
	}
	return nil
}

// Get returns the value at the end of a path of names. It returns nil if there is none, or if a value on the path is no
// object.
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
