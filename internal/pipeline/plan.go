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

// planOptions are what a plan is made of.
type planOptions struct {
	specs   []ResourceSpec
	exclude []string // names and patterns that no pattern takes in
	catalog *source.Catalog
	// namespaces are those whose labels match a selector; known is false until they
	// have been listed. nil: they are never known.
	namespaces func(selector string) (names []string, known bool)
}

// plan is what a lane is to watch, as far as the catalog and the namespaces are
// known. The same options make the same plan, in the same order.
type plan struct {
	collections []wanted         // by ID
	waiting     map[string]error // by a spec's name: why some or all of its collections are missing
	unmatched   []string         // patterns that match nothing; waiting says why
	skipped     []string         // what patterns leave out, "resource: reason"; sorted
	required    error            // an *EnvironmentError: something required is not there
	err         error            // a *ConfigError: the specs contradict each other or the server
}

// wanted is a collection that a lane is to keep.
type wanted struct {
	source.Target
	spec ResourceSpec // what asked for it; Types is complete
	// fromSelector: it is wanted as long as its namespace matches the spec's
	// NamespaceSelector.
	fromSelector bool
}

var errNamespacesUnknown = errors.New("the namespaces that match are not known yet")

// makePlan finds out which collections are asked for. A named resource is left
// out by patterns, and what a group's pattern takes in by "*.*".
func makePlan(o planOptions) plan {
	p := planner{
		planOptions: o, plan: plan{waiting: map[string]error{}},
		taken: map[schema.GroupResource]bool{}, claims: map[schema.GroupResource][]claim{}, left: map[string]string{},
	}
	if p.namespaces == nil {
		p.namespaces = func(string) ([]string, bool) { return nil, false }
	}
	p.excluded = p.exclusions()
	var parsed []claim
	for _, s := range o.specs {
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
	slices.SortFunc(p.collections, func(a, b wanted) int { return strings.Compare(a.Collection.ID(), b.Collection.ID()) })
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
	planOptions
	plan
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
	if s.Required && p.required == nil && errors.Is(err, source.ErrNoResource) {
		p.required = &EnvironmentError{fmt.Errorf("%w, and it is required", err)}
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
			skip(gv, "it could not be asked what it serves: see whether its APIService is available")
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
	spec := c.spec
	if spec.Types == nil && r.Name == "events" && (r.Group == "" || r.Group == "events.k8s.io") {
		spec.Types = []event.Type{event.Added, event.Modified} // their deletion is mere expiry
	}
	w := wanted{Target: source.Target{Resource: r}, spec: spec}
	w.Collection = event.Collection{
		Group: r.Group, Resource: r.Name, MetadataOnly: spec.MetadataOnly,
		LabelSelector: c.labels.String(), FieldSelector: c.fieldSelector(r.Namespaced && !c.confined()),
	}
	names := c.in
	switch {
	case spec.NamespaceSelector != "":
		matching, known := p.namespaces(spec.NamespaceSelector)
		if !known {
			p.wait(spec, fmt.Errorf("resource %q in namespaces with %s: %w", spec.Name, spec.NamespaceSelector, errNamespacesUnknown))
			return
		}
		names, w.fromSelector = without(matching, spec.ExcludeNamespaces), true
	case len(spec.Namespaces) == 0:
		names = []string{""}
	}
	for _, n := range names {
		w.Collection.Namespace = n
		p.collections = append(p.collections, w)
	}
}

// without returns names sorted, each once, and none of those in not.
func without(names, not []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(not, n) })
	slices.SortFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}
