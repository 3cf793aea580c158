package history

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Name is the namespace and name of an object, as events have them.
type Name struct{ Namespace, Name string }

// ParseName reads "namespace/name", or "name".
func ParseName(s string) Name {
	namespace, name, found := strings.Cut(s, "/")
	if !found {
		namespace, name = "", s
	}
	return NameOf(namespace, name)
}

// NameOf returns the name that events have for an object of the API server: long names are shortened.
func NameOf(namespace, name string) Name {
	return Name{event.BoundName(namespace), event.BoundName(name)}
}

// String returns the form that ParseName reads.
func (n Name) String() string { return nameOf(n.Namespace, n.Name) }

// Route says where a sink sends events: all events, or the events of one resource.
type Route struct {
	Template string // template of the Kafka topic, or of the NATS subject
	Resource string // "pods", "deployments.apps"; "": all resources
}

// asked returns the routes that events of the resources may have taken.
func asked(routes []Route, resources []discovery.Name) (out []Route) {
	for _, r := range routes {
		c := event.ParseCollection(r.Resource)
		if r.Resource == "" || len(resources) == 0 || slices.ContainsFunc(resources, func(n discovery.Name) bool { return n.Matches(c.Group, c.Resource) }) {
			out = append(out, r)
		}
	}
	return out
}

// Topics returns a function that reports whether a Kafka topic may hold events of the resources. It cannot narrow the
// search by key: keys may hold the name of an entry, and former entries are not in the configuration any more.
func Topics(routes []Route, cluster string, resources []discovery.Name) func(topic string) bool {
	var all []func(string) bool
	for _, r := range asked(routes, resources) {
		all = append(all, topics(r, cluster, resources))
	}
	return func(topic string) bool {
		return slices.ContainsFunc(all, func(one func(string) bool) bool { return one(topic) })
	}
}

// topics is Topics for one route.
func topics(r Route, cluster string, resources []discovery.Name) func(topic string) bool {
	var b strings.Builder
	for i, part := range strings.Split(r.Template, "{") {
		literal := part
		if i > 0 {
			name, rest, _ := strings.Cut(part, "}")
			literal = rest
			b.WriteString(map[string]string{
				"cluster": regexp.QuoteMeta(cluster), "group": `(?P<group>[a-zA-Z0-9._-]+)`, "resource": `(?P<resource>[a-zA-Z0-9_-]+)`, "entry": `[a-zA-Z0-9_-]+`,
			}[name])
		}
		b.WriteString(regexp.QuoteMeta(literal))
	}
	pattern := regexp.MustCompile("^" + b.String() + "$")
	return func(topic string) bool {
		found := pattern.FindStringSubmatch(topic)
		if found == nil {
			return false
		}
		has := func(name, value string) bool {
			i := pattern.SubexpIndex(name)
			return i < 0 || found[i] == value
		}
		fits := func(n discovery.Name) bool {
			i := pattern.SubexpIndex("group")
			return has("resource", n.Resource()) && (i < 0 || n.MayBeOf(discovery.GroupNamed(found[i])))
		}
		c := event.ParseCollection(r.Resource)
		return (len(resources) == 0 || slices.ContainsFunc(resources, fits)) &&
			(r.Resource == "" || has("resource", c.Resource) && has("group", c.GroupOrCore()))
	}
}

// Subjects returns patterns of the NATS subjects on which events of the resources may be: all of them, and only those of
// collection events. The patterns of one list do not overlap.
func Subjects(routes []Route, cluster string, resources []discovery.Name, object *Name) (all, collections []string) {
	if len(resources) == 0 {
		resources = []discovery.Name{discovery.Parse("*.*")}
	}
	name, namespace := "*", "*"
	if object != nil {
		name, namespace = event.SubjectToken(object.Name), event.SubjectToken(object.Namespace)
	}
	var objects []string
	for _, route := range routes {
		for _, r := range resources {
			if len(asked([]Route{route}, []discovery.Name{r})) == 0 {
				continue
			}
			of := fill(route.Template, cluster, r, namespace, name)
			objects = append(objects, of)
			if route.Template == shape.DefaultSubject { // named entries append their name to it
				objects = append(objects, of+".*")
			}
			// As [shape.Template.EntryCollectionSubject]: the kind and the namespace take the place of the name.
			of = fill(route.Template, cluster, r, "_collection", "*.*")
			for _, end := range [][2]string{{"{namespace}", "._collection"}, {"{name}", ".*.*"}, {"{entry}", ".*"}} {
				if !strings.Contains(route.Template, end[0]) {
					of += end[1]
				}
			}
			collections = append(collections, of)
		}
	}
	return disjoint(append(objects, collections...)), disjoint(collections)
}

// fill renders a subject template as a pattern that matches the resources of a name.
func fill(template, cluster string, of discovery.Name, namespace, name string) string {
	resource, group := "*", "*"
	if !of.IsPattern() {
		resource = event.EscapeToken(of.Resource())
	}
	if g, known := of.Group(); known && !of.IsEverything() && of.Version() == "" { // what looks like a version may be part of the group
		c := event.Collection{Group: g}
		group = event.EscapeToken(c.GroupOrCore())
	}
	tokens := strings.Split(template, ".")
	for i, t := range tokens {
		if t == "{name}" {
			tokens[i] = name
			continue
		}
		t = strings.NewReplacer("{cluster}", event.EscapeToken(cluster), "{group}", group, "{resource}", resource,
			"{namespace}", namespace, "{name}", name, "{kind}", "*", "{type}", "*", "{entry}", "*").Replace(t)
		if strings.Contains(t, "*") {
			t = "*" + strings.Repeat(".*", strings.Count(t, ".")) // a wildcard is always a whole token
		}
		tokens[i] = t
	}
	return strings.Join(tokens, ".")
}

// disjoint merges patterns that overlap. A NATS server rejects a consumer whose subject filters
// overlap.
func disjoint(patterns []string) (out []string) {
	for _, p := range patterns {
		for i := 0; i < len(out); i++ {
			if both, ok := join(out[i], p); ok {
				out, p, i = slices.Delete(out, i, i+1), both, -1 // it may overlap with others now
			}
		}
		out = append(out, p)
	}
	return out
}

// join returns a pattern that matches everything that a or b matches. ok reports whether a subject can match both.
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
