package campaign

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
)

// verdict compares the messages on the bus with what the API server acknowledged. Every problem begins with the name of the
// broken rule: state, complete, order, once, invented, body, diff, quiet, again, leak, declared, fenced.
type verdict struct {
	pair      Pair
	ledger    *ledger
	messages  []bus.Message
	name      string                               // name of the cluster
	cluster   map[string]map[string]map[string]any // resource -> UID -> body, at the end
	lost      bool                                 // the bus may have missed events: neither state nor completeness can be judged
	unsettled bool                                 // the bridge had not published everything at the end: neither state nor completeness can be judged
	byKey     bool                                 // order is kept per key only: an event proves nothing about lower versions of other objects
	killed    bool                                 // a bridge was killed, the leader changed, or a route was suspended: the last events before that are in doubt
	taken     map[string]bool                      // resources that were removed from the configuration for a while
	buffered  *buffering                           // what was in the disk buffer and has to be published; nil: not judged
	expires   map[string]bool                      // resources whose history the API server may have lost; nil: not known
	changing  map[string]bool                      // resources whose bodies changed without a new resourceVersion

	problems  []string
	windows   [2]map[string][]window        // by history and resource: the transitions that gaps excuse
	published [2]map[string]map[uint64]bool // by history and UID: the published versions
	ended     [2]map[string]bool            // by history: the UIDs whose last event is a deletion
	mirror    map[string]map[string]string  // resource -> UID -> body, in a consumer's copy at the end
	silent    map[string]bool               // resources that continued in the restored history without a gap that says so
	undone    map[string]*bus.Message       // by resource: the last published event that a restore has undone
	gaps      int
	excused   int
}

// window is a range of resourceVersions whose transitions a gap excuses: after from, up to and including to.
type window struct {
	from, to       uint64
	opened, closed time.Time // when its gap and its synced event were made; zero: not known
}

// openAt reports whether the gap was not closed yet at a time. What the disk buffer then records is lost if the bridge is killed: docs/buffer.md.
func (w *window) openAt(at time.Time) bool {
	return w.opened.Before(at) && (w.closed.IsZero() || w.closed.After(at))
}

func (v *verdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, "["+rule+"] "+fmt.Sprintf(format, args...))
}

func (v *verdict) judge() []string {
	for era := range v.windows {
		v.windows[era], v.published[era], v.ended[era] = map[string][]window{}, map[string]map[uint64]bool{}, map[string]bool{}
	}
	v.mirror, v.silent, v.undone = map[string]map[string]string{}, map[string]bool{}, map[string]*bus.Message{}
	for resource := range v.cluster {
		v.mirror[resource] = map[string]string{}
	}
	parts := map[string][]*bus.Message{}
	for i := range v.messages {
		m := &v.messages[i]
		part := fmt.Sprintf("%s/%d", m.Route, m.Partition)
		if v.pair.Bus != "kafka" {
			part = ""
		}
		parts[part] = append(parts[part], m)
	}
	for _, part := range parts {
		v.fenced(part)
		(&reader{verdict: v}).read(part)
	}
	if !v.lost && !v.unsettled {
		v.complete()
		v.state()
		v.inStep()
	}
	return v.problems
}

// fenced checks that no writer writes after a writer with a higher term.
func (v *verdict) fenced(part []*bus.Message) {
	term := map[string]int{}
	for _, m := range part {
		incarnation, _, _ := strings.Cut(m.Place, ":")
		at := incarnation + m.Writer
		if before, ok := term[at]; ok && m.Term < before {
			v.wrong("fenced", "term %d writes after term %d: %s", m.Term, before, m)
		} else {
			term[at] = m.Term
		}
	}
}

// reader reads one stream or partition as a consumer does, by the rules of docs/events.md.
type reader struct {
	*verdict
	seen   map[string]*bus.Message            // by id
	last   map[string]*bus.Message            // by UID: the last event about the object
	live   map[string]map[string]*bus.Message // resource -> UID -> last event, of objects that exist
	bodies map[string]string                  // by UID and version: the body that was published last
	open   map[string]*bus.Message            // resource -> the open gap
	from   map[string]uint64                  // resource -> the version up to which all was published before the open gap, or before `closed`
	closed map[string]bool                    // resources whose collection is closed
	high   map[string]uint64                  // resource -> the version up to which all is published, as of the last event
	times  map[string]time.Time               // resource -> the time of the last event
	era    map[string]int                     // resource -> the cluster's history that it is in: 0, or 1 after a restore of etcd
	resync map[string]map[string]bool         // resource -> UIDs that were published since a resync began
}

func (r *reader) read(part []*bus.Message) {
	r.seen, r.last, r.live = map[string]*bus.Message{}, map[string]*bus.Message{}, map[string]map[string]*bus.Message{}
	r.open, r.from, r.closed = map[string]*bus.Message{}, map[string]uint64{}, map[string]bool{}
	r.bodies, r.era, r.resync = map[string]string{}, map[string]int{}, map[string]map[string]bool{}
	r.high, r.times = map[string]uint64{}, map[string]time.Time{}
	held := &check.Copy{}
	for _, m := range part {
		held.Apply(m)
		if strings.Contains(string(m.Raw), planted) {
			r.wrong("leak", "the message has the value of a Secret: %s", m)
		}
		if m.OfAudit() {
			continue
		}
		if first := r.seen[m.ID()]; first != nil {
			r.repeated(m, first)
			continue
		}
		r.seen[m.ID()] = m
		if m.OfCollection() {
			r.collection(m)
		} else {
			r.object(m)
		}
		r.times[resourceOf(m)] = timeOf(m)
	}
	for resource, gap := range r.open {
		if !r.unsettled && !r.lost {
			r.wrong("declared", "%s: at the end, a gap is open, want a synced event after it: %s", resource, gap)
		}
	}
	for resource := range r.closed {
		if !r.unsettled && !r.lost {
			r.wrong("declared", "%s: at the end, the collection is closed, want it open because it is configured", resource)
		}
	}
	for resource, objects := range r.mirror {
		for uid, m := range held.Union(resource) {
			if o := r.of(m); o != nil {
				objects[uid] = o.typ.published(r.bodyOf(m))
			}
		}
	}
}

func (r *reader) repeated(m, first *bus.Message) {
	if r.pair.exact() {
		r.wrong("once", "the event was published twice: %s; the first time: %s", m, first)
	}
	if m.UID() != first.UID() || m.Type() != first.Type() || m.RV() != first.RV() || m.Run() != first.Run() || !m.OfCollection() && !m.Is("deleted") && canonical(r.bodyOf(m)) != canonical(r.bodyOf(first)) {
		r.wrong("once", "another event with the same id: %s; first: %s", m, first)
	}
}

func resourceOf(m *bus.Message) string { return m.Resource() }

func (r *reader) collection(m *bus.Message) {
	resource := resourceOf(m)
	if m.Epoch() > 1 && r.ledger.former == nil {
		r.wrong("invented", "the event has epoch %d, want 1 because no etcd was restored: %s", m.Epoch(), m)
	}
	switch {
	case m.Is("gap") && m.Data.Reason == "resync":
		r.resync[resource] = map[string]bool{}
	case m.Is("gap"):
		delete(r.resync, resource) // the bridge starts the interrupted resync again
		r.gap(resource, m)
	case m.Is("synced") && m.Data.Reason == "resync" && r.resync[resource] != nil:
		for uid, last := range r.live[resource] {
			if !r.resync[resource][uid] && !r.lost {
				r.wrong("again", "a resync ended without an event about an existing object, whose last event is %s", last)
			}
		}
		delete(r.resync, resource)
		r.reached(resource, m)
	case m.Is("synced") && m.Data.Reason != "periodic":
		if r.open[resource] == nil {
			if !r.lost {
				r.wrong("declared", "%s: a synced event without an open gap: %s", resource, m)
			}
			return
		}
		r.excuse(resource, number(m.RV()), timeOf(m))
		delete(r.open, resource)
		r.reached(resource, m)
	case m.Is("synced"):
		r.reached(resource, m)
	case m.Is("closed"):
		if !r.taken[resource] {
			r.wrong("invented", "%s: a closed event, but the resource was never removed from the configuration: %s", resource, m)
		}
		if r.open[resource] == nil {
			r.from[resource] = r.high[resource]
		}
		r.closed[resource] = true
		r.forget(resource)
		delete(r.open, resource)
	}
}

// gap opens a gap, which the next synced event closes.
func (r *reader) gap(resource string, m *bus.Message) {
	r.gaps++
	if m.Data.Reason == "drift" && !r.changing[resource] {
		r.wrong("complete", "a verification found a change that had not been published: %s", m)
	}
	if m.Data.Reason == "expired" {
		r.expired(resource, m, r.times[resource])
	}
	from := number(m.Data.From)
	if m.Data.Reset { // everything up to high was published before the reset
		from = r.high[resource]
		r.forget(resource)
	}
	if r.open[resource] != nil || r.closed[resource] {
		from = min(from, r.from[resource])
	}
	r.open[resource], r.from[resource] = m, from
	delete(r.closed, resource)
	switch {
	case r.silent[resource] && m.Epoch() > 1: // the list has shown the restore of etcd, which the bridge did not know at the gap before the list
		delete(r.silent, resource)
		r.from[resource] = 0
	case r.era[resource] > 0 || r.ledger.former == nil:
	case m.Epoch() > 1 || m.Data.From == "" && !timeOf(m).Before(r.ledger.back):
		// The restore has undone the rest of the first history, so the gap excuses all of it. In the second history, the gap begins at
		// version 0.
		r.excuse(resource, math.MaxUint64, time.Time{})
		r.era[resource], r.from[resource], r.high[resource] = 1, 0, 0
	case !timeOf(m).Before(r.ledger.back):
		r.goesOn(resource)
	}
}

// goesOn moves a collection to the restored history without a new epoch. The bridge had not read past the backup, so it cannot notice the
// restore. It must not have published anything that the restore has undone.
func (r *reader) goesOn(resource string) {
	r.silent[resource] = true
	windows := r.windows[0]
	windows[resource] = append(windows[resource], window{from: r.ledger.saved, to: math.MaxUint64})
	if r.open[resource] != nil {
		r.excuse(resource, math.MaxUint64, time.Time{})
	}
	r.era[resource], r.high[resource] = 1, 0
}

// reached records up to which version everything is published. An event of a watch proves that for all lower versions.
func (r *reader) reached(resource string, m *bus.Message) {
	r.high[resource] = max(r.high[resource], versionOf(m))
}

// excuse excuses the transitions of the open gap, up to the version to. The gap is closed then, or at an unknown time.
func (r *reader) excuse(resource string, to uint64, closed time.Time) {
	windows := r.windows[r.era[resource]]
	w := window{from: r.from[resource], to: to, closed: closed}
	if m := r.open[resource]; m != nil {
		w.opened = timeOf(m)
	}
	windows[resource] = append(windows[resource], w)
}

// forget drops the copy of a collection, as consumers do at a reset and at closed.
func (r *reader) forget(resource string) {
	for uid, last := range r.last {
		if resourceOf(last) == resource {
			delete(r.last, uid)
		}
	}
	delete(r.live, resource)
}

// timeOf returns the time of an event.
func timeOf(m *bus.Message) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, m.Attributes["time"])
	return t
}

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}
