package access

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Entry is an entry of the configuration, and what it stands for.
type Entry struct {
	config.Resource
	What schema.GroupResource // "*" is any resource, or any group
}

// Named is the id of the resource that it names; "" for a pattern.
func (e *Entry) Named() string {
	if e.What.Resource == all {
		return ""
	}
	c := event.Collection{Group: e.What.Group, Resource: e.What.Resource}
	return c.ResourceID()
}

// Entries are those of a sink.
type Entries []Entry

// NewEntries resolves a sink's entries without a cluster. A name that is not
// Kubernetes' own and has no group is an error.
func NewEntries(c *config.Config, s *config.Sink) (Entries, error) {
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
		} else {
			list, err := a.resolve(r)
			if err != nil {
				return nil, err
			}
			e.What = list[0]
		}
		out = append(out, e)
	}
	return out, nil
}

// Of is the entry that a resource is watched by, nil for none: one that names it, else
// its group's pattern, else that of everything.
func (l Entries) Of(group, resource string) *Entry {
	for _, want := range []schema.GroupResource{{Group: group, Resource: resource}, {Group: group, Resource: all}, {Group: all, Resource: all}} {
		for i := range l {
			if l[i].What == want {
				return &l[i]
			}
		}
	}
	return nil
}
