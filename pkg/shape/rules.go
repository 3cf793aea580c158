package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// The values of [Rule]'s With.
const (
	WithHash   = "hash"   // replace the value by a keyed hash: it shows that the value changed, but not the value
	WithMask   = "mask"   // replace the value by the text "redacted"
	WithRemove = "remove" // remove the member or element
)

// The values of [Rule]'s Preset.
const (
	// PodEnv selects the values of containers' environment variables, in pods and in the
	// pod templates of workloads, CronJobs and ControllerRevisions.
	PodEnv = "podEnv"
	// ConfigMapKeys selects the values of ConfigMaps whose keys match Rule.Keys.
	ConfigMapKeys = "configMapKeys"
	// LastApplied selects the annotations in which tools keep an earlier state of the
	// object.
	LastApplied = "lastApplied"
)

// Withs returns the values of [Rule]'s With.
func Withs() []string { return []string{WithHash, WithMask, WithRemove} }

// Presets returns the values of [Rule]'s Preset.
func Presets() []string { return []string{PodEnv, ConfigMapKeys, LastApplied} }

// Rule hides values of objects.
type Rule struct {
	Paths  []string // the paths of the values (docs/configuration.md has the syntax)
	Preset string   // a predefined set of paths; "": only Paths
	Keys   string   // only with ConfigMapKeys: a regular expression (RE2) that selects the keys
	With   string   // how the values are replaced; "": WithHash
	// Resources are plural names without a version, and patterns: see [discovery.Name]. None: all resources.
	Resources []string
}

// Concerns reports whether the rule applies to a resource. group is "" for the core group.
func (r *Rule) Concerns(group, resource string) bool {
	if r.Preset == ConfigMapKeys && len(r.Resources) == 0 {
		return group == "" && resource == "configmaps"
	}
	return len(r.Resources) == 0 || anyMatches(discovery.ParseAll(r.Resources), group, resource)
}

func anyMatches(names []discovery.Name, group, resource string) bool {
	return slices.ContainsFunc(names, func(n discovery.Name) bool { return n.Matches(group, resource) })
}

// Rules are compiled rules. They may be used concurrently.
type Rules struct {
	rules   []rule
	secrets Secrets
}

// rule is a compiled [Rule]. Its preset is replaced by paths.
type rule struct {
	resources []discovery.Name
	paths     []path
	action    action
}

// Compile checks rules. secrets applies to core Secrets in addition to the rules. Its key
// is the key of all hashes; without a key, a hashed value becomes "redacted". The error joins the errors of all
// rules; each says what is wrong and what to write.
func Compile(rules []Rule, secrets Secrets) (*Rules, error) {
	out := &Rules{secrets: secrets}
	var errs []error
	for _, r := range rules {
		c, err := r.compile()
		errs = append(errs, err)
		out.rules = append(out.rules, c)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func (r Rule) compile() (rule, error) {
	out := rule{resources: discovery.ParseAll(r.Resources)}
	var errs []error
	switch r.With {
	case WithHash, "":
		out.action = hashed
	case WithMask:
		out.action = masked
	case WithRemove:
		out.action = removed
	default:
		errs = append(errs, fmt.Errorf("%q is not one of %s", r.With, strings.Join(Withs(), ", ")))
	}
	for _, name := range out.resources {
		err := name.Check()
		if err == nil && name.WithoutVersion().Version() != "" {
			err = fmt.Errorf("%q: a rule is for all versions of a resource: write %s", name, name.Unversioned())
		}
		errs = append(errs, err)
	}
	for _, text := range r.Paths {
		p, err := parsePath(text)
		if err == nil && p.identity() {
			err = fmt.Errorf("%q: this stays in every object, because consumers identify the object by it: name what else is to be hidden", text)
		}
		errs = append(errs, err)
		out.paths = append(out.paths, p)
	}
	err := out.preset(r)
	return out, errors.Join(append(errs, err)...)
}

func (out *rule) preset(r Rule) error {
	if r.Keys != "" && r.Preset != ConfigMapKeys {
		return fmt.Errorf("keys belong to the preset %s: write a path such as data[~%q]", ConfigMapKeys, r.Keys)
	}
	switch r.Preset {
	case "":
		if len(r.Paths) == 0 {
			return fmt.Errorf("it hides nothing: name paths, or one of the presets %s", strings.Join(Presets(), ", "))
		}
	case PodEnv:
		for _, pod := range podSpecs() {
			for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
				p := append(named(append(pod, list)...), step{kind: stepAny}, step{name: "env"}, step{kind: stepAny}, step{name: "value"})
				out.paths = append(out.paths, p)
			}
		}
	case LastApplied:
		for _, name := range earlierStates() {
			out.paths = append(out.paths, named("metadata", "annotations", name))
		}
	case ConfigMapKeys:
		if len(r.Paths) > 0 {
			return fmt.Errorf("the preset %s is of ConfigMaps alone: write the paths as a rule of their own", ConfigMapKeys)
		}
		if r.Keys == "" {
			return fmt.Errorf("the preset %s needs keys: a regular expression such as (?i)password|token", ConfigMapKeys)
		}
		keys, err := regexp.Compile(r.Keys)
		if err != nil {
			return fmt.Errorf("keys: %q is no regular expression (RE2): %w", r.Keys, err)
		}
		for _, name := range []string{"data", "binaryData"} {
			out.paths = append(out.paths, path{{name: name}, {kind: stepPattern, pattern: keys}})
		}
		if len(out.resources) == 0 {
			out.resources = []discovery.Name{discovery.Parse("configmaps.core")}
		}
	default:
		return fmt.Errorf("%q is not one of %s", r.Preset, strings.Join(Presets(), ", "))
	}
	return nil
}

// podSpecs returns the paths of pod specs in objects: in pods; workloads and
// jobs; CronJobs; PodTemplates; ControllerRevisions.
func podSpecs() [][]string {
	return [][]string{
		{"spec"},
		{"spec", "template", "spec"},
		{"spec", "jobTemplate", "spec", "template", "spec"},
		{"template", "spec"},
		{"data", "spec", "template", "spec"},
	}
}

// earlierStates returns the annotations in which kubectl, kapp, Rancher's apply and
// Banzai's objectmatcher keep the object as it was applied.
func earlierStates() []string {
	return []string{lastApplied, "kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied"}
}

// Digest identifies what the rules hide and how. It changes if a new version of this
// package defines a preset differently. It does not depend on the order of the rules, on Secrets or on the key. Without
// rules it is "none".
func (r *Rules) Digest() string {
	var lines []string
	for _, rule := range r.rules {
		var resources []string
		for _, name := range rule.resources {
			resources = append(resources, name.String())
		}
		slices.Sort(resources)
		for _, p := range rule.paths {
			lines = append(lines, fmt.Sprintf("%d %q %s\n", rule.action, slices.Compact(resources), p))
		}
	}
	if len(lines) == 0 {
		return "none"
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte("1\n" + strings.Join(slices.Compact(lines), "")))
	return hex.EncodeToString(sum[:16])
}

// Of returns the Shaper for objects of a resource; nil if no rule applies to them. group
// is "" for the core group.
func (r *Rules) Of(group, resource string) *Shaper {
	s := &Shaper{name: strings.TrimSuffix(resource+"."+group, ".")}
	root := &node{}
	touched := false
	if group == "" && resource == "secrets" && !r.secrets.Plain {
		hideSecrets(root)
		touched = true
	}
	for _, rule := range r.rules {
		if len(rule.resources) > 0 && !anyMatches(rule.resources, group, resource) {
			continue
		}
		touched = true
		for _, p := range rule.paths {
			n := root.addPath(p)
			n.action = max(n.action, rule.action)
		}
	}
	if !touched {
		return nil
	}
	for _, names := range identity() {
		root.addPath(named(names...)).kept = true
	}
	for _, name := range earlierStates() {
		root.addPath(named("metadata", "annotations", name)).embedded = true
	}
	s.walkers.New = func() any { return &walker{root: root, mac: newMAC(r.secrets.Key), resource: s.name} }
	return s
}

// Shaper hides values in the objects of one resource. nil hides nothing. It may be
// used concurrently.
type Shaper struct {
	name    string
	walkers sync.Pool
}

// Append appends the object raw to dst, with the values that the rules hide replaced or removed. where is its
// namespace/name, which is part of every hash. All other bytes stay as they are.
// On an error, no part of raw may be published or logged; the error contains none.
func (s *Shaper) Append(dst, raw []byte, where string) ([]byte, error) {
	out, changed, err := s.walk(dst, raw, where)
	if err == nil && !changed {
		out = append(out, raw...)
	}
	return out, err
}

// Apply is like Append. If there is nothing to hide it returns raw itself and
// allocates nothing.
func (s *Shaper) Apply(raw []byte, where string) ([]byte, error) {
	out, changed, err := s.walk(nil, raw, where)
	if err == nil && !changed {
		out = raw
	}
	return out, err
}

func (s *Shaper) walk(dst, raw []byte, where string) ([]byte, bool, error) {
	if s == nil {
		return dst, false, nil
	}
	w := s.walkers.Get().(*walker)
	defer s.walkers.Put(w)
	out, changed, err := w.walk(dst, raw, where)
	if err != nil {
		return nil, false, fmt.Errorf("redact %s %s: %w", s.name, where, err)
	}
	return out, changed, nil
}
