package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Collection is a collection that entries mean.
type Collection struct {
	// Target is the source target. Resource, Entry and Namespace of its collection are the identity;
	// selectors and MetadataOnly are properties.
	Target source.Target
	// Selection is the text of label selector, field selector and excluded namespaces. Equal
	// selections have equal texts. "" selects all objects.
	Selection string
	// Storage names the storage that the objects' history and resourceVersions belong to: see [discovery.Catalog.Storage].
	Storage string
	Entry   string // [Entry.String] of its entry
	Options any    // of its entry
}

// ID returns the collection's ID.
func (c *Collection) ID() string { return c.Target.Collection.ID() }

// Expires reports whether the API server deletes objects of a collection after a time to live. It is true for events.
func Expires(c *event.Collection) bool {
	return c.Resource == "events" && (c.Group == "" || c.Group == "events.k8s.io")
}

// Namespaces returns the namespaces whose labels match a selector. known is false until they have
// been listed.
type Namespaces func(selector string) (names []string, known bool)

// Plan has the collections that the entries of one sink mean, as far as the catalog and the namespaces
// are known. Equal inputs make equal plans.
type Plan struct {
	Collections []Collection     // by ID
	Waiting     map[string]error // by [Entry.String]: why some or all of its collections are missing
	Unmatched   []string         // patterns that match nothing; Waiting says why
	Unknown     map[string]error // API groups that patterns may match and whose discovery fails; their known collections stay
	Skipped     []string         // resources that patterns leave out, as "resource: reason"; sorted
	Warnings    []string         // entries of one resource that may select the same objects, and rules for resources that are not served
	// Err is a *[ConfigError] if entries contradict each other or the server. The other entries
	// still have their collections.
	Err error

	in       inputs
	unlisted []unlisted
}

// unlisted is a placeholder for the collections of an entry whose namespaces have not been listed.
type unlisted struct {
	entry string // [Entry.String]
	id    string // not the ID of a collection
}

// notListed cannot be the name of a namespace.
const notListed = "?"

type inputs struct {
	entries    []*parsed // those whose meaning is certain come first
	exclude    exclusions
	catalog    *discovery.Catalog
	namespaces Namespaces
	known      []Known
}

// exclusions are the resources that patterns leave out because the configuration says so.
type exclusions struct {
	all      []discovery.Name                // as configured
	patterns []discovery.Name                // those of all
	own      map[schema.GroupResource]string // Kubernetes' own resources, with the names that mean them
	plurals  []discovery.Name                // other names: each excludes every resource of that plural
	others   map[schema.GroupResource]string // what else a name may mean, for example as a short name
}

// Errors of [Plan.Waiting].
var (
	// ErrNoCatalog: the resources that the server serves are not known yet.
	ErrNoCatalog = errors.New("it is not known yet what the server serves")
	// ErrNamespacesUnknown: the namespaces that a selector selects have not been listed.
	ErrNamespacesUnknown = errors.New("the namespaces that match are not known yet")
	// ErrContradiction: the entry contradicts another one or the server about one of Kubernetes' own resources. [Plan.Err] also has the error.
	ErrContradiction = errors.New("only a change of the configuration helps")
	// ErrMismatch is like ErrContradiction, about another resource. What somebody installs must not be an error that ends the bridge, so [Plan.Err]
	// does not have it.
	ErrMismatch = errors.New("only a change of the configuration helps")
	// ErrAmbiguous: the entry's name may mean several resources, now or later. Neither patterns nor the entry take the resource, because the entry's
	// options may be meant for another one.
	ErrAmbiguous = errors.New("it is not published until an entry has its plural and group")
	// ErrSeveral: several resources have the entry's name, and it is not known which one it has: see [Make].
	ErrSeveral = errors.New("the bridge goes on with the one that it has published, and waits if there is none: write the plural and the group")
	// ErrNotPlural: a rule that hides values has a singular or short name of the resource, so that its values would not be hidden.
	ErrNotPlural = errors.New("it is not published until the name in `redact` is corrected")
)

// Make computes the wanted collections. The narrowest entry takes a resource: a name takes precedence over
// the pattern of a group ("*.apps"), and a group pattern over "*.*". exclude has names and patterns of
// resources that patterns leave out. Such a name means the one of Kubernetes' own resources, or every other resource that it may mean. A nil
// catalog is not known yet; the plan then has no collections.
//
// known are the collections of the checkpoint: a name that several resources have means the one of which the checkpoint has a collection. Otherwise
// somebody who installs a resource could take an entry away, and hide changes.
//
// A pattern takes no resource that a named entry may mean, by plural, singular or short name in any group, so that the options of the entry,
// which may hide values, do not give way to those of the pattern.
//
// Entries of one resource need different names; one of them may have no name. An entry with the name of
// an earlier entry has no collections, and [Plan.Err] has the error. If only the catalog shows that two entries mean one
// resource, this may begin while the bridge runs; then [Plan.Waiting] has the entry.
//
// [Plan.Err] has only errors that do not depend on what somebody installs in the cluster: see [ErrMismatch].
func Make(entries []Entry, exclude []string, catalog *discovery.Catalog, namespaces Namespaces, known []Known) Plan {
	p := planner{
		Plan: Plan{
			Waiting: map[string]error{}, Unknown: map[string]error{},
			in: inputs{
				exclude: exclusions{all: discovery.ParseAll(exclude), own: map[schema.GroupResource]string{}, others: map[schema.GroupResource]string{}},
				catalog: catalog, namespaces: namespaces, known: known,
			},
		},
		own:   discovery.Builtin(),
		taken: map[schema.GroupResource]bool{}, takers: map[schema.GroupResource][]*parsed{}, mayBe: map[schema.GroupResource]*parsed{}, left: map[string]string{}, warned: map[*parsed]bool{},
	}
	p.parse(entries)
	if catalog == nil {
		for _, e := range p.in.entries {
			p.waits(e, ErrNoCatalog)
		}
	} else {
		p.exclude()
		p.collect()
	}
	if len(p.errs) > 0 {
		p.Err = &ConfigError{errors.Join(p.errs...)}
	}
	return p.Plan
}

// Missing returns an *[EnvironmentError] if the server does not serve a required resource.
// A resource of an API group whose discovery fails is not missing.
func (p *Plan) Missing() error {
	for _, e := range p.in.entries {
		if err := p.Waiting[e.String()]; e.Required && errors.Is(err, discovery.ErrNoResource) {
			return &EnvironmentError{fmt.Errorf("%w, and it is required", err)}
		}
	}
	return nil
}

type planner struct {
	Plan
	own    *discovery.Catalog                 // of Kubernetes' own resources
	taken  map[schema.GroupResource]bool      // resources taken by a narrower entry
	takers map[schema.GroupResource][]*parsed // the entries that have collections of a resource
	mayBe  map[schema.GroupResource]*parsed   // resources that the name of an entry may mean, and no entry means for certain
	left   map[string]string                  // resources that patterns leave out, with the reason
	warned map[*parsed]bool
	errs   []error
}

// parse parses the entries and rejects entries with mistakes.
func (p *planner) parse(entries []Entry) {
	good, wrong := parseAll(entries)
	p.in.entries = good
	for _, m := range wrong {
		p.errs = append(p.errs, entries[m.Entry].errorf("%s: %w", m.Field, m.Err))
	}
}

// exclude finds the resources that are excluded. Which of several resources of a name kubectl means depends on what else is installed, so all of them
// are. A name of one of Kubernetes' own resources does not come to mean another.
func (p *planner) exclude() {
	x := &p.in.exclude
	patterns := slices.ContainsFunc(p.in.entries, func(e *parsed) bool { return e.resource.IsPattern() })
	for i, name := range x.all {
		name = name.WithoutVersion()
		x.all[i] = name
		if patterns && !p.in.catalog.MayServe(name) && len(p.in.catalog.Meanings(name)) == 0 {
			p.Warnings = append(p.Warnings, fmt.Sprintf("exclude: %q is the name of no resource that the server serves: it excludes nothing", name))
		}
		if name.IsPattern() {
			x.patterns = append(x.patterns, name)
			continue
		}
		if own, ok := p.meansOwn(name); ok {
			x.own[own] = name.String()
			continue
		}
		x.plurals = append(x.plurals, name)
		for _, r := range p.in.catalog.Meanings(name) {
			x.others[r] = name.String()
		}
	}
	for r, name := range x.others {
		pattern := slices.IndexFunc(p.in.entries, func(e *parsed) bool { return e.resource.IsPattern() && e.resource.Matches(r.Group, r.Resource) })
		if pattern >= 0 && x.naming(r) == "" && matching(x.patterns, r) == "" {
			p.Warnings = append(p.Warnings, fmt.Sprintf("exclude: %q is a singular or short name of %s, which may lose it, and then %q takes the resource: write %s",
				name, r, p.in.entries[pattern], r))
		}
	}
	slices.Sort(p.Warnings)
}

// meansOwn returns the one of Kubernetes' own resources that a name means, also while its group does not answer.
func (p *planner) meansOwn(name discovery.Name) (own schema.GroupResource, ok bool) {
	r, err := p.own.Find(name)
	if err != nil {
		return own, false
	}
	own = r.GroupResource()
	choices, clear := p.in.catalog.Choices(name)
	return own, len(choices) == 0 || clear && choices[0] == own
}

func (p *planner) collect() {
	unclear := ""
	for _, e := range p.in.entries {
		if !e.resource.IsPattern() {
			p.find(e)
		}
		if e.ambiguous(p.in.catalog) {
			unclear = e.Resource
		}
	}
	p.ineffective()
	p.ambiguities()
	slices.SortStableFunc(p.in.entries, func(a, b *parsed) int { return cmp.Compare(b.rank(), a.rank()) })
	for b := range discovery.Breadths {
		for _, e := range p.in.entries {
			switch {
			case e.resource.Breadth() != b:
			case b == discovery.OneResource:
				p.named(e)
			case unclear != "":
				e.err = fmt.Errorf("pattern %q: it is not known yet which resource %q is: %w", e.Resource, unclear, discovery.ErrUnknownGroup)
				p.waits(e, e.err)
			default:
				p.pattern(e)
			}
		}
		for r := range p.takers {
			p.taken[r] = true
		}
	}
	if newer := p.takers[schema.GroupResource{Group: "events.k8s.io", Resource: "events"}]; newer != nil && p.takers[schema.GroupResource{Resource: "events"}] != nil {
		p.Warnings = append(p.Warnings, newer[0].errorf("these are the same objects as events, which another entry has: each Event is published twice").Error())
	}
	slices.SortFunc(p.Collections, func(a, b Collection) int { return strings.Compare(a.ID(), b.ID()) })
	for what, reason := range p.left {
		if len(p.takers[schema.ParseGroupResource(what)]) == 0 { // no other pattern takes it in
			p.Skipped = append(p.Skipped, what+": "+reason)
		}
	}
	slices.Sort(p.Skipped)
}

// ambiguities finds the resources that the names of entries may mean besides the one that they mean now.
func (p *planner) ambiguities() {
	for _, e := range p.in.entries {
		if e.resource.IsPattern() {
			continue
		}
		own := e.err == nil && p.isOwn(e.found.GroupResource())
		_, grouped := e.resource.Group()
		e.certain = own || grouped && (e.err != nil || e.resource.Matches(e.found.Group, e.found.Name))
		choices, clear := p.in.catalog.Choices(e.resource)
		if clear && choices[0] == e.found.GroupResource() {
			continue // it does not come to mean another one
		}
		for _, r := range choices {
			p.mayBe[r] = e
		}
	}
	for _, e := range p.in.entries {
		for _, r := range e.named {
			delete(p.mayBe, r)
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(p.mayBe), compare) {
		if e := p.mayBe[r]; e.err == nil {
			p.says(e, fmt.Errorf("resource %q: it means %s, and %s has the name, too: %w", e.String(), e.found.GroupResource(), r, ErrAmbiguous))
		}
	}
}

// isOwn reports whether a resource is one of Kubernetes' own.
func (p *planner) isOwn(r schema.GroupResource) bool {
	_, err := p.own.Find(discovery.NameOf(r, ""))
	return err == nil
}

// patternFor returns the first pattern that would take a resource if no entry named it, or nil.
func (p *planner) patternFor(r discovery.Resource) *parsed {
	i := slices.IndexFunc(p.in.entries, func(e *parsed) bool {
		return e.resource.IsPattern() && e.resource.Matches(r.Group, r.Name) && p.leavesOut(e, r) == ""
	})
	if i < 0 {
		return nil
	}
	return p.in.entries[i]
}

// leavesOut returns the reason why a pattern leaves out a resource that it matches and that no entry names, or "".
func (p *planner) leavesOut(e *parsed, r discovery.Resource) string {
	if !r.Namespaced && e.confined() {
		return fmt.Sprintf("cluster-scoped, and %q is confined to namespaces", e.String())
	}
	return p.in.leftOut(r.GroupResource())
}

// leftOut returns the reason why every pattern leaves out a resource that no entry names, or "".
func (in *inputs) leftOut(r schema.GroupResource) string {
	if by := in.exclude.by(r); by != "" {
		return fmt.Sprintf("excluded by %q", by)
	}
	if secret := unlessNamed(r); secret != "" {
		return secret + ": name them to have them"
	}
	return ""
}

// by returns the name or pattern that excludes a resource from patterns, or "".
func (x *exclusions) by(r schema.GroupResource) string {
	return cmp.Or(x.naming(r), matching(x.patterns, r), x.others[r])
}

// naming returns the name that excludes a resource whatever else the server serves, or "". An entry for the resource contradicts it.
func (x *exclusions) naming(r schema.GroupResource) string {
	return cmp.Or(x.own[r], matching(x.plurals, r))
}

// matching returns the first name or pattern that matches a resource, or "".
func matching(names []discovery.Name, r schema.GroupResource) string {
	if i := slices.IndexFunc(names, func(n discovery.Name) bool { return n.Matches(r.Group, r.Resource) }); i >= 0 {
		return names[i].String()
	}
	return ""
}

// waits records why an entry lacks collections that it may have once more is known of the server, or the server serves more.
func (p *planner) waits(e *parsed, err error) {
	e.lacks = true
	p.says(e, err)
}

// holds records why an entry does not have the collections of one resource until the configuration is another.
func (p *planner) holds(e *parsed, r schema.GroupResource, err error) {
	e.held = append(e.held, r)
	p.says(e, err)
}

func (p *planner) says(e *parsed, err error) {
	if p.Waiting[e.String()] == nil {
		p.Waiting[e.String()] = err
	}
}

// contradicts records that an entry contradicts another one or the server about a resource.
func (p *planner) contradicts(e *parsed, r schema.GroupResource, err error) {
	reason := ErrMismatch
	if p.isOwn(r) {
		reason = ErrContradiction
		p.errs = append(p.errs, e.errorf("%w", err))
	}
	if !e.certain {
		err = fmt.Errorf("it means %s now: %w", r, err)
	}
	p.holds(e, r, fmt.Errorf("resource %q: %w: %w", e.String(), err, reason))
}

func (p *planner) named(e *parsed) {
	if e.err != nil {
		p.waits(e, e.err)
		for _, r := range e.named { // a pattern must not take in another version of it
			p.taken[r] = true
		}
		return
	}
	gr := e.found.GroupResource()
	p.taken[gr] = true // also if the entry contradicts: its options may hide values
	if by := p.in.exclude.naming(gr); by != "" {
		p.contradicts(e, gr, fmt.Errorf("it is both configured and excluded (as %q): remove one of the two", by))
		return
	}
	if what := e.namespaced(); what != "" && !e.found.Namespaced {
		p.contradicts(e, gr, fmt.Errorf("it is cluster-scoped: remove its %s", what))
		return
	}
	if pattern := p.patternFor(e.found); !e.certain && e.found.Name != e.resource.Resource() && pattern != nil {
		p.holds(e, gr, fmt.Errorf("resource %q: it is a singular or short name of %s, which may lose it, and then %q would take the resource with other options: write %s: %w",
			e.String(), gr, pattern, gr, ErrAmbiguous))
		return
	}
	p.take(e, e.found)
}

// unlessNamed returns the reason why patterns leave out a resource that an entry can name, or "".
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

func (p *planner) pattern(e *parsed) {
	matched := p.in.catalog.Match(e.resource)
	used := 0
	for _, r := range matched {
		gr := r.GroupResource()
		reason := p.leavesOut(e, r)
		switch {
		case !p.in.catalog.IsCertain(e.resource, r): // see unknownGroups
		case p.taken[gr]:
			used++
		case reason != "":
			p.left[gr.String()] = reason
		case p.mayBe[gr] != nil:
			used++
			p.leaveTo(p.mayBe[gr], gr)
		default:
			used++
			p.take(e, r)
		}
	}
	for _, r := range p.in.catalog.Unwatchable(e.resource) {
		if gr := r.GroupResource(); p.in.exclude.by(gr) == "" {
			p.left[gr.String()] = "cannot be listed and watched"
		}
	}
	partial := p.unknownGroups(e)
	switch {
	case used > 0:
		e.lacks = e.lacks || partial
	case partial:
		p.waits(e, fmt.Errorf("pattern %q: %w", e.Resource, discovery.ErrUnknownGroup))
	default:
		what := "that can be listed and watched"
		if len(matched) > 0 {
			what = "that it may take in: all that it matches is left out"
		}
		p.Unmatched = append(p.Unmatched, e.String())
		p.waits(e, fmt.Errorf("pattern %q: %w %s", e.Resource, discovery.ErrNoResource, what))
	}
}

// leaveTo leaves a resource out of patterns, because the name of an entry may mean it. What was published of it stays as it is.
func (p *planner) leaveTo(e *parsed, r schema.GroupResource) {
	p.left[r.String()] = fmt.Sprintf("%q may mean it: write it with its group", e.String())
	p.holds(e, r, fmt.Errorf("resource %q: it may also mean %s: %w", e.String(), r, ErrAmbiguous))
	if !slices.Contains(e.named, r) {
		e.named = append(e.named, r)
	}
}

// unknownGroups records the API groups that a pattern may match and whose discovery fails, and reports whether there are any.
func (p *planner) unknownGroups(e *parsed) (partial bool) {
	for _, gv := range p.in.catalog.Unknown() {
		if e.resource.MayBeOf(gv.Group) && p.in.exclude.by(schema.GroupResource{Group: gv.Group}) == "" {
			partial = true
			p.Unknown["API group "+gv.String()] = fmt.Errorf("pattern %q: %w: the server behind its APIService does not answer", e.Resource, discovery.ErrUnknownGroup)
		}
	}
	return partial
}

// ineffective warns of rules that hide nothing, because the server serves no resource that they are for.
func (p *planner) ineffective() {
	warned := map[string]bool{}
	for _, e := range p.in.entries {
		for _, n := range e.redacted {
			if warned[n.String()] || p.in.catalog.MayServe(n) {
				continue
			}
			warned[n.String()] = true
			p.Warnings = append(p.Warnings, fmt.Sprintf("redact: %q is the plural of no resource that the server serves: the rule hides nothing", n))
		}
	}
}

// notPlural returns the name in a rule that is a singular or short name of a resource, or "".
func (p *planner) notPlural(e *parsed, gr schema.GroupResource) string {
	for _, n := range e.redacted {
		if !n.IsPattern() && n.Resource() != gr.Resource && slices.Contains(p.in.catalog.Meanings(n), gr) {
			return n.String()
		}
	}
	return ""
}

// take adds an entry's collections of a resource.
func (p *planner) take(e *parsed, r discovery.Resource) {
	gr := r.GroupResource()
	if name := p.notPlural(e, gr); name != "" {
		p.taken[gr] = true
		p.holds(e, gr, fmt.Errorf("redact: %q is a singular or short name of %s, and rules need the plural: write %s: %w", name, gr, gr, ErrNotPlural))
		return
	}
	for _, other := range p.takers[gr] {
		if other.Name == e.Name {
			p.contradicts(e, gr, fmt.Errorf("name: %w", sameName(gr.String(), other)))
			return
		}
	}
	p.warn(e, gr)
	p.takers[gr] = append(p.takers[gr], e)
	names := e.in
	switch {
	case e.NamespaceSelector != "":
		matching, known := p.in.namespaces(e.NamespaceSelector)
		if !known {
			p.waits(e, fmt.Errorf("resource %q in namespaces with %s: %w", e.String(), e.NamespaceSelector, ErrNamespacesUnknown))
			none := event.Collection{Group: r.Group, Resource: r.Name, Entry: e.Name, Namespace: notListed}
			p.unlisted = append(p.unlisted, unlisted{e.String(), none.ID()})
			return
		}
		names = without(matching, e.ExcludeNamespaces)
	case !e.confined():
		names = []string{""}
	}
	c := e.collection(r, r.Namespaced && !e.confined())
	c.Storage, _ = p.in.catalog.Storage(r.Group) // if the storage is not known: see Outcomes
	for _, n := range names {
		c.Target.Collection.Namespace = n
		p.Collections = append(p.Collections, c)
	}
}

// warn adds a warning, once per entry, if the entry may select objects that another one selects.
func (p *planner) warn(e *parsed, r schema.GroupResource) {
	for _, other := range p.takers[r] {
		if p.warned[e] || provablyDisjoint(other, e) {
			continue
		}
		p.warned[e] = true
		p.Warnings = append(p.Warnings, e.errorf("it may select the same %s as %s; each of the two publishes them",
			r.String(), other.describe()).Error())
	}
}
