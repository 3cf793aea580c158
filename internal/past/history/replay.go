package history

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// list is a list that publishes every object of a collection: a reset or a resync.
type list struct {
	log    string // topic or stream
	gap    *event.Received
	resync bool            // [event.Cause.Resync] of the gap
	synced *event.Received // nil: it was not complete at the point
	ended  int             // how many parts have its end
	held   int             // how many objects the collection held at its end; for a resync, how many it published
}

// partProgress is how far a part was read for one collection.
type partProgress struct {
	from    int64               // earlier offsets are not read
	past    bool                // all following events come after the point
	run     uint64              // the highest run that was read
	open    *event.Received     // the gap that is open
	epoch   uint64              // epoch of the last synced event before the point
	reached position            // up to here the part is known to be complete
	listing *list               // the list that is being read
	live    map[string]struct{} // the objects that this list has published and that still exist
}

type collectionCopy struct {
	id, resource string
	state        consumer.State
	progress     map[int]*partProgress
	run          uint64           // object events of lower runs are skipped: the list of this run publishes every object
	limit        uint64           // for a resourceVersion: the last incarnation that was complete at the point; 0: none
	lists        map[uint64]*list // by run
	base         *list            // the last list that was complete in every part at the point
	lastGap      *event.Received  // the gap with which the last list began
	seen         position         // the highest position of an event of incarnation limit
	closed       *event.Received  // the closed event of incarnation limit; only if the point is a resourceVersion
	last         time.Time        // time of the last event before the point
	firstAfter   time.Time        // time of the first event after the point
}

// replay makes the copies. A scan has found where it begins to read.
type replay struct {
	*scan
	needs  func(id string) bool // whether the query asks for objects of a collection
	keep   func(h *head) bool   // whether the query asks for the object
	copies map[string]*collectionCopy
	passed time.Time // when the bridge first published an event as new as the point's resourceVersion
}

// run reads every part to its end: the events that prove how complete a collection was may follow after the point.
func (r *replay) run(ctx context.Context) error {
	parts := r.Parts()
	ranges := make([]sink.Range, len(parts))
	for i, p := range parts {
		ranges[i] = sink.Range{From: r.scanEnd[i], To: p.End}
		for id, t := range r.tracks {
			if len(t.marks[i]) > 0 && r.needs(id) {
				ranges[i].From = min(ranges[i].From, r.from(t, i))
			}
		}
	}
	return r.each(ctx, "reading", ranges, false, func(m *sink.Message, h *head) error {
		if !r.asked(h.Group, h.Resource) {
			return nil
		}
		r.notePassed(h)
		c := r.copyOf(h)
		f := c.progress[m.Part]
		if f == nil {
			f = &partProgress{}
			if t := r.tracks[c.id]; t != nil {
				f.from = r.from(t, m.Part)
			}
			c.progress[m.Part] = f
		}
		if m.Offset < f.from || h.Run < c.run && !h.Type.OfCollection() && h.Type != event.Deleted {
			return nil
		}
		return r.take(c, f, m, h)
	})
}

func (r *replay) copyOf(h *head) *collectionCopy {
	c := r.copies[h.Collection]
	if c == nil {
		resource := consumer.NameOf(&h.Received).Resource
		c = &collectionCopy{id: h.Collection, resource: resource, progress: map[int]*partProgress{}, lists: map[uint64]*list{}}
		if t := r.tracks[c.id]; t != nil {
			c.run, c.limit = t.run, t.incarnation
		}
		r.copies[c.id] = c
	}
	return c
}

// notePassed records when the bridge first published an event as new as the point's resourceVersion.
func (r *replay) notePassed(h *head) {
	at, ok := h.position()
	if ok && !r.point.isTime() && at.compare(r.point.position()) >= 0 {
		r.passed = first(r.passed, h.Time)
	}
}

// first returns the earlier one of two times. The zero time is none.
func first(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// wasClosed reports whether a collection was closed before the cluster reached the point's resourceVersion. A closed
// event has no resourceVersion, and partitions have no common order. So the collection counts as open if it reached
// that version itself, or if any collection did before the collection was closed.
func (r *replay) wasClosed(c *collectionCopy) bool {
	if c.closed == nil {
		return false
	}
	before := !r.passed.IsZero() && !r.passed.After(c.closed.Time)
	return !before && c.seen.compare(r.point.position()) < 0
}

func (r *replay) take(c *collectionCopy, f *partProgress, m *sink.Message, h *head) error {
	if !r.point.isTime() && h.Incarnation == c.limit {
		if at, ok := h.position(); ok && c.seen.compare(at) < 0 {
			c.seen = at
		}
		if h.Type == event.Closed {
			e, err := h.decode(m)
			c.closed, c.firstAfter = e, h.Time
			return err
		}
	}
	within, err := r.within(c, f, h)
	if err != nil {
		return err
	}
	f.reach(h, r.point, c.limit, within)
	if !within {
		c.firstAfter = first(c.firstAfter, h.Time)
		return nil
	}
	if c.last.Before(h.Time) {
		c.last = h.Time
	}
	if !h.Type.OfCollection() {
		return r.object(c, f, m, h)
	}
	e, err := h.decode(m)
	if err != nil {
		return err
	}
	r.ledger.take(e)
	at := r.places[m.Part]
	c.collectionEvent(f, e, at.Topic, at.Partitions)
	c.state.Take(at, e)
	return nil
}

// within reports whether an event happened at or before the point. For a time, all events after the first later one
// of the collection count as later, because a clock that was set back shows the same time twice.
//
// For a resourceVersion the same holds, unless a gap is open: a list is not in the order of versions.
func (r *replay) within(c *collectionCopy, f *partProgress, h *head) (bool, error) {
	if f.past {
		return false, nil
	}
	holds, err := r.point.holds(h)
	if err != nil || r.point.isTime() {
		f.past = !holds
		return holds, err
	}
	switch {
	case h.Incarnation > c.limit:
		f.past = true
	case h.Type.OfCollection(), f.open == nil:
		f.past = !holds
	default:
		return holds, nil
	}
	return !f.past, nil
}

// reach records up to which position an event proves the collection to be complete. Events of a watch do, because they
// are in the order of versions; events of a list do not.
func (f *partProgress) reach(h *head, p Point, limit uint64, within bool) {
	at, ok := h.position()
	switch {
	case !ok, p.isTime() && !within:
		return
	case !p.isTime() && (h.Incarnation != limit || h.Epoch != p.position().epoch):
		return
	case h.Type == event.Synced, h.Type == event.Gap: // everything up to a gap's version is published
	case h.Type == event.Closed, h.Origin != event.Watch, f.open != nil:
		return
	}
	if f.reached.compare(at) < 0 {
		f.reached = at
	}
}

// object handles an object event that is not later than the point.
func (r *replay) object(c *collectionCopy, f *partProgress, m *sink.Message, h *head) error {
	var e *event.Received
	if r.needs(c.id) && r.keep(h) {
		var err error
		if e, err = h.decode(m); err != nil {
			return err
		}
	}
	if h.Type != event.Deleted {
		f.run = max(f.run, h.Run)
	}
	if f.live != nil {
		key := h.Namespace + "/" + h.Name
		switch resync := f.listing.resync; {
		case resync && h.Type == event.Present, !resync && h.Type != event.Deleted:
			f.live[key] = struct{}{}
		case !resync:
			delete(f.live, key)
		}
	}
	if e != nil {
		c.state.Take(r.places[m.Part], e)
	}
	return nil
}

// collectionEvent follows the gaps and the lists of a collection in a part.
func (c *collectionCopy) collectionEvent(f *partProgress, e *event.Received, log string, parts int) {
	switch {
	case e.Type == event.Gap && e.Run > f.run:
		f.run = e.Run
		resync := event.GapCause(e.Report.Reason).Resync
		if !resync || f.open != nil {
			f.open = e
		}
		switch {
		case e.Report.Reset, resync:
			if c.lists[e.Run] == nil {
				c.lists[e.Run] = &list{log: log, gap: e, resync: resync}
			}
			c.lastGap, f.listing, f.live = e, c.lists[e.Run], map[string]struct{}{}
		case f.listing != nil && !f.listing.gap.Report.Reset:
			f.listing, f.live = nil, nil
		}
	case e.Type == event.Closed:
		f.open, f.listing, f.live = nil, nil, nil
	case e.Type == event.Synced && e.Run >= f.run:
		f.run, f.open, f.epoch = e.Run, nil, e.Epoch
		if l := f.listing; l != nil {
			l.synced, l.ended, l.held = e, l.ended+1, l.held+len(f.live)
			if f.listing, f.live = nil, nil; l.ended == parts && (c.base == nil || c.base.gap.Run < l.gap.Run) {
				c.base = l
			}
		}
	}
}
