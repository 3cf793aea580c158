package history

import (
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/yaml"
)

// YAML is a text of JSON as YAML. The library reads JSON as YAML, which does not take
// every character that JSON does as it is, nor halves of characters as escapes: one
// such value of one object would keep all others from being shown.
func YAML(object []byte) ([]byte, error) {
	text, err := jsontext.AppendFormat(nil, object, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, err
	}
	plain := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case ' ' <= r && r <= '~':
			plain = append(plain, byte(r))
		case r > 0xffff:
			plain = append(plain, text[:n]...)
		default: // of a string: the rest is ASCII
			plain = fmt.Appendf(plain, `\u%04x`, r)
		}
		text = text[n:]
	}
	return yaml.JSONToYAML(plain)
}
