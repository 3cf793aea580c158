package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// If the published state becomes invalid, because the stream is lost or values are shown in another way, consumers
// receive a reset, drop their copy and get every object again. Later deletions are published as before.
func TestDeclaredReset(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"stream lost": func(w *world) {
			w.startNATSIn("another") // an empty server
		},
		"values shown otherwise": func(w *world) { w.config.Secrets = map[string]any{"values": "redact"} },
	} {
		t.Run(name, func(t *testing.T) {
			const objects = 30
			w := newWorld(t, options{types: []kube.Type{kube.Secrets}})
			w.bulk(kube.Secrets, "o", objects)
			w.start()
			w.settle(kube.Secrets)
			w.stop()
			w.delete(kube.Secrets, "o-0") // this deletion is not published, because consumers drop their copy
			lose(w)
			before := len(w.since(0))
			w.start()
			w.delete(kube.Secrets, "o-1")
			w.settle(kube.Secrets)

			since := w.since(before)
			said := check.Collections(since, w.collection(kube.Secrets))
			if len(said) != 2 || !said[0].Is("gap") || !said[0].Data.Reset || said[0].Data.Reason != "reset" || !isSynced(said[1]) {
				t.Fatalf("want a gap that says reset, and synced, got:\n%s", bus.Tail(said, 10))
			}
			if c := said[1].Data.Counts; c.Present != objects || c.Added+c.Modified+c.Deleted != 0 {
				t.Errorf("counts %+v, want %d present", *c, objects) // one gone, one marker more
			}
			published := map[string]string{}
			for i := range since {
				m := &since[i]
				switch {
				case m.OfCollection():
				case m.Is("present"):
					published[m.UID()] = m.RV()
					if m.Run() != said[0].Run() || m.Incarnation() != said[0].Run() {
						t.Errorf("of run %d and incarnation %d, want %d: %s", m.Run(), m.Incarnation(), said[0].Run(), m)
					}
				case m.Is("deleted"):
					if want := published[m.UID()]; m.RV() != want || m.Run() != said[0].Run() {
						t.Errorf("it ends run %d, rv=%s, want run %d, rv=%s: %s", m.Run(), m.RV(), said[0].Run(), want, m)
					}
				case m.Is("added") && published[m.UID()] != "":
					t.Errorf("added after it was present: %s", m)
				}
			}
			listed, _, err := w.kube.List(w.soon(), kube.Secrets, metav1.ListOptions{})
			w.must(err)
			copied := slices.Sorted(maps.Keys(check.Mirror(since, "secrets")))
			var uids []string
			for _, o := range listed {
				uids = append(uids, string(o.GetUID()))
			}
			if slices.Sort(uids); !slices.Equal(copied, uids) {
				t.Errorf("who dropped the copy then has %v, the cluster has %v", copied, uids)
			}
			w.stop()
			n := len(w.since(0))
			w.start() // the next start is no reset
			if all := after(w.settle(kube.Secrets), n); len(all) != 2 {
				t.Errorf("after another restart, beside the marker:\n%s", bus.Tail(all, 10))
			}
		})
	}
}

// If a checkpoint is lost while the bridge is off, consumers drop their copies because of the birth of the new one. So every collection is reset, though
// the stream has what was published.
func TestCheckpointLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"directory": func(w *world) {
			w.config.Checkpoint = map[string]any{"file": map[string]any{"path": filepath.Join(w.dir, "fresh")}}
		},
		"bucket": func(w *world) {
			nc, err := nats.Connect("nats://" + w.nats.Addr())
			w.must(err)
			defer nc.Close()
			js, err := jetstream.New(nc)
			w.must(err)
			names := js.StreamNames(w.soon(), jetstream.WithStreamListSubject("$KV.>"))
			bucket := <-names.Name()
			w.must(names.Err())
			w.must(js.DeleteStream(w.soon(), bucket))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
			if name == "bucket" {
				delete(w.config.Checkpoint, "file") // keep the checkpoint on the bus
			}
			w.bulk(kube.ConfigMaps, "o", 50)
			w.start()
			w.delete(kube.ConfigMaps, "o-0")
			before := len(w.settle(kube.ConfigMaps))
			w.stop()
			w.delete(kube.ConfigMaps, "o-1")
			w.patch(kube.ConfigMaps, "o-2", "while down")
			lose(w)
			w.start()
			w.onBus("synced", func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
			all := w.settle(kube.ConfigMaps)
			said := check.Collections(after(all, before), w.collection(kube.ConfigMaps))
			if len(said) != 2 || !said[0].Is("gap") || !said[0].Data.Reset || !isSynced(said[1]) {
				t.Errorf("want a gap that says reset, and synced, got:\n%s", bus.Tail(said, 10))
			}
			for _, m := range said {
				if m.Number("birth") > m.Incarnation() {
					t.Errorf("consumers ignore an incarnation below the birth: %s", &m)
				}
			}
			objects, _, err := w.kube.List(w.soon(), kube.ConfigMaps, metav1.ListOptions{})
			w.must(err)
			w.none(check.State(all, objects, kube.ConfigMaps.ResourceID()), all)
		})
	}
}

// The removal of a custom type deletes its objects. A type that is installed again is another one, with other objects.
func TestCustomTypeRemovedAndInstalledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	w.bulk(w.widgets, "o", 5)
	w.start()
	w.settle(w.widgets)
	w.must(w.kube.Uninstall(w.soon(), w.widgets))
	for _, o := range w.kube.Ledger.Objects(w.widgets) {
		w.deletionPublished(o.UID)
		w.kube.Ledger.Deleted(o.UID)
	}
	w.awaitStatus(func(s bridge.Status) bool {
		return slices.Contains([]string{"waiting", "gone"}, s.Find(w.collection(w.widgets)).State)
	})
	w.must(w.kube.Install(w.soon(), w.widgets))
	w.bulk(w.widgets, "o", 5)
	w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true})
}

// Two sinks are two pipelines: an outage of one does not delay the other.
func TestOneSinkDownTheOtherFlows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	onNATS, toNATS, natsSink := w.log, w.proxy, w.config.Sinks[0]
	w.startKafka()
	w.config.Sinks[0].Name = "kafka"
	w.config.Sinks = append(w.config.Sinks, natsSink)
	w.proxy.Refuse() // Kafka
	w.run()
	w.log, w.proxy = onNATS, toNATS
	kafka, toKafka := w.kafka, w.kafka.Proxy
	w.kafka = nil
	for i := range 5 {
		w.create(kube.ConfigMaps, fmt.Sprintf("o-%d", i))
		w.settle(kube.ConfigMaps)
	}
	w.awaitStatus(func(s bridge.Status) bool { return len(s.Sinks) == 2 && !s.Ready })
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}, Gap: true})
	toKafka.Pass()
	w.log, w.kafka = kafka.Log, kafka
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}, Gap: true, Repeats: true})
}
