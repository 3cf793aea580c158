package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// maxWaiting bounds the memory of the changes that wait for the event that says who made them.
const maxWaiting = 64 << 20

// notAwaited is the note of a change that was shown before its attribution was found, if the bus has one.
const notAwaited = "the user is left out: too many changes wait for the events that name their users"

// changeQueue holds changes in their order, until the events that say who made them are read. Such an event follows its
// change, but any number of messages can be in between, or all, if the bus has none. So a change is shown when it and
// all earlier ones are attributed, or when everything is read. Those that are never attributed do not wait.
type changeQueue struct {
	show    func(Change) error
	limit   int // bytes
	changes []*Change
	byID    map[string]*Change // those of changes, by the id of the event
	bytes   int                // of the diffs and paths of changes
	// early has attributions of changes that come later, by the id of the change's event: the parts of a topic are read
	// one after the other, and in a compacted topic the two have different keys.
	early map[string]*event.Received
}

func newChangeQueue(show func(Change) error, limit int) changeQueue {
	return changeQueue{show: show, limit: limit, byID: map[string]*Change{}, early: map[string]*event.Received{}}
}

// add appends a change, and shows what need not wait.
func (w *changeQueue) add(c *Change) error {
	if e := w.early[c.ID]; e != nil { // the event of the change may have it as well, with delivery: at-least-once
		delete(w.early, c.ID)
		c.attribute(e)
	}
	w.changes = append(w.changes, c)
	w.byID[c.ID] = c
	w.bytes += c.size()
	return w.flush(false)
}

// attribute handles an event of type Attributed. keep says that the change may come later.
func (w *changeQueue) attribute(e *event.Received, keep bool) error {
	if c := w.byID[e.Attribution.Explains]; c != nil {
		c.attribute(e)
		return w.flush(false)
	}
	if before := w.early[e.Attribution.Explains]; keep && (before == nil || before.Attribution.Request == nil) {
		e.Data = nil
		w.early[e.Attribution.Explains] = e
	}
	return nil
}

// flush shows changes: all of them, or those that wait for nothing.
func (w *changeQueue) flush(all bool) error {
	for len(w.changes) > 0 && (all || !w.changes[0].waits() || w.bytes > w.limit) {
		c := w.changes[0]
		w.changes[0] = nil
		w.changes = w.changes[1:]
		delete(w.byID, c.ID)
		w.bytes -= c.size()
		if !all && c.waits() {
			c.Note = strings.TrimPrefix(c.Note+"; "+notAwaited, "; ")
		}
		if err := w.show(*c); err != nil {
			w.changes = nil // nobody wants them
			return err
		}
	}
	return nil
}

// waits reports whether the author may still become known. What a first list finds is no change: docs/attribution.md.
func (c *Change) waits() bool {
	return c.Attribution == nil && c.Type != event.Present.String() && c.Origin != event.Snapshot
}

// attribute adds who made the change, if that was not known exactly.
func (c *Change) attribute(e *event.Received) {
	if c.Attribution == nil || c.Attribution.Request == nil {
		c.Attribution = e.Attribution
	}
}

func (c *Change) size() int {
	n := 1<<10 + len(c.Diff)
	for _, p := range c.Paths {
		n += len(p)
	}
	for i := range c.By {
		for _, p := range c.By[i].Paths {
			n += len(p)
		}
	}
	return n
}

// Users returns lines that say who made a change: one line if that is known; else a line with the reason, one for each
// candidate, and one if the event leaves candidates out. There is no line without an attribution.
func Users(a *event.Attribution) []string {
	switch {
	case a == nil:
		return nil
	case a.Request != nil:
		return []string{"user " + a.Request.Sender()}
	}
	head := "candidates:"
	if len(a.Candidates) == 1 && !slices.Contains(a.LeftOut, "candidates") {
		head = "one candidate, which is no proof:"
	}
	lines := []string{fmt.Sprintf("user not certain (%s); %s", a.Reason, head)}
	for i := range a.Candidates {
		lines = append(lines, "  "+a.Candidates[i].Sender())
	}
	if slices.Contains(a.LeftOut, "candidates") {
		lines = append(lines, "  others are left out")
	}
	return lines
}
