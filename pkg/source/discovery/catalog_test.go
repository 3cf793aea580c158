package discovery

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type groupVersion struct {
	group, version string
	resources      []metav1.APIResource
}

var readable = metav1.Verbs{"create", "get", "list", "watch"}

// cluster returns the group versions of an ordinary cluster, in order of preference.
func cluster() []groupVersion {
	return []groupVersion{
		{"", "v1", []metav1.APIResource{
			{Name: "bindings", SingularName: "binding", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			{Name: "events", SingularName: "event", Kind: "Event", Namespaced: true, Verbs: readable, ShortNames: []string{"ev"}},
			{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: readable, ShortNames: []string{"ns"}},
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: readable, ShortNames: []string{"po"}},
		}},
		{"events.k8s.io", "v1", []metav1.APIResource{{Name: "events", SingularName: "event", Kind: "Event", Namespaced: true, Verbs: readable, ShortNames: []string{"ev"}}}},
		{"apps", "v1", []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, Verbs: readable, ShortNames: []string{"deploy"}}}},
		{"apps", "v1beta1", []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "OldDeployment", Namespaced: true, Verbs: readable}}},
		{"v1.example.com", "v2", []metav1.APIResource{{Name: "widgets", SingularName: "widget", Kind: "Widget", Verbs: readable}}},
		{"metrics.k8s.io", "v1beta1", []metav1.APIResource{{Name: "pods", SingularName: "pod", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}}},
	}
}

// handMade makes a catalog of group versions in order of
// preference.
func handMade(unknown []schema.GroupVersion, of ...groupVersion) *Catalog {
	var groups []*metav1.APIGroup
	var lists []*metav1.APIResourceList
	for _, g := range of {
		v := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: g.group, Version: g.version}.String(), Version: g.version}
		lists = append(lists, &metav1.APIResourceList{GroupVersion: v.GroupVersion, APIResources: g.resources})
		if n := len(groups); n > 0 && groups[n-1].Name == g.group {
			groups[n-1].Versions = append(groups[n-1].Versions, v)
			continue
		}
		groups = append(groups, &metav1.APIGroup{Name: g.group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return NewCatalog(groups, lists, unknown)
}

func TestResourceNames(t *testing.T) {
	for _, c := range []struct {
		r                  Resource
		apiVersion, string string
	}{
		{Resource{Version: "v1", Name: "pods"}, "v1", "pods.v1"},
		{Resource{Group: "apps", Version: "v1", Name: "deployments"}, "apps/v1", "deployments.v1.apps"},
	} {
		if c.r.APIVersion() != c.apiVersion || c.r.String() != c.string {
			t.Errorf("%+v: got %s, %s", c.r, c.r.APIVersion(), c.r)
		}
	}
}

// The error for a version that is not served names the versions that are.
func TestFindSaysWhichVersionsAreServed(t *testing.T) {
	_, err := handMade(nil, cluster()...).Find(Parse("deploy.v2.apps"))
	if !errors.Is(err, ErrNoResource) || !strings.Contains(err.Error(), "v2") || !strings.Contains(err.Error(), "v1, v1beta1") {
		t.Errorf("got %v", err)
	}
}

// Find ends even if short names are each other's full names.
func TestFindShortNamesInACircle(t *testing.T) {
	c := handMade(nil, groupVersion{"a.io", "v1", []metav1.APIResource{
		{Name: "as", Kind: "A", ShortNames: []string{"bs"}, Verbs: readable},
		{Name: "bs", Kind: "B", ShortNames: []string{"as", "x"}, Verbs: readable},
	}})
	if got, err := c.Find(Parse("as.v2.a.io")); !errors.Is(err, ErrNoResource) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := c.Find(Parse("x.v1.a.io")); err != nil || got.Kind != "B" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMatch(t *testing.T) {
	crd := func(version string, names ...string) groupVersion {
		g := groupVersion{"x.io", version, nil}
		for _, n := range names {
			g.resources = append(g.resources, metav1.APIResource{Name: n, Kind: n, Verbs: readable})
		}
		return g
	}
	c := handMade(nil, append(cluster(), crd("v2", "zebras", "apes", "apes/status"), crd("v1", "apes", "yaks"))...)
	for pattern, want := range map[string]string{
		"*.*": "apes.v2.x.io deployments.v1.apps events.v1 events.v1.events.k8s.io namespaces.v1 pods.v1 " +
			"widgets.v2.v1.example.com yaks.v1.x.io zebras.v2.x.io",
		"*.x.io":           "apes.v2.x.io yaks.v1.x.io zebras.v2.x.io",
		"*.X.io":           "apes.v2.x.io yaks.v1.x.io zebras.v2.x.io",
		"*.core":           "events.v1 namespaces.v1 pods.v1",
		"*.":               "events.v1 namespaces.v1 pods.v1",
		"*.io":             "",
		"*.v1.apps":        "",
		"*.metrics.k8s.io": "",
	} {
		if got := namesOf(c.Match(Parse(pattern))); got != want || !Parse(pattern).IsPattern() {
			t.Errorf("%s: got %q, want %q", pattern, got, want)
		}
	}
	if got := namesOf(c.Unwatchable(Parse("*.*"))); got != "bindings.v1 pods.v1beta1.metrics.k8s.io" {
		t.Errorf("not watchable: got %q", got)
	}
	if Parse("pods").IsPattern() || Parse("pods.apps").IsPattern() {
		t.Error("a name passes for a pattern")
	}
}

func namesOf(list []Resource) string {
	var out []string
	for _, r := range list {
		out = append(out, r.String())
	}
	return strings.Join(out, " ")
}

// With a missed difference, a new CRD would never be watched. With a false difference, a
// pipeline would plan again and again.
func TestCatalogEqual(t *testing.T) {
	change := func(f func(*groupVersion)) []groupVersion {
		all := cluster()
		f(&all[2])
		return all
	}
	same := cluster()
	slices.Reverse(same[0].resources)
	old := handMade(nil, cluster()...)
	if !old.Equal(handMade(nil, same...)) {
		t.Error("the order of a version's resources makes a difference")
	}
	for what, other := range map[string]*Catalog{
		"a group":   handMade(nil, same[:len(same)-1]...),
		"a version": handMade(nil, slices.Delete(cluster(), 3, 4)...),
		"the preferred version": handMade(nil, func() []groupVersion {
			g := cluster()
			g[2], g[3] = g[3], g[2]
			return g
		}()...),
		"a kind":  handMade(nil, change(func(g *groupVersion) { g.resources[0].Kind = "Other" })...),
		"a scope": handMade(nil, change(func(g *groupVersion) { g.resources[0].Namespaced = false })...),
		"verbs":   handMade(nil, change(func(g *groupVersion) { g.resources[0].Verbs = metav1.Verbs{"get"} })...),
		"what is unknown": handMade([]schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1beta1"}},
			cluster()...),
	} {
		if old.Equal(other) {
			t.Errorf("%s makes no difference", what)
		}
	}
}

// Which version a group prefers is known from the group, and without that from the names of the versions.
func TestIsCertain(t *testing.T) {
	widgets := []metav1.APIResource{{Name: "widgets", Kind: "Widget", Verbs: readable}}
	for _, c := range []struct {
		versions, unknown string // of the group; the first one is the preferred one
		certain           bool
	}{
		{"v1beta1", "v1", false},
		{"v1", "v1beta1", true},
		{"v1 v1beta1", "v1", false}, // each version was asked for
		{"v1beta1 v1", "v1", true},
		{"v2 v1 v1beta1", "v1", true},
		{"v2 v1 v1beta1", "v1 v2", false},
	} {
		g := &metav1.APIGroup{Name: "x.io"}
		var lists []*metav1.APIResourceList
		var unknown []schema.GroupVersion
		for _, v := range strings.Fields(c.unknown) {
			unknown = append(unknown, schema.GroupVersion{Group: "x.io", Version: v})
		}
		for _, v := range strings.Fields(c.versions) {
			gv := schema.GroupVersion{Group: "x.io", Version: v}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
			if !slices.Contains(unknown, gv) {
				lists = append(lists, &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: widgets})
			}
		}
		g.PreferredVersion = g.Versions[0]
		catalog := NewCatalog([]*metav1.APIGroup{g}, lists, unknown)
		for _, text := range []string{"widgets", "widgets.x.io"} {
			r, err := catalog.Find(Parse(text))
			if err != nil || catalog.IsCertain(Parse(text), r) != c.certain {
				t.Errorf("%s with %s, without %s: certain %t, %v", text, c.versions, c.unknown, !c.certain, err)
			}
		}
		for _, r := range catalog.Match(Parse("*.x.io")) {
			if catalog.IsCertain(Parse("*.x.io"), r) != c.certain {
				t.Errorf("*.x.io with %s, without %s: certain %t", c.versions, c.unknown, !c.certain)
			}
			if n := Parse("widgets." + r.Version + ".x.io"); !catalog.IsCertain(n, r) {
				t.Errorf("%s is not certain", n)
			}
		}
	}
}
