package history

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v2"

	jsonscan "github.com/kubebridge/kubebridge/internal/scan"
)

// YAML is a text of JSON as YAML. Libraries that read JSON as YAML on the way refuse some characters that JSON
// allows, unpaired surrogates, and keys of more than 1,024 bytes: one such value of one object would keep
// all others from being shown.
func YAML(object []byte) ([]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	v = numbered(v)
	if jsonscan.Deeper(object, maxIndented) {
		return append(appendFlow(nil, v), '\n'), nil
	}
	// The name "<<" would be written without quotes, and YAML reads it as a merge. What stands in for it is in no
	// object, since nobody can guess it.
	stand := "merge" + rand.Text()
	found := renamed(v, "<<", stand)
	text, err := yaml.Marshal(v)
	if found {
		text = bytes.ReplaceAll(text, []byte(stand), []byte(`"<<"`))
	}
	return text, err
}

// maxIndented is up to how many levels an object is written with a line for each value. Each line begins with two
// spaces for each level, so deeper objects are written on one line.
const maxIndented = 100

// longKey is from how many bytes on a name needs a question mark in front: readers of YAML allow 1,024.
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
	text, _ := yaml.Marshal(v) // numbers, true, false and null: cannot fail
	return append(dst, bytes.TrimSuffix(text, []byte("\n"))...)
}

// appendQuoted writes a string in double quotes. YAML has all escapes that Go uses for valid strings.
func appendQuoted(dst []byte, s string) []byte { return strconv.AppendQuoteToASCII(dst, s) }

// renamed renames the members of v, and reports whether there were any.
func renamed(v any, from, to string) (found bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			found = renamed(child, from, to) || found
		}
		if child, ok := v[from]; ok {
			delete(v, from)
			v[to], found = child, true
		}
	case []any:
		for _, child := range v {
			found = renamed(child, from, to) || found
		}
	}
	return found
}

// numbered replaces the numbers of JSON by those of Go.
func numbered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = numbered(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
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
			return v.String() // larger than any number here
		}
		return n
	}
	return v
}
