package model

import (
	"maps"
	"slices"
)

// order is the last event of a name in a collection, as a consumer remembers it.
type order struct {
	run     uint64
	version int
	deleted bool
}

// after reports whether o is later than the other order.
func (o order) after(other order) bool {
	switch {
	case o.run != other.run:
		return o.run > other.run
	case o.version != other.version:
		return o.version > other.version
	}
	return o.deleted && !other.deleted
}

// part is a consumer's copy of one collection.
type part struct {
	incarnation, run uint64
	closed           bool
	names            map[string]order
	objects          map[string]held // by uid
}

// consumerCopy is the copy of a consumer of one sink: docs/events.md, "The consumer's rule".
type consumerCopy struct {
	parts map[string]*part // by collection
	birth uint64
}

func newCopy() *consumerCopy { return &consumerCopy{parts: map[string]*part{}} }

// apply applies a message from any partition.
func (c *consumerCopy) apply(m *message, partition int) {
	if m.DeadLetter {
		return
	}
	if m.Birth > c.birth {
		c.birth = m.Birth
		maps.DeleteFunc(c.parts, func(_ string, p *part) bool { return p.incarnation < c.birth })
	}
	p := c.parts[m.Collection]
	if m.Incarnation < c.birth || p != nil && (m.Incarnation < p.incarnation || m.Incarnation == p.incarnation && p.closed) {
		return
	}
	if p == nil || m.Incarnation > p.incarnation {
		p = &part{incarnation: m.Incarnation, names: map[string]order{}, objects: map[string]held{}}
		c.parts[m.Collection] = p
	}
	if m.ofCollection() {
		if p.run = max(p.run, m.Run); m.short() == "closed" {
			p.closed = true
			clear(p.objects)
		}
		return
	}
	name := m.Namespace + "/" + m.Name
	next := order{m.Run, m.At, m.short() == "deleted"}
	if last, known := p.names[name]; known && !next.after(last) {
		return
	}
	p.names[name] = next
	for uid, h := range p.objects {
		if h.name == name {
			delete(p.objects, uid)
		}
	}
	if !next.deleted {
		p.objects[m.UID] = held{m.Collection, version{m.Epoch, m.At}, partition, name, m.body()}
	}
}

// of returns the copy of an object that consumers have from a collection.
func (c *consumerCopy) of(collection, uid string) (held, bool) {
	p := c.parts[collection]
	if p == nil {
		return held{}, false
	}
	h, ok := p.objects[uid]
	return h, ok
}

// all returns the union of all collections by uid, each object with its highest version.
func (c *consumerCopy) all() map[string]held {
	union := map[string]held{}
	for _, id := range slices.Sorted(maps.Keys(c.parts)) {
		for uid, h := range c.parts[id].objects {
			if other, there := union[uid]; !there || other.at.less(h.at) {
				union[uid] = h
			}
		}
	}
	return union
}

// compactionClass returns the part of a collection event's key that distinguishes kinds of events.
func compactionClass(m *message) string {
	if m.short() == "closed" || m.short() == "gap" && m.Data.Reset {
		return "reset"
	}
	return m.short()
}

// rollback is the effect of a restore on the collections of one sink. A collection that has seen more than the restore
// left notices the restore, unless as many writes follow before it asks the server.
type rollback struct {
	seen      map[string]int // the undone resourceVersions that collections had seen, until they notice the restore
	overtaken map[string]bool
}

// restored records a restore, with the highest resourceVersion that it left.
func (j *judge) restored(left int) {
	j.rollback = rollback{seen: map[string]int{}, overtaken: j.rollback.overtaken}
	newest := j.newestOf()
	for _, id := range j.reading() {
		rv, state := newest[id], j.of[id]
		if state == nil || !state.synced || j.unpublished(id, rv) { // the collection may have seen more than was published
			rv = left + 1
		}
		j.rollback.seen[id] = max(rv, left+1) // a bookmark may have moved the position
	}
	j.rolledBack, j.asked, j.stored = maps.Clone(j.rollback.seen), false, false
}

// reading returns the collections that may have read the cluster: those on the bus, and those of the configuration in
// effect, whose first messages may wait for the bus.
func (j *judge) reading() []string {
	ids := sortedKeys(j.of)
	for _, e := range j.now() {
		for _, s := range e.possible() {
			if id := collectionID(s); !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// unpublished reports whether a collection selects a state that is later than a resourceVersion in the previous
// history.
func (j *judge) unpublished(id string, rv int) bool {
	before := j.w.cluster.histories[max(0, j.w.cluster.lastHistory()-1)]
	return slices.ContainsFunc(before.changes, func(c change) bool {
		return c.rv > rv && slices.ContainsFunc(j.selections(id, 0), func(s selection) bool { return s.selects(c.before) || s.selects(c.after) })
	})
}

// forgets is called at the end of a process. It makes a restore count as not noticed if no message on the bus says
// that it was noticed, and if the checkpoint need not have it either.
func (j *judge) forgets() {
	if j.stored {
		clear(j.rolledBack)
	}
	noticed := j.noticed(j.w.step)
	maps.DeleteFunc(j.rolledBack, func(id string, _ int) bool { return noticed[id] })
	j.rollback.seen, j.asked = maps.Clone(j.rolledBack), false
}

// noticed returns the collections whose messages up to a step show that they noticed the last restore.
func (j *judge) noticed(upTo int) map[string]bool {
	ids := map[string]bool{}
	for _, m := range j.s.bus.messages {
		if m.Step > j.w.restored && m.Step <= upTo && m.Data.Reason == "history" {
			ids[m.Collection] = true
		}
	}
	return ids
}

// follow records which collections notice a restore.
func (j *judge) follow(now int) {
	for id, rv := range j.rollback.seen {
		switch {
		case j.asked:
			delete(j.rollback.seen, id)
		case now >= rv:
			if j.rollback.overtaken == nil {
				j.rollback.overtaken = map[string]bool{}
			}
			j.rollback.overtaken[id] = true
			delete(j.rollback.seen, id)
		}
	}
}

// newestOf returns, for each collection, the newest published resourceVersion of the present history.
func (j *judge) newestOf() map[string]int {
	newest := map[string]int{}
	for _, m := range j.s.bus.messages {
		if m.Step > j.w.restored && m.short() != "gap" { // the resourceVersion of a gap may be of the previous history
			newest[m.Collection] = max(newest[m.Collection], m.Version)
		}
	}
	return newest
}
