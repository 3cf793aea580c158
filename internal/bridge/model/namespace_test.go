package model

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the bridge has not read yet of a namespace that is deleted is published before its collection is closed. Otherwise short jobs of a namespace
// would be lost without a gap, because the bus was slow or away when the namespace was deleted.
func TestNamespaceIsDeletedWithUnreadEvents(t *testing.T) {
	const (
		put, remove           = "put 1 0 1 0\n", "delete 1\n" // n2/a
		putOther, removeOther = "put 3 0 1 0\n", "delete 3\n" // n2/b
		outage                = "bus-stops 0\nput 0 0 1 0\nsecond\nsecond\nsecond\n"
	)
	for name, c := range map[string]struct {
		buffer diskSize
		inputs string
		frames bool // the watch then gets one frame in 20 seconds
		want   string
	}{
		"no object": {noBuffer, "sleep 0\nhold-watch 6\n" + put + remove + "space-deleted 1\nsleep 1\nrelease\n", false, "added a deleted a closed"},
		"closed later, because another collection cannot be listed": {
			noBuffer, put + remove + "space-leaves 0\nsleep 0\nhold-list 6 0\nspace-joins 0\nspace-deleted 1\nsleep 2\nversion-dropped\nsleep 0\nversion-served\nsleep 0\nrelease\n", false,
			"added a deleted a closed",
		},
		"never an object": {noBuffer, "sleep 0\nspace-deleted 1\n", false, "closed"},
		"an object": {
			noBuffer, put + "sleep 0\nhold-watch 6\n" + remove + putOther + removeOther + "space-deleted 1\nsleep 1\nrelease\n", false,
			"added a deleted a added b deleted b closed",
		},
		"no object for a moment": {
			noBuffer, put + "sleep 0\nhold-watch 6\n" + remove + putOther + removeOther + "space-deleted 1\nsleep 1\n", true,
			"added a deleted a added b deleted b closed",
		},
		"killed": {noBuffer, "sleep 0\nhold-watch 6\n" + put + remove + "space-deleted 1\nsecond\nkill\nstart\nsleep 1\nrelease\n", false, "added a deleted a closed"},
		"buffered": {
			ample, "sleep 0\n" + outage + put + remove + "second\nspace-deleted 1\nsleep 1\nbus-heals 0\n", false,
			"added a deleted a closed",
		},
		"buffered, and killed": {
			ample, "sleep 0\n" + outage + put + remove + "second\nspace-deleted 1\nsecond\nkill\nforget\nstart\nsleep 1\nbus-heals 0\n", false,
			"added a deleted a gap closed",
		},
		"buffered, and killed before": {
			ample, "sleep 0\n" + outage + put + remove + "second\nkill\nspace-deleted 1\nforget\nstart\nsleep 1\nbus-heals 0\n", false,
			"added a deleted a gap closed",
		},
		"edited while the bridge is off": {
			noBuffer, put + "sleep 0\nkill\n" + remove + "space-deleted 1\nedit 0 0 0 1\nstart\nsleep 2\n", false,
			"added a gap deleted a closed",
		},
		"edited while the bridge is off, and buffered": {
			ample, put + "sleep 0\n" + outage + remove + "second\nkill\nspace-deleted 1\nforget\nedit 0 0 0 1\nstart\nsleep 1\nbus-heals 0\nsleep 1\n", false,
			"added a deleted a gap gap closed", // of the list that the buffer has, and of the edit
		},
		"created again, and not selected": {noBuffer, put + "sleep 0\nspace-deleted 1\nsecond\nspace-created-other 1\nsleep 0\n" + putOther, false, "added a deleted a closed"},
		"created again, and not selected, while the bus is away": {
			ample, put + "sleep 0\n" + outage + "space-deleted 1\nsecond\nspace-created-other 1\n" + putOther + "sleep 1\nbus-heals 0\n", false,
			"added a deleted a closed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(&setup{page: 100, sinks: []sinkSetup{{preset: 4}}, buffer: c.buffer}, nil)
				w.does(t, c.inputs)
				for range 4 {
					if !c.frames {
						break
					}
					w.frames(1)
					w.pump()
					w.locked(func(*cluster) bool { w.api.held = map[string]int{}; return true })
					w.frames(0)
					w.sleep(20 * time.Second)
				}
				w.frames(-1)
				w.does(t, "sleep 2")
				var got []string
				for _, m := range w.sinks[0].bus.messages {
					if m.Collection == resource+"."+group+"@n2" && m.short() != "synced" && !m.Data.Reset {
						got = append(got, strings.TrimSpace(m.short()+" "+m.Name))
					}
				}
				if got := strings.Join(got, " "); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				for _, p := range w.problems {
					t.Errorf("%s: %s", p.invariant, p.text)
				}
				w.end()
			})
		})
	}
}
