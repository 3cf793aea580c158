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

// Route is where a sink sends events: all of them, or those of a resource.
type Route struct {
	Template string // of Kafka's topics, or of NATS' subjects
	Resource string // "pods", "deployments.apps"; "": any
	OwnKey   bool   // its keys are not made by [shape.DefaultKey]
}

// asked are the routes that what is asked for may have taken.
func asked(routes []Route, resources []string) (out []Route) {
	for _, r := range routes {
		c := event.ParseCollection(r.Resource)
		if r.Resource == "" || len(resources) == 0 || slices.ContainsFunc(resources, func(n string) bool { return Matches(n, c.Group, c.Resource) }) {
			out = append(out, r)
		}
	}
	return out
}

// Topics tells which Kafka topics hold what is asked for, and the key that an object has
// there; "" where no object is named, or its key is not known.
func Topics(routes []Route, cluster string, resources []string, object *Name) func(topic string) (key string, ok bool) {
	var all []func(string) (string, bool)
	for _, r := range asked(routes, resources) {
		all = append(all, r.topics(cluster, resources, object))
	}
	return func(topic string) (key string, ok bool) {
		for _, one := range all {
			k, found := one(topic)
			if found && ok && k != key {
				return "", true // the object may have either
			}
			if found {
				key, ok = k, true
			}
		}
		return key, ok
	}
}

func (r Route) topics(cluster string, resources []string, object *Name) func(topic string) (key string, ok bool) {
	var b strings.Builder
	b.WriteByte('^')
	var names []string
	for rest := r.Template; ; {
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
			continue
		case "group":
			b.WriteString(`([a-zA-Z0-9._-]+)`)
		default:
			b.WriteString(`([a-zA-Z0-9_-]+)`)
		}
		names = append(names, name)
	}
	b.WriteByte('$')
	pattern := regexp.MustCompile(b.String())
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
		if r.Resource != "" {
			c := event.ParseCollection(r.Resource)
			if known["resource"] && v.Resource != c.Resource || known["group"] && v.Group != c.Group {
				return "", false
			}
			v.Group, v.Resource, known["group"], known["resource"] = c.Group, c.Resource, true, true
		}
		if object == nil || r.OwnKey || !known["group"] || !known["resource"] {
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
// collections, and all without overlap.
func Subjects(routes []Route, cluster string, resources []string, object *Name) (all, collections []string) {
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	name, namespace := "*", "*"
	if object != nil {
		name, namespace = event.EscapeToken(object.Name), event.EscapeToken(object.Namespace)
	}
	var objects []string
	for _, route := range routes {
		for _, r := range resources {
			if r != "*" && len(asked([]Route{route}, []string{r})) == 0 {
				continue
			}
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
				tokens := strings.Split(route.Template, ".")
				for i, t := range tokens {
					t = strings.NewReplacer("{cluster}", event.EscapeToken(cluster), "{group}", group, "{resource}", resource,
						"{namespace}", namespace, "{name}", name, "{kind}", "*", "{type}", "*").Replace(t)
					if strings.Contains(t, "*") {
						t = "*" // a token is a wildcard whole or not at all
					}
					tokens[i] = t
				}
				return strings.Join(tokens, ".")
			}
			objects = append(objects, fill(namespace, name))
			of := fill("_collection", "*")
			if !strings.Contains(route.Template, "{namespace}") {
				of += "._collection"
			}
			if !strings.Contains(route.Template, "{name}") {
				of += ".*"
			}
			collections = append(collections, of)
		}
	}
	return apart(append(objects, collections...)), apart(collections)
}

// apart makes one pattern of those that a subject could fit both of: a server reads no
// message twice for a consumer, and takes no patterns that would ask for it.
func apart(patterns []string) (out []string) {
	for _, p := range patterns {
		for i := 0; i < len(out); i++ {
			if both, ok := join(out[i], p); ok {
				out, p, i = slices.Delete(out, i, i+1), both, -1 // it may meet others now
			}
		}
		out = append(out, p)
	}
	return out
}

// join is a pattern of all that two patterns fit; ok if some subject fits both.
func join(a, b string) (both string, ok bool) {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	if len(x) != len(y) {
		return "", false
	}
	for i := range x {
		switch {
		case x[i] == y[i]:
		case x[i] == "*" || y[i] == "*":
			x[i] = "*"
		default:
			return "", false
		}
	}
	return strings.Join(x, "."), true
}
