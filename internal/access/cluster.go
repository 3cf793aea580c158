package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/serve/kubelogin"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// all stands for every group, or every resource of a group, as in RBAC.
const all = "*"

// Rule is one permission, as RBAC knows it: it adds, and cannot take away.
type Rule struct {
	Group     string   // "" is the core group, "*" all of them
	Resources []string // sorted; "*" is all of the group's, subresources included; with a / at the start, paths of the API
	Names     []string // of objects; none: all of them
	Verbs     []string // sorted
	Why       []string // sentences
}

// Cluster is what a bridge may do in a cluster.
type Cluster struct {
	Everywhere []Rule
	Within     map[string][]Rule // by namespace
	Notes      []string          // what the person who grants it should know
}

// ClusterOptions say what is known of a cluster.
type ClusterOptions struct {
	// Catalog resolves the names; nil: as in a cluster that has nothing but Kubernetes'
	// own resources.
	Catalog *discovery.Catalog
	// Namespace is the bridge's own, where its Lease is unless the configuration says
	// where.
	Namespace string
	// Everything lets `*.*` be granted: reading all there is, Secrets too.
	Everything bool
}

// ForCluster returns what the configuration's sinks need to watch all that they are
// to watch, no more. An error says which name cannot be resolved, and what to write.
func ForCluster(c *config.Config, o ClusterOptions) (Cluster, error) {
	a := newAsker(c, o)
	a.itself()
	for i := range c.Sinks {
		for _, r := range c.ResourcesOf(&c.Sinks[i]) {
			if err := a.resource(r); err != nil {
				return Cluster{}, err
			}
		}
	}
	if len(c.Exclude) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(a.wants)), func(w want) bool { return w.resource == all }) {
		a.note("RBAC cannot exclude: what `exclude` names (%s) may be read, and is not.", strings.Join(c.Exclude, ", "))
	}
	return a.result(), nil
}

// want is what verbs are asked for on.
type want struct{ namespace, group, resource, name string }

type grant struct{ verbs, why []string }

type asker struct {
	options ClusterOptions
	config  *config.Config
	guess   bool // names are resolved by knowledge of Kubernetes alone
	wants   map[want]*grant
	notes   []string
}

func newAsker(c *config.Config, o ClusterOptions) *asker {
	a := &asker{options: o, config: c, wants: map[want]*grant{}}
	if o.Catalog == nil {
		a.options.Catalog, a.guess = Builtin(), true
	}
	return a
}

func (a *asker) note(format string, args ...any) { a.notes = addNote(a.notes, format, args...) }

func addNote(notes []string, format string, args ...any) []string {
	n := fmt.Sprintf(format, args...)
	if slices.Contains(notes, n) {
		return notes
	}
	return append(notes, n)
}

func (a *asker) ask(w want, why string, verbs ...string) {
	g := a.wants[w]
	if g == nil {
		g = &grant{}
		a.wants[w] = g
	}
	g.verbs = sorted(append(g.verbs, verbs...))
	if !slices.Contains(g.why, why) {
		g.why = append(g.why, why)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// itself is what every bridge needs.
func (a *asker) itself() {
	a.ask(want{resource: "namespaces", name: "kube-system"}, "Its UID is the cluster's identity: without it, and without kubernetes.clusterUID, nothing is listed.", "get")
	const installed = "What is installed or removed is noticed at once, not by asking every 30 s."
	a.ask(want{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}, installed, "list", "watch")
	a.ask(want{group: "apiregistration.k8s.io", resource: "apiservices"}, installed, "list", "watch")
	if s := a.config.Status; s.Login.Kubernetes && s.Listen != config.Off {
		a.ask(want{group: "authentication.k8s.io", resource: "tokenreviews"}, "Whose a token is that asks for the status.", "create")
		a.ask(want{group: "authorization.k8s.io", resource: "subjectaccessreviews"}, "Whether they may see it.", "create")
		a.ask(want{resource: kubelogin.Prefix + "/api/status"}, "For `bridge status` with the bridge's own token.", "get")
		a.note("Others who are to see the status need a ClusterRole with nonResourceURLs: /metrics, or %s/* for the rest.", kubelogin.Prefix)
	}
	if s := a.config.Secrets; s.Values == "hash" && s.HashKeySecret != "" {
		namespace, name, _ := strings.Cut(s.HashKeySecret, "/")
		a.ask(want{namespace: namespace, resource: "secrets", name: name}, "It holds the key of hashes, which the bridge makes.", "get", "patch")
	}
	if e := a.config.LeaderElection; e.Enabled {
		lease := want{namespace: cmp.Or(e.Namespace, a.options.Namespace), group: "coordination.k8s.io", resource: "leases", name: e.LeaseName}
		a.ask(lease, "The Lease says which replica leads.", "get", "update", "watch")
		lease.name = "" // RBAC knows no name of what is not there yet
		a.ask(lease, "The first replica makes the Lease.", "create")
	}
}

// resource asks for one entry of the configuration.
func (a *asker) resource(r config.Resource) error {
	list, err := a.resolve(r)
	if err != nil {
		return err
	}
	places := []string{""}
	switch {
	case len(r.Namespaces) > 0:
		places = r.Namespaces
		for _, n := range places {
			a.ask(want{resource: "namespaces", name: n}, "Proves that a namespace is gone, and its objects with it.", "get")
		}
	case r.NamespaceSelector != "":
		a.ask(want{resource: "namespaces"}, "A namespaceSelector follows the namespaces that it selects.", "get", "list", "watch")
		a.note("Namespaces that a namespaceSelector selects are not known beforehand: %s is granted in all of them.", r.Name())
	}
	for _, gr := range list {
		for _, n := range places {
			w := want{n, gr.Group, gr.Resource, onlyName(r.FieldSelector)}
			a.ask(w, "What the configuration watches.", "list", "watch")
			if !mayLeave(r) {
				continue
			}
			if gr.Group == all {
				a.note("No get on everything: it would allow pods/exec and nodes/proxy. What leaves %s's selector is published as deleted, without the reason.", r.Name())
				continue
			}
			a.ask(w, "get (optional) distinguishes objects that left a selection from deleted ones.", "get")
		}
		// The groups of custom resources have a dot; a pattern's are not known.
		if gr.Group == all || strings.Contains(gr.Group, ".") {
			a.ask(want{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}, "get proves that a type is gone, and its objects with it.", "get")
		}
	}
	return nil
}

// mayLeave reports whether an object can leave what the entry selects and live on: whether its lists have a label
// or field selector. Excluded namespaces are a field selector, but not beside a namespaceSelector, where each
// namespace has a list of its own.
func mayLeave(r config.Resource) bool {
	return r.LabelSelector != "" || r.FieldSelector != "" || len(r.ExcludeNamespaces) > 0 && r.NamespaceSelector == ""
}

// onlyName is the one name that a field selector selects, "" if there may be more:
// RBAC can be as narrow as that.
func onlyName(selector string) string {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	name, _ := s.RequiresExactMatch("metadata.name")
	return name
}

// resolve finds the resources that an entry stands for, as RBAC can grant them.
func (a *asker) resolve(r config.Resource) ([]schema.GroupResource, error) {
	name := discovery.Parse(r.Name())
	group, grouped := name.Group()
	switch name.Breadth() {
	case discovery.OneResource:
		return a.single(name, grouped)
	case discovery.AllGroups:
		if !a.options.Everything {
			return nil, fmt.Errorf("resource %q: its permission is to read everything, Secrets too, for RBAC cannot exclude: name groups or resources instead, or confirm with --allow-everything", r.Name())
		}
		a.note("%s is everything: with this permission Secrets can be read too. RBAC cannot exclude; the bridge leaves them alone unless they are named.", r.Name())
		return []schema.GroupResource{{Group: all, Resource: all}}, nil
	case discovery.OneGroup:
		if group == "" {
			return a.core(r, name), nil
		}
		a.note("%s is granted as all of its group, so that what comes later is watched.", r.Name())
		return []schema.GroupResource{{Group: group, Resource: all}}, nil
	}
	return nil, fmt.Errorf("resource %q: it is not known which permissions cover this pattern and nothing else: name groups or resources instead", r.Name())
}

func (a *asker) single(name discovery.Name, grouped bool) ([]schema.GroupResource, error) {
	found, served, err := a.options.Catalog.Identify(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: write it in full, as in certificates.cert-manager.io, or let --connect ask the cluster", err)
	case !served:
		a.note("%s is taken as it is written: it must be the plural of a resource and its group.", name)
	case a.guess && !grouped && found.Group != "":
		a.note("%s is read as %s.", name, found)
	}
	return []schema.GroupResource{found}, nil
}

// core are the resources of the core group that its pattern takes in, one by one: "*" would be Secrets, too, and
// with get pods/exec.
func (a *asker) core(r config.Resource, pattern discovery.Name) (out []schema.GroupResource) {
	confined := len(r.Namespaces) > 0 || r.NamespaceSelector != ""
	for _, found := range a.options.Catalog.Match(pattern) {
		gr := schema.GroupResource{Resource: found.Name}
		if found.Name == "secrets" || confined && !found.Namespaced || a.excluded(gr) {
			continue
		}
		out = append(out, gr)
	}
	a.note("%s is granted resource by resource, without Secrets.", r.Name())
	return out
}

func (a *asker) excluded(gr schema.GroupResource) bool {
	return slices.ContainsFunc(discovery.ParseAll(a.config.Exclude), func(name discovery.Name) bool {
		found, err := a.options.Catalog.Find(name)
		return err == nil && found.GroupResource() == gr
	})
}

// isPath reports whether a resource is a path of the API: RBAC knows those as nonResourceURLs.
func isPath(resource string) bool { return strings.HasPrefix(resource, "/") }

// covers reports whether what w and its grant allow includes the other's.
func covers(w want, g *grant, other want, og *grant) bool {
	return w != other &&
		(w.namespace == "" || w.namespace == other.namespace) &&
		(w.group == all || w.group == other.group) &&
		(w.resource == all || w.resource == other.resource) &&
		(w.name == "" || w.name == other.name) &&
		!slices.ContainsFunc(og.verbs, func(v string) bool { return !slices.Contains(g.verbs, v) })
}

// result merges what was asked for into rules.
func (a *asker) result() Cluster {
	out := Cluster{Within: map[string][]Rule{}, Notes: a.notes}
	ordered := slices.SortedFunc(maps.Keys(a.wants), func(x, y want) int {
		return cmp.Or(cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.group, y.group), cmp.Compare(x.name, y.name), cmp.Compare(x.resource, y.resource))
	})
	rules := map[string][]Rule{}
	for _, w := range ordered {
		g := a.wants[w]
		if slices.ContainsFunc(ordered, func(wider want) bool { return covers(wider, a.wants[wider], w, g) }) {
			continue
		}
		list := rules[w.namespace]
		i := slices.IndexFunc(list, func(r Rule) bool {
			// One rule allows every of its resources with every of its names.
			fits := len(r.Names) == 0 && w.name == "" || len(r.Names) > 0 && w.name != "" && r.Resources[0] == w.resource
			fits = fits && isPath(r.Resources[0]) == isPath(w.resource)
			return fits && r.Group == w.group && slices.Equal(r.Verbs, g.verbs) && slices.Equal(r.Why, g.why)
		})
		if i < 0 {
			list = append(list, Rule{Group: w.group, Verbs: g.verbs, Why: g.why})
			i = len(list) - 1
		}
		list[i].Resources = sorted(append(list[i].Resources, w.resource))
		if w.name != "" {
			list[i].Names = sorted(append(list[i].Names, w.name))
		}
		rules[w.namespace] = list
	}
	out.Everywhere = rules[""]
	delete(rules, "")
	out.Within = rules
	return out
}
