package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// scalar describes a type of settings that are not texts.
type scalar struct {
	want   string       // what a value is, for messages
	node   ast.NodeType // the type of literal values, besides texts that parse
	asText bool         // literal values may be texts
	parse  func(text string) (any, error)
	ignore yaml.DecodeOption
}

// newScalar returns a scalar that the YAML library does not decode: [problems.fits] collects the values, and
// [problems.expand] sets them, so that a value can be a reference.
func newScalar[T any](want string, node ast.NodeType, asText bool, parse func(string) (T, error)) scalar {
	return scalar{
		want, node, asText, func(text string) (any, error) { return parse(text) },
		yaml.CustomUnmarshaler(func(*T, []byte) error { return nil }),
	}
}

// scalarOf returns the scalar of a type, and false for all other types.
func scalarOf(t reflect.Type) (s scalar, ok bool) {
	s, ok = scalars()[t]
	return s, ok
}

func scalars() map[reflect.Type]scalar {
	return map[reflect.Type]scalar{
		reflect.TypeFor[bool]():          newScalar("true or false", ast.BoolType, false, strconv.ParseBool),
		reflect.TypeFor[int]():           newScalar("a whole number", ast.IntegerType, false, strconv.Atoi),
		reflect.TypeFor[time.Duration](): newScalar("a duration such as 30s, 1h30m or 7d", ast.UnknownNodeType, true, ParseDuration),
		reflect.TypeFor[sink.Bytes]():    newScalar("a number of bytes such as 10Gi", ast.IntegerType, true, parseBytes),
	}
}

// literal returns the text of a scalar's node, "" if the node cannot be a scalar.
func literal(n ast.Node) string {
	switch node := n.(type) {
	case *ast.IntegerNode:
		return fmt.Sprint(node.Value)
	case *ast.BoolNode:
		return strconv.FormatBool(node.Value)
	}
	value, _ := text(n)
	return value
}

// fits reports whether a node is a value of the scalar, or a text with references.
func (s scalar) fits(n ast.Node) bool {
	_, isText := text(n)
	if isText && reference.MatchString(literal(n)) {
		return true
	}
	_, err := s.parse(literal(n))
	return err == nil && (n.Type() == s.node || isText && s.asText)
}

// setScalar sets a scalar to its value in the file. If references are not replaced, a value with references stays the
// default.
func (p *problems) setScalar(v reflect.Value, s scalar, path string, env func(string) (string, bool)) {
	written, ok := p.scalars[path]
	if !ok {
		return
	}
	value := p.interpolate(path, written, env)
	refers := value != written || reference.MatchString(written)
	if p.asWritten && refers {
		return
	}
	parsed, err := s.parse(strings.TrimSpace(value))
	switch {
	case err == nil:
		v.Set(reflect.ValueOf(parsed))
	case !p.wrong[path] && value == "":
		p.add(path, "expected %s, and %s is empty", s.want, written)
	case !p.wrong[path]:
		p.add(path, "expected %s, which %s does not stand for", s.want, written)
	}
}

// ParseDuration is [time.ParseDuration] that also knows whole days, as in 7d or 1d12h, and allows spaces.
func ParseDuration(text string) (time.Duration, error) {
	text = strings.ReplaceAll(text, " ", "")
	days, rest, ok := strings.Cut(text, "d")
	if n, err := strconv.ParseInt(days, 10, 32); ok && err == nil {
		text = fmt.Sprintf("%dh%s", n*24, rest)
	}
	return time.ParseDuration(text)
}

func parseBytes(text string) (sink.Bytes, error) {
	q, err := resource.ParseQuantity(text)
	return sink.Bytes(q.Value()), err
}
