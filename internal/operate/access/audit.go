package access

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The levels of an audit policy.
const (
	levelNone     = "None"
	levelMetadata = "Metadata"
	levelBodies   = "RequestResponse"
)

// AuditPolicy says what API servers have to record so that the bridge can say who made changes.
type AuditPolicy struct {
	Complete bool        // with the stage RequestReceived
	Denied   bool        // with reads, which the API server may refuse
	Rules    []AuditRule // the first one that matches a request applies
	Notes    []string    // for the person who configures the API servers
	Flags    []string    // of kube-apiserver
}

// AuditRule is a rule of an audit policy.
type AuditRule struct {
	Why        string
	Level      string
	Verbs      []string                        // none: all
	Namespaces []string                        // none: all
	Resources  map[string][]string             // by group, sorted; an empty list is all of the group; nil: all requests
	sensitive  map[schema.GroupResource]string // why there are no bodies
}

// auditScope is what is recorded of a resource, or with resource "*" of a group.
type auditScope struct {
	everywhere bool
	namespaces []string // unless everywhere
	sensitive  string   // why bodies are not recorded; "": they are
}

type auditScopes map[schema.GroupResource]*auditScope

func (s auditScopes) add(gr schema.GroupResource, namespaces []string, sensitive string) {
	one := s[gr]
	if one == nil {
		one = &auditScope{}
		s[gr] = one
	}
	one.everywhere = one.everywhere || len(namespaces) == 0
	one.namespaces = sorted(append(one.namespaces, namespaces...))
	one.sensitive = cmp.Or(one.sensitive, sensitive)
}

// ForAudit returns the audit policy for what the configuration's sinks publish: bodies where they make attributions exact, none of resources
// with values that the bridge hides, and nothing of requests that change nothing that is published.
func ForAudit(c *config.Config, o ClusterOptions) (AuditPolicy, error) {
	o.Everything = true // this grants no permission
	a := newAsker(c, o)
	scopes := auditScopes{}
	var patterns []discovery.Name
	for i := range c.Sinks {
		for _, r := range c.ResourcesOf(&c.Sinks[i]) {
			name := discovery.Parse(r.Name())
			notes := a.notes
			list, err := a.resolve(r)
			if err != nil {
				return AuditPolicy{}, err
			}
			if name.IsPattern() {
				a.notes = notes // they are about permissions
				patterns = append(patterns, name)
				a.addHidden(scopes, name)
			}
			for _, gr := range list {
				for _, each := range twins(gr) {
					scopes.add(each, r.Namespaces, a.hides(&r, each))
				}
			}
		}
	}
	for gr, s := range scopes { // elsewhere, the rule of a pattern would record bodies
		if s.sensitive != "" && gr.Resource != all && slices.ContainsFunc(patterns, func(p discovery.Name) bool { return p.Matches(gr.Group, gr.Resource) }) {
			s.everywhere = true
		}
	}
	out := AuditPolicy{Complete: c.Audit.Complete, Notes: a.notes, Flags: auditFlags(&c.Audit)}
	if c.Audit.Path == "" {
		out.Notes = append(out.Notes, "audit.path is not set in the configuration: the bridge does not read audit records.")
	}
	left := a.leftOut(patterns)
	if c.Audit.Denied {
		out.Denied = true
		out.Rules = append(out.Rules, scopes.denied(left)...)
	}
	out.Rules = append(out.Rules,
		AuditRule{Why: "Reads change nothing.", Level: levelNone, Verbs: reads()},
		AuditRule{
			Why: "These requests change no objects. Some have tokens in their bodies.", Level: levelNone,
			Resources: map[string][]string{"": virtual(), "authentication.k8s.io": {}, "authorization.k8s.io": {}},
		})
	out.Rules = append(out.Rules, scopes.rules(func(gr schema.GroupResource) bool { return gr.Resource != all })...)
	if len(left) > 0 {
		out.Rules = append(out.Rules, AuditRule{Why: "Patterns leave these out.", Level: levelNone, Resources: left})
	}
	out.Rules = append(out.Rules, scopes.rules(func(gr schema.GroupResource) bool { return gr.Resource == all && gr.Group != all })...)
	everything := scopes.rules(func(gr schema.GroupResource) bool { return gr.Group == all })
	out.Rules = append(out.Rules, everything...)
	if len(everything) == 0 || len(everything[0].Namespaces) > 0 {
		out.Rules = append(out.Rules, AuditRule{Why: "No sink publishes the rest.", Level: levelNone})
	}
	return out, nil
}

func reads() []string { return []string{"get", "list", "watch"} }

// virtual returns the resources of the core group with requests that change no objects.
func virtual() []string {
	return []string{"nodes/proxy", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "serviceaccounts/token", "services/proxy"}
}

// denied returns the rules for refused requests that change nothing, if they were allowed. A policy does not know whether a request will be
// refused, so all are recorded, without bodies. left is what patterns leave out.
func (s auditScopes) denied(left map[string][]string) (out []AuditRule) {
	const why = "Refused ones are published. The bridge drops the others."
	patterns := func(gr schema.GroupResource) bool { return gr.Resource == all }
	covered := func(resource string) bool {
		return s[schema.GroupResource{Resource: resource}] != nil || s[schema.GroupResource{Resource: all}] != nil || s[schema.GroupResource{Group: all, Resource: all}] != nil
	}
	connections := slices.DeleteFunc(virtual(), func(name string) bool {
		resource, _, _ := strings.Cut(name, "/")
		return !covered(resource)
	})
	if len(connections) > 0 {
		out = append(out, AuditRule{Why: why, Level: levelMetadata, Resources: map[string][]string{"": connections}})
	}
	add := func(rules []AuditRule) {
		for _, r := range rules {
			r.Why, r.Level, r.Verbs = why, levelMetadata, reads()
			if len(r.Namespaces) > 0 {
				r.Namespaces = append([]string{""}, r.Namespaces...) // a read of all namespaces
			}
			out = append(out, r)
		}
	}
	add(s.rules(func(gr schema.GroupResource) bool { return !patterns(gr) }))
	if len(left) > 0 {
		out = append(out, AuditRule{Why: "Patterns leave these out.", Level: levelNone, Verbs: reads(), Resources: left})
	}
	add(s.rules(patterns))
	return out
}

// twins returns a resource under all names in requests that change it: Events are in two groups, and a POST to bindings changes a Pod.
func twins(gr schema.GroupResource) []schema.GroupResource {
	core, own := schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	switch gr {
	case schema.GroupResource{Resource: "pods"}:
		return []schema.GroupResource{gr, {Resource: "bindings"}}
	case core, own:
		return []schema.GroupResource{core, own}
	case schema.GroupResource{Group: own.Group, Resource: all}:
		return []schema.GroupResource{gr, core}
	}
	return []schema.GroupResource{gr}
}

// hides returns why the bodies of a resource have values that the bridge hides; "": they have none, as far as the configuration says.
func (a *asker) hides(r *config.Resource, gr schema.GroupResource) string {
	switch {
	case gr == schema.GroupResource{Resource: "secrets"}:
		return "values of Secrets"
	case len(r.Redact) > 0:
		return "`redact` of the resource"
	case len(r.Drop) > 0:
		return "`drop` of the resource"
	}
	for i := range a.config.Redact {
		if a.redacts(&a.config.Redact[i], gr) {
			return fmt.Sprintf("redact[%d]", i)
		}
	}
	return ""
}

// redacts reports whether a rule for all resources hides values of a resource.
func (a *asker) redacts(rule *config.Redaction, gr schema.GroupResource) bool {
	if len(rule.Resources) > 0 {
		return slices.ContainsFunc(discovery.ParseAll(rule.Resources), func(n discovery.Name) bool {
			return n.Matches(gr.Group, gr.Resource) || slices.Contains(a.options.Catalog.Meanings(n), gr)
		})
	}
	switch rule.Preset {
	case shape.ConfigMapKeys:
		return gr == schema.GroupResource{Resource: "configmaps"}
	case shape.PodEnv:
		return mayHavePods(gr)
	}
	return true
}

// mayHavePods reports whether objects of a resource may describe containers. Of custom resources this is not known.
func mayHavePods(gr schema.GroupResource) bool {
	switch gr.Group {
	case "":
		return slices.Contains([]string{"pods", "podtemplates", "replicationcontrollers"}, gr.Resource)
	case "apps", "batch", all:
		return true
	}
	return strings.Contains(gr.Group, ".") && !strings.HasSuffix(gr.Group, ".k8s.io")
}

// addHidden adds the resources of a pattern that a rule of `redact` names.
func (a *asker) addHidden(scopes auditScopes, pattern discovery.Name) {
	for i := range a.config.Redact {
		rule := &a.config.Redact[i]
		resources := rule.Resources
		if len(resources) == 0 && rule.Preset == shape.ConfigMapKeys {
			resources = []string{"configmaps.core"}
		}
		for _, n := range discovery.ParseAll(resources) {
			for _, gr := range a.options.Catalog.Meanings(n) { // also by a singular or short name
				if pattern.Matches(gr.Group, gr.Resource) {
					scopes.add(gr, nil, fmt.Sprintf("redact[%d]", i))
				}
			}
			group, known := n.Group()
			own, _ := pattern.Group()
			if !known {
				group = own
			}
			if gr := (schema.GroupResource{Group: group, Resource: n.Resource()}); group != all && pattern.Matches(group, gr.Resource) {
				scopes.add(gr, nil, fmt.Sprintf("redact[%d]", i))
			} else if group == all && own == all {
				for _, found := range a.options.Catalog.Match(pattern) {
					if n.Matches(found.Group, found.Name) {
						scopes.add(found.GroupResource(), nil, fmt.Sprintf("redact[%d]", i))
					}
				}
			}
		}
	}
}

// leftOut returns what patterns leave out, as the resources of a rule.
func (a *asker) leftOut(patterns []discovery.Name) map[string][]string {
	if len(patterns) == 0 {
		return nil
	}
	out := map[string][]string{}
	add := func(group, resource string) {
		if resource == all {
			out[group] = []string{}
		} else if list, had := out[group]; !had || len(list) > 0 {
			out[group] = sorted(append(list, resource, resource+"/*"))
		}
	}
	if slices.ContainsFunc(patterns, discovery.Name.IsEverything) {
		add("", "secrets")
	}
	var excluded []schema.GroupResource
	for _, n := range discovery.ParseAll(a.config.Exclude) {
		n = n.WithoutVersion()
		if group, known := n.Group(); known {
			excluded = append(excluded, schema.GroupResource{Group: group, Resource: n.Resource()})
		} else if gr, _, err := a.options.Catalog.Identify(n); err == nil {
			excluded = append(excluded, gr)
		}
	}
	for _, gr := range excluded {
		// A change of Events in one group is made by a request for either.
		if !slices.ContainsFunc(twins(gr), func(twin schema.GroupResource) bool { return !slices.Contains(excluded, twin) }) {
			add(gr.Group, gr.Resource)
		}
	}
	return out
}

// rules returns the rules for some of the scopes: those without bodies come first.
func (s auditScopes) rules(some func(schema.GroupResource) bool) (out []AuditRule) {
	for _, level := range []string{levelMetadata, levelBodies} {
		rules := map[string]*AuditRule{} // by namespaces
		for _, gr := range slices.SortedFunc(maps.Keys(s), func(x, y schema.GroupResource) int { return cmp.Compare(x.String(), y.String()) }) {
			one := s[gr]
			if !some(gr) || (one.sensitive != "") != (level == levelMetadata) {
				continue
			}
			var namespaces []string
			if !one.everywhere {
				namespaces = one.namespaces
			}
			key := strings.Join(namespaces, ",")
			if rules[key] == nil {
				rules[key] = &AuditRule{Level: level, Namespaces: namespaces, sensitive: map[schema.GroupResource]string{}}
			}
			rules[key].add(gr, one.sensitive)
		}
		for _, key := range slices.Sorted(maps.Keys(rules)) {
			r := rules[key]
			r.Why = "With the bodies of answers, requests can be exact."
			if level == levelMetadata {
				var words []string
				for _, gr := range slices.SortedFunc(maps.Keys(r.sensitive), func(x, y schema.GroupResource) int { return cmp.Compare(x.String(), y.String()) }) {
					words = append(words, strings.TrimSuffix(gr.String(), ".")+": "+r.sensitive[gr])
				}
				r.Why = "The bridge hides values of these bodies (" + strings.Join(words, "; ") + "). Without bodies, changes have candidates, and an exact request only with audit.complete."
			}
			out = append(out, *r)
		}
	}
	return out
}

func (r *AuditRule) add(gr schema.GroupResource, sensitive string) {
	if sensitive != "" {
		r.sensitive[gr] = sensitive
	}
	if gr.Group == all {
		return // all requests
	}
	if r.Resources == nil {
		r.Resources = map[string][]string{}
	}
	if gr.Resource == all {
		r.Resources[gr.Group] = []string{}
		return
	}
	r.Resources[gr.Group] = sorted(append(r.Resources[gr.Group], gr.Resource, gr.Resource+"/*"))
}

// auditFlags returns the flags of the API servers for the inputs.
func auditFlags(c *config.Audit) []string {
	out := []string{"--audit-policy-file=policy.yaml"}
	if c.Webhook.Listen != "" || c.File == "" && c.Kafka == nil {
		out = append(out, "--audit-webhook-config-file=webhook.yaml")
		if c.Complete {
			out = append(out, "--audit-webhook-mode=blocking-strict")
		} else {
			out = append(out, "--audit-webhook-batch-max-wait=1s")
		}
		// With the default of 100 KiB, the API server drops a record that has a longer header of a client, without an error for anybody. Headers have
		// at most 1 MiB, of which each byte takes up to six. 10 MiB is the limit of a batch.
		out = append(out, "--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=10485760")
	}
	if c.File != "" {
		out = append(out, "--audit-log-path="+c.File, "--audit-log-maxsize=100", "--audit-log-maxbackup=10")
		if c.Complete {
			out = append(out, "--audit-log-mode=blocking-strict")
		}
	}
	if c.RequestTimeout > 0 && c.RequestTimeout != time.Minute {
		out = append(out, "--request-timeout="+c.RequestTimeout.String())
	}
	return out
}

// WriteYAML prints the policy, for --audit-policy-file.
func (p AuditPolicy) WriteYAML(w io.Writer) error {
	var b strings.Builder
	for _, n := range p.Notes {
		bus.Comment(&b, "", n)
	}
	b.WriteString("# Flags of each kube-apiserver:\n")
	for _, flag := range p.Flags {
		b.WriteString("#   " + flag + "\n")
	}
	b.WriteString("apiVersion: audit.k8s.io/v1\nkind: Policy\n")
	if p.Complete {
		bus.Comment(&b, "", "With audit.complete, no stage may be omitted: the bridge has to know which requests have begun.")
	} else if p.Denied {
		b.WriteString("omitStages: [\"RequestReceived\", \"ResponseStarted\"]\n")
	} else {
		b.WriteString("omitStages: [\"RequestReceived\"]\n")
	}
	b.WriteString("omitManagedFields: true\nrules:\n")
	for _, r := range p.Rules {
		bus.Comment(&b, "  ", r.Why)
		fmt.Fprintf(&b, "  - level: %s\n", r.Level)
		if len(r.Verbs) > 0 {
			fmt.Fprintf(&b, "    verbs: %s\n", flow(r.Verbs...))
		}
		if len(r.Namespaces) > 0 {
			fmt.Fprintf(&b, "    namespaces: %s\n", flow(r.Namespaces...))
		}
		if r.Resources == nil {
			continue
		}
		b.WriteString("    resources:\n")
		for _, group := range slices.Sorted(maps.Keys(r.Resources)) {
			fmt.Fprintf(&b, "      - group: %q\n", group)
			if list := r.Resources[group]; len(list) > 0 {
				fmt.Fprintf(&b, "        resources: %s\n", flow(list...))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
