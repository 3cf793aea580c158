package model

import (
	"slices"
	"testing"
	"testing/synctest"
)

// TestKnownBeside has the known defects that random traces cannot show: they need
// thousands of objects. Each must be there: one that is not leaves the list.
func TestKnownBeside(t *testing.T) {
	for _, defect := range []struct {
		name  string
		setup setup
		first config // of each sink; nil: the preset
		there func(t *testing.T, w *world) bool
	}{
		{"a blocked sink holds the list slots of all sinks", setup{crowd: 5000, sinks: []sinkSetup{{}, {}}}, config{{x: 1}}, slotsHeld},
		{"half of a closed collection is forgotten", setup{crowd: 9000, sinks: []sinkSetup{{mode: intents}}}, nil, halfClosed},
		{"half of a reset collection is forgotten", setup{crowd: 9000, sinks: []sinkSetup{{mode: intents}}}, nil, halfReset},
		{"beyond 500, objects that leave a selection behind a 410 are published as gone", setup{crowd: 600, sinks: []sinkSetup{{}}}, config{{x: 2}}, leftAsGone},
		{"changes of objects without a resourceVersion are published by lists only", setup{notation: none, sinks: []sinkSetup{{}}}, nil, waitForList},
	} {
		t.Run(defect.name, func(t *testing.T) {
			defect.setup.page, defect.setup.first = 1000, defect.first
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&defect.setup, nil)
				if !defect.there(t, w) {
					t.Error("it is not there any more: remove it from the list")
				}
				w.end()
			})
		})
	}
}

// does gives the inputs of a trace, all of which must apply.
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

// configures gives a sink another configuration, with a running bridge at once.
func (w *world) configures(n int, c config) {
	w.sinks[n].config = c
	w.judges[n].inEffect(c)
	if w.process != nil {
		w.process.edit(w.sinks[n])
	}
	w.pump()
}

// wrote reports whether a sink has written an event of a type and a collection.
func (w *world) wrote(n int, short, collection string) bool {
	return slices.ContainsFunc(w.sinks[n].bus.messages, func(m message) bool { return m.short() == short && m.Collection == collection })
}

// slotsHeld: lists of a sink that is blocked hold the slots for lists, so that another
// sink gets no snapshot.
func slotsHeld(t *testing.T, w *world) bool {
	w.does(t, "bus-blocks 0")
	w.configures(0, config{{x: 2, team: true}, {x: 4, team: true}}) // four collections
	w.does(t, "sleep 1")
	w.configures(1, config{{x: 1}, {x: 4}})
	w.does(t, "sleep 2")
	held := !w.wrote(1, "synced", "things.model.test?labels=x=2")
	w.does(t, "bus-heals 0\nsleep 2")
	if !w.wrote(1, "synced", "things.model.test?labels=x=2") {
		t.Error("the other sink has no snapshot when nothing is blocked any more")
	}
	return held
}

// halfClosed: an entry is removed, the bridge is killed while it forgets the objects, and
// the entry is put back.
func halfClosed(t *testing.T, w *world) bool { return w.losesDeletions(t, config{}) }

// halfReset: something else is redacted, which is a reset, and the rest as in halfClosed.
func halfReset(t *testing.T, w *world) bool {
	return w.losesDeletions(t, config{{x: all, redact: true}})
}

// losesDeletions gives the bridge another configuration, kills it at the first commit of
// what that leads to, and starts it with the first one. The watch goes on with a part of
// the inventory; it reports whether the deletion of an object is not published.
func (w *world) losesDeletions(t *testing.T, other config) bool {
	first := w.sinks[0].config
	w.does(t, "sleep 0\ncrash-after-commit 0 0")
	w.configures(0, other)
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

// leftAsGone: objects leave the selection of an entry, and live on, behind a 410. Only
// the deletions of the first 500 say so.
func leftAsGone(t *testing.T, w *world) bool {
	w.does(t, "sleep 0\nstop\nrelabel 1 0\nforget\nstart\nsleep 1")
	left, gone := 0, 0
	for _, m := range w.sinks[0].bus.messages {
		switch {
		case m.short() != "deleted":
		case m.Data.Reason == "left":
			left++
		default:
			gone++
		}
	}
	if left+gone != 600 {
		t.Fatalf("%d deletions, not 600", left+gone)
	}
	return gone > 0
}

// waitForList: a change of an object counts as a repetition of the first one, until a list
// compares the bodies.
func waitForList(t *testing.T, w *world) bool {
	w.does(t, "put 0 1 1 0\nput 0 2 1 0\nsleep 1")
	if !w.wrote(0, "added", "things.model.test") {
		t.Fatal("the object is not published")
	}
	missing := !w.wrote(0, "modified", "things.model.test")
	w.does(t, "forget\nsleep 1")
	if !w.wrote(0, "modified", "things.model.test") {
		t.Error("the change is not published behind a list either")
	}
	return missing
}
