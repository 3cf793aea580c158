package check

import (
	"strconv"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// Copy is a consumer's copy by the rules of docs/events.md. The zero value is an empty copy. It shares no code with the
// bridge or with pkg/consumer.
type Copy struct {
	birth       uint64
	collections map[string]*collection
}

// collection is the copy of one incarnation of a collection.
type collection struct {
	incarnation uint64
	closed      bool
	names       map[string]slot
}

// slot has the last event about a name, which may be a deletion.
type slot struct {
	run     uint64
	version string
	held    *bus.Message // nil: the last event was a deletion
}

// Apply applies an event. It returns false if the rules ignore the event. Events of a partition must be applied in their order.
func (c *Copy) Apply(m *bus.Message) bool {
	if m.OfAudit() {
		return false
	}
	if c.collections == nil {
		c.collections = map[string]*collection{}
	}
	if birth := m.Number("birth"); birth > c.birth {
		c.birth = birth
		for id, one := range c.collections {
			if one.incarnation < birth {
				delete(c.collections, id)
			}
		}
	}
	one := c.collections[m.Collection()]
	switch incarnation := m.Incarnation(); {
	case incarnation < c.birth:
		return false
	case one == nil, incarnation > one.incarnation:
		one = &collection{incarnation: incarnation, names: map[string]slot{}}
		c.collections[m.Collection()] = one
	case incarnation < one.incarnation, one.closed:
		return false
	}
	if m.OfCollection() {
		if m.Is("closed") {
			one.closed, one.names = true, map[string]slot{}
		}
		return true
	}
	last, known := one.names[m.Name()]
	if known && !last.before(m) {
		return false
	}
	next := slot{run: m.Run(), version: m.RV()}
	if !m.Is("deleted") {
		next.held = m
	}
	one.names[m.Name()] = next
	return true
}

// before reports whether an event is greater than the last one of its name.
func (s slot) before(m *bus.Message) bool {
	if run := m.Run(); run != s.run {
		return run > s.run
	}
	if m.RV() == s.version {
		return m.Is("deleted") && s.held != nil
	}
	was, err1 := strconv.ParseUint(s.version, 10, 64)
	is, err2 := strconv.ParseUint(m.RV(), 10, 64)
	return err1 != nil || err2 != nil || is > was
}

// Held returns the objects that a collection holds, by UID.
func (c *Copy) Held(id string) map[string]*bus.Message {
	held := map[string]*bus.Message{}
	if one := c.collections[id]; one != nil {
		for _, s := range one.names {
			if s.held != nil {
				held[s.held.UID()] = s.held
			}
		}
	}
	return held
}

// Open returns the collections that are not closed.
func (c *Copy) Open() map[string]bool {
	open := map[string]bool{}
	for id, one := range c.collections {
		if !one.closed {
			open[id] = true
		}
	}
	return open
}

// Union returns the objects of a resource that at least one collection holds, by UID, each in the newest state that a collection holds.
func (c *Copy) Union(resource string) map[string]*bus.Message {
	union, of := map[string]*bus.Message{}, map[string]string{}
	for id := range c.collections {
		for uid, m := range c.Held(id) {
			if m.Resource() != resource {
				continue
			}
			if shown := union[uid]; shown == nil || newer(m, shown) || !newer(shown, m) && id < of[uid] {
				union[uid], of[uid] = m, id
			}
		}
	}
	return union
}

// newer compares states of one object in different collections.
func newer(a, b *bus.Message) bool {
	if a.Epoch() != b.Epoch() {
		return a.Epoch() > b.Epoch()
	}
	return a.Number("resourceversion") > b.Number("resourceversion")
}
