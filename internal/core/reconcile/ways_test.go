package reconcile

import (
	"slices"
	"strings"
	"testing"
)

// ways are sequences of actions that this package, or its predecessor, once handled wrongly. After each of them, the test
// performs everything that happens without a write or a disturbance, and makes the checks of world.drained.
var ways = []struct {
	name    string
	modes   []mode
	configs []map[string]Properties
	way     string
}{
	{"an object moves to another collection while the program is down and the history expires", everyMode, twoSelections, `
		create a in 1, *, write a in 2, restart, expire`},
	{"a selection is changed and changed back before the list has ended", everyMode, []map[string]Properties{{"x": {Selection: "12"}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, *, configure 1, read x, configure 0`},
	{"a selection is changed, and changed back while the list deletes the objects that it lacks", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, *, configure 1, read x, read x, read x, read x, configure 0`},
	{"a selection is changed, and changed back by a restart while the list deletes the objects that it lacks", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, *, configure 1, read x, read x, read x, read x, seal, deliver, restart with 0`},
	{"a selection is changed, and the program restarts with the old one", everyMode, []map[string]Properties{{"x": {Selection: "12"}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, *, configure 1, read x, restart with 0`},
	{"a selection changes while the first list is under way", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, read x, read x, configure 1`},
	{"a selection changes before the first list begins", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, configure 1`},
	{"a selection changes between a reset and its list", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		create a in 1, create b in 2, *, reset, read x, read x, read x, seal, deliver, configure 1`},
	{"a selection changes while the resource is absent", everyMode, []map[string]Properties{{"x": {}}, {"x": {Selection: "1"}}}, `
		remove resource, *, configure 1, return resource, create a in 2`},
	{"the closed event of a reset in doubt is in doubt, and its collection is put back and removed again", []mode{intents}, []map[string]Properties{{"x": {}}, {}, {"x": {Shape: "hidden"}}}, `
		read x, configure 2, seal, crash behind the intents and 1 items, configure 1, read x, configure 0, configure 1, seal, crash behind the intents and 0 items`},
	{"a backup undoes what only a list beside the watch has seen", everyMode, []map[string]Properties{{"x": {}}}, `
		*, create a in 1, verify x, side x, side x, side x, restore 0`},
	{"a backup undoes the move of an object", everyMode, twoSelections, `
		create a in 1, *, write a in 2, *, restore 1`},
	{"a collection begins after a restore", everyMode, []map[string]Properties{{"x": {Selection: "1"}}, {"x": {Selection: "1"}, "y": {Selection: "2"}}}, `
		create a in 1, create b in 2, *, restore 1, *, configure 1`},
	{"a route refuses a record behind a gap of the same batch", everyMode, oneFilter, `
		create a in 1, *, configure 1, create b in 1, read x, read x, read x, seal, refuse item 1`},
	{"a suspended collection is configured differently", everyMode, oneFilter, `
		create a in 1, read x, read x, seal, refuse item 0, configure 1, create b in 1`},
	{"an event in doubt belongs to a collection that is removed and put back", []mode{intents}, []map[string]Properties{{"x": {}}, {}}, `
		*, create a in 1, read x, seal, crash behind the intents and 1 items, configure 1, *, configure 0`},
	{"a dead letter fits later", everyMode, oneFilter, `
		create a in 1, *, write a in 1, read x, seal, reject item 0, *, resync x`},
	{"a restore is overtaken, and the watch goes on", everyMode, twoSelections, `
		create a in 1, *, write a in 1, *, overtake from 1, read x, read x, sample x, *, confirm x`},
	{"a restore is overtaken, and the exact state is compacted", everyMode, []map[string]Properties{{"x": {}}}, `
		create a in 1, *, overtake from 0, expire, *, confirm x`},
	{"an object moves while its collection is verified", everyMode, twoSelections, `
		create a in 1, *, verify x, side x, write a in 2`},
	{"a filter is switched on and off", everyMode, oneFilter, `
		create a in 2, *, configure 1, *, configure 0`},
	{"a resource is removed and put back", everyMode, []map[string]Properties{{"x": {}}, {}}, `
		create a in 1, *, configure 1, *, configure 0`},
	{"the first list is skipped, and the resource is made again", everyMode, []map[string]Properties{{"x": {Skip: true}}}, `
		create a in 1, *, remove resource, *, return resource, create a in 1`},
	{"a batch is in doubt, and the resource is removed", everyMode, oneFilter, `
		*, create a in 1, read x, seal, restart, remove resource`},
	{"a closing collection is wanted again", everyMode, []map[string]Properties{{"x": {}}, {}}, `
		create a in 1, create b in 1, *, configure 1, read x, configure 0, restart`},
	{"a filter is changed, and the program is killed during the list", everyMode, oneFilter, `
		create a in 2, create b in 2, *, configure 1, read x, read x, restart`},
	{"a body changes without a write while a list begins again", everyMode, oneFilter, `
		create a in 1, read x, read x, change a default`},
	{"what is reset vanishes before the list", everyMode, oneFilter, `
		create a in 1, *, reset, remove resource`},
	{"a backup is as old as the position, and older than what was published", everyMode, oneFilter, `
		*, create a in 1, read x, seal, deliver, restore 0`},
	{"a backup is older than what the bus has in doubt", []mode{intents}, oneFilter, `
		*, create a in 1, read x, seal, crash behind the intents and 1 items, restore 0`},
	{"two objects of one name are in doubt, and the older one is back", []mode{intents}, oneFilter, `
		create a in 2, *, delete a, read x, create a in 1, read x, seal, restore 1, refuse item 0, configure 1`},
	{"a change is in doubt together with the gap behind it", []mode{intents}, oneFilter, `
		create a in 1, create b in 1, *, write a in 1, write b in 1, read x, read x, configure 1, seal, crash behind the intents and 0 items`},
	{"a change is in doubt, and its collection is removed and put back", []mode{intents}, []map[string]Properties{{"x": {}}, {}}, `
		create a in 1, create b in 1, *, write a in 1, write b in 1, read x, read x, configure 1, seal, crash behind the intents and 0 items, configure 0`},
	{"a resync is in doubt together with the list before it", []mode{intents}, oneFilter, `
		read x, seal, read x, read x, resync x, deliver, read x, seal, refuse item 0`},
	{"a reset is in doubt together with the gap of another configuration", []mode{intents}, oneFilter, `
		read x, configure 1, seal, crash behind the intents and 0 items`},
	{"a reset is in doubt, and its collection is removed and put back", []mode{intents}, []map[string]Properties{{"x": {}}, {}}, `
		read x, configure 1, seal, refuse item 0, resume x, configure 0`},
	{"a deletion is in doubt together with the resync before it", []mode{intents}, oneFilter, `
		create a in 1, *, create b in 1, read x, resync x, read x, seal, deliver, side x, side x, delete a, read x, seal, crash behind the intents and 1 items`},
	{"an ignored change comes during a resync", everyMode, []map[string]Properties{{"x": {Filter: ignoring}}}, `
		create a in 1, *, resync x, read x, write minor a, read x`},
	{"a backup undoes a dead letter, and the history expires", everyMode, oneFilter, `
		create a in 1, *, write large a, *, restore 1, *, create b in 1, *, expire`},
	{"an event in doubt becomes a dead letter, and its object is deleted", []mode{intents}, oneFilter, `
		create a in 1, *, write a in 1, read x, seal, crash behind the intents and 1 items, read x, read x, sample x, read x, seal, reject item 0, *, delete a`},
	{"a dead letter is repeated by the watch after a resync", everyMode, oneFilter, `
		create a in 1, *, write large a, *, resync x, *, restart`},
	{"a body that was skipped changes without a write", everyMode, []map[string]Properties{{"x": {Skip: true}}}, `
		create a in 1, *, drift`},
	{"a route changes between a reset and its list", everyMode, []map[string]Properties{{"x": {}}, {"x": {Route: "elsewhere"}}}, `
		*, reset, read x, configure 1`},
	{"the watch repeats an object while it is verified", everyMode, []map[string]Properties{{"x": {}}}, `
		*, create a in 1, read x, seal, deliver, restart, read x, drift, audit x, side x`},
	{"a filter changes while a dead letter waits, and a backup brings the published state back", everyMode, oneFilter, `
		create a in 2, *, write large a, *, restore 1, configure 1`},
	{"a body changes without a write while its event is in doubt", everyMode, []map[string]Properties{{"x": {}}}, `
		*, create a in 1, read x, seal, CRASH, drift`},
	{"a backup brings back what has ended within a list", everyMode, oneFilter, `
		create a in 1, read x, read x, seal, deliver, delete a, stream x, rewrite from 1`},
	{"a backup undoes a change within the first list, and the filter changes", everyMode, oneFilter, `
		create a in 1, create b in 1, write a in 1, read x, read x, rewrite from 2, configure 1`},
	{"a backup undoes a change that is in doubt within a list", []mode{intents}, oneFilter, `
		create a in 1, write a in 1, read x, read x, seal, crash behind the intents and 2 items, rewrite from 1`},
	{"the closed event before null values is in doubt", []mode{intents}, compacted, `
		create a in 1, *, reset, seal, crash behind the intents and 0 items, delete a`},
	{"a present is in doubt when its collection is removed", []mode{intents}, compacted, `
		create a in 1, read x, read x, seal, crash behind the intents and 2 items, configure 1`},
	{"a collection is removed between a reset and its list, and null values are in doubt", []mode{intents}, compacted, `
		create a in 1, *, reset, seal, deliver, read x, read x, configure 1, seal, crash behind the intents and 0 items`},
	{"an incarnation ends in the middle of its null values", everyMode, compacted, `
		create a in 1, create b in 1, *, configure 1, *, configure 0, *, reset, seal, deliver, read x, seal, CRASH, delete b`},
}

var (
	everyMode     = []mode{transaction, journal, intents}
	twoSelections = []map[string]Properties{{"x": {Selection: "1"}, "y": {Selection: "2"}}}
	compacted     = []map[string]Properties{{"x": {Tombstones: true}}, {}}
	oneFilter     = []map[string]Properties{{"x": {}}, {"x": {Filter: "1"}}}
)

// TestWays performs the ways. In a way, * stands for everything that the program does without a write or a disturbance.
// CRASH stands for a crash after the bus has the first item, or the whole transaction.
func TestWays(t *testing.T) {
	for _, c := range ways {
		for _, m := range c.modes {
			t.Run(c.name+"/"+m.String(), func(t *testing.T) {
				w := newWorld(m, 10, 10, c.configs...)
				w.logs = true
				w.coverage, w.core.coverage = covered, covered
				for name := range strings.SplitSeq(c.way, ",") {
					if name = strings.TrimSpace(name); name == "CRASH" {
						name = [...]string{"crash behind the transaction", "crash behind 1 items", "crash behind the intents and 1 items"}[m]
					}
					if name == "*" {
						w.settle()
					} else if !follow(w, []string{name}) {
						t.Fatalf("%q is not possible here: %v", name, names(w.actions()))
					}
				}
				w.drain(map[uint64]struct{}{})
				if w.failed != "" {
					for i := range w.log {
						t.Log(describe(&w.log[i]))
					}
					t.Fatal(w.failed)
				}
			})
		}
	}
}

// settle performs everything that the program does without a write or a disturbance.
func (w *world) settle() {
	writes, disturbances := w.writes, w.disturbances
	w.writes, w.disturbances = 0, 0
	steps := 0
	for list := w.actions(); len(list) > 0 && w.failed == ""; list = w.actions() {
		list[0].do(w)
		if steps++; steps > 500 {
			w.fail("drained: there are still possible actions after the maximum number of steps")
		}
	}
	w.writes, w.disturbances = writes, disturbances
}

func names(list []action) (all []string) {
	for _, a := range list {
		all = append(all, a.name)
	}
	return all
}

// effects are the inputs that have an effect in each phase, by the table of Phase.
var effects = [phases][]InputKind{
	New:       {Configure, Remove, ListBegun},
	Listing:   {Configure, Remove, ListBegun, Sighted, ListEnded, ListLacks, ListDone, Demand},
	InStep:    {Configure, Remove, ListBegun, Sighted, Bookmark, Demand, Reconnected, SideBegun, Confirm},
	Resyncing: {Configure, Remove, ListBegun, Sighted, Bookmark, Reconnected, SideEnded, SideBroken},
	Verifying: {Configure, Remove, ListBegun, Sighted, Bookmark, Demand, Reconnected, SideEnded, SideBroken},
	Absent:    {Configure, Remove, ListBegun},
	Leaving:   {Configure, Release},
	Ending:    {Configure, Remove, Forget, Forgot},
	Closed:    {Configure},
}

// TestCoverage reports the rows of the table of Sighting, and the inputs of the table of Phase, that the tests before it
// have not used. With at least 1,000 walks, it fails if there are any.
func TestCoverage(t *testing.T) {
	for r, n := range covered.rows {
		if n == 0 && r > 0 {
			missing(t, "a row: %s", row(r))
		}
	}
	for p, list := range effects {
		for _, k := range list {
			if covered.transitions[p][k] == 0 {
				missing(t, "an input: %s, %s", Phase(p), k)
			}
		}
	}
	t.Logf("of %d rows and %d inputs, the others are used", rows-1, len(slices.Concat(effects[:]...)))
}

func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if *walksFlag >= 1000 {
		t.Errorf("not used: "+format, args...)
	} else {
		t.Logf("not used: "+format, args...)
	}
}
