// Package discovery interprets names and patterns of resources: by their text alone ([Name]), and on
// a cluster ([Catalog]). No other package parses them.
package discovery

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Name is a name of a resource, or a pattern of resources.
//
//	pods                  plural, singular or short name, in the group that the server prefers
//	deployments.apps      in a group, which is written in full; pods.core and "pods." are in the core group
//	deployments.v1.apps   in a version; "pods.v1." is in the core group
//	*.apps                every resource of a group; *.core, or "*.", is the core group
//	*.*                   every resource
type Name struct {
	text     string // as written
	resource string // "*": a pattern
	group    string // "*": every group
	version  string // "": not written
	bare     bool   // the text has no group
	exact    bool   // it has one reading: see NameOf
}

// all stands for every resource, or every group.
const all = "*"

// core is how the core group is written; its name is "".
const core = "core"

var (
	versionForm  = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	resourceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.?$`)
	patternForm  = regexp.MustCompile(`^\*\.(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.?)?$`)
)

// Parse reads a name or a pattern, ignoring case. It never fails: [Name.Check] returns what is wrong
// with a text that cannot be the name of a resource.
func Parse(text string) Name {
	n := Name{text: text}
	var dotted bool
	n.resource, n.group, dotted = strings.Cut(strings.ToLower(text), ".")
	n.bare = !dotted
	if version, group, ok := strings.Cut(n.group, "."); ok && n.resource != all && versionForm.MatchString(version) {
		n.version, n.group = version, group
	}
	n.group = GroupNamed(n.group)
	if text == all {
		n.group, n.bare = all, false
	}
	return n
}

// NameOf returns the name of one resource, which means the same on every cluster. An empty version is the one that the server prefers.
func NameOf(r schema.GroupResource, version string) Name {
	text := r.String()
	if version != "" {
		text = Resource{Group: r.Group, Version: version, Name: r.Resource}.String()
	}
	return Name{text: text, resource: r.Resource, group: GroupNamed(r.Group), version: version, exact: true}
}

// ParseAll reads several names and patterns.
func ParseAll(texts []string) []Name {
	names := make([]Name, len(texts))
	for i, text := range texts {
		names[i] = Parse(text)
	}
	return names
}

// Check returns an error, with what to write instead, if the text cannot be a name or a pattern on any cluster.
func (n Name) Check() error {
	version, group, _ := strings.Cut(n.group, ".")
	switch {
	case strings.Contains(n.text, "/"):
		return fmt.Errorf("%q: name a resource as kubectl does, for example deployments.v1.apps; subresources have no watch", n.text)
	case strings.Contains(n.text, all) && !patternForm.MatchString(n.text):
		return fmt.Errorf("%q is no pattern: write *.* for everything, *.GROUP for an API group, or *.core for the core group", n.text)
	case n.IsPattern() && versionForm.MatchString(version) && isOwnGroup(GroupNamed(group)):
		return fmt.Errorf("%q: a pattern has no version, each resource is read in the one that the server prefers: write *.%s", n.text, cmp.Or(group, core))
	case !n.IsPattern() && !resourceForm.MatchString(n.text):
		return fmt.Errorf("%q cannot be a resource: name it as kubectl does, for example %s", n.text, n.example())
	}
	return nil
}

// example returns what to write in place of a wrong name: lower case and, for one of Kubernetes' own kinds, the plural.
func (n Name) example() string {
	lower := strings.ToLower(n.text)
	if r, err := Builtin().Find(n); err == nil {
		return r.GroupResource().String()
	} else if resourceForm.MatchString(lower) {
		return lower
	}
	return "pods, deployments.apps or deployments.v1.apps"
}

// WithoutVersion returns the name as one that has no version: v2 in codebases.v2.epam.com is a part of the group, unless the rest of it is one of
// Kubernetes' own groups.
func (n Name) WithoutVersion() Name {
	if n.version != "" && !n.exact && !isOwnGroup(n.group) {
		n.group, n.version, n.exact = n.version+"."+n.group, "", true
	}
	return n
}

// isOwnGroup reports whether an API group is one of Kubernetes' own.
func isOwnGroup(name string) bool { return Builtin().group(name) != nil }

// Equal reports whether both names have the same text and the same meaning.
func (n Name) Equal(other Name) bool { return n == other }

// String returns the text as it was written.
func (n Name) String() string { return n.text }

// IsPattern reports whether the name is a pattern, which may mean many resources.
func (n Name) IsPattern() bool { return n.Breadth() != OneResource }

// IsEverything reports whether the name is the pattern for every resource of every group.
func (n Name) IsEverything() bool { return n.Breadth() == AllGroups }

// Breadth says how many resources a name covers. If several names mean a resource, the narrowest one takes precedence.
type Breadth uint8

// The breadths of names, the narrowest first.
const (
	OneResource  Breadth = iota
	OneGroup             // every resource of [Name.Group]
	AllGroups            // every resource
	OtherBreadth         // none of the above: permissions for it are never written
	Breadths             // the number of breadths
)

// Breadth returns the breadth of the name. It compares all fields, so that a new form that Parse reads has
// OtherBreadth until a case for it is added here. So a permission that depends on the breadth never covers more
// than the name.
func (n Name) Breadth() Breadth {
	switch wild := strings.Contains(n.group, all); {
	case n == Name{text: n.text, resource: all, group: all}:
		return AllGroups
	case n == Name{text: n.text, resource: all, group: n.group} && !wild:
		return OneGroup
	case n == Name{text: n.text, resource: n.resource, group: n.group, version: n.version, bare: n.bare, exact: n.exact} && !wild && !strings.Contains(n.resource, all):
		return OneResource
	}
	return OtherBreadth
}

// Resource returns the name without group and version. It may be a singular or a short name. It is "*" for
// a pattern.
func (n Name) Resource() string { return n.resource }

// Group returns the group: "" for the core group, "*" for every group. known is false if the name has no group, so that
// the group depends on the cluster.
func (n Name) Group() (group string, known bool) { return n.group, !n.bare }

// Version returns the version; "" if the name has none.
func (n Name) Version() string { return n.version }

// Unversioned returns the name without its version, in canonical form: two names that mean the same on every cluster have the same
// result.
func (n Name) Unversioned() string {
	switch {
	case n.group != "":
		return n.resource + "." + n.group
	case n.IsPattern():
		return n.resource + "." + core
	}
	return n.resource
}

// Matches reports whether the name means a resource, judged by its text alone: a name without a group matches the
// resources of that name in every group, and the version is ignored. resource is the plural name.
func (n Name) Matches(group, resource string) bool {
	if n.resource != all && n.resource != resource {
		return false
	}
	return n.bare || n.group == all || n.group == group || n.version != "" && !n.exact && n.version+"."+n.group == group
}

// Covers reports whether n means every resource that other means, on any cluster. A name without a group counts as
// one of the core group, unless n is a pattern: then its group is unknown, and only *.* covers it.
func (n Name) Covers(other Name) bool {
	if n.IsPattern() {
		return n.IsEverything() || !other.bare && n.group == other.group
	}
	return n.resource == other.resource && n.group == other.group
}

// Candidates returns the resources that a name, which is no pattern, may mean: one whose group is everything behind the first
// dot ("" without a dot) and, as kubectl reads it, one whose version is the part behind the first dot. The likelier one comes first.
func (n Name) Candidates() []schema.GroupResource {
	var list []schema.GroupResource
	for _, r := range n.readings() {
		list = append(list, r.GroupResource())
	}
	return list
}

// MayBeOf reports whether the name may mean a resource of a group.
func (n Name) MayBeOf(group string) bool {
	return n.bare || n.group == all || slices.ContainsFunc(n.Candidates(), func(r schema.GroupResource) bool { return r.Group == group })
}

// readings returns the ways to read a name. The part behind the first dot may be a version even if it does not look like
// one: versions of CustomResourceDefinitions can be any label. The reading with a version comes first only if it looks like one. So
// nobody takes the entry widgets.stable.example.com away with a version named stable.
func (n Name) readings() []schema.GroupVersionResource {
	if n.exact {
		return []schema.GroupVersionResource{{Group: n.group, Version: n.version, Resource: n.resource}}
	}
	_, rest, _ := strings.Cut(strings.ToLower(n.text), ".")
	plain := schema.GroupVersionResource{Group: GroupNamed(rest), Resource: n.resource}
	version, group, ok := strings.Cut(rest, ".")
	if !ok {
		return []schema.GroupVersionResource{plain}
	}
	versioned := schema.GroupVersionResource{Group: GroupNamed(group), Version: version, Resource: n.resource}
	if n.version == "" {
		return []schema.GroupVersionResource{plain, versioned}
	}
	return []schema.GroupVersionResource{versioned, plain}
}

// GroupNamed returns the name of a group from its written form: "core" stands for the core group, whose name is "".
func GroupNamed(text string) string {
	if text == core {
		return ""
	}
	return text
}
