package campaign

import (
	"bytes"
	"slices"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// at returns the number of the history that an event belongs to: 0, or 1 after a restore of etcd.
func (r *reader) at(m *bus.Message) int {
	if r.ledger.former != nil && m.Epoch() > 1 {
		return 1
	}
	return r.era[resourceOf(m)]
}

// follow notices if a collection continues in the restored history without a gap that says so.
func (r *reader) follow(resource string, m *bus.Message) {
	if r.ledger.former == nil || r.at(m) > 0 {
		return
	}
	before, after := r.ledger.former[m.UID()].says(m), r.ledger.objects[m.UID()].says(m)
	early := timeOf(m).Before(r.ledger.back)
	if before && after { // the event may belong to either history
		before = early
	}
	after = after && !early // an event from before the restore does not belong to the restored history
	switch {
	case after:
		r.goesOn(resource)
	case before:
		r.undone[resource] = m
	}
}

// says reports whether an event may be about a state or a deletion of the object that is not in the backup.
func (o *object) says(m *bus.Message) bool {
	if o == nil {
		return false
	}
	v, ok := o.find(versionOf(m))
	switch {
	case m.Is("deleted") && (!ok || v.in):
		// A watch has the version of the deletion. A list only shows that the object no longer exists.
		within := versionOf(m) > o.after && versionOf(m) < o.before
		return o.deleted && !o.gone && (within || m.Attributes["origin"] != "watch")
	case m.Is("deleted"):
		return !v.old
	}
	return ok && !v.old && canonical(essence(o.typ, m.Body())) == canonical(v.body)
}

// versionOf returns the resourceVersion of the event's change. For a deletion, it is not the version of the publication that the deletion
// ends.
func versionOf(m *bus.Message) uint64 {
	if m.Is("deleted") {
		return number(m.Attributes["deletionversion"])
	}
	return number(m.RV())
}

// of returns the object that an event is about; nil if there was no such object.
func (r *reader) of(m *bus.Message) *object { return r.ledger.in(r.at(m), m.UID()) }

// bodyOf returns the comparable part of an event's body. A truncated event has no whole body; bodyOf then returns the body that the API
// server acknowledged for that version.
func (r *reader) bodyOf(m *bus.Message) map[string]any {
	o := r.of(m)
	if o == nil {
		return m.Body()
	}
	if v, ok := o.find(number(m.RV())); ok && m.Data.Truncated != nil {
		return clone(v.body)
	}
	return essence(o.typ, m.Body())
}

func (r *reader) object(m *bus.Message) {
	resource := resourceOf(m)
	r.follow(resource, m)
	o := r.of(m)
	if m.Epoch() > 1 && r.ledger.former == nil {
		r.wrong("invented", "the event has epoch %d, want 1 because no etcd was restored: %s", m.Epoch(), m)
	}
	if o == nil {
		r.wrong("invented", "the event is about an object that never existed: %s", m)
		return
	}
	if m.Name() != o.name || resource != o.typ.ResourceID() {
		r.wrong("body", "the event has the wrong resource or name, want %s %s: %s", o.typ.ResourceID(), o.name, m)
	}
	if m.Data.Truncated != nil && !o.typ.costly {
		r.wrong("body", "the event is truncated, want the whole body because the object is small: %s", m)
	}
	if r.closed[resource] && !r.lost {
		r.wrong("invented", "%s: an event while the collection is closed: %s", resource, m)
	}
	r.body(o, m)
	r.order(o, m)
	r.quiet(o, m)
	r.diff(o, m)
	if !m.Is("deleted") {
		r.bodies[m.UID()+" "+m.RV()] = string(m.Data.Object)
	}
	if again := r.resync[resource]; again != nil {
		again[m.UID()] = true
	}
	if m.Attributes["origin"] == "watch" && !r.byKey {
		r.reached(resource, m)
	}
	if r.live[resource] == nil {
		r.live[resource] = map[string]*bus.Message{}
	}
	r.last[m.UID()] = m
	if m.Is("deleted") {
		delete(r.live[resource], m.UID())
		r.ended[r.at(m)][m.UID()] = true
		r.notePublished(m) // an update by which the object left the selection has this version, too
		return
	}
	for uid, held := range r.live[resource] {
		if uid != m.UID() && held.Name() == m.Name() && !r.lost {
			r.wrong("order", "no deletion of the object that had the name before: %s; the last event of that object: %s", m, held)
		}
	}
	r.live[resource][m.UID()] = m
	delete(r.ended[r.at(m)], m.UID())
	r.notePublished(m)
}

func (r *reader) notePublished(m *bus.Message) {
	versions := r.published[r.at(m)]
	if versions[m.UID()] == nil {
		versions[m.UID()] = map[uint64]bool{}
	}
	versions[m.UID()][versionOf(m)] = true
}

// body checks that the body in an event equals the server's body at that version, as far as the two can be compared.
func (r *reader) body(o *object, m *bus.Message) {
	rv := number(m.RV())
	got := r.bodyOf(m)
	metadata, _ := got["metadata"].(map[string]any)
	if m.Is("deleted") {
		undone := o.undone && r.at(m) > 0
		if !o.deleted && !undone && !slices.ContainsFunc(o.versions, func(v version) bool { return !v.in }) {
			r.wrong("invented", "%s exists and is selected, but is published as deleted: %s", o, m)
		}
		if m.Data.BodyKnown != nil && !*m.Data.BodyKnown {
			return
		}
		// The body of a deletion is that of some version of the object, except for the resourceVersion, which is the deletion's own.
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
		if last := r.last[m.UID()]; last != nil && o.typ.diff != "" { // for diff, the bridge keeps the last published body, which may be of the history before
			kept := r.bodyOf(last)
			b, _ := kept["metadata"].(map[string]any)
			delete(b, "resourceVersion")
			if canonical(kept) == want {
				return
			}
		}
		r.wrong("body", "the body of a deletion is that of no version of %s: %s\n  %.1500s", o, m, want)
		return
	}
	version, ok := o.find(rv)
	if !ok || o.undone && r.at(m) > 0 {
		r.wrong("invented", "%s never had this version: %s", o, m)
		return
	}
	if !version.in {
		r.wrong("invented", "%s was not selected at this version: %s", o, m)
	}
	if got, want := canonical(got), canonical(version.body); got != want {
		r.wrong("body", "the body of %s\n  is   %.1500s\n  want %.1500s", m, got, want)
	}
}

// order checks that the events of an object begin with its appearance, that its runs and versions ascend, and that a deletion ends the last
// publication.
func (r *reader) order(o *object, m *bus.Message) {
	if r.lost {
		return
	}
	last := r.last[m.UID()]
	known := last != nil && !last.Is("deleted")
	// A bridge that was killed may have published events that its checkpoint does not have, unless delivery is exactly once: see
	// docs/faults.md.
	inDoubt := r.killed && !r.pair.exact()
	switch {
	case !known && m.Is("deleted") && inDoubt && m.Attributes["origin"] != "watch":
		// The publication that the deletion ends was in doubt when the bridge was killed; it has not reached the bus.
	case !known && m.Is("modified", "deleted"):
		r.wrong("order", "the first event about %s is neither added nor present: %s", o, m)
	case known && m.Is("added") && !inDoubt: // an event in doubt is published again
		r.wrong("order", "%s is published as added, but consumers have it already: %s; the last event: %s", o, m, last)
	case known && m.Is("deleted"):
		same := m.Run() == last.Run() && m.RV() == last.RV()
		later := m.Run() > last.Run() || m.Run() == last.Run() && number(m.RV()) > number(last.RV())
		if !same && !(inDoubt && later) {
			r.wrong("order", "the deletion of %s ends the publication of run %d, rv=%s, want the last publication: %s; the deletion: %s", o, m.Run(), m.RV(), last, m)
		}
	case last == nil:
	case m.Run() < last.Run():
		r.wrong("order", "the run of %s decreases: %s follows %s", o, m, last)
	case m.Run() == last.Run() && number(m.RV()) <= number(last.RV()):
		r.wrong("order", "the resourceVersion of %s does not increase within a run: %s follows %s", o, m, last)
	case m.Epoch() < last.Epoch(), m.Epoch() == last.Epoch() && number(m.RV()) < number(last.RV()) && !last.Is("deleted"): // the version of a deletion may be of the epoch before
		r.wrong("order", "the epoch of %s decreases, or its resourceVersion decreases within an epoch: %s follows %s", o, m, last)
	}
}

// quiet checks that a change of ignored fields alone is not published.
func (r *reader) quiet(o *object, m *bus.Message) {
	last := r.last[m.UID()]
	if !o.typ.ignore || !m.Is("modified") || last == nil || last.Is("deleted") || r.lost || r.killed && !r.pair.exact() || r.changing[resourceOf(m)] || m.Epoch() > last.Epoch() {
		return
	}
	if o.typ.published(r.bodyOf(m)) == o.typ.published(r.bodyOf(last)) {
		r.wrong("quiet", "a change of ignored fields alone is published: %s follows %s", m, last)
	}
}

// diff checks that the former state in an event is the body that was published with that version, and that the patch changes it
// into the new body.
func (r *reader) diff(o *object, m *bus.Message) {
	wants, d := o.typ.diff, m.Data
	last := r.last[m.UID()]
	if d.Base == "" || !m.Is("modified") || wants == "" {
		if d.Base != "" || d.Before != nil || d.Patch != nil {
			r.wrong("diff", "the event has before, base or patch, which is not configured or not possible for it: %s", m)
		}
		if wants != "" && m.Is("modified") && r.pair.Name == "kafka-eo/kafka" && m.Data.Truncated == nil {
			r.wrong("diff", "the event has no base, want %s: %s", wants, m)
		}
		return
	}
	cut := o.typ.costly && (d.Truncated != nil || len(d.LeftOut) > 0)
	if !cut && ((d.Before != nil) != (wants != "patch") || (d.Patch != nil) != (wants != "before")) {
		r.wrong("diff", "the event has before: %t, patch: %t, want %s: %s", d.Before != nil, d.Patch != nil, wants, m)
	}
	before, ok := r.bodies[m.UID()+" "+d.Base]
	switch {
	case !ok && !r.lost:
		r.wrong("diff", "the base %s was not published: %s", d.Base, m)
	case !ok:
		return
	case r.pair.exact() && last != nil && last.RV() != d.Base:
		r.wrong("diff", "the base is %s, want the version of the last event, %s: %s", d.Base, last, m)
	}
	if d.Before != nil && !same(d.Before, []byte(before)) {
		r.wrong("diff", "the field before of %s\n  is   %.1500s\n  want %.1500s", m, d.Before, before)
	}
	if d.Patch != nil {
		patch, err := jsonpatch.DecodePatch(d.Patch)
		var after []byte
		if err == nil {
			after, err = patch.Apply([]byte(before))
		}
		if err != nil || !same(after, d.Object) {
			r.wrong("diff", "the patch of %s does not give its object\n  base   %.1500s\n  patch  %.1500s\n  result %.1500s\n  error  %v", m, before, d.Patch, after, err)
		}
	}
}

// same reports whether two texts are the same JSON value.
func same(a, b []byte) bool { return bytes.Equal(a, b) || jsonpatch.Equal(a, b) }
