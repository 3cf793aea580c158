package consumer

import (
	"cmp"
	"errors"
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
	ending     uint64          // the number of the last deletion
	object     *event.Received // nil: the collection does not hold an object of the name, or the state holds none
}

// ending is a deletion.
type ending struct {
	number uint64
	owner  *collection
	name   Name
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
	last := s.slotOf(c, name)
	if last == nil {
		last = &slot{owner: c, name: name, collection: e.Collection}
	} else if !last.follows(e) {
		return false
	}
	c.slots[name] = last
	s.unsaved.slot(last)
	before := s.shown(name)
	s.release(last)
	last.run, last.version, last.deleted = e.Run, e.ResourceVersion, e.Type == event.Deleted
	switch {
	case last.deleted:
		s.forget(last)
	case s.Lookup == nil:
		kept := *e
		kept.Data, kept.Before, kept.Patch = nil, nil, nil
		last.object = &kept
		s.names[name] = append(s.names[name], last)
	}
	change.compare(before, s.shown(name))
	return true
}

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

// slotOf returns the slot of a name; nil if there is none.
func (s *State) slotOf(c *collection, name Name) *slot {
	l := c.slots[name]
	if l != nil || s.Lookup == nil || s.unsaved.drops[c.key] {
		return l
	}
	l, err := s.lookUp(c, name)
	s.failed = errors.Join(s.failed, err)
	return l
}

// forget keeps the slot of a deleted object for a while, and removes the slots of objects that were deleted long before.
func (s *State) forget(l *slot) {
	s.endings++
	l.ending = s.endings
	s.ended = append(s.ended, ending{l.ending, l.owner, l.name})
	s.unsaved.ended(l.ending)
	limit := s.Remember
	if limit <= 0 {
		limit = defaultRemember
	}
	for len(s.ended) > limit {
		oldest := s.ended[0]
		s.ended = s.ended[1:]
		s.unsaved.ended(oldest.number)
		if c := oldest.owner; s.collections[c.key] == c {
			if now := s.slotOf(c, oldest.name); now != nil && now.deleted && now.ending == oldest.number {
				delete(c.slots, oldest.name)
				s.unsaved.slot(now)
			}
		}
	}
}
