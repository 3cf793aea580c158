package consumer

import (
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Phase says how far a partition was read for one incarnation of a collection. The phase of the
// collection is the lowest phase of its partitions.
//
// The table has the transitions. A gap changes nothing if an event of its run or of a higher run was read before in the
// partition. A synced event changes nothing if its run is lower, or if the run is the same and its number is not higher. A new
// incarnation begins with Unread in every partition.
//
//	phase      gap, reset  gap, resync   other gap  synced    object event  closed, in any partition
//	Unread     → Open      → Resyncing   → Partial  → Partial  → Partial    → Closed
//	Partial    –           → Resyncing   –          –          –            → Closed
//	Resyncing  –           –             → Partial  → InStep   –            → Closed
//	Open       –           –             –          → InStep   –            → Closed
//	InStep     –           –             → Open     –          –            → Closed
//	Closed     –           –             –          –          –            –
type Phase uint8

// The phases of a collection.
const (
	// Unread: no event of the incarnation was read.
	Unread Phase = iota
	// Partial: the incarnation's reset was not read, so objects that have not changed since may be
	// missing. A resync completes the copy.
	Partial
	// Resyncing: a resync has begun, and the copy was partial before.
	Resyncing
	// Open: a gap is open.
	Open
	// InStep: the copy is complete as of the last synced event.
	InStep
	// Closed: the bridge has closed the collection, and the copy has no objects of it.
	Closed
)

func (p Phase) String() string {
	return [...]string{"unread", "partial", "resyncing", "open", "in step", "closed"}[p]
}

// afterGap returns the phase after a gap of a new run.
func (p Phase) afterGap(reset, resync bool) Phase {
	switch {
	case p == Unread && reset:
		return Open
	case resync && (p == Unread || p == Partial):
		return Resyncing
	case resync:
		return p
	case p == Unread, p == Resyncing:
		return Partial
	case p == InStep:
		return Open
	}
	return p
}

// afterSynced returns the phase after a synced event.
func (p Phase) afterSynced() Phase {
	switch p {
	case Unread:
		return Partial
	case Resyncing, Open:
		return InStep
	}
	return p
}

type (
	collectionKey struct{ cluster, id string }
	resourceKey   struct{ cluster, resource string }
)

// plan is the newest plan of a resource.
type plan struct {
	birth, number uint64
	digest        string
}

// collection is the copy of one incarnation of a collection.
type collection struct {
	key         collectionKey
	resource    resourceKey
	incarnation uint64
	closed      bool
	run         uint64 // the highest run that was read
	reason      event.Reason
	slots       map[Name]*slot
	progress    map[place]*progress
	topics      map[string]int // number of partitions by topic
}

func newCollection(key collectionKey, resource resourceKey, incarnation uint64) *collection {
	return &collection{
		key: key, resource: resource, incarnation: incarnation,
		slots: map[Name]*slot{}, progress: map[place]*progress{}, topics: map[string]int{},
	}
}

// progress says how far a partition was read for a collection.
type progress struct {
	phase Phase
	run   uint64 // the highest run that was read
	syncs uint64 // the number of the last synced event of that run
	synced
}

// synced has the position and the edit of the last synced event: the collection was complete there, with the properties of that edit.
type synced struct {
	asOf AsOf
	edit uint64
}

// takePlan applies the plan and the birth of an event.
func (s *State) takePlan(e *event.Received, change *Change) {
	birth, key := s.births[e.Cluster], resourceKey{e.Cluster, resourceOf(e)}
	if e.Plan.Birth < birth {
		return
	}
	if p := s.plans[key]; e.Plan.Birth > p.birth || e.Plan.Number > p.number {
		s.plans[key] = plan{e.Plan.Birth, e.Plan.Number, e.Plan.Digest}
		if s.unsaved != nil {
			s.unsaved.plans[key] = true
		}
	}
	if e.Plan.Birth == birth {
		return
	}
	s.births[e.Cluster] = e.Plan.Birth
	if s.unsaved != nil {
		s.unsaved.births[e.Cluster] = true
	}
	for key, c := range s.collections {
		if key.cluster == e.Cluster && c.incarnation < e.Plan.Birth {
			s.drop(c, change)
			delete(s.collections, key)
		}
	}
}

// collectionOf returns the copy that an event belongs to; nil if the event's incarnation has ended.
func (s *State) collectionOf(e *event.Received, change *Change) *collection {
	key := collectionKey{e.Cluster, e.Collection}
	c := s.collections[key]
	switch {
	case e.Incarnation < s.births[e.Cluster]:
		return nil
	case c == nil:
	case e.Incarnation < c.incarnation, e.Incarnation == c.incarnation && c.closed:
		return nil
	case e.Incarnation == c.incarnation:
		return c
	default:
		s.drop(c, change)
	}
	c = newCollection(key, resourceKey{e.Cluster, resourceOf(e)}, e.Incarnation)
	s.collections[key] = c
	return c
}

// progressOf returns how far the partition of a message has been read.
func (c *collection) progressOf(m *Message) *progress {
	c.topics[m.Topic] = max(c.topics[m.Topic], m.Partitions, 1)
	p := c.progress[m.place()]
	if p == nil {
		p = &progress{}
		c.progress[m.place()] = p
	}
	return p
}

// applyCollection applies an event about a collection, and reports whether it changed anything.
func (s *State) applyCollection(c *collection, e *event.Received, m *Message, change *Change) bool {
	p := c.progressOf(m)
	switch {
	case e.Type == event.Closed:
		s.drop(c, change)
		c.closed, c.run, c.reason = true, max(c.run, e.Run), e.Report.Reason
		return true
	case e.Type == event.Gap && e.Run > p.run:
		p.phase = p.phase.afterGap(e.Report.Reset, event.GapCause(e.Report.Reason).Resync)
		p.reached(e.Run)
	case e.Type == event.Synced && (e.Run > p.run || e.Run == p.run && syncedNumber(e.ID) > p.syncs):
		p.reached(e.Run)
		p.phase, p.syncs = p.phase.afterSynced(), syncedNumber(e.ID)
		p.synced = synced{AsOf{e.Epoch, e.ResourceVersion, e.Time}, e.Plan.Edit}
	default:
		return false
	}
	if c.run <= e.Run {
		c.run, c.reason = e.Run, e.Report.Reason
	}
	return true
}

// syncedNumber returns the number of a synced event within its run, which is part of its id; 0 if the id has none.
func syncedNumber(id string) uint64 {
	id = strings.TrimSuffix(id, ":synced")
	n, _ := strconv.ParseUint(id[strings.LastIndexByte(id, ':')+1:], 10, 64)
	return n
}

// reached raises the highest run that was read.
func (p *progress) reached(run uint64) {
	if run > p.run {
		p.run, p.syncs = run, 0
	}
}

func (s *State) phase(c *collection) Phase {
	if c.closed {
		return Closed
	}
	lowest, partitions := InStep, 0
	for _, n := range c.topics {
		partitions += n
	}
	if len(c.progress) < partitions {
		return Unread
	}
	for _, p := range c.progress {
		lowest = min(lowest, p.phase)
	}
	return lowest
}

// inStep returns the lowest of the last synced events of the collection's partitions.
// ok reports whether the collection is in step: every partition was read to a synced event of
// the same run and edit and, on a compacted topic, to its end.
func (s *State) inStep(c *collection) (least synced, ok bool) {
	ok = s.phase(c) == InStep
	for at, p := range c.progress {
		least.asOf.lowerTo(p.asOf)
		if p.run != c.run || least.edit != 0 && least.edit != p.edit || s.Compacted && !s.atEnd[at] {
			ok = false
		}
		least.edit = p.edit
	}
	return least, ok
}
