// Package hostiletest makes objects that look harmless and that are expensive to read without care. Tests use them to
// bound the cost of one object. The API server accepts all of them.
package hostiletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Change is one update of an object.
type Change struct {
	Name          string
	Before, After []byte
}

// Size returns the size of both states in bytes.
func (c *Change) Size() int { return len(c.Before) + len(c.After) }

// Writable returns the part of a state that a tenant may choose: everything except the identity. The managedFields of
// a hostile state get the API version, for example "a.example.com/v1". The managedFields of an ordinary state are left
// to the API server.
func Writable(state []byte, apiVersion string) (map[string]any, error) {
	var fields map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(state, []byte("example.com/v1"), []byte(apiVersion)), &fields); err != nil {
		return nil, err
	}
	hostile := fields["apiVersion"] == apiVersion
	metadata, _ := fields["metadata"].(map[string]any)
	maps.DeleteFunc(metadata, func(name string, _ any) bool { return !hostile || name != "managedFields" })
	return fields, nil
}

// Changes returns the updates, each of about n bytes.
func Changes(n int) []Change {
	return []Change{
		{"equal elements", object(1, list(n/2, `1`), ""), object(2, "["+list(n/2, `1`)[3:], "")},
		{"lists of equal elements", object(1, list(n/8000, list(4000, `1`)), ""), object(2, list(n/8000, list(4000, `2`)), "")},
		{"elements of one identity", object(1, list(n/20, `{"name":"a","v":%d}`), ""), object(2, list(n/20+1, `{"name":"a","v":1%d}`), "")},
		{"elements in another order", object(1, list(n/7, `1%05d`), ""), object(2, reversed(n/7, `1%05d`), "")},
		{"elements that swap", object(1, list(n/7, `1%05d`), ""), object(2, swapped(n/7, `1%05d`), "")},
		{"one long list, many short ones", object(1, `{"a":`+list(4000, `%d`)+`,"b":`+list(n/8, `[1%d]`)+`}`, ""), object(2, `{"a":`+list(4000, `1%d`)+`,"b":`+list(n/8, `[2%d]`)+`}`, "")},
		{"a long name above many changes", object(1, named(n/2, list(n/10, `[%d]`)), ""), object(2, named(n/2, list(n/10, `[1%d]`)), "")},
		{"a long name above many members", object(1, named(n/2, members(n/20, 1)), ""), object(2, named(n/2, members(n/20, 2)), "")},
		{"deep, all at the bottom", object(1, nested(1000, list(n/8, `[%d]`)), ""), object(2, nested(1000, list(n/8, `[1%d]`)), "")},
		{"deep, out of order", object(1, outOfOrder(1000, list(n/8, `[%d]`)), ""), object(2, outOfOrder(1000, list(n/8, `[1%d]`)), "")},
		{"deep, a change on each level", object(1, changing(300, 1, list(n/8, `[%d]`)), ""), object(2, changing(300, 2, list(n/8, `[1%d]`)), "")},
		{"env with keys", env(n/100, 1), env(n/100, 2)},
		{"env with many sets of keys", keySets(n/120, 1), keySets(n/120, 2)},
		{"elements with a set of many keys", manyKeys(n/60, 1), manyKeys(n/60, 2)},
		{"members with fields", object(1, members(n/30, 1), fieldsOf(n/30)), object(2, members(n/30, 2), fieldsOf(n/30))},
		{"atomic places of many managers", atomic(n/60, 1), atomic(n/60, 2)},
		{"many managers", object(1, `{"a":1}`, managers(n/160)), object(2, `{"a":2}`, managers(n/160))},
		{"items", object(1, `{"items":`+items(n/25)+`,"x":1}`, ""), object(2, `{"items":`+items(n/25)+`,"x":2}`, "")},
		{"many members at the root", root(n/20, 1), root(n/20, 2)},
		{"text that needs quotes", object(1, `{"a":"`+strings.Repeat("\u0085\x7f: #", n/6)+`"}`, ""), object(2, `{"a":"`+strings.Repeat(`\u0001\"\\`, n/10)+`"}`, "")},
		{"text like the stand-in of <<", object(1, `{"<<":"merge`+strings.Repeat("e", n)+`"}`, ""), object(2, `{"<<":1,"a":"merge`+strings.Repeat("e", n)+`"}`, "")},
		{"lines, each a few times", object(1, repeated(n, 1), ""), object(2, repeated(n, 2), "")},
	}
}

func object(version int, spec, managedFields string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"tenant","resourceVersion":"%d","uid":"u"%s},"spec":%s}`,
		version, managedFields, spec)
}

func list(n int, form string) string {
	var b strings.Builder
	for i := range n {
		element(&b, form, i)
	}
	return "[" + strings.TrimSuffix(b.String(), ",") + "]"
}

func element(b *strings.Builder, form string, i int) {
	if strings.Contains(form, "%") {
		fmt.Fprintf(b, form, i)
	} else {
		b.WriteString(form)
	}
	b.WriteByte(',')
}

func reversed(n int, form string) string {
	var b strings.Builder
	for i := range n {
		element(&b, form, n-1-i)
	}
	return "[" + strings.TrimSuffix(b.String(), ",") + "]"
}

// swapped moves every second element to the end.
func swapped(n int, form string) string {
	var b strings.Builder
	for i := 0; i < n; i += 2 {
		element(&b, form, i)
	}
	for i := n - 1 - n%2; i > 0; i -= 2 {
		element(&b, form, i)
	}
	return "[" + strings.TrimSuffix(b.String(), ",") + "]"
}

func members(n, v int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":"%d",`, i, v)
	}
	return "{" + strings.TrimSuffix(b.String(), ",") + "}"
}

func named(length int, value string) string {
	return `{"` + strings.Repeat("n", length) + `":` + value + `}`
}

func nested(levels int, value string) string {
	return strings.Repeat(`{"a":`, levels) + value + strings.Repeat("}", levels)
}

func outOfOrder(levels int, value string) string {
	return strings.Repeat(`{"b":1,"a":`, levels) + value + strings.Repeat("}", levels)
}

func changing(levels, v int, value string) string {
	return strings.Repeat(fmt.Sprintf(`{"b":%d,"a":`, v), levels) + value + strings.Repeat("}", levels)
}

func entry(manager string, fields string) string {
	return fmt.Sprintf(`{"manager":%q,"operation":"Apply","apiVersion":"example.com/v1","time":"2026-03-01T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":%s}`, manager, fields)
}

// env is a list of variables. managedFields names each of them by its key.
func env(n, v int) []byte {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, `"k:{\"name\":\"E%d\"}":{".":{},"f:name":{},"f:value":{}},`, i)
	}
	f := `{"f:spec":{"f:env":{` + strings.TrimSuffix(fields.String(), ",") + `}}}`
	return object(v, `{"env":`+list(n, `{"name":"E%d","value":"`+fmt.Sprint(v)+`"}`)+`}`, `,"managedFields":[`+entry("a", f)+`]`)
}

// keySets has managedFields that name each element by a different set of members.
func keySets(n, v int) []byte {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, `"k:{\"n%d\":1}":{".":{},"f:value":{}},`, i)
	}
	f := `{"f:spec":{"f:env":{` + strings.TrimSuffix(fields.String(), ",") + `}}}`
	return object(v, `{"env":`+list(n, `{"n%d":1,"value":"`+fmt.Sprint(v)+`"}`)+`}`, `,"managedFields":[`+entry("a", f)+`]`)
}

// manyKeys has managedFields that name an element by all its members but one, in a list of two elements.
func manyKeys(n, v int) []byte {
	var keys, members strings.Builder
	for i := range n {
		fmt.Fprintf(&keys, `\"n%d\":1,`, i)
		fmt.Fprintf(&members, `"n%d":1,`, n-1-i)
	}
	f := `{"f:spec":{"f:list":{"k:{` + strings.TrimSuffix(keys.String(), ",") + `}":{".":{},"f:value":{}}}}}`
	return object(v, `{"list":[{`+members.String()+`"value":"`+fmt.Sprint(v)+`"},{`+members.String()+`"value":"x`+fmt.Sprint(v)+`"}]}`, `,"managedFields":[`+entry("a", f)+`]`)
}

func fieldsOf(n int) string {
	var fields strings.Builder
	for i := range n {
		fmt.Fprintf(&fields, `"f:m%d":{},`, n-1-i)
	}
	return `,"managedFields":[` + entry("a", `{"f:spec":{`+strings.TrimSuffix(fields.String(), ",")+`}}`) + `]`
}

// atomic has lists that change. Each list is owned as a whole, by several managers.
func atomic(n, v int) []byte {
	var spec, fields strings.Builder
	for i := range n {
		fmt.Fprintf(&spec, `"m%d":[%d],`, i, v)
		fmt.Fprintf(&fields, `"f:m%d":{},`, i)
	}
	f := `{"f:spec":{` + strings.TrimSuffix(fields.String(), ",") + `}}`
	return object(v, `{`+strings.TrimSuffix(spec.String(), ",")+`}`, `,"managedFields":[`+entry("a", f)+","+entry("b", f)+","+entry("c", f)+`]`)
}

func managers(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(entry(fmt.Sprintf("manager%d", i), `{"f:spec":{"f:a":{}}}`) + ",")
	}
	return `,"managedFields":[` + strings.TrimSuffix(all.String(), ",") + `]`
}

func items(n int) string { return list(n, `{"name":"item%d","v":1}`) }

func root(n, v int) []byte {
	o := object(v, `{}`, "")
	rest := members(n, v)
	return append(append(o[:len(o)-1], ','), rest[1:]...)
}

// repeated is a text in which every line occurs more than once, but less often than once in a hundred lines.
func repeated(n, v int) string {
	var b strings.Builder
	for i := range n / 6 {
		fmt.Fprintf(&b, "l%d\\n", (i*v)%max(n/40, 1))
	}
	return `{"text":"` + b.String() + `"}`
}
