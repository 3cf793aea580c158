package event

import (
	"bytes"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// split returns the values of some members of a JSON object as they are in the text, nil for one that it does not have, and an object of its other
// members. It reads large values only once: encoding/json takes several times as long to find their ends. As there, the last member of a name counts, and
// null has no members.
func split(text []byte, names ...string) (values [][]byte, rest []byte, err error) {
	var s scan.Scanner
	s.Reset(text)
	values, rest = make([][]byte, len(names)), append(rest, '{')
	err = s.Members(func(name []byte, start int) error {
		which := -1
		for i := range names {
			if string(name) == names[i] {
				which = i
			}
		}
		value, err := s.Value()
		if err != nil {
			return err
		}
		if which >= 0 {
			values[which] = value
			return nil
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(rest, bytes.TrimLeft(text[start:s.Offset()], ","+scan.WhiteSpace)...)
		return nil
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && s.Levels() > scan.MaxDepth {
		err = fmt.Errorf("more than %d levels", scan.MaxDepth)
	}
	return values, append(rest, '}'), err
}
