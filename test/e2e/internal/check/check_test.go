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

// ledger knows two objects of one name: "old" was created at 10, updated at 12 and deleted, "new" was created at 20
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

// event is what the bridge ought to publish; entry is where a deletion's object was announced.
func event(typ, uid, rv, entry string) bus.Message {
	version := rv
	if typ == "deleted" {
		version = entry
	}
	body, err := json.Marshal(object(uid, rv).Object)
	if err != nil {
		panic(err)
	}
	return bus.Message{
		Place: uid + "@" + rv,
		Route: "k8s.c.core.configmaps.ns.o",
		Attributes: map[string]string{
			"specversion": "1.0", "id": fmt.Sprintf("%s:%s:%s", uid, version, typ), "source": "/clusters/c/core/configmaps",
			"type": "io.kubebridge.resource." + typ + ".v1", "subject": "ns/o", "time": "now", "dataschema": "d",
			"cluster": "c", "clusteruid": "u", "collection": "configmaps", "apiversion": "v1", "kind": "ConfigMap",
			"resource": "configmaps", "namespace": "ns", "name": "o", "uid": uid, "resourceversion": rv,
		},
		Data: bus.Data{Object: body},
	}
}

func good() []bus.Message {
	return []bus.Message{
		event("added", "old", "10", ""), event("modified", "old", "12", ""), event("deleted", "old", "15", "10"),
		event("added", "new", "20", ""), event("modified", "new", "22", ""), event("modified", "new", "24", ""),
	}
}

// with and without are good and some more, or but for some.
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

// having is a message with another value of an attribute.
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

// A checker that lets something pass makes every test above it worthless.
func TestHistory(t *testing.T) {
	g := good()
	unbodied := event("deleted", "old", "15", "10")
	unbodied.Data.Object = json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"o","uid":"old","managedFields":[{}]}}`)
	for _, c := range []struct {
		name     string
		messages []bus.Message
		o        Options
		want     string // "" for nothing wrong
	}{
		{"all", g, Options{}, ""},
		{"a version missing", without(1), Options{}, "missing: configmaps ns/o (old) had the versions [10 12], the bus has [10]"},
		{"a version missing in a gap", without(1), Options{Gap: true}, ""},
		{"the last version missing in a gap", without(5), Options{Gap: true}, "missing: the last version 24 of configmaps ns/o (new)"},
		{"an object missing in a gap", without(3, 4, 5), Options{Gap: true}, "missing: nothing of configmaps ns/o (new)"},
		{"a past object missing", without(0, 1, 2), Options{}, "missing: nothing of configmaps ns/o (old)"},
		{"a past object missing in a gap", without(0, 1, 2), Options{Gap: true}, ""},
		{"a deletion missing", without(2), Options{}, "deleted is true, the bus says false"},
		{"a deletion invented", with(event("deleted", "new", "25", "20")), Options{}, "deleted is false, the bus says true"},
		{"a successor before the end", []bus.Message{g[0], g[1], g[3], g[2], g[4], g[5]}, Options{}, "the name's former holder old has not been deleted"},
		{"reordered", []bus.Message{g[1], g[0], g[2], g[3], g[4], g[5]}, Options{}, "begins with"},
		{"versions reordered", []bus.Message{g[0], g[1], g[2], g[3], g[5], g[4]}, Options{}, "out of order"},
		{"resurrected", []bus.Message{g[0], g[2], g[1], g[3], g[4], g[5]}, Options{}, "is told of after its end"},
		{"repeated", with(g[3]), Options{}, "repeated"},
		{"repeated where that is allowed", with(g[3], g[0]), Options{Repeats: true}, ""},
		{"another version under a known id", with(having(event("added", "new", "21", ""), "id", "new:20:added")), Options{Repeats: true}, "another event with the same id"},
		{"a version that never was", with(event("modified", "new", "25", "")), Options{}, "never had this version"},
		{"unknown object", with(event("added", "who", "30", "")), Options{}, "does not belong on the bus"},
		{"unwanted object", g, Options{Wanted: func(o kube.Object) bool { return o.UID == "new" }}, "does not belong on the bus"},
		{"wrong id", []bus.Message{g[0], g[1], g[2], g[3], g[4], having(g[5], "id", "new:23:modified")}, Options{}, `want "new:24:modified"`},
		{"deletion's id with its own version", []bus.Message{g[0], g[1], event("deleted", "old", "15", "15"), g[3], g[4], g[5]}, Options{}, `want "old:10:deleted"`},
		{"no kind", []bus.Message{g[0], g[1], g[2], g[3], g[4], having(g[5], "kind", "")}, Options{}, `kind is ""`},
		{"no cluster", []bus.Message{g[0], g[1], g[2], g[3], g[4], having(g[5], "cluster", "")}, Options{}, "no attribute cluster"},
		{"wrong subject", []bus.Message{g[0], g[1], g[2], g[3], g[4], routed(g[5], "k8s.c.core.configmaps.ns.p", "")}, Options{}, `want "k8s.c.core.configmaps.ns.o"`},
		{"wrong topic", []bus.Message{g[0], g[1], g[2], g[3], g[4], routed(g[5], "k8s.c.core.pods", "c/core/configmaps/ns/o")}, Options{}, `want "k8s.c.core.configmaps"`},
		{"wrong key", []bus.Message{g[0], g[1], g[2], g[3], g[4], routed(g[5], "k8s.c.core.configmaps", "o")}, Options{}, `want "c/core/configmaps/ns/o"`},
		{"managed fields", []bus.Message{g[0], g[1], unbodied, g[3], g[4], g[5]}, Options{}, "managedFields are on the bus"},
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
	for _, c := range []struct {
		name     string
		messages []bus.Message
		cluster  []unstructured.Unstructured
		want     string
	}{
		{"the same", g, now, ""},
		{"repeats are ignored", append(good(), g[0], g[1]), now, ""},
		{
			"an older version of a later history", append(good(), having(event("modified", "new", "21", ""), "epoch", "2")),
			[]unstructured.Unstructured{*object("new", "21")},
			"",
		},
		{"missing", g[:3], now, "exists, the bus does not say so"},
		{"ghost", g, nil, "does not exist, the bus says"},
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
