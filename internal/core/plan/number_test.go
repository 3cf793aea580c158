package plan

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// of returns the plan that events of a collection carry.
func of(n Numbers, id string) event.Plan {
	c := event.ParseCollection(id)
	return *n.Of(&c)
}

// If a plan is changed back, it must have another number. Otherwise a consumer would take it for the earlier plan, and
// its copies would lack the events in between.
func TestNumbersThereAndBack(t *testing.T) {
	ab := map[string]string{"pods": "1", "pods:b": "1"}
	for name, changed := range map[string]map[string]string{
		"edited":  {"pods": "2", "pods:b": "1"},
		"removed": {"pods": "1"},
		"renamed": {"pods": "1", "pods:c": "1"},
		"all":     {},
	} {
		t.Run(name, func(t *testing.T) {
			first, changes := Numbers{}.next(ab, 100)
			if first.Birth != 100 || first.Number != 100 || !slices.Equal(changes.Resources, []string{"pods"}) || !slices.Equal(changes.Edited, []string{"pods", "pods:b"}) {
				t.Fatalf("got %+v, %+v", first, changes)
			}
			second, _ := first.next(changed, 90) // the clock was set back
			third, changes := second.next(ab, 95)
			if second.Number != 101 || third.Number != 102 || third.Birth != 100 {
				t.Errorf("numbers %d and %d, birth %d", second.Number, third.Number, third.Birth)
			}
			if !slices.Equal(changes.Resources, []string{"pods"}) || len(changes.Edited) == 0 {
				t.Errorf("got %+v", changes)
			}
			if of(first, "pods").Digest == of(third, "pods").Digest {
				t.Error("changed back, the plan has the first digest")
			}
			for _, id := range changes.Edited {
				if of(third, id).Edit != third.Number {
					t.Errorf("%s has edit %d", id, of(third, id).Edit)
				}
			}
		})
	}
}

// A restart, and a catalog that is unknown for a while, change nothing.
func TestNumbersOfWhatIsNotKnown(t *testing.T) {
	first, _ := Numbers{}.next(map[string]string{"pods": "1", "pods:b": "2"}, 100)
	for name, wanted := range map[string]map[string]string{
		"undecided":                             {"pods": asBefore, "pods:b": asBefore},
		"unserved":                              {"pods": unspecified, "pods:b": "2"},
		"removed before, and undecided now":     {"pods": "1", "pods:b": "2", "pods:c": asBefore},
		"a restart with the same configuration": {"pods": "1", "pods:b": "2"},
	} {
		next, changes := first.next(wanted, 200)
		if !bytes.Equal(next.Encode(), first.Encode()) || changes.Resources != nil || changes.Edited != nil {
			t.Errorf("%s: got %+v, %+v", name, next, changes)
		}
	}
	next, changes := first.next(map[string]string{"pods": "1", "pods:b": "2", "pods:c": unspecified}, 200)
	if len(next.Edits) != 3 || !slices.Equal(changes.Edited, []string{"pods:c"}) {
		t.Errorf("a collection that is wanted again while it is not served: %+v, %+v", next, changes)
	}
}

// Consumers of a closed collection, and of a resource without collections, receive the plan that does not have the
// collection.
func TestNumbersOfARemovedCollection(t *testing.T) {
	first, _ := Numbers{}.next(map[string]string{"pods": "1"}, 100)
	second, changes := first.next(map[string]string{}, 200)
	want := event.Plan{Number: 200, Digest: event.PlanDigest(nil), Edit: 200, Birth: 100}
	if got := of(second, "pods"); got != want || !slices.Equal(changes.Resources, []string{"pods"}) {
		t.Errorf("got %+v, %+v", got, changes)
	}
	empty, _ := Numbers{}.next(nil, 100)
	if empty.Birth != 100 {
		t.Error("a checkpoint without collections has no birth")
	}
	if again, _ := empty.next(nil, 300); again.Number != empty.Number || again.Birth != 100 {
		t.Errorf("got %+v", again)
	}
}

// history returns a resource's collections with their edits, and whether they differ from those before.
func history(before, after Numbers, resource string) (text string, differs bool) {
	edits := func(n Numbers) (text string) {
		for _, id := range slices.Sorted(maps.Keys(n.Edits)) {
			if c := event.ParseCollection(id); c.ResourceID() == resource {
				text += fmt.Sprintf(" %s=%d", id, n.Edits[id].Number)
			}
		}
		return text
	}
	return edits(after), edits(before) != edits(after)
}

// TestNumbersOfAnyHistory makes random changes, with restarts. Number and edits only grow. Equal digests mean equal
// collections with equal edits, and a resource whose collections do not change keeps its digest.
func TestNumbersOfAnyHistory(t *testing.T) {
	ids := []string{"pods", "pods:b", "pods@a", "deployments.apps", "deployments.apps:x@a"}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		n, now := Numbers{}, uint64(1000)
		digests := map[string]string{} // the collections with each digest
		for range 40 {
			wanted := map[string]string{}
			for _, id := range ids {
				if v := random.IntN(4); v > 0 {
					wanted[id] = fmt.Sprint(v)
				}
			}
			now = now + uint64(random.IntN(20)) - 5
			next, changes := n.next(wanted, now)
			same, _ := n.next(maps.Clone(wanted), now)
			if !bytes.Equal(next.Encode(), same.Encode()) {
				t.Fatalf("seed %d: the same input led to %s and %s", seed, next.Encode(), same.Encode())
			}
			restarted, err := Decode(next.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if again, changes := restarted.next(wanted, now+1000); !bytes.Equal(again.Encode(), next.Encode()) || changes.Resources != nil {
				t.Fatalf("seed %d: a restart led from %s to %s", seed, next.Encode(), again.Encode())
			}
			for _, resource := range []string{"pods", "deployments.apps"} {
				text, differs := history(n, next, resource)
				got := of(restarted, resource)
				if got != of(next, resource) {
					t.Fatalf("seed %d: a restart led from %+v to %+v", seed, of(next, resource), got)
				}
				if known, ok := digests[got.Digest]; ok && known != text {
					t.Fatalf("seed %d: one digest of %q and %q", seed, known, text)
				}
				digests[got.Digest] = text
				if differs != slices.Contains(changes.Resources, resource) || differs != (got.Digest != of(n, resource).Digest) {
					t.Fatalf("seed %d: %s differs: %t, but the changes are %+v", seed, resource, differs, changes)
				}
			}
			for id, e := range next.Edits {
				if before := n.Edits[id]; e.Properties != wanted[id] || e.Number < before.Number || e != before && e.Number != next.Number {
					t.Fatalf("seed %d: %s has %+v, was %+v", seed, id, e, before)
				}
			}
			if changed := len(changes.Resources) > 0; n.Birth != 0 && changed != (next.Number > n.Number) {
				t.Fatalf("seed %d: number %d follows %d, changes %+v", seed, next.Number, n.Number, changes)
			}
			n = restarted
		}
	}
}

// A checkpoint that cannot be parsed is an error and not an empty checkpoint. Otherwise the numbers would begin again.
func TestDecodeNumbers(t *testing.T) {
	if _, err := Decode([]byte("{")); err == nil {
		t.Error("no error")
	}
	if n, err := Decode(nil); err != nil || n.Birth != 0 {
		t.Errorf("got %+v, %v", n, err)
	}
	n, _ := Numbers{}.next(map[string]string{"pods@a": "x", "pods:b": "y"}, 7)
	if got, want := string(n.Encode()), `{"number":7,"birth":7,"edits":{"pods:b":{"number":7,"properties":"y"},"pods@a":{"number":7,"properties":"x"}}}`; got != want {
		t.Errorf("got %s", got)
	}
}

// If the first list is to be skipped, the first list of a collection that is added later is not skipped, because its
// objects would be missing. This also holds after restarts, and for entries that had no collection at first.
func TestFirstCollectionsOfAnEntry(t *testing.T) {
	selected := func(names ...string) world {
		return world{
			entries: []Entry{{Resource: "pods", NamespaceSelector: "env=prod"}}, catalog: ordinary(),
			namespaces: map[string][]string{"env=prod": names},
		}
	}
	group := func(catalog ...string) world {
		return world{entries: []Entry{{Resource: "*.apps"}}, catalog: catalogOf(catalog...)}
	}
	widgets := func(catalog ...string) world {
		return world{entries: []Entry{{Resource: "widgets.example.com"}}, catalog: catalogOf(catalog...)}
	}
	for _, c := range []struct {
		name   string
		worlds []world
		want   []string // of the last plan
	}{
		{"all at first", []world{selected("a", "b")}, []string{"pods@a first", "pods@b first"}},
		{"a namespace comes", []world{selected("a"), selected("a", "b")}, []string{"pods@a first", "pods@b"}},
		{"a namespace comes where there was none", []world{selected(), selected("b")}, []string{"pods@b"}},
		{"a namespace leaves and returns", []world{selected("a", "b"), selected("b"), selected("a", "b")}, []string{"pods@a", "pods@b first"}},
		{
			"the namespaces are not known for a while",
			[]world{selected("a"), {entries: selected().entries, catalog: ordinary()}, selected("a", "b")},
			[]string{"pods@a first", "pods@b"},
		},
		{"the entry is removed and put back", []world{selected("a"), {catalog: ordinary()}, selected("a", "b")}, []string{"pods@a first", "pods@b first"}},
		{"the catalog is not known for a while", []world{selected("a"), {entries: selected().entries}, selected("a", "b")}, []string{"pods@a first", "pods@b"}},
		{
			"a part of a group is not known at first",
			[]world{group("deployments.v1.apps", "?apps/v1beta1"), group("deployments.v1.apps", "others.v2.apps"), group("deployments.v1.apps", "others.v2.apps", "more.v2.apps")},
			[]string{"deployments.apps first", "more.apps", "others.apps first"},
		},
		{
			"the preferred version of a group is not known at first",
			[]world{group("deployments.v1.apps", "?apps/v2"), group("deployments.v1.apps", "others.v2.apps"), group("deployments.v1.apps", "others.v2.apps", "more.v2.apps")},
			[]string{"deployments.apps first", "more.apps", "others.apps first"},
		},
		{"the resource is not there at first", []world{widgets("pods.v1."), widgets("widgets.v1.example.com")}, []string{"widgets.example.com first"}},
		{"the resource goes and returns", []world{widgets("widgets.v1.example.com"), widgets("pods.v1."), widgets("widgets.v1.example.com")}, []string{"widgets.example.com first"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := Numbers{}
			var known []Known
			for i, w := range c.worlds {
				out := w.outcomes(known)
				n, _ = n.Next(&out, func(*Collection) string { return "1" }, uint64(100+i))
				known = out.known(Objects)
				var err error
				if n, err = Decode(n.Encode()); err != nil {
					t.Fatal(err)
				}
				same, changes := n.Next(&out, func(*Collection) string { return "1" }, 1000)
				if !bytes.Equal(same.Encode(), n.Encode()) || changes.Edited != nil {
					t.Errorf("after a restart: %s, was %s", same.Encode(), n.Encode())
				}
			}
			var got []string
			out := c.worlds[len(c.worlds)-1].outcomes(known)
			edited, _ := n.Next(&out, func(*Collection) string { return "2" }, 1000)
			for _, id := range slices.Sorted(maps.Keys(n.Edits)) {
				if edited.First(id) != n.First(id) {
					t.Errorf("an edit changes whether %s is one of the first", id)
				}
				if n.First(id) {
					id += " first"
				}
				got = append(got, id)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A configured namespace that does not exist yet has no events. A consumer that waited for its collection would never
// have a complete copy.
func TestNumbersOfACollectionOfNothing(t *testing.T) {
	w := world{entries: []Entry{{Resource: "pods", Namespaces: []string{"a", "later"}}}, catalog: ordinary()}
	n := Numbers{}
	for i, c := range []struct {
		held Held
		want []string
	}{
		{Nothing, []string{"pods@a", "pods@later"}},
		{NothingExists, []string{"pods@a"}},
		{Objects, []string{"pods@a", "pods@later"}},
	} {
		out := w.outcomes([]Known{{ID: "pods@later", Held: c.held}, {ID: "pods@a", Held: Objects}})
		next, changes := n.Next(&out, func(*Collection) string { return "1" }, uint64(100+i))
		if got := slices.Sorted(maps.Keys(next.Edits)); !slices.Equal(got, c.want) || !slices.Equal(changes.Resources, []string{"pods"}) || next.Number <= n.Number {
			t.Errorf("step %d: got %v, %+v", i, got, changes)
		}
		n = next
	}
	if n.First("pods@later") || !n.First("pods@a") {
		t.Errorf("got %+v", n.Edits)
	}
}

// TestReborn: a reset increases number and birth, also if the clock was set back. Edits and digests stay.
func TestReborn(t *testing.T) {
	if got := (Numbers{}).Reborn(7); got.Number != 0 || got.Birth != 0 {
		t.Errorf("an empty checkpoint was reset: %+v", got)
	}
	n := Numbers{Number: 20, Birth: 10, Edits: map[string]Edit{"pods": {Number: 20}}}
	for _, x := range []struct{ now, number, birth uint64 }{{30, 30, 30}, {5, 21, 11}} {
		got := n.Reborn(x.now)
		if got.Number != x.number || got.Birth != x.birth || got.Edits["pods"].Number != 20 {
			t.Errorf("at %d: %+v", x.now, got)
		}
		if again, err := Decode(got.Encode()); err != nil || again.Birth != x.birth {
			t.Errorf("read again: %+v, %v", again, err)
		}
	}
}

// Until the namespaces of an entry are listed for the first time, the digest of the resource must not match the
// collections that exist. Otherwise copies would count as complete without the objects of that entry.
func TestNumbersBeforeNamespacesAreListed(t *testing.T) {
	entries := []Entry{{Resource: "pods", Name: "all"}, {Resource: "pods", NamespaceSelector: "env=prod"}}
	unknown := world{entries: entries, catalog: ordinary()}
	listed := world{entries: entries, catalog: ordinary(), namespaces: map[string][]string{"env=prod": {"a"}}}
	digestOf := func(n Numbers, ids ...string) bool {
		edits := map[string]uint64{}
		for _, id := range ids {
			edits[id] = n.Edits[id].Number
		}
		c := event.ParseCollection("pods:all")
		return n.Of(&c).Digest == event.PlanDigest(edits)
	}
	n, known := Numbers{}, []Known(nil)
	for i, c := range []struct {
		what     string
		world    world
		edited   []string
		complete []string // the collections that the digest covers; nil: none
	}{
		{"not listed yet", unknown, []string{"pods:all"}, nil},
		{"not listed yet, after a restart", unknown, nil, nil},
		{"listed", listed, []string{"pods@a"}, []string{"pods:all", "pods@a"}},
		{"not listed yet, after a restart", unknown, nil, []string{"pods:all", "pods@a"}},
	} {
		out := c.world.outcomes(known)
		next, changes := n.Next(&out, func(*Collection) string { return "1" }, uint64(100+i))
		if !slices.Equal(changes.Edited, c.edited) {
			t.Errorf("%s: edited %q, want %q", c.what, changes.Edited, c.edited)
		}
		if c.edited == nil && next.Number != n.Number {
			t.Errorf("%s: another plan", c.what)
		}
		if c.complete == nil && digestOf(next, "pods:all") || c.complete != nil && !digestOf(next, c.complete...) {
			t.Errorf("%s: the digest of %v", c.what, next.Edits)
		}
		n, known = next, out.known(Objects)
	}
}
