package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// claim is a spec with its selectors parsed.
type claim struct {
	spec        ResourceSpec
	in          []string // Namespaces without ExcludeNamespaces, sorted
	labels      labels.Selector
	ofNamespace labels.Selector
	fields      fields.Requirements // sorted, each once
}

func parseClaim(s ResourceSpec) (c claim, err error) {
	wrong := func(what, value string, err error) (claim, error) {
		return claim{}, fmt.Errorf("resource %q: %s %q does not parse: %w", s.Name, what, value, err)
	}
	c = claim{spec: s, in: without(s.Namespaces, s.ExcludeNamespaces)}
	if c.labels, err = labels.Parse(s.LabelSelector); err != nil {
		return wrong("labelSelector", s.LabelSelector, err)
	}
	if c.ofNamespace, err = labels.Parse(s.NamespaceSelector); err != nil {
		return wrong("namespaceSelector", s.NamespaceSelector, err)
	}
	parsed, err := fields.ParseSelector(s.FieldSelector)
	if err != nil {
		return wrong("fieldSelector", s.FieldSelector, err)
	}
	c.fields = sortFields(parsed.Requirements())
	switch {
	case len(s.Namespaces) > 0 && s.NamespaceSelector != "":
		return claim{}, fmt.Errorf("resource %q has namespaces and a namespaceSelector: remove one of the two", s.Name)
	case len(s.Namespaces) > 0 && len(c.in) == 0:
		return claim{}, fmt.Errorf("resource %q: excludeNamespaces leaves none of its namespaces: remove them there", s.Name)
	}
	return c, nil
}

func sortFields(r fields.Requirements) fields.Requirements {
	r = slices.Clone(r)
	for i := range r {
		r[i].Field = strings.TrimSpace(r[i].Field)
	}
	slices.SortFunc(r, func(a, b fields.Requirement) int { return strings.Compare(term(a), term(b)) })
	return slices.Compact(r)
}

func term(r fields.Requirement) string {
	op := "="
	if r.Operator == selection.NotEquals {
		op = "!="
	}
	return r.Field + op + fields.EscapeValue(r.Value)
}

// exclusions are the namespaces that a field selector is to leave out.
func (c *claim) exclusions() fields.Requirements {
	var out fields.Requirements
	for _, n := range without(c.spec.ExcludeNamespaces, nil) {
		out = append(out, fields.Requirement{Field: "metadata.namespace", Operator: selection.NotEquals, Value: n})
	}
	return out
}

// fieldSelector writes the terms in one order, however they were configured: they
// are part of a collection's ID. excluding adds the namespaces to be left out.
func (c *claim) fieldSelector(excluding bool) string {
	all := c.fields
	if excluding {
		all = sortFields(slices.Concat(all, c.exclusions()))
	}
	terms := make([]string, len(all))
	for i, r := range all {
		terms[i] = term(r)
	}
	return strings.Join(terms, ",")
}

// confined reports whether the claim is for some namespaces only.
func (c *claim) confined() bool { return len(c.spec.Namespaces) > 0 || c.spec.NamespaceSelector != "" }

// namespaced names the option that only a namespaced resource can have, "" for
// none.
func (c *claim) namespaced() string {
	switch {
	case len(c.spec.Namespaces) > 0:
		return "namespaces"
	case c.spec.NamespaceSelector != "":
		return "namespaceSelector"
	case len(c.spec.ExcludeNamespaces) > 0:
		return "excludeNamespaces"
	}
	return ""
}

// String is the claim as its owner would recognise it.
func (c *claim) String() string {
	var parts []string
	add := func(what string, values ...string) {
		if text := strings.Join(values, ", "); text != "" {
			parts = append(parts, what+" "+text)
		}
	}
	add("in", c.spec.Namespaces...)
	add("in namespaces with", c.spec.NamespaceSelector)
	add("not in", c.spec.ExcludeNamespaces...)
	add("labels", c.spec.LabelSelector)
	add("fields", c.spec.FieldSelector)
	if len(parts) == 0 {
		parts = []string{"everywhere"}
	}
	return fmt.Sprintf("%q (%s)", c.spec.Name, strings.Join(parts, "; "))
}

// provablyDisjoint reports whether no object can be in both claims on one resource, now or
// later, whatever labels it or its namespace gets: their inventories would
// contradict each other.
func provablyDisjoint(a, b *claim) bool {
	return apart(a, b) || apart(b, a) || contradict(a.ofNamespace, b.ofNamespace) || contradict(a.labels, b.labels) ||
		fieldsContradict(slices.Concat(a.fields, a.exclusions()), slices.Concat(b.fields, b.exclusions()))
}

// apart reports whether the namespaces that a names are none of b's.
func apart(a, b *claim) bool {
	if len(a.in) == 0 {
		return false
	}
	return !slices.ContainsFunc(a.in, func(n string) bool {
		return !slices.Contains(b.spec.ExcludeNamespaces, n) && (len(b.in) == 0 || slices.Contains(b.in, n))
	})
}

// contradict reports whether no set of labels can match both selectors.
func contradict(a, b labels.Selector) bool {
	as, _ := a.Requirements()
	bs, _ := b.Requirements()
	for _, x := range as {
		for _, y := range bs {
			if x.Key() == y.Key() && (exclude(x, y) || exclude(y, x)) {
				return true
			}
		}
	}
	return false
}

// exclude reports whether no value meets both requirements on one label, as far as
// x shows.
func exclude(x, y labels.Requirement) bool {
	oneOf := []selection.Operator{selection.In, selection.Equals, selection.DoubleEquals}
	equals := slices.Contains(oneOf, x.Operator())
	anyOf := func(held bool) bool {
		return slices.ContainsFunc(x.ValuesUnsorted(), func(v string) bool { return slices.Contains(y.ValuesUnsorted(), v) == held })
	}
	switch {
	case y.Operator() == selection.DoesNotExist:
		return equals || slices.Contains([]selection.Operator{selection.Exists, selection.GreaterThan, selection.LessThan}, x.Operator())
	case !equals:
		return false
	case slices.Contains(oneOf, y.Operator()):
		return !anyOf(true)
	default:
		return slices.Contains([]selection.Operator{selection.NotIn, selection.NotEquals}, y.Operator()) && !anyOf(false)
	}
}

// fieldsContradict reports whether no object can match both.
func fieldsContradict(a, b fields.Requirements) bool {
	for _, x := range a {
		for _, y := range b {
			same := x.Value == y.Value
			switch {
			case x.Field != y.Field:
			case x.Operator == selection.NotEquals && y.Operator == selection.NotEquals:
			case x.Operator == selection.NotEquals || y.Operator == selection.NotEquals:
				if same {
					return true
				}
			case !same:
				return true
			}
		}
	}
	return false
}
