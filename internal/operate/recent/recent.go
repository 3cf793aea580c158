// Package recent keeps the last published changes of every collection, for the status
// page.
package recent

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// What is kept at most. 500 collections of 50 changes without diffs are some 20 MB:
// the bytes of all are what bounds a large bridge.
const (
	perCollection   = 50        // changes
	changeBytes     = 64 << 10  // of what a change's diff is made from
	collectionBytes = 256 << 10 // of a collection's changes
	totalBytes      = 8 << 20   // of all collections' changes
	// overheadBytes is what a change takes beside its texts and bodies, roughly.
	overheadBytes = 512
	// userBytes is the length from which on the lines about users are cut.
	userBytes = 2 << 10
)

// Changes are the last changes of collections. Any goroutine may use them.
type Changes struct {
	mu     sync.Mutex
	rings  map[place]*ring
	bytes  int    // of all rings
	picked []pick // memory for take

	looking sync.Mutex // all requests for diffs together use one processor at most
}

type place struct{ sink, collection string }

type ring struct {
	changes []*change // oldest first
	bytes   int
	coming  int // of the batch at hand
}

// pick is a record of a batch that is to be kept.
type pick struct {
	ring   *ring
	record int
}

// change is a copy of what is shown of an event. Nobody writes to it.
type change struct {
	typ                                    event.Type
	origin                                 event.Origin
	time                                   time.Time
	namespace, name, uid, rv, reason, dead string
	id                                     string
	bodyKnown                              bool
	truncated                              *event.Truncation
	leftOut                                []string // see [event.Event]
	before, object                         []byte   // both, or neither
	patch                                  []byte   // where they are not kept
	changedBy                              []byte
	users                                  []string // who made the change, by the audit log: see [history.Users]
	unkept                                 int      // bytes that the diff would be made from, if they are too many to keep
	bytes                                  int
}

// New returns an empty Changes.
func New() *Changes { return &Changes{rings: map[place]*ring{}} }

// Listen returns a listener to a sink's deliveries. It copies what it keeps.
func (c *Changes) Listen(sink string) func([]event.Record) {
	return func(records []event.Record) { c.take(sink, records) }
}

// Forget drops what is known of a sink: another process may have delivered since.
func (c *Changes) Forget(sink string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, r := range c.rings {
		if at.sink == sink {
			c.bytes -= r.bytes
			delete(c.rings, at)
		}
	}
}

// isChange reports whether an event is about a change. The objects of a first list, a
// reset or a resync were so before, and would leave no room for what changed.
func isChange(e *event.Event) bool {
	return !e.Type.OfCollection() && !e.Type.OfRequest() && e.Type != event.Present && (e.Type != event.Added || e.Origin != event.Snapshot)
}

// ends reports whether consumers drop what they have of a collection: changes of before may have values that are redacted now.
func ends(e *event.Event) bool {
	return e.Type == event.Closed || e.Type == event.Gap && e.Report != nil && e.Report.Reset
}

// take keeps the changes of a batch. Of a large one no more is copied than can stay.
func (c *Changes) take(sink string, records []event.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var (
		ended []place
		last  *event.Collection
		at    place
		r     *ring
	)
	for i := len(records) - 1; i >= 0; i-- {
		e := records[i].Event
		if !ends(e) && !isChange(e) {
			continue
		}
		if e.Collection != last {
			last, at = e.Collection, place{sink, e.Collection.ID()}
			if r = c.rings[at]; r == nil {
				r = &ring{}
				c.rings[at] = r
			}
		}
		switch {
		case ends(e):
			c.cut(r, 0)
			ended = append(ended, at)
			r.coming = perCollection // nothing that is older
		case r.coming < perCollection:
			r.coming++
			c.picked = append(c.picked, pick{r, i})
		}
	}
	for _, p := range slices.Backward(c.picked) {
		p.ring.coming = 0
		c.push(p.ring, copied(records[p.record].Event))
	}
	clear(c.picked)
	c.picked = c.picked[:0]
	for i := range records {
		if e := records[i].Event; e.Type == event.Attributed {
			c.attribute(c.rings[place{sink, e.Collection.ID()}], e.Attribution)
		}
	}
	for _, at := range ended {
		if r := c.rings[at]; r != nil && len(r.changes) == 0 {
			delete(c.rings, at)
		}
	}
	c.trim()
}

// attribute adds who made a change, if it is still there. r may be nil.
func (c *Changes) attribute(r *ring, a *event.Attribution) {
	if r == nil {
		return
	}
	i := slices.IndexFunc(r.changes, func(k *change) bool { return k.id == a.Explains })
	if i < 0 {
		return
	}
	k := *r.changes[i]
	more := -len(strings.Join(k.users, ""))
	k.users = shortened(history.Users(a))
	more += len(strings.Join(k.users, ""))
	k.bytes += more
	r.bytes += more
	c.bytes += more
	r.changes[i] = &k
	c.cut(r, collectionBytes)
}

// shortened returns lines, up to userBytes.
func shortened(lines []string) []string {
	left := userBytes
	for i, line := range lines {
		if left -= len(line); left < 0 {
			return append(slices.Clone(lines[:i]), strings.ToValidUTF8(line[:len(line)+left], "")+"…")
		}
	}
	return lines
}

func (c *Changes) push(r *ring, k *change) {
	if len(r.changes) == perCollection {
		c.pop(r, 1)
	}
	r.changes = append(r.changes, k)
	r.bytes += k.bytes
	c.bytes += k.bytes
	c.cut(r, collectionBytes)
}

// cut drops the oldest changes until so many bytes are left at most.
func (c *Changes) cut(r *ring, most int) {
	n := 0
	for left := r.bytes; left > most; n++ {
		left -= r.changes[n].bytes
	}
	c.pop(r, n)
}

func (c *Changes) pop(r *ring, n int) {
	for _, k := range r.changes[:n] {
		r.bytes -= k.bytes
		c.bytes -= k.bytes
	}
	r.changes = slices.Delete(r.changes, 0, n)
}

// trim makes room where all together are too large: the largest shrink to one size, and
// those below it keep what they have. A quarter is freed, so that it is seldom due.
func (c *Changes) trim() {
	if c.bytes <= totalBytes {
		return
	}
	sizes := make([]int, 0, len(c.rings))
	for _, r := range c.rings {
		sizes = append(sizes, r.bytes)
	}
	slices.Sort(sizes)
	most, left := 0, totalBytes/4*3
	for i, size := range sizes {
		if most = left / (len(sizes) - i); size > most {
			break
		}
		left -= size
	}
	for _, r := range c.rings {
		c.cut(r, most)
	}
}

// copied is what is kept of an event, in memory of its own: the event's is used again.
func copied(e *event.Event) *change {
	k := &change{
		typ: e.Type, origin: e.Origin, time: e.Time, reason: e.Reason, truncated: e.Truncated, bodyKnown: e.Object != nil,
		namespace: strings.Clone(e.Namespace), name: strings.Clone(e.Name), uid: strings.Clone(e.UID),
		rv: strings.Clone(e.ResourceVersion), id: e.ID(), changedBy: bytes.Clone(e.ChangedBy), leftOut: e.LeftOut,
	}
	if e.DeadLetter != nil {
		k.dead = e.DeadLetter.Reason
	}
	switch both := len(e.Before) + len(e.Object); {
	case e.Before != nil && both <= changeBytes:
		k.before, k.object = bytes.Clone(e.Before), bytes.Clone(e.Object)
	case e.Patch != nil && len(e.Patch) <= changeBytes:
		k.patch = bytes.Clone(e.Patch)
	case e.Before != nil:
		k.unkept = both
	default:
		k.unkept = len(e.Patch)
	}
	if len(k.changedBy) > changeBytes {
		k.changedBy = nil
	}
	k.bytes = overheadBytes + len(k.namespace) + len(k.name) + len(k.uid) + len(k.rv) + len(k.id) +
		len(k.before) + len(k.object) + len(k.patch) + len(k.changedBy)
	return k
}
