package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// ConfigError is an error that only a change of the configuration corrects.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// EnvironmentError is an error that only a change outside the bridge corrects, not waiting: a required resource that is
// not served, wrong credentials, a checkpoint of another cluster.
type EnvironmentError struct{ Err error }

func (e *EnvironmentError) Error() string { return e.Err.Error() }
func (e *EnvironmentError) Unwrap() error { return e.Err }

// Entry is one item of the configured resources.
type Entry struct {
	Resource          string         // a name or a pattern: see [discovery.Name]
	Meaning           discovery.Name // of Resource; zero: as [discovery.Parse] reads it
	Name              string         // distinguishes entries of one resource: a DNS label (RFC 1123); "": it has none
	Namespaces        []string       // one collection for each; none: one collection of all namespaces
	NamespaceSelector string         // label selector of namespaces: one collection for each; not beside Namespaces
	ExcludeNamespaces []string
	LabelSelector     string
	FieldSelector     string
	MetadataOnly      bool // bodies hold metadata alone
	Required          bool // if the server does not serve the resource at the start, that is an error
	Options           any  // the caller's; collections carry them
	// Redacted are the names and patterns of resources for which rules hide values. Such a name means only the resource whose plural it is.
	Redacted []string
	// Place is where the entry is configured, for example "bridge.yaml:7:5". Errors and warnings begin
	// with it. "": they begin with the resource.
	Place string
}

// String is "pods", or "pods:canary" where the entry has a name. It is the entry's key in
// [Plan.Waiting].
func (e *Entry) String() string {
	if e.Name == "" {
		return e.Resource
	}
	return e.Resource + ":" + e.Name
}

// errorf returns an error about the entry. The message begins with the place and the name of the entry.
func (e *Entry) errorf(format string, args ...any) error {
	at := ""
	if e.Place != "" {
		at = e.Place + ": "
	}
	return fmt.Errorf("%sresource %q: "+format, append([]any{at, e.String()}, args...)...)
}

// confined reports whether the entry is for some namespaces only.
func (e *Entry) confined() bool { return len(e.Namespaces) > 0 || e.NamespaceSelector != "" }

// namespaced names the option that only a namespaced resource can have, "" for none.
func (e *Entry) namespaced() string {
	switch {
	case len(e.Namespaces) > 0:
		return "namespaces"
	case e.NamespaceSelector != "":
		return "namespaceSelector"
	case len(e.ExcludeNamespaces) > 0:
		return "excludeNamespaces"
	}
	return ""
}

// parsed is an entry with its selectors parsed and its resource looked up in the catalog.
type parsed struct {
	Entry
	resource    discovery.Name // Resource
	redacted    []discovery.Name
	in          []string // Namespaces without ExcludeNamespaces, sorted
	labels      labels.Selector
	ofNamespace labels.Selector
	fields      fields.Requirements // sorted, each once

	// err is why it is not known what the entry means, or in which version.
	err error
	// lacks: the entry lacks collections that it may have once more is known of the server, or the server serves more.
	lacks bool
	// held are resources of which the entry has no collections until the configuration is another. What was published of them stays as it is.
	held []schema.GroupResource

	// The fields below are set for an entry without a pattern.
	found discovery.Resource // zero: it was not found
	// named are the resources that the entry means in any case: the resource that was found, or the resources that
	// its text names; and those that patterns leave to it.
	named []schema.GroupResource
	// certain: Resource means the same whatever else the server serves. It means one of Kubernetes' own resources, or is a plural with its group.
	certain bool
}

// rank is higher for an entry that takes precedence over others of the same breadth that mean the same resource now.
func (p *parsed) rank() int {
	if p.certain {
		return 1
	}
	return 0
}

// complete reports whether the entry has all its collections, apart from those of some resources of several that are held.
func (p *parsed) complete() bool {
	return !p.lacks && (p.resource.IsPattern() || !slices.Contains(p.held, p.found.GroupResource()))
}

// Mistake is an error in an entry that does not depend on the cluster.
type Mistake struct {
	Entry int    // its index
	Field string // its option, as the configuration calls it, for example "labelSelector"
	Err   error  // the error, without the entry and the option
}

// Mistakes returns the errors in the entries of one sink that do not depend on the cluster. [Make] leaves out
// entries with mistakes.
func Mistakes(entries []Entry) []Mistake {
	_, wrong := parseAll(entries)
	return wrong
}

// parseAll parses entries, and returns the good ones and the mistakes of the others.
func parseAll(entries []Entry) (good []*parsed, wrong []Mistake) {
	type identity struct{ resource, name string }
	first := map[identity]*parsed{}
	for i := range entries {
		e, all := parse(entries[i])
		for _, m := range all {
			m.Entry = i
			wrong = append(wrong, m)
		}
		if len(all) > 0 {
			continue
		}
		is := identity{e.resource.Unversioned(), e.Name}
		if other := first[is]; other != nil {
			wrong = append(wrong, Mistake{i, "name", sameName(is.resource, other)})
			continue
		}
		first[is] = e
		good = append(good, e)
	}
	return good, wrong
}

// parse parses an entry. Its mistakes have no index.
func parse(e Entry) (p *parsed, wrong []Mistake) {
	n := e.Meaning
	if n == (discovery.Name{}) {
		n = discovery.Parse(e.Resource)
	}
	p = &parsed{Entry: e, resource: n, redacted: discovery.ParseAll(e.Redacted), in: without(e.Namespaces, e.ExcludeNamespaces)}
	mistake := func(field, format string, args ...any) {
		wrong = append(wrong, Mistake{Field: field, Err: fmt.Errorf(format, args...)})
	}
	selector := func(field, text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			mistake(field, "%q does not parse: %w", text, err)
		}
		return s
	}
	if e.Name != "" && len(validation.IsDNS1123Label(e.Name)) > 0 {
		mistake("name", "%q cannot be the name of an entry: use lower-case letters, digits and -, at most 63, beginning and ending with a letter or digit", e.Name)
	}
	p.labels, p.ofNamespace = selector("labelSelector", e.LabelSelector), selector("namespaceSelector", e.NamespaceSelector)
	if terms, err := fields.ParseSelector(e.FieldSelector); err != nil {
		mistake("fieldSelector", "%q does not parse: %w", e.FieldSelector, err)
	} else {
		p.fields = sortFields(terms.Requirements())
	}
	switch {
	case len(e.Namespaces) > 0 && e.NamespaceSelector != "":
		mistake("namespaceSelector", "it is set beside namespaces: remove one of the two")
	case len(e.Namespaces) > 0 && len(p.in) == 0:
		mistake("excludeNamespaces", "it leaves none of the entry's namespaces: remove them there")
	}
	return p, wrong
}

// sameName returns the error that another entry of a resource has the same name, or has no name either.
func sameName(resource string, other *parsed) error {
	if other.Name == "" {
		return fmt.Errorf("another entry of %s has no name either, %s: give this one a name", resource, other.describe())
	}
	return fmt.Errorf("another entry of %s has the name %q too, %s: choose another name", resource, other.Name, other.describe())
}

// finds looks in the catalog for the resource r that the entry means.
func (p *parsed) finds(r schema.GroupResource, catalog *discovery.Catalog) {
	p.named = []schema.GroupResource{r}
	if p.found, p.err = catalog.FindAs(p.resource, r); p.err != nil {
		p.named = append(p.named, p.resource.Candidates()...)
		return
	}
	if !catalog.IsCertain(p.resource, p.found) {
		p.err = fmt.Errorf("resource %q: %w: it may be preferred to version %s: see whether the APIService of each version is available, or write the version",
			p.Resource, discovery.ErrUnknownGroup, p.found.Version)
	}
}

// lacksResource records why it is not known which resource the entry means. may are those that it may mean.
func (p *parsed) lacksResource(err error, may ...schema.GroupResource) {
	p.err, p.named = err, append(may, p.resource.Candidates()...)
}

// mayMean reports whether an entry whose resource was not found may mean r. served says whether the catalog has r.
func (p *parsed) mayMean(r schema.GroupResource, served bool, catalog *discovery.Catalog) bool {
	if p.resource.IsPattern() || p.found.Name != "" || !p.resource.MayBeOf(r.Group) {
		return false
	}
	// A name that was not found cannot mean a served resource, except if the core group is unknown:
	// the core group takes precedence over other groups.
	return !served || !catalog.Known("")
}

// ambiguous reports whether it is unknown which resource an entry without a group means, because the core group,
// which takes precedence over other groups, does not answer.
func (p *parsed) ambiguous(catalog *discovery.Catalog) bool {
	_, known := p.resource.Group()
	return !p.resource.IsPattern() && errors.Is(p.err, discovery.ErrUnknownGroup) && !known && !catalog.Known("")
}

// collection returns the entry's collection of a resource. With excluding, the field selector also excludes the
// entry's excluded namespaces.
func (p *parsed) collection(r discovery.Resource, excluding bool) Collection {
	c := event.Collection{
		Group: r.Group, Resource: r.Name, Entry: p.Name, MetadataOnly: p.MetadataOnly,
		LabelSelector: labelText(p.labels), FieldSelector: p.fieldText(excluding),
	}
	return Collection{Target: source.Target{Resource: r, Collection: c}, Selection: SelectionOf(&c), Entry: p.String(), Options: p.Options}
}

// SelectionOf returns the [Collection].Selection of a collection with these selectors.
func SelectionOf(c *event.Collection) string {
	var parts []string
	if c.LabelSelector != "" {
		parts = append(parts, "labels="+c.LabelSelector)
	}
	if c.FieldSelector != "" {
		parts = append(parts, "fields="+c.FieldSelector)
	}
	return strings.Join(parts, "&")
}

// labelText returns a canonical text, so that equal selectors have equal texts: requirements are sorted
// and unique, and a comparison with one value is written as = or !=.
func labelText(s labels.Selector) string {
	requirements, _ := s.Requirements()
	var terms []string
	for _, r := range requirements {
		op := r.Operator()
		switch {
		case op == selection.DoubleEquals, op == selection.In && len(r.ValuesUnsorted()) == 1:
			op = selection.Equals
		case op == selection.NotIn && len(r.ValuesUnsorted()) == 1:
			op = selection.NotEquals
		}
		if same, err := labels.NewRequirement(r.Key(), op, r.ValuesUnsorted()); err == nil {
			r = *same
		}
		terms = append(terms, r.String())
	}
	slices.Sort(terms)
	return strings.Join(slices.Compact(terms), ",")
}

// fieldText returns a canonical text, so that equal selectors have equal texts.
func (p *parsed) fieldText(excluding bool) string {
	all := p.fields
	if excluding {
		all = sortFields(slices.Concat(all, p.exclusions()))
	}
	terms := make([]string, len(all))
	for i, r := range all {
		terms[i] = fieldTerm(r)
	}
	return strings.Join(terms, ",")
}

// exclusions returns the excluded namespaces as terms of a field selector.
func (p *parsed) exclusions() fields.Requirements {
	var out fields.Requirements
	for _, n := range without(p.ExcludeNamespaces, nil) {
		out = append(out, fields.Requirement{Field: "metadata.namespace", Operator: selection.NotEquals, Value: n})
	}
	return out
}

func sortFields(r fields.Requirements) fields.Requirements {
	r = slices.Clone(r)
	for i := range r {
		r[i].Field = strings.TrimSpace(r[i].Field)
	}
	slices.SortFunc(r, func(a, b fields.Requirement) int { return strings.Compare(fieldTerm(a), fieldTerm(b)) })
	return slices.Compact(r)
}

func fieldTerm(r fields.Requirement) string {
	if r.Operator == selection.NotEquals {
		return fields.OneTermNotEqualSelector(r.Field, r.Value).String()
	}
	return fields.OneTermEqualSelector(r.Field, r.Value).String()
}

// describe names the entry by its place and its selection.
func (p *parsed) describe() string {
	var parts []string
	add := func(what string, values ...string) {
		if text := strings.Join(values, ", "); text != "" {
			parts = append(parts, what+" "+text)
		}
	}
	add("in", p.Namespaces...)
	add("in namespaces with", p.NamespaceSelector)
	add("not in", p.ExcludeNamespaces...)
	add("labels", p.LabelSelector)
	add("fields", p.FieldSelector)
	if len(parts) == 0 {
		parts = []string{"everywhere"}
	}
	if p.Place != "" {
		parts = append([]string{"at " + p.Place}, parts...)
	}
	return fmt.Sprintf("%q (%s)", p.String(), strings.Join(parts, "; "))
}

// without returns the unique names that are not in not, sorted.
func without(names, not []string) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(not, n) })
	slices.Sort(out)
	return slices.Compact(out)
}
