package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/base/httpserver/kubelogin"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// all stands for every group, or every resource of a group, as in RBAC.
const all = bus.Open

// Rule is one RBAC rule. Rules only grant; they cannot exclude.
type Rule struct {
	Group     string   // "" is the core group, "*" is all groups
	Resources []string // sorted; "*" is all resources of the group, including subresources; entries that begin with / are paths of the API
	Names     []string // names of objects; none: all objects
	Verbs     []string // sorted
	Why       []string // sentences
}

// Cluster has the permissions of a bridge in a cluster.
type Cluster struct {
	Everywhere []Rule
	Within     map[string][]Rule // by namespace
	Notes      []string          // notes for the person who grants the permissions
}

// ClusterOptions say what is known of a cluster.
type ClusterOptions struct {
	// Catalog resolves names; nil means a cluster that has only Kubernetes'
	// own resources.
	Catalog *discovery.Catalog
	// Namespace is the bridge's own namespace. Its Lease is there, unless the configuration names
	// another one.
	Namespace string
	// Everything allows to grant `*.*`: reading all resources, including Secrets.
	Everything bool
}

// ForCluster returns exactly the permissions that the configuration's sinks need. The
// error says which name cannot be resolved, and what to write.
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

// want identifies the resources or objects that a permission is for.
type want struct{ namespace, group, resource, name string }

type grant struct{ verbs, why []string }

type asker struct {
	options ClusterOptions
	config  *config.Config
	guess   bool // names are resolved without asking the cluster
	wants   map[want]*grant
	notes   []string
}

func newAsker(c *config.Config, o ClusterOptions) *asker {
	a := &asker{options: o, config: c, wants: map[want]*grant{}}
	if o.Catalog == nil {
		a.options.Catalog, a.guess = discovery.Builtin(), true
	}
	return a
}

func (a *asker) note(format string, args ...any) { a.notes = bus.AddNote(a.notes, format, args...) }

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

// itself adds the permissions that every bridge needs.
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
		lease.name = "" // RBAC cannot restrict create to a name
		a.ask(lease, "The first replica makes the Lease.", "create")
		if name := a.config.BufferList(); name != "" {
			list := want{namespace: lease.namespace, resource: "configmaps", name: name}
			a.ask(list, "The leader lists there what it buffers, and standbys buffer the same.", "get", "update")
			list.name = ""
			a.ask(list, "The first leader that buffers makes this list.", "create")
		}
	}
}

// resource adds the permissions for one entry of the configuration.
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
		// The groups of custom resources have a dot. The groups of a pattern are not known.
		if gr.Group == all || strings.Contains(gr.Group, ".") {
			a.ask(want{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"}, "get proves that a type is gone, and its objects with it.", "get")
		}
	}
	return nil
}

// mayLeave reports whether an object can leave the entry's selection and still exist, which is so if its lists have a label
// or field selector. Excluded namespaces are a field selector, but not together with a namespaceSelector, which makes one list
// per namespace.
func mayLeave(r config.Resource) bool {
	return r.LabelSelector != "" || r.FieldSelector != "" || len(r.ExcludeNamespaces) > 0 && r.NamespaceSelector == ""
}

// onlyName returns the name of the object if a field selector selects exactly one name, otherwise "". RBAC rules can be restricted
// to names.
func onlyName(selector string) string {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	name, _ := s.RequiresExactMatch("metadata.name")
	return name
}

// resolve returns the resources that an entry means, in a form that RBAC can grant.
func (a *asker) resolve(r config.Resource) ([]schema.GroupResource, error) {
	name := r.Parsed()
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

// single returns the resource that a name means. Of several, the bridge goes on with the one that it has published, which the checkpoint knows.
func (a *asker) single(name discovery.Name, grouped bool) ([]schema.GroupResource, error) {
	if choices, clear := a.options.Catalog.Choices(name); !clear && len(choices) > 1 {
		a.note("%s may be any of %v here: all are granted. Write the plural and the group.", name, choices)
		return choices, nil
	}
	found, served, err := a.options.Catalog.Identify(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: write it in full, as in certificates.cert-manager.io, or let --connect ask the cluster", err)
	case !served && name.Version() != "" && len(name.Candidates()) > 1:
		a.note("%s is taken as it is written: %s may be a version or a part of the group, and both are granted. Write group, version and resource for one of them.", name, name.Version())
		return name.Candidates(), nil
	case !served:
		a.note("%s is taken as it is written: it must be the plural of a resource and its group.", name)
	case a.guess && !grouped && found.Group != "":
		a.note("%s is read as %s.", name, found)
	}
	return []schema.GroupResource{found}, nil
}

// core returns the resources of the core group that a pattern matches, one by one: "*" would include Secrets and,
// with get, pods/exec.
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

// isPath reports whether a resource is a path of the API, which RBAC calls nonResourceURLs.
func isPath(resource string) bool { return strings.HasPrefix(resource, "/") }

// covers reports whether the permission w with grant g includes the permission other with grant og.
func covers(w want, g *grant, other want, og *grant) bool {
	return w != other &&
		(w.namespace == "" || w.namespace == other.namespace) &&
		(w.group == all || w.group == other.group) &&
		(w.resource == all || w.resource == other.resource) &&
		(w.name == "" || w.name == other.name) &&
		!slices.ContainsFunc(og.verbs, func(v string) bool { return !slices.Contains(g.verbs, v) })
}

// result merges the permissions into rules.
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
			// A rule allows each of its resources with each of its names.
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
