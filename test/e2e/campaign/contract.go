package campaign

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// This file holds what the verdict on entries takes from the present contract: how an entry is configured, what a collection's
// name says, the consumer's rule, what an edit leads to, and which gaps are allowed. A change of the contract changes this file.

// typesAreHealed reports that an edit of `types` makes consumers complete again. At present it announces nothing by itself
// (docs/upgrade.md), so copies are not compared once an entry has left out types of events.
const typesAreHealed = false

// resource is the entry as it is configured.
func (e entry) resource(of string, selector string) bridge.Resource {
	r := bridge.Resource{Resource: of, Types: e.types, MetadataOnly: e.metadata, SyncedEvery: "1s"}
	switch e.by {
	case byLabel:
		r.LabelSelector = gadgetLabel + " in (" + strings.Join(e.of, ",") + ")"
	case byField:
		r.FieldSelector = "spec." + gadgetLabel + "=" + e.of[0]
	case byNamespace:
		r.Namespaces = e.of
	case byOtherNamespaces:
		r.ExcludeNamespaces = e.of
	}
	if e.labelled {
		r.NamespaceSelector = selector
	}
	if e.filter {
		r.Filter = `annotations[?"` + shownNote + `"].orValue("yes") != "no"`
	}
	return r
}

// view is what a collection holds, by its name.
type view struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

// viewOf reads a collection's name. What it does not say is not restricted.
func viewOf(collection string) view {
	v := view{labels: labels.Everything(), fields: fields.Everything()}
	_, rest, _ := strings.Cut(collection, "?")
	rest, text, _ := cutLast(rest, "fields=")
	if f, err := fields.ParseSelector(text); err == nil {
		v.fields = f
	}
	rest, text, _ = cutLast(rest, "labels=")
	if l, err := labels.Parse(text); err == nil {
		v.labels = l
	}
	_, v.namespace, _ = cutLast(rest, "namespace=")
	return v
}

func cutLast(s, name string) (before, value string, found bool) {
	i := strings.LastIndex(s, name)
	if i < 0 {
		return s, "", false
	}
	return strings.TrimSuffix(s[:i], "&"), s[i+len(name):], true
}

// selects reports whether a collection's selectors take a state of an object.
func (v view) selects(s gadgetState) bool {
	return (v.namespace == "" || v.namespace == s.namespace) && v.labels.Matches(labels.Set{gadgetLabel: s.value}) &&
		v.fields.Matches(fields.Set{"spec." + gadgetLabel: s.value, "metadata.namespace": s.namespace, "metadata.name": s.name})
}

// made reports whether an entry may be what has made a collection with this view.
func (v view) made(e entry) bool {
	for _, value := range gadgetValues {
		s := gadgetState{value: value, namespace: v.namespace}
		switch {
		case v.namespace == "" && e.by == byNamespace:
			return false
		case v.namespace == "":
			s.namespace = "any other"
		}
		if v.selects(s) != e.takes(s) {
			return false
		}
	}
	return true
}

// replica is a consumer's copy of a resource, from one partition or stream, by the rules of docs/events.md.
type replica struct {
	held   map[string]*bus.Message // UID -> the event that says how it is
	seen   map[string]*memory      // UID
	ended  map[string]bool         // collections after a `closed` that ends the copy
	opened map[string]*bus.Message // collection -> the gap that is open
	ids    map[string]bool         // of collection events
}

// memory is what the consumer's rule remembers of an object.
type memory struct {
	epoch      int
	rv         uint64
	collection string
	ids        map[string]bool
	last       *bus.Message
}

func newReplica() *replica {
	return &replica{map[string]*bus.Message{}, map[string]*memory{}, map[string]bool{}, map[string]*bus.Message{}, map[string]bool{}}
}

// apply takes an event; it returns false for one that the rule ignores.
func (r *replica) apply(m *bus.Message) bool {
	c := m.Attributes["collection"]
	if m.OfCollection() {
		if r.ids[m.ID()] {
			return false
		}
		r.ids[m.ID()] = true
	}
	switch {
	case m.Is("gap"):
		if m.Data.Reset || r.ended[c] && m.Data.Reason == "snapshot" {
			r.drop(c)
		}
		delete(r.ended, c)
		if m.Data.Reason != "resync" {
			r.opened[c] = m
		}
		return true
	case m.Is("synced"):
		gap := r.opened[c]
		switch m.Data.Reason {
		case "periodic":
		case "resync": // a list that finds another history has everything published again, and ends with that
			if gap != nil && gap.Data.Reason == "history" {
				delete(r.opened, c)
			}
		default:
			delete(r.opened, c)
		}
		return true
	case m.Is("closed"):
		r.ended[c] = m.Data.Reason != "selection" // of the others nobody is told what is deleted
		delete(r.opened, c)
		return true
	}
	known, epoch, rv := r.seen[m.UID()], m.Epoch(), number(m.RV())
	if known != nil && (known.ids[m.ID()] || epoch < known.epoch || epoch == known.epoch && rv < known.rv) {
		return false
	}
	switch {
	case known == nil:
		known = &memory{epoch: epoch, rv: rv, ids: map[string]bool{}}
		r.seen[m.UID()] = known
	case !m.Is("deleted"):
		known.epoch, known.rv = epoch, rv
	}
	known.ids[m.ID()], known.collection, known.last = true, c, m
	if m.Is("deleted") {
		delete(r.held, m.UID())
	} else {
		r.held[m.UID()] = m
	}
	return true
}

// drop is what a reset asks for.
func (r *replica) drop(collection string) {
	for uid, known := range r.seen {
		if known.collection == collection {
			delete(r.seen, uid)
			delete(r.held, uid)
		}
	}
}

// keptUp are the objects of the copy, without those of collections that have ended.
func (r *replica) keptUp() map[string]*bus.Message {
	kept := map[string]*bus.Message{}
	for uid, m := range r.held {
		if !r.ended[m.Attributes["collection"]] {
			kept[uid] = m
		}
	}
	return kept
}

// emptied reports whether a synced says that all objects of the collection are gone with their CRD or namespace. Its resourceVersion is
// the last one that the bridge has read before that.
func emptied(synced *bus.Message) bool { return synced.Data.Reason == "gone" }

// inherited reports that an object of the selection may be held as another collection's: one that a changed selection hands on
// is not published again. An object that the selection lacks may not be held as this collection's.
const inherited = true

// causes are the happenings, by what their names contain, of which a gap with the reason may come. A first list, and one that
// follows `closed`, need none.
func causes(reason string) []string {
	switch reason {
	case "expired":
		return []string{"entries' history forgotten", "that forgotten", "second sink blocked", "entries' CRD", "API server", "etcd"}
	case "history":
		return []string{"etcd"}
	case "gone":
		return []string{"entries' CRD"}
	case "filter":
		return []string{"edited"}
	case "reset":
		return []string{"stream deleted", "topic deleted"}
	case "resync":
		return []string{"resync of entries", "etcd"}
	case "snapshot", "interrupted":
		return []string{""} // whatever breaks off a list, or changes what is listed
	}
	return nil // of drift, too: nothing but the bridge writes to its bus
}

// caused reports whether something that had begun by then explains the gap.
func caused(m *bus.Message, first bool, happened []happening) bool {
	if first && m.Data.Reason == "snapshot" {
		return true
	}
	at := timeOf(m)
	return slices.ContainsFunc(happened, func(h happening) bool {
		return !h.at.After(at) && slices.ContainsFunc(causes(m.Data.Reason), func(c string) bool { return strings.Contains(h.name, c) })
	})
}

// filtersOf says whether the collection's entry may have let everything pass, or only what the filter takes, when the event was
// made. The bridge takes an edit over some time after it is written, so every edition until then counts.
func filtersOf(v view, editions []edition, until time.Time) (all, some bool) {
	for _, e := range editions {
		for _, one := range e.entries {
			if !e.at.After(until) && v.made(one) {
				all, some = all || !one.filter, some || one.filter
			}
		}
	}
	return all, some
}
