package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// killUnacknowledged makes changes, waits until all their events are on the bus, and kills the bridge before it receives an
// acknowledgement. So bus and checkpoint differ as much as possible. changes returns a function that recognises the last event.
func (w *world) killUnacknowledged(changes func() (last func(*bus.Message) bool)) {
	w.t.Helper()
	w.committed()
	w.proxy.Hold()
	// The bridge is stopped while the changes are made, so that it reads all of them at once and puts them into one batch.
	w.bridge.Signal(syscall.SIGSTOP)
	last := changes()
	w.bridge.Signal(syscall.SIGCONT)
	w.onBus("the last unacknowledged change", func(all []bus.Message) bool {
		return slices.ContainsFunc(all, func(m bus.Message) bool { return last(&m) })
	})
	w.bridge.Kill()
	w.proxy.Pass()
}

// committed waits until the bridge has committed all events on the bus.
func (w *world) committed() {
	w.t.Helper()
	messages, err := w.log.Messages()
	w.must(err)
	last := map[string]string{} // by collection
	for i := range messages {
		if m := &messages[i]; kube.CompareRV(m.RV(), last[m.Attributes["collection"]]) > 0 {
			last[m.Attributes["collection"]] = m.RV()
		}
	}
	w.awaitStatus(func(s bridge.Status) bool {
		for id, rv := range last {
			if kube.CompareRV(s.Find(id).Position, rv) < 0 {
				return false
			}
		}
		return true
	})
}

// A power failure can end the bridge between the bus's acknowledgement and the checkpoint. On NATS no event may be
// repeated. On Kafka, with at-least-once delivery, a repeated event must have the same id. No event may be missing on either.
func TestKillBetweenBusAndCheckpoint(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name, types: []kube.Type{kube.ConfigMaps}})
			w.onePartition()
			w.config.Sinks[0].Linger = "300ms"
			w.start()
			w.create(kube.ConfigMaps, "patched")
			w.create(kube.ConfigMaps, "deleted")
			w.settle(kube.ConfigMaps)
			for round := range 3 {
				// An idle Kafka client would wait for answers before it sends, so keep it active.
				w.bulk(kube.ConfigMaps, fmt.Sprintf("warm-%d", round), 30)
				w.settle(kube.ConfigMaps)
				w.killUnacknowledged(func() func(*bus.Message) bool {
					w.bulk(kube.ConfigMaps, fmt.Sprintf("new-%d", round), 20)
					w.create(kube.ConfigMaps, fmt.Sprintf("brief-%d", round))
					w.delete(kube.ConfigMaps, fmt.Sprintf("brief-%d", round))
					for i := range 5 {
						w.patch(kube.ConfigMaps, "patched", fmt.Sprintf("%d-%d", round, i))
					}
					w.delete(kube.ConfigMaps, "deleted")
					uid, _ := w.create(kube.ConfigMaps, "deleted")
					return func(m *bus.Message) bool { return m.UID() == uid }
				})
				w.patch(kube.ConfigMaps, "patched", "while down") // changes continue
				w.start()
			}
			all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}, Repeats: name == busKafka})
			w.snapshotOf(kube.ConfigMaps, all, bus.Counts{})
			w.repeated(all, name == busKafka)
		})
	}
}

// onePartition makes Kafka's topics have one partition, so that the bridge has one connection: opening another one would wait for
// answers that the proxy holds back.
func (w *world) onePartition() {
	if w.kafka != nil {
		w.config.Sinks[0].Kafka["create"] = map[string]any{"partitions": 1}
	}
}

// repeated checks whether events were repeated. Where the test provokes repetitions, their absence would mean that it tests nothing.
func (w *world) repeated(all []bus.Message, want bool) {
	w.t.Helper()
	ids := map[string]int{}
	repeats := 0
	for i := range all {
		if m := &all[i]; !m.OfCollection() {
			if ids[m.ID()]++; ids[m.ID()] > 1 {
				repeats++
			}
		}
	}
	if (repeats > 0) != want {
		w.t.Errorf("%d events came again, want some: %t", repeats, want)
	}
}

// An object is published just before a crash and deleted while the bridge is down, and the server forgets this history: neither the
// checkpoint nor the API server know the object any more. Its deletion must still be published.
func TestNoGhostAfterCrashAndGone(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.install()
			w.bridges(w.widgets)
			w.onePartition()
			w.config.Sinks[0].Linger = "300ms"
			w.start()
			w.create(w.widgets, "known")
			w.settle(w.widgets)
			uids := map[string]string{}
			w.killUnacknowledged(func() func(*bus.Message) bool {
				w.delete(w.widgets, "known")
				for _, object := range []string{"ghost", "renewed", "changed", "kept"} {
					uids[object], _ = w.create(w.widgets, object)
				}
				uid := uids["kept"]
				return func(m *bus.Message) bool { return m.UID() == uid }
			})
			w.delete(w.widgets, "ghost")
			w.delete(w.widgets, "renewed")
			w.create(w.widgets, "renewed") // another object of the same name
			w.patch(w.widgets, "changed", "while down")
			w.expire()
			w.start()
			for _, object := range []string{"ghost", "renewed"} {
				w.deletionPublished(uids[object])
			}
			all := w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true, Repeats: name == busKafka})
			types := map[string][]string{}
			for i := range all {
				if m := &all[i]; !m.OfCollection() {
					types[m.UID()] = append(types[m.UID()], m.Type())
				}
			}
			want := []string{"added", "modified"}
			if name == busKafka { // the checkpoint does not know whether the bus has it
				want[1] = "added"
			}
			if got := types[uids["changed"]]; !slices.Equal(got, want) {
				t.Errorf("the object announced before the crash and changed after it is published as %v, want %v", got, want)
			}
		})
	}
}
