package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// Redaction hides values of objects. In the file it is a path, the name of a preset
// other than configMapKeys, or a map.
type Redaction struct {
	Paths []string `yaml:"paths"` // where the values are, for example spec.containers[*].env[*].value
	// Preset is podEnv (environment variables of containers), configMapKeys (values of ConfigMaps whose keys match
	// Keys) or lastApplied (annotations with earlier states of the object). Default: none.
	Preset string `yaml:"preset"`
	Keys   string `yaml:"keys"` // regular expression (RE2) that finds keys of ConfigMaps; with the preset configMapKeys
	// With is what replaces a value: "hash" (default), a keyed hash as for secrets; "mask", the text redacted; or
	// "remove", nothing.
	With string `yaml:"with"`
	// Resources are names (plural) and patterns of the resources that the rule is for, without a version; a name
	// without a group is of every group. Default: all. Not in the redact of a resource.
	Resources []string `yaml:"resources"`
}

// UnmarshalYAML takes the short form, a string, or the map.
func (r *Redaction) UnmarshalYAML(unmarshal func(any) error) error {
	var name string
	if unmarshal(&name) == nil {
		*r = Redaction{Paths: []string{name}}
		if slices.Contains(shape.Presets(), name) {
			*r = Redaction{Preset: name}
		}
		return nil
	}
	type plain Redaction
	return unmarshal((*plain)(r))
}

func (r Redaction) rule() shape.Rule {
	return shape.Rule{Paths: r.Paths, Preset: r.Preset, Keys: r.Keys, With: r.With, Resources: r.Resources}
}

// Rules returns the redaction rules for the objects of an entry under resources: the rules
// for all resources, and the entry's own.
func (c *Config) Rules(r *Resource) []shape.Rule {
	var rules []shape.Rule
	for _, list := range [][]Redaction{c.Redact, r.Redact} {
		for _, redaction := range list {
			rules = append(rules, redaction.rule())
		}
	}
	if len(r.Drop) > 0 {
		rules = append(rules, shape.Rule{Paths: r.Drop, With: shape.WithRemove})
	}
	return rules
}

// redactions fills in the defaults of rules and records their mistakes.
func (p *problems) redactions(at string, list []Redaction, ofResource bool) {
	for i := range list {
		r, at := &list[i], fmt.Sprintf("%s[%d]", at, i)
		r.With = cmp.Or(r.With, shape.WithHash)
		p.oneOf(at+".with", r.With, shape.Withs()...)
		if r.Preset != "" {
			p.oneOf(at+".preset", r.Preset, shape.Presets()...)
		}
		if ofResource && len(r.Resources) > 0 {
			p.add(at+".resources", "it is for the resource that it stands under: leave them out, or write the rule under redact for the whole bridge")
		}
		for j, text := range r.Paths {
			path := at // the place of the short form
			if _, ok := p.places[at+".paths"]; ok {
				path = fmt.Sprintf("%s[%d]", at+".paths", j)
			}
			p.rule(path, shape.Rule{Paths: []string{text}})
			p.meant(path, text, shape.Presets())
		}
		for j, pattern := range r.Resources {
			path := fmt.Sprintf("%s[%d]", at+".resources", j)
			p.rule(path, shape.Rule{Preset: shape.PodEnv, Resources: []string{pattern}})
			p.plural(path, pattern)
		}
		switch whole := r.rule(); {
		case r.Preset != "" && !slices.Contains(shape.Presets(), r.Preset): // reported above
		case len(r.Paths) > 0:
			whole.Paths, whole.Resources, whole.With = []string{"spec"}, nil, ""
			p.rule(at, whole)
		default:
			whole.Resources, whole.With = nil, ""
			p.rule(at, whole)
		}
	}
}

// plural rejects a name that Kubernetes has as a singular or short name, because a rule for it would hide nothing.
func (p *problems) plural(at, text string) {
	name := discovery.Parse(text)
	r, err := discovery.Builtin().Find(name)
	if name.IsPattern() || err != nil || r.Name == name.Resource() {
		return
	}
	p.add(at, "%q is a singular or short name, and rules need the plural: write %s, or for a custom resource its plural with its group", text, r.GroupResource())
}

func (p *problems) rule(at string, r shape.Rule) {
	_, err := shape.Compile([]shape.Rule{r}, shape.Secrets{})
	p.each(at, err)
}

func (p *problems) each(at string, err error) {
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		p.add(at, "%s", strings.TrimSpace(line))
	}
}

// paths records the mistakes in filter, drop and ignore.
func (p *problems) paths(at string, r *Resource) {
	p.redactions(at+".redact", r.Redact, true)
	for i, text := range r.Drop {
		p.rule(fmt.Sprintf("%s[%d]", at+".drop", i), shape.Rule{Paths: []string{text}})
	}
	if r.Filter != "" {
		if _, err := filter.Compile(r.Filter); err != nil {
			p.add(at+".filter", "%s", strings.TrimPrefix(err.Error(), "filter: "))
		}
	}
	for i, text := range r.Ignore {
		_, err := shape.CompileIgnore([]string{text})
		p.each(fmt.Sprintf("%s[%d]", at+".ignore", i), err)
		p.meant(fmt.Sprintf("%s[%d]", at+".ignore", i), text, shape.IgnorePresets())
	}
}

// meant rejects a path that is the misspelt name of a preset, because it would silently match no field.
func (p *problems) meant(at, text string, presets []string) {
	for _, name := range presets {
		if text != name && discovery.Nearest(text, []string{name}, min(3, len(name)/3)) != "" {
			p.add(at, "%q: did you mean the preset %s? A member of that name is written [%q]", text, name, text)
		}
	}
}
