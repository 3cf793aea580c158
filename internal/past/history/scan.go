package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// The scan reads backwards in stretches, each twice as long as the one before. So it finds the nearest complete list
// after reading less than twice the messages that follow the list.
const (
	firstStretch = 4 << 10 // messages of each part
	lastStretch  = 1 << 20
)

// mark is a collection event and its offset in a part.
type mark struct {
	offset int64
	event  *event.Received
	within bool // it happened at or before the point
}

// track has the collection events of one collection.
type track struct {
	marks map[int][]mark // by part, in order
	// run, incarnation and base describe the newest complete list; zero: none was found. base has the offsets of its gap
	// by part. They belong to one topic or stream: a collection that moves to another one begins a new incarnation.
	run, incarnation uint64
	base             map[int]int64
}

// scan searches backwards from the point for complete lists. Its result only decides where the replay begins
// to read. The replay finds out what was complete.
type scan struct {
	*Log
	point    Point
	ledger   *ledger
	asked    func(group, resource string) bool
	enough   func(*scan) bool
	tracks   map[string]*track
	scanEnd  []int64 // by part: the offset from which the scan reads backwards
	earliest time.Time
}

func (s *scan) run(ctx context.Context) error {
	parts := s.Parts()
	s.tracks, s.scanEnd = map[string]*track{}, make([]int64, len(parts))
	for i, p := range parts {
		s.scanEnd[i] = p.End
	}
	if s.point.isTime() {
		// The times of the bus are later than those of events that waited during an outage, and earlier
		// if clocks differ. The replay reads to the end and finds a list that is missed here.
		var err error
		if s.scanEnd, err = s.At(ctx, s.point.Time); err != nil {
			return err
		}
	}
	to := slices.Clone(s.scanEnd)
	for stretch := int64(firstStretch); ; stretch = min(2*stretch, lastStretch) {
		ranges := make([]sink.Range, len(parts))
		left := false
		for i, p := range parts {
			ranges[i] = sink.Range{From: max(p.First, to[i]-stretch), To: to[i]}
			left = left || ranges[i].From < ranges[i].To
			to[i] = min(to[i], ranges[i].From)
		}
		if !left {
			break
		}
		if err := s.stretch(ctx, ranges); err != nil {
			return err
		}
		for _, t := range s.tracks {
			t.findBase(s.Log)
		}
		if s.enough(s) {
			break
		}
	}
	// A resourceVersion without an epoch is ambiguous as soon as one later epoch was seen.
	newest, rv := slices.Max(append(slices.Collect(maps.Keys(s.newest)), 1)), s.point.RV
	if rv != 0 && s.point.Epoch == 0 && newest > 1 {
		return fmt.Errorf("the cluster has several epochs, and a resourceVersion needs one: write e%d:%d, or a time", newest, rv)
	}
	return nil
}

// stretch reads the collection events of ranges that precede those that were read before.
func (s *scan) stretch(ctx context.Context, ranges []sink.Range) error {
	found := map[string]map[int][]mark{}
	err := s.each(ctx, "looking for a complete list", ranges, true, func(m *sink.Message, h *head) error {
		s.earliest = first(s.earliest, h.Time)
		if !h.Type.OfCollection() || !s.asked(h.Group, h.Resource) {
			return nil
		}
		e, err := h.decode(m)
		if err != nil {
			return err
		}
		within, err := s.point.holds(h)
		if err != nil {
			return err
		}
		if within && (s.point.isTime() || h.at() != "") { // an event without a version may come from after the point
			s.ledger.take(e)
		}
		if found[e.Collection] == nil {
			found[e.Collection] = map[int][]mark{}
		}
		found[e.Collection][m.Part] = append(found[e.Collection][m.Part], mark{m.Offset, e, within})
		return nil
	})
	for id, parts := range found {
		t := s.tracks[id]
		if t == nil {
			t = &track{marks: map[int][]mark{}}
			s.tracks[id] = t
		}
		for part, marks := range parts {
			t.marks[part] = append(marks, t.marks[part]...)
		}
	}
	return err
}

// findBase finds the newest list that is complete in every part of its topic or stream.
func (t *track) findBase(l *Log) {
	if t.base != nil {
		return
	}
	found := map[uint64]map[int]int64{}
	for part, marks := range t.marks {
		for i, m := range marks {
			if !m.begins() || !ends(marks[i:]) {
				continue
			}
			run := m.event.Run
			if found[run] == nil {
				found[run] = map[int]int64{}
			}
			if _, twice := found[run][part]; !twice {
				found[run][part] = m.offset
			}
			if len(found[run]) == l.places[part].Partitions && run > t.run {
				t.run, t.incarnation, t.base = run, m.event.Incarnation, found[run]
			}
		}
	}
}

// begins reports whether a list that publishes every object begins here.
func (m mark) begins() bool {
	return m.event.Type == event.Gap && (m.event.Report.Reset || event.GapCause(m.event.Report.Reason).Resync)
}

// ends reports whether the list that begins with the first mark is complete at the point. A further gap ends a resync,
// which begins again. It does not end the list of a reset, which continues.
func ends(marks []mark) bool {
	first := marks[0].event
	for _, m := range marks[1:] {
		e := m.event
		switch {
		case e.Incarnation < first.Incarnation || e.Run < first.Run: // a repetition
		case e.Incarnation > first.Incarnation, e.Type == event.Closed:
			return false
		case e.Type == event.Synced:
			return m.within
		case e.Run > first.Run && !first.Report.Reset:
			return false
		}
	}
	return false
}

// from returns the offset at which the replay begins to read a part for a collection.
func (s *scan) from(t *track, part int) int64 {
	if at, ok := t.base[part]; ok {
		return at
	}
	for _, m := range slices.Backward(t.marks[part]) {
		if m.begins() && m.event.Run > t.run { // its synced event may follow after scanEnd
			return m.offset
		}
	}
	return s.scanEnd[part]
}
