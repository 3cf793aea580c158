package history

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Looking back, each stretch is twice the one before: the nearest base is found by
// reading less than twice as much as lies behind it.
const (
	firstStretch = 4 << 10 // messages of a part
	lastStretch  = 1 << 20
)

// The reasons of gaps that docs/events.md promises to tell everything.
const (
	reasonSnapshot = "snapshot"
	reasonResync   = "resync"
)

// mark is a collection event where it stands in a part.
type mark struct {
	offset int64
	event  *event.Received
	within bool // it was said by the point that is asked for
}

// base is a list that told everything, in one part.
type base struct{ from, to int64 } // the gap's offset and the synced's

// track is what the bus said of one collection.
type track struct {
	id    string
	log   string         // topic or stream
	marks map[int][]mark // by part, in order
	// base is of each part of the log, once there is one; synced is the event that
	// ended it.
	base   map[int]base
	synced *event.Received
}

// scan looks for bases, back from where the point is.
type scan struct {
	*log
	point    Point
	wanted   func(*event.Received) bool
	enough   func(map[string]*track) bool
	tracks   map[string]*track
	partsOf  map[string][]int
	upTo     []int64 // offsets: what stands before them was on the bus by then
	earliest time.Time
	whole    bool // everything from the bus's beginning was looked at
}

func (s *scan) run(ctx context.Context) error {
	parts := s.Parts()
	s.tracks, s.partsOf = map[string]*track{}, map[string][]int{}
	s.upTo = make([]int64, len(parts))
	for i, p := range parts {
		s.partsOf[p.Log] = append(s.partsOf[p.Log], i)
		s.upTo[i] = p.End
	}
	if s.point.isTime() {
		var err error
		if s.upTo, err = s.At(ctx, s.point.Time); err != nil {
			return err
		}
	}
	to := slices.Clone(s.upTo)
	for stretch := int64(firstStretch); ; stretch = min(2*stretch, lastStretch) {
		ranges := make([]sink.Range, len(parts))
		left := false
		for i, p := range parts {
			ranges[i] = sink.Range{From: max(p.First, to[i]-stretch), To: to[i]}
			left = left || ranges[i].From < ranges[i].To
			to[i] = min(to[i], ranges[i].From)
		}
		if !left {
			s.whole = true
			break
		}
		s.begin("looking for a complete list", ranges)
		if err := s.stretch(ctx, ranges); err != nil {
			return err
		}
		for _, t := range s.tracks {
			s.settle(t)
		}
		if s.enough(s.tracks) {
			break
		}
	}
	// Of an epoch that is not the first there may be others that were not read.
	if newest := slices.Max(append(slices.Collect(maps.Keys(s.newest)), 1)); s.point.RV != 0 && s.point.Epoch == 0 && newest > 1 {
		return fmt.Errorf("the cluster has several epochs, and a resourceVersion says nothing without one: the bus holds %s: write e%d:%d, or a time",
			s.holds(), newest, s.point.RV)
	}
	return nil
}

// stretch reads the collection events of ranges that lie before what was read.
func (s *scan) stretch(ctx context.Context, ranges []sink.Range) error {
	found := map[string]map[int][]mark{}
	err := s.each(ctx, ranges, true, func(m *sink.Message, h *head) error {
		if s.earliest.IsZero() || h.time.Before(s.earliest) {
			s.earliest = h.time
		}
		if !h.typ.OfCollection() {
			return nil
		}
		e, err := decode(m.Headers, m.Value)
		if err != nil {
			return fmt.Errorf("message %d of %s: %w: %w", m.Offset, s.Parts()[m.Part].Name, ErrForeign, err)
		}
		if !s.wanted(e) {
			return nil
		}
		within, err := s.point.holds(h)
		if err != nil {
			return err
		}
		if found[e.Collection] == nil {
			found[e.Collection] = map[int][]mark{}
		}
		found[e.Collection][m.Part] = append(found[e.Collection][m.Part], mark{m.Offset, e, within})
		return nil
	})
	for id, of := range found {
		t := s.tracks[id]
		if t == nil {
			t = &track{id: id, marks: map[int][]mark{}}
			s.tracks[id] = t
		}
		for part, marks := range of {
			t.log = s.Parts()[part].Log
			t.marks[part] = append(marks, t.marks[part]...)
		}
	}
	return err
}

// settle finds the nearest list that every part of the log has whole.
func (s *scan) settle(t *track) {
	if t.base != nil {
		return
	}
	parts := s.partsOf[t.log]
	candidates := map[string]map[int]base{}
	ends := map[string]*event.Received{}
	for _, part := range parts {
		marks := t.marks[part]
		for i := range marks {
			if from, ok := begins(marks[:i+1]); ok {
				e := marks[i].event
				key := e.ID + " " + e.Time.Format(time.RFC3339Nano)
				if candidates[key] == nil {
					candidates[key] = map[int]base{}
				}
				candidates[key][part] = base{from, marks[i].offset}
				ends[key] = e
			}
		}
	}
	for key, of := range candidates {
		if len(of) == len(parts) && (t.synced == nil || t.synced.Time.Before(ends[key].Time)) {
			t.base, t.synced = of, ends[key]
		}
	}
}

// begins returns where the list begins that the last mark ends, if everything was
// told from there on.
func begins(marks []mark) (from int64, ok bool) {
	last := len(marks) - 1
	s := marks[last]
	if !s.within || s.event.Type != event.Synced || s.event.Report.Counts == nil {
		return 0, false
	}
	c := s.event.Report.Counts
	if c.Skipped > 0 {
		return 0, false
	}
	all := c.Unchanged == 0 && c.Added+c.Modified+c.Present+c.Filtered == c.Listed
	if s.event.Report.Reason == reasonResync { // beside which the watch tells of others, which are Added
		all = c.Unchanged == 0 && c.Modified+c.Present+c.Filtered == c.Listed
	}
	i := last - 1
	if i < 0 || marks[i].event.Type != event.Gap {
		return 0, false
	}
	if all {
		return marks[i].offset, true
	}
	if s.event.Report.Reason == reasonResync {
		return 0, false
	}
	// What did not change since a list that was broken off was told by that.
	for ; i >= 0 && marks[i].event.Type == event.Gap; i-- {
		r := marks[i].event.Report
		if r.Reset || r.Reason == reasonSnapshot && r.From == "" {
			return marks[i].offset, i < last-1
		}
	}
	return 0, false
}

// last is the newest collection event within the point, and the first behind it.
func (t *track) last() (last, next *mark) {
	for _, marks := range t.marks {
		for i := range marks {
			m := &marks[i]
			switch {
			case m.within && (last == nil || last.event.Time.Before(m.event.Time)):
				last = m
			case !m.within && (next == nil || m.event.Time.Before(next.event.Time)):
				next = m
			}
		}
	}
	return last, next
}

// sorted are the tracks by id.
func sorted(tracks map[string]*track) []*track {
	var out []*track
	for _, t := range tracks {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *track) int { return cmp.Compare(a.id, b.id) })
	return out
}
