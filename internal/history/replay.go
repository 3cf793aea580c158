package history

import (
	"context"
	"time"

	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// list is one that publishes every object of a collection.
type list struct {
	log    string // topic or stream
	gap    *event.Received
	resync bool            // as [event.Cause.Resync] of the gap
	synced *event.Received // nil: it is not complete by the point
	ended  int             // parts that have its end
	held   int             // objects that the collection then held there; of a resync, those that it published
}

// partProgress is how far a part has been read of a collection.
type partProgress struct {
	from    int64           // what stands before is not looked at
	past    bool            // everything that follows is behind the point
	run     uint64          // the highest that was read
	open    *event.Received // the gap that is open
	epoch   uint64          // of the last synced event within the point
	reached position        // of which the collection is known to have been complete there
	listing *list           // that is under way
	live    map[string]struct{}
}

// copied is the copy of one collection.
type copied struct {
	id, resource string
	state        consumer.State
	progress     map[int]*partProgress
	run          uint64 // object events of a lower one are not looked at: they were read before, and come again
	limit        uint64 // of a resourceVersion: the last incarnation that was complete by then; 0: none
	lists        map[uint64]*list
	base         *list           // the last that was complete in every part by the point
	begun        *event.Received // the gap of the last of them
	seen         position        // the highest of an event of incarnation limit
	closed       *event.Received // of incarnation limit, if the point is a resourceVersion
	last         time.Time       // of the last event within the point
	after        time.Time       // of the first event behind it
}

// replay makes the copies, from where a scan says on.
type replay struct {
	*scan
	needs  func(id string) bool // whether the objects of a collection are asked for
	keep   func(h *head) bool   // whether the object is
	copies map[string]*copied
	passed time.Time // when the bridge first published something as new as the resourceVersion that is asked for
}

func newReplay(s *scan, needs func(string) bool, keep func(*head) bool) *replay {
	return &replay{scan: s, needs: needs, keep: keep, copies: map[string]*copied{}}
}

// run reads every part to its end: the next event of a collection may be far away.
func (r *replay) run(ctx context.Context) error {
	parts := r.Parts()
	ranges := make([]sink.Range, len(parts))
	for i, p := range parts {
		ranges[i] = sink.Range{From: r.top[i], To: p.End}
		for id, t := range r.tracks {
			if len(t.marks[i]) > 0 && r.needs(id) {
				ranges[i].From = min(ranges[i].From, r.from(t, i))
			}
		}
	}
	r.begin("reading", ranges)
	return r.each(ctx, ranges, false, func(m *sink.Message, h *head) error {
		if !r.asked(h.text[group], h.text[resource]) {
			return nil
		}
		r.pass(h)
		c := r.copyOf(h)
		f := c.progress[m.Part]
		if f == nil {
			f = &partProgress{}
			if t := r.tracks[c.id]; t != nil {
				f.from = r.from(t, m.Part)
			}
			c.progress[m.Part] = f
		}
		if m.Offset < f.from || h.run < c.run && !h.typ.OfCollection() && h.typ != event.Deleted {
			return nil
		}
		return r.take(c, f, m, h)
	})
}

func (r *replay) copyOf(h *head) *copied {
	c := r.copies[h.text[collection]]
	if c == nil {
		c = &copied{id: h.text[collection], resource: h.resourceID(), progress: map[int]*partProgress{}, lists: map[uint64]*list{}}
		if t := r.tracks[c.id]; t != nil {
			c.run, c.limit = t.run, t.incarnation
		}
		r.copies[c.id] = c
	}
	return c
}

// pass notes how far the cluster had come when.
func (r *replay) pass(h *head) {
	at, ok := h.position()
	if !ok || r.point.isTime() || at.compare(r.point.position()) < 0 {
		return
	}
	if r.passed.IsZero() || h.time.Before(r.passed) {
		r.passed = h.time
	}
}

// wasClosed reports whether a collection was closed by a resourceVersion. A closed event has none, and partitions are in no order:
// the collection was open if it, or another one before it was closed, had come to that version.
func (r *replay) wasClosed(c *copied) bool {
	if c.closed == nil {
		return false
	}
	before := !r.passed.IsZero() && !r.passed.After(c.closed.Time)
	return !before && c.seen.compare(r.point.position()) < 0
}

func (r *replay) take(c *copied, f *partProgress, m *sink.Message, h *head) error {
	if !r.point.isTime() && h.incarnation == c.limit {
		if at, ok := h.position(); ok && c.seen.compare(at) < 0 {
			c.seen = at
		}
		if h.typ == event.Closed {
			e, err := h.decode(m)
			c.closed, c.after = e, h.time
			return err
		}
	}
	within, err := r.within(c, f, h)
	if err != nil {
		return err
	}
	f.reach(h, r.point, c.limit, within)
	if !within {
		if c.after.IsZero() || h.time.Before(c.after) {
			c.after = h.time
		}
		return nil
	}
	if c.last.Before(h.time) {
		c.last = h.time
	}
	if !h.typ.OfCollection() {
		return r.object(c, f, m, h)
	}
	e, err := h.decode(m)
	if err != nil {
		return err
	}
	r.ledger.take(e)
	log := r.Parts()[m.Part].Log
	c.collectionEvent(f, e, log, r.size[log])
	r.apply(c, m, e)
	return nil
}

// apply has the copy take a message.
func (r *replay) apply(c *copied, m *sink.Message, e *event.Received) {
	log := r.Parts()[m.Part].Log
	x := message(m)
	x.Topic, x.Partition, x.Partitions = log, r.index[m.Part], r.size[log]
	c.state.Take(x, e)
}

// within reports whether an event had happened by the point. Of a time, the first event of the
// collection that is later ends it: a clock that was set back comes to the same time again.
//
// For a resourceVersion, too, the first event that is later ends it, unless a gap is open: a list is not in the
// order of versions.
func (r *replay) within(c *copied, f *partProgress, h *head) (bool, error) {
	if f.past {
		return false, nil
	}
	holds, err := r.point.holds(h)
	if err != nil || r.point.isTime() {
		f.past = !holds
		return holds, err
	}
	switch {
	case h.incarnation > c.limit:
		f.past = true
	case h.typ.OfCollection(), f.open == nil:
		f.past = !holds
	default:
		return holds, nil
	}
	return !f.past, nil
}

// reach notes up to where an event shows that the collection was complete. Events of a watch are in the order of
// versions; a list's are not.
func (f *partProgress) reach(h *head, p Point, limit uint64, within bool) {
	at, ok := h.position()
	switch {
	case !ok, p.isTime() && !within:
		return
	case !p.isTime() && (h.incarnation != limit || h.epoch != p.position().epoch):
		return
	case h.typ == event.Synced, h.typ == event.Gap: // a gap has the version up to which everything is published
	case h.typ == event.Closed, event.Origin(h.text[origin]) != event.Watch, f.open != nil:
		return
	}
	if f.reached.compare(at) < 0 {
		f.reached = at
	}
}

// object takes an event of an object within the point.
func (r *replay) object(c *copied, f *partProgress, m *sink.Message, h *head) error {
	var e *event.Received
	if r.needs(c.id) && r.keep(h) {
		var err error
		if e, err = h.decode(m); err != nil {
			return err
		}
	}
	if h.typ != event.Deleted {
		f.run = max(f.run, h.run)
	}
	if f.live != nil {
		key := h.text[namespace] + "/" + h.text[objectName]
		switch resync := f.listing.resync; {
		case resync && h.typ == event.Present, !resync && h.typ != event.Deleted:
			f.live[key] = struct{}{}
		case !resync:
			delete(f.live, key)
		}
	}
	if e != nil {
		r.apply(c, m, e)
	}
	return nil
}

// collectionEvent follows the gaps and the lists of a collection in a part.
func (c *copied) collectionEvent(f *partProgress, e *event.Received, log string, parts int) {
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
			c.begun, f.listing, f.live = e, c.lists[e.Run], map[string]struct{}{}
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
