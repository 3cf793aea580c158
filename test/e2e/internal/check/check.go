// Package check compares the messages of a bus with what the API server acknowledged. Every function returns one line
// for each problem, and nothing if there is none.
package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Options say what is required of a bus. The zero value is the strictest.
type Options struct {
	// Types are the types that are published; none: every type in the ledger.
	Types []kube.Type
	// Repeats allows an event to be repeated with the same id (at-least-once).
	Repeats bool
	// Gap means that there was a time of which only the outcome must be published. Versions that were written in it may be missing, and
	// objects that were created and deleted in it.
	Gap bool
	// Wanted reports whether an object is published. There must be no events of other objects. nil means that all are published.
	Wanted func(kube.Object) bool
}

// History checks all events about objects: identities, order and completeness.
func History(ledger *kube.Ledger, messages []bus.Message, o Options) []string {
	h := history{o: o, lives: map[string][]bus.Message{}, phases: map[string]*phase{}, objects: map[string]kube.Object{}}
	for _, object := range ledger.Objects(o.Types...) {
		if o.Wanted == nil || o.Wanted(object) {
			h.objects[object.UID] = object
		}
	}
	h.sort(messages)
	for _, object := range ledger.Objects(o.Types...) {
		if _, wanted := h.objects[object.UID]; wanted {
			h.life(object, h.lives[object.UID])
		}
	}
	return h.problems
}

type history struct {
	o        Options
	objects  map[string]kube.Object   // by UID
	lives    map[string][]bus.Message // by UID, without repeats
	phases   map[string]*phase        // by partition and collection
	problems []string
}

func (h *history) wrong(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// sort checks each message alone, and groups the messages by object and collection.
func (h *history) sort(messages []bus.Message) {
	seen := map[string]*bus.Message{}
	holders := map[string]string{} // collection and name -> UID of the object that exists by the events so far
	for i := range messages {
		m := &messages[i]
		h.attributes(m)
		if m.OfCollection() {
			h.collection(m)
			continue
		}
		if first := seen[m.ID()]; first != nil {
			if !h.o.Repeats {
				h.wrong("repeated: the event was published twice: %s; the first time: %s", m, first)
			}
			continue
		}
		seen[m.ID()] = m
		object, known := h.objects[m.UID()]
		if !known {
			h.wrong("the event is about an object that does not belong on the bus: %s", m)
			continue
		}
		h.identity(object, m)
		h.inPhase(m)
		name := m.Collection() + " " + m.Name()
		if holder := holders[name]; holder != "" && holder != m.UID() {
			h.wrong("the object that had the name before, %s, has not been published as deleted: %s", holder, m)
		}
		holders[name] = m.UID()
		if m.Is("deleted") {
			delete(holders, name)
		}
		h.lives[m.UID()] = append(h.lives[m.UID()], *m)
	}
}

// phase is the state of a collection for a reader of a partition.
type phase struct {
	run, incarnation uint64 // of the last gap
	syncs            int    // synced events since then
	first            bool   // before the incarnation's first synced
	resync           bool
	closed           bool
}

func (h *history) phaseOf(m *bus.Message) *phase {
	key := m.Part() + " " + m.Collection()
	if h.phases[key] == nil {
		h.phases[key] = &phase{}
	}
	return h.phases[key]
}

// collection checks an event about a collection, and updates the phase.
func (h *history) collection(m *bus.Message) {
	p := h.phaseOf(m)
	for _, name := range []string{"plan", "plandigest", "edit", "birth"} {
		if m.Attributes[name] == "" {
			h.wrong("no attribute %s: %s", name, m)
		}
	}
	if m.Number("edit") > m.Number("plan") || m.Number("birth") > m.Incarnation() {
		h.wrong("edit %d must not exceed plan %d, nor birth %d incarnation %d: %s", m.Number("edit"), m.Number("plan"), m.Number("birth"), m.Incarnation(), m)
	}
	want := fmt.Sprintf("%s:%d:%s", m.Collection(), m.Run(), m.Type())
	again := m.Run() == p.run && h.o.Repeats
	switch {
	case m.Is("gap"):
		if m.Data.Reset != (m.Run() == m.Incarnation()) {
			h.wrong("a gap with reset %t, run %d and incarnation %d, want reset exactly if the numbers are equal: %s", m.Data.Reset, m.Run(), m.Incarnation(), m)
		}
		if m.Run() <= p.run && !again {
			h.wrong("the run is %d, want a higher one than the previous run %d: %s", m.Run(), p.run, m)
		}
		if again {
			break
		}
		*p = phase{run: m.Run(), incarnation: m.Incarnation(), first: m.Data.Reset || p.first, resync: m.Data.Reason == "resync"}
	case m.Is("synced"):
		want = fmt.Sprintf("%s:%d:%d:synced", m.Collection(), m.Run(), p.syncs+1)
		if h.o.Repeats && p.syncs > 0 && strings.HasSuffix(m.ID(), fmt.Sprintf(":%d:synced", p.syncs)) {
			return
		}
		if m.Run() != p.run || p.closed {
			h.wrong("the synced event has run %d, want %d as the last gap; the collection is closed: %t: %s", m.Run(), p.run, p.closed, m)
		}
		p.syncs++
		p.first, p.resync = false, false
	default:
		p.closed = true
	}
	if m.ID() != want {
		h.wrong("id %q, want %q", m.ID(), want)
	}
}

// inPhase checks an event about an object against the phase of its collection.
func (h *history) inPhase(m *bus.Message) {
	p := h.phaseOf(m)
	switch {
	case p.run == 0:
		h.wrong("the event comes before the first gap of its collection: %s", m)
	case p.closed:
		h.wrong("the collection is closed: %s", m)
	case m.Incarnation() != p.incarnation:
		h.wrong("incarnation %d, want %d: %s", m.Incarnation(), p.incarnation, m)
	case m.Is("added") && p.first, m.Is("present") && !p.first && !p.resync:
		h.wrong("the event has the wrong type, first list: %t, resync: %t: %s", p.first, p.resync, m)
	case m.Run() > p.run, m.Run() < p.run && !m.Is("deleted"):
		h.wrong("the event has run %d, want %d as the last gap: %s", m.Run(), p.run, m)
	}
	if want := fmt.Sprintf("%s:%d:%s:%s:%s", m.Collection(), m.Run(), m.UID(), m.RV(), m.Type()); m.ID() != want {
		h.wrong("id %q, want %q", m.ID(), want)
	}
}

// attributes checks the attributes that every event must have.
func (h *history) attributes(m *bus.Message) {
	for _, name := range []string{"id", "source", "type", "time", "dataschema", "cluster", "clusteruid", "collection", "resource", "run", "incarnation", "origin"} {
		if m.Attributes[name] == "" {
			h.wrong("no attribute %s: %s", name, m)
		}
	}
	if m.Attributes["specversion"] != "1.0" {
		h.wrong("specversion is %q, want %q: %s", m.Attributes["specversion"], "1.0", m)
	}
}

// identity checks that an event identifies its object, in its attributes and in the body.
func (h *history) identity(object kube.Object, m *bus.Message) {
	t := object.Type
	group := t.Group
	if group == "" {
		group = "core"
	}
	for name, want := range map[string]string{
		"apiversion": t.GroupVersion().String(), "kind": t.Kind, "group": t.Group, "resource": t.Resource,
		"namespace": object.Namespace, "name": object.Name, "subject": object.Key(),
		"source": "/clusters/" + m.Attributes["cluster"] + "/" + group + "/" + t.Resource,
	} {
		if got := m.Attributes[name]; got != want {
			h.wrong("%s is %q, want %q: %s", name, got, want, m)
		}
	}
	h.route(object, m)
	u := unstructured.Unstructured{Object: m.Body()}
	want := [...]string{t.GroupVersion().String(), t.Kind, object.Namespace, object.Name, object.UID}
	if got := [...]string{u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), string(u.GetUID())}; got != want {
		h.wrong("the object is %q, want %q: %s", got, want, m)
	}
	bodyKnown := m.Data.BodyKnown == nil || *m.Data.BodyKnown
	switch version, deletion := u.GetResourceVersion(), m.Attributes["deletionversion"]; {
	case !bodyKnown:
	case !m.Is("deleted") && version != m.RV():
		h.wrong("the object's resourceVersion is %q, want %q: %s", version, m.RV(), m)
	case m.Is("deleted") && (kube.CompareRV(version, m.RV()) < 0 || deletion != "" && kube.CompareRV(version, deletion) > 0):
		h.wrong("the object's resourceVersion is %q, want it from %q to %q: %s", version, m.RV(), deletion, m)
	}
	if deletion := m.Attributes["deletionversion"]; deletion != "" && (!m.Is("deleted") || kube.CompareRV(deletion, m.RV()) < 0) {
		h.wrong("deletionversion is %q, want it only in deletions, and not lower than resourceversion: %s", deletion, m)
	}
	if u.GetManagedFields() != nil {
		h.wrong("managedFields are on the bus: %s", m)
	}
}

// route checks topic and key, or subject.
func (h *history) route(object kube.Object, m *bus.Message) {
	t := object.Type
	cluster, group, namespace := m.Attributes["cluster"], t.Group, object.Namespace
	if group == "" {
		group = "core"
	}
	if namespace == "" {
		namespace = "_"
	}
	entry := m.Attributes["entry"]
	if strings.Contains(m.Collection(), "@") {
		entry += "@"
	}
	subject := "k8s." + cluster + "." + token(group) + "." + t.Resource + "." + namespace + "." + token(object.Name)
	key := cluster + "/" + group + "/" + t.Resource + "/" + namespace + "/" + object.Name
	if entry != "" {
		subject, key = subject+"."+token(entry), key+"/"+entry
	}
	if m.Key == "" && m.Route != "" && m.Route != subject {
		h.wrong("subject %q, want %q: %s", m.Route, subject, m)
	}
	if topic := "k8s." + cluster + "." + group + "." + t.Resource; m.Key != "" && m.Route != topic {
		h.wrong("topic %q, want %q: %s", m.Route, topic, m)
	}
	if m.Key != "" && m.Key != key {
		h.wrong("key %q, want %q: %s", m.Key, key, m)
	}
}

// token returns a name as one token of a NATS subject.
func token(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c == '.':
			b.WriteByte('_')
		case c == '-', c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// life checks the events of one object, in their order.
func (h *history) life(object kube.Object, life []bus.Message) {
	name := fmt.Sprintf("%s %s (%s)", object.Type.ResourceID(), object.Key(), object.UID)
	if len(life) == 0 {
		if !h.o.Gap || !object.Deleted {
			h.wrong("missing: no event about %s, want events about the versions %v", name, object.RVs)
		}
		return
	}
	var published []string
	for i := range life {
		m := &life[i]
		h.step(name, life[:i], m)
		switch {
		case m.Is("deleted"):
		case slices.Contains(object.RVs, m.RV()):
			if len(published) == 0 || published[len(published)-1] != m.RV() {
				published = append(published, m.RV())
			}
		case object.Deleted && terminating(m): // the server itself writes a version before the deletion
		default:
			h.wrong("%s never had this version (it had %v): %s", name, object.RVs, m)
		}
		if m.Is("deleted") && i < len(life)-1 {
			h.wrong("%s has an event after its deletion: %s", name, &life[i+1])
		}
	}
	if ended := life[len(life)-1].Is("deleted"); ended != object.Deleted {
		h.wrong("%s: a deletion is published: %t, want %t", name, ended, object.Deleted)
	}
	switch {
	case !h.o.Gap && !slices.Equal(published, object.RVs):
		h.wrong("missing: the versions %[2]v of %[1]s are published, want %[3]v", name, published, object.RVs)
	case !object.Deleted && !slices.Contains(published, object.LastRV()):
		h.wrong("missing: the last version %s of %s is not published, only %v", object.LastRV(), name, published)
	}
}

// step checks an event against the previous events of its object.
func (h *history) step(name string, before []bus.Message, m *bus.Message) {
	// After a crash, a list publishes deletions of objects that were in doubt, even if their publications never reached the bus (docs/faults.md).
	inDoubt := h.o.Repeats && m.Is("deleted") && m.Attributes["origin"] == "reconcile"
	if len(before) == 0 {
		if !m.Is("added", "present") && !inDoubt {
			h.wrong("the first event about %s is neither added nor present: %s", name, m)
		}
		return
	}
	last := &before[len(before)-1]
	again := m.Run() > last.Run() && h.o.Repeats // published again, in another run
	switch {
	case inDoubt && (m.Run() > last.Run() || m.Run() == last.Run() && kube.CompareRV(m.RV(), last.RV()) > 0):
	case m.Is("deleted"):
		if m.RV() != last.RV() || m.Run() != last.Run() {
			h.wrong("the deletion of %s ends the publication of run %d, rv=%s, want that of the last event, run %d, rv=%s: %s", name, m.Run(), m.RV(), last.Run(), last.RV(), m)
		}
	case m.Is("present") && m.Run() > last.Run() && kube.CompareRV(m.RV(), last.RV()) >= 0: // of a resync
	case m.Is("added", "present") && !again:
		h.wrong("%s is published as added or present, but consumers have it already: %s", name, m)
	case kube.CompareRV(m.RV(), last.RV()) < 0, m.RV() == last.RV() && !again:
		h.wrong("the resourceVersion of %s does not increase: %s follows rv=%s", name, m, last.RV())
	}
}

func terminating(m *bus.Message) bool {
	u := unstructured.Unstructured{Object: m.Body()}
	return u.GetDeletionTimestamp() != nil
}

// State checks that a consumer that reads the bus from its beginning has exactly the objects of the cluster. Truncated bodies
// are not compared.
func State(messages []bus.Message, cluster []unstructured.Unstructured, resourceID string) []string {
	copied := Mirror(messages, resourceID)
	var problems []string
	for _, u := range cluster {
		key := strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
		m, ok := copied[string(u.GetUID())]
		delete(copied, string(u.GetUID()))
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("state: %s %s exists in the cluster, but the copy built from the bus does not have it", resourceID, key))
		case m.Data.Truncated == nil && canonical(m.Body()) != canonical(kube.Body(u)):
			problems = append(problems, fmt.Sprintf("state: the copy of %s %s is %s, want %s", resourceID, key, canonical(m.Body()), canonical(u.Object)))
		}
	}
	for _, m := range copied {
		problems = append(problems, fmt.Sprintf("state: %s %s does not exist in the cluster, but the copy built from the bus has it: %s", resourceID, m.Name(), m))
	}
	return problems
}

// Mirror returns the union of a resource's collections, as a consumer has it after reading everything: the newest event of each
// object, by UID.
func Mirror(messages []bus.Message, resourceID string) map[string]*bus.Message {
	var c Copy
	for i := range messages {
		c.Apply(&messages[i])
	}
	return c.Union(resourceID)
}

func canonical(v any) string {
	b, _ := json.Marshal(v) // came from JSON
	return string(b)
}

// Collections returns the events about a collection in their order. On Kafka each partition has a copy; it returns those of the first
// partition.
func Collections(messages []bus.Message, collection string) []bus.Message {
	var out []bus.Message
	for _, m := range messages {
		if m.OfCollection() && m.Attributes["collection"] == collection && m.Partition == 0 {
			out = append(out, m)
		}
	}
	return out
}
