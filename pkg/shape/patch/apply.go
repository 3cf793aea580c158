package patch

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/kubebridge/internal/base/scan"
	"github.com/kubebridge/kubebridge/pkg/shape/internal/raw"
)

// Apply applies a patch to a text. It supports the operations that [Append]
// writes: add, remove, replace and move. Other operations, and paths that do not exist, are
// errors. It reads the whole text for each operation.
func Apply(text, patch []byte) ([]byte, error) {
	var e editor
	operations, err := raw.AppendElements(&e.scan, nil, patch)
	if err != nil {
		return nil, fmt.Errorf("apply patch: %w", err)
	}
	for i, o := range operations {
		if text, err = e.apply(text, o); err != nil {
			return nil, fmt.Errorf("apply patch: operation %d: %w", i, err)
		}
	}
	return text, nil
}

type editor struct{ scan scan.Scanner }

// operation is an operation of RFC 6902, section 4.
type operation struct {
	op, path, from string
	value          []byte // nil: none
}

func (e *editor) apply(text, patch []byte) ([]byte, error) {
	members, err := raw.AppendMembers(&e.scan, nil, patch)
	if err != nil {
		return nil, err
	}
	o := operation{value: raw.Find(members, []byte("value"))}
	for _, f := range []struct {
		name string
		to   *string
	}{{"op", &o.op}, {"path", &o.path}, {"from", &o.from}} {
		switch v := raw.Find(members, []byte(f.name)); {
		case v == nil && (f.name != "from" || o.op == "move"):
			return nil, fmt.Errorf("no %s", f.name)
		case v != nil && v[0] != '"':
			return nil, fmt.Errorf("%s is %s, not a string", f.name, v)
		case v != nil:
			*f.to = string(scan.Unquote(v))
		}
	}
	switch o.op {
	case "remove":
		return e.edit(text, o.path, o)
	case "add", "replace":
		if o.value == nil {
			return nil, fmt.Errorf("no value to %s", o.op)
		}
		return e.edit(text, o.path, o)
	case "move":
		if o.from == o.path {
			_, err := e.get(text, o.from)
			return text, err
		}
		if o.value, err = e.get(text, o.from); err != nil {
			return nil, err
		}
		if text, err = e.edit(text, o.from, operation{op: "remove", path: o.from}); err != nil {
			return nil, err
		}
		o.op = "add"
		return e.edit(text, o.path, o)
	default:
		return nil, fmt.Errorf("unknown operation %q", o.op)
	}
}

// next splits the first name off a pointer (RFC 6901).
func next(pointer string) (name, rest string, err error) {
	if pointer[0] != '/' {
		return "", "", fmt.Errorf("path %q does not begin with a slash", pointer)
	}
	name = pointer[1:]
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~"), rest, nil
}

// index parses an element's index, which must be less than n.
func index(name string, n int) (int, error) {
	i, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(i) != name || i < 0 || i >= n {
		return 0, fmt.Errorf("no element %q in a list of %d", name, n)
	}
	return i, nil
}

func (e *editor) get(text []byte, pointer string) ([]byte, error) {
	for pointer != "" {
		var name string
		var err error
		if name, pointer, err = next(pointer); err != nil {
			return nil, err
		}
		switch text = bytes.TrimLeft(text, scan.WhiteSpace); {
		case bytes.HasPrefix(text, []byte("{")):
			members, err := raw.AppendMembers(&e.scan, nil, text)
			if err != nil {
				return nil, err
			}
			if text = raw.Find(members, []byte(name)); text == nil {
				return nil, fmt.Errorf("no member %q", name)
			}
		case bytes.HasPrefix(text, []byte("[")):
			elements, err := raw.AppendElements(&e.scan, nil, text)
			if err != nil {
				return nil, err
			}
			i, err := index(name, len(elements))
			if err != nil {
				return nil, err
			}
			text = elements[i]
		default:
			return nil, fmt.Errorf("%q is in neither an object nor a list", name)
		}
	}
	return text, nil
}

// edit returns text after an operation at the pointer.
func (e *editor) edit(text []byte, pointer string, o operation) ([]byte, error) {
	if pointer == "" {
		if o.op == "remove" {
			return nil, fmt.Errorf("the whole cannot be removed")
		}
		return o.value, nil
	}
	name, rest, err := next(pointer)
	if err != nil {
		return nil, err
	}
	switch text = bytes.TrimLeft(text, scan.WhiteSpace); {
	case bytes.HasPrefix(text, []byte("{")):
		return e.editObject(text, name, rest, o)
	case bytes.HasPrefix(text, []byte("[")):
		return e.editArray(text, name, rest, o)
	default:
		return nil, fmt.Errorf("%q is in neither an object nor a list", name)
	}
}

func (e *editor) editObject(text []byte, name, rest string, o operation) ([]byte, error) {
	members, err := raw.AppendMembers(&e.scan, nil, text)
	if err != nil {
		return nil, err
	}
	value := raw.Find(members, []byte(name))
	switch {
	case value == nil && (rest != "" || o.op != "add"):
		return nil, fmt.Errorf("no member %q", name)
	case rest != "":
		if value, err = e.edit(value, rest, o); err != nil {
			return nil, err
		}
	default:
		value = o.value
	}
	to := append(make([]byte, 0, len(text)+len(value)+len(name)+8), '{')
	add := func(name, value []byte) {
		if len(to) > 1 {
			to = append(to, ',')
		}
		to = append(append(quote(to, name), ':'), value...)
	}
	for _, x := range members {
		switch {
		case string(x.Name) != name:
			add(x.Name, x.Value)
		case value != nil: // if the name occurs several times, only the first one is kept, with the new value
			add(x.Name, value)
			value = nil
		}
	}
	if value != nil {
		add([]byte(name), value)
	}
	return append(to, '}'), nil
}

func quote(dst, name []byte) []byte {
	dst, _ = jsontext.AppendQuote(dst, name) // its error reports what is not UTF-8
	return dst
}

func (e *editor) editArray(text []byte, name, rest string, o operation) ([]byte, error) {
	elements, err := raw.AppendElements(&e.scan, nil, text)
	if err != nil {
		return nil, err
	}
	n := len(elements)
	adds := rest == "" && o.op == "add"
	if adds {
		n++
	}
	i := len(elements)
	if !adds || name != "-" {
		if i, err = index(name, n); err != nil {
			return nil, err
		}
	}
	value := o.value
	if rest != "" {
		if value, err = e.edit(elements[i], rest, o); err != nil {
			return nil, err
		}
	}
	to := append(make([]byte, 0, len(text)+len(value)+1), '[')
	add := func(value []byte) {
		if len(to) > 1 {
			to = append(to, ',')
		}
		to = append(to, value...)
	}
	for j, x := range elements {
		if j != i {
			add(x)
			continue
		}
		if value != nil {
			add(value)
		}
		if adds {
			add(x)
		}
	}
	if i == len(elements) {
		add(value)
	}
	return append(to, ']'), nil
}
