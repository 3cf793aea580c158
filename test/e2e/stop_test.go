package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// The bridge is stopped several times under load, as by rolling upgrades. It delivers and commits the events that it has read, so that
// no event is repeated, even on Kafka with at-least-once delivery.
func TestStoppedWhileBusy(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name, types: []kube.Type{kube.ConfigMaps}})
			w.create(kube.ConfigMaps, "o")
			w.start()
			for round := range 5 {
				busy := make(chan error, 1)
				ctx := w.soon()
				go func() {
					busy <- kube.Each(200, func(i int) error {
						_, err := w.kube.Create(ctx, kube.ConfigMaps, fmt.Sprintf("o-%d-%d", round, i), sample(kube.ConfigMaps, ""))
						return err
					})
				}()
				before := len(w.since(0))
				w.onBus("the first of many", func(all []bus.Message) bool { return len(all) > before+5 })
				w.stop()
				says(t, w.bridge.Log(), "stopped: everything published is committed")
				w.must(<-busy)
				w.start()
			}
			all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
			w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: 1, Present: 1})
		})
	}
}

// A bridge that is stopped during an outage of its bus waits no longer than its shutdown timeout and reports the undelivered events, which
// the next start delivers.
func TestStoppedWhileBusIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.config.Shutdown = map[string]any{"timeout": "1s"}
	w.start()
	w.settle(kube.ConfigMaps)
	w.proxy.Refuse()
	w.bulk(kube.ConfigMaps, "o", 20)
	w.awaitStatus(func(s bridge.Status) bool { return !s.Ready })
	w.bridge.Signal(syscall.SIGTERM)
	w.exits(w.bridge, 1)
	says(t, w.bridge.Log(), "not acknowledged")
	w.proxy.Pass()
	w.start()
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
}

// An object that is too large for the bus is published without its body, with the size and digest of the body. Others are not
// affected.
func TestObjectTooLargeForTheBus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	create := func(name, fill string, size int) string {
		o, err := w.kube.Create(w.soon(), kube.ConfigMaps, name, kube.Fields{"data": map[string]any{"pad": strings.Repeat(fill, size)}})
		w.must(err)
		return string(o.GetUID())
	}
	uids := []string{create("listed", "x", 1<<20-10)}
	w.create(kube.ConfigMaps, "beside")
	w.start()
	uids = append(uids, create("live", "<", 450_000)) // the API server writes each as six bytes
	w.patch(kube.ConfigMaps, "beside", "flows on")
	w.patch(kube.ConfigMaps, "live", "still large")
	w.delete(kube.ConfigMaps, "listed")
	w.deletionPublished(uids[0])
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	truncated := 0
	for i := range all {
		m := &all[i]
		large := m.UID() == uids[0] || m.UID() == uids[1]
		if cut := m.Data.Truncated; cut == nil && large {
			t.Errorf("a body of %d bytes on a bus that takes 1 MiB? %s", len(m.Raw), m)
		} else if cut != nil {
			truncated++
			if !large || cut.Size <= 1<<20 || cut.Limit != 1<<20 || len(cut.SHA256) != 64 {
				t.Errorf("truncated: %+v: %s", cut, m)
			}
		}
	}
	if truncated != 4 {
		t.Errorf("%d events are truncated, want 4", truncated)
	}
	if s, err := w.bridge.Status(w.soon()); err != nil || !s.Ready {
		t.Errorf("not ready: %+v, %v", s, err)
	}
}
