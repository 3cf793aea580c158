package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selected is what an entry selects, parsed once.
type selected struct {
	*Resource
	of              groupResource
	namespaceChoice string // canonical, see below
	labels, fields  string // canonical
}

func newSelected(r *Resource) *selected {
	s := &selected{Resource: r, labels: canonicalLabels(r.LabelSelector), fields: canonicalFields(r.FieldSelector)}
	s.of, _ = parseName(r.Name())
	// A list of namespaces counts as a selector, too: none of them may be a selected one.
	if s.namespaceChoice = canonicalLabels(r.NamespaceSelector); r.NamespaceSelector == "" && len(r.Namespaces) > 0 {
		s.namespaceChoice = "named"
	}
	return s
}

// overlaps reports whether two entries of one resource plainly select one object. Where
// their selectors may keep them apart, only the pipeline can tell.
func (s *selected) overlaps(other *selected) bool {
	return !apart(s.Namespaces, other.Namespaces) &&
		!within(s.Namespaces, other.ExcludeNamespaces) && !within(other.Namespaces, s.ExcludeNamespaces) &&
		!differ(s.namespaceChoice, other.namespaceChoice) &&
		!differ(s.labels, other.labels) &&
		!differ(s.fields, other.fields)
}

// selections are the entries of one list so far. Each is compared only with those that
// name its resource and one of its namespaces: a list may have thousands.
type selections map[groupResource]*sameResource

type sameResource struct {
	all   []*selected
	in    map[string][]int // indexes in all, by each namespace that is named
	other []int            // those that name none
	index []int            // in the list, of each in all
}

// add adds entry i, and returns the first one before it that selects an object which it
// selects as well.
func (l selections) add(i int, r *Resource) (first int, found bool) {
	if wrongName(r.Name()) != "" {
		return 0, false
	}
	s := newSelected(r)
	same := l[s.of]
	if same == nil {
		same = &sameResource{in: map[string][]int{}}
		l[s.of] = same
	}
	at := len(same.all)
	look := func(candidates []int) {
		for _, j := range candidates {
			if found && same.index[j] >= first {
				return
			}
			if same.all[j].overlaps(s) {
				first, found = same.index[j], true
				return
			}
		}
	}
	look(same.other)
	for _, n := range r.Namespaces {
		look(same.in[n])
		same.in[n] = append(same.in[n], at)
	}
	if len(r.Namespaces) == 0 {
		for j := range same.all {
			look([]int{j})
		}
		same.other = append(same.other, at)
	}
	same.all, same.index = append(same.all, s), append(same.index, i)
	return first, found
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

func apart(a, b []string) bool {
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(n string) bool { return slices.Contains(b, n) })
}

func within(some, all []string) bool {
	return len(some) > 0 && !slices.ContainsFunc(some, func(n string) bool { return !slices.Contains(all, n) })
}

func canonicalLabels(s string) string {
	if l, err := labels.Parse(s); err == nil {
		return l.String()
	}
	return s
}

func canonicalFields(s string) string {
	if f, err := fields.ParseSelector(s); err == nil {
		return f.String()
	}
	return s
}
