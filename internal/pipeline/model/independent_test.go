package model

import (
	"flag"
	"maps"
	"slices"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// This file holds what the contract of docs/adr/0017 decides, which the program does not use yet.

var independent = flag.Bool("model.independent", false, "run and judge the core that the program does not use yet: docs/adr/0017")

// independentID names a selection in events.
func independentID(s selection) string {
	c := event.Collection{Group: group, Resource: resource, Namespace: s.namespace, Entry: s.entry.name, ByEntry: true}
	return c.ID()
}

// order is what a consumer remembers of a name in a collection: the last event.
type order struct {
	run     uint64
	version int
	deleted bool
}

// after reports whether o is greater than the other one.
func (o order) after(other order) bool {
	switch {
	case o.run != other.run:
		return o.run > other.run
	case o.version != other.version:
		return o.version > other.version
	}
	return o.deleted && !other.deleted
}

// part is what a consumer has of one collection.
type part struct {
	incarnation, run uint64
	closed           bool
	names            map[string]order
	objects          map[string]held // by uid
}

// independentCopy is what a consumer of independent collections has of one sink.
type independentCopy struct {
	parts map[string]*part // by collection
	birth uint64
}

func newIndependentCopy() *independentCopy { return &independentCopy{parts: map[string]*part{}} }

// apply takes a message, from whatever partition.
func (c *independentCopy) apply(m *message, partition int) {
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
		p.objects[m.UID] = held{m.Collection, version{m.Epoch, m.At}, partition, name}
	}
}

// of returns what consumers have of an object by a collection.
func (c *independentCopy) of(collection, uid string) (held, bool) {
	p := c.parts[collection]
	if p == nil {
		return held{}, false
	}
	h, ok := p.objects[uid]
	return h, ok
}

// all returns the union, by uid, as of the highest version.
func (c *independentCopy) all() map[string]held {
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

// compactionClass is the part of a collection event's key that tells kinds of events apart.
func compactionClass(m *message) string {
	if *independent && (m.short() == "closed" || m.short() == "gap" && m.Data.Reset) {
		return "reset"
	}
	return m.short()
}
