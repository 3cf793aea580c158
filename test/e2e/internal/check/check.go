// Package check compares what a bus holds with what the API server acknowledged. Every function returns what is wrong, one
// line each, and nothing when all is well.
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

// Options say what a bus owes. The zero value is the strictest.
type Options struct {
	// Types are the ones bridged; none: every type in the ledger.
	Types []kube.Type
	// Repeats: the same event may come again, with the same id (at-least-once).
	Repeats bool
	// Gap: there was a time of which only the outcome must be told. Versions written in it may be missing, and so may objects
	// that came and went in it.
	Gap bool
	// Wanted tells the objects that are bridged from the others, of which there must be nothing; nil: all of them.
	Wanted func(kube.Object) bool
}

// History checks everything on the bus that is about objects: identities, order and completeness.
func History(ledger *kube.Ledger, messages []bus.Message, o Options) []string {
	h := history{o: o, lives: map[string][]bus.Message{}, objects: map[string]kube.Object{}}
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
	problems []string
}

func (h *history) wrong(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// sort checks each message for itself, and gathers them by object.
func (h *history) sort(messages []bus.Message) {
	seen := map[string]*bus.Message{}
	holders := map[string]string{} // resource and name -> UID that the bus believes to exist
	for i := range messages {
		m := &messages[i]
		h.attributes(m)
		if m.OfCollection() {
			continue
		}
		if first := seen[m.ID()]; first != nil {
			if !h.o.Repeats {
				h.wrong("repeated: %s; first: %s", m, first)
			} else if first.UID() != m.UID() || first.RV() != m.RV() && !m.Is("deleted") {
				h.wrong("another event with the same id: %s; first: %s", m, first)
			}
			continue
		}
		seen[m.ID()] = m
		object, known := h.objects[m.UID()]
		if !known {
			h.wrong("of an object that does not belong on the bus: %s", m)
			continue
		}
		h.identity(object, m)
		name := m.Attributes["source"] + " " + m.Name()
		if holder := holders[name]; holder != "" && holder != m.UID() {
			h.wrong("the name's former holder %s has not been deleted: %s", holder, m)
		}
		holders[name] = m.UID()
		if m.Is("deleted") {
			delete(holders, name)
		}
		h.lives[m.UID()] = append(h.lives[m.UID()], *m)
	}
}

// attributes checks what every event must have.
func (h *history) attributes(m *bus.Message) {
	for _, name := range []string{"id", "source", "type", "time", "dataschema", "cluster", "clusteruid", "collection", "resource"} {
		if m.Attributes[name] == "" {
			h.wrong("no attribute %s: %s", name, m)
		}
	}
	if m.Attributes["specversion"] != "1.0" {
		h.wrong("specversion %q: %s", m.Attributes["specversion"], m)
	}
}

// identity checks that an event says whose it is, in its attributes and in the object.
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
	cluster, namespace := m.Attributes["cluster"], object.Namespace
	if namespace == "" {
		namespace = "_"
	}
	if route := "k8s." + cluster + "." + token(group) + "." + t.Resource + "." + namespace + "." + token(object.Name); m.Key == "" && m.Route != "" && m.Route != route {
		h.wrong("subject %q, want %q: %s", m.Route, route, m)
	}
	if topic := "k8s." + cluster + "." + group + "." + t.Resource; m.Key != "" && m.Route != topic {
		h.wrong("topic %q, want %q: %s", m.Route, topic, m)
	}
	if key := cluster + "/" + group + "/" + t.Resource + "/" + namespace + "/" + object.Name; m.Key != "" && m.Key != key {
		h.wrong("key %q, want %q: %s", m.Key, key, m)
	}
	u := unstructured.Unstructured{Object: m.Body()}
	want := [...]string{t.GroupVersion().String(), t.Kind, object.Namespace, object.Name, object.UID}
	if got := [...]string{u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), string(u.GetUID())}; got != want {
		h.wrong("the object is %q, want %q: %s", got, want, m)
	}
	bodyKnown := m.Data.BodyKnown == nil || *m.Data.BodyKnown
	recalled := m.Is("deleted") && m.Attributes["origin"] == "reconcile" // its body is that of before the gap
	if bodyKnown && (u.GetResourceVersion() != m.RV() && !recalled || kube.CompareRV(u.GetResourceVersion(), m.RV()) > 0) {
		h.wrong("the object's resourceVersion is %q: %s", u.GetResourceVersion(), m)
	}
	if u.GetManagedFields() != nil {
		h.wrong("managedFields are on the bus: %s", m)
	}
}

// token is a name as one token of a NATS subject.
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
			h.wrong("missing: nothing of %s with versions %v", name, object.RVs)
		}
		return
	}
	var told []string
	for i := range life {
		m := &life[i]
		switch {
		case i == 0 && !m.Is("added"):
			h.wrong("%s begins with %s", name, m)
		case i > 0 && !m.Is("modified", "deleted"):
			h.wrong("%s goes on with %s", name, m)
		case i > 0 && m.Is("deleted") && m.RV() == life[i-1].RV(): // of an end that nobody saw
		case i > 0 && kube.CompareRV(m.RV(), life[i-1].RV()) <= 0:
			h.wrong("%s is out of order: %s follows rv=%s", name, m, life[i-1].RV())
		}
		want := m.UID() + ":" + m.RV() + ":" + m.Type()
		switch {
		case m.Is("deleted"):
			want = m.UID() + ":" + life[0].RV() + ":deleted"
		case slices.Contains(object.RVs, m.RV()):
			told = append(told, m.RV())
		case object.Deleted && terminating(m): // a version of the server's own, on the way to the deletion
		default:
			h.wrong("%s never had this version (it had %v): %s", name, object.RVs, m)
		}
		if m.ID() != want {
			h.wrong("id %q, want %q", m.ID(), want)
		}
		if m.Is("deleted") && i < len(life)-1 {
			h.wrong("%s is told of after its end: %s", name, &life[i+1])
		}
	}
	if ended := life[len(life)-1].Is("deleted"); ended != object.Deleted {
		h.wrong("%s: deleted is %t, the bus says %t", name, object.Deleted, ended)
	}
	switch {
	case !h.o.Gap && !slices.Equal(told, object.RVs):
		h.wrong("missing: %s had the versions %v, the bus has %v", name, object.RVs, told)
	case !object.Deleted && !slices.Contains(told, object.LastRV()):
		h.wrong("missing: the last version %s of %s, the bus has %v", object.LastRV(), name, told)
	}
}

func terminating(m *bus.Message) bool {
	u := unstructured.Unstructured{Object: m.Body()}
	return u.GetDeletionTimestamp() != nil
}

// State checks that the bus, read from its beginning, leads to exactly the objects that the cluster has. Bodies that were
// truncated are compared no further.
func State(messages []bus.Message, cluster []unstructured.Unstructured, resourceID string) []string {
	copied := Mirror(messages, resourceID)
	var problems []string
	for _, u := range cluster {
		key := strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
		m, ok := copied[key]
		delete(copied, key)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("state: %s %s exists, the bus does not say so", resourceID, key))
		case m.Data.Truncated == nil && canonical(m.Body()) != canonical(kube.Body(u)):
			problems = append(problems, fmt.Sprintf("state: %s %s is %s, the bus says %s", resourceID, key, canonical(u.Object), canonical(m.Body())))
		}
	}
	for key, m := range copied {
		problems = append(problems, fmt.Sprintf("state: %s %s does not exist, the bus says: %s", resourceID, key, m))
	}
	return problems
}

// Mirror is the last event of every object of a resource that exists, as a consumer would keep it by the published rule: per
// UID ignore what is older, by epoch and resourceVersion, than the last, and ids that were seen. The key is namespace/name.
func Mirror(messages []bus.Message, resourceID string) map[string]*bus.Message {
	last := map[string]*bus.Message{} // by UID
	seen := map[string]bool{}         // ids
	copied := map[string]*bus.Message{}
	for i := range messages {
		m := &messages[i]
		collection, _, _ := strings.Cut(m.Attributes["collection"], "?")
		if collection != resourceID || m.OfCollection() || seen[m.ID()] || older(m, last[m.UID()]) {
			continue
		}
		last[m.UID()], seen[m.ID()] = m, true
		if !m.Is("deleted") {
			copied[m.Name()] = m
		} else if held := copied[m.Name()]; held != nil && held.UID() == m.UID() {
			delete(copied, m.Name())
		}
	}
	return copied
}

func older(m, last *bus.Message) bool {
	if last == nil || m.Epoch() > last.Epoch() {
		return false
	}
	return m.Epoch() < last.Epoch() || kube.CompareRV(m.RV(), last.RV()) < 0
}

func canonical(v any) string {
	b, _ := json.Marshal(v) // came from JSON
	return string(b)
}

// Collections are the events about a collection in their order. Of Kafka's copies, one in each partition, it is the first
// partition's.
func Collections(messages []bus.Message, collection string) []bus.Message {
	var out []bus.Message
	for _, m := range messages {
		if m.OfCollection() && m.Attributes["collection"] == collection && m.Partition == 0 {
			out = append(out, m)
		}
	}
	return out
}
