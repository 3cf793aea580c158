package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap/zaptest"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// bus writes events as a bridge does, and lets a mirror read them.
type bus struct {
	t      *testing.T
	mirror *mirror.Mirror
	server *Server
	url    string
	n      uint64
	clock  time.Time
	runs   map[string]uint64
	starts map[string]uint64 // incarnations
	nth    map[string]uint64
	edits  map[string]map[string]uint64 // by resource
	// selections are those of collections, by their IDs, from the next gap or synced event on.
	selections map[string]event.Selection
	// parts is the number of partitions; 0: one. Events of collections go to all of them, or to those of only.
	parts int
	only  []int
}

var start = time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC)

// newBus returns an empty bus and the URL of a server of it.
func newBus(t *testing.T) *bus {
	t.Helper()
	s, err := store.Open("/data", store.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	handler := New(Options{
		Mirror: m, Cluster: "prod", Version: "test", Log: zaptest.NewLogger(t),
		Builtin: func(resource string) (Builtin, bool) {
			b, ok := map[string]Builtin{
				"pods":             {"v1", "Pod", true, []string{"po"}},
				"deployments.apps": {"apps/v1", "Deployment", true, []string{"deploy"}},
			}[resource]
			return b, ok
		},
	})
	handler.now = func() time.Time { return start.Add(2 * time.Hour) }
	served, answered := counting(handler)
	server := httptest.NewServer(served)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		answered()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bus{
		t: t, mirror: m, server: handler, url: server.URL, clock: start,
		runs: map[string]uint64{}, starts: map[string]uint64{}, nth: map[string]uint64{}, edits: map[string]map[string]uint64{}, selections: map[string]event.Selection{},
	}
}

// counting returns a handler, and a function that waits for its answers, for which a server of httptest does not wait if they are WebSockets.
func counting(h http.Handler) (counted http.Handler, wait func()) {
	var running sync.WaitGroup
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		h.ServeHTTP(w, r)
	}), running.Wait
}

func (b *bus) client(prefix string) *dynamic.DynamicClient {
	b.t.Helper()
	c, err := dynamic.NewForConfig(&rest.Config{Host: b.url + prefix, WarningHandler: rest.NoWarnings{}})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// send makes the mirror read an event.
func (b *bus) send(collection string, e event.Event) {
	b.t.Helper()
	col := event.ParseCollection(collection)
	b.clock = b.clock.Add(time.Second)
	e.Collection, e.Time, e.Epoch, e.Incarnation = &col, b.clock, max(e.Epoch, 1), b.starts[collection]
	if e.Run == "" {
		e.Run = strconv.FormatUint(b.runs[collection], 10)
	}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "c", Format: event.Structured}
	value := event.Structured.Append(nil, encoder.Attributes(&e), &e)
	to := []int{0}
	for n := 1; n < b.parts && e.Type.OfCollection(); n++ {
		to = append(to, n)
	}
	if b.only != nil {
		to = b.only
	}
	for _, part := range to {
		m := consumer.Message{Topic: "K8S", Partition: part, Partitions: b.parts, Value: value}
		received, err := consumer.Decode(m)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := b.mirror.Apply(m, received); err != nil {
			b.t.Fatal(err)
		}
	}
	b.n++
	if err := b.mirror.Commit(map[string]mirror.Offset{"K8S": {Log: "1", Next: int64(b.n)}}); err != nil {
		b.t.Fatal(err)
	}
	b.readUntil(b.clock)
}

// readUntil says that everything is read that the bus had at a time.
func (b *bus) readUntil(t time.Time) {
	b.t.Helper()
	all := map[string]bool{}
	for n := range max(b.parts, 1) {
		all[fmt.Sprintf("K8S/%d", n)] = true
	}
	if err := b.mirror.ReadUntil(t, all); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bus) plan(collection string) *event.Plan {
	col := event.ParseCollection(collection)
	if b.edits[col.ResourceID()] == nil {
		b.edits[col.ResourceID()] = map[string]uint64{}
	}
	b.edits[col.ResourceID()][collection] = 1
	return &event.Plan{Number: 1, Digest: event.PlanDigest(b.edits[col.ResourceID()]), Edit: 1, Birth: 1}
}

// gap begins a gap.
func (b *bus) gap(collection string, reason event.Reason) {
	b.t.Helper()
	b.runs[collection] = 1000 + b.n
	reset := reason == event.ReasonReset
	if reset {
		b.starts[collection] = b.runs[collection]
	}
	b.nth[collection] = 0
	b.send(collection, event.Event{Type: event.Gap, Origin: event.Reconcile, Report: &event.Report{Reason: reason, Reset: reset, Selection: b.selections[collection]}, Plan: b.plan(collection)})
}

func (b *bus) synced(collection string, version int, reason event.Reason) {
	b.t.Helper()
	b.listed(collection, version, reason, nil)
}

// listed sends the end of a list.
func (b *bus) listed(collection string, version int, reason event.Reason, counts *event.Counts) {
	b.t.Helper()
	b.nth[collection]++
	rv := strconv.Itoa(version)
	b.send(collection, event.Event{
		Type: event.Synced, Origin: event.Reconcile, ResourceVersion: rv, Nth: b.nth[collection],
		Report: &event.Report{Reason: reason, To: rv, Counts: counts, Selection: b.selections[collection]}, Plan: b.plan(collection),
	})
}

// close ends a collection, which the plan does not have any more.
func (b *bus) close(collection string) {
	b.t.Helper()
	col := event.ParseCollection(collection)
	plan := b.plan(collection)
	delete(b.edits[col.ResourceID()], collection)
	plan.Number, plan.Digest = 2, event.PlanDigest(b.edits[col.ResourceID()])
	b.send(collection, event.Event{Type: event.Closed, Origin: event.Reconcile, Report: &event.Report{Reason: "removed"}, Plan: plan})
}

// thing is an object of a test.
type thing struct {
	namespace, name, uid string
	version              int
	labels               string // "app=web"
}

func (x thing) body(apiVersion, kind string) []byte {
	labels := "{}"
	if k, v, ok := strings.Cut(x.labels, "="); ok {
		labels = fmt.Sprintf(`{%q:%q}`, k, v)
	}
	namespace := ""
	if x.namespace != "" {
		namespace = fmt.Sprintf(`"namespace":%q,`, x.namespace)
	}
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,%s"uid":%q,"resourceVersion":"%d","labels":%s,"creationTimestamp":"2026-03-14T08:00:00Z"}}`,
		apiVersion, kind, x.name, namespace, x.uid, x.version, labels)
}

var kinds = map[string][2]string{"pods": {"v1", "Pod"}, "deployments": {"apps/v1", "Deployment"}, "widgets": {"example.com/v1", "Widget"}, "customresourcedefinitions": {"apiextensions.k8s.io/v1", "CustomResourceDefinition"}}

func (b *bus) object(collection string, t event.Type, origin event.Origin, x thing) {
	b.t.Helper()
	k := kinds[event.ParseCollection(collection).Resource]
	b.send(collection, event.Event{
		Type: t, Origin: origin, APIVersion: k[0], Kind: k[1], Namespace: x.namespace, Name: x.name, UID: x.uid, ResourceVersion: strconv.Itoa(x.version),
		Object: x.body(k[0], k[1]),
	})
}

// deleted sends the deletion of an object at a version.
func (b *bus) deleted(collection string, x thing, version int) {
	b.t.Helper()
	k := kinds[event.ParseCollection(collection).Resource]
	last := x
	last.version = version
	b.send(collection, event.Event{
		Type: event.Deleted, Origin: event.Watch, APIVersion: k[0], Kind: k[1], Namespace: x.namespace, Name: x.name, UID: x.uid,
		ResourceVersion: strconv.Itoa(x.version), DeletionVersion: strconv.Itoa(version), Object: last.body(k[0], k[1]),
	})
}

// snapshot sends the first list of a collection.
func (b *bus) snapshot(collection string, version int, objects ...thing) {
	b.t.Helper()
	b.gap(collection, event.ReasonReset)
	for _, x := range objects {
		b.object(collection, event.Present, event.Snapshot, x)
	}
	b.synced(collection, version, event.ReasonReset)
}
