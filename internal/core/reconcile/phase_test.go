package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// bench is a core with a store, whose batches are committed on request.
type bench struct {
	t     *testing.T
	store *store
	core  *Core
	from  int // how many items emitted has returned
}

func newBench(t *testing.T, s *store) *bench {
	t.Helper()
	if s == nil {
		s = newStore()
	}
	return &bench{t: t, store: s, core: NewCore(s, s.state(), 0)}
}

// do passes inputs to the core. An input without a collection is of collection x; an input without a number is of the
// present read, or of the present list beside the watch.
func (b *bench) do(list ...Input) *bench {
	for i := range list {
		in := list[i]
		if in.Collection == "" {
			in.Collection = "x"
		}
		if c := b.core.collections[in.Collection]; c != nil {
			beside := in.Kind == SideEnded || in.Kind == SideBroken || in.Sighting != nil && in.Sighting.Origin == Resync
			switch {
			case in.Read == 0 && !beside:
				in.Read = c.read
			case beside && c.side != nil && in.Side == 0:
				in.Side = c.side.number
			}
		}
		b.core.Step(&in)
	}
	return b
}

// commit commits everything that was emitted.
func (b *bench) commit() *bench {
	if batch := b.core.Seal(); batch != nil {
		b.store.before(batch)
		b.store.commit(batch)
		b.core.Committed()
	}
	b.from = 0
	return b
}

// reset commits everything that was emitted, resets every collection in the store, and starts a core from the store.
func (b *bench) reset() *bench {
	b.commit()
	b.store.reset()
	b.core = NewCore(b.store, b.store.state(), 0)
	return b
}

// emitted returns the events since the last call, in words.
func (b *bench) emitted() string {
	var all []string
	for _, i := range b.core.Items()[b.from:] {
		switch e := i.Event; {
		case e == nil:
			all = append(all, fmt.Sprintf("%s %s", i.Object.Type, i.Object.Object.UID))
		case e.Reset:
			all = append(all, "reset gap")
		default:
			all = append(all, e.Type.String())
		}
	}
	b.from = b.core.Pending()
	return strings.Join(all, ", ")
}

func (b *bench) x() *Collection { return b.core.collections["x"] }

// seen, gone and lacks return inputs about the object of a name: it exists, its end was seen, or a complete list lacks its
// key. The uid of the object is u and its name.
func seen(origin Origin, name, version string, edits ...func(*Sighting)) Input {
	s := &Sighting{Form: Seen, Origin: origin, Key: name, UID: "u" + name, Version: version, Digest: digestOf(number(version))}
	for _, edit := range edits {
		edit(s)
	}
	return Input{Kind: Sighted, Sighting: s}
}

func gone(origin Origin, name, version string) Input {
	return Input{Kind: Sighted, Sighting: &Sighting{Form: Ended, Origin: origin, Key: name, UID: "u" + name, Version: version}}
}

func lacks(name, version string) Input {
	return Input{Kind: ListLacks, Key: name, Sighting: &Sighting{Form: Lacking, Origin: List, Key: name, Version: version}}
}

var (
	listBegun = Input{Kind: ListBegun, Reason: "expired"}
	isGone    = Input{Kind: ListBegun, Reason: event.ReasonGone, Absent: true}
	listDone  = Input{Kind: ListDone}
	sideBegun = Input{Kind: SideBegun}
	demanded  = Input{Kind: Demand}
	removed   = Input{Kind: Remove}
	released  = Input{Kind: Release}
)

func configured(p Properties) Input  { return Input{Kind: Configure, Properties: p} }
func listEnded(version string) Input { return Input{Kind: ListEnded, Version: version} }
func sideEnded(version string) Input { return Input{Kind: SideEnded, Version: version} }
func bookmark(version string) Input  { return Input{Kind: Bookmark, Resume: version} }
func listed(version string) []Input  { return []Input{listBegun, listEnded(version), listDone} }

func newHistory(i Input) Input            { i.NewEpoch, i.Reason = true, event.ReasonHistory; return i }
func of(collection string, i Input) Input { i.Collection = collection; return i }

// inStep returns a collection in phase InStep. Its first list has found the given objects and is complete at version 10.
func inStep(t *testing.T, objects ...Input) *bench {
	t.Helper()
	b := newBench(t, nil).do(configured(Properties{}), listBegun).do(objects...)
	return b.do(listEnded("10"), listDone).commit()
}

// inPhase returns a collection in a phase, with its batches committed.
func inPhase(t *testing.T, p Phase) *bench {
	t.Helper()
	b := inStep(t)
	switch p {
	case New: // not the first incarnation
		b.reset().core.Forgettable("x", 1)
		b.do(Input{Kind: Forgot})
	case Listing:
		b.do(listBegun)
	case InStep:
	case Resyncing:
		b.do(demanded, sideBegun)
	case Verifying:
		b.do(sideBegun)
	case Absent:
		b.do(isGone, listEnded(""), listDone)
	case Leaving:
		b.do(removed)
	case Ending:
		b.reset()
	case Closed:
		b.do(removed, released).commit().do(Input{Kind: Forgot})
	}
	b.commit()
	if b.x().Phase != p {
		t.Fatalf("%s, want %s", b.x().Phase, p)
	}
	return b
}

// phaseRows are the rows of the table in the comment of [Phase].
var phaseRows = [][]string{
	{"New", "–", "→ Ending 9", "→ Ending", "reset gap → Listing 8", "–", "–", "–"},
	{"Listing", "gap → Listing", "→ Ending", "→ Leaving", "3", "synced → InStep 4", "–", "–"},
	{"InStep", "gap → Listing", "→ Ending", "→ Leaving", "gap → Listing", "–", "gap → Resyncing 5, → Verifying", "–"},
	{"Resyncing", "gap → Listing", "→ Ending", "→ Leaving", "gap → Listing", "–", "–", "synced → InStep"},
	{"Verifying", "gap → Listing", "→ Ending", "→ Leaving", "gap → Listing", "–", "–", "→ InStep 6"},
	{"Absent", "–", "→ Ending", "→ Leaving", "gap → Listing", "–", "–", "–"},
	{"Leaving", "gap → Listing", "→ Ending", "–", "–", "–", "–", "–"},
	{"Ending", "7", "7", "7", "–", "–", "–", "–"},
	{"Closed", "→ New", "→ New", "–", "–", "–", "–", "–"},
}

// TestPhaseRows passes the input of every column to a collection in every phase. A wrong cell stops a
// collection for good, or voids a position that consumers rely on.
func TestPhaseRows(t *testing.T) {
	columns := []struct {
		name   string
		inputs []Input
	}{
		{"Configure 1", []Input{configured(Properties{Filter: "other"})}},
		{"Configure 2", []Input{configured(Properties{Shape: "other", Route: "other"})}},
		{"Remove", []Input{removed}},
		{"ListBegun", []Input{listBegun}},
		{"ListDone", []Input{listEnded("20"), listDone}},
		{"SideBegun", []Input{sideBegun}},
		{"SideDone", []Input{sideEnded("10")}},
	}
	header := []string{"phase"}
	for _, c := range columns {
		header = append(header, c.name)
	}
	comment := commentTable(t, "collection.go", header...)
	if got, want := fmt.Sprintf("%q", phaseRows), fmt.Sprintf("%q", comment); got != want {
		t.Errorf("the rows of this test are\n%s\nand the comment of Phase has\n%s", got, want)
	}
	for p, row := range phaseRows {
		for i, column := range columns {
			alternatives := strings.Split(row[i+1], ", ")
			for n, want := range alternatives {
				b := inPhase(t, Phase(p))
				if n+1 < len(alternatives) {
					b.do(demanded) // for all alternatives but the last, a resync is due
				}
				before := b.durable()
				b.do(column.inputs...)
				want = strings.TrimRight(want, " 0123456789")
				if want == "" {
					want = "–"
				}
				if got := b.outcome(Phase(p)); got != want {
					t.Errorf("%s, %s: %s, want %s", row[0], column.name, got, want)
				}
				if after := b.durable(); want == "–" && !strings.HasPrefix(column.name, "Configure") && row[0] != "Ending" && row[i+1] != "3" && after != before {
					t.Errorf("%s, %s changes something:\n%s\nis now\n%s", row[0], column.name, before, after)
				}
			}
		}
	}
}

// durable returns the collection's record, what it should be reading, and whether the core has emitted anything, as text.
func (b *bench) durable() string {
	return fmt.Sprintf("%+v, reading %+v, %d items, idle: %t", b.x().Record, b.core.Reading("x"), b.core.Pending(), b.core.Idle())
}

// outcome returns what has been emitted and the present phase, as a cell of the table.
func (b *bench) outcome(before Phase) string {
	events, phase := b.emitted(), b.x().Phase
	if events == "" && phase == before {
		return "–"
	}
	return strings.TrimSpace(events + " → " + strings.ReplaceAll(titled(phase), " ", ""))
}

// titled returns a phase as the table writes it.
func titled(p Phase) string {
	if p == InStep {
		return "InStep"
	}
	return strings.ToUpper(p.String()[:1]) + p.String()[1:]
}

// TestInputsOutOfPlace: what comes late, or belongs to another phase, changes nothing. A reader hands on
// what it has until it learns that its read is over.
func TestInputsOutOfPlace(t *testing.T) {
	late := []struct {
		name string
		in   []Input
		has  []Phase // phases in which the input has an effect
	}{
		{"a watch event", []Input{seen(Watch, "a", "11")}, []Phase{InStep, Resyncing, Verifying}},
		{"a bookmark", []Input{bookmark("11")}, []Phase{InStep, Resyncing, Verifying}},
		{"an object of a list", []Input{seen(List, "a", "11")}, []Phase{Listing}},
		{"the end of a list", []Input{listEnded("11")}, []Phase{Listing}},
		{"a key that a list lacks", []Input{lacks("a", "11")}, nil},
		{"the end of a comparison", []Input{listDone}, nil},
		{"an object of a list beside the watch", []Input{seen(Resync, "a", "11")}, []Phase{Resyncing, Verifying}},
		{"the end of a list beside the watch", []Input{sideEnded("11")}, []Phase{Resyncing, Verifying}},
		{"the break of a list beside the watch", []Input{{Kind: SideBroken}}, []Phase{Resyncing, Verifying}},
		{"an object of an earlier list beside the watch", []Input{of("x", Input{Kind: Sighted, Side: 99, Sighting: seen(Resync, "a", "11").Sighting})}, nil},
		{"the end of an earlier list beside the watch", []Input{{Kind: SideEnded, Side: 99, Version: "11"}}, nil},
		{"the break of an earlier list beside the watch", []Input{{Kind: SideBroken, Side: 99}}, nil},
		{"the begin of a list of an earlier read", []Input{{Kind: ListBegun, Read: 99}}, nil},
		{"a watch event of an earlier read", []Input{{Kind: Sighted, Read: 99, Sighting: seen(Watch, "a", "11").Sighting}}, nil},
		{"a bookmark of an earlier read", []Input{{Kind: Bookmark, Read: 99, Resume: "11"}}, nil},
		{"the end of a list of an earlier read", []Input{{Kind: ListEnded, Read: 99, Version: "11"}}, nil},
		{"a periodic synced", []Input{{Kind: Confirm}}, []Phase{InStep}},
		{"a release", []Input{released}, []Phase{Leaving}},
		{"a key to forget", []Input{{Kind: Forget, Key: "a"}}, nil},
		{"the end of an ending", []Input{{Kind: Forgot}}, []Phase{Ending}},
		{"a demand for a resync", []Input{demanded}, []Phase{Listing, InStep, Verifying}},
	}
	for _, c := range late {
		for p := range phases {
			b := inPhase(t, p)
			before := b.durable()
			b.do(c.in...)
			if changes := b.durable() != before || b.x().list != nil && len(b.x().list.seen)+len(b.x().list.version) > 0 ||
				b.x().side != nil && (b.x().side.version != "" || len(b.x().side.seen) > 0); changes != slices.Contains(c.has, p) {
				t.Errorf("%s, %s: changes something: %t\n%s\n%s", p, c.name, changes, before, b.durable())
			}
		}
	}
	b := inStep(t, seen(List, "a", "5")).do(listBegun, listEnded("11"))
	before, stale := b.durable(), lacks("a", "11")
	stale.Read = 99
	if b.do(stale, Input{Kind: ListDone, Read: 99}); b.durable() != before || b.x().Phase != Listing {
		t.Errorf("an input from a list of an earlier read changed the state from\n%s\nto\n%s", before, b.durable())
	}
	b = newBench(t, nil).do(Input{Kind: Remove}, Input{Kind: ListBegun})
	if b.x() != nil || !b.core.Idle() {
		t.Error("an input creates a collection that was not configured")
	}
}

// TestPhaseNotes are the cases that the comment of [Phase] states below its table.
func TestPhaseNotes(t *testing.T) {
	filter, selection := configured(Properties{Filter: "f"}), configured(Properties{Selection: "s"})
	moved := configured(Properties{Route: "elsewhere"})
	for _, c := range []struct {
		note   string
		bench  *bench
		inputs []Input
		want   string
	}{
		{"1: returned with the same properties", inPhase(t, Leaving), []Input{configured(Properties{})}, "gap → Listing"},
		{"1: nothing differs", inPhase(t, InStep), []Input{configured(Properties{})}, "–"},
		{"1: a selection", inPhase(t, InStep), []Input{selection}, "gap → Listing"},
		{"2: a shape", inPhase(t, InStep), []Input{configured(Properties{Shape: "s"})}, "→ Ending"},
		{"2: a storage", inPhase(t, InStep), []Input{configured(Properties{Storage: "s"})}, "→ Ending"},
		{"2: types", inPhase(t, InStep), []Input{configured(Properties{Types: event.Types(0).Without(event.Modified)})}, "→ Ending"},
		{"2: a route", inPhase(t, InStep), []Input{moved}, "→ Ending"},
		{"3: a list of a new epoch", inPhase(t, Listing), []Input{newHistory(listBegun)}, "gap → Listing"},
		{"3: an object has ended within the list", inStep(t, seen(List, "a", "5")).do(listBegun, gone(List, "a", "11")).commit(), []Input{listBegun}, "gap → Listing"},
		{"3: and another one is in the list", inStep(t, seen(List, "a", "5")).do(listBegun, gone(List, "a", "11"), seen(List, "b", "12")).commit(), []Input{listBegun}, "gap → Listing"},
		{"3: the list lacks an object", inStep(t, seen(List, "a", "5")).do(listBegun, listEnded("12"), lacks("a", "12")).commit(), []Input{listBegun}, "gap → Listing"},
		{"3: the object ended within a list of an earlier run", inPhase(t, Listing).do(gone(List, "a", "11"), listBegun).commit(), []Input{listBegun}, "–"},
		{"3: the resource is absent by now", inPhase(t, Listing), []Input{isGone}, "gap → Listing"},
		{"3: the resource is still absent", inPhase(t, InStep).do(isGone).commit(), []Input{isGone}, "–"},
		{"3: the resource is there again", inPhase(t, Listing).do(isGone).commit(), []Input{listBegun}, "gap → Listing"},
		{"4: the resource is absent", inPhase(t, InStep), []Input{isGone, listEnded(""), listDone}, "gap, synced → Absent"},
		{"4: the resource is still absent", inPhase(t, Absent), []Input{isGone}, "–"},
		{"4: the resource is absent, and is configured differently", inPhase(t, Absent), []Input{filter}, "–"},
		{"6: an object is new", inPhase(t, Verifying), []Input{seen(Resync, "a", "10"), sideEnded("10")}, "gap → Listing"},
		{"6: an object is gone already", inStep(t, seen(List, "a", "5")).do(gone(Watch, "a", "11"), sideBegun), []Input{sideEnded("11")}, "→ InStep"},
		{"6: the list lacks an object", inStep(t, seen(List, "a", "5")).do(sideBegun), []Input{sideEnded("10")}, "gap → Listing"},
		{"7: forgotten, to begin again", inPhase(t, Ending), []Input{{Kind: Forgot}}, "→ New"},
		{"7: forgotten, and the route differs", inPhase(t, Ending).do(moved).commit(), []Input{{Kind: Forgot}}, "closed → New"},
		{"7: forgotten, and not wanted", inPhase(t, Ending).do(removed).commit(), []Input{{Kind: Forgot}}, "closed → Closed"},
		{"7: forgotten, and wanted again", inPhase(t, Ending).do(removed, configured(Properties{})).commit(), []Input{{Kind: Forgot}}, "→ New"},
		{"7: nothing was published", newBench(t, nil).do(configured(Properties{}), removed).commit(), []Input{{Kind: Forgot}}, "→ Closed"},
		{"8: nothing exists", newBench(t, nil).do(configured(Properties{})).commit(), []Input{isGone}, "→ Absent"},
		{"8: nothing exists, and something was published", inPhase(t, New), []Input{isGone}, "reset gap → Listing"},
		{"8: something exists by now", newBench(t, nil).do(configured(Properties{}), isGone).commit(), []Input{listBegun}, "reset gap → Listing"},
		{"8: something exists by now, in a new history", newBench(t, nil).do(configured(Properties{}), isGone).commit(), []Input{newHistory(listBegun)}, "reset gap → Listing"},
		{"8: nothing exists, and it is not wanted", newBench(t, nil).do(configured(Properties{}), isGone).commit(), []Input{removed}, "→ Ending"},
		{"9: another shape on the same route", inPhase(t, New), []Input{configured(Properties{Shape: "s"})}, "–"},
		{"9: another route", inPhase(t, New), []Input{moved}, "→ Ending"},
		{"9: nothing is to be closed", newBench(t, nil).do(configured(Properties{})).commit(), []Input{moved}, "–"},
		{"Release", inPhase(t, Leaving), []Input{released}, "→ Ending"},
		{"Release of what is wanted again", inPhase(t, Leaving).do(configured(Properties{})).commit(), []Input{released}, "–"},
		{"a reset while leaving ends for good", inPhase(t, Leaving).reset(), []Input{{Kind: Forgot}}, "closed → Closed"},
		{"Confirm", inPhase(t, InStep), []Input{{Kind: Confirm}}, "synced → InStep"},
		{"Confirm while a resync is due", inPhase(t, InStep).do(demanded).commit(), []Input{{Kind: Confirm}}, "–"},
		{"a list beside the watch breaks off", inPhase(t, Resyncing), []Input{{Kind: SideBroken}}, "→ InStep"},
		{"a list beside the watch ends behind an ending", inPhase(t, Resyncing), []Input{configured(Properties{Shape: "s"}), {Kind: SideBroken}}, "→ Ending"},
		{"a restore while the resource was absent", inPhase(t, Absent), []Input{newHistory(listBegun)}, "gap → Listing"},
		{"a list beside the watch ends behind a relist", inPhase(t, Resyncing), []Input{listBegun, {Kind: SideBroken, Side: 1}, {Kind: SideBroken}}, "gap → Listing"},
	} {
		c.bench.emitted()
		before := c.bench.x().Phase
		if got := c.bench.do(c.inputs...).outcome(before); got != c.want {
			t.Errorf("%s: %s, want %s", c.note, got, c.want)
		}
	}
}

// TestBrokenResync: a resync whose list broke off goes on in its run, without another gap, and publishes no object twice. If another gap began
// since, if it is complete, or after a restart, the next resync publishes every object.
func TestBrokenResync(t *testing.T) {
	broken := func(t *testing.T) *bench {
		b := inStep(t, seen(List, "a", "5"), seen(List, "b", "6")).do(demanded, sideBegun, seen(Resync, "a", "5"), Input{Kind: SideBroken})
		if got := b.emitted(); got != "gap, present ua" {
			t.Fatalf("before the list broke off: %s", got)
		}
		return b
	}
	all := []Input{sideBegun, seen(Resync, "a", "5"), seen(Resync, "b", "6"), sideEnded("10")}
	const every = "gap, present ua, present ub, synced"
	for what, c := range map[string]struct {
		between func(*bench)
		want    string
	}{
		"at once":      {func(*bench) {}, "present ub, synced"},
		"broken again": {func(b *bench) { b.do(sideBegun, seen(Resync, "b", "6"), Input{Kind: SideBroken}).emitted() }, "synced"},
		"another gap": {func(b *bench) {
			b.do(listBegun, seen(List, "a", "5"), seen(List, "b", "6"), listEnded("10"), listDone).emitted()
		}, every},
		"complete": {func(b *bench) { b.do(all...).do(demanded).emitted() }, every},
		"after a reset": {func(b *bench) {
			b.reset().do(Input{Kind: Forgot}, listBegun, seen(List, "a", "5"), seen(List, "b", "6"), listEnded("10"), listDone, demanded).emitted()
		}, every},
		"after a restart": {func(b *bench) {
			b.commit()
			b.core = NewCore(b.store, b.store.state(), 0)
			b.emitted()
		}, every},
	} {
		b := broken(t)
		c.between(b)
		if got := b.do(all...).emitted(); got != c.want || b.x().Phase != InStep || b.x().Resync {
			t.Errorf("%s: %s, and then in phase %s, resync %t; want %s", what, got, b.x().Phase, b.x().Resync, c.want)
		}
	}
}

// TestReasons: a gap, its record and its synced event have one reason. Operators look for it.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		in   []Input
		from Phase
		want event.Reason
	}{
		{[]Input{configured(Properties{Filter: "f"})}, InStep, event.ReasonFilter},
		{[]Input{configured(Properties{Selection: "s"})}, InStep, event.ReasonSelection},
		{[]Input{configured(Properties{Selection: "s", Filter: "f"})}, InStep, event.ReasonSelection},
		{[]Input{configured(Properties{})}, Leaving, event.ReasonReturned},
		{[]Input{configured(Properties{Filter: "f"})}, Leaving, event.ReasonFilter},
		{[]Input{listBegun}, InStep, "expired"},
		{[]Input{newHistory(listBegun)}, InStep, event.ReasonHistory},
		{[]Input{isGone}, InStep, event.ReasonGone},
		{[]Input{listBegun}, New, event.ReasonReset},
		{[]Input{seen(Resync, "a", "10"), sideEnded("10")}, Verifying, event.ReasonDrift},
		{[]Input{seen(List, "a", "12"), seen(List, "a", "12", func(s *Sighting) { s.Digest = digestOf(99) })}, Listing, event.ReasonRewritten},
	} {
		b := inPhase(t, c.from)
		b.do(c.in...)
		reason := event.Reason("")
		for _, i := range b.core.Items() {
			if i.Event != nil && i.Event.Type == event.Gap {
				reason = i.Event.Reason
			}
		}
		if reason != c.want || b.x().Reason != c.want {
			t.Errorf("a gap of %s has the reason %q, and the record %q, want %q", c.from, reason, b.x().Reason, c.want)
		}
		b.do(listBegun, listEnded("20"), listDone)
		if items := b.core.Items(); len(items) > 0 && items[len(items)-1].Event.Type == event.Synced && items[len(items)-1].Event.Reason != b.x().Reason {
			t.Errorf("synced has the reason %q, and its gap %q", items[len(items)-1].Event.Reason, b.x().Reason)
		}
	}
}

// TestReasonAfterAnInterruptedList: if a list has ended objects and begins again, its gap has the reason interrupted. The
// reader's reason is of no use, because the reader may only have been started without a position. If the resource is
// absent by now, or exists again, the gap has the reader's reason.
func TestReasonAfterAnInterruptedList(t *testing.T) {
	ended := func() *bench { return inStep(t, seen(List, "a", "5")).do(listBegun, gone(List, "a", "11")).commit() }
	expired := listBegun
	expired.Reason = "expired"
	for _, c := range []struct {
		what   string
		bench  *bench
		begins Input
		want   event.Reason
	}{
		{"an object has ended", ended(), expired, event.ReasonInterrupted},
		{"an object has ended, and the resource is absent", ended(), isGone, event.ReasonGone},
		{"the resource was absent", inPhase(t, Listing).do(isGone).commit(), expired, "expired"},
		{"the position had expired", inPhase(t, InStep), expired, "expired"},
	} {
		if got := c.bench.do(c.begins).x().Reason; got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// TestEnds: in these phases, only the end of the last incarnation is published.
func TestEnds(t *testing.T) {
	for p, ends := range map[Phase]bool{
		New: true, Listing: false, InStep: false, Resyncing: false, Verifying: false, Absent: false, Leaving: true, Ending: true, Closed: true,
	} {
		if c := (&Collection{Record: Record{Phase: p}}); c.Ends() != ends {
			t.Errorf("%s: Ends is %t, want %t", p, c.Ends(), ends)
		}
	}
}
