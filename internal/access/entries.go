package access

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// unknownGroup is the group of a resource if only the cluster could say which one it is.
const unknownGroup = "?"

// Entry is an entry of the configuration, and the resources that it means.
type Entry struct {
	config.Resource
	What schema.GroupResource // "*" is any resource, or any group
}

// Named is the ID of the resource that the entry names; "" for a pattern, and for a resource whose group only
// the cluster could say.
func (e *Entry) Named() string {
	if e.What.Resource == all || e.What.Group == unknownGroup {
		return ""
	}
	c := event.Collection{Group: e.What.Group, Resource: e.What.Resource}
	return c.ResourceID()
}

// Entries are those of a sink.
type Entries []Entry

// NewEntries resolves a sink's entries without a cluster.
func NewEntries(c *config.Config, s *config.Sink) Entries {
	var out Entries
	a := newAsker(c, ClusterOptions{})
	for _, r := range c.ResourcesOf(s) {
		e := Entry{Resource: r}
		if source.IsPattern(r.Name()) {
			group, everything := source.PatternGroup(r.Name())
			if everything {
				group = all
			}
			e.What = schema.GroupResource{Group: group, Resource: all}
		} else if list, err := a.resolve(r); err == nil {
			e.What = list[0]
		} else {
			name, _, _ := strings.Cut(strings.ToLower(r.Name()), ".")
			e.What = schema.GroupResource{Group: unknownGroup, Resource: name}
		}
		out = append(out, e)
	}
	return out
}

// Of is the entry of a collection, nil for none. Entries that name a resource take it from the patterns of its
// group, and these from the patterns of everything.
func (l Entries) Of(c *event.Collection) *Entry {
	for _, what := range []schema.GroupResource{
		{Group: c.Group, Resource: c.Resource}, {Group: unknownGroup, Resource: c.Resource}, {Group: c.Group, Resource: all}, {Group: all, Resource: all},
	} {
		meant := false
		for i := range l {
			if l[i].What != what {
				continue
			}
			if meant = true; l[i].Entry == c.Entry {
				return &l[i]
			}
		}
		if meant {
			return nil
		}
	}
	return nil
}
