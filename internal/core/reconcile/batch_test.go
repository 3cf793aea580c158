package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// changesOf returns changes in words.
func changesOf(list []Change) string {
	all := []string{}
	for _, c := range list {
		to := "none"
		if c.Object != nil {
			to = c.Object.UID + " " + c.Object.Version
		}
		all = append(all, c.Key+": "+to)
	}
	return fmt.Sprint(all)
}

// TestSeal: at most one batch is in flight, and it has everything that was emitted before it was sealed.
func TestSeal(t *testing.T) {
	b := inStep(t, seen(List, "z", "2"))
	if b.core.Seal() != nil || b.core.Sealed() != nil {
		t.Error("there is a sealed batch, want none before the first event")
	}
	b.do(seen(Watch, "c", "11"), seen(Watch, "a", "12"), seen(Watch, "b", "13"), seen(Watch, "c", "14"), gone(Watch, "z", "15"))
	batch := b.core.Seal()
	if got := changesOf(batch.Changes); got != "[c: uc 14 a: ua 12 b: ub 13 z: none]" {
		t.Errorf("the changes are %s, want only the last one of each key", got)
	}
	if len(batch.Items) != 5 || len(batch.Records) != 0 || batch.Progress["x"].Seen != "15" || len(batch.Drafts) != 0 {
		t.Errorf("the batch is %+v, want 5 items, Seen 15, no records and no drafts", batch)
	}
	if b.core.Idle() || !b.core.Empty() {
		t.Errorf("Idle is %t and Empty is %t, want false and true while a batch is in flight", b.core.Idle(), b.core.Empty())
	}
	b.do(seen(Watch, "d", "16"))
	if b.core.Seal() != nil || b.core.Sealed() != batch || b.core.Idle() {
		t.Error("a second batch was sealed, or the first one is not in flight any more")
	}
	if b.core.Committed(); b.core.Sealed() != nil {
		t.Error("Sealed returns a batch that is committed, want none")
	}
	if next := b.core.Seal(); next == nil || len(next.Items) != 1 {
		t.Errorf("the next batch is %+v, want one with 1 item", next)
	}
}

// TestItemsAlone: a restart from a log reads items. The items must carry every change of the inventory before the last
// item, including changes without an event.
func TestItemsAlone(t *testing.T) {
	silent := func(s *Sighting) { preparedOf(s).passes = func(event.Type) bool { return false } }
	another := func(s *Sighting) { s.UID = "o" }
	b := inStep(t, seen(List, "a", "5"))
	b.do(seen(Watch, "s", "11", silent), seen(Watch, "a", "12", another), seen(Watch, "b", "13"))
	var got []string
	for _, i := range b.core.Items() {
		got = append(got, fmt.Sprintf("%s %s", i.Object.Object.UID, changesOf(i.Changes)))
	}
	if want := "[ua [s: us 11 a: none] o [a: o 12] ub [b: ub 13]]"; fmt.Sprint(got) != want {
		t.Errorf("the items are %s, want %s", got, want)
	}
	for n, want := range []string{"12", "12", "13"} {
		if i := b.core.Items()[n]; i.Record != nil || i.Progress != (Progress{"10", want}) {
			t.Errorf("item %d has record %+v and progress %+v, want none and {10 %s}", n, i.Record, i.Progress, want)
		}
	}
	b.do(demanded, seen(Watch, "b", "14"), seen(Watch, "b", "15"))
	if i := b.core.Items(); i[3].Record == nil || !i[3].Record.Resync || i[4].Record != nil {
		t.Errorf("items 3 and 4 have the records %+v and %+v, want one with Resync, and none because it has not changed since", i[3].Record, i[4].Record)
	}

	b = inStep(t).do(seen(Watch, "s", "11", silent)).commit().do(seen(Watch, "b", "12"))
	if got := changesOf(b.core.Items()[0].Changes); got != "[b: ub 12]" {
		t.Errorf("the changes are %s, want [b: ub 12] without the committed change of s", got)
	}

	b = inStep(t, seen(List, "a", "5")).reset()
	b.core.Forgettable("x", 1)
	b.do(removed, Input{Kind: Forget, Key: "a"}, Input{Kind: Forgot})
	if got := changesOf(b.core.Items()[0].Changes); got != "[a: none]" {
		t.Errorf("the changes of the closed event are %s, want [a: none]", got)
	}
	b.commit().do(configured(Properties{}), listBegun)
	if got := changesOf(b.core.Items()[0].Changes); got != "[]" || len(b.store.objects) != 0 {
		t.Errorf("the changes are %s and the store has %d inventory entries, want [] and 0", got, len(b.store.objects))
	}

	b = inStep(t).do(configured(Properties{Types: event.Types(0).Without(event.Added)})).commit().do(Input{Kind: Forgot}).commit()
	b.do(listBegun, seen(List, "a", "5")).do(listEnded("10"), listDone)
	for _, i := range b.core.Items() {
		if i.Object != nil {
			t.Errorf("there is an %s event, want none: the type is not published", i.Object.Type)
		}
	}
	if got := changesOf(b.core.Items()[1].Changes); got != "[a: ua 5]" {
		t.Errorf("the changes are %s, want [a: ua 5]: the inventory changes without the event", got)
	}
}

// TestRejectedHistory: an object that proves another history leads to no event and no change in the present list. The next
// list decides about it. An object that changes its body within a list begins another run, and is published in it.
func TestRejectedHistory(t *testing.T) {
	b := inStep(t, seen(List, "a", "9")).do(listBegun, seen(List, "a", "8"))
	if got := b.emitted(); got != "gap, gap" || b.core.Changes() != 0 {
		t.Errorf("emitted %s with %d changes, want gap, gap with 0", got, b.core.Changes())
	}
	b = inStep(t).do(listBegun, seen(List, "a", "11"), seen(List, "a", "11", func(s *Sighting) { s.Digest = digestOf(99) }))
	if got := b.emitted(); got != "gap, added ua, gap, modified ua" {
		t.Errorf("a body changes within a list: emitted %s, want gap, added ua, gap, modified ua", got)
	}
	if items := b.core.Items(); items[2].Run != items[1].Run+1 || items[3].Run != items[2].Run || b.x().list == nil {
		t.Errorf("the runs are %d, %d and %d, want the last two equal and one higher than the first", items[1].Run, items[2].Run, items[3].Run)
	}
}

// TestRepeatedWithAnotherBody: if a watch repeats an object in doubt with another body, another run begins with a list.
// Consumers may have the object with the first body.
func TestRepeatedWithAnotherBody(t *testing.T) {
	b := inStep(t)
	i := intentOf("11")[0]
	i.UID, i.Run, i.Judged, i.Digest = "ua", 1, 1, digestOf(99)
	b.core.intents[Slot{"x", "a"}] = []Intent{i}
	number := b.x().read
	if got := b.do(seen(Watch, "a", "11")).emitted(); got != "gap" || b.x().Phase != Listing || b.x().read == number || b.core.Changes() != 0 {
		t.Errorf("emitted %s in phase %s, want a gap in phase %s, another read and no changes", got, b.x().Phase, Listing)
	}
	if got := b.do(listBegun, seen(List, "a", "11"), listEnded("12"), listDone).emitted(); got != "added ua, synced" {
		t.Errorf("the list emitted %s, want added ua, synced", got)
	}
}

// TestDrafts: the store has what a restart must know of a collection while it is unknown whether the bus has a batch.
func TestDrafts(t *testing.T) {
	type is struct {
		gap, synced, resync, confirmed bool
		from                           string
	}
	periodic := Input{Kind: Confirm}
	for _, c := range []struct {
		what string
		in   []Input
		from Phase
		want is
		none bool
	}{
		{"an object", []Input{seen(Watch, "a", "11")}, InStep, is{}, true},
		{"a position", []Input{bookmark("11")}, InStep, is{}, true},
		{"a periodic synced", []Input{periodic, periodic}, InStep, is{confirmed: true}, false},
		{"a first periodic synced of a run", []Input{listBegun, seen(List, "b", "11")}, Listing, is{}, true},
		{"a gap", []Input{listBegun}, InStep, is{gap: true, from: "10"}, false},
		{"a synced", []Input{listEnded("11"), listDone}, Listing, is{synced: true}, false},
		{"a gap and its synced", []Input{listBegun, listEnded("11"), listDone}, InStep, is{gap: true, synced: true, from: "10"}, false},
		{"a gap of a resync", []Input{demanded, sideBegun}, InStep, is{resync: true, from: "10"}, false},
		{"a synced of a resync", []Input{sideEnded("10")}, Resyncing, is{resync: true}, false},
		{"a synced of a resync, and a periodic one", []Input{sideEnded("10"), periodic}, Resyncing, is{resync: true, confirmed: true}, false},
		{"a resync", []Input{demanded, sideBegun, sideEnded("10")}, InStep, is{resync: true, from: "10"}, false},
		{"a resync that a gap ends", []Input{demanded, sideBegun, listBegun}, InStep, is{gap: true, from: "10"}, false},
		{"a list and a resync", []Input{listEnded("11"), listDone, demanded, sideBegun}, Listing, is{synced: true, resync: true, from: "11"}, false},
		{"two gaps and a resync", []Input{listBegun, listEnded("11"), listDone, demanded, sideBegun}, InStep, is{gap: true, synced: true, resync: true, from: "11"}, false},
		{"a synced, and a periodic one", []Input{listEnded("11"), listDone, periodic}, Listing, is{synced: true, confirmed: true}, false},
		{"leaving", []Input{removed}, InStep, is{}, false},
		{"ending", []Input{configured(Properties{Shape: "s"})}, InStep, is{}, false},
		{"closed", []Input{{Kind: Forgot}}, Ending, is{}, true},
	} {
		b := inPhase(t, c.from).do(of("y", configured(Properties{})), of("y", listBegun), of("y", listEnded("5")), of("y", listDone)).commit()
		b.do(of("y", sideBegun), of("y", seen(Resync, "a", "5")), of("y", sideEnded("5"))).do(c.in...)
		d, ok := b.core.Seal().Drafts["x"]
		if ok == c.none || (is{d.Gap, d.Synced, d.Resync, d.Confirmed, d.From}) != c.want || ok && (d.Record != b.x().stored() || d.Progress != b.x().Progress) {
			t.Errorf("%s: the draft exists: %t, want %t; it is %+v, want %+v", c.what, ok, !c.none, d, c.want)
		}
	}
}

// TestIntents: the store has what a restart must know of an object while it is unknown whether the bus has its event.
func TestIntents(t *testing.T) {
	unfit := func(s *Sighting) { s.DeadLetter = true }
	b := inStep(t, seen(List, "a", "5"), seen(List, "b", "6"))
	b.do(seen(Watch, "a", "11"), gone(Watch, "b", "12"), seen(Watch, "c", "13", unfit), seen(Watch, "a", "14"),
		seen(Watch, "d", "15"), seen(Watch, "d", "16", func(s *Sighting) { s.UID = "o" }))
	var got []string
	list := b.core.Seal().Intents
	for _, slot := range sortedSlots(list) {
		for _, i := range list[slot] {
			got = append(got, fmt.Sprintf("%s: %s at %s of %d/%s, deleted: %t, epoch %d", slot.Key, i.UID, i.Version, i.Run, i.At, i.Deleted, i.Epoch))
		}
	}
	want := []string{
		"a: ua at 14 of 1/14, deleted: false, epoch 1",
		"b: ub at 12 of 1/6, deleted: true, epoch 1",
		"d: ud at 16 of 1/15, deleted: true, epoch 1",
		"d: o at 16 of 1/16, deleted: false, epoch 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the intents are %q\nwant %q", got, want)
	}
}

// TestOvertakenIntents: an event that a watch repeats neither settles nor replaces the intent of a later publication, or of the end of the one that
// is repeated, because consumers may have that.
func TestOvertakenIntents(t *testing.T) {
	published := intentOfUID("ua", "14")[0]
	published.Run, published.Judged, published.AtDigest = 1, 1, digestOf(number("14"))
	ended := published
	ended.At, ended.AtDigest, ended.Deleted = "11", digestOf(number("11")), true
	endedBefore := ended
	endedBefore.At = "9"
	for name, c := range map[string]struct {
		intent Intent
		events []Input // that a watch repeats
		want   []int   // intents of the batch of each, and that it settles
	}{
		"a later publication":             {published, []Input{seen(Watch, "a", "11"), seen(Watch, "a", "14")}, []int{0, 1}},
		"its end":                         {ended, []Input{seen(Watch, "a", "11"), gone(Watch, "a", "14")}, []int{0, 1}},
		"the end of a publication before": {endedBefore, []Input{seen(Watch, "a", "11")}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := inStep(t)
			b.core.intents[Slot{"x", "a"}] = []Intent{c.intent}
			for n, want := range c.want {
				b.do(c.events[n])
				batch := b.core.Seal()
				b.store.commit(batch)
				if b.core.Committed(); len(batch.Items) != 1 || len(batch.Intents) != want || len(batch.Settled) != want {
					t.Errorf("%d: the batch has %d events, %d intents and %d settled, want 1, %d and %d", n, len(batch.Items), len(batch.Intents), len(batch.Settled), want, want)
				}
			}
		})
	}
}

// inDoubt returns a collection in phase Listing. Two objects of the name a and one of the name b are in doubt.
func inDoubt(t *testing.T) *bench {
	t.Helper()
	s := newStore()
	s.records["x"] = Record{Phase: Listing, Run: 2, Incarnation: 2, Epoch: 1}
	s.progress["x"] = Progress{Position: "1"}
	s.intents[Slot{"x", "a"}] = append(intentOfUID("o", "4"), intentOfUID("ua", "5")...)
	s.intents[Slot{"x", "b"}] = intentOfUID("ub", "6")
	s.records["y"], s.progress["y"] = s.records["x"], s.progress["x"]
	s.intents[Slot{"y", "a"}] = intentOfUID("ua", "6")
	return newBench(t, s)
}

// TestSettledIntents: a commit removes the intents of the objects about which it publishes events. At the end of a list, it
// removes all intents of the collection.
func TestSettledIntents(t *testing.T) {
	doubts := func(b *bench) string {
		_, a := b.core.Object("x", "a")
		_, c := b.core.Object("x", "b")
		_, y := b.core.Object("y", "a")
		return fmt.Sprint(a, c, y)
	}
	b := inDoubt(t)
	if got := doubts(b); got != "true true true" {
		t.Errorf("in doubt are a, b and a of y: %s, want true true true", got)
	}
	b.do(listBegun, seen(List, "a", "7"), seen(List, "c", "8"))
	if got := doubts(b); got != "false true true" {
		t.Errorf("after a was listed, in doubt are a, b and a of y: %s, want false true true", got)
	}
	batch := b.core.Seal()
	if got := fmt.Sprint(batch.Settled); got != "[{{x a} o} {{x a} ua}]" {
		t.Errorf("settled are %s, want both intents of a", got)
	}
	b.core.Committed()
	b.do(listEnded("9"), lacks("b", "9"), listDone)
	if got := fmt.Sprint(b.core.Seal().Settled); got != "[{{x b} ub}]" {
		t.Errorf("at the end of the list, settled are %s, want the intent of b", got)
	}

	b = inDoubt(t)
	b.do(listBegun)
	b.x().Incarnation = 3 // a reset that was in doubt as well
	if got := doubts(b); got != "false false true" {
		t.Errorf("after a reset, in doubt are a, b and a of y: %s, want false false true", got)
	}
	b.do(listEnded("9"), listDone)
	if got := b.core.Seal().Settled; len(got) != 3 || doubts(b) != "false false true" {
		t.Errorf("settled are %v, want the 3 intents of the previous incarnation of x", got)
	}

	b = inDoubt(t).reset()
	if keys, _ := b.core.Forgettable("x", 9); fmt.Sprint(keys) != "[a b]" {
		t.Errorf("Forgettable returns %v, want [a b]", keys)
	}
	b.do(Input{Kind: Forget, Key: "a"})
	if got := fmt.Sprint(b.core.Seal().Settled); got != "[{{x a} o} {{x a} ua}]" {
		t.Errorf("after a was forgotten, settled are %s, want both intents of a", got)
	}
	if b := newBench(t, nil); doubts(b) != "false false false" {
		t.Errorf("without collections, in doubt are %s, want false false false", doubts(b))
	}
}

// TestNullValues: on a compacted topic, each key that consumers have, or may have, gets a null value. It ends the last
// publication that consumers may have. Other keys get no null value. Null values have no intents.
func TestNullValues(t *testing.T) {
	s := newStore()
	s.records["x"] = Record{Phase: InStep, Run: 2, Incarnation: 2, Epoch: 1, LastList: LastList{SyncedEpoch: 1}, Properties: Properties{Tombstones: true}}
	s.progress["x"] = Progress{Position: "10"}
	for key, o := range map[string]*Object{
		"a": entryOf(Published, "5"), "b": entryOf(Outdated, "6", publishedAt("4")), "c": entryOf(Unpublished, "5"), "d": entryOf(Skipped, "5"),
		"e": entryOf(Unpublished, "7"), "f": entryOf(Published, "5"), "g": entryOf(Published, "7"),
	} {
		s.objects[Slot{"x", key}] = o
	}
	for _, key := range []string{"e", "f", "g"} {
		s.intents[Slot{"x", key}] = intentOfUID("o", "6")
	}
	s.intents[Slot{"x", "h"}] = append(intentOfUID("o", "6"), intentOfUID("p", "4")...)
	b := newBench(t, s).reset().commit()
	keys, _ := b.core.Forgettable("x", 9)
	for _, key := range keys {
		b.do(Input{Kind: Forget, Key: key})
	}
	batch := b.core.Seal()
	var got []string
	for _, i := range batch.Items {
		e := i.Object
		got = append(got, fmt.Sprintf("%s: %s %s of %d/%s", e.Key, e.Type, e.Object.UID, e.Object.Run, e.Object.At))
		if !e.Null || e.Fate != Unknown || i.Incarnation != 2 {
			t.Errorf("%s: the event is %+v of incarnation %d, want a null value with an unknown fate, of incarnation 2", e.Key, e, i.Incarnation)
		}
	}
	want := []string{
		"a: deleted u of 2/5", "b: deleted u of 2/4", "e: deleted o of 2/6", "f: deleted o of 2/6", "g: deleted u of 2/7", "h: deleted o of 2/6",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the null values are %q\nwant %q", got, want)
	}
	if len(batch.Intents) != 0 || len(batch.Changes) != 8 || len(batch.Settled) != 5 {
		t.Errorf("the batch has %d intents, %d changes and %d settled, want 0, 8 and 5", len(batch.Intents), len(batch.Changes), len(batch.Settled))
	}
}

// TestDrop: Drop gives up what is not committed of one collection, and keeps what other collections have.
func TestDrop(t *testing.T) {
	b := inDoubt(t)
	b.do(of("y", configured(Properties{Filter: "f"}))).do(of("y", listBegun), of("y", seen(List, "a", "7")), listBegun, isGone, seen(List, "a", "7"))
	batch := b.core.Seal()
	b.do(of("y", seen(List, "b", "8")), seen(List, "c", "8"), lacks("b", "9"))
	b.core.current.settled = slices.Clone(batch.Settled)
	b.core.Drop("x")
	if _, inDoubt := b.core.Object("x", "b"); inDoubt || b.x() != nil || fmt.Sprint(b.core.IDs()) != "[y]" {
		t.Errorf("the collections are %v, want only y, without intents of x", b.core.IDs())
	}
	kept := b.core.Sealed()
	for _, i := range kept.Items {
		if i.Collection != "y" {
			t.Errorf("the sealed batch has an event of collection %s, want only y", i.Collection)
		}
	}
	if len(kept.Items) != 2 || changesOf(kept.Changes) != "[a: ua 7]" || fmt.Sprint(kept.Settled) != "[{{y a} ua}]" {
		t.Errorf("the sealed batch is %+v, want only the 2 items, the change and the settled intent of y", kept)
	}
	if len(batch.Items) != 5 || len(batch.Settled) != 3 || len(batch.Records) != 2 || len(batch.Progress) != 2 || len(batch.Drafts) != 2 || len(batch.Intents) != 2 {
		t.Errorf("Drop changed the batch that Seal had returned: %+v", batch)
	}
	for what, ids := range map[string][]string{
		"records": sorted(kept.Records), "progress": sorted(kept.Progress), "drafts": sorted(kept.Drafts), "intents": slices.Sorted(func(yield func(string) bool) {
			for slot := range maps.Keys(kept.Intents) {
				yield(slot.Collection)
			}
		}),
	} {
		if fmt.Sprint(ids) != "[y]" {
			t.Errorf("the sealed batch has %s of collections %v, want [y]", what, ids)
		}
	}
	b.core.Committed()
	next := b.core.Seal()
	if len(next.Items) != 1 || next.Items[0].Collection != "y" || changesOf(next.Changes) != "[b: ub 8]" || fmt.Sprint(sorted(next.Progress)) != "[y]" || len(next.Settled) != 1 {
		t.Errorf("the next batch is %+v, want one item, change, progress and settled intent of y", next)
	}
	b.core.Committed()
	b.store.intents = map[Slot][]Intent{}
	b.core.Restore("x", b.store.state(), 0)
	if _, inDoubt := b.core.Object("x", "b"); inDoubt || b.x().Phase != Listing {
		t.Errorf("after Restore, the phase is %s and b is in doubt: %t, want %s and false", b.x().Phase, inDoubt, Listing)
	}
	if b.core.Drop("x"); b.core.Sealed() != nil {
		t.Error("Drop created a sealed batch, want none")
	}
	b.core.Restore("x", b.store.state(), 0)
	b.do(listBegun, seen(List, "c", "9"))
	b.core.Drop("x")
	b.core.Restore("x", b.store.state(), 0)
	if o, _ := b.core.Object("x", "c"); o != nil {
		t.Errorf("after Drop, the entry that was set last is %+v, want none: it was not committed", o)
	}
}

// TestPublished: if the sink is a log, it has the items before a refused one. They are not delivered again. Their changes
// are committed with the rest of the batch.
func TestPublished(t *testing.T) {
	b := inStep(t).do(seen(Watch, "a", "11"), seen(Watch, "b", "12"), seen(Watch, "c", "13"))
	batch := b.core.Seal()
	b.core.Published(2)
	rest := b.core.Sealed()
	if len(rest.Items) != 1 || rest.Items[0].Object.Key != "c" || len(rest.Changes) != 3 || len(batch.Items) != 3 {
		t.Errorf("the rest of the batch is %+v, want item c and all 3 changes; the returned batch has %d items, want 3", rest, len(batch.Items))
	}
}

// TestMemory: a batch is built in the memory of the batch before the last, and has no content of that batch.
func TestMemory(t *testing.T) {
	b := inStep(t, seen(List, "z", "2"))
	b.do(seen(Watch, "a", "11"), seen(Watch, "b", "12"), seen(Watch, "c", "13")).commit().do(seen(Watch, "a", "14")).commit()
	if items, changes := cap(b.core.current.items), cap(b.core.current.changes); items < 3 || changes < 3 {
		t.Errorf("the next batch has capacity for %d items and %d changes, want at least 3 of each", items, changes)
	}
	batch := b.do(seen(Watch, "c", "15")).core.Seal()
	if got := changesOf(batch.Changes); got != "[c: uc 15]" || len(batch.Items) != 1 {
		t.Errorf("the changes are %s with %d items, want [c: uc 15] with 1", got, len(batch.Items))
	}
}

// TestSignificant: the caller's digest of what is published is kept until another body is published.
func TestSignificant(t *testing.T) {
	significant := func(n uint64) func(*Sighting) { return func(s *Sighting) { s.Significant = digestOf(n) } }
	minor := func(s *Sighting) {
		preparedOf(s).minor = func(o *Object) bool { return o.Significant == s.Significant }
	}
	b := inStep(t, seen(List, "a", "5", significant(1), minor))
	for _, c := range []struct {
		version string
		is      uint64
		want    string
		kept    uint64
	}{
		{"11", 1, "", 1}, {"12", 2, "modified ua", 2}, {"13", 2, "", 2}, {"14", 1, "modified ua", 1},
	} {
		b.do(seen(Watch, "a", c.version, significant(c.is), minor))
		if got := b.emitted(); got != c.want {
			t.Errorf("%s: %q, want %q", c.version, got, c.want)
		}
		if o, _ := b.core.Object("x", "a"); o.Significant != digestOf(c.kept) || o.Version != c.version {
			t.Errorf("%s: the inventory entry has digest %d and version %s, want %d and %s", c.version, o.Significant.number(), o.Version, c.kept, c.version)
		}
	}
}

// TestMemoryOfEvents: a batch keeps its events and inventory entries in the memory of the batch before the last, so
// that publishing leaves no garbage.
func TestMemoryOfEvents(t *testing.T) {
	b := inStep(t, seen(List, "a", "5"))
	b.commit()
	events, entries := map[*ObjectEvent]bool{}, map[*Object]bool{}
	for version := 11; version < 31; version++ {
		b.do(seen(Watch, "a", strconv.Itoa(version)))
		batch := b.core.Seal()
		events[batch.Items[0].Object], entries[batch.Changes[0].Object] = true, true
		b.core.Committed()
	}
	if len(events) != 2 || len(entries) != 2 {
		t.Errorf("20 batches allocated %d events and %d inventory entries, want 2 of each", len(events), len(entries))
	}
}

// TestSettledDrafts: the first batch with anything of a collection settles the draft that the store has of it.
func TestSettledDrafts(t *testing.T) {
	s := newStore()
	for _, id := range []string{"x", "y", "z"} {
		s.records[id] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
		s.progress[id] = Progress{Position: "10", Seen: "10"}
	}
	for _, id := range []string{"x", "y"} {
		d := Draft{Record: s.records[id], Progress: Progress{Position: "20"}, Confirmed: true}
		d.Syncs = 7
		s.drafts[id] = d
	}
	b := newBench(t, s)
	b.do(seen(Watch, "a", "21"), of("y", seen(Watch, "a", "22")), of("z", seen(Watch, "a", "23")))
	batch := b.core.Seal()
	if slices.Sort(batch.SettledDrafts); fmt.Sprint(batch.SettledDrafts) != "[x y]" {
		t.Errorf("the batch settles the drafts of %v, want [x y]", batch.SettledDrafts)
	}
	b.core.Drop("y")
	if kept := b.core.Sealed().SettledDrafts; fmt.Sprint(kept) != "[x]" {
		t.Errorf("without y, the batch settles the drafts of %v, want [x]", kept)
	}
	b.core.Committed()
	b.do(seen(Watch, "a", "31"))
	if next := b.core.Seal().SettledDrafts; len(next) > 0 {
		t.Errorf("the next batch settles the drafts of %v, want none", next)
	}
}
