// Package shape decides, between a source and a sink, which parts of an object are
// published and to which topic or subject its event goes.
package shape

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Values fill a [Template]. Values that do not apply are "".
type Values struct {
	Cluster   string
	Group     string // "" is the core group
	Version   string
	Resource  string
	Kind      string
	Namespace string
	Name      string
	UID       string
	Type      string // the event's type: added, gap, …
	// Entry is the configured name of the entry, followed by an @ if the entry makes one
	// collection per namespace. It is "" if the entry has no name and makes one collection.
	Entry string
}

func (v *Values) get(name string) string {
	switch name {
	case "cluster":
		return v.Cluster
	case "group":
		if v.Group == "" {
			return "core"
		}
		return v.Group
	case "version":
		return v.Version
	case "resource":
		return v.Resource
	case "kind":
		return v.Kind
	case "namespace":
		return v.Namespace
	case "uid":
		return v.UID
	case "type":
		return v.Type
	case "entry":
		return v.Entry
	default:
		return v.Name
	}
}

// The names that templates know.
var (
	// TopicNames are allowed in the template of a Kafka topic. They exclude values that can differ between two events of
	// one object, because its events would lose their order, and values that are not known when a collection starts.
	TopicNames = []string{"cluster", "group", "resource", "entry"}
	// KeyNames are allowed in the template of a Kafka key.
	KeyNames = []string{"cluster", "group", "resource", "entry", "namespace", "name"}
	// SubjectNames are allowed in the template of a NATS subject.
	SubjectNames = []string{"cluster", "group", "resource", "entry", "kind", "namespace", "name", "type"}
	// HeaderNames are allowed in the template of a header, beside {label:KEY} and {annotation:KEY}.
	HeaderNames = []string{"cluster", "group", "version", "resource", "entry", "kind", "namespace", "name", "uid", "type", labelPrefix, annotationPrefix}
)

// labelPrefix and annotationPrefix are prefixes of names that end with the key of a label or an
// annotation.
const (
	labelPrefix      = "label:"
	annotationPrefix = "annotation:"
)

// Template is a route with names in braces, such as "k8s.{cluster}.{resource}".
type Template struct {
	literals []string // the text before each name, and the text after the last one
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
		if err := checkName(name, allowed); err != nil {
			return nil, fmt.Errorf("template %q: %w", text, err)
		}
		t.names = append(t.names, name)
		rest = tail
	}
	return &t, nil
}

// metadataKey matches the keys of labels and annotations that Kubernetes accepts.
var metadataKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

func checkName(name string, allowed []string) error {
	prefix, key, keyed := strings.Cut(name, ":")
	prefix += ":"
	switch {
	case keyed && slices.Contains(allowed, prefix):
		if !metadataKey.MatchString(key) {
			return fmt.Errorf("{%s}: %q cannot be the key of a label or an annotation", name, key)
		}
		return nil
	case !keyed && slices.Contains(allowed, name):
		return nil
	}
	var list []string
	for _, known := range allowed {
		if strings.HasSuffix(known, ":") {
			known += "KEY"
		}
		list = append(list, "{"+known+"}")
	}
	err := fmt.Errorf("{%s} is not one of %s", name, strings.Join(list, ", "))
	switch {
	case prefix == labelPrefix || prefix == annotationPrefix:
		err = fmt.Errorf("%w: it may change while an object lives, whose events would then go different ways and lose their order; a header may hold it", err)
	case slices.Contains(KeyNames, name):
		err = fmt.Errorf("%w: it is not known when a collection begins, and its gap and synced go to every topic that it uses", err)
	case slices.Contains(HeaderNames, name):
		err = fmt.Errorf("%w: it may differ between two events of one object, which would lose their order", err)
	}
	return err
}

// String returns the template as it was written.
func (t *Template) String() string {
	var b strings.Builder
	for i, name := range t.names {
		b.WriteString(t.literals[i] + "{" + name + "}")
	}
	return b.String() + t.literals[len(t.names)]
}

// Has reports whether a name is in the template.
func (t *Template) Has(name string) bool { return slices.Contains(t.names, name) }

// Topic renders a Kafka topic. Empty values become "_". The @ of an entry is left out, because
// Kafka does not allow it in topics.
func (t *Template) Topic(v Values) string {
	v.Entry = strings.TrimSuffix(v.Entry, "@")
	return string(t.render(nil, &v, orNone))
}

// Subject renders a NATS subject: every value becomes one token, escaped as
// [event.SubjectToken] does.
func (t *Template) Subject(v Values) string { return string(t.AppendSubject(nil, v)) }

// AppendSubject appends what [Template.Subject] returns.
func (t *Template) AppendSubject(dst []byte, v Values) []byte {
	return t.render(dst, &v, event.SubjectToken)
}

// LongestSubject returns the length in bytes of the longest possible subject: every name is as long as Kubernetes and
// [event.SubjectToken] allow.
func (t *Template) LongestSubject(cluster string) int {
	long := func(n int) string { return strings.Repeat("x", n) }
	v := Values{
		Cluster: cluster, Group: long(253), Resource: long(63), Kind: long(63), Entry: long(63) + "@", Namespace: long(63), Name: long(event.MaxToken),
		Type: event.Modified.String(),
	}
	return max(len(t.Subject(v)), len(t.EntryCollectionSubject(v, event.Synced.String())))
}

// collectionToken takes the place of the namespace in the subjects of collection
// events. No namespace has this token: unescaped, it begins with a dot.
const collectionToken = "_collection"

// EntryCollectionSubject renders the subject of an event about an independent collection: with
// [DefaultSubject] "k8s.<cluster>.<group>.<resource>._collection.<kind>.<namespace>.<entry>".
// kind is from [event.Event.CollectionKind], and v.Namespace is the collection's.
func (t *Template) EntryCollectionSubject(v Values, kind string) string {
	place := kind + "." + event.SubjectToken(v.Namespace)
	subject := string(t.render(nil, &v, event.SubjectToken, "namespace", collectionToken, "name", place))
	for _, end := range [][2]string{{"namespace", collectionToken}, {"name", place}, {"entry", event.SubjectToken(v.Entry)}} {
		if !t.Has(end[0]) {
			subject += "." + end[1]
		}
	}
	return subject
}

// render appends the filled template. fixed has pairs of a name and a value that is inserted without escaping.
func (t *Template) render(dst []byte, v *Values, escape func(string) string, fixed ...string) []byte {
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

// DefaultKey is the default template of Kafka keys. It has neither version nor UID, so that an
// object that is deleted and created again stays in its partition.
const DefaultKey = "{cluster}/{group}/{resource}/{namespace}/{name}"

// DefaultSubject is the default template of NATS subjects.
const DefaultSubject = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"

// AppendKey appends an object's Kafka key. Empty values become "_".
func (t *Template) AppendKey(dst []byte, v Values) []byte {
	return t.render(dst, &v, orNone)
}

// orNone returns the form that values have in topics and keys.
func orNone(s string) string {
	if s == "" {
		return "_"
	}
	return s
}
