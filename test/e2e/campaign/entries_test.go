package campaign

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// sharedHistory is a right one of a resource with two entries: an object that moves from the first to the second, one that stays, one
// that is deleted, and, after a forgotten history, one that is new. In the end the second entry takes another value.
type sharedHistory struct {
	*entriesVerdict
	start time.Time
}

const (
	crewA = "gadgets.g?labels=crew in (a)"
	crewB = "gadgets.g?labels=crew in (b)"
)

func sharedRight() *sharedHistory {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := &sharedHistory{start: start, entriesVerdict: &entriesVerdict{
		sink: "sink", pair: Pair{Bus: "nats", Delivery: "exactly-once"}, truth: newGadgetTruth(),
		editions: []edition{{at: start, entries: []entry{{by: byLabel, of: []string{"a"}}, {by: byLabel, of: []string{"b"}}}}},
		happened: []happening{{"entries' history forgotten (410)", start.Add(15 * time.Second)}},
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
	h.of("gap", crewA, 0, "snapshot")    // 0
	h.about("added", crewA, "moves", 11) // 1
	h.about("added", crewA, "stays", 12) // 2
	h.about("added", crewA, "ends", 13)  // 3
	h.of("synced", crewA, 13, "snapshot")
	h.of("gap", crewB, 0, "snapshot") // 5
	h.of("synced", crewB, 14, "snapshot")
	h.about("modified", crewB, "moves", 15) // 7
	h.about("deleted", crewA, "ends", 16)   // 8
	for range 8 {                           // so that what follows is behind the happening
		h.start = h.start.Add(time.Second)
	}
	h.of("gap", crewB, 15, "expired")  // 9
	h.about("added", crewB, "new", 20) // 10
	h.of("synced", crewB, 21, "expired")
	h.of("synced", crewA, 22, "periodic") // 12
	return h
}

func (h *sharedHistory) of(typ, collection string, rv int, reason string) {
	h.add(bus.Message{Data: bus.Data{Reason: reason}, Attributes: map[string]string{
		"type": "io.kubebridge.collection." + typ + ".v1", "collection": collection, "resourceversion": fmt.Sprint(rv),
		"id": fmt.Sprintf("%s:%d:%s:%s", collection, rv, typ, reason),
	}})
}

func (h *sharedHistory) about(typ, collection, uid string, rv int) {
	m := bus.Message{Attributes: map[string]string{
		"type": "io.kubebridge.resource." + typ + ".v1", "collection": collection, "resourceversion": fmt.Sprint(rv),
		"uid": uid, "subject": "n/" + uid, "id": fmt.Sprintf("%s:%d:%s", uid, rv, typ),
	}}
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

func (h *sharedHistory) cut(at ...int) {
	slices.Sort(at)
	slices.Reverse(at)
	for _, i := range at {
		h.messages = slices.Delete(h.messages, i, i+1)
	}
}

// edit is one that the file has before the next message.
func (h *sharedHistory) edit(entries ...entry) {
	h.editions = append(h.editions, edition{at: h.start, entries: entries})
	h.happened = append(h.happened, happening{"entries edited", h.start})
}

// A verdict that finds nothing wrong with a wrong history would be worth nothing: each rule is broken at least once.
func TestEntriesVerdict(t *testing.T) {
	if problems := sharedRight().judge(); len(problems) > 0 {
		t.Fatalf("the right history: %v", problems)
	}
	for name, c := range map[string]struct {
		rule string
		do   func(h *sharedHistory)
	}{
		"an object is missing at a synced": {"copy missing", func(h *sharedHistory) { h.cut(2); h.about("added", crewA, "stays", 12) }},
		"an object is stale at a synced":   {"copy stale", func(h *sharedHistory) { h.cut(7); h.about("modified", crewB, "moves", 15) }},
		"one that left is held at a synced": {"copy held", func(h *sharedHistory) {
			h.truth.objects["stays"].states = append(h.truth.objects["stays"].states, gadgetState{rv: 18, value: "c"})
		}},
		"the collection that lost an object ends it, and the other one is in step": {"copy taken", func(h *sharedHistory) {
			h.about("deleted", crewA, "moves", 22)
			h.of("synced", crewB, 22, "periodic")
		}},
		"the collection that lost an object ends it": {"union taken", func(h *sharedHistory) { h.about("deleted", crewA, "moves", 22) }},
		"an object remains when its CRD is gone": {"copy held", func(h *sharedHistory) {
			h.of("gap", crewA, 12, "gone")
			h.of("synced", crewA, 12, "gone")
			o := h.truth.objects["stays"]
			o.deleted, o.after, o.before, o.asked = true, 12, 40, h.start.Add(-time.Minute)
		}},
		"the collection that has an object ends it": {"union ended", func(h *sharedHistory) { h.about("deleted", crewA, "stays", 22) }},
		"an object is missing in the end":           {"union missing", func(h *sharedHistory) { h.cut(10) }},
		"an object is stale in the end":             {"union stale", func(h *sharedHistory) { h.cut(7) }},
		"a deleted object remains":                  {"union held", func(h *sharedHistory) { h.cut(8) }},
		"what the last edit leaves out remains":     {"union held", func(h *sharedHistory) { h.edit(entry{by: byLabel, of: []string{"a"}}) }},
		"an object that lives is deleted":           {"living", func(h *sharedHistory) { h.about("deleted", crewA, "stays", 22) }},
		"an object that leaves later is ended at its own version": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 12)
			o := h.truth.objects["stays"]
			o.states = append(o.states, gadgetState{rv: 24, namespace: "n", name: "stays", value: "c", shown: true, asked: h.start.Add(time.Second)})
		}},
		"an object that is deleted later is ended at its own version": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 12)
			o := h.truth.objects["stays"]
			o.deleted, o.after, o.before, o.asked = true, 12, 40, h.start.Add(time.Second)
		}},
		"deleted before an edit drops it": {"living", func(h *sharedHistory) {
			h.about("deleted", crewA, "stays", 22)
			h.start = h.start.Add(time.Second)
			h.edit(entry{by: byLabel, of: []string{"b"}})
		}},
		"an object that never was":       {"living", func(h *sharedHistory) { h.truth.objects = map[string]*gadget{} }},
		"not selected by its collection": {"invented", func(h *sharedHistory) { h.messages[10].Attributes["collection"] = crewA }},
		"a version that never was":       {"invented", func(h *sharedHistory) { h.messages[10].Attributes["resourceversion"] = "19" }},
		"another object's body":          {"invented", func(h *sharedHistory) { h.messages[10].Data.Object = h.messages[2].Data.Object }},
		"an event comes twice":           {"once", func(h *sharedHistory) { h.messages = append(h.messages, h.messages[10]) }},
		"an id has another content": {"once", func(h *sharedHistory) {
			h.pair.Delivery = "at-least-once"
			h.about("added", crewB, "new", 20)
			h.messages[13].Data.Object = h.messages[2].Data.Object
		}},
		"an older version comes later": {"order", func(h *sharedHistory) {
			h.truth.objects["moves"].states = append(h.truth.objects["moves"].states, gadgetState{rv: 18, namespace: "n", name: "moves", value: "b", stamp: "18", shown: true})
			h.about("modified", crewB, "moves", 18)
			h.about("modified", crewB, "moves", 15)
			h.messages[14].Attributes["id"] += ":again"
		}},
		"a gap for nothing":              {"cause", func(h *sharedHistory) { h.happened = nil }},
		"a gap before what explains it":  {"cause", func(h *sharedHistory) { h.happened[0].at = h.start }},
		"a first list again for nothing": {"cause", func(h *sharedHistory) { h.happened = nil; h.messages[9].Data.Reason = "snapshot" }},
		"drift":                          {"cause", func(h *sharedHistory) { h.messages[9].Data.Reason = "drift" }},
		"a gap that a resync does not end": {"declared", func(h *sharedHistory) {
			h.cut(11)
			h.happened = append(h.happened, happening{"resync of entries", h.start})
			h.of("gap", crewB, 22, "resync")
			h.of("synced", crewB, 22, "resync")
		}},
		"a gap has no end": {"declared", func(h *sharedHistory) { h.cut(11) }},
	} {
		h := sharedRight()
		c.do(h)
		if problems := h.judge(); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "["+c.rule+"]") }) {
			t.Errorf("%s: %v, want [%s]", name, problems, c.rule)
		}
	}
}

// What is no fault: each of these is a right history, too.
func TestEntriesVerdictExcuses(t *testing.T) {
	for name, do := range map[string]func(h *sharedHistory){
		"an edit drops an object, which lives": func(h *sharedHistory) {
			h.edit(entry{by: byLabel, of: []string{"b"}})
			h.about("deleted", crewA, "stays", 23)
			h.of("closed", crewA, 23, "selection")
		},
		"an object leaves for a value that no entry has": func(h *sharedHistory) {
			o := h.truth.objects["stays"]
			o.states = append(o.states, gadgetState{rv: 24, namespace: "n", name: "stays", value: "c", shown: true})
			h.about("deleted", crewA, "stays", 24)
		},
		"the filter of an edit leaves an object out": func(h *sharedHistory) {
			o := h.truth.objects["new"]
			o.states = append(o.states, gadgetState{rv: 24, namespace: "n", name: "new", value: "b", stamp: "24", shown: false})
			h.about("modified", crewB, "new", 24)
			h.edit(entry{by: byLabel, of: []string{"a"}}, entry{by: byLabel, of: []string{"b"}, filter: true})
			h.about("deleted", crewB, "new", 25)
		},
		"at least once, an event comes again": func(h *sharedHistory) {
			h.pair.Delivery = "at-least-once"
			h.messages = append(h.messages, h.messages[7:11]...)
			h.of("gap", crewB, 25, "expired")
			h.of("synced", crewB, 25, "expired")
		},
		"an object that was deleted is ended with its collection, at its own version": func(h *sharedHistory) {
			o := h.truth.objects["stays"]
			o.deleted, o.after, o.before, o.asked = true, 12, 40, h.start
			h.about("deleted", crewA, "stays", 12)
		},
		"an object that left is ended at its own version": func(h *sharedHistory) {
			o := h.truth.objects["stays"]
			o.states = append(o.states, gadgetState{rv: 24, namespace: "n", name: "stays", value: "c", shown: true, asked: h.start})
			h.about("deleted", crewA, "stays", 12)
		},
		"a list that finds another history ends with a resync": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"etcd restored from a backup", h.start})
			h.of("gap", crewA, 22, "history")
			h.of("gap", crewA, 22, "resync")
			h.of("synced", crewA, 22, "resync")
		},
		"an object moves to a collection that is behind": func(h *sharedHistory) {
			o := h.truth.objects["stays"]
			o.states = append(o.states, gadgetState{rv: 24, namespace: "n", name: "stays", value: "b", stamp: "24", shown: true})
			h.about("deleted", crewA, "stays", 24)
			h.of("synced", crewB, 23, "periodic")
			h.about("added", crewB, "stays", 24)
			h.of("synced", crewB, 24, "periodic")
		},
		"a CRD is gone, at the version that was read last": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"entries' CRD removed and made again", h.start})
			h.of("gap", crewA, 12, "gone")
			h.about("deleted", crewA, "stays", 12)
			h.of("synced", crewA, 12, "gone")
			o := h.truth.objects["stays"]
			o.deleted, o.after, o.before, o.asked = true, 12, 40, h.start.Add(-time.Minute)
		},
		"a reset": func(h *sharedHistory) {
			h.happened = append(h.happened, happening{"stream deleted", h.start})
			h.of("gap", crewA, 22, "reset")
			h.messages[len(h.messages)-1].Data.Reset = true
			h.about("present", crewA, "stays", 12)
			h.of("synced", crewA, 25, "reset")
		},
		"a bus that keeps nothing was away": func(h *sharedHistory) { h.lost = true; h.cut(2, 7, 10, 11) },
		"the bridge is not in step":         func(h *sharedHistory) { h.unsettled = true; h.cut(10, 11, 12) },
		"a backup is restored and undoes an object": func(h *sharedHistory) {
			saved := h.truth.backup()
			delete(saved, "new")
			h.happened = append(h.happened, happening{"etcd restored from a backup", h.start})
			h.truth.restored(saved, h.start)
			for _, typ := range []string{"gap", "deleted", "synced"} {
				if typ == "deleted" {
					h.truth.objects["new"] = h.truth.former["new"]
					h.about(typ, crewB, "new", 18)
					delete(h.truth.objects, "new")
				} else {
					h.of(typ, crewB, 18, "history")
				}
				m := &h.messages[len(h.messages)-1]
				m.Attributes["epoch"], m.Attributes["id"] = "2", "e2:"+m.Attributes["id"]
			}
		},
	} {
		h := sharedRight()
		do(h)
		if problems := h.judge(); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// On Kafka a synced counts when every partition has it, and a reset drops what came from its own partition.
func TestEntriesVerdictOfPartitions(t *testing.T) {
	divided := func() *sharedHistory {
		h := sharedRight()
		h.pair = Pair{Bus: "kafka", Delivery: "exactly-once"}
		var both []bus.Message
		for _, m := range h.messages {
			switch {
			case m.OfCollection():
				other := m
				other.Partition = 1
				both = append(both, m, other)
			default:
				m.Partition = map[bool]int{true: 1}[m.UID() == "stays"]
				both = append(both, m)
			}
		}
		h.messages = both
		return h
	}
	if problems := divided().judge(); len(problems) > 0 {
		t.Errorf("the right history: %v", problems)
	}
	h := divided()
	h.messages = slices.DeleteFunc(h.messages, func(m bus.Message) bool { return m.UID() == "stays" })
	if problems := h.judge(); !slices.ContainsFunc(problems, func(s string) bool { return strings.HasPrefix(s, "[copy missing]") }) {
		t.Errorf("a partition that lacks an object: %v, want [copy missing]", problems)
	}
}

// What a seed draws for entries is the same every time, and no edition has two entries that one object is in.
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
			t.Fatalf("seed %d draws %v and %v", seed, all, again)
		}
		for _, e := range all {
			seen[fmt.Sprintf("%d entries by %s", len(e.entries), e.scheme())] = true
			for _, value := range gadgetValues {
				for _, namespace := range append([]string{"another"}, namespaces...) {
					n := 0
					for _, one := range e.entries {
						if one.takes(gadgetState{value: value, namespace: namespace}) {
							n++
						}
					}
					if n > 1 {
						t.Fatalf("seed %d: %d entries take %s in %s: %+v", seed, n, value, namespace, e)
					}
				}
			}
			for _, one := range e.entries {
				seen[fmt.Sprint("filter ", one.filter)], seen[fmt.Sprint("metadata ", one.metadata)] = true, true
				seen[fmt.Sprint("types ", one.types != nil)], seen[fmt.Sprint("namespaceSelector ", one.labelled)] = true, true
			}
		}
	}
	if len(seen) != 3*4+8 {
		t.Errorf("drawn: %v", seen)
	}
}

// A deletion's own version is not acknowledged: where it may be on either side, nothing is said.
func TestGadgetAt(t *testing.T) {
	g := &gadget{states: []gadgetState{{rv: 10, value: "a"}, {rv: 20, value: "b"}}, deleted: true, after: 20, before: 30}
	for rv, want := range map[uint64]string{9: " false true", 10: "a true true", 19: "a true true", 20: "b true true", 21: "b true false", 28: "b true false", 29: "b false true", math.MaxUint64 - 1: "b false true"} {
		s, exists, known := g.at(rv)
		if got := fmt.Sprint(s.value, " ", exists, " ", known); got != want {
			t.Errorf("at %d: %s, want %s", rv, got, want)
		}
	}
}

// Results of other commits, and of modified files, do not add up.
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
