package nats

import (
	"context"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

func (c *Config) read(ctx context.Context, s *bus.Setup, w bus.Wanted) (sink.Reader, error) {
	all, collections := subjects(c.templates(s), s.Identity.Cluster, w.Resources, w.Object)
	if w.Stays { // the bridge may close collections whose subject is not in the configuration any more
		all = nil
	}
	return nats.NewReader(ctx, nats.ReaderOptions{
		Config: *c.sink(), Identity: s.Identity, Subjects: all, Collections: collections, Stays: w.Stays,
	})
}

// templates returns the templates of the subjects that a sink's events may have. All of them are in one stream, in order, so it
// does not matter if the subject of a collection has changed over time.
func (c *Config) templates(s *bus.Setup) []string {
	out := []string{c.Subject}
	for _, r := range s.Resources {
		if r.Subject != "" && !slices.Contains(out, r.Subject) {
			out = append(out, r.Subject)
		}
	}
	return out
}

// subjects returns patterns of the NATS subjects on which events of the resources may be: all of them, and only those of
// collection events. The patterns of one list do not overlap.
func subjects(templates []string, cluster string, resources []discovery.Name, object *bus.Object) (all, collections []string) {
	if len(resources) == 0 {
		resources = []discovery.Name{discovery.Parse("*.*")}
	}
	name, namespace := "*", "*"
	if object != nil {
		name, namespace = event.SubjectToken(object.Name), event.SubjectToken(object.Namespace)
	}
	var objects []string
	for _, template := range templates {
		for _, r := range resources {
			of := fill(template, cluster, r, namespace, name)
			objects = append(objects, of)
			if template == shape.DefaultSubject { // named entries append their name to it
				objects = append(objects, of+".*")
			}
			// As [shape.Template.EntryCollectionSubject]: the kind and the namespace take the place of the name.
			of = fill(template, cluster, r, "_collection", "*.*")
			for _, end := range [][2]string{{"{namespace}", "._collection"}, {"{name}", ".*.*"}, {"{entry}", ".*"}} {
				if !strings.Contains(template, end[0]) {
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

// disjoint merges patterns that overlap. A NATS server rejects a consumer whose subject filters overlap.
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
