package campaign

import (
	"maps"
	"slices"
	"time"
)

// Ways in which an entry selects objects.
const (
	byLabel           = "labels"
	byField           = "fields"
	byNamespace       = "namespaces"
	byOtherNamespaces = "other namespaces"
)

// gadgetLabel is the name of the label, and of the field below spec, by which entries select. Its value is one of gadgetValues.
const gadgetLabel = "crew"

var gadgetValues = []string{"a", "b", "c", "d"}

// entryNames are the names that entries may have. One entry of a resource may have none.
var entryNames = []string{"", "x", "y", "z"}

// entry is one of the entries of one resource. Two of them may select the same objects.
type entry struct {
	name     string
	selectBy string
	values   []string // values of the label or field, or namespaces
	labelled bool     // only in namespaces that have the label
	filter   bool     // a filter leaves out objects with the annotation
	metadata bool
	types    []string // nil: all
}

// edition is one version of the configuration, with the namespaces that have the label at that time.
type edition struct {
	since    time.Time
	entries  []entry
	labelled map[string]bool
}

// takes reports whether the entry's selectors select a state, without its filter.
func (e entry) takes(s gadgetState) bool {
	switch e.selectBy {
	case byNamespace:
		return slices.Contains(e.values, s.namespace)
	case byOtherNamespaces:
		return !slices.Contains(e.values, s.namespace)
	}
	return slices.Contains(e.values, s.value)
}

// selects reports whether one of the entries selects a state.
func (e edition) selects(s gadgetState) bool {
	return slices.ContainsFunc(e.entries, func(one entry) bool {
		return one.takes(s) && (!one.labelled || e.labelled[s.namespace]) && (!one.filter || s.shown)
	})
}

// deal distributes values or namespaces to n entries, each to one entry only. The entries have different names.
func deal(r *chance, by string, n int, namespaces []string) []entry {
	entries := make([]entry, n)
	from := slices.Clone(gadgetValues)
	if by == byNamespace || by == byOtherNamespaces {
		from = slices.Clone(namespaces)
	}
	r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	names := r.Perm(len(entryNames))
	for i := range entries {
		entries[i] = entry{name: entryNames[names[i]], selectBy: by, values: from[i : i+1 : i+1]}
	}
	switch {
	case by == byOtherNamespaces && n == 1:
	case by == byOtherNamespaces: // the last one selects everything that the others do not select
		last := &entries[n-1]
		last.values = nil
		for i := range entries[:n-1] {
			entries[i].selectBy = byNamespace
			last.values = append(last.values, entries[i].values...)
		}
	case by != byField && n < 3: // the last entry gets two values; values without an entry are not selected
		entries[n-1].values = from[n-1 : n+1]
	}
	return entries
}

// firstEdition returns the configuration at the start. The first entry may select namespaces by their label.
func firstEdition(r *chance, namespaces []string) edition {
	by := []string{byLabel, byLabel, byLabel, byField, byNamespace, byOtherNamespaces}[r.IntN(6)]
	n := 1 + r.IntN(3)
	if r.IntN(2) == 0 {
		n = 2 // with two entries, objects move between them most often
	}
	e := edition{entries: deal(r, by, n, namespaces), labelled: map[string]bool{}}
	for _, namespace := range namespaces {
		e.labelled[namespace] = true
	}
	if by == byLabel && r.IntN(3) == 0 {
		e.entries[0].labelled = true
	}
	return e
}

// movable reports whether a change of an object's label can take it from one entry to another.
func (e edition) movable() bool {
	return len(e.entries) > 1 && (e.scheme() == byLabel || e.scheme() == byField)
}

// scheme returns how the entries select objects: byLabel, byField, byNamespace or byOtherNamespaces.
func (e edition) scheme() string { return e.entries[len(e.entries)-1].selectBy }

// edited returns the edition after a random edit. before is the previous edition, to which an edit may return.
func (e edition) edited(r *chance, before edition, namespaces []string) edition {
	next := edition{entries: slices.Clone(e.entries), labelled: maps.Clone(e.labelled)}
	i := r.IntN(len(next.entries))
	one := &next.entries[i]
	switch draw := r.IntN(20); {
	case draw < 5:
		next.entries = e.redealt(r, len(next.entries), namespaces)
	case draw < 8 && e.scheme() == byOtherNamespaces:
		next.entries = e.redealt(r, len(next.entries), namespaces)
	case draw < 8: // each entry gets the selection of the next one
		for i := range next.entries {
			from := e.entries[(i+1)%len(e.entries)]
			next.entries[i].values, next.entries[i].selectBy = from.values, from.selectBy
		}
	case draw < 10:
		next.entries = e.redealt(r, 1+(len(next.entries)+r.IntN(2))%3, namespaces)
	case draw < 12:
		one.filter = !one.filter
	case draw < 13:
		one.metadata = !one.metadata
	case draw < 14:
		one.types = [][]string{nil, {"added", "deleted"}, {"modified", "deleted"}, {"added", "modified"}}[r.IntN(4)]
	case draw < 16: // the entry gets an unused name, or swaps names with another entry
		other := &next.entries[r.IntN(len(next.entries))]
		if other == one {
			one.name = e.unused(r)
		}
		one.name, other.name = other.name, one.name
	case draw < 18: // the entry gets the settings of the next one, except the name
		next.entries[i] = e.entries[(i+1)%len(e.entries)]
		next.entries[i].name = e.entries[i].name
	default:
		next.entries = slices.Clone(before.entries)
	}
	return next
}

// redealt distributes the values again to n entries. Existing entries keep their names and other settings.
func (e edition) redealt(r *chance, n int, namespaces []string) []entry {
	entries := deal(r, e.scheme(), n, namespaces)
	var taken []string
	for i := range min(n, len(e.entries)) {
		of, by := entries[i].values, entries[i].selectBy
		entries[i] = e.entries[i]
		entries[i].values, entries[i].selectBy = of, by
		taken = append(taken, entries[i].name)
	}
	for i := len(taken); i < n; i++ {
		left := slices.DeleteFunc(slices.Clone(entryNames), func(name string) bool { return slices.Contains(taken, name) })
		entries[i].name = left[r.IntN(len(left))]
		taken = append(taken, entries[i].name)
	}
	return entries
}

// unused returns a name that no entry has.
func (e edition) unused(r *chance) string {
	left := slices.DeleteFunc(slices.Clone(entryNames), func(name string) bool {
		return slices.ContainsFunc(e.entries, func(one entry) bool { return one.name == name })
	})
	return left[r.IntN(len(left))]
}

// whole returns the edition without the settings that leave events out, so that copies can be compared, and with the label on all namespaces.
func (e edition) whole() edition {
	whole := edition{entries: slices.Clone(e.entries), labelled: map[string]bool{}}
	for i := range whole.entries {
		whole.entries[i].types = nil
	}
	for namespace := range e.labelled {
		whole.labelled[namespace] = true
	}
	return whole
}
