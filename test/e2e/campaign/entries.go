package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// How an entry says which objects are its own.
const (
	byLabel           = "labels"
	byField           = "fields"
	byNamespace       = "namespaces"
	byOtherNamespaces = "other namespaces"
)

// gadgetLabel is the label, and below spec the field, that entries select by. Its value is one of gadgetValues.
const gadgetLabel = "crew"

var gadgetValues = []string{"a", "b", "c", "d"}

// entry is one of the entries of one resource. No object is in two of them.
type entry struct {
	by       string
	of       []string // values, or namespaces
	labelled bool     // only in namespaces that have the label
	filter   bool     // not what the annotation hides
	metadata bool
	types    []string // nil: all
}

// edition is one state of the configuration, and which namespaces have the label at that time.
type edition struct {
	at       time.Time
	entries  []entry
	labelled map[string]bool
}

// takes reports whether the entry's selectors take a state, whatever its filter says.
func (e entry) takes(s gadgetState) bool {
	switch e.by {
	case byNamespace:
		return slices.Contains(e.of, s.namespace)
	case byOtherNamespaces:
		return !slices.Contains(e.of, s.namespace)
	}
	return slices.Contains(e.of, s.value)
}

// selects reports whether one of the entries takes a state.
func (e edition) selects(s gadgetState) bool {
	return slices.ContainsFunc(e.entries, func(one entry) bool {
		return one.takes(s) && (!one.labelled || e.labelled[s.namespace]) && (!one.filter || s.shown)
	})
}

// deal gives n entries what they select: values or namespaces, none of them to two.
func deal(r *chance, by string, n int, namespaces []string) []entry {
	entries := make([]entry, n)
	from := slices.Clone(gadgetValues)
	if by == byNamespace || by == byOtherNamespaces {
		from = slices.Clone(namespaces)
	}
	r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	for i := range entries {
		entries[i] = entry{by: by, of: from[i : i+1 : i+1]}
	}
	switch {
	case by == byOtherNamespaces && n == 1:
	case by == byOtherNamespaces: // the last one has all that the others have not
		last := &entries[n-1]
		last.of = nil
		for i := range entries[:n-1] {
			entries[i].by = byNamespace
			last.of = append(last.of, entries[i].of...)
		}
	case by != byField && n < 3: // a wider one; what nobody has is not selected
		entries[n-1].of = from[n-1 : n+1]
	}
	return entries
}

// firstEdition is the configuration at the start. The namespaces' label may be asked for by the first entry.
func firstEdition(r *chance, namespaces []string) edition {
	by := []string{byLabel, byLabel, byLabel, byField, byNamespace, byOtherNamespaces}[r.IntN(6)]
	n := 1 + r.IntN(3)
	if r.IntN(2) == 0 {
		n = 2 // objects move between them most
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

// selection is what makes the collections of the entries: selectors, and whether bodies are whole.
func (e edition) selection() string {
	var b strings.Builder
	for _, one := range e.entries {
		fmt.Fprintln(&b, one.by, one.of, one.labelled, one.metadata)
		if one.labelled {
			fmt.Fprintln(&b, e.labelled)
		}
	}
	return b.String()
}

// scheme is by what its entries select, as [deal] takes it.
func (e edition) scheme() string { return e.entries[len(e.entries)-1].by }

// edited is what an edit makes of an edition; before is the one to which an edit may go back.
func (e edition) edited(r *chance, before edition, namespaces []string) edition {
	next := edition{entries: slices.Clone(e.entries), labelled: maps.Clone(e.labelled)}
	redealt := func(n int) []entry {
		entries := deal(r, e.scheme(), n, namespaces)
		for i := range min(n, len(next.entries)) { // an entry's other settings stay
			of, by := entries[i].of, entries[i].by
			entries[i] = next.entries[i]
			entries[i].of, entries[i].by = of, by
		}
		return entries
	}
	one := &next.entries[r.IntN(len(next.entries))]
	switch draw := r.IntN(16); {
	case draw < 5:
		next.entries = redealt(len(next.entries))
	case draw < 8: // each has what the next one had
		first := next.entries[0]
		for i := range next.entries[1:] {
			next.entries[i].of, next.entries[i].by = next.entries[i+1].of, next.entries[i+1].by
		}
		last := &next.entries[len(next.entries)-1]
		last.of, last.by = first.of, first.by
		if e.scheme() == byOtherNamespaces {
			next.entries = redealt(len(next.entries))
		}
	case draw < 10:
		next.entries = redealt(1 + (len(next.entries)+r.IntN(2))%3)
	case draw < 12:
		one.filter = !one.filter
	case draw < 13:
		one.metadata = !one.metadata
	case draw < 14:
		one.types = [][]string{nil, {"added", "deleted"}, {"modified", "deleted"}, {"added", "modified"}}[r.IntN(4)]
	default:
		next.entries = slices.Clone(before.entries)
	}
	return next
}

// whole is the edition with nothing left out that copies are compared by.
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
