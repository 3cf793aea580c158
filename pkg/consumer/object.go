package consumer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// place is a partition of a topic. Messages are in order within a place.
type place struct {
	topic     string
	partition int
}

// slot is the last event of a collection about a name.
type slot struct {
	owner      *collection
	name       Name
	collection string // the owner's ID
	run        uint64
	version    string
	deleted    bool
	object     *event.Received // nil: the collection does not hold an object of the name
}

// follows reports whether an event is later than the slot's. A deletion has the run and version of the
// publication that it ends, and follows that.
func (l *slot) follows(e *event.Received) bool {
	switch {
	case l.run != e.Run:
		return l.run < e.Run
	case l.version != e.ResourceVersion:
		return event.Newer(e.ResourceVersion, l.version)
	}
	return !l.deleted && e.Type == event.Deleted
}

// applyObject applies an event about an object, and reports whether it changed anything.
func (s *State) applyObject(c *collection, e *event.Received, m *Message, change *Change) bool {
	p := c.progressOf(m)
	if p.phase == Unread {
		p.phase = Partial
	}
	p.reached(e.Run)
	c.run = max(c.run, e.Run)
	name := NameOf(e)
	last := c.slots[name]
	if last == nil {
		last = &slot{owner: c, name: name, collection: e.Collection}
		c.slots[name] = last
	} else if !last.follows(e) {
		return false
	}
	s.unsaved.slot(last)
	before := s.shown(name)
	s.release(last)
	last.run, last.version, last.deleted = e.Run, e.ResourceVersion, e.Type == event.Deleted
	if last.deleted {
		s.forget(last)
	} else {
		kept := *e
		kept.Data = nil
		if s.Bodiless {
			kept.Object, kept.Before, kept.Patch, kept.ChangedBy = nil, nil, nil, nil
		}
		last.object = &kept
		s.names[name] = append(s.names[name], last)
	}
	change.compare(before, s.shown(name))
	return true
}

// release removes the object from a slot.
func (s *State) release(l *slot) {
	if l.object == nil {
		return
	}
	l.object = nil
	rest := slices.DeleteFunc(s.names[l.name], func(x *slot) bool { return x == l })
	if s.names[l.name] = rest; len(rest) == 0 {
		delete(s.names, l.name)
	}
}

// drop removes all objects and slots of a collection's copy.
func (s *State) drop(c *collection, change *Change) {
	names := make([]Name, 0, len(c.slots))
	for name := range c.slots {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	s.unsaved.dropped(c)
	change.Dropped = append(change.Dropped, c.key.id)
	for _, name := range names {
		before := s.shown(name)
		s.release(c.slots[name])
		change.compare(before, s.shown(name))
	}
	c.slots, c.progress = map[Name]*slot{}, map[place]*progress{}
}

// compare adds the difference between the objects of a name that were shown before and after a step. An object that
// one step shows may be removed by a later step of the same change.
func (c *Change) compare(before, after []*event.Received) {
	for _, e := range before {
		if slices.Contains(after, e) {
			continue
		}
		if i := slices.Index(c.Shown, e); i >= 0 {
			c.Shown = slices.Delete(c.Shown, i, i+1)
		} else {
			c.Gone = append(c.Gone, e)
		}
	}
	for _, e := range after {
		if !slices.Contains(before, e) {
			c.Shown = append(c.Shown, e)
		}
	}
}

// shown returns the objects of a name, one for each UID: the state with the highest version; if several collections
// have that version, the first collection's.
func (s *State) shown(n Name) []*event.Received {
	var list []*event.Received
	for _, l := range s.names[n] {
		i := slices.IndexFunc(list, func(e *event.Received) bool { return e.UID == l.object.UID })
		switch {
		case i < 0:
			list = append(list, l.object)
		case cmp.Or(compareVersions(l.object, list[i]), strings.Compare(list[i].Collection, l.collection)) > 0:
			list[i] = l.object
		}
	}
	slices.SortFunc(list, func(a, b *event.Received) int { return strings.Compare(a.UID, b.UID) })
	return list
}

func compareVersions(a, b *event.Received) int {
	return compareVersion(a.Epoch, a.ResourceVersion, b.Epoch, b.ResourceVersion)
}

// compareVersion orders resourceVersions of one resource. It returns 0 for two of one epoch that are not both
// numbers, because they cannot be compared.
func compareVersion(epochA uint64, a string, epochB uint64, b string) int {
	switch {
	case epochA != epochB:
		return cmp.Compare(epochA, epochB)
	case event.Older(a, b):
		return -1
	case event.Older(b, a):
		return 1
	}
	return 0
}

// forget keeps the slot of a deleted object for a while, and removes the slots of objects that were deleted long before.
func (s *State) forget(l *slot) {
	s.ended = append(s.ended, l)
	limit := s.Remember
	if limit <= 0 {
		limit = defaultRemember
	}
	for len(s.ended) > limit {
		oldest := s.ended[0]
		s.ended = s.ended[1:]
		if oldest.deleted && oldest.owner.slots[oldest.name] == oldest {
			delete(oldest.owner.slots, oldest.name)
			s.unsaved.slot(oldest)
		}
	}
}
