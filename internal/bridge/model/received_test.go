package model

import (
	"maps"
	"strings"

	bridgestatus "github.com/kubebridge/kubebridge/internal/operate/status"
)

// received is what the API server has sent on watches at a time.
type received struct {
	// sent has the highest resourceVersion that was sent, by the target of the watch.
	sent map[string]int
	// recorded are the collections that are read from the disk buffer, or were before the process ended.
	recorded map[string]bool
}

// watchOf names the watch of a selection in [server].sent.
func watchOf(s selection) string {
	fields, version := "", "v1"
	if s.entry.exclude {
		fields = "metadata.namespace!=n2"
	}
	if s.entry.version != "" {
		version = s.entry.version
	}
	return strings.Join([]string{s.namespace, s.entry.x.selector(), fields, version}, "|")
}

// records notes which collections are read from the disk buffer. A process that has not opened its sink yet changes nothing.
func (j *judge) records() {
	if j.w.disk == nil || j.w.process == nil {
		return
	}
	report := j.w.process.bridge.Status()
	for i := range report.Sinks {
		if report.Sinks[i].Name != j.s.name {
			continue
		}
		for _, c := range report.Sinks[i].Collections {
			switch c.State {
			case bridgestatus.Buffered:
				j.recorded[c.ID] = true
			case bridgestatus.Discovering:
			default:
				delete(j.recorded, c.ID)
			}
		}
	}
}

// received returns what has been sent by now.
func (j *judge) received() received {
	j.w.api.mu.Lock()
	defer j.w.api.mu.Unlock()
	return received{maps.Clone(j.w.api.sent), maps.Clone(j.recorded)}
}

// everyFrame checks, at the gap of an edit, that everything was published that the bridge had in its disk buffer when the edit took effect. That
// is so unless something else than an edit, a stop or a kill has happened since the collection synced.
func (j *judge) everyFrame(id string, state *collectionState) {
	if !state.synced || state.by == nil || state.late || j.w.disk == nil || j.w.disk.size != ample || j.w.disturbed >= state.syncedStep || state.by.entry.types != "" {
		return
	}
	for _, e := range j.effect {
		if e.step < state.syncedStep || j.same(e.c, id, *state.by) {
			continue
		}
		has := e.received
		if j.crashes >= state.syncedStep { // the process has lost what was not written to the disk
			has = e.flushed
		}
		if !e.received.recorded[id] || !has.recorded[id] {
			return
		}
		for _, c := range j.w.cluster.now().changes {
			if c.rv > state.at && c.rv <= has.sent[watchOf(*state.by)] && state.by.passes(c.after) && !j.seen[stateKey(c.after.uid, c.rv)] {
				j.wrong(buffered, "%s: %s (%s) at rv %d was in the buffer at the edit in step %d, and is not published before its gap",
					id, c.after.key(), c.after.uid, c.rv, e.step)
			}
		}
		return
	}
}

// waits reports whether an edit that was given in a step may still wait until what the disk buffer has of a collection is published.
func (j *judge) waits(e *configAt, id string) bool {
	state := j.of[id]
	return e.received.recorded[id] && (state == nil || state.editGap < e.step)
}

// same reports whether a configuration has a collection with a selection.
func (j *judge) same(c config, id string, s selection) bool {
	for _, e := range c {
		for _, other := range e.possible() {
			if collectionID(other) == id {
				return other == s
			}
		}
	}
	return false
}
