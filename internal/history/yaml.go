package history

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v2"
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
	text, err := yaml.Marshal(v)
	if err != nil {
		return nil, err
	}
	// The name "<<" is written without quotes, and YAML reads it as a merge.
	stand := "merge"
	for bytes.Contains(text, []byte(stand)) {
		stand += "e"
	}
	if !renamed(v, "<<", stand) {
		return text, nil
	}
	text, err = yaml.Marshal(v)
	return bytes.ReplaceAll(text, []byte(stand), []byte(`"<<"`)), err
}

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
