package plan

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// catalogOf makes a catalog of resources in order of preference, each written as "deployments.v1.apps". A "-" before
// it makes the resource cluster-scoped, and "~" makes it unwatchable. "?metrics.k8s.io/v1" is a group version whose
// discovery failed.
func catalogOf(all ...string) *discovery.Catalog {
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
	return discovery.NewCatalog(groups, lists, unknown)
}

// ordinary returns the catalog of a cluster with resources of every sort.
func ordinary(more ...string) *discovery.Catalog {
	return catalogOf(append([]string{
		"pods.v1.", "secrets.v1.", "events.v1.", "-nodes.v1.", "~bindings.v1.",
		"deployments.v1.apps", "deployments.v1beta1.apps", "daemonsets.v1.apps",
		"leases.v1.coordination.k8s.io", "events.v1.events.k8s.io",
	}, more...)...)
}

// labelled returns namespaces by the selector that matches them.
func labelled(of map[string][]string) func(string) ([]string, bool) {
	return func(selector string) ([]string, bool) { n, ok := of[selector]; return n, ok }
}

// outline returns a plan as text, line by line.
func (p *Plan) outline() []string {
	var out []string
	for i := range p.Collections {
		c := &p.Collections[i]
		line := "watch " + c.ID()
		if c.Selection != "" {
			line += " " + c.Selection
		}
		if v := c.Target.Resource.Version; v != "v1" {
			line += " in " + v
		}
		if c.Target.Collection.MetadataOnly {
			line += " metadata"
		}
		out = append(out, line)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Waiting)) {
		out = append(out, "wait "+name+": "+p.Waiting[name].Error())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Unknown)) {
		out = append(out, "unknown "+name+": "+p.Unknown[name].Error())
	}
	for _, s := range p.Skipped {
		out = append(out, "skip "+s)
	}
	for _, s := range p.Unmatched {
		out = append(out, "unmatched "+s)
	}
	for _, s := range p.Warnings {
		out = append(out, "warn "+s)
	}
	if err := p.Missing(); err != nil {
		out = append(out, "required "+err.Error())
	}
	return out
}

const (
	skipSecrets  = "skip secrets: their values are secret: name them to have them"
	skipLeases   = "skip leases.coordination.k8s.io: they change every few seconds: name them to have them"
	skipEvents   = "skip events.events.k8s.io: they are the same objects as events: name them to have them"
	skipBindings = "skip bindings: cannot be listed and watched"
)

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name       string
		entries    []Entry
		exclude    []string
		catalog    *discovery.Catalog // nil: the ordinary catalog
		namespaces map[string][]string
		want       []string
	}{
		{
			name: "names", entries: []Entry{{Resource: "po"}, {Resource: "deployments.v1beta1.apps"}, {Resource: "nodes"}},
			want: []string{"watch deployments.apps in v1beta1", "watch nodes", "watch pods"},
		},
		{
			name: "not there", entries: []Entry{{Resource: "unicorns"}, {Resource: "deployments.v2.apps"}, {Resource: "bindings"}, {Resource: "pods"}},
			want: []string{
				"watch pods",
				`wait bindings: resource "bindings": the resource cannot be listed and watched: its verbs are create`,
				`wait deployments.v2.apps: resource "deployments.v2.apps": the server has no such resource in version v2: it is served in v1, v1beta1`,
				`wait unicorns: resource "unicorns": the server has no such resource`,
			},
		},
		{
			name: "not there, and required", entries: []Entry{{Resource: "pods", Required: true}, {Resource: "unicorns", Required: true}},
			want: []string{
				"watch pods", `wait unicorns: resource "unicorns": the server has no such resource`,
				`required resource "unicorns": the server has no such resource, and it is required`,
			},
		},
		{
			name: "not to be known, and required", catalog: ordinary("?metrics.k8s.io/v1"), entries: []Entry{{Resource: "nodes.metrics.k8s.io", Required: true}},
			want: []string{`wait nodes.metrics.k8s.io: resource "nodes.metrics.k8s.io": an API group that may have it could not be asked (metrics.k8s.io/v1): see whether its APIService is available`},
		},

		{
			name: "everything", entries: []Entry{{Resource: "*.*"}},
			want: []string{"watch daemonsets.apps", "watch deployments.apps", "watch events", "watch nodes", "watch pods", skipBindings, skipEvents, skipLeases, skipSecrets},
		},
		{name: "a group", entries: []Entry{{Resource: "*.apps"}}, want: []string{"watch daemonsets.apps", "watch deployments.apps"}},
		{name: "the core group", entries: []Entry{{Resource: "*.core"}}, want: []string{"watch events", "watch nodes", "watch pods", skipBindings, skipSecrets}},
		{
			name: "only what is left out", entries: []Entry{{Resource: "*.coordination.k8s.io"}},
			want: []string{`wait *.coordination.k8s.io: pattern "*.coordination.k8s.io": the server has no such resource that it may take in: all that it matches is left out`, skipLeases, "unmatched *.coordination.k8s.io"},
		},
		{
			name: "a pattern that matches nothing", entries: []Entry{{Resource: "*.example.com"}, {Resource: "*.example.org", Required: true}},
			want: []string{
				`wait *.example.com: pattern "*.example.com": the server has no such resource that can be listed and watched`,
				`wait *.example.org: pattern "*.example.org": the server has no such resource that can be listed and watched`,
				"unmatched *.example.com", "unmatched *.example.org",
				`required pattern "*.example.org": the server has no such resource that can be listed and watched, and it is required`,
			},
		},
		{
			name: "a pattern of a group that is not known", catalog: ordinary("?metrics.k8s.io/v1"), entries: []Entry{{Resource: "*.metrics.k8s.io", Required: true}},
			want: []string{
				`wait *.metrics.k8s.io: pattern "*.metrics.k8s.io": an API group that may have it could not be asked`,
				`unknown API group metrics.k8s.io/v1: pattern "*.metrics.k8s.io": an API group that may have it could not be asked: the server behind its APIService does not answer`,
			},
		},

		{
			name: "a named one wins, the narrower pattern too", entries: []Entry{
				{Resource: "*.*", LabelSelector: "wide=1"}, {Resource: "*.apps", LabelSelector: "narrow=1"}, {Resource: "da.v1.apps"}, {Resource: "secrets", Namespaces: []string{"pay"}}, {Resource: "events.events.k8s.io"},
			},
			want: []string{
				"watch daemonsets.apps", "watch deployments.apps labels=narrow=1", "watch events labels=wide=1",
				"watch events.events.k8s.io", "watch nodes labels=wide=1", "watch pods labels=wide=1",
				"watch secrets@pay", skipBindings, skipLeases,
				`warn resource "events.events.k8s.io": these are the same objects as events, which another entry has: each Event is published twice`,
			},
		},
		{
			name: "a named version that is not served keeps the pattern away", entries: []Entry{{Resource: "deployments.v2.apps"}, {Resource: "*.apps"}},
			want: []string{"watch daemonsets.apps", `wait deployments.v2.apps: resource "deployments.v2.apps": the server has no such resource in version v2: it is served in v1, v1beta1`},
		},
		{
			name: "excluded", entries: []Entry{{Resource: "*.*"}}, exclude: []string{"po", "*.apps", "unicorns", "nodes.v1."},
			want: []string{
				"watch events", skipBindings, `skip daemonsets.apps: excluded by "*.apps"`, `skip deployments.apps: excluded by "*.apps"`,
				skipEvents, skipLeases, `skip nodes: excluded by "nodes.v1."`, `skip pods: excluded by "po"`, skipSecrets,
				`warn exclude: "unicorns" is the name of no resource that the server serves: it excludes nothing`,
			},
		},
		{name: "a named one wins over an excluding pattern", entries: []Entry{{Resource: "deployments.apps"}}, exclude: []string{"*.apps", "*.*"}, want: []string{"watch deployments.apps"}},
		{name: "an excluded group that is not known", catalog: catalogOf("pods.v1.", "?metrics.k8s.io/v1"), entries: []Entry{{Resource: "*.*"}}, exclude: []string{"*.metrics.k8s.io"}, want: []string{"watch pods"}},

		{
			name: "namespaces", entries: []Entry{{Resource: "pods", Namespaces: []string{"b", "a", "c", "a"}, ExcludeNamespaces: []string{"c"}}},
			want: []string{"watch pods@a", "watch pods@b"},
		},
		{
			name: "excluded namespaces", entries: []Entry{{Resource: "pods", ExcludeNamespaces: []string{"z", "a"}, FieldSelector: "spec.nodeName==n,metadata.name!=x"}},
			want: []string{"watch pods fields=metadata.name!=x,metadata.namespace!=a,metadata.namespace!=z,spec.nodeName=n"},
		},
		{
			name: "one order of terms", entries: []Entry{{Resource: "pods", FieldSelector: "b=2, a=1,b=2", LabelSelector: "y in (2,1), x"}},
			want: []string{`watch pods labels=x,y in (1,2)&fields=a=1,b=2`},
		},
		{
			name: "a namespace selector", entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"c"}}, {Resource: "secrets", NamespaceSelector: "none"}, {Resource: "da.apps", NamespaceSelector: "later"}},
			namespaces: map[string][]string{"env=prod": {"b", "c", "a"}, "none": nil},
			want: []string{
				"watch pods@a", "watch pods@b",
				`wait da.apps: resource "da.apps" in namespaces with later: the namespaces that match are not known yet`,
			},
		},
		{
			name: "patterns within namespaces", entries: []Entry{{Resource: "*.core", Namespaces: []string{"a"}}, {Resource: "*.apps", NamespaceSelector: "env=prod"}},
			namespaces: map[string][]string{"env=prod": {"b"}},
			want: []string{
				"watch daemonsets.apps@b", "watch deployments.apps@b", "watch events@a", "watch pods@a",
				skipBindings, `skip nodes: cluster-scoped, and "*.core" is confined to namespaces`, skipSecrets,
			},
		},
		{
			name: "excluded namespaces leave cluster-scoped ones alone", catalog: catalogOf("pods.v1.", "-nodes.v1."), entries: []Entry{{Resource: "*.*", ExcludeNamespaces: []string{"a"}}},
			want: []string{"watch nodes", "watch pods fields=metadata.namespace!=a"},
		},
		{
			name: "what one pattern skips another takes in", catalog: catalogOf("pods.v1.", "-nodes.v1."), entries: []Entry{{Resource: "*.core", Namespaces: []string{"a"}}, {Resource: "*.*"}},
			want: []string{"watch nodes", "watch pods@a"},
		},
		{
			name: "one text of equal selectors", entries: []Entry{{Resource: "pods", LabelSelector: "b==1,a in (1),c notin (2),c!=2,b=1"}, {Resource: "pods", Name: "x", ExcludeNamespaces: []string{"a"}}, {Resource: "pods", Name: "y", FieldSelector: "metadata.namespace!=a"}},
			want: []string{
				"watch pods labels=a=1,b=1,c!=2", "watch pods:x fields=metadata.namespace!=a", "watch pods:y fields=metadata.namespace!=a",
				`warn resource "pods:x": it may select the same pods as "pods" (labels b==1,a in (1),c notin (2),c!=2,b=1); each of the two publishes them`,
				`warn resource "pods:y": it may select the same pods as "pods" (labels b==1,a in (1),c notin (2),c!=2,b=1); each of the two publishes them`,
			},
		},
		{
			name: "several entries of one resource/discovery", entries: []Entry{
				{Resource: "deployments.apps", Namespaces: []string{"shop"}}, {Resource: "deployments.v1beta1.apps", Name: "canary", ExcludeNamespaces: []string{"shop"}}, {Resource: "de.apps", Name: "b", NamespaceSelector: "env=prod"},
			},
			namespaces: map[string][]string{"env=prod": {"shop", "pay"}},
			want: []string{
				"watch deployments.apps:b@pay", "watch deployments.apps:b@shop", "watch deployments.apps:canary fields=metadata.namespace!=shop in v1beta1", "watch deployments.apps@shop",
				`warn resource "de.apps:b": it may select the same deployments.apps as "deployments.apps" (in shop); each of the two publishes them`,
			},
		},
		{
			name: "a pattern with names", entries: []Entry{{Resource: "*.apps", Namespaces: []string{"a"}}, {Resource: "*.apps", Name: "b", Namespaces: []string{"b"}}, {Resource: "da.apps", Name: "c"}},
			want: []string{"watch daemonsets.apps:c", "watch deployments.apps:b@b", "watch deployments.apps@a"},
		},
		{
			name: "a name that may be a resource of the core group", catalog: catalogOf("deployments.v1.apps", "events.v1.events.k8s.io", "?v1"), entries: []Entry{{Resource: "events"}, {Resource: "*.apps"}},
			want: []string{
				`wait *.apps: pattern "*.apps": it is not known yet which resource "events" is: an API group that may have it could not be asked`,
				`wait events: resource "events": an API group that may have it could not be asked (v1): see whether its APIService is available`,
			},
		},
		{name: "metadata only", entries: []Entry{{Resource: "pods", MetadataOnly: true, Namespaces: []string{"a"}}}, want: []string{"watch pods@a metadata"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.catalog == nil {
				c.catalog = ordinary()
			}
			p := Make(c.entries, c.exclude, c.catalog, labelled(c.namespaces), nil)
			if p.Err != nil {
				t.Fatal(p.Err)
			}
			if diff := cmp.Diff(c.want, p.outline()); diff != "" {
				t.Error(diff)
			}
			slices.Reverse(c.entries)
			slices.Reverse(c.exclude)
			again := Make(c.entries, c.exclude, c.catalog, labelled(c.namespaces), nil)
			slices.Sort(p.Unmatched)
			slices.Sort(again.Unmatched)
			p.Warnings, again.Warnings = nil, nil // the warnings name the first of two entries first
			if diff := cmp.Diff(p.outline(), again.outline()); diff != "" {
				t.Errorf("in another order of the configuration: %s", diff)
			}
			var environment *EnvironmentError
			if err := p.Missing(); err != nil && !errors.As(err, &environment) {
				t.Errorf("the error of a required resource that is not there is a %T", err)
			}
		})
	}
}

// An error names the contradiction and the remedy.
func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries []Entry
		exclude []string
		want    []string // the error contains each of these texts
	}{
		{"cluster-scoped in namespaces", []Entry{{Resource: "nodes", Namespaces: []string{"a"}}}, nil, []string{`resource "nodes": it is cluster-scoped: remove its namespaces`}},
		{"cluster-scoped by namespace selector", []Entry{{Resource: "nodes", NamespaceSelector: "a"}}, nil, []string{`remove its namespaceSelector`}},
		{"cluster-scoped without namespaces", []Entry{{Resource: "nodes", ExcludeNamespaces: []string{"a"}}}, nil, []string{`remove its excludeNamespaces`}},
		{"named and excluded", []Entry{{Resource: "pods"}}, []string{"po"}, []string{`resource "pods": it is both configured and excluded (as "po"): remove one of the two`}},
		{
			"selectors that do not parse",
			[]Entry{{Resource: "pods", LabelSelector: "a in b"}, {Resource: "secrets", FieldSelector: "x"}, {Resource: "nodes", NamespaceSelector: "!"}},
			nil,
			[]string{`resource "pods": labelSelector: "a in b"`, `resource "secrets": fieldSelector: "x"`, `resource "nodes": namespaceSelector: "!"`},
		},
		{"namespaces twice", []Entry{{Resource: "pods", Namespaces: []string{"a"}, NamespaceSelector: "b"}}, nil, []string{`resource "pods": namespaceSelector: it is set beside namespaces`}},
		{"no namespace left", []Entry{{Resource: "pods", Namespaces: []string{"a"}, ExcludeNamespaces: []string{"a"}}}, nil, []string{`resource "pods": excludeNamespaces: it leaves none of the entry's namespaces`}},
		{
			"twice by two names",
			[]Entry{{Resource: "deployments.apps", Namespaces: []string{"a", "b"}}, {Resource: "deployments.v1beta1.apps", LabelSelector: "x=1"}},
			nil,
			[]string{`resource "deployments.v1beta1.apps": name: another entry of deployments.apps has no name either, "deployments.apps" (in a, b): give this one a name`},
		},
		{
			"one name twice",
			[]Entry{{Resource: "pods", Name: "x"}, {Resource: "po", Name: "x", LabelSelector: "a"}, {Resource: "pods", Name: "y"}},
			nil,
			[]string{`resource "po:x": name: another entry of pods has the name "x" too, "pods:x" (everywhere): choose another name`},
		},
		{
			"a pattern twice",
			[]Entry{{Resource: "*.core", Namespaces: []string{"a"}}, {Resource: "*.", Namespaces: []string{"b"}}},
			nil,
			[]string{`resource "*.": name: another entry of *.core has no name either, "*.core" (in a)`},
		},
		{
			"twice, and not there yet",
			[]Entry{{Resource: "unicorns"}, {Resource: "unicorns", LabelSelector: "a"}},
			nil,
			[]string{`resource "unicorns": name: another entry of unicorns has no name either`},
		},
		{
			"twice and not there yet, in two versions",
			[]Entry{{Resource: "unicorns.v1.zoo.io"}, {Resource: "unicorns.v1beta1.zoo.io"}},
			nil,
			[]string{`another entry of unicorns.zoo.io has no name either`},
		},
		{
			"everything that is wrong with an entry, with its place",
			[]Entry{{Resource: "pods", Place: "50%.yaml:7:5", LabelSelector: "a in b", FieldSelector: "x"}},
			nil,
			[]string{`50%.yaml:7:5: resource "pods": labelSelector: "a in b"`, `50%.yaml:7:5: resource "pods": fieldSelector: "x"`},
		},
		{
			"names that no ID takes, or that are no DNS labels",
			[]Entry{{Resource: "pods", Name: "a@b"}, {Resource: "pods", Name: strings.Repeat("a", 64)}, {Resource: "pods", Name: "-a"}, {Resource: "pods", Name: "A"}},
			nil,
			[]string{`resource "pods:a@b": name: "a@b" cannot be the name of an entry: use lower-case letters, digits and -`, `name: "aaa`, `name: "-a"`, `name: "A"`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Make(c.entries, c.exclude, ordinary(), labelled(nil), nil)
			var config *ConfigError
			if !errors.As(p.Err, &config) {
				t.Fatalf("got %v", p.Err)
			}
			for _, want := range c.want {
				if !strings.Contains(p.Err.Error(), want) {
					t.Errorf("got %v, want %q", p.Err, want)
				}
			}
		})
	}
}

// Users are warned of entries of one resource unless no object can ever be in both.
func TestProvablyDisjoint(t *testing.T) {
	ns := func(names ...string) Entry { return Entry{Namespaces: names} }
	not := func(names ...string) Entry { return Entry{ExcludeNamespaces: names} }
	of := func(selector string) Entry { return Entry{NamespaceSelector: selector} }
	labels := func(s string) Entry { return Entry{LabelSelector: s} }
	fields := func(s string) Entry { return Entry{FieldSelector: s} }
	for _, c := range []struct {
		a, b Entry
		want bool
	}{
		{ns(), ns(), false},
		{ns("a"), ns(), false},
		{ns("a", "b"), ns("c"), true},
		{ns("a", "b"), ns("b", "c"), false},
		{ns("a", "b"), not("a", "b", "c"), true},
		{ns("a", "b"), not("a"), false},
		{Entry{Namespaces: []string{"a", "b"}, ExcludeNamespaces: []string{"b"}}, ns("b"), true},
		{not("a"), not("b"), false},
		{not("a"), fields("metadata.namespace=a"), true},
		{of("env=prod"), of("env=dev"), true},
		{of("env=prod"), of("tier=1"), false}, // a namespace can get both labels
		{of("env=prod"), ns("a"), false},      // and this one, too
		{Entry{NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"a"}}, ns("a"), true},

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
		c.a.Resource, c.b.Resource, c.b.Name = "pods", "pods", "b"
		both, wrong := parseAll([]Entry{c.a, c.b})
		if len(wrong) > 0 {
			t.Fatal(wrong)
		}
		a, b := both[0], both[1]
		if provablyDisjoint(a, b) != c.want || provablyDisjoint(b, a) != c.want {
			t.Errorf("%s and %s: want %t", a.describe(), b.describe(), c.want)
		}
	}
}
