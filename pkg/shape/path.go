package shape

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// step is one step of a path, from a value to some of the values in it. Its kind says which.
type step struct {
	kind    stepKind
	name    string         // with stepName: the member's name
	pattern *regexp.Regexp // with stepPattern: matches members' names
}

type stepKind int

const (
	stepName    stepKind = iota // spec, ["a.b/c"]
	stepPattern                 // [~"(?i)password"]
	stepAny                     // *, [*]: every member, or every element
	stepDeep                    // **: any number of levels, including none
)

// path selects values in an object.
type path []step

// String returns the path in canonical form.
func (p path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch s.kind {
		case stepName:
			b.WriteString("[" + strconv.Quote(s.name) + "]")
		case stepPattern:
			b.WriteString("[~" + strconv.Quote(s.pattern.String()) + "]")
		case stepAny:
			b.WriteString("[*]")
		case stepDeep:
			b.WriteString("[**]")
		}
	}
	return b.String()
}

// identity reports whether a path selects only a field that every published object keeps.
func (p path) identity() bool {
	var names []string
	for _, s := range p {
		if s.kind != stepName {
			return false
		}
		names = append(names, s.name)
	}
	return slices.ContainsFunc(identity(), func(kept []string) bool { return slices.Equal(kept, names) })
}

// identity returns the fields that every published object keeps, because consumers identify
// the object by them (docs/events.md).
func identity() [][]string {
	return [][]string{
		{"apiVersion"},
		{"kind"},
		{"metadata"},
		{"metadata", "name"},
		{"metadata", "namespace"},
		{"metadata", "uid"},
		{"metadata", "resourceVersion"},
	}
}

// parser reads a path. The grammar is in docs/configuration.md.
type parser struct {
	text   string
	offset int
}

// parsePath reads a path. Its error has the path, the column (in characters, from 1) and what to write instead.
func parsePath(text string) (path, error) {
	p := parser{text: text}
	var out path
	for p.offset < len(text) || len(out) == 0 {
		begin := p.offset
		s, err := p.step(len(out) == 0)
		if err != nil {
			return nil, err
		}
		if s.kind == stepDeep && len(out) > 0 && out[len(out)-1].kind == stepDeep {
			return nil, p.wrong(begin, "a second ** behind **: one stands for any number of levels")
		}
		out = append(out, s)
	}
	if out[len(out)-1].kind == stepDeep {
		return nil, p.wrong(p.offset, "a name, * or [ expected behind **: it only says how deep; leave it out for a value with all that is in it")
	}
	return out, nil
}

func (p *parser) wrong(at int, format string, args ...any) error {
	return fmt.Errorf("%q, column %d: %s", p.text, utf8.RuneCountInString(p.text[:at])+1, fmt.Sprintf(format, args...))
}

// next returns the next character, quoted for messages.
func (p *parser) next() string {
	if p.offset == len(p.text) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.offset:])
	return strconv.Quote(string(r))
}

func (p *parser) skip(prefix string) bool {
	if !strings.HasPrefix(p.text[p.offset:], prefix) {
		return false
	}
	p.offset += len(prefix)
	return true
}

func (p *parser) step(first bool) (step, error) {
	if p.skip("[") {
		return p.bracket()
	}
	switch {
	case first:
	case p.skip("."):
	default:
		return step{}, p.wrong(p.offset, "%s where . or [ should be: a name with other characters than letters, digits, - and _ is written [\"…\"]", p.next())
	}
	switch {
	case p.skip("**"):
		return step{kind: stepDeep}, nil
	case p.skip("*"):
		return step{kind: stepAny}, nil
	}
	begin := p.offset
	for p.offset < len(p.text) && nameByte(p.text[p.offset]) {
		p.offset++
	}
	if p.offset > begin {
		return step{kind: stepName, name: p.text[begin:p.offset]}, nil
	}
	hint := `other names are written ["…"]`
	switch {
	case p.text == "":
		hint = "for example spec.containers[*].image"
	case first && strings.ContainsAny(p.text[:1], "./$"):
		hint = "a path begins with a member's name and goes on with dots: write spec.nodeName"
	case strings.HasPrefix(p.text[p.offset:], "["):
		hint = "no dot stands in front of ["
	}
	return step{}, p.wrong(p.offset, "%s where a name, * or [ should be: %s", p.next(), hint)
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// bracket reads the content of brackets and the closing bracket.
func (p *parser) bracket() (step, error) {
	var s step
	inside := p.offset
	switch {
	case p.skip("*"):
		s.kind = stepAny
	case p.skip("~"):
		begin := p.offset
		text, err := p.quoted()
		if err != nil {
			return s, err
		}
		s.kind = stepPattern
		if s.pattern, err = regexp.Compile(text); err != nil {
			return s, p.wrong(begin, "the pattern is no regular expression (RE2): %v", err)
		}
	default:
		text, err := p.quoted()
		if err != nil {
			return s, err
		}
		s.name = text
	}
	if !p.skip("]") {
		hint := ""
		if s.kind == stepAny && p.text[inside:] != "*" {
			hint = ": all elements are [*], any depth is ** without brackets"
		}
		return s, p.wrong(p.offset, "%s where ] should be%s", p.next(), hint)
	}
	return s, nil
}

// quoted reads a text in double or single quotes. A backslash escapes only the quote itself, so that
// the backslashes of regular expressions need no escaping.
func (p *parser) quoted() (string, error) {
	begin := p.offset
	if begin == len(p.text) || p.text[begin] != '"' && p.text[begin] != '\'' {
		hint := "in brackets stands *, a name in quotes, or a pattern of names: ~\"…\""
		if begin < len(p.text) && '0' <= p.text[begin] && p.text[begin] <= '9' {
			hint = "elements cannot be selected by their place in a list: write [*] for all of them"
		}
		return "", p.wrong(begin, "%s where a quote should be: %s", p.next(), hint)
	}
	quote := p.text[begin]
	var b strings.Builder
	for p.offset++; p.offset < len(p.text); p.offset++ {
		switch c := p.text[p.offset]; {
		case c == quote:
			p.offset++
			return b.String(), nil
		case c == '\\' && p.offset+1 < len(p.text) && p.text[p.offset+1] == quote:
			p.offset++
			b.WriteByte(quote)
		default:
			b.WriteByte(c)
		}
	}
	return "", p.wrong(begin, "the quote that begins here has no end")
}
