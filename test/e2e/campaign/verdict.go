package campaign

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// verdict compares what the bus holds with what the API server acknowledged. Every problem begins with the name of the rule
// that was broken: state, complete, order, once, invented, body, leak, declared, fenced.
type verdict struct {
	pair      Pair
	ledger    *ledger
	messages  []bus.Message
	cluster   map[string]map[string]map[string]any // resource -> UID -> body, at the end
	lost      bool                                 // the bus may have missed events: neither state nor completeness can be judged
	unsettled bool                                 // nor if the bridge is not in step
	killed    bool                                 // a bridge was killed, or another one led: what the one before was writing is told or not

	problems []string
	windows  map[string][]window // by resource: what gaps excuse
	told     map[string]map[uint64]bool
	ended    map[string]bool              // UIDs of which a deletion is told, and that lasted
	mirror   map[string]map[string]string // resource -> UID -> body
	gaps     int
	excused  int
}

// window are the resourceVersions that a gap excuses, from exclusive.
type window struct{ from, to uint64 }

func (v *verdict) wrong(rule, format string, args ...any) {
	v.problems = append(v.problems, "["+rule+"] "+fmt.Sprintf(format, args...))
}

func (v *verdict) judge() []string {
	v.windows, v.told = map[string][]window{}, map[string]map[uint64]bool{}
	v.ended, v.mirror = map[string]bool{}, map[string]map[string]string{}
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
	}
	return v.problems
}

// fenced: who has been followed by a later writer writes no more.
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

// reader is a consumer of one stream or partition, by the published rules.
type reader struct {
	*verdict
	seen map[string]*bus.Message            // by id
	last map[string]*bus.Message            // by UID: the last event about it
	live map[string]map[string]*bus.Message // resource -> UID -> last event, of those that exist
	open map[string]*bus.Message            // resource -> the gap that is open
	from map[string]uint64
}

func (r *reader) read(part []*bus.Message) {
	r.seen, r.last, r.live = map[string]*bus.Message{}, map[string]*bus.Message{}, map[string]map[string]*bus.Message{}
	r.open, r.from = map[string]*bus.Message{}, map[string]uint64{}
	for _, m := range part {
		if first := r.seen[m.ID()]; first != nil {
			r.repeated(m, first)
			continue
		}
		r.seen[m.ID()] = m
		if strings.Contains(string(m.Raw), planted) {
			r.wrong("leak", "the value of a Secret: %s", m)
		}
		if m.OfCollection() {
			r.collection(m)
		} else {
			r.object(m)
		}
	}
	for resource, gap := range r.open {
		if !r.unsettled && !r.lost {
			r.wrong("declared", "%s: a gap is never closed: %s", resource, gap)
		}
	}
	for resource, objects := range r.live {
		for uid, m := range objects {
			r.mirror[resource][uid] = canonical(r.bodyOf(m))
		}
	}
}

func (r *reader) repeated(m, first *bus.Message) {
	if r.pair.exact() {
		r.wrong("once", "%s; first: %s", m, first)
	}
	if m.UID() != first.UID() || m.Type() != first.Type() || m.RV() != first.RV() && !m.Is("deleted") || !m.OfCollection() && !m.Is("deleted") && canonical(r.bodyOf(m)) != canonical(r.bodyOf(first)) {
		r.wrong("once", "another event with the same id: %s; first: %s", m, first)
	}
}

func resourceOf(m *bus.Message) string {
	resource, _, _ := strings.Cut(m.Attributes["collection"], "?")
	return resource
}

func (r *reader) collection(m *bus.Message) {
	resource := resourceOf(m)
	switch {
	case m.Is("gap"):
		r.gaps++
		from := number(m.Data.From)
		if m.Data.Reset {
			from = 0
			for uid := range r.live[resource] {
				delete(r.last, uid)
			}
			for uid, last := range r.last {
				if resourceOf(last) == resource {
					delete(r.last, uid)
				}
			}
			delete(r.live, resource)
		}
		if r.open[resource] != nil {
			from = min(from, r.from[resource])
		}
		r.open[resource], r.from[resource] = m, from
	case m.Is("synced") && m.Data.Reason != "periodic":
		if r.open[resource] == nil {
			if !r.lost {
				r.wrong("declared", "%s is closed without a gap: %s", resource, m)
			}
			return
		}
		delete(r.open, resource)
		r.windows[resource] = append(r.windows[resource], window{r.from[resource], number(m.RV())})
	case m.Is("closed"):
		r.wrong("invented", "nobody took %s out of the configuration: %s", resource, m)
	}
}

func number(rv string) uint64 {
	n, _ := strconv.ParseUint(rv, 10, 64)
	return n
}

// bodyOf is the body as far as it can be compared.
func (v *verdict) bodyOf(m *bus.Message) map[string]any {
	o := v.ledger.objects[m.UID()]
	if o == nil {
		return m.Body()
	}
	return essence(o.typ, m.Body())
}

func (r *reader) object(m *bus.Message) {
	o, resource := r.ledger.objects[m.UID()], resourceOf(m)
	if o == nil {
		r.wrong("invented", "of an object that never was: %s", m)
		return
	}
	if m.Name() != o.name || resource != o.typ.ResourceID() {
		r.wrong("body", "it is %s %s: %s", o.typ.ResourceID(), o.name, m)
	}
	r.body(o, m)
	r.order(o, m)
	if r.live[resource] == nil {
		r.live[resource] = map[string]*bus.Message{}
	}
	r.last[m.UID()] = m
	if m.Is("deleted") {
		delete(r.live[resource], m.UID())
		r.ended[m.UID()] = true
		r.tell(m) // perhaps at the version at which it left, with or without that reason: see docs/limits.md
		return
	}
	for uid, held := range r.live[resource] {
		if uid != m.UID() && held.Name() == m.Name() {
			r.wrong("order", "the name's former holder is not deleted: %s; it is %s", m, held)
		}
	}
	r.live[resource][m.UID()] = m
	delete(r.ended, m.UID())
	r.tell(m)
}

func (v *verdict) tell(m *bus.Message) {
	if v.told[m.UID()] == nil {
		v.told[m.UID()] = map[uint64]bool{}
	}
	v.told[m.UID()][number(m.RV())] = true
}

// body: what an event says of an object is what the server said at that version, byte for byte as far as it can be compared.
func (r *reader) body(o *object, m *bus.Message) {
	rv := number(m.RV())
	got := r.bodyOf(m)
	metadata, _ := got["metadata"].(map[string]any)
	if m.Is("deleted") {
		if !o.deleted && !slices.ContainsFunc(o.versions, func(v version) bool { return !v.in }) {
			r.wrong("invented", "%s lives: %s", o, m)
		}
		if m.Data.BodyKnown != nil && !*m.Data.BodyKnown {
			return
		}
		// Its body is that of some version, under a version of the deletion's own.
		delete(metadata, "resourceVersion")
		delete(metadata, "deletionTimestamp")
		delete(metadata, "deletionGracePeriodSeconds")
		want := canonical(got)
		for _, version := range o.versions {
			body := clone(version.body)
			b, _ := body["metadata"].(map[string]any)
			delete(b, "resourceVersion")
			if canonical(body) == want {
				return
			}
		}
		r.wrong("body", "no version of %s is like this: %s\n  %.1500s", o, m, want)
		return
	}
	version, ok := o.find(rv)
	if !ok {
		r.wrong("invented", "%s never had this version: %s", o, m)
		return
	}
	if !version.in {
		r.wrong("invented", "%s was not selected at this version: %s", o, m)
	}
	if got, want := canonical(got), canonical(version.body); got != want {
		r.wrong("body", "%s\n  is   %.1500s\n  want %.1500s", m, got, want)
	}
}

// order: an object is announced, changes, and is deleted; its versions ascend.
func (r *reader) order(o *object, m *bus.Message) {
	if r.lost {
		return
	}
	last := r.last[m.UID()]
	known := last != nil && !last.Is("deleted")
	switch {
	case !known && m.Is("modified", "deleted") && r.killed && !r.pair.exact() && m.Attributes["origin"] == "reconcile":
		// It was on its way to the bus when the bridge was killed, and counts as told: see docs/limits.md.
	case !known && m.Is("modified", "deleted"):
		r.wrong("order", "%s begins with: %s", o, m)
	case known && m.Is("added"):
		r.wrong("order", "%s is announced again: %s; it was %s", o, m, last)
	case last == nil || m.Epoch() > last.Epoch():
	case number(m.RV()) < number(last.RV()) && !last.Is("deleted") || m.Epoch() < last.Epoch():
		r.wrong("order", "%s goes back: %s follows %s", o, m, last)
	}
}

// complete: every transition outside of declared gaps is told.
func (v *verdict) complete() {
	for _, o := range v.ledger.objects {
		resource := o.typ.ResourceID()
		in := false
		for _, version := range o.versions {
			if !in && !version.in {
				continue
			}
			in = version.in
			if v.told[o.uid][version.rv] {
				continue
			}
			if v.covers(resource, version.rv-1, version.rv+1) {
				v.excused++
			} else {
				v.wrong("complete", "version %d of %s is not told, and no gap covers it: %v", version.rv, o, v.windows[resource])
			}
		}
		if in && o.deleted && !v.ended[o.uid] {
			if v.covers(resource, o.after, o.before) {
				v.excused++
			} else {
				v.wrong("complete", "the deletion of %s is not told, and no gap covers it: %v", o, v.windows[resource])
			}
		}
	}
}

// covers reports whether a window holds a version between after and before.
func (v *verdict) covers(resource string, after, before uint64) bool {
	if before < math.MaxUint64 {
		before--
	}
	return slices.ContainsFunc(v.windows[resource], func(w window) bool { return w.from < before && w.to > after })
}

// state: what the bus leads to is what the cluster has.
func (v *verdict) state() {
	for resource, objects := range v.cluster {
		for uid, body := range objects {
			got, ok := v.mirror[resource][uid]
			if want := canonical(body); !ok {
				v.wrong("state", "%s exists, the bus does not say so", v.ledger.objects[uid])
			} else if got != want {
				v.wrong("state", "%s\n  is   %.1500s\n  want %.1500s", v.ledger.objects[uid], got, want)
			}
		}
		for uid, body := range v.mirror[resource] {
			if objects[uid] == nil {
				v.wrong("state", "%s does not exist, the bus says %.500s", v.ledger.objects[uid], body)
			}
		}
	}
}
