package kafka

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// route says where a sink sends events: all events, or the events of one resource.
type route struct {
	template string // of the topic
	resource string // "pods", "deployments.apps"; "": all resources
}

// routes returns the topics that a sink's events may be in. The sink's own topic template also covers resources that are
// no longer configured.
func (c *Config) routes(s *bus.Setup) []route {
	out := []route{{template: c.Topic}}
	for _, e := range s.Resources {
		r := route{cmp.Or(e.Topic, c.Topic), resourceID(e.Parsed)}
		if r.template != c.Topic && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// resourceID returns the ID of the one of Kubernetes' own resources that a name means. It returns "" for a pattern, and for other names: only the cluster can
// resolve short names, and distinguish a version from a group.
func resourceID(n discovery.Name) string {
	r, served, err := discovery.Builtin().Identify(n)
	if n.IsPattern() || err != nil || !served {
		return ""
	}
	c := event.Collection{Group: r.Group, Resource: r.Resource}
	return c.ResourceID()
}

func (c *Config) read(ctx context.Context, s *bus.Setup, w bus.Wanted) (sink.Reader, error) {
	routes := c.routes(s)
	configured := matchTopics(routes, s.Identity.Cluster, w.Resources)
	r, err := kafka.NewReader(ctx, kafka.Options{Config: *c.sink(), Identity: s.Identity}, func(topic string) bool {
		return configured(topic) || slices.Contains(w.Logs, topic)
	})
	if err != nil {
		return nil, err
	}
	if len(r.Parts()) > 0 {
		return r, nil
	}
	r.Close()
	var like []string
	for _, of := range routes {
		if !slices.Contains(like, of.template) {
			like = append(like, of.template)
		}
	}
	return nil, fmt.Errorf("not covered: there is no topic like %s for %s", strings.Join(like, ", "), orAll(w.Resources))
}

func orAll(resources []discovery.Name) string {
	if len(resources) == 0 {
		return "any resource"
	}
	var names []string
	for _, n := range resources {
		names = append(names, n.String())
	}
	return strings.Join(names, ", ")
}

// matchTopics returns a function that reports whether a topic may hold events of the resources. It cannot narrow the
// search by key: keys may hold the name of an entry, and former entries are not in the configuration any more.
func matchTopics(routes []route, cluster string, resources []discovery.Name) func(topic string) bool {
	var all []func(string) bool
	for _, r := range routes {
		c := event.ParseCollection(r.resource)
		if r.resource == "" || len(resources) == 0 ||
			slices.ContainsFunc(resources, func(n discovery.Name) bool { return n.Matches(c.Group, c.Resource) }) {
			all = append(all, r.match(cluster, resources))
		}
	}
	return func(topic string) bool {
		return slices.ContainsFunc(all, func(one func(string) bool) bool { return one(topic) })
	}
}

// match is matchTopics for one route.
func (r route) match(cluster string, resources []discovery.Name) func(topic string) bool {
	var b strings.Builder
	for i, part := range strings.Split(r.template, "{") {
		literal := part
		if i > 0 {
			name, rest, _ := strings.Cut(part, "}")
			literal = rest
			b.WriteString(map[string]string{
				"cluster": regexp.QuoteMeta(cluster), "group": `(?P<group>[a-zA-Z0-9._-]+)`,
				"resource": `(?P<resource>[a-zA-Z0-9_-]+)`, "entry": `[a-zA-Z0-9_-]+`,
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
		fits := func(name, value string) bool {
			i := pattern.SubexpIndex(name)
			return i < 0 || found[i] == value
		}
		isOf := func(n discovery.Name) bool {
			i := pattern.SubexpIndex("group")
			return fits("resource", n.Resource()) && (i < 0 || n.MayBeOf(discovery.GroupNamed(found[i])))
		}
		c := event.ParseCollection(r.resource)
		return (len(resources) == 0 || slices.ContainsFunc(resources, isOf)) &&
			(r.resource == "" || fits("resource", c.Resource) && fits("group", c.GroupOrCore()))
	}
}
