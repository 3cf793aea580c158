package scan

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendHead appends a Kubernetes object cut down to apiVersion, kind and metadata, the last without
// annotations and managedFields: what is left when a body cannot be published. What would make it
// have more than so many levels is left out, too. On an error it returns nothing.
func AppendHead(dst, raw []byte, levels int) ([]byte, error) {
	var s Scanner
	s.Reset(raw)
	begin := len(dst)
	sep := func() {
		if len(dst) > begin && dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	keep := func(name []byte) error {
		s.Measure()
		v, err := s.Value()
		if err != nil || s.Levels()+s.from > levels {
			return err
		}
		sep()
		dst, _ = jsontext.AppendQuote(dst, name)
		dst = append(append(dst, ':'), v...)
		return nil
	}
	dst = append(dst, '{')
	err := s.Members(func(name []byte, _ int) error {
		switch string(name) {
		case "apiVersion", "kind":
			return keep(name)
		case "metadata":
			sep()
			dst = append(dst, `"metadata":{`...)
			err := s.Members(func(name []byte, _ int) error {
				if n := string(name); n == "annotations" || n == "managedFields" {
					return s.Skip()
				}
				return keep(name)
			})
			dst = append(dst, '}')
			return err
		default:
			return s.Skip()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cut down an object: %w", err)
	}
	return append(dst, '}'), nil
}
