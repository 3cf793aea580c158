package history

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
)

// Name is an object's.
type Name struct{ Namespace, Name string }

// ParseName reads "namespace/name", or "name".
func ParseName(s string) Name {
	if namespace, name, found := strings.Cut(s, "/"); found {
		return Name{namespace, name}
	}
	return Name{Name: s}
}

// String is what ParseName reads.
func (n Name) String() string { return nameOf(n.Namespace, n.Name) }

// Topics tells which Kafka topics hold what is asked for, and the key that an object has
// there; "" where no object is named, or its key is not known. template is the sink's.
func Topics(template, cluster string, resources []string, object *Name) func(topic string) (key string, ok bool) {
	var b strings.Builder
	b.WriteByte('^')
	for rest := template; ; {
		literal, after, found := strings.Cut(rest, "{")
		b.WriteString(regexp.QuoteMeta(literal))
		if !found {
			break
		}
		name, tail, _ := strings.Cut(after, "}")
		rest = tail
		switch name {
		case "cluster":
			b.WriteString(regexp.QuoteMeta(cluster))
		case "group":
			b.WriteString(`([a-zA-Z0-9._-]+)`)
		default:
			b.WriteString(`([a-zA-Z0-9_-]+)`)
		}
	}
	b.WriteByte('$')
	pattern := regexp.MustCompile(b.String())
	var names []string
	for _, m := range regexp.MustCompile(`\{(group|resource)\}`).FindAllStringSubmatch(template, -1) {
		names = append(names, m[1])
	}
	return func(topic string) (string, bool) {
		found := pattern.FindStringSubmatch(topic)
		if found == nil {
			return "", false
		}
		v := shape.Values{Cluster: cluster}
		known := map[string]bool{}
		for i, name := range names {
			known[name] = true
			if name == "group" {
				if v.Group = found[i+1]; v.Group == "core" {
					v.Group = ""
				}
			} else {
				v.Resource = found[i+1]
			}
		}
		fits := func(n string) bool {
			resource, group, dotted := strings.Cut(n, ".")
			return (!known["resource"] || resource == v.Resource) && (!known["group"] || !dotted || group == v.Group)
		}
		if len(resources) > 0 && !slices.ContainsFunc(resources, fits) {
			return "", false
		}
		if object == nil || !known["group"] || !known["resource"] {
			return "", true
		}
		v.Namespace, v.Name = object.Namespace, object.Name
		key, err := shape.ParseTemplate(shape.DefaultKey, shape.KeyNames)
		if err != nil {
			return "", true
		}
		return string(key.AppendKey(nil, v)), true
	}
}

// Subjects are patterns of the NATS subjects of what is asked for: of objects and of
// collections, and all without overlap. template is the sink's.
func Subjects(template, cluster string, resources []string, object *Name) (all, collections []string) {
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	name, namespace := "*", "*"
	if object != nil {
		name, namespace = event.EscapeToken(object.Name), event.EscapeToken(object.Namespace)
	}
	var objects []string
	for _, r := range resources {
		resource, group, dotted := strings.Cut(r, ".")
		if !dotted {
			group = "*"
		} else {
			group = event.EscapeToken(group)
		}
		if resource != "*" {
			resource = event.EscapeToken(resource)
		}
		fill := func(namespace, name string) string {
			tokens := strings.Split(template, ".")
			for i, t := range tokens {
				t = strings.NewReplacer("{cluster}", event.EscapeToken(cluster), "{group}", group, "{resource}", resource,
					"{namespace}", namespace, "{name}", name).Replace(t)
				if strings.Contains(t, "*") {
					t = "*" // a token is a wildcard whole or not at all
				}
				tokens[i] = t
			}
			return strings.Join(tokens, ".")
		}
		objects = append(objects, fill(namespace, name))
		of := fill("_collection", "*")
		if !strings.Contains(template, "{namespace}") {
			of += "._collection"
		}
		if !strings.Contains(template, "{name}") {
			of += ".*"
		}
		collections = append(collections, of)
	}
	return apart(append(objects, collections...)), apart(collections)
}

// apart leaves out patterns that others cover.
func apart(patterns []string) (out []string) {
	for i, p := range patterns {
		covered := func(q string) bool { return q != p && covers(q, p) }
		if !slices.Contains(patterns[:i], p) && !slices.ContainsFunc(patterns, covered) {
			out = append(out, p)
		}
	}
	return out
}

func covers(pattern, other string) bool {
	a, b := strings.Split(pattern, "."), strings.Split(other, ".")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != "*" && a[i] != b[i] {
			return false
		}
	}
	return true
}
