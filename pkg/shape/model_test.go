package shape

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// model hides values in another way than the walker: it visits every value, checks
// each rule separately, and records the replacement.
type model struct {
	rules  []rule
	d      *jsontext.Decoder
	spans  []modelSpan // values that have a replacement
	planes int
	hid    bool // something was hidden or left out
}

type modelSpan struct {
	begin, end int
	text       string
}

// place is the path to a value: a member's name, or nil for an element.
type place []*string

func leads(p path, to place) bool {
	switch {
	case len(p) == 0:
		return len(to) == 0
	case p[0].kind == stepDeep:
		return leads(p[1:], to) || len(to) > 0 && leads(p, to[1:])
	case len(to) == 0:
		return false
	}
	name := to[0]
	var ok bool
	switch p[0].kind {
	case stepName:
		ok = name != nil && *name == p[0].name
	case stepPattern:
		ok = name != nil && p[0].pattern.MatchString(*name)
	default:
		ok = true
	}
	return ok && leads(p[1:], to[1:])
}

func (m *model) kept(at place) bool {
	return slices.ContainsFunc(identity(), func(names []string) bool { return leads(named(names...), at) })
}

func (m *model) action(at place, kind jsontext.Kind) action {
	act := pass
	for _, r := range m.rules {
		for _, p := range r.paths {
			scalar := kind != '{' && kind != '[' && kind != 'n'
			last := len(p) - 1
			if leads(p, at) || scalar && p[last].kind == stepAny && leads(p[:last], at) {
				act = max(act, r.action)
			}
		}
	}
	for up := at[:len(at)-1]; len(up) > 0 && m.kept(up); up = up[:len(up)-1] {
		for _, r := range m.rules {
			for _, p := range r.paths {
				if leads(p, up) {
					act = max(act, r.action)
				}
			}
		}
	}
	return act
}

// value reads a value and returns it after redaction, without white space. gone reports whether it
// is left out.
func (m *model) value(t *testing.T, at place) (text string, gone bool) {
	kind := m.d.PeekKind()
	act := pass
	if len(at) > 0 && !m.kept(at) {
		act = m.action(at, kind)
	}
	embedded := slices.ContainsFunc(earlierStates(), func(name string) bool {
		return leads(named("metadata", "annotations", name), at)
	})
	if act != pass || embedded || kind != '{' && kind != '[' {
		v, err := m.d.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		end := int(m.d.InputOffset())
		span := modelSpan{end - len(v), end, string(v)}
		switch {
		case act == removed:
			m.hid = true
			return "", true
		case act != pass:
			m.hid = true
			span.text = `"redacted"`
		case embedded && kind != 'n':
			span.text = m.earlier(t, v)
		}
		m.spans = append(m.spans, span)
		return span.text, false
	}
	if _, err := m.d.ReadToken(); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for m.d.PeekKind() != '}' && m.d.PeekKind() != ']' {
		below := append(slices.Clone(at), nil)
		head := ""
		if kind == '{' {
			name, err := m.d.ReadToken()
			if err != nil {
				t.Fatal(err)
			}
			below[len(at)] = new(name.String())
			quoted, _ := jsontext.AppendQuote(nil, name.String())
			head = string(quoted) + ":"
		}
		if text, gone := m.value(t, below); !gone {
			parts = append(parts, head+text)
		}
	}
	if _, err := m.d.ReadToken(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(parts, ",")
	if kind == '{' {
		return "{" + all + "}", false
	}
	return "[" + all + "]", false
}

func (m *model) earlier(t *testing.T, v []byte) string {
	const hidden = `"redacted"`
	was := m.hid
	m.hid = true
	if v[0] != '"' || m.planes == maxEmbedded {
		return hidden
	}
	inner, _ := jsontext.AppendUnquote(nil, v)
	if !jsontext.Value(inner).IsValid(lenient()...) || jsontext.Value(inner).Kind() != '{' && jsontext.Value(inner).Kind() != 'n' {
		return hidden
	}
	text, changed := runModel(t, m.rules, inner, m.planes+1)
	if !changed {
		m.hid = was
		return string(v)
	}
	q, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return hidden
	}
	return string(q)
}

func lenient() []jsontext.Options {
	return []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
}

// runModel returns raw after redaction. White space around values that are left out is removed, too.
func runModel(t *testing.T, rules []rule, raw []byte, planes int) (text string, changed bool) {
	t.Helper()
	m := &model{rules: rules, d: jsontext.NewDecoder(bytes.NewReader(raw), lenient()...), planes: planes}
	text, _ = m.value(t, nil)
	if !m.hid {
		return string(raw), false
	}
	if slices.ContainsFunc(rules, func(r rule) bool { return r.action == removed }) {
		return text, true
	}
	var b strings.Builder
	at := 0
	for _, s := range m.spans {
		b.Write(raw[at:s.begin])
		b.WriteString(s.text)
		at = s.end
	}
	b.Write(raw[at:])
	return b.String(), true
}
