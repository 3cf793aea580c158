package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// catalogOf makes a catalog of resources in order of preference, written as
// "deployments.v1.apps"; "-" before one makes it cluster-scoped, "~" impossible to
// watch, and "?metrics.k8s.io/v1" is a group version that could not be asked.
func catalogOf(all ...string) *source.Catalog {
	var groups []*metav1.APIGroup
	var lists []*metav1.APIResourceList
	var unknown []schema.GroupVersion
	for _, s := range all {
		if gv, ok := strings.CutPrefix(s, "?"); ok {
			parsed, _ := schema.ParseGroupVersion(gv)
			unknown = append(unknown, parsed)
			continue
		}
		verbs := metav1.Verbs{"list", "watch"}
		s, cluster := strings.CutPrefix(s, "-")
		if rest, ok := strings.CutPrefix(s, "~"); ok {
			s, verbs = rest, metav1.Verbs{"create"}
		}
		gvr, _ := schema.ParseResourceArg(s)
		gv := metav1.GroupVersionForDiscovery{GroupVersion: gvr.GroupVersion().String(), Version: gvr.Version}
		g := slices.IndexFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == gvr.Group })
		if g < 0 {
			g = len(groups)
			groups = append(groups, &metav1.APIGroup{Name: gvr.Group, PreferredVersion: gv})
		}
		if !slices.Contains(groups[g].Versions, gv) {
			groups[g].Versions = append(groups[g].Versions, gv)
			lists = append(lists, &metav1.APIResourceList{GroupVersion: gv.GroupVersion})
		}
		l := slices.IndexFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == gv.GroupVersion })
		kind := strings.TrimSuffix(gvr.Resource, "s")
		lists[l].APIResources = append(lists[l].APIResources, metav1.APIResource{Name: gvr.Resource, Kind: kind, Namespaced: !cluster, Verbs: verbs, ShortNames: []string{gvr.Resource[:2]}})
	}
	return source.NewCatalog(groups, lists, unknown)
}

// ordinary is a cluster with a bit of everything.
func ordinary(more ...string) *source.Catalog {
	return catalogOf(append([]string{
		"pods.v1.", "secrets.v1.", "events.v1.", "-nodes.v1.", "~bindings.v1.",
		"deployments.v1.apps", "deployments.v1beta1.apps", "daemonsets.v1.apps",
		"leases.v1.coordination.k8s.io", "events.v1.events.k8s.io",
	}, more...)...)
}

// labelled are namespaces by the selector that matches them.
func labelled(of map[string][]string) func(string) ([]string, bool) {
	return func(selector string) ([]string, bool) { n, ok := of[selector]; return n, ok }
}

// outline is what a plan says, in words.
func (p *plan) outline(specs []ResourceSpec) []string {
	var out []string
	for _, w := range p.collections {
		line := "watch " + w.Target.Collection.ID()
		if v := w.Target.Resource.Version; v != "v1" {
			line += " in " + v
		}
		if w.Options.Types != nil {
			line += fmt.Sprintf(" types %v", w.Options.Types)
		}
		out = append(out, line)
	}
	for _, name := range slices.Sorted(maps.Keys(p.waiting)) {
		out = append(out, "wait "+name+": "+p.waiting[name].Error())
	}
	for _, name := range slices.Sorted(maps.Keys(p.unknown)) {
		out = append(out, "unknown "+name+": "+p.unknown[name].Error())
	}
	for _, s := range p.skipped {
		out = append(out, "skip "+s)
	}
	for _, s := range p.unmatched {
		out = append(out, "unmatched "+s)
	}
	if err := p.missing(specs); err != nil {
		out = append(out, "required "+err.Error())
	}
	return out
}

const (
	skipSecrets  = "skip secrets: their values are secret: name them to have them"
	skipLeases   = "skip leases.coordination.k8s.io: they change every few seconds: name them to have them"
	skipEvents   = "skip events.events.k8s.io: they are the same objects as events: name them to have them"
	skipBindings = "skip bindings: cannot be listed and watched"
	coreEvents   = "watch events types [added modified]"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name       string
		specs      []ResourceSpec
		exclude    []string
		catalog    *source.Catalog // nil: the ordinary one
		namespaces map[string][]string
		want       []string
	}{
		{
			name: "names", specs: []ResourceSpec{{Name: "po"}, {Name: "deployments.v1beta1.apps"}, {Name: "nodes"}},
			want: []string{"watch deployments.apps in v1beta1", "watch nodes", "watch pods"},
		},
		{
			name: "not there", specs: []ResourceSpec{{Name: "unicorns"}, {Name: "deployments.v2.apps"}, {Name: "bindings"}, {Name: "pods"}},
			want: []string{
				"watch pods",
				`wait bindings: resource "bindings": the resource cannot be listed and watched: its verbs are create`,
				`wait deployments.v2.apps: resource "deployments.v2.apps": the server has no such resource in version v2: it is served in v1, v1beta1`,
				`wait unicorns: resource "unicorns": the server has no such resource`,
			},
		},
		{
			name: "not there, and required", specs: []ResourceSpec{{Name: "pods", Required: true}, {Name: "unicorns", Required: true}},
			want: []string{
				"watch pods", `wait unicorns: resource "unicorns": the server has no such resource`,
				`required resource "unicorns": the server has no such resource, and it is required`,
			},
		},
		{
			name: "not to be known, and required", catalog: ordinary("?metrics.k8s.io/v1"), specs: []ResourceSpec{{Name: "nodes.metrics.k8s.io", Required: true}},
			want: []string{`wait nodes.metrics.k8s.io: resource "nodes.metrics.k8s.io": an API group that may have it could not be asked (metrics.k8s.io/v1): see whether its APIService is available`},
		},

		{
			name: "everything", specs: []ResourceSpec{{Name: "*.*"}},
			want: []string{"watch daemonsets.apps", "watch deployments.apps", coreEvents, "watch nodes", "watch pods", skipBindings, skipEvents, skipLeases, skipSecrets},
		},
		{name: "a group", specs: []ResourceSpec{{Name: "*.apps"}}, want: []string{"watch daemonsets.apps", "watch deployments.apps"}},
		{name: "the core group", specs: []ResourceSpec{{Name: "*.core"}}, want: []string{coreEvents, "watch nodes", "watch pods", skipBindings, skipSecrets}},
		{
			name: "only what is left out", specs: []ResourceSpec{{Name: "*.coordination.k8s.io"}},
			want: []string{`wait *.coordination.k8s.io: pattern "*.coordination.k8s.io": the server has no such resource that it may take in: all that it matches is left out`, skipLeases, "unmatched *.coordination.k8s.io"},
		},
		{
			name: "a pattern that matches nothing", specs: []ResourceSpec{{Name: "*.example.com"}, {Name: "*.example.org", Required: true}},
			want: []string{
				`wait *.example.com: pattern "*.example.com": the server has no such resource that can be listed and watched`,
				`wait *.example.org: pattern "*.example.org": the server has no such resource that can be listed and watched`,
				"unmatched *.example.com", "unmatched *.example.org",
				`required pattern "*.example.org": the server has no such resource that can be listed and watched, and it is required`,
			},
		},
		{
			name: "a pattern of a group that is not known", catalog: ordinary("?metrics.k8s.io/v1"), specs: []ResourceSpec{{Name: "*.metrics.k8s.io", Required: true}},
			want: []string{
				`wait *.metrics.k8s.io: pattern "*.metrics.k8s.io": an API group that may have it could not be asked`,
				`unknown API group metrics.k8s.io/v1: pattern "*.metrics.k8s.io": an API group that may have it could not be asked: the server behind its APIService does not answer`,
			},
		},

		{
			name: "a named one wins, the narrower pattern too", specs: []ResourceSpec{
				{Name: "*.*", LabelSelector: "wide=1"}, {Name: "*.apps", LabelSelector: "narrow=1"}, {Name: "da.v1.apps"}, {Name: "secrets", Namespaces: []string{"pay"}}, {Name: "events.events.k8s.io"},
			},
			want: []string{
				"watch daemonsets.apps", "watch deployments.apps?labels=narrow=1", "watch events.events.k8s.io types [added modified]",
				"watch events?labels=wide=1 types [added modified]", "watch nodes?labels=wide=1", "watch pods?labels=wide=1",
				"watch secrets?namespace=pay", skipBindings, skipLeases,
			},
		},
		{
			name: "a named version that is not served keeps the pattern away", specs: []ResourceSpec{{Name: "deployments.v2.apps"}, {Name: "*.apps"}},
			want: []string{"watch daemonsets.apps", `wait deployments.v2.apps: resource "deployments.v2.apps": the server has no such resource in version v2: it is served in v1, v1beta1`},
		},
		{
			name: "excluded", specs: []ResourceSpec{{Name: "*.*"}}, exclude: []string{"po", "*.apps", "unicorns", "nodes.v1."},
			want: []string{
				coreEvents, skipBindings, `skip daemonsets.apps: excluded by "*.apps"`, `skip deployments.apps: excluded by "*.apps"`,
				skipEvents, skipLeases, `skip nodes: excluded by "nodes.v1."`, `skip pods: excluded by "po"`, skipSecrets,
			},
		},
		{name: "a named one wins over an excluding pattern", specs: []ResourceSpec{{Name: "deployments.apps"}}, exclude: []string{"*.apps", "*.*"}, want: []string{"watch deployments.apps"}},
		{name: "an excluded group that is not known", catalog: catalogOf("pods.v1.", "?metrics.k8s.io/v1"), specs: []ResourceSpec{{Name: "*.*"}}, exclude: []string{"*.metrics.k8s.io"}, want: []string{"watch pods"}},

		{
			name: "namespaces", specs: []ResourceSpec{{Name: "pods", Namespaces: []string{"b", "a", "c", "a"}, ExcludeNamespaces: []string{"c"}}},
			want: []string{"watch pods?namespace=a", "watch pods?namespace=b"},
		},
		{
			name: "excluded namespaces", specs: []ResourceSpec{{Name: "pods", ExcludeNamespaces: []string{"z", "a"}, FieldSelector: "spec.nodeName==n,metadata.name!=x"}},
			want: []string{"watch pods?fields=metadata.name!=x,metadata.namespace!=a,metadata.namespace!=z,spec.nodeName=n"},
		},
		{
			name: "one order of terms", specs: []ResourceSpec{{Name: "pods", FieldSelector: "b=2, a=1,b=2", LabelSelector: "y in (2,1), x"}},
			want: []string{`watch pods?labels=x,y in (1,2)&fields=a=1,b=2`},
		},
		{
			name: "a namespace selector", specs: []ResourceSpec{{Name: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"c"}}, {Name: "secrets", NamespaceSelector: "none"}, {Name: "da.apps", NamespaceSelector: "later"}},
			namespaces: map[string][]string{"env=prod": {"b", "c", "a"}, "none": nil},
			want: []string{
				"watch pods?namespace=a", "watch pods?namespace=b",
				`wait da.apps: resource "da.apps" in namespaces with later: the namespaces that match are not known yet`,
			},
		},
		{
			name: "patterns within namespaces", specs: []ResourceSpec{{Name: "*.core", Namespaces: []string{"a"}}, {Name: "*.apps", NamespaceSelector: "env=prod"}},
			namespaces: map[string][]string{"env=prod": {"b"}},
			want: []string{
				"watch daemonsets.apps?namespace=b", "watch deployments.apps?namespace=b", "watch events?namespace=a types [added modified]", "watch pods?namespace=a",
				skipBindings, `skip nodes: cluster-scoped, and "*.core" is confined to namespaces`, skipSecrets,
			},
		},
		{
			name: "excluded namespaces leave cluster-scoped ones alone", catalog: catalogOf("pods.v1.", "-nodes.v1."), specs: []ResourceSpec{{Name: "*.*", ExcludeNamespaces: []string{"a"}}},
			want: []string{"watch nodes", "watch pods?fields=metadata.namespace!=a"},
		},
		{
			name: "what one pattern skips another takes in", catalog: catalogOf("pods.v1.", "-nodes.v1."), specs: []ResourceSpec{{Name: "*.core", Namespaces: []string{"a"}}, {Name: "*.*"}},
			want: []string{"watch nodes", "watch pods?namespace=a"},
		},
		{name: "metadata only", specs: []ResourceSpec{{Name: "pods", MetadataOnly: true, Namespaces: []string{"a"}}}, want: []string{"watch pods?body=metadata&namespace=a"}},
		{name: "types of events as configured", specs: []ResourceSpec{{Name: "events", CollectionOptions: CollectionOptions{Types: []event.Type{event.Deleted}}}}, want: []string{"watch events types [deleted]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.catalog == nil {
				c.catalog = ordinary()
			}
			p := newPlan(c.specs, c.exclude, c.catalog, labelled(c.namespaces))
			if p.err != nil {
				t.Fatal(p.err)
			}
			if diff := cmp.Diff(c.want, p.outline(c.specs)); diff != "" {
				t.Error(diff)
			}
			slices.Reverse(c.specs)
			slices.Reverse(c.exclude)
			again := newPlan(c.specs, c.exclude, c.catalog, labelled(c.namespaces))
			slices.Sort(p.unmatched)
			slices.Sort(again.unmatched)
			if diff := cmp.Diff(p.outline(c.specs), again.outline(c.specs)); diff != "" {
				t.Errorf("in another order of the configuration: %s", diff)
			}
			var environment *EnvironmentError
			if err := p.missing(c.specs); err != nil && !errors.As(err, &environment) {
				t.Errorf("what is required and not there is a %T", err)
			}
		})
	}
}

// Mistakes are told in words that name what contradicts what, and what to do.
func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		specs   []ResourceSpec
		exclude []string
		want    []string // each in the error
	}{
		{"cluster-scoped in namespaces", []ResourceSpec{{Name: "nodes", Namespaces: []string{"a"}}}, nil, []string{`resource "nodes" is cluster-scoped: remove its namespaces`}},
		{"cluster-scoped by namespace selector", []ResourceSpec{{Name: "nodes", NamespaceSelector: "a"}}, nil, []string{`remove its namespaceSelector`}},
		{"cluster-scoped without namespaces", []ResourceSpec{{Name: "nodes", ExcludeNamespaces: []string{"a"}}}, nil, []string{`remove its excludeNamespaces`}},
		{"named and excluded", []ResourceSpec{{Name: "pods"}}, []string{"po"}, []string{`resource "pods" is both asked for and excluded (as "po"): remove one of the two`}},
		{
			"selectors that do not parse",
			[]ResourceSpec{{Name: "pods", LabelSelector: "a in b"}, {Name: "secrets", FieldSelector: "x"}, {Name: "nodes", NamespaceSelector: "!"}},
			nil,
			[]string{`resource "pods": labelSelector "a in b"`, `resource "secrets": fieldSelector "x"`, `resource "nodes": namespaceSelector "!"`},
		},
		{"namespaces twice", []ResourceSpec{{Name: "pods", Namespaces: []string{"a"}, NamespaceSelector: "b"}}, nil, []string{`resource "pods" has namespaces and a namespaceSelector`}},
		{"no namespace left", []ResourceSpec{{Name: "pods", Namespaces: []string{"a"}, ExcludeNamespaces: []string{"a"}}}, nil, []string{`resource "pods": excludeNamespaces leaves none of its namespaces`}},
		{
			"twice by two names",
			[]ResourceSpec{{Name: "deployments.apps", Namespaces: []string{"a", "b"}}, {Name: "deployments.v1beta1.apps", LabelSelector: "x=1"}},
			nil,
			[]string{`resource "deployments.apps" is asked for twice, by "deployments.apps" (in a, b) and "deployments.v1beta1.apps" (labels x=1): one object could be in both`},
		},
		{
			"twice by one pattern",
			[]ResourceSpec{{Name: "*.apps", Namespaces: []string{"a"}}, {Name: "*.apps", Namespaces: []string{"a"}}},
			nil,
			[]string{`resource "daemonsets.apps" is asked for twice`, `resource "deployments.apps" is asked for twice`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlan(c.specs, c.exclude, ordinary(), labelled(nil))
			var config *ConfigError
			if !errors.As(p.err, &config) {
				t.Fatalf("got %v", p.err)
			}
			for _, want := range c.want {
				if !strings.Contains(p.err.Error(), want) {
					t.Errorf("got %v, want %q", p.err, want)
				}
			}
		})
	}
}

// Two claims on one resource are taken only if no object can ever be in both.
func TestProvablyDisjoint(t *testing.T) {
	ns := func(names ...string) ResourceSpec { return ResourceSpec{Namespaces: names} }
	not := func(names ...string) ResourceSpec { return ResourceSpec{ExcludeNamespaces: names} }
	of := func(selector string) ResourceSpec { return ResourceSpec{NamespaceSelector: selector} }
	labels := func(s string) ResourceSpec { return ResourceSpec{LabelSelector: s} }
	fields := func(s string) ResourceSpec { return ResourceSpec{FieldSelector: s} }
	for _, c := range []struct {
		a, b ResourceSpec
		want bool
	}{
		{ns(), ns(), false},
		{ns("a"), ns(), false},
		{ns("a", "b"), ns("c"), true},
		{ns("a", "b"), ns("b", "c"), false},
		{ns("a", "b"), not("a", "b", "c"), true},
		{ns("a", "b"), not("a"), false},
		{ResourceSpec{Namespaces: []string{"a", "b"}, ExcludeNamespaces: []string{"b"}}, ns("b"), true},
		{not("a"), not("b"), false},
		{not("a"), fields("metadata.namespace=a"), true},
		{of("env=prod"), of("env=dev"), true},
		{of("env=prod"), of("tier=1"), false}, // a namespace can get both labels
		{of("env=prod"), ns("a"), false},      // and this one, too
		{ResourceSpec{NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"a"}}, ns("a"), true},

		{labels("a=1"), labels("a=2"), true},
		{labels("a==1"), labels("a=1"), false},
		{labels("a=1"), labels("b=2"), false},
		{labels("a in (1,2)"), labels("a in (3,4)"), true},
		{labels("a in (1,2)"), labels("a in (2,3)"), false},
		{labels("a=1"), labels("a!=1"), true},
		{labels("a=1"), labels("a!=2"), false},
		{labels("a in (1,2)"), labels("a notin (1,2,3)"), true},
		{labels("a in (1,2)"), labels("a notin (1)"), false},
		{labels("a"), labels("!a"), true},
		{labels("a=1"), labels("!a"), true},
		{labels("a>1"), labels("!a"), true},
		{labels("a!=1"), labels("!a"), false}, // an object without a matches both
		{labels("a"), labels("a notin (1)"), false},
		{labels("a notin (1)"), labels("a notin (2)"), false},
		{labels("x=1,a=1"), labels("y=1,a=2"), true},

		{fields("spec.nodeName=a"), fields("spec.nodeName=b"), true},
		{fields("spec.nodeName=a"), fields("spec.nodeName==a"), false},
		{fields("spec.nodeName=a"), fields("spec.nodeName!=a"), true},
		{fields("spec.nodeName=a"), fields("spec.nodeName!=b"), false},
		{fields("spec.nodeName!=a"), fields("spec.nodeName!=b"), false},
		{fields("metadata.name=a"), fields("spec.nodeName=b"), false},
		{fields("status.phase=Running"), labels("a=1"), false},
	} {
		c.a.Name, c.b.Name = "pods", "pods"
		a, err := parseClaim(c.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := parseClaim(c.b)
		if err != nil {
			t.Fatal(err)
		}
		if provablyDisjoint(&a, &b) != c.want || provablyDisjoint(&b, &a) != c.want {
			t.Errorf("%s and %s: want %t", a.String(), b.String(), c.want)
		}
	}
}
