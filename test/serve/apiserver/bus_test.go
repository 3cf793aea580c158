package apiserver

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap/zaptest"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/api"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var (
	// collection is the collection of all events, and pods its resource.
	collection = event.Collection{Resource: "pods"}
	pods       = store.Resource{Cluster: "prod", Name: "pods"}
)

// run is the run of the collection, which has no gap after its first list.
const run = 1000

// bus writes events of pods as a bridge does, and lets a mirror read them. Its caller makes one call at a time.
type bus struct {
	t       *testing.T
	mirror  *mirror.Mirror
	url     string // of bridge serve
	n       int64  // events so far
	nth     uint64 // synced events so far
	version uint64 // the newest resourceVersion
	clock   time.Time
	times   map[uint64]time.Time // by resourceVersion
}

// newBus returns a bus with an empty collection at resourceVersion 1, and a server of it.
func newBus(t *testing.T, namespaced bool) *bus {
	t.Helper()
	b := &bus{t: t, version: 1, clock: time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC), times: map[uint64]time.Time{}}
	s, err := store.Open("/data", store.Options{FS: vfs.NewMem()})
	b.must(err)
	b.mirror, err = mirror.Open(s)
	b.must(err)
	server := httptest.NewServer(api.New(api.Options{
		Mirror: b.mirror, Cluster: "prod", Version: "test", Log: zaptest.NewLogger(t),
		Builtin: func(resource string) (api.Builtin, bool) {
			return api.Builtin{APIVersion: "v1", Kind: "Pod", Namespaced: namespaced}, resource == "pods"
		},
	}))
	b.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		b.must(b.mirror.Close())
		b.must(s.Close())
	})
	b.send(event.Event{Type: event.Gap, Origin: event.Reconcile, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
	b.synced(event.ReasonReset)
	return b
}

func (b *bus) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// send makes the mirror read an event, and serve what it says.
func (b *bus) send(e event.Event) {
	b.t.Helper()
	b.clock = b.clock.Add(time.Second)
	b.times[b.version] = b.clock
	e.Collection, e.Time, e.Epoch, e.Incarnation, e.Run = &collection, b.clock, 1, run, strconv.Itoa(run)
	if e.Type.OfCollection() {
		e.Plan = &event.Plan{Number: 1, Digest: event.PlanDigest(map[string]uint64{collection.Resource: 1}), Edit: 1, Birth: 1}
	}
	encoder := event.Encoder{Cluster: pods.Cluster, ClusterUID: "c", Format: event.Structured}
	m := consumer.Message{Topic: "K8S", Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
	received, err := consumer.Decode(m)
	b.must(err)
	b.must(b.mirror.Apply(m, received))
	b.n++
	b.must(b.mirror.Commit(map[string]mirror.Offset{"K8S": {Log: "1", Next: b.n}}))
}

// synced says that the collection is complete at the newest resourceVersion.
func (b *bus) synced(reason event.Reason) {
	b.t.Helper()
	b.nth++
	version := strconv.FormatUint(b.version, 10)
	b.send(event.Event{Type: event.Synced, Origin: event.Reconcile, ResourceVersion: version, Nth: b.nth, Report: &event.Report{Reason: reason, To: version}})
}

// object publishes a change of an object. Before a deletion its resourceVersion was last.
func (b *bus) object(t event.Type, name store.Name, uid string, pod *example.Pod, last string) {
	b.t.Helper()
	body := examplev1.Pod{}
	b.must(scheme.Convert(pod, &body, nil))
	body.APIVersion, body.Kind = "v1", "Pod"
	text, err := json.Marshal(&body)
	b.must(err)
	e := event.Event{
		Type: t, Origin: event.Watch, APIVersion: body.APIVersion, Kind: body.Kind, Namespace: name.Namespace, Name: name.Name, UID: uid,
		ResourceVersion: pod.ResourceVersion, Object: text,
	}
	if t == event.Deleted {
		e.ResourceVersion, e.DeletionVersion = last, pod.ResourceVersion
	}
	b.send(e)
}

// trim deletes the history before a resourceVersion, as --retain does.
func (b *bus) trim(version uint64) {
	b.t.Helper()
	floors, err := b.mirror.Trim(b.times[version])
	b.must(err)
	for r, floor := range floors {
		b.must(b.mirror.Store().Trim(context.Background(), r, floor))
	}
}
