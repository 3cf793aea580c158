package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// provablyDisjoint reports whether no object can be in both entries of one resource, now or later,
// whatever labels it or its namespace gets.
func provablyDisjoint(a, b *parsed) bool {
	return apart(a, b) || apart(b, a) || contradict(a.ofNamespace, b.ofNamespace) || contradict(a.labels, b.labels) ||
		fieldsContradict(slices.Concat(a.fields, a.exclusions()), slices.Concat(b.fields, b.exclusions()))
}

// apart reports whether a and b name disjoint namespaces.
func apart(a, b *parsed) bool {
	if len(a.in) == 0 {
		return false
	}
	return !slices.ContainsFunc(a.in, func(n string) bool {
		return !slices.Contains(b.ExcludeNamespaces, n) && (len(b.in) == 0 || slices.Contains(b.in, n))
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

// exclude reports whether x shows that no value meets both requirements on one label.
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
			if x.Field != y.Field {
				continue
			}
			different := (x.Operator == selection.NotEquals) != (y.Operator == selection.NotEquals)
			bothEqual := x.Operator != selection.NotEquals && y.Operator != selection.NotEquals
			if different && x.Value == y.Value || bothEqual && x.Value != y.Value {
				return true
			}
		}
	}
	return false
}
