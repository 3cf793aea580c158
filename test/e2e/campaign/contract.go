package campaign

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// This file has the parts of the contract that the verdict on entries uses: how an entry is configured, which collections it makes, and
// which gaps are allowed.

// resource returns the entry's configuration.
func (e entry) resource(of string, selector string) bridge.Resource {
	r := bridge.Resource{Resource: of, Name: e.name, Types: e.types, MetadataOnly: e.metadata, SyncedEvery: "1s"}
	switch e.selectBy {
	case byLabel:
		r.LabelSelector = gadgetLabel + " in (" + strings.Join(e.values, ",") + ")"
	case byField:
		r.FieldSelector = "spec." + gadgetLabel + "=" + e.values[0]
	case byNamespace:
		r.Namespaces = e.values
	case byOtherNamespaces:
		r.ExcludeNamespaces = e.values
	}
	if e.labelled {
		r.NamespaceSelector = selector
	}
	if e.filter {
		r.Filter = `annotations[?"` + shownNote + `"].orValue("yes") != "no"`
	}
	return r
}

// perNamespace reports whether the entry makes one collection per namespace.
func (e entry) perNamespace() bool { return e.selectBy == byNamespace || e.labelled }

// entryOf returns the parts of a collection's ID: the name of the entry, and the namespace, which is "" for a collection of all namespaces.
func entryOf(collection string) (name, namespace string) {
	collection, namespace, _ = strings.Cut(collection, "@")
	_, name, _ = strings.Cut(collection, ":")
	return name, namespace
}

// entry returns the entry that makes a collection.
func (e edition) entry(collection string) (entry, bool) {
	name, namespace := entryOf(collection)
	for _, one := range e.entries {
		if one.name == name && one.perNamespace() == (namespace != "") && (one.selectBy != byNamespace || slices.Contains(one.values, namespace)) {
			return one, true
		}
	}
	return entry{}, false
}

// holds reports whether a collection of the edition selects a state.
func (e edition) holds(collection string, s gadgetState) bool {
	one, configured := e.entry(collection)
	_, namespace := entryOf(collection)
	return configured && (namespace == "" || namespace == s.namespace) && one.takes(s) && (!one.filter || s.shown)
}

// collections returns the IDs of the edition's collections.
func (e edition) collections(resource string) []string {
	ids := map[string]bool{}
	for _, one := range e.entries {
		id := resource
		if one.name != "" {
			id += ":" + one.name
		}
		switch {
		case one.labelled:
			for namespace, is := range e.labelled {
				if is {
					ids[id+"@"+namespace] = true
				}
			}
		case one.selectBy == byNamespace:
			for _, namespace := range one.values {
				ids[id+"@"+namespace] = true
			}
		default:
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// takenOver is how long a bridge may take to follow an edit.
const takenOver = 30 * time.Second

// until returns the editions that may be in effect at a time, for a collection or for all of them (""). An edit takes effect
// some time after it is written.
func until(editions []edition, collection string, at time.Time) (some []edition) {
	for _, e := range editions {
		if _, configured := e.entry(collection); !e.since.After(at) && (configured || collection == "") {
			some = append(some, e)
		}
	}
	return some
}

// partial reports whether an entry that leaves out types of events may be in effect at a time. Copies cannot be compared then.
func partial(editions []edition, collection string, at time.Time) bool {
	for i, e := range editions {
		if e.since.After(at) || i+1 < len(editions) && editions[i+1].since.Add(takenOver).Before(at) {
			continue
		}
		for _, one := range e.entries {
			name, _ := entryOf(collection)
			if one.types != nil && (collection == "" || one.name == name) {
				return true
			}
		}
	}
	return false
}

// causes returns, for each reason of a gap, texts of which one must be in the name of a fault that caused it. The first reset of a
// collection, and a reset that follows `closed`, needs no fault.
func causes() map[event.Reason][]string {
	return map[event.Reason][]string{
		event.ReasonExpired:     {"entries' history expired", "second sink blocked", "entries' CRD", "API server", "etcd"},
		event.ReasonHistory:     {"etcd"},
		event.ReasonGone:        {"entries' CRD"},
		event.ReasonFilter:      {"edited"},
		event.ReasonSelection:   {"edited"},
		event.ReasonReturned:    {"edited", "namespace leaves", "entries' CRD"},
		event.ReasonReset:       {"stream deleted", "topic deleted", "edited", "namespace leaves"},
		event.ReasonResync:      {"resync of entries", "etcd"},
		event.ReasonInterrupted: {""}, // any fault can interrupt a list
		event.ReasonDrift:       {},   // nothing but the bridge writes to its bus
		event.ReasonRewritten:   {},   // the CRD has no defaults
	}
}

// caused reports whether a fault that had begun before the gap explains it.
func caused(m *bus.Message, first bool, happened []happening) bool {
	if first && m.Data.Reset {
		return true
	}
	at := timeOf(m)
	return slices.ContainsFunc(happened, func(h happening) bool {
		return !h.at.After(at) && slices.ContainsFunc(causes()[event.Reason(m.Data.Reason)], func(c string) bool { return strings.Contains(h.name, c) })
	})
}
