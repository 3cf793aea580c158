package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// find decides which resource an entry without a pattern means. Somebody else may install a resource of the same name at any time. So an entry keeps
// the resource that it has: the one of which the checkpoint has a collection with the entry's name.
//
//	resources of that name      the entry has                       it means
//	one is clear                –                                   that one: see [discovery.Catalog.Choices]
//	one is clear                another one of its group            the other one
//	none                        –                                   none: it waits
//	any                         one of them                         that one
//	any                         one that is not served, of which    none: it waits until its objects are deleted
//	                            objects may exist
//	one, or one that no other   none                                that one
//	entry names
//	several                     none, or several                    none: it waits
func (p *planner) find(e *parsed) {
	catalog := p.in.catalog
	choices, clear := catalog.Choices(e.resource)
	_, grouped := e.resource.Group()
	if len(choices) == 0 || !clear && !grouped && !catalog.Known("") { // a resource of the core group comes before all others
		_, err := catalog.Find(e.resource)
		e.lacksResource(err)
		return
	}
	served, lost := p.had(e, choices)
	free := slices.DeleteFunc(slices.Clone(choices), func(r schema.GroupResource) bool { return p.namedByAnother(e, r, false) })
	switch {
	case len(served) == 1 && (!clear || served[0].Group == choices[0].Group):
		e.finds(served[0], catalog)
	case clear || len(choices) == 1 && len(lost) == 0:
		e.finds(choices[0], catalog)
	case len(served) == 0 && len(lost) > 0:
		reason := discovery.ErrNoResource
		if !catalog.Known(lost[0].Group) {
			reason = discovery.ErrUnknownGroup
		}
		e.lacksResource(fmt.Errorf("resource %q: it means %s, not %s: %w", e.String(), lost[0], listed(choices), reason), slices.Concat(lost, choices)...)
	case len(served) == 0 && len(free) == 1:
		e.finds(free[0], catalog)
	default:
		e.lacksResource(fmt.Errorf("resource %q: it may mean %s: %w", e.String(), listed(choices), ErrSeveral), choices...)
	}
}

// had returns the resources that an entry has: those that are served, and those of which objects may exist although they are not served now.
func (p *planner) had(e *parsed, choices []schema.GroupResource) (served, lost []schema.GroupResource) {
	var leaving []schema.GroupResource
	for _, k := range p.in.known {
		c := event.ParseCollection(k.ID)
		r := resourceOf(&c)
		choice := slices.Contains(choices, r)
		switch {
		case c.Entry != e.Name || k.Held == Nothing && k.Last == nil:
		case !choice && (k.Held < Empty || k.Leaving || !p.mayHaveMeant(e, r)):
		case p.namedByAnother(e, r, true):
		case !choice:
			lost = append(lost, r)
		case k.Leaving:
			leaving = append(leaving, r)
		default:
			served = append(served, r)
		}
	}
	if len(served) == 0 {
		served = leaving
	}
	return unique(served), unique(lost)
}

// mayHaveMeant reports whether an entry may have meant a resource that none of the choices is. Only the plural of a resource that is not served is known.
func (p *planner) mayHaveMeant(e *parsed, r schema.GroupResource) bool {
	if !e.resource.MayBeOf(r.Group) || len(p.in.catalog.Meanings(discovery.NameOf(r, ""))) > 0 {
		return false // it is served, and does not have the name
	}
	return e.resource.Resource() == r.Resource || !slices.ContainsFunc(p.in.entries, func(other *parsed) bool {
		return other != e && other.Name == e.Name && other.resource.Matches(r.Group, r.Resource)
	})
}

// namedByAnother reports whether another entry, or only one with the same name, has a resource's plural and group.
func (p *planner) namedByAnother(e *parsed, r schema.GroupResource, sameName bool) bool {
	return slices.ContainsFunc(p.in.entries, func(other *parsed) bool {
		_, grouped := other.resource.Group()
		return other != e && grouped && !other.resource.IsPattern() && (!sameName || other.Name == e.Name) &&
			other.resource.Matches(r.Group, r.Resource)
	})
}

func unique(list []schema.GroupResource) []schema.GroupResource {
	slices.SortFunc(list, compare)
	return slices.Compact(list)
}

func compare(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }

// listed returns "a.x.io or a.y.io".
func listed(all []schema.GroupResource) string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.String()
	}
	return strings.Join(names, " or ")
}
