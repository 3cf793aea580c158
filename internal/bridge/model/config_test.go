package model

import (
	"fmt"
	"slices"
	"strings"
)

const (
	group    = "model.test"
	resource = "things"
)

var (
	namespaces = []string{"n1", "n2"}
	names      = []string{"a", "b", "c"}
	bigBody    = strings.Repeat("x", 4000)
)

// entry is one item of `resources` in the configuration: it says which things are published, by label, namespace and
// content, and how.
type entry struct {
	name     string // distinguishes the entry from others in the ids of collections; "": it has no name
	x        set    // selected values of the label x; all: no selector
	exclude  bool   // excludeNamespaces: [n2]
	team     bool   // namespaceSelector: team=a
	filter   bool   // only objects with spec.keep
	types    string // "": all types; else the initials of the published types, out of "amd"
	metadata bool   // metadataOnly
	skip     bool   // snapshot: skip
	version  string // "": the preferred version
	topic    int    // one of two topics
	verify   bool   // a verification every minute
	redact   bool   // spec.padding is redacted
}

// set is a set of values of the label: 0, 1 and 2.
type set uint8

const all set = 7

func (s set) has(x int) bool { return s&(1<<x) != 0 }

func (s set) values() (out []string) {
	for x := range 3 {
		if s.has(x) {
			out = append(out, fmt.Sprint(x))
		}
	}
	return out
}

// selector returns the label selector as it is sent to the API server.
func (s set) selector() string {
	switch v := s.values(); {
	case s == all:
		return ""
	case len(v) == 1:
		return "x=" + v[0]
	default:
		return "x in (" + strings.Join(v, ",") + ")"
	}
}

// config is the list of entries that one sink publishes.
type config []entry

// freeName returns the first name that no entry has: "", "e1", "e2".
func (c config) freeName() string {
	for n := range len(c) + 1 {
		if name := entryName(n); !slices.ContainsFunc(c, func(e entry) bool { return e.name == name }) {
			return name
		}
	}
	panic("more names than entries")
}

func entryName(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint("e", n)
}

// named returns c with a name for each entry, by its index.
func (c config) named() config {
	c = slices.Clone(c)
	for n := range c {
		c[n].name = entryName(n)
	}
	return c
}

func (c config) equal(other config) bool { return slices.Equal(c, other) }

func (c config) String() string {
	var parts []string
	for _, e := range c {
		parts = append(parts, e.String())
	}
	return "[" + strings.Join(parts, "; ") + "]"
}

func (e entry) String() string {
	s := strings.TrimSpace(e.name + " x in {" + strings.Join(e.x.values(), ",") + "}")
	for _, p := range []struct {
		on   bool
		name string
	}{
		{e.exclude, "excludeNamespaces"},
		{e.team, "namespaceSelector"},
		{e.filter, "filter"},
		{e.types != "", "types=" + e.types},
		{e.metadata, "metadataOnly"},
		{e.skip, "snapshot=skip"},
		{e.version != "", "version=" + e.version},
		{e.topic > 0, "topic=2"},
		{e.verify, "verify"},
		{e.redact, "redact"},
	} {
		if p.on {
			s += " " + p.name
		}
	}
	return s
}

// selection is the selection of one collection: the entry's labels, in one namespace or in all.
type selection struct {
	entry     entry
	namespace string // "": all namespaces of the entry
}

// selects reports whether an object is in the collection, before the filter.
func (s selection) selects(o *object) bool {
	return o != nil && s.entry.x.has(o.x) && (s.namespace == "" || o.namespace == s.namespace) && (!s.entry.exclude || o.namespace != "n2")
}

// passes reports whether consumers should have an object, after the filter.
func (s selection) passes(o *object) bool {
	return s.selects(o) && (!s.entry.filter || s.entry.metadata || o.keep) // with metadataOnly, the filter sees no spec
}

// of returns the objects of a state that the collection selects, by UID.
func (s selection) of(state map[string]object) map[string]object {
	out := map[string]object{}
	for _, o := range state {
		if s.passes(&o) {
			out[o.uid] = o
		}
	}
	return out
}

// possible returns the collections that an entry can have, for any set of namespaces.
func (e entry) possible() (out []selection) {
	if !e.team {
		return []selection{{entry: e}}
	}
	for _, n := range namespaces {
		out = append(out, selection{e, n})
	}
	return out
}

// selections returns the collections that an entry has on a cluster.
func (e entry) selections(c *cluster) (out []selection) {
	if !e.team {
		return []selection{{entry: e}}
	}
	for _, n := range namespaces {
		if s := c.spaces[n]; s.uid != "" && s.team {
			out = append(out, selection{e, n})
		}
	}
	return out
}
