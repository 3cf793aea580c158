package shape

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendHead appends an object cut down to apiVersion, kind and metadata, the
// last without annotations: what is left when a body does not fit the bus. On an
// error it returns nothing.
func AppendHead(dst, raw []byte) ([]byte, error) {
	w := splicer{src: raw}
	w.dec = jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	begin := len(dst)
	sep := func() {
		if len(dst) > begin && dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
	}
	keep := func(name string) error {
		v, err := w.dec.ReadValue()
		if err != nil {
			return err
		}
		sep()
		dst, _ = jsontext.AppendQuote(dst, name)
		dst = append(append(dst, ':'), v...)
		return nil
	}
	dst = append(dst, '{')
	err := w.object(func(name string) error {
		switch name {
		case "apiVersion", "kind":
			return keep(name)
		case "metadata":
			sep()
			dst = append(dst, `"metadata":{`...)
			err := w.object(func(name string) error {
				if name == "annotations" || name == "managedFields" {
					return w.dec.SkipValue()
				}
				return keep(name)
			})
			dst = append(dst, '}')
			return err
		default:
			return w.dec.SkipValue()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cut down an object: %w", err)
	}
	return append(dst, '}'), nil
}
