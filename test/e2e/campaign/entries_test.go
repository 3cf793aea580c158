package campaign

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// sharedHistory is a correct history of a resource with two entries. One object moves from the first entry to the second, one stays, one is
// deleted, and one is created after the API server has lost the history. At the end, the second entry selects another value.
type sharedHistory struct {
	*entriesVerdict
	script script
	start  time.Time
}

const (
	shared = "gadgets"
	crewA  = shared + ":a"
	crewB  = shared + ":b"
)

func sharedRight() *sharedHistory {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := &sharedHistory{start: start, entriesVerdict: &entriesVerdict{
		sink: "sink", pair: Pair{Bus: "nats", Delivery: "exactly-once"}, truth: newGadgetTruth(), resource: shared,
		editions: []edition{{since: start, entries: []entry{{name: "a", selectBy: byLabel, values: []string{"a"}}, {name: "b", selectBy: byLabel, values: []string{"b"}}}}},
		happened: []happening{{"entries' history expired (410)", start.Add(15 * time.Second)}},
	}}
	for _, o := range []*gadget{
		{uid: "moves", states: []gadgetState{{rv: 11, value: "a"}, {rv: 15, value: "b"}}},
		{uid: "stays", states: []gadgetState{{rv: 12, value: "a"}}},
		{uid: "ends", states: []gadgetState{{rv: 13, value: "a"}}, deleted: true, after: 13, before: 17},
		{uid: "new", states: []gadgetState{{rv: 20, value: "b"}}},
	} {
		for i := range o.states {
			s := &o.states[i]
			s.namespace, s.name, s.shown, s.stamp = "n", o.uid, true, fmt.Sprint(s.rv)
		}
		h.truth.objects[o.uid] = o
	}
	h.script.configure(crewA, crewB)
	h.of("gap", crewA, 0, "reset")         // 0
	h.about("present", crewA, "moves", 11) // 1
	h.about("present", crewA, "stays", 12) // 2
	h.about("present", crewA, "ends", 13)  // 3
	h.of("synced", crewA, 13, "reset")
	h.of("gap", crewB, 0, "reset") // 5
	h.of("synced", crewB, 14, "reset")
	h.about("added", crewB, "moves", 15)   // 7
	h.about("deleted", crewA, "moves", 15) // 8
	h.about("deleted", crewA, "ends", 16)  // 9
	for range 8 {                          // so that the following events are later than the fault
		h.start = h.start.Add(time.Second)
	}
	h.of("gap", crewB, 15, "expired")  // 10
	h.about("added", crewB, "new", 20) // 11
	h.of("synced", crewB, 21, "expired")
	h.of("synced", crewA, 22, "periodic") // 13
	return h
}

func (h *sharedHistory) of(typ, collection string, rv int, reason string) {
	h.add(h.script.collection(typ, collection, shared, fmt.Sprint(rv), bus.Data{Reason: reason}))
}

// about adds an event about an object. The deletion of an object that still exists has the reason left.
func (h *sharedHistory) about(typ, collection, uid string, rv int) {
	m := h.script.about(typ, collection, shared, uid, "n/"+uid, fmt.Sprint(rv))
	if o := h.truth.objects[uid]; typ == "deleted" && o != nil && !o.deleted {
		m.Data.Reason = "left"
	}
	if s, ok := h.truth.objects[uid].find(uint64(rv)); ok {
		m.Data.Object, _ = json.Marshal(map[string]any{
			"metadata": map[string]any{"labels": map[string]any{gadgetLabel: s.value}}, "spec": map[string]any{"stamp": s.stamp},
		})
	}
	h.add(m)
}

func (h *sharedHistory) add(m bus.Message) {
	h.start = h.start.Add(time.Second)
	m.Place, m.Attributes["time"] = fmt.Sprintf("nats:%d", len(h.messages)+1), h.start.Format(time.RFC3339Nano)
	h.messages = append(h.messages, m)
}

func (h *sharedHistory) judge() []string {
	for i := range h.messages {
		h.messages[i].Raw = raw(&h.messages[i])
	}
	return h.entriesVerdict.judge()
}

// became gives an object another state, with a request at the present time of the history.
func (h *sharedHistory) became(uid string, rv uint64, value string) {
	o := h.truth.objects[uid]
	o.states = append(o.states, gadgetState{rv: rv, namespace: "n", name: uid, value: value, stamp: fmt.Sprint(rv), shown: true, asked: h.start})
}

// died records that an object was deleted between two versions.
func (h *sharedHistory) died(uid string, after, before uint64, asked time.Time) {
	o := h.truth.objects[uid]
	o.deleted, o.after, o.before, o.asked = true, after, before, asked
}

func (h *sharedHistory) cut(at ...int) {
	slices.Sort(at)
	slices.Reverse(at)
	for _, i := range at {
		h.messages = slices.Delete(h.messages, i, i+1)
	}
}

// edit changes the configuration before the next message. The bridge makes another plan, in which the given collections have another edit.
func (h *sharedHistory) edit(entries []entry, edited ...string) {
	h.editions = append(h.editions, edition{since: h.start, entries: entries})
	h.happened = append(h.happened, happening{"entries edited", h.start})
	h.script.configure(edited...)
}

// A verdict that accepts a wrong history would be worthless, so each rule is broken at least once.
func TestEntriesVerdict(t *testing.T) {
	if problems := sharedRight().judge(); len(problems) > 0 {
		t.Fatalf("the correct history has the problems %v, want none", problems)
	}
	onlyA := []entry{{name: "a", selectBy: byLabel, values: []string{"a"}}}
	for name, c := range map[string]struct {
		rule string
		do   func(h *sharedHistory)
	}{
		"an object is missing at a synced": {"copy missing", func(h *sharedHistory) { h.cut(2); h.about("added", crewA, "stays", 12) }},
		"an object is stale at a synced": {"copy stale", func(h *sharedHistory) {
			h.became("new", 20, "b")
			h.truth.objects["new"].states[0].rv = 20
			h.became("new", 21, "b")
		}},
		"an object that left the selection is held at a synced": {"copy held", func(h *sharedHistory) { h.became("stays", 18, "c") }},
		"an object remains when its CRD is gone": {"copy held", func(h *sharedHistory) {
			h.of("gap", crewA, 12, "gone")
			h.of("synced", crewA, 0, "gone")
			h.died("stays", 12, 40, h.start.Add(-time.Minute))
		}},
		"the union lacks an object":                                                     {"complete missing", func(h *sharedHistory) { h.cut(11) }},
		"the union has a deleted object":                                                {"complete held", func(h *sharedHistory) { h.cut(9) }},
		"an object is missing in the end":                                               {"union missing", func(h *sharedHistory) { h.cut(11) }},
		"an object is stale in the end":                                                 {"union stale", func(h *sharedHistory) { h.became("new", 24, "b") }},
		"a deleted object remains":                                                      {"union held", func(h *sharedHistory) { h.cut(9) }},
		"an object that the last edit does not select remains":                          {"union held", func(h *sharedHistory) { h.edit(onlyA) }},
		"the collection of a removed entry is not closed":                               {"union collections", func(h *sharedHistory) { h.edit(onlyA) }},
		"the plan has one more collection":                                              {"union complete", func(h *sharedHistory) { h.script.configure(shared + ":c"); h.of("synced", crewA, 23, "periodic") }},
		"the edit of a collection is unpublished":                                       {"union complete", func(h *sharedHistory) { h.script.configure(crewB); h.of("synced", crewA, 23, "periodic") }},
		"an existing object is published as deleted":                                    {"living", func(h *sharedHistory) { h.about("deleted", crewA, "stays", 22) }},
		"an existing object that left the selection is published as no longer existing": {"living", func(h *sharedHistory) { h.messages[8].Data.Reason = "" }},
		"a deleted object is published as having left the selection":                    {"living", func(h *sharedHistory) { h.messages[9].Data.Reason = "left" }},
		"an object is published as having left before it leaves": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 23)
			h.start = h.start.Add(time.Second)
			h.became("stays", 24, "c")
		}},
		"an object is published as deleted before its deletion": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 23)
			h.messages[14].Data.Reason = ""
			h.died("stays", 12, 40, h.start.Add(time.Second))
		}},
		"deleted before an edit drops it": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 22)
			h.start = h.start.Add(time.Second)
			h.edit([]entry{{name: "a", selectBy: byLabel, values: []string{"c"}}, {name: "b", selectBy: byLabel, values: []string{"b"}}}, crewA)
		}},
		"an object that never existed":   {"living", func(h *sharedHistory) { h.truth.objects = map[string]*gadget{} }},
		"not selected by its collection": {"invented", func(h *sharedHistory) { h.messages[11].Attributes["collection"] = crewA }},
		"of an entry that never existed": {"invented", func(h *sharedHistory) { h.messages[11].Attributes["collection"] = shared + ":c" }},
		"a version that never existed":   {"invented", func(h *sharedHistory) { h.messages[11].Attributes["resourceversion"] = "19" }},
		"another object's body":          {"invented", func(h *sharedHistory) { h.messages[11].Data.Object = h.messages[2].Data.Object }},
		"an event comes twice":           {"once", func(h *sharedHistory) { h.messages = append(h.messages, h.messages[11]) }},
		"an id has another content": {"once", func(h *sharedHistory) {
			h.pair.Delivery = "at-least-once"
			h.about("added", crewB, "new", 20)
			h.messages[14].Data.Object = h.messages[2].Data.Object
		}},
		"an older version comes later": {"order", func(h *sharedHistory) {
			h.became("moves", 23, "b")
			h.about("modified", crewB, "moves", 23)
			h.about("modified", crewB, "moves", 15)
		}},
		"a deletion does not end the last publication": {"order", func(h *sharedHistory) { h.messages[9].Attributes["resourceversion"] = "12" }},
		"ended twice":             {"order", func(h *sharedHistory) { h.about("deleted", crewA, "ends", 16) }},
		"a gap without a cause":   {"cause", func(h *sharedHistory) { h.happened = nil }},
		"a gap before its cause":  {"cause", func(h *sharedHistory) { h.happened[0].at = h.start }},
		"a reset without a cause": {"cause", func(h *sharedHistory) { h.messages[10].Data.Reason, h.messages[10].Data.Reset = "reset", true }},
		"an unknown reason":       {"cause", func(h *sharedHistory) { h.messages[10].Data.Reason = "snapshot" }},
		"drift":                   {"cause", func(h *sharedHistory) { h.messages[10].Data.Reason = "drift" }},
		"a gap is not closed":     {"declared", func(h *sharedHistory) { h.cut(12) }},
	} {
		h := sharedRight()
		c.do(h)
		if problems := h.judge(); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "["+c.rule+"]") }) {
			t.Errorf("%s: %v, want [%s]", name, problems, c.rule)
		}
	}
}

// A gap whose reason has no causes would be reported as a fault.
func TestReasonsHaveCauses(t *testing.T) {
	for _, reason := range event.ReasonsOf(event.Gap) {
		if _, known := causes()[reason]; !known {
			t.Errorf("causes does not have %q", reason)
		}
	}
	if n := len(event.ReasonsOf(event.Gap)); len(causes()) != n {
		t.Errorf("causes has %d reasons, gaps have %d", len(causes()), n)
	}
}

// Correct histories must not be reported as faults.
func TestEntriesVerdictExcuses(t *testing.T) {
	for name, do := range map[string]func(h *sharedHistory){
		"an edit drops an existing object": func(h *sharedHistory) {
			h.edit([]entry{{name: "a", selectBy: byLabel, values: []string{"c"}}, {name: "b", selectBy: byLabel, values: []string{"b"}}}, crewA)
			h.of("gap", crewA, 22, "selection")
			h.about("deleted", crewA, "stays", 23)
			h.of("synced", crewA, 23, "selection")
		},
		"an entry is removed": func(h *sharedHistory) {
			h.edit([]entry{{name: "b", selectBy: byLabel, values: []string{"b"}}})
			delete(h.script.edits, crewA)
			h.of("closed", crewA, 23, "removed")
			h.of("synced", crewB, 23, "periodic")
		},
		"two entries have one object": func(h *sharedHistory) {
			h.edit([]entry{{name: "a", selectBy: byLabel, values: []string{"a"}}, {name: "b", selectBy: byLabel, values: []string{"a", "b"}}}, crewB)
			h.of("gap", crewB, 21, "selection")
			h.about("added", crewB, "stays", 12)
			h.of("synced", crewB, 23, "selection")
		},
		"an object leaves for a value that no entry has": func(h *sharedHistory) {
			h.became("stays", 24, "c")
			h.about("deleted", crewA, "stays", 24)
		},
		"types leave out the last change of an object that leaves": func(h *sharedHistory) {
			h.edit([]entry{
				{name: "a", selectBy: byLabel, values: []string{"a"}, types: []string{"added", "deleted"}},
				{name: "b", selectBy: byLabel, values: []string{"b"}},
			})
			h.became("stays", 24, "a")
			h.became("stays", 25, "c")
			h.about("deleted", crewA, "stays", 25)
			h.messages[len(h.messages)-1].Attributes["resourceversion"] = "24"
		},
		"the filter of an edit leaves an object out": func(h *sharedHistory) {
			h.became("new", 24, "b")
			h.truth.objects["new"].states[1].shown = false
			h.about("modified", crewB, "new", 24)
			h.edit([]entry{{name: "a", selectBy: byLabel, values: []string{"a"}}, {name: "b", selectBy: byLabel, values: []string{"b"}, filter: true}}, crewB)
			h.of("gap", crewB, 24, "filter")
			h.about("deleted", crewB, "new", 25)
			h.of("synced", crewB, 25, "filter")
		},
		"at least once, events come again": func(h *sharedHistory) {
			h.pair.Delivery = "at-least-once"
			h.messages = append(h.messages, h.messages[7:12]...)
		},
		"at least once, an object is published again in another run": func(h *sharedHistory) {
			h.pair.Delivery, h.killed = "at-least-once", true
			h.of("gap", crewB, 21, "expired")
			h.about("added", crewB, "new", 20)
			h.of("synced", crewB, 23, "expired")
		},
		"whether an object left is not known": func(h *sharedHistory) { h.messages[8].Data.Reason = "unknown" },
		"an object moves to a collection that is behind": func(h *sharedHistory) {
			h.became("stays", 24, "b")
			h.about("deleted", crewA, "stays", 24)
			h.of("synced", crewB, 23, "periodic")
			h.about("added", crewB, "stays", 24)
			h.of("synced", crewB, 24, "periodic")
		},
		"a CRD is gone": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"entries' CRD deleted and created again", h.start})
			h.died("stays", 12, 40, h.start)
			h.of("gap", crewA, 12, "gone")
			h.about("deleted", crewA, "stays", 0)
			h.of("synced", crewA, 0, "gone")
			h.of("synced", crewA, 41, "periodic")
		},
		"a CRD is gone, and one collection is behind": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"entries' CRD deleted and created again", h.start})
			h.became("stays", 24, "b")
			h.about("deleted", crewA, "stays", 24)
			h.about("added", crewB, "stays", 24)
			h.of("synced", crewA, 24, "periodic")
			h.of("synced", crewB, 24, "periodic")
			h.died("stays", 24, 40, h.start)
			h.of("gap", crewA, 24, "gone")
			h.of("synced", crewA, 0, "gone")
			h.of("gap", crewB, 24, "gone")
			h.about("deleted", crewB, "stays", 0)
			h.of("synced", crewB, 0, "gone")
			h.of("synced", crewA, 41, "periodic")
			h.of("synced", crewB, 41, "periodic")
		},
		"a reset": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"stream deleted", h.start})
			h.add(h.script.collection("gap", crewA, shared, "", bus.Data{Reason: "reset", Reset: true}))
			h.about("present", crewA, "stays", 12)
			h.of("synced", crewA, 25, "reset")
		},
		"a bus that keeps nothing was away": func(h *sharedHistory) { h.lost = true; h.cut(2, 7, 11, 12) },
		"the bridge is not in step":         func(h *sharedHistory) { h.unsettled = true; h.cut(11, 12, 13) },
	} {
		h := sharedRight()
		do(h)
		if problems := h.judge(); len(problems) > 0 {
			t.Errorf("%s: the problems are %v, want none", name, problems)
		}
	}
}

// A restored backup undoes an object. Its deletion belongs to the history after the restore.
func TestEntriesVerdictOfARestore(t *testing.T) {
	h := sharedRight()
	saved := h.truth.backup()
	delete(saved, "new")
	h.happened = append(h.happened, happening{"etcd restored from a backup", h.start})
	h.truth.restored(saved, h.start)
	for _, collection := range []string{crewA, crewB} {
		h.of("gap", collection, 0, "history")
		if collection == crewB {
			h.truth.objects["new"] = h.truth.former["new"]
			h.about("deleted", crewB, "new", 18)
			h.messages[len(h.messages)-1].Data.Reason = ""
			delete(h.truth.objects, "new")
		}
		h.of("synced", collection, 18, "history")
	}
	for i := range h.messages[14:] {
		h.messages[14+i].Attributes["epoch"] = "2"
	}
	if problems := h.judge(); len(problems) > 0 {
		t.Error(problems)
	}
}

// On Kafka, a synced event counts when every partition has it, and a reset drops only the objects from its own partition.
func TestEntriesVerdictOfPartitions(t *testing.T) {
	divided := func() *sharedHistory {
		h := sharedRight()
		h.pair = Pair{Bus: "kafka", Delivery: "exactly-once"}
		var all []bus.Message
		for _, m := range h.messages {
			if !m.OfCollection() {
				if m.UID() == "stays" {
					m.Partition = 1
				}
				all = append(all, m)
				continue
			}
			for m.Partition = range 3 {
				all = append(all, m)
			}
		}
		h.messages = all
		return h
	}
	if problems := divided().judge(); len(problems) > 0 {
		t.Errorf("the correct history has the problems %v, want none", problems)
	}
	h := divided()
	h.messages = slices.DeleteFunc(h.messages, func(m bus.Message) bool { return m.UID() == "stays" })
	if problems := h.judge(); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "[copy missing]") }) {
		t.Errorf("a partition that lacks an object: %v, want [copy missing]", problems)
	}
}

// A seed draws the same entries every time. No two entries have the same name, and some of them select the same objects.
func TestEditions(t *testing.T) {
	namespaces := []string{"n-0", "n-1", "n-2"}
	drawn := func(seed uint64) (all []edition) {
		r := newChance(seed, 5)
		all = append(all, firstEdition(r, namespaces))
		for i := range 12 {
			all = append(all, all[i].edited(r, all[max(0, i-1)], namespaces))
		}
		return all
	}
	seen := map[string]bool{}
	for seed := range uint64(300) {
		all := drawn(seed)
		if again := drawn(seed); fmt.Sprint(again) != fmt.Sprint(all) {
			t.Fatalf("seed %d draws %v, then %v, want the same twice", seed, all, again)
		}
		for _, e := range all {
			seen[fmt.Sprintf("%d entries by %s", len(e.entries), e.scheme())] = true
			names := map[string]bool{}
			for i, one := range e.entries {
				if names[one.name] {
					t.Fatalf("seed %d: two entries of one name: %+v", seed, e)
				}
				names[one.name] = true
				for _, other := range e.entries[:i] {
					seen["overlap"] = seen["overlap"] || fmt.Sprint(one.selectBy, one.values) == fmt.Sprint(other.selectBy, other.values)
				}
			}
			for _, one := range e.entries {
				seen[fmt.Sprint("filter ", one.filter)], seen[fmt.Sprint("metadata ", one.metadata)] = true, true
				seen[fmt.Sprint("types ", one.types != nil)], seen[fmt.Sprint("namespaceSelector ", one.labelled)] = true, true
			}
		}
	}
	if len(seen) != 3*4+8+1 {
		t.Errorf("the seeds have drawn %v, want every kind of entries", seen)
	}
}

// The API server does not acknowledge the version of a deletion. If it may be before or after a version, the result is unknown.
func TestGadgetAt(t *testing.T) {
	g := &gadget{states: []gadgetState{{rv: 10, value: "a"}, {rv: 20, value: "b"}}, deleted: true, after: 20, before: 30}
	for rv, want := range map[uint64]string{9: " false true", 10: "a true true", 19: "a true true", 20: "b true true", 21: "b true false", 28: "b true false", 29: "b false true", math.MaxUint64 - 1: "b false true"} {
		s, exists, known := g.at(rv)
		if got := fmt.Sprint(s.value, " ", exists, " ", known); got != want {
			t.Errorf("at %d: %s, want %s", rv, got, want)
		}
	}
}

// Results of different commits, or of modified files, must not be combined.
func TestOneCommit(t *testing.T) {
	for name, c := range map[string]struct {
		results []Result
		want    string // "" is an error
	}{
		"one commit":     {[]Result{{Commit: "a"}, {Commit: "a"}}, "a"},
		"two commits":    {[]Result{{Commit: "a"}, {Commit: "b"}}, ""},
		"modified files": {[]Result{{Commit: "a"}, {Commit: "a", Dirty: true}}, ""},
		"only modified":  {[]Result{{Commit: "a", Dirty: true}}, ""},
		"unknown":        {[]Result{{}}, ""},
		"none":           {nil, ""},
	} {
		got, err := OneCommit(c.results)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// A gap with reset comes again only if a bridge that was killed may not have known that it had written it.
func TestResetInDoubt(t *testing.T) {
	gap := func(second string, reset bool) *bus.Message {
		return &bus.Message{Attributes: map[string]string{"time": "2026-03-14T09:26:" + second + "Z"}, Data: bus.Data{Reset: reset}}
	}
	for name, c := range map[string]struct {
		delivery string
		former   *bus.Message
		fault    string
		expected bool
	}{
		"killed":            {"at-least-once", gap("50", true), "bridge kill -9", true},
		"exactly once":      {"exactly-once", gap("50", true), "bridge kill -9", false},
		"not killed":        {"at-least-once", gap("50", true), "bridge frozen", false},
		"no reset":          {"at-least-once", gap("50", false), "bridge kill -9", false},
		"killed afterwards": {"at-least-once", gap("50", true), "", false},
	} {
		again := gap("55", true)
		h := happening{c.fault, timeOf(again).Add(-time.Second)}
		if c.fault == "" {
			h = happening{"bridge kill -9", timeOf(again).Add(time.Second)}
		}
		r := &entriesReader{entriesVerdict: &entriesVerdict{pair: Pair{Delivery: c.delivery}, happened: []happening{h}}}
		if got := r.inDoubt(c.former, again); got != c.expected {
			t.Errorf("%s: %v, want %v", name, got, c.expected)
		}
	}
}
