package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeversion "k8s.io/apimachinery/pkg/version"
)

// Errors of [Catalog.Find].
var (
	// ErrNoResource is returned if the server does not serve a resource of that name. It may serve it
	// later, when a CRD is installed.
	ErrNoResource = errors.New("the server has no such resource")
	// ErrNotWatchable is returned for a resource that cannot be listed and watched.
	ErrNotWatchable = errors.New("the resource cannot be listed and watched")
	// ErrUnknownGroup is returned if the resource was not found, but an API group that may have
	// it could not be asked, so that the resource may exist.
	ErrUnknownGroup = errors.New("an API group that may have it could not be asked")
)

// Catalog lists the resources that a server serves at one moment. It does not change and is safe
// for concurrent use.
type Catalog struct {
	groups  []apiGroup            // in the server's order of preference
	unknown []schema.GroupVersion // versions that could not be asked; sorted
	// aggregated are the groups that other servers serve, sorted; nil: they are not known.
	aggregated []string
}

type apiGroup struct {
	name     string
	versions []apiVersion // the preferred one first
}

type apiVersion struct {
	name string
	// second: a version that could not be asked may come before it in the group's order of preference.
	second    bool
	resources []apiResource // by name; no subresources
}

type apiResource struct {
	Resource
	singular string
	short    []string
	verbs    []string
}

func (r *apiResource) watchable() bool {
	return slices.Contains(r.verbs, "list") && slices.Contains(r.verbs, "watch")
}

// NewCatalog makes a catalog from the answers of discovery: the groups in order of
// preference, the resources of their versions in any order, and the versions
// that could not be asked.
func NewCatalog(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, unknown []schema.GroupVersion) *Catalog {
	byVersion := map[string]*metav1.APIResourceList{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	c := &Catalog{unknown: slices.Clone(unknown)}
	slices.SortFunc(c.unknown, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	c.unknown = slices.Compact(c.unknown)
	for _, g := range groups {
		group := apiGroup{name: g.Name}
		for _, v := range g.Versions {
			l := byVersion[v.GroupVersion]
			if l == nil {
				continue
			}
			version := apiVersion{name: v.Version, resources: resourcesOf(schema.GroupVersion{Group: g.Name, Version: v.Version}, l)}
			if v.Version == g.PreferredVersion.Version {
				group.versions = slices.Insert(group.versions, 0, version)
			} else {
				group.versions = append(group.versions, version)
			}
		}
		for i := range group.versions {
			group.versions[i].second = slices.ContainsFunc(c.unknown, func(gv schema.GroupVersion) bool {
				return gv.Group == g.Name && precedes(g, gv.Version, group.versions[i].name)
			})
		}
		c.groups = append(c.groups, group)
	}
	return c
}

// precedes reports whether a version comes before another one in a group's order of preference. Aggregated discovery leaves out the versions that do
// not answer, and takes one of the others for the preferred one: then the order is that in which Kubernetes sorts the versions of
// CustomResourceDefinitions.
func precedes(g *metav1.APIGroup, version, other string) bool {
	index := func(version string) int {
		return slices.IndexFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
	}
	switch at := index(version); {
	case at < 0:
		return kubeversion.CompareKubeAwareVersionStrings(version, other) > 0
	case version == g.PreferredVersion.Version:
		return true
	default:
		return other != g.PreferredVersion.Version && at < index(other)
	}
}

func resourcesOf(gv schema.GroupVersion, l *metav1.APIResourceList) []apiResource {
	var out []apiResource
	for _, r := range l.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		out = append(out, apiResource{
			Resource: Resource{Group: gv.Group, Version: gv.Version, Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced},
			singular: cmp.Or(r.SingularName, strings.ToLower(r.Kind)), // older servers have no singular of their own types
			short:    slices.Clone(r.ShortNames),
			verbs:    slices.Sorted(slices.Values(r.Verbs)),
		})
	}
	slices.SortFunc(out, func(a, b apiResource) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// WithAggregated returns the catalog with the groups that APIServices send to other servers; nil means
// that they are not known.
func (c *Catalog) WithAggregated(groups []string) *Catalog {
	out := *c
	out.aggregated = slices.Clone(groups)
	slices.Sort(out.aggregated)
	out.aggregated = slices.Compact(out.aggregated)
	return &out
}

// Storage returns the storage of a group's objects. Objects of one storage share the history of resourceVersions.
// "" is the storage of the API server, which its own groups and those of CustomResourceDefinitions
// share. A group that an APIService sends to another server has a storage of its own, with the group's name.
// known is false if the APIServices could not be listed, for example without permission.
func (c *Catalog) Storage(group string) (storage string, known bool) {
	if c == nil || c.aggregated == nil {
		return "", false
	}
	if slices.Contains(c.aggregated, group) {
		return group, true
	}
	return "", true
}

// Equal reports whether both catalogs hold the same: resources, versions, their
// order of preference, what is unknown, and which groups other servers serve.
func (c *Catalog) Equal(other *Catalog) bool { return reflect.DeepEqual(c, other) }

// Known reports whether all versions of a group could be asked. "" is the core
// group. Resources of a group that is not known may exist even if the catalog lacks them.
func (c *Catalog) Known(group string) bool { return !c.doubtful(group, "") }

// Unknown returns the group versions that could not be asked, sorted.
func (c *Catalog) Unknown() []schema.GroupVersion { return slices.Clone(c.unknown) }

// doubtful reports whether a version of a group could not be asked; with an empty version, whether any version could not.
func (c *Catalog) doubtful(group, version string) bool {
	return slices.ContainsFunc(c.unknown, func(gv schema.GroupVersion) bool {
		return gv.Group == group && (version == "" || gv.Version == version)
	})
}

// Find returns the resource that a name means now, much as kubectl resolves it: see [Catalog.Choices]. If the name has no version, Find takes the group's preferred
// version, or the first one that has the resource, of those that could be asked: see [Catalog.IsCertain]. Errors wrap [ErrNoResource],
// [ErrNotWatchable] or [ErrUnknownGroup].
func (c *Catalog) Find(n Name) (Resource, error) {
	var found *apiResource
	for _, r := range n.readings() {
		if found = c.read(r, n.bare); found != nil {
			break
		}
	}
	switch {
	case found == nil:
		return Resource{}, fmt.Errorf("resource %q: %w", n.text, c.notFound(n))
	case !found.watchable():
		return Resource{}, fmt.Errorf("resource %q: %w: its verbs are %s", n.text, ErrNotWatchable, strings.Join(found.verbs, ", "))
	}
	return found.Resource, nil
}

// IsCertain reports whether r, which [Catalog.Find] or [Catalog.Match] has found for a name, has the version that the name means. It is false if the
// name has no version, and a version of the group that could not be asked may be preferred: it may have the resource, too.
func (c *Catalog) IsCertain(n Name, r Resource) bool {
	if slices.ContainsFunc(n.readings(), func(x schema.GroupVersionResource) bool { return x.Group == r.Group && x.Version == r.Version }) {
		return true
	}
	return !slices.ContainsFunc(c.group(r.Group), func(g apiGroup) bool {
		return slices.ContainsFunc(g.versions, func(v apiVersion) bool { return v.name == r.Version && v.second })
	})
}

// ShortNames returns the short names of a resource, such as "po".
func (c *Catalog) ShortNames(n Name) []string {
	for _, r := range n.readings() {
		if found := c.read(r, n.bare); found != nil {
			return slices.Clone(found.short)
		}
	}
	return nil
}

// FindUnversioned is like Find. If the server does not serve the version of the name, it finds the
// resource in another version.
func (c *Catalog) FindUnversioned(n Name) (Resource, error) {
	found, err := c.Find(n)
	if err != nil && n.version != "" {
		if r, e := c.Find(NameOf(n.readings()[0].GroupResource(), "")); e == nil {
			return r, nil
		}
	}
	return found, err
}

// FindAs is like [Catalog.Find] for a name of which it is known that it means the resource r, in the version of the name.
func (c *Catalog) FindAs(n Name, r schema.GroupResource) (Resource, error) {
	as := NameOf(r, "")
	for _, reading := range n.readings() {
		if !n.bare && reading.Group == r.Group {
			as = NameOf(r, reading.Version)
		}
	}
	as.text = n.text
	return c.Find(as)
}

// Identify returns the resource that a name means, in any version. If the server does not serve it, served is false and the result
// has the resource and group of the name. A name without a group is then an error, that of [Catalog.Find].
func (c *Catalog) Identify(n Name) (r schema.GroupResource, served bool, err error) {
	if choices, clear := c.Choices(n); clear {
		return choices[0], true, nil
	}
	found, err := c.FindUnversioned(n)
	switch {
	case err == nil:
		return found.GroupResource(), true, nil
	case n.bare:
		return r, false, err
	}
	return schema.GroupResource{Group: n.group, Resource: n.resource}, false, nil
}

// Choices returns the resources that a name may mean on this server. clear reports that it means the first one, whatever else somebody
// installs: one of Kubernetes' own resources, or the plural in a group that cannot be taken for a version.
func (c *Catalog) Choices(n Name) (choices []schema.GroupResource, clear bool) {
	choices = c.Meanings(n)
	one := schema.GroupResource{Group: n.group, Resource: n.resource}
	clear = !n.bare && n.version == "" && slices.Contains(choices, one)
	if own, err := Builtin().FindUnversioned(n); err == nil && (!c.Known(own.Group) || len(c.Meanings(NameOf(own.GroupResource(), ""))) > 0) {
		one, clear = own.GroupResource(), true
	}
	if clear {
		choices = slices.DeleteFunc(choices, func(r schema.GroupResource) bool { return r == one })
		choices = slices.Insert(choices, 0, one)
	}
	return choices, clear
}

// Meanings returns the resources that a name may mean, by plural, singular or short name, in every group that the name may be of. [Catalog.Find]
// returns one of them: which one depends on what else the server serves, now and later.
func (c *Catalog) Meanings(n Name) (all []schema.GroupResource) {
	for _, g := range c.groups {
		if !n.MayBeOf(g.name) {
			continue
		}
		for _, v := range g.versions {
			for i := range v.resources {
				r := &v.resources[i]
				if n.resource == r.Name || n.resource == r.singular || slices.Contains(r.short, n.resource) {
					all = append(all, r.GroupResource())
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// read returns the resource that one reading of a name means; nil if there is none.
func (c *Catalog) read(r schema.GroupVersionResource, bare bool) *apiResource {
	if !bare {
		return c.lookup(c.group(r.Group), r.Resource, r.Version)
	}
	found := c.lookup(c.groups, r.Resource, "")
	if found != nil && found.Group != "" && !c.Known("") {
		return nil // while the core group is unknown, "events" must not mean the resource of another group
	}
	return found
}

func (c *Catalog) group(name string) []apiGroup {
	i := slices.IndexFunc(c.groups, func(g apiGroup) bool { return g.name == name })
	if i < 0 {
		return nil
	}
	return c.groups[i : i+1]
}

// lookup finds a resource in the first group that has it. A full name in any
// group takes precedence over a short name. An empty version means any version.
func (c *Catalog) lookup(groups []apiGroup, resource, version string) *apiResource {
	found, known := exact(groups, resource, version)
	if known {
		return found
	}
	for _, g := range groups {
		for _, v := range g.versions {
			for i := range v.resources {
				if slices.Contains(v.resources[i].short, resource) {
					found, _ = exact(c.group(g.name), v.resources[i].Name, version)
					return found
				}
			}
		}
	}
	return nil
}

// exact finds a resource by plural or singular name. known reports whether any version has a resource of that name.
func exact(groups []apiGroup, resource, version string) (found *apiResource, known bool) {
	for _, g := range groups {
		for _, v := range g.versions {
			for i := range v.resources {
				r := &v.resources[i]
				if resource != r.Name && resource != r.singular {
					continue
				}
				if known = true; version == "" || version == v.name {
					return r, true
				}
			}
		}
	}
	return nil, known
}

func (c *Catalog) notFound(n Name) error {
	readings := n.readings()
	if n.bare && len(c.unknown) > 0 || slices.ContainsFunc(readings, func(r schema.GroupVersionResource) bool { return c.doubtful(r.Group, r.Version) }) {
		var names []string
		for _, gv := range c.unknown {
			names = append(names, gv.String())
		}
		return fmt.Errorf("%w (%s): see whether its APIService is available", ErrUnknownGroup, strings.Join(names, ", "))
	}
	if r := readings[0]; r.Version != "" {
		if versions := c.versionsOf(r.GroupResource()); len(versions) > 0 {
			return fmt.Errorf("%w in version %s: it is served in %s", ErrNoResource, r.Version, strings.Join(versions, ", "))
		}
	}
	if near := c.suggestion(n); near != "" {
		return fmt.Errorf("%w; did you mean %q?", ErrNoResource, near)
	}
	return ErrNoResource
}

func (c *Catalog) versionsOf(r schema.GroupResource) []string {
	var out []string
	for _, g := range c.group(r.Group) {
		for _, v := range g.versions {
			if c.lookup(c.group(g.name), r.Resource, v.name) != nil {
				out = append(out, v.name)
			}
		}
	}
	return out
}

// MayServe reports whether the server serves a resource that a name or pattern matches by its text, or whether it may do so in a group that could
// not be asked.
func (c *Catalog) MayServe(n Name) bool {
	return len(c.match(n, true)) > 0 || len(c.match(n, false)) > 0 ||
		slices.ContainsFunc(c.unknown, func(gv schema.GroupVersion) bool { return n.MayBeOf(gv.Group) })
}

// Match returns the resources that a pattern matches and that can be listed and watched, sorted by name and group. Each comes
// once, in its group's preferred version or the first version that has it, of those that could be asked: see [Catalog.IsCertain].
func (c *Catalog) Match(pattern Name) []Resource { return c.match(pattern, true) }

// Unwatchable returns the resources that [Catalog.Match] leaves out because they cannot be listed
// and watched.
func (c *Catalog) Unwatchable(pattern Name) []Resource { return c.match(pattern, false) }

func (c *Catalog) match(pattern Name, watchable bool) []Resource {
	var out []Resource
	for _, g := range c.groups {
		seen := map[string]bool{}
		for _, v := range g.versions {
			for _, r := range v.resources {
				if !seen[r.Name] && r.watchable() == watchable && pattern.Matches(g.name, r.Name) {
					out = append(out, r.Resource)
				}
				seen[r.Name] = true
			}
		}
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Group, b.Group))
	})
	return out
}
