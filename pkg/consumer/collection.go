package consumer

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

type collectionKey struct{ cluster, id string }

// collection is what the bus said of a collection, in each partition for itself.
type collection struct {
	places map[place]*progress
	topics map[string]int // partitions by topic
}

func (c *collection) partitions() (n int) {
	for _, of := range c.topics {
		n += of
	}
	return n
}

// progress is what a partition said of a collection.
type progress struct {
	gap    string // id of the gap that is open, or of the last one
	open   bool   // a gap is
	from   version
	synced bool      // it was, since the last drop
	at     version   // complete up to it, once synced
	time   time.Time // of the last synced, by the bridge's clock
	begun  bool      // everything has been told since reading began, or is being told
	resync string    // the run of one that has begun
	whole  bool      // begun, and synced
	closed string    // why, if it is
	ends   []telling // every closed: few
	once   map[string]struct{}
	heard  *heard
}

// telling is an event as it was told: one with the same id and the same time is a copy,
// which the bus delivers late or who reads went back to. The order of times says
// nothing: a bridge's clock may be set back, or the next one's be behind.
type telling struct {
	id   string
	time int64
}

func tellingOf(e *event.Received) telling { return telling{e.ID, e.Time.UnixNano()} }

// heardLast is how many tellings are remembered of a collection in a partition.
const heardLast = 256

// heard are the last tellings of a partition about a collection, by their hashes.
type heard struct {
	seed maphash.Seed
	last []uint64
	next int // of last, which is overwritten once it is full
}

// again reports whether e was heard before, and remembers it.
func (h *heard) again(e *event.Received) bool {
	sum := maphash.Comparable(h.seed, tellingOf(e))
	switch {
	case slices.Contains(h.last, sum):
		return true
	case len(h.last) < heardLast:
		h.last = append(h.last, sum)
	default:
		h.last[h.next] = sum
		h.next = (h.next + 1) % heardLast
	}
	return false
}

// drop is a gap that made the copy forget a collection: all of it is told again.
type drop struct {
	time time.Time
	run  string // in the ids of what is told again; "": none is known
}

// tells reports whether e is of the run that tells everything again.
func (d *drop) tells(e *event.Received) bool {
	return d.run != "" && strings.HasSuffix(e.ID, ":"+d.run)
}

// runOf is what stands behind the type in the id of a gap.
func runOf(e *event.Received) string {
	_, run, _ := strings.Cut(e.ID[strings.LastIndex(e.ID, ":gap")+1:], ":")
	return run
}

// tellCollection takes an event about a collection.
func (s *State) tellCollection(e *event.Received, m Message) (gone []*event.Received, news bool) {
	key, at := collectionKey{e.Cluster, e.Collection}, place{m.Topic, m.Partition}
	c := s.collections[key]
	if c == nil {
		c = &collection{places: map[place]*progress{}, topics: map[string]int{}}
		s.collections[key] = c
	}
	c.topics[m.Topic] = max(m.Partitions, 1)
	p := c.places[at]
	if p == nil {
		p = &progress{once: map[string]struct{}{}, heard: &heard{seed: maphash.MakeSeed()}}
		c.places[at] = p
	}
	if p.heard.again(e) {
		return nil, false
	}
	switch e.Type {
	case event.Gap:
		return s.opened(e, key, at, p)
	case event.Synced:
		return nil, p.inStep(e)
	default:
		return nil, p.ended(e)
	}
}

// saw reports whether what can be said once only was said before.
func (p *progress) saw(id string) bool {
	_, seen := p.once[id]
	p.once[id] = struct{}{}
	return seen
}

// opened takes a gap.
func (s *State) opened(e *event.Received, key collectionKey, at place, p *progress) (gone []*event.Received, news bool) {
	first := e.Report.Reason == "snapshot" && e.Report.From == ""
	// Of a collection that is configured again everything is told again. What only left the selection to other collections of the
	// resource is not.
	again := first && (p.closed == "removed" || p.closed == "gone")
	if e.Report.Reset || again {
		if p.saw(e.ID) {
			return nil, false
		}
		*p = progress{gap: e.ID, open: true, begun: true, once: p.once, ends: p.ends, heard: p.heard}
		return s.dropAll(e, key, at, &drop{time: e.Time, run: runOf(e)}), true
	}
	from := version{e.Epoch, e.ResourceVersion}
	switch {
	case p.closed != "" && (!first || p.saw(e.ID)), p.open && p.gap == e.ID:
		return nil, false
	case p.closed == "" && p.synced:
		if c := compare(from, p.at); c < 0 || c == 0 && p.gap == e.ID {
			return nil, false
		}
	}
	if p.closed != "" {
		*p = progress{once: p.once, ends: p.ends, heard: p.heard}
	}
	if first {
		p.saw(e.ID)
	}
	p.gap, p.open, p.from, p.begun = e.ID, true, from, p.begun || first
	if e.Report.Reason == "resync" {
		p.resync = runOf(e)
	}
	return nil, true
}

// inStep takes a synced.
func (p *progress) inStep(e *event.Received) (news bool) {
	at, reason := version{e.Epoch, e.ResourceVersion}, e.Report.Reason
	switch {
	case p.closed != "":
		return false
	case p.open && (compare(at, p.from) < 0 || reason == "periodic"): // said before the gap
		return false
	case p.synced && compare(at, p.at) < 0:
		return false
	}
	if reason == "resync" && p.resync != "" && strings.HasSuffix(e.ID, ":"+p.resync) {
		p.begun = true
	}
	p.open, p.synced, p.at, p.time = false, true, at, e.Time
	p.whole = p.begun
	return true
}

// ended takes a closed.
func (p *progress) ended(e *event.Received) (news bool) {
	if p.closed != "" || slices.Contains(p.ends, tellingOf(e)) {
		return false
	}
	p.closed, p.ends = e.Report.Reason, append(p.ends, tellingOf(e))
	return true
}

// dropAll makes the copy forget what came of a collection from a place. At a reset
// that includes what a changed selection had silently given it: objects last told
// of by a collection of the same resource that is no longer there.
func (s *State) dropAll(e *event.Received, key collectionKey, at place, d *drop) (gone []*event.Received) {
	dropped := event.ParseCollection(key.id)
	for _, k := range s.entries {
		if k.place != at || k.collection.cluster != key.cluster {
			continue
		}
		if k.collection != key {
			heir := e.Report.Reset && k.key.group == e.Group && k.key.resource == e.Resource &&
				(dropped.Namespace == "" || dropped.Namespace == k.name.Namespace)
			if !heir || !s.closedIn(k.collection, at) {
				continue
			}
		}
		k.drop = d
		if k.object != nil {
			gone = append(gone, s.remove(k))
		}
	}
	slices.SortFunc(gone, func(a, b *event.Received) int { return compareNames(NameOf(a), NameOf(b)) })
	return gone
}

func (s *State) closedIn(key collectionKey, at place) bool {
	c := s.collections[key]
	return c != nil && c.places[at] != nil && c.places[at].closed == "selection"
}
