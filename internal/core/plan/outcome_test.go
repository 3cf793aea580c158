package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// world is the input of a plan.
type world struct {
	entries    []Entry
	exclude    []string
	catalog    *discovery.Catalog
	namespaces map[string][]string
	absent     []string // namespaces that are proved to be absent, and of which everything is read
	unread     []string // namespaces that are proved to be absent, and of which something may be unread
	unasked    []string // namespaces of which it is not known whether they exist
}

func (w *world) outcomes(known []Known) Outcomes {
	p := Make(w.entries, w.exclude, w.catalog, labelled(w.namespaces), known)
	return p.Outcomes(known, func(k *Known) Departure {
		c := event.ParseCollection(k.ID)
		switch {
		case slices.Contains(w.absent, c.Namespace):
			return passed
		case slices.Contains(w.unread, c.Namespace):
			return absent
		case slices.Contains(w.unasked, c.Namespace):
			return unasked
		}
		return kept
	})
}

// outline returns a line for each collection, "outcome ID".
func (o *Outcomes) outline() []string {
	var out []string
	for i := range o.Wanted {
		out = append(out, "wanted "+o.Wanted[i].ID())
	}
	for i := range o.Unserved {
		out = append(out, "unserved "+o.Unserved[i].ID())
	}
	add := func(what string, ids []string) {
		for _, id := range ids {
			out = append(out, what+" "+id)
		}
	}
	add("undecided", o.Undecided)
	add("outdated", o.Outdated)
	for i := range o.Ended {
		out = append(out, "ended "+o.Ended[i].ID())
	}
	add("removed", o.Removed)
	return out
}

// known returns all collections in the outcomes, as the checkpoint then has them.
func (o *Outcomes) known(held Held) []Known {
	var out []Known
	for _, line := range o.outline() {
		_, id, _ := strings.Cut(line, " ")
		out = append(out, Known{ID: id, Held: held})
	}
	return out
}

// The test covers the rows of the table of Outcome. Each case begins with a plan, changes configuration or cluster,
// and changes it back. A wrong outcome would lose collections that are wanted again, or keep others.
func TestOutcomes(t *testing.T) {
	prod := func(names ...string) map[string][]string { return map[string][]string{"env=prod": names} }
	served := catalogOf("pods.v1.", "secrets.v1.", "deployments.v1.apps", "widgets.v1.example.com", "gadgets.v1.example.com")
	gone := catalogOf("pods.v1.", "secrets.v1.", "deployments.v1.apps")
	pods := []Entry{{Resource: "pods"}}
	widgets := []Entry{{Resource: "widgets.example.com"}}
	for _, c := range []struct {
		name      string
		before    world // the catalog of this world is served
		after     world // nil fields are as before
		held      Held
		want      []string // after the change
		closed    []string // the IDs that are removed after the change back
		noCatalog bool     // after the change
	}{
		{
			name: "no entry", before: world{entries: []Entry{{Resource: "pods"}, {Resource: "pods", Name: "b", LabelSelector: "b"}}}, after: world{entries: pods}, held: Objects,
			want: []string{"wanted pods", "removed pods:b"},
		},
		{
			name: "no entry of the resource/discovery", before: world{entries: pods}, after: world{entries: widgets}, held: Objects,
			want: []string{"wanted widgets.example.com", "removed pods"}, closed: []string{"widgets.example.com"},
		},
		{
			name: "another name", before: world{entries: pods}, after: world{entries: []Entry{{Resource: "pods", Name: "x"}}}, held: Objects,
			want: []string{"wanted pods:x", "removed pods"}, closed: []string{"pods:x"},
		},
		{
			name: "a swap of two names", before: world{entries: []Entry{{Resource: "pods", Name: "a", LabelSelector: "a"}, {Resource: "pods", Name: "b", LabelSelector: "b"}}},
			after: world{entries: []Entry{{Resource: "pods", Name: "b", LabelSelector: "a"}, {Resource: "pods", Name: "a", LabelSelector: "b"}}}, held: Objects,
			want: []string{"wanted pods:a", "wanted pods:b"},
		},
		{
			name: "all namespaces, then one collection for each", before: world{entries: pods}, after: world{entries: []Entry{{Resource: "pods", Namespaces: []string{"a"}}}}, held: Objects,
			want: []string{"wanted pods@a", "removed pods"}, closed: []string{"pods@a"},
		},
		{
			name: "a namespace leaves namespaces", before: world{entries: []Entry{{Resource: "pods", Namespaces: []string{"a", "b"}}}},
			after: world{entries: []Entry{{Resource: "pods", Namespaces: []string{"a"}}}, absent: []string{"b"}}, held: Objects,
			want: []string{"wanted pods@a", "removed pods@b"},
		},
		{
			name: "a namespace that is named is absent", before: world{entries: []Entry{{Resource: "pods", Namespaces: []string{"a", "b"}}}}, after: world{absent: []string{"b"}}, held: Objects,
			want: []string{"wanted pods@a", "wanted pods@b"},
		},
		{
			name: "no catalog", before: world{entries: pods}, after: world{entries: widgets}, noCatalog: true, held: Objects,
			want: []string{"undecided pods"},
		},
		{
			name: "namespaces not listed yet", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: map[string][]string{}, absent: []string{"a"}}, held: Objects,
			want: []string{"undecided pods@a", "undecided pods@b"},
		},
		{
			name: "a namespace leaves a selector", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b")}, held: Objects,
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "a namespace is excluded", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"a"}}}}, held: Objects,
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "a selected namespace is absent", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), absent: []string{"a"}}, held: Objects, // of a namespace of the same name that is not selected
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "a selected namespace is absent, and its objects have ended", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), absent: []string{"a"}}, held: Empty,
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "a selected namespace is absent, and a pattern leaves the resource out", before: world{entries: []Entry{{Resource: "*.core", NamespaceSelector: "env=prod"}, {Resource: "secrets", NamespaceSelector: "env=prod"}}, namespaces: prod("a")},
			after: world{entries: []Entry{{Resource: "*.core", NamespaceSelector: "env=prod"}}, namespaces: prod(), unread: []string{"a"}}, held: Objects,
			want: []string{"ended pods@a", "removed secrets@a"},
		},
		{
			name: "a selected namespace is absent, and something in it is unread", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), unread: []string{"a"}}, held: Empty,
			want: []string{"wanted pods@b", "ended pods@a"},
		},
		{
			name: "a selected namespace may be absent", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), unasked: []string{"a"}}, held: Empty,
			want: []string{"wanted pods@b", "ended pods@a"},
		},
		{
			name: "a selected namespace is absent, and nothing was published", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), unread: []string{"a"}}, held: Nothing,
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "a selected namespace is absent, as its reader has found out", before: world{entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{namespaces: prod("b"), unread: []string{"a"}}, held: Gone,
			want: []string{"wanted pods@b", "removed pods@a"},
		},
		{
			name: "group unknown", before: world{entries: []Entry{{Resource: "widgets.example.com"}, {Resource: "pods"}}}, after: world{catalog: catalogOf("pods.v1.", "?example.com/v1")}, held: Objects,
			want: []string{"wanted pods", "undecided widgets.example.com"},
		},
		{
			name: "group of a pattern unknown", before: world{entries: []Entry{{Resource: "*.example.com"}}}, after: world{catalog: catalogOf("pods.v1.", "?example.com/v1")}, held: Objects,
			want: []string{"undecided gadgets.example.com", "undecided widgets.example.com"},
		},
		{
			name: "core group unknown, and a short name", before: world{entries: []Entry{{Resource: "de"}}}, after: world{catalog: catalogOf("deployments.v1.apps", "?v1")}, held: Objects,
			want: []string{"undecided deployments.apps"},
		},
		{
			name: "not watchable", before: world{entries: widgets}, after: world{catalog: catalogOf("pods.v1.", "~widgets.v1.example.com")}, held: Objects,
			want: []string{"undecided widgets.example.com"},
		},
		{
			name: "not served", before: world{entries: widgets}, after: world{catalog: gone}, held: Objects,
			want: []string{"unserved widgets.example.com"},
		},
		{
			name: "not served, and no object is left", before: world{entries: widgets}, after: world{catalog: gone}, held: Empty,
			want: []string{"unserved widgets.example.com"},
		},
		{
			name: "not served, and nothing was published", before: world{entries: widgets}, after: world{catalog: gone}, held: Nothing,
			want: []string{"removed widgets.example.com"},
		},
		{
			name: "not served, and of a pattern and a name", before: world{entries: []Entry{{Resource: "widgets"}, {Resource: "*.example.com"}}}, after: world{catalog: gone}, held: Objects,
			want: []string{"unserved gadgets.example.com", "unserved widgets.example.com"},
		},
		{
			name: "not served, and not configured any more", before: world{entries: []Entry{{Resource: "widgets.example.com"}, {Resource: "pods"}}}, after: world{entries: pods, catalog: gone}, held: Objects,
			want: []string{"wanted pods", "removed widgets.example.com"},
		},
		{
			name: "not served, and a namespace leaves", before: world{entries: []Entry{{Resource: "widgets.example.com", Namespaces: []string{"a", "b"}}}},
			after: world{entries: []Entry{{Resource: "widgets.example.com", Namespaces: []string{"a"}}}, catalog: gone}, held: Objects,
			want: []string{"unserved widgets.example.com@a", "removed widgets.example.com@b"},
		},
		{
			name: "a name that nothing has keeps nothing else", before: world{entries: pods}, after: world{entries: []Entry{{Resource: "unicorns"}}}, held: Objects,
			want: []string{"removed pods"},
		},
		{
			name: "a version that is not served", before: world{entries: []Entry{{Resource: "deployments.apps"}}}, after: world{entries: []Entry{{Resource: "deployments.v2.apps", LabelSelector: "x"}}}, held: Objects,
			want: []string{"undecided deployments.apps"},
		},
		{
			name: "a version that is not served, by a short name", before: world{entries: []Entry{{Resource: "de.v1.apps"}}}, after: world{entries: []Entry{{Resource: "de.v2.apps"}}}, held: Objects,
			want: []string{"undecided deployments.apps"},
		},
		{
			name: "a version that is not served, of one of two entries", before: world{entries: []Entry{{Resource: "deployments.v1.apps"}, {Resource: "deployments.v1.apps", Name: "b", LabelSelector: "b"}}},
			after: world{entries: []Entry{{Resource: "deployments.v2.apps", LabelSelector: "b"}, {Resource: "deployments.v1.apps", Name: "b"}}}, held: Objects,
			want: []string{"wanted deployments.apps:b", "undecided deployments.apps"},
		},
		{
			name: "a version that is not served, and the other entry is removed", before: world{entries: []Entry{{Resource: "deployments.v1.apps"}, {Resource: "deployments.v1.apps", Name: "b", LabelSelector: "b"}}},
			after: world{entries: []Entry{{Resource: "deployments.v2.apps"}}}, held: Objects,
			want: []string{"undecided deployments.apps", "removed deployments.apps:b"},
		},
		{
			name: "contradicts the server now", before: world{entries: []Entry{{Resource: "widgets.example.com", Namespaces: []string{"a"}}}}, after: world{catalog: catalogOf("pods.v1.", "-widgets.v1.example.com")}, held: Objects,
			want: []string{"undecided widgets.example.com@a"},
		},
		{
			name: "a pattern leaves it out", before: world{entries: []Entry{{Resource: "*.example.com"}}}, after: world{exclude: []string{"widgets.example.com"}}, held: Objects,
			want: []string{"wanted gadgets.example.com", "removed widgets.example.com"},
		},
		{
			name: "a pattern leaves it out that is not served", before: world{entries: []Entry{{Resource: "*.example.com"}}}, after: world{exclude: []string{"widgets.example.com"}, catalog: gone}, held: Objects,
			want: []string{"unserved gadgets.example.com", "removed widgets.example.com"},
		},
		{
			name: "an entry names what a pattern took in", before: world{entries: []Entry{{Resource: "*.example.com"}}}, after: world{entries: []Entry{{Resource: "*.example.com"}, {Resource: "widgets.example.com", Name: "x"}}}, held: Objects,
			want: []string{"wanted gadgets.example.com", "wanted widgets.example.com:x", "removed widgets.example.com"}, closed: []string{"widgets.example.com:x"},
		},
		{
			name: "all of a pattern is excluded, and it is not served", before: world{entries: []Entry{{Resource: "*.*"}}, exclude: []string{"*.apps"}},
			after: world{exclude: []string{"*.apps", "*.example.com"}, catalog: gone}, held: Objects,
			want: []string{"wanted pods", "removed gadgets.example.com", "removed widgets.example.com"},
		},
		{
			name: "a selected namespace is excluded, and the resource is not served", before: world{entries: []Entry{{Resource: "widgets.example.com", NamespaceSelector: "env=prod"}}, namespaces: prod("a", "b")},
			after: world{entries: []Entry{{Resource: "widgets.example.com", NamespaceSelector: "env=prod", ExcludeNamespaces: []string{"a"}}}, catalog: gone}, held: Objects,
			want: []string{"unserved widgets.example.com@b", "removed widgets.example.com@a"},
		},
		{
			name: "an entry names a version of what a pattern took in, and it is not served", before: world{entries: []Entry{{Resource: "*.example.com"}}},
			after: world{entries: []Entry{{Resource: "*.example.com"}, {Resource: "widgets.v1.example.com", Name: "x"}}, catalog: gone}, held: Objects,
			want: []string{"unserved gadgets.example.com", "removed widgets.example.com"},
		},
		{
			name: "an entry names what a pattern took in, and it is not served", before: world{entries: []Entry{{Resource: "*.example.com"}}},
			after: world{entries: []Entry{{Resource: "*.example.com"}, {Resource: "widgets.example.com", Name: "x"}}, catalog: gone}, held: Objects,
			want: []string{"unserved gadgets.example.com", "removed widgets.example.com"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before.catalog = served
			after := c.before
			if c.after.entries != nil {
				after.entries = c.after.entries
			}
			if c.after.namespaces != nil {
				after.namespaces = c.after.namespaces
			}
			switch {
			case c.noCatalog:
				after.catalog = nil
			case c.after.catalog != nil:
				after.catalog = c.after.catalog
			}
			after.exclude, after.absent, after.unread, after.unasked = c.after.exclude, c.after.absent, c.after.unread, c.after.unasked

			first := c.before.outcomes(nil)
			changed := after.outcomes(first.known(c.held))
			if diff := cmp.Diff(c.want, changed.outline()); diff != "" {
				t.Fatal(diff)
			}
			again := after.outcomes(changed.known(c.held))
			if diff := cmp.Diff(c.want, again.outline()); diff != "" {
				t.Errorf("the second time: %s", diff)
			}
			back := c.before.outcomes(changed.known(c.held))
			want := first.outline()
			for _, id := range c.closed {
				want = append(want, "removed "+id)
			}
			if diff := cmp.Diff(want, back.outline()); diff != "" {
				t.Errorf("changed back: %s", diff)
			}
		})
	}
}

// A version that does not answer discovery for a moment must not move a collection to another version: rules may not fit its paths, and a gap would
// follow, and another one back. A version that the group does not prefer makes no difference, so that one that never answers does not keep others
// from being read.
func TestUnknownVersions(t *testing.T) {
	for _, c := range []struct {
		resource string
		catalog  []string
		want     string
	}{
		{"widgets.example.com", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"*.example.com", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"*.*", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"widgets", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"wi", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"widgets.v1beta1.example.com", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "wanted widgets.example.com"},
		{"widgets.v1.example.com", []string{"widgets.v1beta1.example.com", "?example.com/v1"}, "undecided widgets.example.com"},
		{"widgets.example.com", []string{"widgets.v1.example.com", "?example.com/v1beta1"}, "wanted widgets.example.com"},
		{"*.example.com", []string{"widgets.v1.example.com", "?example.com/v1beta1"}, "wanted widgets.example.com"},
		{"*.example.com", []string{"widgets.v1.example.com", "?other.com/v1"}, "wanted widgets.example.com"},
	} {
		w := world{entries: []Entry{{Resource: c.resource}}, catalog: catalogOf(c.catalog...)}
		out := w.outcomes([]Known{{ID: "widgets.example.com", Held: Objects}})
		if got := out.outline(); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s with %q: %q, want %q", c.resource, c.catalog, got, c.want)
		}
	}
}

// An edit holds for a collection also while it is not decided what becomes of it: otherwise what the entry hides now would be published in clear.
func TestOutdated(t *testing.T) {
	short := []Entry{{Resource: "ga"}, {Resource: "wi", Options: 1}}
	for name, c := range map[string]struct {
		before, after []Entry
		unlisted      bool // the namespaces are not listed after the edit; else the group is unknown
		want          string
	}{
		"no edit":               {[]Entry{{Resource: "widgets.example.com", Options: 1}}, []Entry{{Resource: "widgets.example.com", Options: 1, Place: "2:1"}}, false, "undecided"},
		"other options":         {[]Entry{{Resource: "widgets.example.com"}}, []Entry{{Resource: "widgets.example.com", Options: 1}}, false, "outdated"},
		"metadata only":         {[]Entry{{Resource: "widgets.example.com"}}, []Entry{{Resource: "widgets.example.com", MetadataOnly: true}}, false, "outdated"},
		"a label selector":      {[]Entry{{Resource: "*.*"}}, []Entry{{Resource: "*.*", LabelSelector: "x"}}, false, "undecided"},
		"an excluded namespace": {[]Entry{{Resource: "*.*"}}, []Entry{{Resource: "*.*", ExcludeNamespaces: []string{"a"}}}, false, "undecided"},
		"another entry":         {[]Entry{{Resource: "*.*"}}, []Entry{{Resource: "*.*"}, {Resource: "widgets.example.com", Options: 1}}, false, "outdated"},
		"two short names":       {short, short, false, "undecided"},
		"one of two short names": {
			[]Entry{{Resource: "ga", Options: 1}, {Resource: "wi"}}, []Entry{{Resource: "ga"}, {Resource: "wi", Options: 1}}, false, "outdated",
		},
		"namespaces not listed": {[]Entry{{Resource: "widgets.example.com", NamespaceSelector: "b"}}, []Entry{{Resource: "widgets.example.com", NamespaceSelector: "a"}}, true, "undecided"},
		"namespaces not listed, and other options": {
			[]Entry{{Resource: "widgets.example.com", NamespaceSelector: "b"}}, []Entry{{Resource: "widgets.example.com", NamespaceSelector: "a", Options: 1}}, true, "outdated",
		},
	} {
		w := world{entries: c.before, catalog: catalogOf("widgets.v1.example.com", "gadgets.v1.example.com"), namespaces: map[string][]string{"b": {"n"}}}
		first := w.outcomes(nil)
		var known []Known
		for i := range first.Wanted {
			if last := &first.Wanted[i]; last.Target.Collection.Resource == "widgets" {
				known = append(known, Known{ID: last.ID(), Held: Objects, Last: last})
			}
		}
		w.entries = c.after
		if !c.unlisted {
			w.catalog = catalogOf("?example.com/v1")
		}
		out := w.outcomes(known)
		if want := c.want + " " + known[0].ID; !slices.Equal(out.outline(), []string{want}) {
			t.Errorf("%s: %q, want %q", name, out.outline(), want)
		}
	}
}

// A collection that is removed waits for the entries that may replace it, and for no other ones.
func TestLacks(t *testing.T) {
	for name, c := range map[string]struct {
		entries []Entry
		catalog []string
		want    bool
	}{
		"renamed":                        {[]Entry{{Resource: "widgets.example.com", Name: "x"}}, []string{"widgets.v1.example.com"}, false},
		"renamed, not served":            {[]Entry{{Resource: "widgets.v3.example.com", Name: "x"}}, []string{"widgets.v1.example.com"}, true},
		"renamed, another version known": {[]Entry{{Resource: "widgets.v1beta1.example.com", Name: "x"}}, []string{"widgets.v1beta1.example.com", "?example.com/v1"}, false},
		"renamed, its version unknown":   {[]Entry{{Resource: "widgets.example.com", Name: "x"}}, []string{"widgets.v1beta1.example.com", "?example.com/v1"}, true},
		"renamed, namespaces not listed": {[]Entry{{Resource: "widgets.example.com", Name: "x", NamespaceSelector: "a"}}, []string{"widgets.v1.example.com"}, true},
		"its namespace is gone": {
			[]Entry{{Resource: "widgets.example.com", NamespaceSelector: "b"}, {Resource: "widgets.v3.example.com", Name: "y"}}, []string{"widgets.v1.example.com"}, false,
		},
	} {
		w := world{entries: c.entries, catalog: catalogOf(c.catalog...), namespaces: map[string][]string{"b": nil}, absent: []string{"n"}}
		out := w.outcomes([]Known{{ID: "widgets.example.com@n", Held: Objects}})
		if !slices.Contains(out.Removed, "widgets.example.com@n") {
			t.Errorf("%s: %q, want it removed", name, out.outline())
		}
		if got := out.Lacks("widgets.example.com@n"); got != c.want {
			t.Errorf("%s: Lacks is %t", name, got)
		}
	}
}

// A collection whose resource is not served keeps its recorded selection. Another one would be an edit, and a gap.
func TestUnservedKeepsItsSelection(t *testing.T) {
	w := world{entries: []Entry{{Resource: "*.*", ExcludeNamespaces: []string{"a"}, LabelSelector: "x", Options: 7}}, catalog: catalogOf("pods.v1.")}
	out := w.outcomes([]Known{{ID: "widgets.example.com", Held: Objects, Selection: "labels=old"}})
	if len(out.Unserved) != 1 {
		t.Fatalf("got %v", out.outline())
	}
	c := out.Unserved[0]
	if c.Selection != "labels=old" || c.Target.Resource.Version != "" || c.Target.Resource.Group != "example.com" || c.Options != 7 {
		t.Errorf("got %+v", c)
	}
}

// The selection of a collection whose namespace was deleted is that of its target. With the recorded one, an edit would not lead to a list, and the
// deletions of what was selected before would be missing.
func TestEndedHasTheSelectionOfItsTarget(t *testing.T) {
	for name, c := range map[string]struct {
		entry     Entry
		selection string
		version   string // "": it is not read
	}{
		"an edit":                {Entry{Resource: "deployments.apps", LabelSelector: "app=b"}, "labels=app=b", "v1"},
		"a pattern":              {Entry{Resource: "*.apps", LabelSelector: "app=b"}, "labels=app=b", "v1"},
		"a version":              {Entry{Resource: "deployments.v1beta1.apps"}, "", "v1beta1"},
		"a version that is gone": {Entry{Resource: "deployments.v2.apps"}, "recorded", ""},
		"a rule that is wrong":   {Entry{Resource: "*.apps", Redacted: []string{"de"}}, "recorded", ""},
	} {
		c.entry.NamespaceSelector = "env=prod"
		w := world{entries: []Entry{c.entry}, catalog: ordinary().WithAggregated([]string{"apps"}), namespaces: map[string][]string{"env=prod": nil}, unread: []string{"a"}}
		out := w.outcomes([]Known{{ID: "deployments.apps@a", Held: Objects, Selection: "recorded", Storage: "apps"}})
		if len(out.Ended) != 1 {
			t.Errorf("%s: %q", name, out.outline())
			continue
		}
		got := out.Ended[0]
		if got.ID() != "deployments.apps@a" || got.Selection != c.selection || got.Target.Resource.Version != c.version || got.Storage != "apps" {
			t.Errorf("%s: got %+v", name, got)
		}
		if c.version != "" && SelectionOf(&got.Target.Collection) != got.Selection {
			t.Errorf("%s: the target selects %q, and the selection is %q", name, SelectionOf(&got.Target.Collection), got.Selection)
		}
	}
}

// An entry that names a resource by its plural has priority over a pattern, also while the resource is not served.
// Otherwise the options of the pattern's entry would be an edit.
func TestUnservedKeepsItsEntry(t *testing.T) {
	entries := []Entry{{Resource: "*.*", Options: "pattern"}, {Resource: "widgets", Options: "named"}}
	w := world{entries: entries, catalog: catalogOf("pods.v1.")}
	out := w.outcomes([]Known{{ID: "widgets.example.com", Held: Objects}, {ID: "gadgets.example.com", Held: Objects}})
	if len(out.Unserved) != 2 || out.Unserved[0].Options != "pattern" || out.Unserved[1].Options != "named" {
		t.Errorf("got %v, %+v", out.outline(), out.Unserved)
	}
	p := Make(append(entries, Entry{Resource: "ga", Name: "short"}), nil, w.catalog, nil, nil)
	for id, want := range map[string]string{
		"pods": "*.*", "widgets.example.com": "widgets", "gadgets.example.com": "*.*", "gadgets.example.com:short": "", "widgets.example.com:other": "",
	} {
		c := event.ParseCollection(id)
		got := ""
		if e := p.Entry(&c); e != nil {
			got = e.Resource
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", id, got, want)
		}
	}
}

// Two resources in one etcd notice a restore together. The server of an APIService has a history of its own, which
// must not reset the others (an epoch is per storage). If the storage could not be found out, the recorded one is
// kept, because another storage means a reset.
func TestStorage(t *testing.T) {
	entries := []Entry{{Resource: "pods"}, {Resource: "packages.v1.operators.example.com"}}
	served := ordinary("packages.v1.operators.example.com")
	storages := func(catalog *discovery.Catalog, known ...Known) string {
		p := Make(entries, nil, catalog, nil, nil)
		out := p.Outcomes(known, nil)
		var text []string
		for _, list := range [][]Collection{out.Wanted, out.Unserved} {
			for i := range list {
				storage := list[i].Storage
				if storage == "" {
					storage = "-"
				}
				text = append(text, list[i].ID()+" "+storage)
			}
		}
		return strings.Join(text, ", ")
	}
	aggregated := served.WithAggregated([]string{"operators.example.com"})
	recorded := []Known{{ID: "packages.operators.example.com", Held: Objects, Storage: "operators.example.com"}, {ID: "pods", Held: Objects}}
	for name, c := range map[string]struct{ got, want string }{
		"aggregated":                   {storages(aggregated), "packages.operators.example.com operators.example.com, pods -"},
		"a CustomResourceDefinition":   {storages(served.WithAggregated([]string{})), "packages.operators.example.com -, pods -"},
		"no longer aggregated":         {storages(served.WithAggregated([]string{}), recorded...), "packages.operators.example.com -, pods -"},
		"not known":                    {storages(served), "packages.operators.example.com -, pods -"},
		"not known, and it was before": {storages(served, recorded...), "packages.operators.example.com operators.example.com, pods -"},
		"not served":                   {storages(ordinary().WithAggregated([]string{}), recorded...), "pods -, packages.operators.example.com operators.example.com"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}
