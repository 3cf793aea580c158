package reconcile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// recoverRows are the rows of the table in the comment of [Collection.recover]. In every case, the record in the store
// is in phase InStep, in run 2 of incarnation 1.
var recoverRows = []struct {
	draft, continues string
	drafts           []recovered
}{
	{"none", "the record", []recovered{{nil, "in step, run 2/1 at 10"}}},
	{"Ending, Leaving", "the draft; Leaving with a reset in doubt is Ending; closed in doubt is emitted again", []recovered{
		{&Draft{Record: Record{Phase: Ending, Run: 2, Incarnation: 1, Unwanted: true}}, "ending for good, run 2/1 at 10"},
		{&Draft{Record: Record{Phase: Ending, Run: 3, Incarnation: 3}, Gap: true}, "ending, run 3/3 at 10"},
		{&Draft{Record: Record{Phase: Leaving, Run: 2, Incarnation: 1}}, "leaving, run 2/1 at 10"},
		{&Draft{Record: Record{Phase: Leaving, Run: 3, Incarnation: 1}, Gap: true, Synced: true}, "leaving, run 3/1 at 10"},
		{&Draft{Record: Record{Phase: Leaving, Run: 3, Incarnation: 3}, Gap: true}, "ending for good, run 3/3 at 10"},
	}},
	{"gap with reset, more in doubt", "the draft; another gap with reset is emitted", []recovered{
		{&Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 3, LastList: LastList{SyncedEpoch: 1}, Route: "r"}, Progress: Progress{Position: "20"}, Gap: true, Synced: true}, "listing, run 4/4: reset gap of 4 from "},
		{&Draft{Record: Record{Phase: Listing, Run: 4, Incarnation: 3}, Gap: true}, "listing, run 5/5: reset gap of 5 from "},
		{&Draft{Record: Record{Phase: InStep, Run: 4, Incarnation: 3, LastList: LastList{SyncedEpoch: 1}}, Gap: true, Synced: true, Resync: true}, "listing, run 5/5: reset gap of 5 from "},
	}},
	{"with synced in doubt", "the draft; another gap is emitted", []recovered{
		{&Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 1, LastList: LastList{SyncedEpoch: 2}}, Progress: Progress{Position: "20"}, Synced: true}, "listing, run 4/1 at 10: gap interrupted of 4 from 10"},
		{&Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 1, LastList: LastList{SyncedEpoch: 2}}, Progress: Progress{Position: "20"}, Gap: true, Synced: true}, "listing, run 4/1 at 10: gap interrupted of 4 from 10"},
		{&Draft{Record: Record{Phase: InStep, Run: 4, Incarnation: 1, Resync: true}, Progress: Progress{Position: "20"}, Synced: true, Resync: true}, "listing, run 5/1 at 10, resync due: gap interrupted of 5 from 10"},
	}},
	{"Listing, its gap in doubt", "the draft; the gap is emitted again, with its id, or another one from the position in the store", []recovered{
		{&Draft{Record: Record{Phase: Listing, Run: 3, Incarnation: 1, Reason: "expired"}, Progress: Progress{Position: "15"}, Gap: true, From: "15"}, "listing, run 4/1 at 10: gap expired of 4 from "},
		{&Draft{Record: Record{Phase: Listing, Run: 3, Incarnation: 1, Reason: "expired"}, Progress: Progress{Position: "10"}, Gap: true, From: "10"}, "listing, run 3/1 at 10: gap expired of 3 from 10"},
		{&Draft{Record: Record{Phase: Listing, Run: 3, Incarnation: 3, Reason: event.ReasonReset}, Gap: true}, "listing, run 3/3: reset gap of 3 from "},
		{&Draft{Record: Record{Phase: Listing, Run: 4, Incarnation: 1, Reason: "expired"}, Progress: Progress{Position: "10"}, Gap: true, Resync: true, From: "10"}, "listing, run 4/1 at 10: gap expired of 4 from 10"},
	}},
	{"with a resync in doubt", "the record, with a resync due; its gap is emitted again if it is in doubt and begins at the position in the store", []recovered{
		{&Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 1, Resync: true}, Progress: Progress{Position: "20"}, Resync: true, From: "10"}, "in step, run 3/1 at 10, resync due: gap resync of 3 from 10"},
		{&Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 1, Resync: true}, Progress: Progress{Position: "20"}, Resync: true, From: "15"}, "in step, run 3/1 at 10, resync due"}, // changes up to 15 may be in doubt
		{&Draft{Record: Record{Phase: InStep, Run: 2, Incarnation: 1}, Progress: Progress{Position: "20"}, Resync: true}, "in step, run 2/1 at 10, resync due"},
	}},
	{"with a periodic synced in doubt", "the record; the number of the synced event is not used again", []recovered{
		{&Draft{Record: Record{Phase: InStep, Run: 2, Incarnation: 1, Syncs: 7}, Progress: Progress{Position: "20"}, Confirmed: true}, "in step, run 2/1 at 10, 7 synced"},
	}},
}

// The synced event of a resource that does not exist has no resourceVersion. With the version of an earlier list,
// consumers would show their copies as complete up to a time that no list has proved.
func TestSyncedOfAnAbsentResource(t *testing.T) {
	b := inStep(t, seen(List, "a", "5")).do(isGone, listEnded(""))
	for _, a := range b.core.Missing("x", 10) {
		b.do(Input{Kind: ListLacks, Key: a.Key, Sighting: &Sighting{Form: Lacking, Origin: List, Key: a.Key}})
	}
	items := b.do(listDone).core.Items()
	last := items[len(items)-1].Event
	if last == nil || last.Type != event.Synced || last.Reason != event.ReasonGone || last.Version != "" {
		t.Errorf("the last event is %+v, want a synced event of reason gone without a version", last)
	}
	b.commit().do(listBegun)
	if first := b.core.Items()[0].Event; first == nil || first.From != "10" {
		t.Errorf("the next gap is %+v, want one with From 10", first)
	}
}

type recovered struct {
	draft *Draft
	want  string
}

// TestRecover checks whether a restart continues from the record or from the draft. The wrong one would publish an event
// id a second time with other content, or leave an incarnation without its first gap.
func TestRecover(t *testing.T) {
	comment := commentTable(t, "restart.go", "draft", "continues as")
	var text [][]string
	for _, row := range recoverRows {
		text = append(text, []string{row.draft, row.continues})
		for _, c := range row.drafts {
			s := newStore()
			s.records["x"] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
			s.progress["x"] = Progress{Position: "10", Seen: "10"}
			if c.draft != nil {
				c.draft.Epoch, c.draft.Seen = 1, "30"
				s.drafts["x"] = *c.draft
			}
			b := newBench(t, s)
			x := b.x()
			got := x.Phase.String()
			if x.Unwanted {
				got += " for good"
			}
			got += fmt.Sprintf(", run %d/%d", x.Run, x.Incarnation)
			if x.Position != "" {
				got += " at " + x.Position
			}
			if x.Resync {
				got += ", resync due"
			}
			if x.Syncs > 0 {
				got += fmt.Sprintf(", %d synced", x.Syncs)
			}
			for _, i := range b.core.Items() {
				what := i.Event.Type.String() + " " + string(i.Event.Reason)
				if i.Event.Reset {
					what = "reset " + i.Event.Type.String()
				}
				got += fmt.Sprintf(": %s of %d from %s", what, i.Run, i.Event.From)
			}
			if got != c.want {
				t.Errorf("%s: %s, want %s", row.draft, got, c.want)
			}
			seen := "10"
			if strings.HasPrefix(row.continues, "the draft") {
				seen = "30"
			}
			if x.Seen != seen {
				t.Errorf("%s: Seen is %s, want %s", row.draft, x.Seen, seen)
			}
			if x.SyncedEpoch > 1 {
				t.Errorf("%s: SyncedEpoch is %d, want at most 1, because the synced event is in doubt", row.draft, x.SyncedEpoch)
			}
		}
	}
	if got, want := fmt.Sprintf("%q", text), fmt.Sprintf("%q", comment); got != want {
		t.Errorf("the rows of this test are\n%s\nand the comment of recover has\n%s", got, want)
	}
}

// TestRecoverEpoch: a collection that has a list or a position, and continues in an older epoch than its storage, emits a
// gap. This happens if another collection of the storage has noticed a restore. The storage's epoch may be missing in the
// store's epochs, and then comes from the record or the draft of the other collection.
func TestRecoverEpoch(t *testing.T) {
	for p, want := range map[Phase]string{
		New: "", Listing: "gap", InStep: "gap", Absent: "", Leaving: "", Ending: "", Closed: "",
	} {
		s := newStore()
		s.records["x"] = Record{Phase: p, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
		s.progress["x"] = Progress{Position: "10", Seen: "10"}
		s.epochs[""] = 2
		b := newBench(t, s)
		if got := b.emitted(); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
		if want == "" {
			continue
		}
		if i := b.core.Items()[0]; i.Epoch != 2 || i.Event.Reason != event.ReasonHistory || i.Event.From != "10" || b.x().Seen != "" || b.x().Phase != Listing {
			t.Errorf("phase %s: the gap %+v has epoch %d and the record %+v, want epoch 2, reason history, From 10, and phase Listing without Seen", p, i.Event, i.Epoch, b.x().Record)
		}
	}
	s := newStore()
	s.records["x"] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
	s.progress["x"] = Progress{Position: "10"}
	s.records["y"] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 2, LastList: LastList{SyncedEpoch: 2}}
	s.progress["y"] = Progress{Position: "5"}
	if got := newBench(t, s).emitted(); got != "gap" {
		t.Errorf("the record of another collection has the storage's epoch: %q, want gap", got)
	}
	delete(s.records, "y")
	s.drafts["y"] = Draft{Record: Record{Phase: Listing, Run: 2, Incarnation: 1, Epoch: 2}, Gap: true}
	if got := newBench(t, s).emitted(); got != "gap, reset gap" {
		t.Errorf("the draft of another collection has the storage's epoch: %q, want gap, reset gap", got)
	}
}

// TestCompleteIsOfThePresentHistory: resourceVersions of another history say nothing about the present one. Who takes the old position for complete
// could, for example, forget audit records of changes that the list is about to find.
func TestCompleteIsOfThePresentHistory(t *testing.T) {
	b := newBench(t, nil)
	for _, id := range []string{"x", "y"} {
		b.do(of(id, configured(Properties{})), of(id, listBegun), of(id, listEnded("10")), of(id, listDone)).commit()
	}
	want := func(when, x, y string) {
		t.Helper()
		if gotX, gotY := b.core.Complete("x"), b.core.Complete("y"); gotX != x || gotY != y {
			t.Errorf("%s: x is complete up to %q, y up to %q, want %q and %q", when, gotX, gotY, x, y)
		}
	}
	if got := b.core.Complete("z"); got != "" {
		t.Errorf("a collection that is not configured is complete up to %q", got)
	}
	want("both are in step", "10", "10")
	b.do(newHistory(listBegun)).commit()
	want("x lists another history", "", "")
	b.do(of("x", listEnded("5")), of("x", listDone)).commit()
	want("x has listed it", "5", "")
	b.do(of("y", listBegun), of("y", listEnded("6")), of("y", listDone)).commit()
	want("both have listed it", "5", "6")
	b.do(of("x", Input{Kind: ListBegun, Reason: event.ReasonExpired})).commit()
	want("x lists the same history again", "5", "6")
}

// TestGapAfterAnotherHistory: after a restore, the position belongs to the previous history until a list of the present
// one is complete. A gap must not have it as From: consumers would conclude that the collection was complete up to there
// in the present history.
func TestGapAfterAnotherHistory(t *testing.T) {
	s := newStore()
	s.records["x"] = Record{Phase: Listing, Run: 3, Incarnation: 1, Epoch: 2, LastList: LastList{SyncedEpoch: 1}}
	s.progress["x"] = Progress{Position: "14"}
	s.drafts["x"] = Draft{Record: Record{Phase: InStep, Run: 3, Incarnation: 1, Epoch: 2, LastList: LastList{SyncedEpoch: 2}}, Progress: Progress{Position: "12"}, Synced: true}
	b := newBench(t, s)
	if got := b.emitted(); got != "gap" {
		t.Fatalf("emitted %q, want a gap", got)
	}
	if e := b.core.Items()[0].Event; e.From != "" {
		t.Errorf("the gap has From %q, want none: the position is of the previous history", e.From)
	}
}

// TestDeletionOfAPublicationInDoubt: a deletion from the watch ends the publication in the inventory entry, or the one in doubt if
// that is of a later run and the watch is past it. See [Object.asInDoubt].
func TestDeletionOfAPublicationInDoubt(t *testing.T) {
	v := view{memory: &memory{}, run: 4, sameHistory: true}
	of := func(known *Object, doubts []Intent, edits ...func(*Sighting)) string {
		r := v.decide(known, doubts, seeing(Watch, edits...))
		return r.text()
	}
	later := func(i *Intent) { i.Run = 3 }
	for _, c := range []struct {
		what   string
		known  *Object
		doubts []Intent
		want   string
	}{
		{"of a later run", entryOf(Published, "10"), intentOf("15", later), "deleted u of 3/15 at 20; entry: none"},
		{"of the same run", entryOf(Published, "10"), intentOf("19"), "deleted u of 2/10 at 20; entry: none"},
		{"a version that the watch has not reached", entryOf(Published, "10"), intentOf("21", later), "deleted u of 2/10 at 20; entry: none"},
		{"another object", entryOf(Published, "10"), intentOf("10", later, func(i *Intent) { i.UID = "o" }), "deleted u of 2/10 at 20; entry: none"},
		{"its deletion, behind one of a later run", entryOf(Published, "10"), intentOf("10", later, func(i *Intent) { i.Deleted = true }), "deleted u of 3/10 at 20; entry: none"},
		{"an object that consumers do not have", entryOf(Unpublished, "10"), intentOf("10", later), "entry: none"},
		{"nothing", entryOf(Published, "10"), nil, "deleted u of 2/10 at 20; entry: none"},
	} {
		if got := of(c.known, c.doubts, deletionAt("20")); got != c.want {
			t.Errorf("%s is in doubt: %s, want %s", c.what, got, c.want)
		}
	}
	if got := of(entryOf(Published, "10", uid("o")), intentOf("10", later)); !strings.HasPrefix(got, "deleted o of 2/10 at 20; added u") {
		t.Errorf("the object that has the name now is in doubt: %s, want deleted o of 2/10 at 20, then added u", got)
	}
}

// TestRecoverSeen: after a restart, Seen includes the versions of events in doubt. An API server that is behind Seen has
// another history.
func TestRecoverSeen(t *testing.T) {
	intent := func(collection, version string, epoch uint64) *store {
		s := newStore()
		s.records["x"] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
		s.progress["x"] = Progress{Position: "10", Seen: "10"}
		i := intentOf("1")[0]
		i.Version, i.Epoch = version, epoch
		s.intents[Slot{collection, "a"}] = []Intent{i}
		return s
	}
	for _, c := range []struct {
		what  string
		store *store
		want  string
	}{
		{"an event in doubt is later", intent("x", "12", 1), "12"},
		{"an event in doubt is earlier", intent("x", "9", 1), "10"},
		{"an event in doubt is of another history", intent("x", "12", 2), "10"},
		{"an event in doubt is of another collection", intent("y", "12", 1), "10"},
	} {
		if got := newBench(t, c.store).core.Reading("x").Seen; got != c.want {
			t.Errorf("%s: seen %s, want %s", c.what, got, c.want)
		}
	}
}

// TestNewEpoch: when one collection notices a new epoch of its storage, all collections of the storage that have a list or
// a position begin another run in that epoch.
func TestNewEpoch(t *testing.T) {
	together := func(p Properties, edits ...Input) *bench {
		b := newBench(t, nil)
		for _, id := range []string{"x", "y"} {
			b.do(of(id, configured(Properties{})), of(id, listBegun), of(id, listEnded("10")), of(id, listDone)).commit()
		}
		b.do(of("y", configured(p))).do(edits...)
		return b.commit()
	}
	y := func(k InputKind) Input { return Input{Kind: k, Collection: "y"} }
	for _, c := range []struct {
		what  string
		bench *bench
		want  string // of y
	}{
		{"in step", together(Properties{}), "gap"},
		{"verifying", together(Properties{}, y(SideBegun)), "gap"},
		{"listing", together(Properties{}, y(ListBegun)), "gap"},
		{"new", together(Properties{Storage: "other"}), ""},
		{"leaving", together(Properties{}, y(Remove)), ""},
		{"absent", together(Properties{}, of("y", isGone), of("y", listEnded("")), of("y", listDone)), ""},
	} {
		reading := c.bench.core.Reading("y").Number
		c.bench.do(newHistory(listBegun))
		got := ""
		for _, i := range c.bench.core.Items() {
			if i.Epoch != 2 || i.Event.Reason != event.ReasonHistory {
				t.Errorf("%s: collection %s has the event %+v in epoch %d, want epoch 2 and reason history", c.what, i.Collection, i.Event, i.Epoch)
			}
			if i.Collection == "y" {
				got = i.Event.Type.String()
			}
		}
		if got != c.want {
			t.Errorf("%s: collection y emitted %q, want %q", c.what, got, c.want)
		}
		if again := c.bench.core.Reading("y").Number != reading; again != (c.want != "") {
			t.Errorf("%s: a new read of y begins: %t, want %t", c.what, again, !again)
		}
		if x := c.bench.x(); x.list == nil || x.Seen != "" || x.Epoch != 2 {
			t.Errorf("%s: the record of x is %+v, want epoch 2, no Seen, and its list under way", c.what, x.Record)
		}
		if b := c.bench.core.Seal(); b.Epochs[""] != 2 || len(b.Epochs) != 1 {
			t.Errorf("%s: epochs %v are committed, want epoch 2 of the default storage only", c.what, b.Epochs)
		}
	}

	other := newBench(t, nil)
	for id, storage := range map[string]string{"x": "", "y": "other"} {
		other.do(of(id, configured(Properties{Storage: storage})), of(id, listBegun), of(id, listEnded("10")), of(id, listDone))
	}
	other.commit().do(newHistory(listBegun))
	if y := other.core.collections["y"]; y.Epoch != 1 || y.Phase != InStep {
		t.Errorf("the record of y is %+v, want epoch 1 and phase InStep: only the storage of x was restored", y.Record)
	}
}

// TestEpochAfterAbsence: a collection that had no position when its storage got a new epoch begins its next run in that
// epoch. It does not raise the epoch a second time.
func TestEpochAfterAbsence(t *testing.T) {
	for _, c := range []struct {
		away, back []Input
	}{
		{[]Input{removed}, []Input{configured(Properties{}), listBegun}},
		{[]Input{isGone, listEnded(""), listDone}, []Input{newHistory(listBegun)}},
		{[]Input{isGone, listEnded(""), listDone}, []Input{listBegun}},
	} {
		b := inStep(t).do(of("y", configured(Properties{})), of("y", listBegun), of("y", listEnded("10")), of("y", listDone)).do(c.away...).commit()
		b.do(of("y", newHistory(listBegun))).commit().do(c.back...)
		if got := b.emitted(); got != "gap" {
			t.Errorf("emitted %s, want one gap", got)
		}
		if i := b.core.Items()[0]; i.Epoch != 2 || b.x().Epoch != 2 || b.core.epochOf("") != 2 {
			t.Errorf("the epochs of the gap, the collection and the storage are %d, %d and %d, want 2", i.Epoch, b.x().Epoch, b.core.epochOf(""))
		}
	}
}

// TestExistsAgain: consumers learn that the collections of a resource that exists again are unknown before they learn what one of them has. A collection
// that is absent while another one is read has no namespace, so nothing follows from a list of another one.
func TestExistsAgain(t *testing.T) {
	plain := configured(Properties{})
	synced := func(id string) []Input {
		return []Input{of(id, plain), of(id, listBegun), of(id, listEnded("10")), of(id, listDone)}
	}
	goes := func(id string) []Input { return []Input{of(id, isGone), of(id, listEnded("")), of(id, listDone)} }
	both := slices.Concat(synced("pods@a"), synced("pods@b"), goes("pods@a"), goes("pods@b"))
	third := slices.Concat(synced("pods@a"), synced("pods@b"), synced("pods@c"))
	for _, c := range []struct {
		name   string
		before []Input
		listed string // the collection that is listed then
		want   string // its gap, and those before it
	}{
		{"all are absent", both, "pods@a", "pods@b returned, pods@a expired"},
		{"all are absent, and another is new", append(both, of("pods@c", plain)), "pods@c", "pods@a returned, pods@b returned, pods@c reset"},
		{"the absence of another is not published yet", slices.Concat(synced("pods@a"), synced("pods@b"), goes("pods@a"), []Input{of("pods@b", isGone)}), "pods@a", "pods@b returned, pods@a expired"},
		{"another is read", slices.Concat(third, goes("pods@a"), goes("pods@b")), "pods@a", "pods@a expired"},
		{"another is listed", slices.Concat(third, goes("pods@a"), goes("pods@b"), []Input{of("pods@c", listBegun)}), "pods@a", "pods@a expired"},
		{"it was read", slices.Concat(synced("pods@a"), synced("pods@b"), goes("pods@b")), "pods@a", "pods@a expired"},
		{"another leaves", slices.Concat(third, goes("pods@a"), goes("pods@b"), []Input{of("pods@c", removed)}), "pods@a", "pods@b returned, pods@a expired"},
		{"another ends", slices.Concat(third, goes("pods@a"), goes("pods@b"), []Input{of("pods@c", configured(Properties{Shape: "s"}))}), "pods@a", "pods@b returned, pods@a expired"},
		{"another is closed", slices.Concat(third, goes("pods@a"), goes("pods@b"), []Input{of("pods@c", removed), of("pods@c", released), of("pods@c", Input{Kind: Forgot})}), "pods@a", "pods@b returned, pods@a expired"},
		{"another was never there", append(both, of("pods@c", plain), of("pods@c", isGone)), "pods@a", "pods@b returned, pods@a expired"},
		{"another entry is read", append(synced("pods:x"), both...), "pods@a", "pods@a expired"},
		{"another resource is read", append(both, synced("pods.metrics.k8s.io")...), "pods@a", "pods@b returned, pods@a expired"},
		{"another resource is absent", slices.Concat(synced("pods.metrics.k8s.io"), goes("pods.metrics.k8s.io"), both), "pods@a", "pods@b returned, pods@a expired"},
		{"a resource with a similar name is absent", slices.Concat(synced("podsets"), goes("podsets"), both), "pods@a", "pods@b returned, pods@a expired"},
	} {
		b := newBench(t, nil)
		for _, in := range c.before {
			if b.do(in); in.Kind == Release {
				b.commit()
			}
		}
		b.commit().do(of(c.listed, listBegun))
		var gaps []string
		for _, i := range b.core.Items() {
			gaps = append(gaps, fmt.Sprintf("%s %s", i.Collection, i.Event.Reason))
		}
		if got := strings.Join(gaps, ", "); got != c.want {
			t.Errorf("%s: emitted are %q, want %q", c.name, got, c.want)
		}
		for _, id := range b.core.IDs() {
			if x := b.core.Collection(id); strings.Contains(c.want, id+" returned") && (x.Phase != Listing || x.list != nil) {
				t.Errorf("%s: %s is not listed again", c.name, id)
			}
		}
	}
}

// TestReset: after a reset, the store has every incarnation in phase Ending, including those that are in doubt. New and
// closed collections stay as they are.
func TestReset(t *testing.T) {
	doubt := Draft{Record: Record{Phase: Listing, Run: 5, Incarnation: 5}, Progress: Progress{Seen: "9"}, Gap: true}
	ending := Draft{Record: Record{Phase: Ending, Run: 3, Incarnation: 0, ClosedEmitted: true}}
	s := State{
		Records: map[string]Record{
			"new": {Run: 2}, "closed": {Phase: Closed, Run: 2}, "listing": {Phase: Listing, Run: 2, Incarnation: 1},
			"leaving": {Phase: Leaving, Run: 2, Incarnation: 1}, "removed": {Phase: Ending, Run: 2, Incarnation: 1, Unwanted: true},
			"reset in doubt": {Phase: New, Run: 2}, "closed in doubt": {Phase: InStep, Run: 3, Incarnation: 3},
		},
		Progress: map[string]Progress{"new": {}, "listing": {Seen: "7"}},
		Epochs:   map[string]uint64{"": 2},
		Drafts:   map[string]Draft{"reset in doubt": doubt, "first in doubt": doubt, "closed in doubt": ending},
		Intents:  map[Slot][]Intent{{"listing", "a"}: intentOf("5")},
	}
	was := fmt.Sprint(s)
	got, ended := s.Reset(), Record{Phase: Ending, Run: 5, Incarnation: 5}
	want := State{
		Records: map[string]Record{
			"new": {Run: 2}, "closed": {Phase: Closed, Run: 2}, "listing": {Phase: Ending, Run: 2, Incarnation: 1},
			"leaving": {Phase: Ending, Run: 2, Incarnation: 1, Unwanted: true}, "removed": {Phase: Ending, Run: 2, Incarnation: 1, Unwanted: true},
			"reset in doubt": ended, "first in doubt": ended, "closed in doubt": {Phase: Ending, Run: 3, Incarnation: 3},
		},
		Progress: map[string]Progress{"new": {}, "listing": {Seen: "7"}, "reset in doubt": {Seen: "9"}, "first in doubt": {Seen: "9"}, "closed in doubt": {}},
		Epochs:   s.Epochs, Intents: s.Intents,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Reset returns %+v\nwant %+v", got, want)
	}
	if fmt.Sprint(s) != was {
		t.Errorf("Reset changed its input to %+v", s)
	}
}

// TestBegin: no state of an incarnation continues in the next one.
func TestBegin(t *testing.T) {
	p := Properties{Selection: "s", Route: "r"}
	b := newBench(t, nil).do(configured(p)).do(listed("10")...).do(demanded).reset()
	p.Route = "other"
	b.do(configured(p), Input{Kind: Forgot})
	if i := b.core.Items()[0]; i.Event.Type != event.Closed || i.Incarnation != 1 || b.x().Incarnation != 0 {
		t.Errorf("the last item is %+v and the record has incarnation %d, want a closed event of incarnation 1 and 0", i, b.x().Incarnation)
	}
	b.commit().do(listBegun)
	b.x().Seen = ""
	got := b.x().Record
	want := Record{Phase: Listing, Run: 2, Incarnation: 2, Epoch: 1, EpochRun: 1, Reason: event.ReasonReset, Properties: p, Route: "other", LastList: LastList{ListedSelection: "s"}, Full: 2}
	if got != want {
		t.Errorf("the record is %+v, want %+v", got, want)
	}
	if e := b.core.Items()[0].Event; e.From != "" || !e.Reset {
		t.Errorf("the first event is %+v, want a reset without From", e)
	}
	if i := b.core.Items()[0]; i.Run != 2 || i.Incarnation != 2 || i.Route != "other" {
		t.Errorf("the first item is %+v, want run 2 and incarnation 2 on route other", i)
	}
}

// TestRestoredRun: a run that begins when a collection continues from the store has at least the present time as its
// number.
func TestRestoredRun(t *testing.T) {
	s := newStore()
	s.records["x"] = Record{Phase: InStep, Run: 2, Incarnation: 1, Epoch: 1}
	s.drafts["x"] = Draft{Record: s.records["x"], Synced: true}
	if got := NewCore(s, s.state(), 50).Collection("x").Run; got != 50 {
		t.Errorf("the run is %d, want 50", got)
	}
}

// TestHolds: Holds is true while consumers have, or may have, an object of the collection.
func TestHolds(t *testing.T) {
	unfit := func(s *Sighting) { s.DeadLetter = true }
	b := inStep(t, seen(List, "a", "5", unfit))
	if b.core.Holds("x") || b.core.Holds("y") {
		t.Error("Holds is true, want false: no object of x was published, and y does not exist")
	}
	if b.do(seen(Watch, "b", "11"), seen(Watch, "c", "12", unfit)); !b.core.Holds("x") {
		t.Error("Holds is false, want true: consumers have object b")
	}
	if b.commit().do(gone(Watch, "b", "13")); b.core.Holds("x") {
		t.Error("Holds is true, want false: the deletion of the only published object was emitted")
	}
	b.core.intents[Slot{"x", "c"}] = intentOf("12")
	if b.core.intents[Slot{"x", "c"}][0].Run = b.x().Run; !b.core.Holds("x") {
		t.Error("Holds is false, want true: object c is in doubt")
	}
	b.do(seen(Watch, "d", "14")).commit()
	if b.core.Drop("x"); b.core.Holds("x") {
		t.Error("Holds is true, want false: the collection was dropped")
	}
}

// TestOmit: a batch does not have the parts that the caller has asked the core to omit.
func TestOmit(t *testing.T) {
	for _, omits := range []omission{{}, {intents: true}, {alone: true}} {
		b := inStep(t)
		b.core.Omit(omits.intents, omits.alone)
		batch := b.do(listBegun, seen(List, "a", "11")).core.Seal()
		gap, a := &batch.Items[0], &batch.Items[1]
		if got := len(batch.Drafts)+len(batch.Intents) == 0; got != omits.intents {
			t.Errorf("omit %+v: the batch has %d drafts and %d intents, want none exactly if intents are omitted", omits, len(batch.Drafts), len(batch.Intents))
		}
		if got := gap.Record == nil && a.Changes == nil && a.Progress == (Progress{}); got != omits.alone {
			t.Errorf("omit %+v: the items are %+v, want items without record, changes and progress exactly if alone is omitted", omits, batch.Items)
		}
	}
}

// TestRuns: a run is never used twice.
func TestRuns(t *testing.T) {
	b := inStep(t)
	for _, c := range []struct {
		now, want uint64
	}{{0, 2}, {0, 3}, {100, 100}, {50, 101}} {
		in := listBegun
		in.Now = c.now
		b.do(Input{Kind: Confirm}, in, listEnded("10"), listDone)
		if b.x().Run != c.want || b.x().Syncs != 1 {
			t.Errorf("run %d has %d synced events, want run %d with 1", b.x().Run, b.x().Syncs, c.want)
		}
	}
}

// TestClosedInDoubt: consumers must get the closed event of an incarnation, even if its collection is configured and
// removed again while the event is in doubt.
func TestClosedInDoubt(t *testing.T) {
	p := Properties{Route: "r"}
	b := newBench(t, nil).do(configured(p)).do(listed("10")...).do(removed, released).commit()
	b.do(Input{Kind: Forgot}, configured(Properties{}), removed)
	batch := b.core.Seal()
	if e := batch.Items[0].Event; len(batch.Items) != 1 || e.Type != event.Closed {
		t.Fatalf("the items are %+v, want one closed event", batch.Items)
	}
	b.store.before(batch)
	again := newBench(t, b.store).do(Input{Kind: Forgot}).core.Items()
	if len(again) != 1 || again[0].Event.Type != event.Closed || again[0].Run != 1 || again[0].Incarnation != 1 || again[0].Route != "r" {
		t.Errorf("the items after a restart are %+v, want the closed event of run 1 and incarnation 1 on route r", again)
	}
}

// TestClosed: an ending has at most one closed event, with its reason. If null values follow, the closed event comes
// before them.
func TestClosed(t *testing.T) {
	for _, c := range []struct {
		before, end   []Input
		with, without string // the reason of the closed event, with and without null values; "": there is no such event
	}{
		{nil, []Input{configured(Properties{Shape: "s"})}, "reset", ""},
		{nil, []Input{configured(Properties{Route: "r"})}, "route", "route"},
		{[]Input{removed}, []Input{released}, "removed", "removed"},
	} {
		for _, tombstones := range []bool{true, false} {
			begins, ends := "", c.without
			if tombstones {
				begins, ends = c.with, ""
			}
			b := newBench(t, nil).do(configured(Properties{Tombstones: tombstones})).do(listed("10")...).do(c.before...).commit()
			for i := range c.end {
				c.end[i].Properties.Tombstones = tombstones
			}
			if got := closedFor(b.do(c.end...)); got != begins {
				t.Errorf("the first batch of the ending has closed events with the reasons %q, want %q", got, begins)
			}
			if got := closedFor(b.commit().do(Input{Kind: Forgot})); got != ends {
				t.Errorf("the last batch of the ending has closed events with the reasons %q, want %q (first batch: %q)", got, ends, begins)
			}
			if open := b.x().Incarnation != 0; open != (begins+ends == "") {
				t.Errorf("closed events %q and %q: incarnation is %d, want 0 exactly after a closed event", begins, ends, b.x().Incarnation)
			}
		}
	}
}

// TestNothingToClose: a collection that ends before its first list emits no closed event, because consumers have no
// object of it.
func TestNothingToClose(t *testing.T) {
	b := newBench(t, nil).do(configured(Properties{Tombstones: true}), removed)
	if got := b.emitted(); got != "" || b.x().Phase != Ending {
		t.Errorf("emitted %q in phase %s, want no event in phase %s", got, b.x().Phase, Ending)
	}
}

// closedFor returns the reasons of the closed events in a batch.
func closedFor(b *bench) (reasons string) {
	for _, i := range b.core.Items() {
		if i.Event.Type == event.Closed {
			reasons += string(i.Event.Reason)
		}
	}
	return reasons
}

// TestSynced: a synced event has the version up to which its list is complete, and its number within the run.
func TestSynced(t *testing.T) {
	b := inStep(t).do(listBegun, seen(List, "a", "11"), listEnded("20"), listDone, Input{Kind: Confirm})
	var got []string
	for _, i := range b.core.Items() {
		if e := i.Event; e != nil {
			got = append(got, fmt.Sprintf("%s %s at %s from %s, number %d", e.Type, e.Reason, e.Version, e.From, e.Nth))
		}
	}
	want := "[gap expired at  from 10, number 0 synced expired at 20 from , number 1 synced periodic at 20 from , number 2]"
	if fmt.Sprint(got) != want {
		t.Errorf("the collection events are %s, want %s", got, want)
	}
	if r := b.x(); r.SyncedEpoch != 1 || r.Position != "20" || r.Seen != "20" || r.ListedSelection != "" || r.list != nil {
		t.Errorf("the collection is %+v, want SyncedEpoch 1, Position and Seen 20, no ListedSelection and no list", r)
	}
	b.do(configured(Properties{Selection: "s"})).do(listed("30")...)
	if r := b.x().Record; r.ListedSelection != "s" {
		t.Errorf("ListedSelection is %q, want s", r.ListedSelection)
	}
	b.do(listBegun, Input{Kind: ListEnded, Version: "30", Owner: "o"})
	if r := b.core.Reading("x"); r.Owner != "" {
		t.Errorf("Owner is %q before the list is done, want none", r.Owner)
	}
	if r := b.do(listDone).core.Reading("x"); r.Owner != "o" {
		t.Errorf("Owner is %q after the list is done, want o", r.Owner)
	}
	b.do(isGone, listEnded(""), listDone)
	if r := b.x().Progress; r.Position != "30" || r.Seen != "30" {
		t.Errorf("after the list of a resource that does not exist, position is %q and Seen is %q, want 30 and 30", r.Position, r.Seen)
	}
}

// TestAnotherSelection: an object that the last list should have found, and that is not in the inventory, proves another
// history. If the last list had another selection, the object proves nothing.
func TestAnotherSelection(t *testing.T) {
	old := seen(List, "a", "5")
	b := inStep(t).do(configured(Properties{Selection: "s"}), listBegun, old)
	if got := b.emitted(); got != "gap, added ua" {
		t.Errorf("the previous list has another selection: emitted %s, want gap, added ua", got)
	}
	b = inStep(t).do(listBegun, old)
	if got := b.emitted(); got != "gap, gap" || b.x().Epoch != 2 || b.x().list != nil {
		t.Errorf("the previous list has the same selection: emitted %s in epoch %d, want gap, gap in epoch 2 and no list under way", got, b.x().Epoch)
	}
	b = inStep(t).do(newHistory(listBegun), old)
	if got := b.emitted(); got != "gap, added ua" {
		t.Errorf("the previous list is of another history: emitted %s, want gap, added ua", got)
	}
}

// TestPosition checks which inputs move the position, from which a watch may start, and which raise Seen. An API server
// that is behind Seen has another history.
func TestPosition(t *testing.T) {
	frame := seen(Watch, "a", "14")
	frame.Resume = "12"
	for _, c := range []struct {
		what           string
		in             []Input
		position, seen string
	}{
		{"a bookmark", []Input{bookmark("15")}, "15", "15"},
		{"a bookmark without a version", []Input{bookmark("")}, "10", "10"},
		{"an event", []Input{frame}, "12", "14"},
		{"an event behind others of its version", []Input{frame, seen(Watch, "b", "14")}, "12", "14"},
		{"a list that is under way", []Input{listBegun, seen(List, "a", "14")}, "10", "14"},
		{"a list whose end is later", []Input{listBegun, seen(List, "a", "14"), listEnded("16")}, "10", "16"},
		{"a list beside the watch", []Input{sideBegun, seen(Resync, "a", "14"), sideEnded("16")}, "10", "16"},
		{"the list of a resource that does not exist", []Input{isGone, listEnded("")}, "10", "10"},
	} {
		x := inStep(t).do(c.in...).x()
		if x.Position != c.position || x.Seen != c.seen {
			t.Errorf("%s: position %s, seen %s, want %s and %s", c.what, x.Position, x.Seen, c.position, c.seen)
		}
	}
	b := inStep(t).do(configured(Properties{Storage: "other"}))
	if b.x().Seen != "" {
		t.Errorf("after a change of the storage, Seen is %s, want none", b.x().Seen)
	}
	if b.reset().do(configured(Properties{Storage: "another"})); b.core.Reading("x").Seen != "" {
		t.Errorf("after a reset and a change of the storage, Seen is %s, want none", b.core.Reading("x").Seen)
	}
}

// TestAttribute: an attribution is an item of its collection while consumers have a copy of the incarnation.
func TestAttribute(t *testing.T) {
	for p := range phases {
		b := inPhase(t, p)
		had, incarnation := len(b.core.Items()), b.x().Incarnation
		want := p != Ending && p != Closed
		if got := b.core.Attribute("x", incarnation, Attribution{ID: 7}); got != want {
			t.Errorf("phase %s: attributed %v, want %v", p, got, want)
		}
		items := b.core.Items()[had:]
		if want != (len(items) == 1) || want && (items[0].Attribution == nil || items[0].Attribution.ID != 7 || items[0].Collection != "x") {
			t.Errorf("phase %s: the items are %+v", p, items)
		}
		if b.core.Attribute("x", incarnation+1, Attribution{ID: 8}) || b.core.Attribute("y", incarnation, Attribution{ID: 8}) {
			t.Errorf("phase %s: a change of another incarnation or collection is attributed", p)
		}
	}
	b := inStep(t)
	b.core.Attribute("x", b.x().Incarnation, Attribution{ID: 7})
	if sealed := b.core.Seal(); len(sealed.Items) != 1 || len(sealed.Drafts) != 0 || len(sealed.Intents) != 0 {
		t.Errorf("a batch with an attribution has items %+v, drafts %+v and intents %+v, want no drafts and intents", sealed.Items, sealed.Drafts, sealed.Intents)
	}
}

// TestLate: what a read, or a list beside it, has found when it is over must not be counted, or `synced` says that more objects were listed than there were.
func TestLate(t *testing.T) {
	b := inPhase(t, Verifying)
	read, side := b.core.Reading("x").Number, b.core.Reading("x").Side
	of := func(collection string, read, side uint64) *Input {
		return &Input{Kind: Sighted, Collection: collection, Read: read, Side: side, Sighting: &Sighting{Form: Seen}}
	}
	for _, test := range []struct {
		what string
		in   *Input
		want bool
	}{
		{"of the read", of("x", read, 0), false},
		{"of a read before", of("x", read-1, 0), true},
		{"of the list beside it", of("x", 0, side), false},
		{"of a list before that", of("x", 0, side-1), true},
		{"of a collection that the core does not have", of("other", 1, 0), false},
	} {
		if got := b.core.Late(test.in); got != test.want {
			t.Errorf("a sighting %s is late: %t, want %t", test.what, got, test.want)
		}
	}
}

// TestReading checks what a collection should be reading in each phase. Every read, and every list beside the watch, has
// a number of its own, by which the core drops frames of a read that is over.
func TestReading(t *testing.T) {
	want := map[Phase]Read{
		New: {Seen: "10", Before: "10"}, Listing: {Seen: "10", Before: "10"}, InStep: {From: "10", Seen: "10", Before: "10"}, Resyncing: {From: "10", Seen: "10", Before: "10", Side: 1},
		Verifying: {From: "10", Seen: "10", Before: "10", Side: 1}, Absent: {Seen: "10", Before: "10"}, Leaving: {Seen: "10", Stop: true},
		Ending: {Seen: "10", Stop: true}, Closed: {Seen: "10", Stop: true},
	}
	for p := range phases {
		b := inPhase(t, p)
		r := b.core.Reading("x")
		if r.Side != 0 {
			if r.Side != b.x().side.number {
				t.Errorf("phase %s: the list beside the watch has number %d, want %d", p, r.Side, b.x().side.number)
			}
			r.Side = 1
		}
		if r.Number != b.x().read {
			t.Errorf("phase %s: the read has number %d, want %d", p, r.Number, b.x().read)
		}
		if r.Number = 0; !reflect.DeepEqual(r, want[p]) {
			t.Errorf("phase %s: the read is %+v, want %+v", p, r, want[p])
		}
	}
	if r := newBench(t, nil).core.Reading("x"); !reflect.DeepEqual(r, Read{Stop: true}) {
		t.Errorf("the read of a collection that is not configured is %+v, want %+v", r, Read{Stop: true})
	}
	b := inPhase(t, InStep).do(newHistory(listBegun))
	if r := b.core.Reading("x"); b.x().Position != "10" || r.Before != "" {
		t.Errorf("in another history: position %s, the read is %+v, want no version of the history before", b.x().Position, r)
	}
	b = inPhase(t, Resyncing).do(seen(Watch, "a", "12"), seen(Resync, "b", "11"), sideEnded("12"))
	if r := b.core.Reading("x"); r.Side != 0 || b.x().Phase != Resyncing {
		t.Errorf("the list beside the watch is complete: the read is %+v in phase %s, want no list in phase %s", r, b.x().Phase, Resyncing)
	}

	b = inPhase(t, Resyncing)
	side := b.x().side.number
	b.do(Input{Kind: SideBroken})
	if r := b.core.Reading("x"); r.Side != 0 {
		t.Errorf("the list beside the watch has failed: the read is %+v, want no list", r)
	}
	if b.do(sideBegun); b.x().side.number == side || b.x().side.number == b.x().read {
		t.Errorf("the next list beside the watch has number %d, want neither %d of the previous list nor %d of the read", b.x().side.number, side, b.x().read)
	}

	for what, in := range map[string]Input{
		"removed": removed, "ending": configured(Properties{Shape: "s"}), "configured": configured(Properties{Filter: "f"}),
	} {
		b := inPhase(t, Listing)
		number := b.x().read
		if b.do(in); b.x().read == number || b.x().list != nil {
			t.Errorf("%s: read %d continues, want a new read without a list", what, number)
		}
	}
	b = inStep(t)
	number := b.x().read
	for range 2 {
		b.core.Drop("x")
		if b.core.Restore("x", b.store.state(), 0); b.x().read == number {
			t.Errorf("dropped and restored: read %d continues, want a new read", number)
		}
		number = b.x().read
	}
	b = inStep(t).reset().do(Input{Kind: Forgot})
	if !b.core.Reading("x").Stop {
		t.Error("Stop is false, want true until the end of the previous incarnation is committed")
	}
	if b.commit(); b.core.Reading("x").Stop {
		t.Error("Stop is true, want false after the end of the previous incarnation is committed")
	}
}

// TestReadingAnother: another selection, storage or shape begins another read in every phase, so that frames of the read
// before are dropped. Other edits begin another read only if they begin a run.
func TestReadingAnother(t *testing.T) {
	for p := range phases {
		for _, c := range []struct {
			properties Properties
			another    bool
		}{
			{Properties{}, p == Leaving},
			{Properties{Filter: "f"}, p != New && p != Absent && p != Ending && p != Closed},
			{Properties{Selection: "s"}, true},
			{Properties{Storage: "s"}, true},
			{Properties{Shape: "s"}, true},
		} {
			b := inPhase(t, p)
			number := b.x().read
			if b.do(configured(c.properties)); (b.x().read != number) != c.another {
				t.Errorf("phase %s, configured %+v: a new read begins: %t, want %t", p, c.properties, !c.another, c.another)
			}
		}
	}
}

// TestInterrupt: what an interrupted read has passed on and the core does not have yet is dropped, and the next read goes on at the position. Otherwise
// objects would be published in a form that the configuration does not allow any more.
func TestInterrupt(t *testing.T) {
	for p := range phases {
		b := inPhase(t, p)
		before, number := b.core.Reading("x"), b.x().read
		b.core.Interrupt("x")
		r := b.core.Reading("x")
		if b.do(Input{Kind: Sighted, Read: number, Sighting: seen(Watch, "late", "12").Sighting}); b.emitted() != "" || b.x().read == number {
			t.Errorf("%s: read %d goes on", p, number)
		}
		if r.From != before.From || r.Stop != before.Stop || r.Side != 0 {
			t.Errorf("%s: the read is %+v, was %+v", p, r, before)
		}
		if !p.watching() {
			continue
		}
		if got := b.do(seen(Watch, "next", "13")).emitted(); got != "added unext" || b.x().Phase != InStep {
			t.Errorf("%s: the next read emits %q in phase %s", p, got, b.x().Phase)
		}
	}
}

// TestSettled: Settled is true once a collection has synced in its incarnation, or is absent. The collections that it
// replaces are then closed.
func TestSettled(t *testing.T) {
	want := map[Phase]bool{Listing: true, InStep: true, Resyncing: true, Verifying: true, Absent: true}
	for _, p := range []Phase{New, Listing, InStep, Resyncing, Verifying, Absent, Ending} {
		if got := inPhase(t, p).core.Settled("x"); got != want[p] {
			t.Errorf("phase %s: Settled is %t, want %t", p, got, want[p])
		}
	}
	b := newBench(t, nil)
	if b.core.Settled("x") || b.do(configured(Properties{}), listBegun).core.Settled("x") {
		t.Error("Settled is true, want false before the first list is complete")
	}
	if !newBench(t, nil).do(configured(Properties{}), isGone).core.Settled("x") {
		t.Error("Settled is false, want true for a resource that does not exist")
	}
}

// TestResync: every object is published in the run of the resync, by its list or by the watch, before
// the synced event.
func TestResync(t *testing.T) {
	unfit := func(s *Sighting) { s.DeadLetter = true }
	left := func(s *Sighting) { preparedOf(s).passes = func(event.Type) bool { return false } }
	for _, c := range []struct {
		what    string
		objects []Input // what the first list finds
		in      []Input
		want    string
	}{
		{"nothing has changed", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5"), sideEnded("12")}, "gap, present ua, synced"},
		{"the watch is yet to publish an object", nil, []Input{seen(Resync, "a", "11"), sideEnded("12")}, "gap"},
		{"the watch has published it", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), seen(Watch, "a", "11")}, "gap, added ua, synced"},
		{"the watch has come as far", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), bookmark("12")}, "gap, synced"},
		{"the watch has not come as far", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), bookmark("11")}, "gap"},
		{"the watch had come as far before", nil, []Input{seen(Resync, "a", "11"), bookmark("12"), sideEnded("12")}, "gap, synced"},
		{
			"the watch published it within the resync, and a later version is listed",
			[]Input{seen(List, "a", "5")},
			[]Input{seen(Watch, "a", "11"), seen(Resync, "a", "12"), sideEnded("12")},
			"gap, modified ua, synced",
		},
		{"the watch published it before it was listed", []Input{seen(List, "a", "5")}, []Input{seen(Watch, "a", "11"), seen(Resync, "a", "11"), sideEnded("12")}, "gap, modified ua, synced"},
		{"a later version is listed", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "11"), sideEnded("12")}, "gap"},
		{"the watch repeats an object", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "b", "11"), sideEnded("12"), seen(Watch, "b", "11"), seen(Watch, "a", "5")}, "gap, added ub"},
		{"the watch is yet to end an object", []Input{seen(List, "a", "5")}, []Input{sideEnded("12")}, "gap"},
		{"the watch has ended it", []Input{seen(List, "a", "5")}, []Input{sideEnded("12"), gone(Watch, "a", "11")}, "gap, deleted ua, synced"},
		{"an object that was not published is deleted", []Input{seen(List, "a", "5", left)}, []Input{sideEnded("12")}, "gap, synced"},
		{"an object is listed that became a dead letter", []Input{seen(List, "a", "5", unfit)}, []Input{seen(Resync, "a", "5"), sideEnded("12")}, "gap, added ua, synced"},
		{
			"an ignored change",
			[]Input{seen(List, "a", "5")},
			[]Input{seen(Watch, "a", "11", func(s *Sighting) { preparedOf(s).minor = func(*Object) bool { return true } }), sideEnded("12")},
			"gap, present ua, synced",
		},
		{"the watch created an object behind the list", nil, []Input{seen(Watch, "a", "13"), sideEnded("12")}, "gap, added ua, synced"},
	} {
		b := inStep(t, c.objects...).do(demanded, sideBegun).do(c.in...)
		if got := b.emitted(); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if b.x().Full != b.x().Run {
			t.Errorf("%s: the last run with every object is %d, want %d", c.what, b.x().Full, b.x().Run)
		}
		if done := b.x().Phase == InStep && !b.x().Resync && b.x().side == nil; done != strings.HasSuffix(c.want, "synced") {
			t.Errorf("%s: the resync is done: %t, want %t", c.what, done, !done)
		}
	}
}

// TestVerify: a verification leads to a relist if the inventory is wrong, and does not if the watch reports the
// difference.
func TestVerify(t *testing.T) {
	other := func(s *Sighting) { s.Digest = digestOf(99) }
	for _, c := range []struct {
		what    string
		objects []Input // what the first list finds
		in      []Input
		want    string
		phase   Phase
	}{
		{"nothing has changed", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5"), sideEnded("12")}, "", InStep},
		{"the list is of another history", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5"), sideEnded("9")}, "gap", Listing},
		{"an object is new", nil, []Input{seen(Resync, "a", "11"), sideEnded("12")}, "", Verifying},
		{"an object is new, and the watch does not report it", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), bookmark("12")}, "gap", Listing},
		{"an object is new, and the watch is not so far", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), bookmark("11")}, "", Verifying},
		{"an object is new, and the watch reports it", nil, []Input{seen(Resync, "a", "11"), sideEnded("12"), seen(Watch, "a", "11")}, "added ua", InStep},
		{"the watch has reported it before it was listed", nil, []Input{seen(Watch, "a", "12"), seen(Resync, "a", "11"), sideEnded("12")}, "added ua", InStep},
		{"the watch has reported it behind the list", nil, []Input{seen(Watch, "a", "13"), sideEnded("12")}, "added ua", InStep},
		{"another version", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "6", func(s *Sighting) { s.Digest = digestOf(number("5")) }), sideEnded("10")}, "gap", Listing},
		{"another body", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5", other), sideEnded("10")}, "gap", Listing},
		{"another body, and the watch repeats the object", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5", other), seen(Watch, "a", "5"), sideEnded("10")}, "gap", Listing},
		{"another body, and the watch reports a change", []Input{seen(List, "a", "5")}, []Input{seen(Resync, "a", "5", other), seen(Watch, "a", "11"), sideEnded("12")}, "modified ua", InStep},
		{"the list lacks an object", []Input{seen(List, "a", "5")}, []Input{sideEnded("10")}, "gap", Listing},
		{"the list lacks an object, and the watch has reported the deletion before", []Input{seen(List, "a", "5")}, []Input{gone(Watch, "a", "11"), sideEnded("12")}, "deleted ua", InStep},
		{"the list lacks an object, and the watch reports the deletion after it", []Input{seen(List, "a", "5")}, []Input{sideEnded("12"), gone(Watch, "a", "11")}, "deleted ua", InStep},
		{"the list lacks an object that was not published", []Input{seen(List, "a", "5", func(s *Sighting) { s.DeadLetter = true })}, []Input{sideEnded("10")}, "gap", Listing},
	} {
		b := inStep(t, c.objects...).do(sideBegun).do(c.in...)
		if got := b.emitted(); got != c.want || b.x().Phase != c.phase {
			t.Errorf("%s: emitted %q, phase %s, want %q and %s", c.what, got, b.x().Phase, c.want, c.phase)
		}
	}
}

// TestOlderSide: a list beside the watch that is older than what was seen proves another history. Another read begins,
// because the watch is of the previous history.
func TestOlderSide(t *testing.T) {
	b := inStep(t).do(sideBegun)
	read := b.x().read
	b.do(sideEnded("9"))
	if x := b.x(); x.read == read || x.Epoch != 2 || x.Reason != event.ReasonHistory {
		t.Errorf("read %d (before: %d), epoch %d, reason %s, want a new read, epoch 2 and reason %s", x.read, read, x.Epoch, x.Reason, event.ReasonHistory)
	}
}

// TestSamples: after a watch that continues no other one, the newest objects are compared with the API server. What a restored backup has changed or
// removed begins another history, also if later writes have passed the position, which is 10 here.
func TestSamples(t *testing.T) {
	reconnected := Input{Kind: Reconnected}
	other := func(s *Sighting) { s.Digest = digestOf(99) }
	sample := func(version string, in Input) Input { in.Version = version; return in }
	lacking := Input{Kind: Sighted, Sighting: &Sighting{Form: Lacking, Origin: Resync, Key: "a"}}
	for _, c := range []struct {
		what  string
		in    []Input
		want  string
		epoch uint64
		phase Phase
		due   bool
	}{
		{"unchanged at the position", []Input{sample("10", seen(Resync, "a", "5")), sideEnded("10")}, "", 1, InStep, false},
		{"unchanged now", []Input{sample("15", seen(Resync, "a", "5")), sideEnded("15")}, "", 1, InStep, false},
		{"another body", []Input{sample("10", seen(Resync, "a", "5", other))}, "gap", 1, Listing, true},
		{"absent at the position", []Input{sample("10", lacking)}, "gap", 2, Listing, true},
		{"another version at the position", []Input{sample("10", seen(Resync, "a", "7"))}, "gap", 2, Listing, true},
		{"another object at the position", []Input{sample("10", seen(Resync, "a", "5", func(s *Sighting) { s.UID = "other" }))}, "gap", 2, Listing, true},
		{"older now", []Input{sample("15", seen(Resync, "a", "4"))}, "gap", 2, Listing, true},
		{"later now, but not later than the position", []Input{sample("15", seen(Resync, "a", "10"))}, "gap", 2, Listing, true},
		{"later now, and the watch is not so far", []Input{sample("15", seen(Resync, "a", "12")), sideEnded("15"), bookmark("14")}, "", 1, Verifying, true},
		{"later now, and the watch reports it", []Input{sample("15", seen(Resync, "a", "12")), sideEnded("15"), seen(Watch, "a", "12")}, "modified ua", 1, InStep, false},
		{"later now, and the watch does not report it", []Input{sample("15", seen(Resync, "a", "12")), sideEnded("15"), bookmark("15")}, "gap", 2, Listing, true},
		{"later now, and the watch has reported it", []Input{seen(Watch, "a", "12"), sample("15", seen(Resync, "a", "12")), sideEnded("15"), bookmark("15")}, "modified ua", 1, InStep, false},
		{"absent now, and the watch reports the deletion", []Input{sample("15", lacking), sideEnded("15"), gone(Watch, "a", "12")}, "deleted ua", 1, InStep, false},
		{"absent now, and the watch has reported the deletion", []Input{gone(Watch, "a", "12"), sample("15", lacking), sideEnded("15")}, "deleted ua", 1, InStep, false},
		{"absent now, and the watch does not report the deletion", []Input{sample("15", lacking), sideEnded("15"), bookmark("15")}, "gap", 2, Listing, true},
		{"an object that is no sample", []Input{sample("10", seen(Resync, "b", "7")), sideEnded("10")}, "", 1, InStep, false},
		{"the read fails", []Input{{Kind: SideBroken}}, "", 1, InStep, true},
		{"a list instead", listed("12"), "gap, synced", 1, InStep, false},
	} {
		b := inStep(t, seen(List, "a", "5")).do(reconnected, sideBegun)
		got := b.do(c.in...).emitted()
		if x := b.x(); got != c.want || x.Epoch != c.epoch || x.Phase != c.phase || x.SamplesDue() != c.due {
			t.Errorf("%s: emitted %q, epoch %d, phase %s, samples due: %t; want %q, %d, %s, %t", c.what, got, x.Epoch, x.Phase, x.SamplesDue(), c.want, c.epoch, c.phase, c.due)
		}
	}
}

// TestNewestSamples: the samples are the newest inventory entries, at the position or at a later version of their own. Without entries, everything
// is verified. resourceVersions that are no numbers have no newest one.
func TestNewestSamples(t *testing.T) {
	reconnected := Input{Kind: Reconnected}
	b := inStep(t, seen(List, "a", "5"), seen(List, "b", "7"), seen(List, "c", "6"), seen(List, "d", "9"))
	in := seen(Watch, "a", "12")
	in.Resume = "10" // another event can have version 12
	b.do(in, reconnected, sideBegun)
	var got []string
	for _, s := range b.core.Reading("x").Samples {
		got = append(got, fmt.Sprintf("%s %s %s at %s", s.Key, s.UID, s.Version, s.Position))
	}
	if want := []string{"a ua 12 at 12", "d ud 9 at 10", "b ub 7 at 10"}; !slices.Equal(got, want) {
		t.Errorf("the samples are %q, want %q", got, want)
	}
	b = inStep(t).do(reconnected)
	if !b.x().SamplesDue() {
		t.Error("an empty collection is not verified after a watch that continues no other one")
	}
	b.do(sideBegun)
	if r := b.core.Reading("x"); r.Side == 0 || r.Samples != nil {
		t.Errorf("the list beside the watch of an empty collection has number %d and samples %v, want one of everything", r.Side, r.Samples)
	}
	if b.do(seen(Resync, "a", "7"), sideEnded("10")); b.x().Phase != Listing {
		t.Errorf("the collection is %s after an unknown object, want %s", b.x().Phase, Listing)
	}
	opaque := seen(Watch, "a", "x1")
	opaque.Resume = "x1"
	if b := inStep(t).do(opaque, reconnected); b.x().SamplesDue() {
		t.Error("samples are due at a position that is no number")
	}
}

// TestSamplesBeforeSynced: while samples are due, no synced event is emitted: neither a periodic one nor that of a resync, which goes on afterwards.
func TestSamplesBeforeSynced(t *testing.T) {
	reconnected, confirm := Input{Kind: Reconnected}, Input{Kind: Confirm}
	same := seen(Resync, "a", "5")
	same.Version = "10"
	b := inStep(t, seen(List, "a", "5")).do(reconnected)
	if got := b.do(confirm).emitted(); got != "" {
		t.Errorf("with samples due: emitted %q, want nothing", got)
	}
	if got := b.do(sideBegun, confirm, same, sideEnded("10"), confirm).emitted(); got != "synced" {
		t.Errorf("after the comparison: emitted %q, want synced", got)
	}
	b = inStep(t, seen(List, "a", "5")).do(demanded, sideBegun)
	b.emitted()
	b.do(reconnected)
	if x := b.x(); x.Phase != InStep || !x.Resync || !x.SamplesDue() {
		t.Fatalf("a resync under way: phase %s, resync due: %t, samples due: %t, want %s, true and true", x.Phase, x.Resync, x.SamplesDue(), InStep)
	}
	if got := b.do(sideBegun, same, sideEnded("10")).emitted(); got != "" || !b.x().Resync {
		t.Errorf("the comparison before a resync: emitted %q, resync due: %t, want nothing and true", got, b.x().Resync)
	}
	if got := b.do(sideBegun, seen(Resync, "a", "5"), sideEnded("10")).emitted(); got != "present ua, synced" {
		t.Errorf("the resync: emitted %q, want its object and synced, without another gap", got)
	}
	if in := (&Input{Kind: Reconnected, Collection: "x", Read: b.x().read + 1}); true {
		if b.core.Step(in); b.x().SamplesDue() {
			t.Error("samples are due because of a read that is over")
		}
	}
}

// TestLost: an event that cannot be published at all is not emitted, and the state moves as if it were.
func TestLost(t *testing.T) {
	lost := func(s *Sighting) { preparedOf(s).lost = func(*ObjectEvent) bool { return true } }
	published := func(s *Sighting) { preparedOf(s).lost = func(*ObjectEvent) bool { return false } }
	b := inStep(t, seen(List, "a", "5"))
	for _, x := range []struct {
		in   Input
		want string
	}{
		{seen(Watch, "a", "11", lost), ""},
		{seen(Watch, "a", "12", published), "modified ua"},
		{seen(Watch, "b", "13", lost), ""},
		{seen(Watch, "b", "14"), "modified ub"},
	} {
		if got := b.do(x.in).emitted(); got != x.want {
			t.Errorf("%s at %s: emitted %q, want %q", x.in.Sighting.Key, x.in.Sighting.Version, got, x.want)
		}
		if o, _ := b.core.Object("x", x.in.Sighting.Key); o == nil || o.Version != x.in.Sighting.Version {
			t.Errorf("%s at %s: the inventory has %+v", x.in.Sighting.Key, x.in.Sighting.Version, o)
		}
	}
}

// TestMissing: a caller that pages through what a list lacks gets each key once.
func TestMissing(t *testing.T) {
	b := inStep(t, seen(List, "a", "5"), seen(List, "b", "6"), seen(List, "c", "7")).do(listBegun, seen(List, "b", "6"))
	if got := b.core.Missing("x", 9); got != nil {
		t.Errorf("before the list is complete, Missing returns %v, want none", got)
	}
	if got := b.core.Missing("y", 9); got != nil {
		t.Errorf("for a collection that is not configured, Missing returns %v, want none", got)
	}
	b.do(listEnded("10"))
	if got := absentees(b.core.Missing("x", 1)) + "; " + absentees(b.core.Missing("x", 9)); got != "a ua; a ua, c uc" {
		t.Errorf("pages of 1 and 9: Missing returns %s, want a, then a and c", got)
	}
	b.do(lacks("c", "10"))
	if got := absentees(b.core.Missing("x", 9)); got != "" {
		t.Errorf("after c was compared, Missing returns %s, want none", got)
	}
	b.do(lacks("a", "10"))
	if got := b.emitted(); got != "gap, deleted uc" {
		t.Errorf("emitted %s, want gap, deleted uc: a is not after c, the last compared key", got)
	}

	b = inStep(t, seen(List, "b", "5"), seen(List, "d", "6")).do(of("y", configured(Properties{})), of("y", listBegun), of("y", seen(List, "z", "3")))
	b.do(seen(Watch, "a", "11"), seen(Watch, "c", "12"), seen(Watch, "e", "13")).core.Seal()
	b.do(listBegun, listEnded("14"))
	if got := absentees(b.core.Missing("x", 9)); got != "a ua, b ub, c uc, d ud, e ue" {
		t.Errorf("Missing returns %s, want a to e, whether their changes are committed or not", got)
	}

	b = inStep(t, seen(List, "a", "5")).do(listBegun, gone(List, "a", "11"))
	if got := absentees(b.do(listEnded("12")).core.Missing("x", 9)); got != "" {
		t.Errorf("Missing returns %s, want none: the deletion of a was reported during the list", got)
	}

	s := newStore()
	s.records["x"] = Record{Phase: Listing, Run: 2, Incarnation: 1, Epoch: 1, LastList: LastList{SyncedEpoch: 1}}
	s.progress["x"] = Progress{Position: "1"}
	s.objects[Slot{"x", "a"}] = entryOf(Published, "5")
	s.intents[Slot{"x", "a"}] = intentOfUID("o", "4")
	b = newBench(t, s).do(listBegun, seen(List, "a", "5", uidSeen("u")), Input{Kind: Sighted, Sighting: seeing(List, deletionAt("7"), func(s *Sighting) { s.Key = "a" })}, listEnded("9"))
	if got := absentees(b.core.Missing("x", 9)); got != "" {
		t.Errorf("Missing returns %s, want none: the intent of a was settled during the list", got)
	}
	b = newBench(t, s).do(listBegun, seen(List, "a", "5", uidSeen("u")))
	b.core.intents[Slot{"x", "a"}] = intentOfUID("p", "6")
	b.do(Input{Kind: Sighted, Sighting: seeing(List, deletionAt("7"), func(s *Sighting) { s.Key = "a" })}, listEnded("9"))
	if got := absentees(b.core.Missing("x", 9)); got != "a p" {
		t.Errorf("Missing returns %s, want a with uid p, which is in doubt", got)
	}
}

// absentees returns keys with the uids of their objects.
func absentees(all []Absentee) string {
	var text []string
	for _, a := range all {
		line := a.Key
		for _, o := range a.Objects {
			line += " " + o.UID
		}
		text = append(text, line)
	}
	return strings.Join(text, ", ")
}

func uidSeen(uid string) func(*Sighting) { return func(s *Sighting) { s.UID = uid } }

// TestForgettable: the inventory of an incarnation can be forgotten once the batch that ends the incarnation is committed.
func TestForgettable(t *testing.T) {
	for p := range phases {
		if keys, done := inPhase(t, p).core.Forgettable("x", 9); len(keys) > 0 || done != (p == Ending) {
			t.Errorf("phase %s: Forgettable returns %v and %t, want no keys and %t", p, keys, done, p == Ending)
		}
	}
	b := inStep(t, seen(List, "a", "5"), seen(List, "b", "6")).do(seen(Watch, "c", "11"), configured(Properties{Shape: "s"}))
	if keys, done := b.core.Forgettable("x", 9); keys != nil || done {
		t.Errorf("before the end is committed, Forgettable returns %v and %t, want none and false", keys, done)
	}
	if keys, done := b.core.Forgettable("y", 9); keys != nil || done {
		t.Errorf("for a collection that is not configured, Forgettable returns %v and %t, want none and false", keys, done)
	}
	b.do(Input{Kind: Forget, Key: "a"})
	b.commit()
	if keys, done := b.core.Forgettable("x", 2); fmt.Sprint(keys) != "[a b]" || done {
		t.Errorf("Forgettable with limit 2 returns %v and %t, want [a b] and false", keys, done)
	}
	b.do(Input{Kind: Forget, Key: "b"})
	if b.core.Empty() {
		t.Error("the next batch is empty, want the removal of key b")
	}
	if keys, done := b.core.Forgettable("x", 2); fmt.Sprint(keys) != "[c]" || done {
		t.Errorf("after b was forgotten, Forgettable returns %v and %t, want [c] and false", keys, done)
	}
	b.commit().do(Input{Kind: Forget, Key: "b"}, Input{Kind: Forget, Key: "a"})
	if !b.core.Idle() {
		t.Error("the core is not idle, want idle: keys a and b were forgotten before")
	}
	b = newBench(t, inStep(t, seen(List, "a", "5")).store).do(configured(Properties{Shape: "s"}))
	if keys, _ := b.core.Forgettable("x", 9); keys != nil {
		t.Errorf("before the first batch is committed, Forgettable returns %v, want none", keys)
	}
}

// TestEarlierIncarnation: an inventory entry of an earlier incarnation, which a crash has left in the store, does not
// count.
func TestEarlierIncarnation(t *testing.T) {
	s := newStore()
	s.records["x"] = Record{Phase: Listing, Run: 3, Incarnation: 3, Epoch: 1}
	s.objects[Slot{"x", "a"}] = entryOf(Published, "5")
	s.objects[Slot{"x", "b"}] = entryOf(Published, "6", judged(3))
	b := newBench(t, s)
	a, _ := b.core.Object("x", "a")
	if o, _ := b.core.Object("x", "b"); a != nil || o == nil {
		t.Errorf("the inventory entries are %v and %v, want none for a and one for b", a, o)
	}
	if got := b.do(listBegun, seen(List, "a", "5")).emitted(); got != "present ua" {
		t.Errorf("%s, want present ua", got)
	}
	s.objects[Slot{"x", "former"}] = entryOf(Published, "8")
	b.do(seen(List, "b", "6", func(s *Sighting) { s.UID = "u" }), listEnded("10"), listDone).commit().do(Input{Kind: Reconnected}, sideBegun)
	if got := fmt.Sprint(keysOf(b.core.Reading("x").Samples)); got != "[b a]" {
		t.Errorf("in phase %s the samples are %s, want [b a]: former is of an earlier incarnation", b.x().Phase, got)
	}
}

// keysOf returns the keys of samples.
func keysOf(samples []Sample) (keys []string) {
	for _, s := range samples {
		keys = append(keys, s.Key)
	}
	return keys
}

// TestEpochRun: a listed object that is older than its inventory entry proves another history if the entry was judged in
// an earlier run of the present history, even if no list is complete. It proves nothing if the entry was judged in the
// previous history.
func TestEpochRun(t *testing.T) {
	b := newBench(t, nil).do(configured(Properties{}), listBegun, seen(List, "a", "5"), configured(Properties{Filter: "f"}), listBegun)
	if b.emitted(); b.x().Run != 2 || b.x().EpochRun != 1 {
		t.Errorf("the record is %+v, want run 2 with EpochRun 1", b.x().Record)
	}
	if got := b.do(seen(List, "a", "4")).emitted(); got != "gap" || b.x().Epoch != 2 || b.x().EpochRun != 3 {
		t.Errorf("emitted %s, record %+v, want a gap, epoch 2 and EpochRun 3", got, b.x().Record)
	}
	if got := b.do(listBegun, seen(List, "a", "4")).emitted(); got != "modified ua" || b.x().Epoch != 2 {
		t.Errorf("emitted %s, record %+v, want modified ua in epoch 2", got, b.x().Record)
	}
}

// TestReplaces: a false negative loses the last body of a deleted object; a false positive delays a list without need.
func TestReplaces(t *testing.T) {
	other := func(edits ...func(*Sighting)) Input { return seen(List, "a", "12", append(edits, uidSeen("n"))...) }
	for _, c := range []struct {
		what  string
		begun []Input
		in    Input
		want  string
	}{
		{"another object has the name", []Input{listBegun}, other(), "ua"},
		{"the same object", []Input{listBegun}, seen(List, "a", "12"), ""},
		{"a name that is not known", []Input{listBegun}, seen(List, "b", "12"), ""},
		{"the deletion of another object", []Input{listBegun}, other(func(s *Sighting) { s.Form = Ended }), ""},
		{"no list is under way", nil, other(), ""},
		{"the list is complete", []Input{listBegun, listEnded("13")}, other(), ""},
		{"a list of an earlier read", []Input{listBegun}, Input{Read: 99, Sighting: other().Sighting}, ""},
		{"a collection that is not wanted", []Input{listBegun}, of("y", other()), ""},
	} {
		b := inStep(t, seen(List, "a", "5")).do(c.begun...)
		if c.in.Collection == "" {
			c.in.Collection = "x"
		}
		if c.in.Read == 0 {
			c.in.Read = b.x().read
		}
		got := ""
		for _, o := range b.core.Replaces(&c.in) {
			got += o.UID
		}
		if got != c.want {
			t.Errorf("%s: Replaces returns %q, want %q", c.what, got, c.want)
		}
	}
}

// A state from before what was published is not the last one.
func TestHad(t *testing.T) {
	a := Absentee{"a", []Object{{UID: "ua", Version: "8", At: "5"}, {UID: "ub", At: "7"}}}
	for _, c := range []struct {
		uid, version string
		want         bool
	}{{"ua", "4", false}, {"ua", "5", true}, {"ua", "6", true}, {"ub", "6", false}, {"ub", "7", true}, {"uc", "9", false}, {"ua", "opaque", true}} {
		if got := a.Had(c.uid, c.version); got != c.want {
			t.Errorf("Had(%s, %s) returns %t, want %t", c.uid, c.version, got, c.want)
		}
	}
}

// TestFormer: if another object has the name now, the deletion of the former object has the former object's last body. A
// deletion of the object that was seen has the body that was seen.
func TestFormer(t *testing.T) {
	v := view{memory: &memory{}, run: 3, sameHistory: true}
	s := seeing(List, func(s *Sighting) { s.Body, s.Former = "now", "former" })
	r := v.decide(entryOf(Published, "10", uid("o")), nil, s)
	if len(r.events) != 2 || r.events[0].Body != "former" || r.events[1].Body != "now" {
		t.Errorf("another object has the name: the events are %+v, want two, with the bodies former and now", r.events)
	}
	s = seeing(List, func(s *Sighting) { s.Body, s.Former = "now", "former" })
	preparedOf(s).passes = func(event.Type) bool { return false }
	r = v.decide(entryOf(Published, "20"), nil, s)
	if len(r.events) != 1 || r.events[0].Type != event.Deleted || r.events[0].Body != "now" {
		t.Errorf("the filter excludes the object: the events are %+v, want one deletion with the body now", r.events)
	}
}

// TestReadingHasTheSelection: a reader needs the selection that it should read with, and waits while its target has
// another one.
func TestReadingHasTheSelection(t *testing.T) {
	b := inStep(t).do(configured(Properties{Selection: "x=1"}))
	if got := b.core.Reading("x").Selection; got != "x=1" {
		t.Errorf("Selection is %q, want x=1", got)
	}
}

// TestWhatTheLastListProves: an object that the last complete list should have found, and that is not in the inventory,
// proves another history, unless a list with another selection has ended objects since.
func TestWhatTheLastListProves(t *testing.T) {
	narrow, wide := configured(Properties{Selection: "1"}), configured(Properties{})
	partial := func() *bench {
		return inStep(t, seen(List, "a", "5"), seen(List, "b", "6"), seen(List, "c", "7")).
			do(narrow, listBegun, seen(List, "a", "5"), listEnded("10"), lacks("b", "10"), wide, listBegun)
	}
	for _, c := range []struct {
		what    string
		bench   *bench
		history bool
	}{
		{"the last list", inStep(t, seen(List, "a", "5")).do(listBegun, seen(List, "b", "6")), true},
		{"an edit that was undone", partial().do(seen(List, "b", "6")), false},
		{"and a list that ended objects and broke off", partial().do(gone(List, "c", "11"), listBegun, seen(List, "b", "6")), false},
		{"and a complete list", partial().do(seen(List, "a", "5"), seen(List, "b", "6"), seen(List, "c", "7"), listEnded("12"), listDone, listBegun, seen(List, "d", "8")), true},
	} {
		if got := c.bench.x().Reason == event.ReasonHistory; got != c.history {
			t.Errorf("%s: the gap has the reason history: %t, want %t", c.what, got, c.history)
		}
	}
}

// IDs has every collection of the core, and no other, after collections are added, dropped and restored. A collection that
// is missing would not be read.
func TestIDs(t *testing.T) {
	b := newBench(t, nil)
	want := func(ids ...string) {
		t.Helper()
		if got := b.core.IDs(); !slices.Equal(got, ids) {
			t.Errorf("IDs returns %q, want %q", got, ids)
		}
		if got := b.core.Open(); !slices.Equal(got, ids) {
			t.Errorf("Open returns %q, want %q, because none is closed", got, ids)
		}
	}
	want()
	b.do(Input{Kind: Configure, Collection: "y"})
	want("y")
	b.do(Input{Kind: Configure, Collection: "x"})
	want("x", "y")
	b.core.Drop("y")
	want("x")
	b.core.Restore("y", b.store.state(), 0)
	want("x", "y")
}

// Reading returns the storage, because the reads of one storage share what they know about its history.
func TestReadingHasItsStorage(t *testing.T) {
	b := newBench(t, nil)
	b.do(Input{Kind: Configure, Properties: Properties{Selection: "a=b", Storage: "apps"}})
	if r := b.core.Reading("x"); r.Storage != "apps" || r.Selection != "a=b" {
		t.Errorf("the read is %+v, want that of the storage apps and the selection a=b", r)
	}
}

// A restart watches from a position only if the collection was being watched, and the position is of the storage's present history.
func TestPositionAfterRestart(t *testing.T) {
	for _, c := range []struct {
		phase Phase
		epoch uint64 // of the collection
		known uint64 // the epoch of its storage; 0: the store has none
		want  string
	}{
		{InStep, 1, 0, "10"},
		{InStep, 1, 1, "10"},
		{Resyncing, 3, 3, "10"},
		{Verifying, 1, 1, "10"},
		{InStep, 0, 0, ""},
		{InStep, 1, 2, ""},
		{Listing, 1, 1, ""},
		{New, 1, 1, ""},
		{Absent, 1, 1, ""},
		{Ending, 1, 1, ""},
		{Closed, 1, 1, ""},
	} {
		s := State{
			Records:  map[string]Record{"things": {Phase: c.phase, Epoch: c.epoch, Properties: Properties{Storage: "etcd"}}},
			Progress: map[string]Progress{"things": {Position: "10", Seen: "12"}},
			Epochs:   map[string]uint64{"other": 9},
		}
		if c.known > 0 {
			s.Epochs["etcd"] = c.known
		}
		if got := s.Position("things"); got != c.want {
			t.Errorf("%+v: Position returns %q, want %q", c, got, c.want)
		}
		if got := s.Position("others"); got != "" {
			t.Errorf("Position of a collection without a record is %q, want none", got)
		}
	}
}

// TestRelists: in every phase, Relists says whether properties lead to a gap with a list and to nothing else. A caller that lets other properties
// wait would go on publishing what consumers must drop.
func TestRelists(t *testing.T) {
	for p := New; p < phases; p++ {
		for name, properties := range map[string]Properties{
			"same":      {},
			"skip":      {Skip: true},
			"text":      {FilterText: "other"},
			"selection": {Selection: "other"},
			"filter":    {Filter: "other"},
			"shape":     {Shape: "other", Filter: "other"},
			"storage":   {Storage: "other", Selection: "other"},
			"types":     {Types: 1, Selection: "other"},
			"route":     {Route: "other", Filter: "other"},
		} {
			b := inPhase(t, p)
			got := b.x().Relists(properties)
			b.do(configured(properties))
			if want := p != Leaving && b.outcome(New) == "gap → Listing"; got != want { // Leaving: also where nothing differs
				t.Errorf("%s, %s: %t, and what follows is %q", p, name, got, b.outcome(p))
			}
		}
	}
}

// TestItemsSayWhatTheCollectionHas: a gap and a synced event have what the properties of their run say; a closed event has nothing.
func TestItemsSayWhatTheCollectionHas(t *testing.T) {
	without := event.Types(0).Without(event.Deleted)
	b := newBench(t, nil).do(configured(Properties{Types: without, Contents: event.Selection{Labels: "a=b", Filtered: true}}), listBegun, listEnded("10"), listDone)
	want := event.Selection{Labels: "a=b", Filtered: true, Types: without}
	says := func(types ...event.Type) {
		t.Helper()
		var got []event.Type
		for _, i := range b.core.Items() {
			if i.Event == nil {
				continue
			}
			got = append(got, i.Event.Type)
			has := want
			if i.Event.Type == event.Closed {
				has = event.Selection{}
			}
			if i.Event.Selection != has {
				t.Errorf("a %s event has %+v, want %+v", i.Event.Type, i.Event.Selection, has)
			}
		}
		if !slices.Equal(got, types) {
			t.Errorf("the events are %v, want %v", got, types)
		}
	}
	says(event.Gap, event.Synced)
	b.do(removed, released).commit().do(Input{Kind: Forgot})
	says(event.Closed)
}

// TestContinues: after the gap of a list, a collection does not go on from the position of before it. A resync makes no such gap, because nothing is missing
// before it.
func TestContinues(t *testing.T) {
	for what, c := range map[string]struct {
		do   []Input
		want bool
	}{
		"nothing":                               {nil, true},
		"a resync":                              {[]Input{demanded, sideBegun}, true},
		"a list":                                {[]Input{listBegun}, false},
		"a resync, and a periodic synced event": {[]Input{demanded, sideBegun, sideEnded("10"), {Kind: Confirm}}, true},
		"a resync and a list":                   {[]Input{demanded, sideBegun, listBegun}, false},
	} {
		b := inStep(t, seen(List, "a", "5"))
		stored := b.store.records["x"]
		b.do(c.do...)
		if got := b.x().Continues(&stored); got != c.want {
			t.Errorf("after %s: %t, want %t", what, got, c.want)
		}
		stored.Epoch++
		if b.x().Continues(&stored) {
			t.Errorf("after %s: it continues in another epoch", what)
		}
	}
}
