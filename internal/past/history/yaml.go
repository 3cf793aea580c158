package history

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v2"

	jsonscan "github.com/kubebridge/kubebridge/internal/base/scan"
)

// YAML returns a JSON text as YAML. It decodes the text as JSON. Libraries that parse JSON as YAML reject unpaired
// surrogates, keys of more than 1,024 bytes and some other characters that JSON allows, so that one such object would
// prevent all others from being shown.
func YAML(object []byte) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	v = goNumbers(v)
	if jsonscan.Deeper(object, maxIndented) {
		return append(appendFlow(nil, v), '\n'), nil
	}
	// The library writes the name "<<" without quotes, and YAML reads that as a merge. The placeholder is random, so that
	// no object can contain it.
	placeholder := "merge" + rand.Text()
	found := renameMembers(v, "<<", placeholder)
	text, err := yaml.Marshal(v)
	if found {
		text = bytes.ReplaceAll(text, []byte(placeholder), []byte(`"<<"`))
	}
	return text, err
}

// maxIndented is up to how many levels an object is written with one line per value. Each line begins with two
// spaces per level, so deeper objects would grow quadratically and are written on one line.
const maxIndented = 100

// longKey is the length in bytes above which a key is written after a question mark: without it, parsers of YAML accept
// at most 1,024 bytes.
const longKey = 1000

// appendFlow writes a value of decoded JSON in YAML's flow style, on one line.
func appendFlow(dst []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			if len(name) > longKey {
				dst = append(dst, "? "...)
			}
			dst = append(appendQuoted(dst, name), " : "...)
			dst = appendFlow(dst, v[name])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, child := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendFlow(dst, child)
		}
		return append(dst, ']')
	case string:
		return appendQuoted(dst, v)
	}
	text, _ := yaml.Marshal(v) // cannot fail: v is a number, true, false or null
	return append(dst, bytes.TrimSuffix(text, []byte("\n"))...)
}

// appendQuoted writes a string in double quotes. YAML knows all escapes that Go uses for valid strings.
func appendQuoted(dst []byte, s string) []byte { return strconv.AppendQuoteToASCII(dst, s) }

// renameMembers renames all members of v that are named from, and reports whether there were any.
func renameMembers(v any, from, to string) (found bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			found = renameMembers(child, from, to) || found
		}
		if child, ok := v[from]; ok {
			delete(v, from)
			v[to], found = child, true
		}
	case []any:
		for _, child := range v {
			found = renameMembers(child, from, to) || found
		}
	}
	return found
}

// goNumbers replaces json.Number by int64, uint64 or float64.
func goNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = goNumbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = goNumbers(v[i])
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		n, err := v.Float64()
		if err != nil {
			return v.String() // beyond the range of float64
		}
		return n
	}
	return v
}
