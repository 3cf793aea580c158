package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// ledger returns a ledger with two objects of one name: "old" was created at 10, updated at 12 and deleted, "new" was created at 20
// and updated at 22 and 24.
func ledger() *kube.Ledger {
	l := kube.NewLedger()
	l.Wrote(kube.ConfigMaps, object("old", "10"))
	l.Wrote(kube.ConfigMaps, object("old", "12"))
	l.Deleted("old")
	l.Wrote(kube.ConfigMaps, object("new", "20"))
	l.Wrote(kube.ConfigMaps, object("new", "22"))
	l.Wrote(kube.ConfigMaps, object("new", "24"))
	return l
}

func object(uid, rv string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ns", "name": "o", "uid": uid, "resourceVersion": rv},
	}}
}

// event returns an event as the bridge should publish it in run 5 of incarnation 5. A deletion has the version of the publication that it
// ends, and its body has the version of the deletion.
func event(typ, uid, rv, deletion string) bus.Message {
	body, err := json.Marshal(object(uid, max(rv, deletion)).Object)
	if err != nil {
		panic(err)
	}
	m := bus.Message{
		Place: uid + "@" + rv,
		Route: "k8s.c.core.configmaps.ns.o",
		Attributes: map[string]string{
			"specversion": "1.0", "id": fmt.Sprintf("configmaps:5:%s:%s:%s", uid, rv, typ), "source": "/clusters/c/core/configmaps",
			"type": "io.kubebridge.resource." + typ + ".v1", "subject": "ns/o", "time": "now", "dataschema": "d",
			"cluster": "c", "clusteruid": "u", "collection": "configmaps", "apiversion": "v1", "kind": "ConfigMap", "origin": "watch",
			"resource": "configmaps", "namespace": "ns", "name": "o", "uid": uid, "resourceversion": rv, "run": "5", "incarnation": "5",
		},
		Data: bus.Data{Object: body},
	}
	if deletion != "" {
		m.Attributes["deletionversion"] = deletion
	}
	return m
}

// of returns an event about the collection.
func of(typ, run, reason string) bus.Message {
	id := "configmaps:" + run + ":" + typ
	if typ == "synced" {
		id = "configmaps:" + run + ":1:synced"
	}
	return bus.Message{
		Place: typ + "@" + run,
		Attributes: map[string]string{
			"specversion": "1.0", "id": id, "source": "/clusters/c/core/configmaps", "type": "io.kubebridge.collection." + typ + ".v1", "time": "now",
			"dataschema": "d", "cluster": "c", "clusteruid": "u", "collection": "configmaps", "resource": "configmaps", "origin": "reconcile",
			"run": run, "incarnation": "5", "plan": "3", "plandigest": "d", "edit": "3", "birth": "1",
		},
		Data: bus.Data{Reason: reason, Reset: typ == "gap" && run == "5"},
	}
}

func good() []bus.Message {
	return []bus.Message{
		of("gap", "5", "reset"), event("present", "old", "10", ""), of("synced", "5", "reset"),
		event("modified", "old", "12", ""), event("deleted", "old", "12", "15"),
		event("added", "new", "20", ""), event("modified", "new", "22", ""), event("modified", "new", "24", ""),
	}
}

// with returns the messages of good and some more; without returns good without some.
func with(more ...bus.Message) []bus.Message { return append(good(), more...) }

func without(indexes ...int) []bus.Message {
	var rest []bus.Message
	for i, m := range good() {
		if !slices.Contains(indexes, i) {
			rest = append(rest, m)
		}
	}
	return rest
}

// having returns a message with another value of an attribute.
func having(m bus.Message, attribute, value string) bus.Message {
	attributes := map[string]string{}
	for k, v := range m.Attributes {
		attributes[k] = v
	}
	attributes[attribute] = value
	m.Attributes = attributes
	return m
}

func routed(m bus.Message, route, key string) bus.Message {
	m.Route, m.Key = route, key
	return m
}

// The checker finds each kind of problem. Tests that use it would be worthless otherwise.
func TestHistory(t *testing.T) {
	g := good()
	unbodied := event("deleted", "old", "12", "15")
	unbodied.Data.Object = json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"o","uid":"old","managedFields":[{}]}}`)
	last := func(m bus.Message) []bus.Message { return append(good()[:len(g)-1], m) }
	named := having(having(having(g[7], "collection", "configmaps:e@ns"), "entry", "e"), "id", "configmaps:e@ns:5:new:24:modified")
	again := having(having(event("added", "new", "24", ""), "run", "6"), "id", "configmaps:6:new:24:added")
	for _, c := range []struct {
		name     string
		messages []bus.Message
		o        Options
		want     string // "": no problem
	}{
		{"all", g, Options{}, ""},
		{"a version missing", without(6), Options{}, "missing: the versions [20 24] of configmaps ns/o (new) are published, want [20 22 24]"},
		{"a version missing in a gap", without(6), Options{Gap: true}, ""},
		{"the last version missing in a gap", without(7), Options{Gap: true}, "missing: the last version 24 of configmaps ns/o (new)"},
		{"an object missing in a gap", without(5, 6, 7), Options{Gap: true}, "missing: no event about configmaps ns/o (new)"},
		{"a past object missing", without(1, 3, 4), Options{}, "missing: no event about configmaps ns/o (old)"},
		{"a past object missing in a gap", without(1, 3, 4), Options{Gap: true}, ""},
		{"a deletion missing", without(4), Options{}, "a deletion is published: false, want true"},
		{"a deletion invented", with(event("deleted", "new", "24", "25")), Options{}, "a deletion is published: true, want false"},
		{"a successor before the end", []bus.Message{g[0], g[1], g[2], g[3], g[5], g[4], g[6], g[7]}, Options{}, "the object that had the name before, old, has not been published as deleted"},
		{"reordered", []bus.Message{g[0], g[2], g[3], g[1], g[4], g[5], g[6], g[7]}, Options{}, "is neither added nor present"},
		{"versions reordered", []bus.Message{g[0], g[1], g[2], g[3], g[4], g[5], g[7], g[6]}, Options{}, "does not increase"},
		{"resurrected", with(event("deleted", "new", "24", "25"), event("modified", "new", "26", "")), Options{}, "has an event after its deletion"},
		{"repeated", with(g[5]), Options{}, "repeated"},
		{"repeated where that is allowed", with(g[5], g[1]), Options{Repeats: true}, ""},
		{"published again in another run", with(of("gap", "6", "expired"), again, of("synced", "6", "expired")), Options{}, "consumers have it already"},
		{"published again where that is allowed", with(of("gap", "6", "expired"), again, of("synced", "6", "expired")), Options{Repeats: true}, ""},
		{"a version that never existed", with(event("modified", "new", "25", "")), Options{}, "never had this version"},
		{"unknown object", with(event("added", "who", "30", "")), Options{}, "does not belong on the bus"},
		{"unwanted object", g, Options{Wanted: func(o kube.Object) bool { return o.UID == "new" }}, "does not belong on the bus"},
		{"wrong id", last(having(g[7], "id", "configmaps:5:new:23:modified")), Options{}, `want "configmaps:5:new:24:modified"`},
		{"a deletion at another version", []bus.Message{g[0], g[1], g[2], g[3], event("deleted", "old", "15", "15"), g[5], g[6], g[7]}, Options{}, "ends the publication of run 5, rv=15"},
		{"a deletion of an object that may not have been published", without(1, 3), Options{Gap: true}, "is neither added nor present"},
		{"such a deletion by a list, where that is allowed", []bus.Message{g[0], g[2], having(g[4], "origin", "reconcile"), g[5], g[6], g[7]}, Options{Gap: true, Repeats: true}, ""},
		{"a list's deletion at a later version, where that is allowed", []bus.Message{g[0], g[1], g[2], having(g[4], "origin", "reconcile"), g[5], g[6], g[7]}, Options{Gap: true, Repeats: true}, ""},
		{"a list's deletion at a later version", []bus.Message{g[0], g[1], g[2], having(g[4], "origin", "reconcile"), g[5], g[6], g[7]}, Options{Gap: true}, "ends the publication of"},
		{"no kind", last(having(g[7], "kind", "")), Options{}, `kind is ""`},
		{"no cluster", last(having(g[7], "cluster", "")), Options{}, "no attribute cluster"},
		{"no run", last(having(g[7], "run", "")), Options{}, "no attribute run"},
		{"no plan", []bus.Message{having(g[0], "plan", ""), g[1], g[2], g[3], g[4], g[5], g[6], g[7]}, Options{}, "no attribute plan"},
		{"wrong subject", last(routed(g[7], "k8s.c.core.configmaps.ns.p", "")), Options{}, `want "k8s.c.core.configmaps.ns.o"`},
		{"wrong subject of an entry", last(named), Options{}, `want "k8s.c.core.configmaps.ns.o.e=40"`},
		{"wrong topic", last(routed(g[7], "k8s.c.core.pods", "c/core/configmaps/ns/o")), Options{}, `want "k8s.c.core.configmaps"`},
		{"wrong key", last(routed(g[7], "k8s.c.core.configmaps", "o")), Options{}, `want "c/core/configmaps/ns/o"`},
		{"managed fields", []bus.Message{g[0], g[1], g[2], g[3], unbodied, g[5], g[6], g[7]}, Options{}, "managedFields are on the bus"},
		{"added in the first list", []bus.Message{g[0], having(having(g[1], "type", "io.kubebridge.resource.added.v1"), "id", "configmaps:5:old:10:added"), g[2], g[3], g[4], g[5], g[6], g[7]}, Options{}, "first list: true"},
		{"present after the first list", []bus.Message{g[0], g[2], g[1], g[3], g[4], g[5], g[6], g[7]}, Options{}, "first list: false"},
		{"another incarnation", last(having(g[7], "incarnation", "4")), Options{}, "incarnation 4, want 5"},
		{"another run", last(having(g[7], "run", "6")), Options{}, "the event has run 6, want 5 as the last gap"},
		{"a run twice", with(g[0]), Options{}, "the run is 5, want a higher one than the previous run 5"},
		{"after closed", []bus.Message{g[0], g[1], g[2], g[3], g[4], g[5], g[6], of("closed", "5", "removed"), g[7]}, Options{}, "the collection is closed"},
		{"a gap of a new incarnation without reset", with(having(of("gap", "6", "expired"), "incarnation", "6")), Options{}, "a gap with reset false, run 6 and incarnation 6"},
		{"synced of another run", with(of("synced", "6", "expired")), Options{}, "the synced event has run 6, want 5 as the last gap"},
		{"a number of a synced twice", with(g[2]), Options{}, `want "configmaps:5:2:synced"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(History(ledger(), c.messages, c.o), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestState(t *testing.T) {
	g := good()
	now := []unstructured.Unstructured{*object("new", "24")}
	in := func(collection string, m bus.Message) bus.Message { return having(m, "collection", collection) }
	for _, c := range []struct {
		name     string
		messages []bus.Message
		cluster  []unstructured.Unstructured
		want     string
	}{
		{"the same", g, now, ""},
		{"repeats are ignored", with(g[1], g[5]), now, ""},
		{"an older version of a later run", with(having(event("modified", "new", "21", ""), "run", "6")), []unstructured.Unstructured{*object("new", "21")}, ""},
		{"a late event of an earlier incarnation", with(having(having(event("added", "new", "30", ""), "incarnation", "4"), "run", "4")), now, ""},
		{"another incarnation", with(having(of("gap", "6", "reset"), "incarnation", "6")), nil, ""},
		{"another checkpoint", with(having(having(in("configmaps:e", of("gap", "6", "reset")), "incarnation", "6"), "birth", "6")), nil, ""},
		{"closed", with(of("closed", "5", "removed"), event("modified", "new", "30", "")), nil, ""},
		{"in another collection as well", with(in("configmaps:e", event("added", "new", "24", "")), event("deleted", "new", "24", "25")), now, ""},
		{"the newer of two collections", with(in("configmaps:e", event("added", "new", "26", ""))), []unstructured.Unstructured{*object("new", "26")}, ""},
		{"missing", g[:5], now, "exists in the cluster, but the copy built from the bus does not have it"},
		{"ghost", g, nil, "does not exist in the cluster, but the copy built from the bus has it"},
		{"stale", g, []unstructured.Unstructured{*object("new", "26")}, `"resourceVersion":"26"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(State(c.messages, c.cluster, "configmaps"), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
