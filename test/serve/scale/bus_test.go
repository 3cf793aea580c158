package scale

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

const (
	clusterName = "scale"
	clusterUID  = "9d3f4f2e-7f5c-4d8e-9d0b-0d5a3c1f7b11"
	run         = 1700000000000
	batchEvents = 500
	busPatience = 2 * time.Minute
)

var subject = func() *shape.Template {
	t, err := shape.ParseTemplate(shape.DefaultSubject, shape.SubjectNames)
	if err != nil {
		panic(err)
	}
	return t
}()

// bus is a NATS server with a stream on disk, and the sink of a bridge that writes events of pods to it.
type bus struct {
	t       *testing.T
	ctx     context.Context
	server  *server.Server
	sink    sink.Sink
	stream  jetstream.Stream
	dir     string
	pods    *pods
	encoder event.CollectionEncoder
	of      event.Collection
	seq     uint64
	version uint64 // the last resourceVersion
	synced  uint64 // the number of synced events
	events  int
	bytes   int64 // of the events
}

func newBus(t *testing.T, dir string, p *pods) *bus {
	t.Helper()
	b := &bus{t: t, ctx: t.Context(), dir: filepath.Join(dir, "bus"), pods: p, of: event.Collection{Resource: "pods"}, version: 1000}
	var err error
	b.server, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.dir, NoSigs: true, NoLog: true})
	b.must(err)
	b.server.Start()
	t.Cleanup(func() { b.server.Shutdown(); b.server.WaitForShutdown() })
	if !b.server.ReadyForConnections(busPatience) {
		t.Fatal("NATS does not start")
	}
	b.create()
	id := event.Identity{Bridge: "kubebridge", Cluster: clusterName, ClusterUID: clusterUID, Sink: "audit"}
	b.sink, err = nats.New(nats.Options{Config: nats.Config{URL: b.server.ClientURL()}, Identity: id})
	b.must(err)
	b.must(b.sink.Open(b.ctx, nil))
	t.Cleanup(func() { b.must(b.sink.Close()) })
	b.encoder = event.Encoder{Cluster: clusterName, ClusterUID: clusterUID, Format: event.Structured}.Of(&b.of)
	return b
}

// create creates the stream with compression, which the server does not begin later, so that the bus and the copy of it find room on one disk.
func (b *bus) create() {
	conn, err := natsgo.Connect(b.server.ClientURL())
	b.must(err)
	b.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	b.must(err)
	b.stream, err = js.CreateStream(b.ctx, jetstream.StreamConfig{Name: "K8S_" + clusterName, Subjects: []string{"k8s." + clusterName + ".>"}, Compression: jetstream.S2Compression})
	b.must(err)
}

func (b *bus) must(err error) {
	if err != nil {
		b.t.Helper()
		b.t.Fatal(err)
	}
}

// purge removes all messages, as retention does.
func (b *bus) purge() { b.must(b.stream.Purge(b.ctx)) }

// gap begins the first list of the pods, and sync ends it.
func (b *bus) gap() { b.write([]event.Record{b.beginning()}) }

func (b *bus) sync() { b.write([]event.Record{b.end()}) }

func (b *bus) beginning() event.Record {
	return b.record(event.Event{
		Type: event.Gap, Origin: event.Reconcile, Report: &event.Report{Reason: event.ReasonReset, Reset: true}, Plan: b.plan(),
	})
}

func (b *bus) end() event.Record {
	b.synced++
	version := strconv.FormatUint(b.version, 10)
	return b.record(event.Event{
		Type: event.Synced, Origin: event.Reconcile, ResourceVersion: version, Nth: b.synced, Report: &event.Report{Reason: event.ReasonReset, To: version}, Plan: b.plan(),
	})
}

func (b *bus) plan() *event.Plan {
	return &event.Plan{Number: 1, Digest: event.PlanDigest(map[string]uint64{b.of.ID(): 1}), Edit: 1, Birth: run}
}

// list writes the pods from one number up to another as a first list does.
func (b *bus) list(from, to int) {
	for from < to {
		var records []event.Record
		for ; from < to && len(records) < batchEvents; from++ {
			records = append(records, b.pod(from, event.Present, event.Snapshot))
		}
		b.write(records)
	}
}

// pod returns the event of a pod at the next resourceVersion.
func (b *bus) pod(i int, kind event.Type, origin event.Origin) event.Record {
	b.version++
	return b.record(event.Event{
		Type: kind, Origin: origin, APIVersion: "v1", Kind: "Pod", Namespace: b.pods.namespace(i), Name: b.pods.name(i), UID: b.pods.uid(i),
		ResourceVersion: strconv.FormatUint(b.version, 10), Object: b.pods.append(make([]byte, 0, 20<<10), i, b.version),
	})
}

// record encodes an event as the bridge does.
func (b *bus) record(e event.Event) event.Record {
	e.Time, e.Collection, e.Epoch, e.Run, e.Incarnation = time.Now(), &b.of, 1, strconv.Itoa(run), run
	values := shape.Values{Cluster: clusterName, Resource: b.of.Resource, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: e.UID, Type: e.Type.String()}
	r := event.Record{Event: &e, Format: event.Structured, Broadcast: e.Type.IsBroadcast(), Attributes: b.encoder.AppendAttributes(nil, &e, new(event.Text))}
	if r.Route = subject.Subject(values); r.Broadcast {
		r.Route = subject.EntryCollectionSubject(values, e.CollectionKind())
	}
	for _, a := range r.Attributes {
		if a.Name == "id" {
			r.ID = a.Value
		}
	}
	r.Value = event.Structured.Append(nil, r.Attributes, &e)
	return r
}

// write returns once the records are durable on the bus.
func (b *bus) write(records []event.Record) {
	b.seq++
	_, err := b.sink.Write(b.ctx, &event.Batch{Seq: b.seq, Records: records})
	b.must(err)
	for i := range records {
		b.events++
		b.bytes += int64(len(records[i].Value))
	}
}
