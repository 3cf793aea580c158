// Package raw reads what stands in JSON texts by name and index, without decoding
// them.
package raw

import (
	"bytes"

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
