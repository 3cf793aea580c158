package manager_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/shape/manager"
)

// FuzzBy compares Finder with a simple implementation that decodes everything into maps. Both
// get the texts in canonical form, because Finder treats another spelling of a value as
// another value. The original texts must not make Finder panic.
func FuzzBy(f *testing.F) {
	for _, kind := range []string{"secrets", "events"} {
		b := frames(f, kind)[0]
		f.Add(bytes.ReplaceAll(b, []byte("a"), []byte("b")), b)
	}
	f.Add([]byte(`{"metadata":{}}`), []byte(`{"l":["x"],"metadata":{"managedFields":[{"fieldsV1":{"f:l":{"v:\"":{},"v:\"x\"":{},"k:{}":{},"i:0":{},"i:9":{}}}}]}}`))
	const former, fields = `,"metadata":{"managedFields":[{"manager":"m","time":"1","fieldsV1":`, `{"f:a":{},"f:l":{".":{},"k:{\"n\":1,\"p\":\"x\"}":{".":{},"f:v":{}}},"f:s":{"v:1":{},"v:\"\\u0061\"":{},"i:1":{}}}`
	for _, texts := range [][2]string{
		{`{"a":1`, `{"a":2`},
		{`{"s":[1,"a"]`, `{"s":["a",2]`},
		{`{"l":[{"n":1,"p":"x","v":1},{"n":2}]`, `{"l":[{"n":2},{"n":1,"p":"x","v":{"w":null}}]`},
		{`{"l":[{"n":1,"p":"x","v":1},{"n":1,"p":"x"}]`, `{"l":[{"n":1,"p":"x","v":1}]`},
		{`{"a":[null]`, `{"l":{}`},
	} {
		f.Add([]byte(texts[0]+former+fields+`}]}}`), []byte(texts[1]+former+fields+`}]}}`))
		f.Add([]byte(texts[0]+former+fields+`}]}}`), []byte(texts[1]+strings.Replace(former, "1", "2", 1)+`{}}]}}`))
		f.Add([]byte(texts[0]+`}`), []byte(texts[1]+former+fields+`}]}}`))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if len(before)+len(after) > 1<<13 {
			return // real pods are in TestAgainstFieldpath
		}
		a, b := decode(before), decode(after)
		for _, most := range []int{1 << 20, 2} {
			finder := manager.Finder{MaxPaths: most}
			changes, err := finder.By(before, after)
			if err == nil && !json.Valid(manager.Append(nil, changes)) {
				t.Fatalf("no JSON: %s", manager.Append(nil, changes))
			}
			_, _ = finder.Newest(after, time.Time{})
			if a.text == nil || b.text == nil {
				continue
			}
			got, gotErr := finder.By(a.text, b.text) // the finder uses the memory of earlier calls again
			want, wantErr := by(most, a.value, b.value)
			if errors.Is(wantErr, errAmbiguous) {
				continue
			}
			if (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("before %s\nafter  %s\ngot  %v\nwant %v", a.text, b.text, gotErr, wantErr)
			}
			if gotErr == nil && !reflect.DeepEqual(want, got) {
				t.Fatalf("before %s\nafter  %s\n(-want +got)\n%s", a.text, b.text, cmp.Diff(want, got))
			}
		}
	})
}

type decoded struct {
	value any
	text  []byte // canonical; nil if the text is not JSON
}

func decode(text []byte) (d decoded) {
	if json.Valid(text) && unmarshal(text, &d.value) == nil {
		d.text, _ = json.Marshal(d.value) // names are sorted and unique
	}
	return d
}

func unmarshal(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err := d.Decode(v)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more than one value")
	}
	return err
}

var (
	// errAmbiguous is returned for a list in which several elements have the same key.
	errAmbiguous = errors.New("several elements")
	errFields    = errors.New("no managedFields")
)

// absent stands for a missing value, because null is a value.
type absent struct{}

func member(v any, name string) any {
	m, _ := v.(map[string]any)
	if child, there := m[name]; there {
		return child
	}
	return absent{}
}

// model is [manager.Finder] on decoded values.
type model struct {
	most          int
	all           []map[string]any
	way           []string // names in FieldsV1 on the way to the place
	certain, gone bool
	to            *manager.Change
}

func by(most int, before, after any) ([]manager.Change, error) {
	formers, err := entries(before)
	if err != nil {
		return nil, err
	}
	nows, err := entries(after)
	if err != nil {
		return nil, err
	}
	if v, w := version(before), version(after); w > 0 && w < v {
		return nil, nil
	}
	formerTime := newest(formers)
	last := max(formerTime, newest(nows))
	same := reflect.DeepEqual(bare(before), bare(after))
	all := append(slices.Clone(formers), nows...)
	found := [4][]manager.Change{}
	for _, now := range nows {
		var former map[string]any
		for _, e := range formers {
			one := true
			for _, name := range []string{"manager", "operation", "apiVersion", "subresource"} {
				one = one && (name == "apiVersion" && text(now, "operation") == "Apply" || reflect.DeepEqual(member(e, name), member(now, name)))
			}
			if one {
				former = e
			}
		}
		name := text(now, "manager")
		if name == "ancient-changes" || name == "before-first-apply" {
			continue
		}
		rule := 3
		if len(formers) > 0 && (when(now) >= formerTime || same && text(now, "operation") == "Apply") {
			switch {
			case former == nil, when(now) > when(former):
				rule = 1
			default:
				is, err := set(member(now, "fieldsV1"))
				if err != nil {
					return nil, err
				}
				was, err := set(member(former, "fieldsV1"))
				if err != nil {
					return nil, err
				}
				for p := range is {
					if !was[p] {
						rule = 2
					}
				}
			}
		}
		c := manager.Change{Manager: name, Operation: text(now, "operation"), Subresource: text(now, "subresource"), Time: text(now, "time"), Paths: []string{}}
		if err := (&model{most: most, all: all, certain: rule < 3, to: &c}).owned(now, before, after); err != nil {
			return nil, err
		}
		if rule < 3 && former != nil {
			if err := (&model{most: most, all: all, certain: true, to: &c, gone: true}).owned(former, before, after); err != nil {
				return nil, err
			}
		}
		if rule < 3 || len(c.Paths) > 0 && (len(formers) == 0 || when(now) == last) {
			found[rule] = append(found[rule], c)
		}
	}
	for rule, changes := range found {
		names := map[string]bool{}
		for _, c := range changes {
			names[c.Manager] = true
		}
		switch {
		case len(changes) == 0:
		case rule == 1 || len(formers) == 0 || len(names) == 1:
			return changes, nil
		default:
			return nil, nil
		}
	}
	return nil, nil
}

// version returns the resourceVersion; 0 if it is missing or no number.
func version(object any) uint64 {
	s, _ := member(member(object, "metadata"), "resourceVersion").(string)
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// when returns an entry's time as in JSON. All times have one form, so they can be compared as texts.
func when(entry map[string]any) string {
	v := member(entry, "time")
	if _, none := v.(absent); none {
		return ""
	}
	s, _ := json.Marshal(v)
	return string(s)
}

func newest(entries []map[string]any) (t string) {
	for _, e := range entries {
		t = max(t, when(e))
	}
	return t
}

// bare returns an object without its managedFields and resourceVersion.
func bare(object any) any {
	m, ok := object.(map[string]any)
	if !ok {
		return nil
	}
	m = maps.Clone(m)
	if meta, ok := m["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		delete(meta, "resourceVersion")
		m["metadata"] = meta
	} else {
		m["metadata"] = nil
	}
	return m
}

// set returns the places of a FieldsV1, each as the JSON of its path.
func set(fields any) (map[string]bool, error) {
	out := map[string]bool{}
	var add func(way []string, fields any) error
	add = func(way []string, fields any) error {
		m, err := placesOf(fields)
		if err != nil {
			return err
		}
		self, _ := json.Marshal(way)
		if _, dot := m["."]; len(way) > 0 && (dot || len(m) == 0) {
			out[string(self)] = true
		}
		out[string(self)+"/"] = true
		for name, below := range m {
			if name == "." {
				continue
			}
			if err := add(append(slices.Clone(way), name), below); err != nil {
				return err
			}
		}
		return nil
	}
	return out, add(nil, fields)
}

// entries returns an object's managedFields. A null entry becomes an empty one.
func entries(object any) (out []map[string]any, err error) {
	switch l := member(member(object, "metadata"), "managedFields").(type) {
	case absent, nil:
	case []any:
		for _, e := range l {
			m, ok := e.(map[string]any)
			if !ok && e != nil {
				return nil, errFields
			}
			if m == nil {
				m = map[string]any{}
			}
			out = append(out, m)
		}
	default:
		return nil, errFields
	}
	return out, nil
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

func (m *model) owned(entry map[string]any, before, after any) error {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	fields, err := placesOf(member(entry, "fieldsV1"))
	if err != nil || len(fields) == 0 {
		return err // the manager owns nothing
	}
	return m.walk("", 0, fields, before, after)
}

func placesOf(fields any) (map[string]any, error) {
	switch f := fields.(type) {
	case absent, nil:
		return nil, nil
	case map[string]any:
		return f, nil
	}
	return nil, errFields
}

func (m *model) walk(path string, depth int, fields map[string]any, a, b any) error {
	_, noA := a.(absent)
	_, noB := b.(absent)
	_, itself := fields["."]
	if len(fields) == 0 || depth == 100 || (noA || noB) && itself {
		if others, err := m.others(a, b); others || err != nil {
			return err
		}
		if m.gone != noB {
			return nil
		}
		if len(m.to.Paths) == m.most {
			m.to.More++
		} else {
			m.to.Paths = append(m.to.Paths, strings.TrimPrefix(path, "."))
		}
		return nil
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		step, x, y, err := child(name, a, b)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(x, y) {
			continue
		}
		below, err := placesOf(fields[name])
		if err != nil {
			return err
		}
		m.way = append(m.way, name)
		if err := m.walk(path+step, depth+1, below, x, y); err != nil {
			return err
		}
		m.way = m.way[:len(m.way)-1]
	}
	return nil
}

// others reports whether a and b are containers whose content other managers own, or may own.
func (m *model) others(a, b any) (bool, error) {
	kind := func(v any) (string, int) {
		switch v := v.(type) {
		case map[string]any:
			return "object", len(v)
		case []any:
			return "list", len(v)
		case nil:
			return "null", 0
		}
		return "", 0
	}
	was, _ := kind(a)
	is, n := kind(b)
	if was == "" || is == "" || was == "null" && is == "null" || was != is && was != "null" && is != "null" {
		return false, nil
	}
	for _, e := range m.all {
		fields := member(e, "fieldsV1")
		for _, name := range m.way {
			fields = member(fields, name)
		}
		below, err := placesOf(fields)
		if len(below) > 0 || err != nil {
			return true, err
		}
	}
	return n == 0 && !m.certain, nil
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func child(place string, a, b any) (step string, x, y any, err error) {
	kind, what, found := strings.Cut(place, ":")
	if !found || len(kind) != 1 {
		return "", absent{}, absent{}, nil
	}
	switch kind {
	case "f":
		step = "." + what
		if !word.MatchString(what) {
			quoted, _ := jsontext.AppendQuote(nil, what)
			step = "[" + string(quoted) + "]"
		}
		return step, member(a, what), member(b, what), nil
	case "i":
		i, err := strconv.Atoi(what)
		at := func(v any) any {
			if l, _ := v.([]any); err == nil && 0 <= i && i < len(l) {
				return l[i]
			}
			return absent{}
		}
		return "[" + what + "]", at(a), at(b), nil
	case "v":
		var value any
		if err := unmarshal([]byte(what), &value); err != nil {
			return "", nil, nil, err
		}
		x, y, err = both(a, b, func(element any) bool { return reflect.DeepEqual(element, value) })
		return "[=" + what + "]", x, y, err
	case "k":
		var texts []string
		var keys map[string]any
		if err := unmarshal([]byte(what), &keys); err != nil {
			return "", nil, nil, err
		}
		d := json.NewDecoder(strings.NewReader(what))
		for _, _ = d.Token(); d.More(); {
			name, _ := d.Token()
			var value json.RawMessage
			_ = d.Decode(&value)
			texts = append(texts, name.(string)+"="+string(value))
		}
		if len(texts) != len(keys) {
			return "", nil, nil, errAmbiguous
		}
		x, y, err = both(a, b, func(element any) bool {
			m, ok := element.(map[string]any)
			for name, value := range keys {
				ok = ok && reflect.DeepEqual(member(m, name), value)
			}
			return ok
		})
		if len(texts) == 0 {
			return "]", x, y, err
		}
		return "[" + strings.Join(texts, ",") + "]", x, y, err
	}
	return "", absent{}, absent{}, nil
}

// both returns the only matching element of each list.
func both(a, b any, is func(element any) bool) (x, y any, err error) {
	of := func(v any) (out []any) {
		l, _ := v.([]any)
		for _, e := range l {
			if is(e) {
				out = append(out, e)
			}
		}
		return out
	}
	as, bs := of(a), of(b)
	if reflect.DeepEqual(as, bs) {
		return absent{}, absent{}, nil
	}
	if len(as) > 1 || len(bs) > 1 {
		return nil, nil, errAmbiguous
	}
	return append(as, absent{})[0], append(bs, absent{})[0], nil
}
