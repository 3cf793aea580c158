package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// remembered is how many deleted objects are remembered, so that a copy of an old event
// that comes late (deliveries that are at least once) does not bring one back.
const remembered = 1 << 16

// objectKey names an object for ever, in a cluster.
type objectKey struct{ resource, uid string }

// version is a resourceVersion in one of the cluster's histories.
type version struct {
	epoch uint64
	rv    string
}

func (v version) compare(w version) int {
	if v.epoch != w.epoch || v.rv == w.rv {
		return cmp.Compare(v.epoch, w.epoch)
	}
	a, errA := strconv.ParseUint(v.rv, 10, 64)
	b, errB := strconv.ParseUint(w.rv, 10, 64)
	if errA != nil || errB != nil {
		return 1
	}
	return cmp.Compare(a, b)
}

// entry is an object, also after its end.
type entry struct {
	collection string
	part       int
	offset     int64 // of the last event
	seen       version
	ids        []string // told at that version
	ends       []string // ids of its deletions
	exists     bool
	headers    []sink.Header // kept where the value is not the whole event
	value      []byte
}

// follow is what a replay knows of a collection in one part.
type follow struct {
	base  base
	begun bool                // the base's gap was read
	ended bool                // and its synced
	live  map[string]struct{} // uids told since the gap, while it is being verified
	late  bool                // the list told what is newer than the point
	// reset is where one began that was not taken as the base, -1 for none: what it does
	// not tell again is gone.
	reset    int64
	past     bool   // something behind the point was seen
	wasIn    bool   // an event is of the point's epoch
	syncedIn uint64 // the epoch of the last synced within the point
	open     *event.Received
	closed   *event.Received
	word     time.Time // of the last event within the point
	nextWord time.Time // of the first behind it
}

// replay is the state of based collections, read forward from their bases.
type replay struct {
	*log
	point   Point
	keep    func(h *head) bool // whether the object is asked for
	follows map[string]map[int]*follow
	counted map[string]int
	objects map[objectKey]*entry
	ended   []objectKey
	pending map[int]int // collections of a part that have not passed the point
}

func newReplay(l *log, point Point, tracks []*track, keep func(*head) bool) *replay {
	r := &replay{
		log: l, point: point, keep: keep, follows: map[string]map[int]*follow{},
		counted: map[string]int{}, objects: map[objectKey]*entry{}, pending: map[int]int{},
	}
	for _, t := range tracks {
		r.follows[t.id] = map[int]*follow{}
		for part, b := range t.base {
			r.follows[t.id][part] = &follow{base: b, live: map[string]struct{}{}, reset: -1}
			r.pending[part]++
		}
	}
	return r
}

func (r *replay) run(ctx context.Context) error {
	parts := r.Parts()
	ranges := make([]sink.Range, len(parts))
	for i, p := range parts {
		ranges[i] = sink.Range{From: p.End, To: p.End}
	}
	for _, of := range r.follows {
		for part, f := range of {
			ranges[part].From = min(ranges[part].From, f.base.from)
		}
	}
	r.begin("reading", ranges)
	err := r.each(ctx, ranges, false, func(m *sink.Message, h *head) error {
		f := r.follows[h.collection][m.Part]
		if f == nil || m.Offset < f.base.from {
			return nil
		}
		if err := r.take(m, h, f); err != nil {
			return fmt.Errorf("message %d of %s: %w", m.Offset, parts[m.Part].Name, err)
		}
		if r.pending[m.Part] == 0 {
			return sink.ErrEnough
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, of := range r.follows {
		for part, f := range of {
			if !f.begun || !f.ended {
				return fmt.Errorf("read %s of %s: retention has removed what was about to be read: try again", id, parts[part].Name)
			}
		}
	}
	return nil
}

func (r *replay) take(m *sink.Message, h *head, f *follow) error {
	f.begun = f.begun || m.Offset == f.base.from
	f.wasIn = f.wasIn || r.point.Epoch != 0 && h.epoch == r.point.Epoch
	within, err := r.point.holds(h)
	if err != nil {
		return err
	}
	if f.past && r.point.isTime() {
		within = false // a clock that was set back comes to the same time again
	}
	if !within && m.Offset > f.base.to && !f.past && r.passes(h, f) {
		f.past = true
		r.pending[m.Part]--
	}
	if !within && (f.nextWord.IsZero() || h.time.Before(f.nextWord)) {
		f.nextWord = h.time
	}
	if within && f.word.Before(h.time) {
		f.word = h.time
	}
	if h.typ.OfCollection() {
		return r.takeCollection(m, h, f, within)
	}
	if f.live != nil {
		if h.typ == event.Deleted {
			delete(f.live, h.uid)
		} else {
			f.live[h.uid] = struct{}{}
		}
		f.late = f.late || !within
	}
	if within && r.keep(h) {
		r.object(m, h)
	}
	return nil
}

// passes reports whether nothing that comes after h of its collection is within the
// point. A list does not tell in the order of resourceVersions, a watch does.
func (r *replay) passes(h *head, f *follow) bool {
	return r.point.isTime() || h.typ == event.Synced || f.open == nil && h.origin == event.Watch && !h.typ.OfCollection()
}

func (r *replay) takeCollection(m *sink.Message, h *head, f *follow, within bool) error {
	if m.Offset == f.base.to {
		r.counted[h.collection] += len(f.live)
		f.live, f.ended = nil, true
	}
	if !within {
		return nil
	}
	e, err := decode(m.Headers, m.Value)
	if err != nil {
		return err
	}
	switch e.Type {
	case event.Gap:
		f.open, f.closed = e, nil
		if e.Report.Reset && m.Offset > f.base.from {
			f.reset = m.Offset
		}
	case event.Synced:
		if e.Report.Reason != "periodic" {
			r.endReset(h.collection, m.Part, f)
		}
		f.open, f.syncedIn = nil, h.epoch
	case event.Closed:
		r.endReset(h.collection, m.Part, f)
		f.open, f.closed = nil, e
	}
	return nil
}

// endReset drops what a reset that is through, or will not be, did not tell anew.
func (r *replay) endReset(collection string, part int, f *follow) {
	if f.reset >= 0 {
		r.drop(collection, part, f.reset)
		f.reset = -1
	}
}

// drop removes what was not told since a reset.
func (r *replay) drop(collection string, part int, since int64) {
	for _, e := range r.objects {
		if e.collection == collection && e.part == part && e.offset < since {
			e.exists, e.value, e.headers = false, nil, nil
		}
	}
}

// object takes an event of an object, by the consumer's rule of docs/events.md.
func (r *replay) object(m *sink.Message, h *head) {
	key := objectKey{h.resourceID(), h.uid}
	at := version{h.epoch, h.rv}
	e := r.objects[key]
	if e == nil {
		e = &entry{seen: at}
		r.objects[key] = e
	} else if e.isOld(h, at) {
		return
	}
	e.collection, e.part, e.offset = h.collection, m.Part, m.Offset
	if h.typ == event.Deleted {
		e.exists, e.value, e.headers = false, nil, nil
		e.ends = append(e.ends, h.id)
		r.forget(key)
		return
	}
	if at != e.seen {
		e.seen, e.ids = at, nil
	}
	e.ids = append(e.ids, h.id)
	e.exists, e.headers, e.value = true, nil, bytes.Clone(m.Value) // the reader's memory is larger
	if !h.structured {
		for _, x := range m.Headers {
			e.headers = append(e.headers, sink.Header{Name: x.Name, Value: bytes.Clone(x.Value)})
		}
	}
}

func (e *entry) isOld(h *head, at version) bool {
	if h.typ == event.Deleted {
		return !e.exists && slices.Contains(e.ends, h.id)
	}
	return slices.Contains(e.ids, h.id) || at.compare(e.seen) < 0
}

// forget bounds the memory of what no longer exists.
func (r *replay) forget(key objectKey) {
	r.ended = append(r.ended, key)
	if len(r.ended) <= remembered {
		return
	}
	if e := r.objects[r.ended[0]]; e != nil && !e.exists {
		delete(r.objects, r.ended[0])
	}
	r.ended = r.ended[1:]
}
