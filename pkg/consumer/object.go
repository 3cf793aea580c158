package consumer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// place is where order holds.
type place struct {
	topic     string
	partition int
}

// slot is what a collection last said of a name.
type slot struct {
	owner      *collection
	name       Name
	collection string // the ID of owner
	run        uint64
	version    string
	deleted    bool
	object     *event.Received // nil: the collection does not hold an object of the name
}

// follows reports whether an event comes after what was said last. A deletion comes behind the
// publication that it ends, whose run and version it has.
func (l *slot) follows(e *event.Received) bool {
	switch {
	case l.run != e.Run:
		return l.run < e.Run
	case l.version != e.ResourceVersion:
		return event.Newer(e.ResourceVersion, l.version)
	}
	return !l.deleted && e.Type == event.Deleted
}

// applyObject takes an event about an object, and reports whether it changed anything.
func (s *State) applyObject(c *collection, e *event.Received, m *Message, change *Change) bool {
	p := c.at(m)
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
	before := s.shown(name)
	s.release(last)
	last.run, last.version, last.deleted = e.Run, e.ResourceVersion, e.Type == event.Deleted
	if last.deleted {
		s.forget(last)
	} else {
		kept := *e
		kept.Data = nil
		last.object = &kept
		s.names[name] = append(s.names[name], last)
	}
	change.compare(before, s.shown(name))
	return true
}

// release takes the object out of a slot.
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

// drop takes all objects out of a collection's copy, and forgets their order.
func (s *State) drop(c *collection, change *Change) {
	names := make([]Name, 0, len(c.slots))
	for name := range c.slots {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	for _, name := range names {
		before := s.shown(name)
		s.release(c.slots[name])
		change.compare(before, s.shown(name))
	}
	c.slots, c.progress = map[Name]*slot{}, map[place]*progress{}
}

// compare adds how the shown objects of a name differ. What one step shows, a later step of the
// same change may remove.
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

// shown are the objects of a name: of each uid the state with the highest version, at a tie that
// of the first collection.
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

// compareVersion orders resourceVersions of one resource. Those of one epoch that are not both
// numbers are equal: they cannot be compared.
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

// forget remembers the ends of the last objects, and forgets those before.
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
		}
	}
}
