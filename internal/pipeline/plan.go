package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// plan is what a lane is to watch, as far as the catalog and the namespaces are
// known. The same input makes the same plan, in the same order.
type plan struct {
	collections []Wanted         // by ID
	waiting     map[string]error // by a spec's name: why some or all of its collections are missing
	unmatched   []string         // patterns that match nothing; waiting says why
	unknown     map[string]error // API groups that patterns may match and that cannot be asked; what is known of them goes on
	skipped     []string         // what patterns leave out, "resource: reason"; sorted
	err         error            // a *ConfigError: the specs contradict each other or the server
}

var errNamespacesUnknown = errors.New("the namespaces that match are not known yet")

// newPlan finds out which collections are asked for. A named resource is left out
// by patterns, and what a group's pattern takes in by "*.*". exclude are names and
// patterns that no pattern takes in. namespaces returns those whose labels match a
// selector; known is false until they have been listed.
func newPlan(specs []ResourceSpec, exclude []string, catalog *source.Catalog, namespaces func(selector string) (names []string, known bool)) plan {
	p := planner{
		plan: plan{waiting: map[string]error{}, unknown: map[string]error{}}, exclude: exclude, catalog: catalog, namespaces: namespaces,
		taken: map[schema.GroupResource]bool{}, claims: map[schema.GroupResource][]claim{}, left: map[string]string{},
	}
	p.excluded = p.exclusions()
	var parsed []claim
	for _, s := range specs {
		c, err := parseClaim(s)
		if err != nil {
			p.errs = append(p.errs, err)
			continue
		}
		parsed = append(parsed, c)
	}
	for width := range 3 { // of a name, of a group, of everything
		for _, c := range parsed {
			switch {
			case widthOf(c.spec.Name) != width:
			case width == 0:
				p.named(c)
			default:
				p.pattern(c)
			}
		}
		for r := range p.claims {
			p.taken[r] = true
		}
	}
	slices.SortFunc(p.collections, func(a, b Wanted) int {
		return strings.Compare(a.Target.Collection.ID(), b.Target.Collection.ID())
	})
	for what, reason := range p.left {
		if len(p.claims[schema.ParseGroupResource(what)]) == 0 { // else another pattern took it in
			p.skipped = append(p.skipped, what+": "+reason)
		}
	}
	slices.Sort(p.skipped)
	if len(p.errs) > 0 {
		p.err = &ConfigError{errors.Join(p.errs...)}
	}
	return p.plan
}

// missing returns an *[EnvironmentError] when the server does not serve a resource
// that is required. One that may exist is not missing.
func (p *plan) missing(specs []ResourceSpec) error {
	for _, s := range specs {
		if err := p.waiting[s.Name]; s.Required && errors.Is(err, source.ErrNoResource) {
			return &EnvironmentError{fmt.Errorf("%w, and it is required", err)}
		}
	}
	return nil
}

func widthOf(name string) int {
	if !source.IsPattern(name) {
		return 0
	}
	if _, all := source.PatternGroup(name); all {
		return 2
	}
	return 1
}

type planner struct {
	plan
	exclude    []string
	catalog    *source.Catalog
	namespaces func(selector string) (names []string, known bool)

	excluded map[schema.GroupResource]string // the resources that exclude names
	taken    map[schema.GroupResource]bool   // by something narrower
	claims   map[schema.GroupResource][]claim
	left     map[string]string // what patterns leave out: why
	errs     []error
}

// exclusions are the resources that exclude names, without its patterns.
func (p *planner) exclusions() map[schema.GroupResource]string {
	out := map[schema.GroupResource]string{}
	for _, name := range p.exclude {
		if source.IsPattern(name) {
			continue
		}
		if r, err := p.catalog.Find(name); err == nil {
			out[groupResource(r)] = name
		}
	}
	return out
}

// excludedBy is what excludes a resource, "" for nothing.
func (p *planner) excludedBy(r schema.GroupResource) string {
	if name, ok := p.excluded[r]; ok {
		return name
	}
	for _, pattern := range p.exclude {
		if group, all := source.PatternGroup(pattern); source.IsPattern(pattern) && (all || group == r.Group) {
			return pattern
		}
	}
	return ""
}

func groupResource(r source.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Name}
}

func (p *planner) named(c claim) {
	r, err := p.catalog.Find(c.spec.Name)
	if err != nil {
		p.wait(c.spec, err)
		// A pattern must not take in another version of it.
		if versioned, _ := schema.ParseResourceArg(strings.ToLower(c.spec.Name)); versioned != nil {
			if r, err := p.catalog.Find(versioned.GroupResource().String()); err == nil {
				p.taken[groupResource(r)] = true
			}
		}
		return
	}
	if by, ok := p.excluded[groupResource(r)]; ok {
		p.errs = append(p.errs, fmt.Errorf("resource %q is both asked for and excluded (as %q): remove one of the two", c.spec.Name, by))
		return
	}
	if what := c.namespaced(); what != "" && !r.Namespaced {
		p.errs = append(p.errs, fmt.Errorf("resource %q is cluster-scoped: remove its %s", c.spec.Name, what))
		return
	}
	p.claim(c, r)
}

// wait notes that something is not there.
func (p *planner) wait(s ResourceSpec, err error) {
	if p.waiting[s.Name] == nil {
		p.waiting[s.Name] = err
	}
}

// unlessNamed tells why a pattern leaves a resource out that can be had by name.
func unlessNamed(r schema.GroupResource) string {
	switch r.String() {
	case "secrets":
		return "their values are secret"
	case "leases.coordination.k8s.io":
		return "they change every few seconds"
	case "events.events.k8s.io":
		return "they are the same objects as events"
	}
	return ""
}

func (p *planner) pattern(c claim) {
	name, used := c.spec.Name, 0
	skip := func(what fmt.Stringer, reason string, args ...any) {
		p.left[what.String()] = fmt.Sprintf(reason, args...)
	}
	matched := p.catalog.Match(name)
	for _, r := range matched {
		gr := groupResource(r)
		if p.taken[gr] {
			used++
			continue
		}
		if by := p.excludedBy(gr); by != "" {
			skip(gr, "excluded by %q", by)
		} else if why := unlessNamed(gr); why != "" {
			skip(gr, "%s: name them to have them", why)
		} else if !r.Namespaced && c.confined() {
			skip(gr, "cluster-scoped, and %q is confined to namespaces", name)
		} else {
			used++
			p.claim(c, r)
		}
	}
	for _, r := range p.catalog.Unwatchable(name) {
		if gr := groupResource(r); p.excludedBy(gr) == "" {
			skip(gr, "cannot be listed and watched")
		}
	}
	group, all := source.PatternGroup(name)
	unknown := false
	for _, gv := range p.catalog.Unknown() {
		if (all || gv.Group == group) && p.excludedBy(schema.GroupResource{Group: gv.Group}) == "" {
			unknown = true
			p.unknown["API group "+gv.String()] = fmt.Errorf("pattern %q: %w: the server behind its APIService does not answer", name, source.ErrUnknownGroup)
		}
	}
	switch {
	case used > 0:
	case unknown:
		p.wait(c.spec, fmt.Errorf("pattern %q: %w", name, source.ErrUnknownGroup))
	default:
		what := "that can be listed and watched"
		if len(matched) > 0 {
			what = "that it may take in: all that it matches is left out"
		}
		p.unmatched = append(p.unmatched, name)
		p.wait(c.spec, fmt.Errorf("pattern %q: %w %s", name, source.ErrNoResource, what))
	}
}

// claim adds a spec's collections of one resource.
func (p *planner) claim(c claim, r source.Resource) {
	gr := groupResource(r)
	for _, other := range p.claims[gr] {
		if !provablyDisjoint(&other, &c) {
			p.errs = append(p.errs, fmt.Errorf("resource %q is asked for twice, by %s and %s: one object could be in both; name different namespaces, or selectors that exclude each other (such as a=1 and a!=1), or join them",
				gr.String(), other.String(), c.String()))
			return
		}
	}
	p.claims[gr] = append(p.claims[gr], c)
	w := Wanted{Options: c.spec.CollectionOptions, Target: source.Target{Resource: r, Collection: event.Collection{
		Group: r.Group, Resource: r.Name, MetadataOnly: c.spec.MetadataOnly,
		LabelSelector: c.labels.String(), FieldSelector: c.fieldSelector(r.Namespaced && !c.confined()),
	}}}
	if w.Options.Types == nil && r.Name == "events" && (r.Group == "" || r.Group == "events.k8s.io") {
		w.Options.Types = []event.Type{event.Added, event.Modified} // their deletion is mere expiry
	}
	names := c.in
	if selector := c.spec.NamespaceSelector; selector != "" {
		matching, known := p.namespaces(selector)
		if !known {
			p.wait(c.spec, fmt.Errorf("resource %q in namespaces with %s: %w", c.spec.Name, selector, errNamespacesUnknown))
			return
		}
		names = without(matching, c.spec.ExcludeNamespaces)
	} else if !c.confined() {
		names = []string{""}
	}
	for _, n := range names {
		w.Target.Collection.Namespace = n
		p.collections = append(p.collections, w)
	}
}

// without returns names sorted, each once, and none of those in not.
func without(names, not []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(not, n) })
	slices.SortFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}
