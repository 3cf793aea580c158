package plan

import (
	"errors"
	"fmt"
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
	partial  map[string]bool // by [Entry.String]: patterns that may match API groups whose discovery fails
	unlisted []unlisted
}

// unlisted is a placeholder for the collections of an entry whose namespaces have not been listed.
type unlisted struct {
	entry string // [Entry.String]
	id    string // not the ID of a collection
}

// notListed cannot be the name of a namespace.
const notListed = "?"

// inputs are the inputs of a plan.
type inputs struct {
	entries    []*parsed
	exclude    []discovery.Name
	excluded   map[schema.GroupResource]string // the resources that exclude names
	catalog    *discovery.Catalog
	namespaces Namespaces
}

// Errors of [Plan.Waiting].
var (
	// ErrNoCatalog: the resources that the server serves are not known yet.
	ErrNoCatalog = errors.New("it is not known yet what the server serves")
	// ErrNamespacesUnknown: the namespaces that a selector selects have not been listed.
	ErrNamespacesUnknown = errors.New("the namespaces that match are not known yet")
	// ErrContradiction: the entry contradicts another one or the server. [Plan.Err] also has the error.
	ErrContradiction = errors.New("only a change of the configuration helps")
	// ErrAmbiguous: the entry's name may mean several resources. Patterns take none of them, because the entry's options may be meant for any.
	ErrAmbiguous = errors.New("it is not published until both are written with their groups")
	// ErrNotPlural: a rule that hides values has a singular or short name of the resource, so that its values would not be hidden.
	ErrNotPlural = errors.New("it is not published until the name in `redact` is corrected")
)

// Make computes the wanted collections. The narrowest entry takes a resource: a name takes precedence over
// the pattern of a group ("*.apps"), and a group pattern over "*.*". exclude has names and patterns of
// resources that patterns leave out. A nil catalog is not known yet; the plan then has no
// collections.
//
// A pattern takes no resource that a named entry may mean, by plural, singular or short name in any group, so that the options of the entry,
// which may hide values, do not give way to those of the pattern.
//
// Entries of one resource need different names; one of them may have no name. An entry with the name of
// an earlier entry has no collections, and [Plan.Err] has the error. If only the catalog shows that two entries mean one
// resource, this may begin while the bridge runs; then [Plan.Waiting] also has the entry.
func Make(entries []Entry, exclude []string, catalog *discovery.Catalog, namespaces Namespaces) Plan {
	p := planner{
		Plan: Plan{
			Waiting: map[string]error{}, Unknown: map[string]error{}, partial: map[string]bool{},
			in: inputs{exclude: discovery.ParseAll(exclude), excluded: map[schema.GroupResource]string{}, catalog: catalog, namespaces: namespaces},
		},
		taken: map[schema.GroupResource]bool{}, takers: map[schema.GroupResource][]*parsed{}, mayBe: map[schema.GroupResource]*parsed{}, left: map[string]string{}, warned: map[*parsed]bool{},
	}
	p.parse(entries)
	if catalog == nil {
		for _, e := range p.in.entries {
			p.waits(e, ErrNoCatalog)
		}
	} else {
		p.exclusions()
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

// planner makes a plan.
type planner struct {
	Plan
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

// exclusions finds the resources that exclude names, without its patterns.
func (p *planner) exclusions() {
	for _, name := range p.in.exclude {
		if name.IsPattern() {
			continue
		}
		if r, err := p.in.catalog.Find(name); err == nil {
			p.in.excluded[r.GroupResource()] = name.String()
		}
	}
}

// collect makes the collections.
func (p *planner) collect() {
	unclear := ""
	for _, e := range p.in.entries {
		e.find(p.in.catalog)
		if e.ambiguous(p.in.catalog) {
			unclear = e.Resource
		}
	}
	p.ineffective()
	p.ambiguities()
	for b := range discovery.Breadths {
		for _, e := range p.in.entries {
			switch {
			case e.resource.Breadth() != b:
			case b == discovery.OneResource:
				p.named(e)
			case unclear != "":
				p.waits(e, fmt.Errorf("pattern %q: it is not known yet which resource %q is: %w", e.Resource, unclear, discovery.ErrUnknownGroup))
			default:
				p.pattern(e)
			}
		}
		for r := range p.takers {
			p.taken[r] = true
		}
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
	own := discovery.Builtin()
	for _, e := range p.in.entries {
		if e.resource.IsPattern() {
			continue
		}
		if e.err == nil {
			if _, err := own.Find(nameOf(e.found.GroupResource())); err == nil {
				continue // a name of one of Kubernetes' own resources does not come to mean another
			}
			e.other = e.found.Name != e.resource.Resource()
		}
		for _, r := range p.in.catalog.Meanings(e.resource) {
			p.mayBe[r] = e
		}
	}
	for _, e := range p.in.entries {
		for _, r := range e.named {
			delete(p.mayBe, r)
		}
	}
}

// nameOf returns the full name of a resource.
func nameOf(r schema.GroupResource) discovery.Name {
	return discovery.Parse(r.Resource + "." + r.Group)
}

// patternFor returns the first pattern that would take a resource if no entry named it, or nil.
func (p *planner) patternFor(r schema.GroupResource) *parsed {
	i := slices.IndexFunc(p.in.entries, func(e *parsed) bool { return e.resource.IsPattern() && e.resource.Matches(r.Group, r.Resource) })
	if i < 0 {
		return nil
	}
	return p.in.entries[i]
}

// excludedBy returns the name or pattern that excludes a resource from patterns, or "".
func (in *inputs) excludedBy(r schema.GroupResource) string {
	if name, ok := in.excluded[r]; ok {
		return name
	}
	for _, name := range in.exclude {
		if name.IsPattern() && name.Matches(r.Group, r.Resource) {
			return name.String()
		}
	}
	return ""
}

// waits records why an entry lacks collections.
func (p *planner) waits(e *parsed, err error) {
	if p.Waiting[e.String()] == nil {
		p.Waiting[e.String()] = err
	}
}

// contradicts records that an entry contradicts another one or the server.
func (p *planner) contradicts(e *parsed, format string, args ...any) {
	err := e.errorf(format, args...)
	p.errs = append(p.errs, err)
	p.waits(e, fmt.Errorf("%w: %w", err, ErrContradiction))
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
	if by, ok := p.in.excluded[gr]; ok {
		p.contradicts(e, "it is both configured and excluded (as %q): remove one of the two", by)
		return
	}
	if what := e.namespaced(); what != "" && !e.found.Namespaced {
		p.contradicts(e, "it is cluster-scoped: remove its %s", what)
		return
	}
	if pattern := p.patternFor(gr); e.other && pattern != nil {
		p.contradicts(e, "it is a singular or short name, which %s may lose, and then %q would take the resource with other options: write %s", gr, pattern, gr)
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
		by, secret := p.in.excludedBy(gr), unlessNamed(gr)
		switch {
		case p.taken[gr]:
			used++
		case by != "":
			p.left[gr.String()] = fmt.Sprintf("excluded by %q", by)
		case secret != "":
			p.left[gr.String()] = secret + ": name them to have them"
		case !r.Namespaced && e.confined():
			p.left[gr.String()] = fmt.Sprintf("cluster-scoped, and %q is confined to namespaces", e.String())
		case p.mayBe[gr] != nil:
			used++
			p.leaveTo(p.mayBe[gr], gr)
		default:
			used++
			p.take(e, r)
		}
	}
	for _, r := range p.in.catalog.Unwatchable(e.resource) {
		if gr := r.GroupResource(); p.in.excludedBy(gr) == "" {
			p.left[gr.String()] = "cannot be listed and watched"
		}
	}
	p.unknownGroups(e)
	switch {
	case used > 0:
	case p.partial[e.String()]:
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
	p.waits(e, fmt.Errorf("resource %q: it may also mean %s: %w", e.String(), r, ErrAmbiguous))
	if !slices.Contains(e.named, r) {
		e.named = append(e.named, r)
	}
}

// unknownGroups records the API groups that a pattern may match and whose discovery fails.
func (p *planner) unknownGroups(e *parsed) {
	for _, gv := range p.in.catalog.Unknown() {
		if e.resource.MayBeOf(gv.Group) && p.in.excludedBy(schema.GroupResource{Group: gv.Group}) == "" {
			p.partial[e.String()] = true
			p.Unknown["API group "+gv.String()] = fmt.Errorf("pattern %q: %w: the server behind its APIService does not answer", e.Resource, discovery.ErrUnknownGroup)
		}
	}
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
		p.waits(e, fmt.Errorf("redact: %q is a singular or short name of %s, and rules need the plural: write %s: %w", name, gr, gr, ErrNotPlural))
		return
	}
	for _, other := range p.takers[gr] {
		if other.Name == e.Name {
			p.contradicts(e, "name: %w", sameName(gr.String(), other))
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
