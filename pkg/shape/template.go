// Package shape decides, between a source and a sink, what of an object may be
// seen and where its event goes.
package shape

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Values fill a [Template]. Namespace and Name are "" where they do not apply.
type Values struct {
	Cluster   string
	Group     string // "" is the core group
	Resource  string
	Namespace string
	Name      string
}

func (v Values) get(name string) string {
	switch name {
	case "cluster":
		return v.Cluster
	case "group":
		if v.Group == "" {
			return "core"
		}
		return v.Group
	case "resource":
		return v.Resource
	case "namespace":
		return v.Namespace
	default:
		return v.Name
	}
}

// The names that templates know.
var (
	// TopicNames may stand in a Kafka topic. What can differ between two events of
	// one object, or is not known when a collection starts, may not.
	TopicNames = []string{"cluster", "group", "resource"}
	// SubjectNames may stand in a NATS subject.
	SubjectNames = []string{"cluster", "group", "resource", "namespace", "name"}
)

// Template is a route with names in braces, such as "k8s.{cluster}.{resource}".
type Template struct {
	literals []string // one more than names
	names    []string
}

// ParseTemplate reads a template that uses only the allowed names.
func ParseTemplate(text string, allowed []string) (*Template, error) {
	var t Template
	rest := text
	for {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("template %q: a } without its {", text)
		}
		t.literals = append(t.literals, literal)
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("template %q: a { without its }", text)
		}
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("template %q: {%s} is not one of {%s}", text, name, strings.Join(allowed, "}, {"))
		}
		t.names = append(t.names, name)
		rest = tail
	}
	return &t, nil
}

// Topic renders a Kafka topic. What does not apply is "_".
func (t *Template) Topic(v Values) string {
	return string(t.render(nil, v, func(s string) string { return cmp.Or(s, "_") }))
}

// Subject renders a NATS subject: every value becomes one token, escaped as
// [event.EscapeToken] does.
func (t *Template) Subject(v Values) string { return string(t.AppendSubject(nil, v)) }

// AppendSubject appends what [Template.Subject] returns.
func (t *Template) AppendSubject(dst []byte, v Values) []byte {
	return t.render(dst, v, event.EscapeToken)
}

// collectionToken stands where a namespace would in the subjects of collection
// events. No namespace's token is like it: unescaped it begins with a dot.
const collectionToken = "_collection"

// CollectionSubject renders the subject of an event about a whole collection:
// with the usual template "k8s.<cluster>.<group>.<resource>._collection.<type>".
func (t *Template) CollectionSubject(v Values, typ event.Type) string {
	subject := string(t.render(nil, v, event.EscapeToken, "namespace", collectionToken, "name", typ.String()))
	if !slices.Contains(t.names, "namespace") {
		subject += "." + collectionToken
	}
	if !slices.Contains(t.names, "name") {
		subject += "." + typ.String()
	}
	return subject
}

// render appends the filled template; fixed are pairs of a name and what stands for
// it as it is.
func (t *Template) render(dst []byte, v Values, escape func(string) string, fixed ...string) []byte {
	for i, name := range t.names {
		dst = append(dst, t.literals[i]...)
		if at := slices.Index(fixed, name); at >= 0 {
			dst = append(dst, fixed[at+1]...)
			continue
		}
		dst = append(dst, escape(v.get(name))...)
	}
	return append(dst, t.literals[len(t.names)]...)
}

// Key is an object's Kafka key. It holds neither version nor UID: an object
// deleted and made again stays in its partition.
func Key(v Values) string { return string(AppendKey(nil, v)) }

// AppendKey appends what [Key] returns.
func AppendKey(dst []byte, v Values) []byte {
	for _, part := range [...]string{v.Cluster, v.get("group"), v.Resource, cmp.Or(v.Namespace, "_")} {
		dst = append(append(dst, part...), '/')
	}
	return append(dst, v.Name...)
}
