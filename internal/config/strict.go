package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// problems collects mistakes and finds their places. The YAML library would stop at the first mistake.
type problems struct {
	file    string
	places  map[string]*token.Position // by path, for example sinks[0].name
	origins map[string]string          // paths that were set outside the file, with the variable or flag: KUBEBRIDGE_NAME, --name
	anchors map[string]ast.Node
	scalars map[string]string // values that are no texts, as the file has them, by path
	list    []problem
	wrong   map[string]bool // the paths in list
	weak    []problem       // warnings about settings that work but look unintended

	references map[string][]string // replaced references, by path
	empty      []string            // replaced references whose values are empty
	asWritten  bool                // references are not replaced
	part       Part
}

type problem struct {
	line, column int
	text         string
	path, format string // arguments of add, "" for addAt
}

// add records a mistake at a path, or at its nearest parent that is in the file.
func (p *problems) add(path, format string, args ...any) {
	if path != "" && !p.part.has(path) {
		return
	}
	if p.wrong == nil {
		p.wrong = map[string]bool{}
	}
	p.wrong[path] = true
	p.list = append(p.list, p.at(path, format, args...))
}

// warn records a warning about a setting that works but looks unintended.
func (p *problems) warn(path, format string, args ...any) {
	p.weak = append(p.weak, p.at(path, format, args...))
}

// at returns a message about a path, with its place.
func (p *problems) at(path, format string, args ...any) problem {
	one := problem{path: path, format: format}
	where := p.file
	if known := p.known(path); p.origins[known] != "" {
		where = p.origins[known]
	} else if pos, ok := p.places[known]; ok {
		one.line, one.column = pos.Line, pos.Column
		where = p.place(known)
	}
	if path != "" {
		where += ": " + path
	}
	one.text = where + ": " + fmt.Sprintf(format, args...)
	return one
}

// known returns path, or its nearest parent that is set by the file, the environment or a flag.
func (p *problems) known(path string) string {
	if _, ok := p.origins[path]; ok {
		return path
	}
	for at := path; at != ""; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		if _, ok := p.places[at]; ok {
			return at
		}
	}
	return ""
}

// place returns the place of a path in the file, "" if it is not there.
func (p *problems) place(path string) string {
	pos, ok := p.places[path]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.file, pos.Line, pos.Column)
}

func (p *problems) addAt(pos *token.Position, format string, args ...any) {
	text := fmt.Sprintf("%s:%d:%d: ", p.file, pos.Line, pos.Column) + fmt.Sprintf(format, args...)
	p.list = append(p.list, problem{line: pos.Line, column: pos.Column, text: text})
}

// errors returns the mistakes in the order of the file, nil when there are none.
func (p *problems) errors() error {
	if len(p.list) == 0 {
		return nil
	}
	return Errors(inOrder(p.list))
}

// inOrder returns messages in the order of the file.
func inOrder(list []problem) (texts []string) {
	slices.SortStableFunc(list, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
	for _, one := range list {
		texts = append(texts, one.text)
	}
	return texts
}

// fits records the places of all nodes in n, each key that t does not have, and
// each value of a wrong type. It prints no values, because they may be secrets.
func (p *problems) fits(n ast.Node, t reflect.Type, path string) {
	optional := t.Kind() == reflect.Pointer
	if optional {
		t = t.Elem()
	}
	switch node := n.(type) {
	case *ast.AnchorNode:
		p.fits(node.Value, t, path)
		p.anchors[node.Name.String()] = node.Value // set after the value, so that an alias within the value cannot recurse without end
		return
	case *ast.AliasNode:
		if target := p.anchors[node.Value.String()]; target != nil {
			p.fits(target, t, path)
		}
		return
	case *ast.TagNode:
		p.fits(node.Value, t, path)
		return
	case *ast.NullNode:
		delete(p.scalars, path) // of a map that was merged before
		if optional && t.Kind() == reflect.Struct {
			p.addAt(start(n), "%s: expected a map, found nothing: write {} for its defaults", path)
		}
		return
	}
	_, isText := text(n)
	if isText && reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.InterfaceUnmarshaler]()) {
		return // the short form
	}
	if s, ok := scalarOf(t); ok {
		if !s.fits(n) {
			p.mistyped(n, path, s.want)
		}
		p.scalars[path] = literal(n)
		return
	}
	switch {
	case t.Kind() == reflect.Struct:
		if m, ok := n.(ast.MapNode); ok {
			p.fitsStruct(m, t, path)
		} else {
			p.mistyped(n, path, "a map")
		}
	case t.Kind() == reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			p.mistyped(n, path, "a list")
			return
		}
		for i, item := range list.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			p.places[at] = start(item)
			p.fits(item, t.Elem(), at)
		}
	case t.Kind() == reflect.Map:
		m, ok := n.(ast.MapNode)
		if !ok {
			p.mistyped(n, path, "a map")
			return
		}
		for entries := m.MapRange(); entries.Next(); {
			at := join(path, entries.Key().GetToken().Value)
			p.places[at] = start(entries.Value())
			p.fits(entries.Value(), t.Elem(), at)
		}
	case t.Kind() == reflect.String && !isText:
		p.mistyped(n, path, "text")
	}
}

// mistyped records a value of a wrong type.
func (p *problems) mistyped(n ast.Node, path, want string) {
	at, is, hint := cmp.Or(path, "the file"), found(n), ""
	switch {
	case want == "text" && is == "a map" && strings.HasSuffix(path, "Selector"):
		hint = ": write name=value, as kubectl takes it: app=web,tier in (a, b)"
	case want == "text" && (is == "a list" || is == "a map"):
		hint = ": if it is a text that begins with a bracket or holds a colon, put it in quotes"
	case want == "text":
		hint = ": put it in quotes"
	case want == "a list" && is == "text":
		hint = ": write it in [brackets], or below its key after a dash"
	case is == "text" && strings.HasPrefix(want, "a number"):
		written, _ := text(n)
		is = fmt.Sprintf("%.40q", written)
	}
	p.addAt(start(n), "%s: expected %s, found %s%s", at, want, is, hint)
}

func (p *problems) fitsStruct(m ast.MapNode, t reflect.Type, path string) {
	for i, entries := 0, m.MapRange(); entries.Next(); i++ {
		key, value := entries.Key(), entries.Value()
		if key.Type() == ast.MergeKeyType {
			if i > 0 { // in the YAML library the later one wins
				p.addAt(key.GetToken().Position, "%s: it must come first in its map, so that the keys beside it win", join(path, "<<"))
			}
			p.fits(value, t, path)
			continue
		}
		name := key.GetToken().Value
		field, ok := fieldOf(t, name)
		if !ok {
			p.addAt(key.GetToken().Position, "%s: %s", join(path, name), unknownKey(t, name))
			continue
		}
		at := join(path, name)
		p.places[at] = start(value)
		if value.Type() == ast.MappingType || value.Type() == ast.SequenceType || value.Type() == ast.NullType {
			p.places[at] = key.GetToken().Position
		}
		p.fits(value, field, at)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == name {
			return f.Type, true
		}
	}
	return nil, false
}

// unknownKey returns a message with the key that is meant: the nearest one, one of that name below a known key, or one
// that begins like it. Without such a key the message has all known keys.
func unknownKey(t reflect.Type, name string) string {
	known := keysOf(t)
	below := map[string]string{} // known keys of maps and their keys: username, auth.username
	for _, key := range known {
		below[key] = key
	}
	for f := range t.Fields() {
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		for _, key := range keysOf(inner) {
			below[key] = cmp.Or(below[key], join(f.Tag.Get("yaml"), key))
		}
	}
	begin := slices.DeleteFunc(slices.Sorted(maps.Keys(below)), func(key string) bool { return len(name) < 4 || !strings.HasPrefix(key, name) })
	best := cmp.Or(discovery.Nearest(name, known, (len(name)+1)/3), below[name])
	if best == "" && len(begin) > 0 {
		best = below[begin[0]]
	}
	if best == "" {
		return "unknown key; known here are " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("unknown key; did you mean %q?", best)
}

// keysOf returns the keys of a struct, none of another type.
func keysOf(t reflect.Type) (keys []string) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if key := f.Tag.Get("yaml"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// start returns the place where a node begins. For a map, the library returns the place of its first colon.
func start(n ast.Node) *token.Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken().Position
	}
	return n.GetToken().Position
}

func text(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	}
	return "", false
}

func found(n ast.Node) string {
	switch n.Type() {
	case ast.StringType, ast.LiteralType:
		return "text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.SequenceType:
		return "a list"
	case ast.MappingType, ast.MappingValueType:
		return "a map"
	}
	return "something else"
}
