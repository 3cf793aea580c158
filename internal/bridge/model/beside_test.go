package model

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestBeside tests for defects that random traces cannot show, because they need thousands of objects. None of them
// may return.
func TestBeside(t *testing.T) {
	for _, defect := range []struct {
		name  string
		setup setup
		first config // the first configuration of each sink; nil: the preset
		there func(t *testing.T, w *world) bool
	}{
		{"a blocked sink holds the list slots of all sinks", setup{crowd: 5000, sinks: []sinkSetup{{}, {}}}, config{{x: 1}}, slotsHeld},
		{"half of a closed collection is forgotten", setup{crowd: 9000, sinks: []sinkSetup{{mode: intents}}}, nil, halfClosed},
		{"half of a reset collection is forgotten", setup{crowd: 9000, sinks: []sinkSetup{{mode: intents}}}, nil, halfReset},
		{"beyond 500, objects that leave a selection behind a 410 are published as gone", setup{crowd: 600, sinks: []sinkSetup{{}}}, config{{x: 2}}, leftAsGone},
	} {
		t.Run(defect.name, func(t *testing.T) {
			defect.setup.page, defect.setup.first = 1000, defect.first
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&defect.setup, nil)
				if defect.there(t, w) {
					t.Errorf("%s: %v", defect.name, w.problems)
				}
				w.end()
			})
		})
	}
}

// does gives the inputs of a trace to the world. All of them must apply.
func (w *world) does(t *testing.T, text string) {
	t.Helper()
	tr, err := parseTrace(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range tr.inputs {
		if !w.give(in) {
			t.Fatalf("%s: this does not apply", in)
		}
	}
}

// configures gives a sink another configuration. A running bridge receives it at once.
func (w *world) configures(n int, c config) {
	w.sinks[n].config = c
	w.judges[n].inEffect(c)
	if w.process != nil {
		w.process.edit(w.sinks[n])
	}
	w.pump()
}

// wrote reports whether a sink has written an event of a type for a collection.
func (w *world) wrote(n int, short, collection string) bool {
	return slices.ContainsFunc(w.sinks[n].bus.messages, func(m message) bool { return m.short() == short && m.Collection == collection })
}

// slotsHeld: the lists of a blocked sink hold the slots for lists, so that another sink gets no snapshot.
func slotsHeld(t *testing.T, w *world) bool {
	w.does(t, "bus-blocks 0")
	w.configures(0, config{{name: "two", x: 2, team: true}, {name: "four", x: 4, team: true}}) // four collections
	w.does(t, "sleep 1")
	w.configures(1, config{{name: "one", x: 1}, {name: "four", x: 4}})
	w.does(t, "sleep 2")
	held := !w.wrote(1, "synced", "things.model.test:one")
	w.does(t, "bus-heals 0\nsleep 2")
	if !w.wrote(1, "synced", "things.model.test:one") {
		t.Error("the other sink has no snapshot when nothing is blocked any more")
	}
	return held
}

// halfClosed: an entry is removed, the bridge is killed while it removes the objects from the inventory, and the entry
// is configured again.
func halfClosed(t *testing.T, w *world) bool { return w.losesDeletions(t, config{}) }

// halfReset: a change of the redaction causes a reset, and the rest is as in halfClosed.
func halfReset(t *testing.T, w *world) bool {
	return w.losesDeletions(t, config{{x: all, redact: true}})
}

// losesDeletions gives another configuration to the bridge, kills the bridge at the first commit that follows, and
// starts it with the first configuration. The watch continues with a part of the inventory. It reports whether the
// deletion of an object is not published.
func (w *world) losesDeletions(t *testing.T, other config) bool {
	first := w.sinks[0].config
	w.does(t, "sleep 0\ncrash-after-commit 0 0")
	w.configures(0, other)
	w.does(t, "sleep 1")
	if w.process != nil {
		t.Fatal("the bridge was not killed")
	}
	w.configures(0, first)
	w.does(t, "start\nsleep 0")
	before := len(w.problems)
	w.locked(func(c *cluster) bool { return c.remove(sortedKeys(c.live())[0]) })
	w.does(t, "sleep 0")
	w.caughtUp(drained)
	return len(w.problems) > before
}

// leftAsGone: objects leave the selection of an entry and continue to exist, and the watch then gets a 410. Only the
// first 500 objects are looked up. Their deletions say that they left; the other deletions say that this is unknown.
func leftAsGone(t *testing.T, w *world) bool {
	w.does(t, "sleep 0\nstop\nrelabel 1 0\nforget\nstart\nsleep 1")
	by := map[string]int{}
	for _, m := range w.sinks[0].bus.messages {
		if m.short() == "deleted" {
			by[m.Data.Reason]++
		}
	}
	if by["left"] == 0 || by["left"]+by["unknown"]+by[""] != 600 {
		t.Fatalf("deletions by their reasons: %v", by)
	}
	return by[""] > 0
}

// TestTwoEntriesOfOneObject: each entry publishes the object once, and its deletion.
func TestTwoEntriesOfOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&setup{page: 1000, first: config{{x: 2}, {x: 2}}, sinks: []sinkSetup{{}}}, nil)
		defer w.end()
		w.does(t, "put 0 1 1 0\nsleep 1\nput 0 1 1 1\nsleep 1\ndelete 0\nsleep 1")
		said := map[string][]string{}
		for _, m := range w.sinks[0].bus.messages {
			if !m.ofCollection() {
				said[m.Collection] = append(said[m.Collection], m.short())
			}
		}
		for _, id := range []string{"things.model.test", "things.model.test:e1"} {
			if want := []string{"added", "modified", "deleted"}; !slices.Equal(said[id], want) {
				t.Errorf("%s publishes %v, want %v", id, said[id], want)
			}
		}
		if len(w.problems) > 0 {
			t.Error(w.problems)
		}
	})
}

// TestWithoutVersions tests the statement of docs/compatibility.md about objects without a resourceVersion: the bridge
// publishes that they are added and deleted, and publishes other changes with the next list.
func TestWithoutVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(&setup{notation: none, page: 1000, sinks: []sinkSetup{{}}}, nil)
		defer w.end()
		w.does(t, "put 0 1 1 0\nput 0 2 1 0\nsleep 1")
		if !w.wrote(0, "added", "things.model.test") {
			t.Error("the object is not published")
		}
		if w.wrote(0, "modified", "things.model.test") {
			t.Error("the change is published: correct docs/compatibility.md")
		}
		w.does(t, "forget\nsleep 1")
		if !w.wrote(0, "modified", "things.model.test") {
			t.Error("the change is not published with a list")
		}
	})
}
