package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// buffers configures a disk buffer.
func (w *world) buffers() {
	w.config.Buffer = map[string]any{"path": filepath.Join(w.dir, "buffer")}
}

// buffered waits until the bridge has buffered n frames since its start.
func (w *world) buffered(n uint64) {
	w.t.Helper()
	w.awaitStatus(func(s bridge.Status) bool { return s.Buffer != nil && s.Buffer.Frames >= n })
}

// changesInBetween makes changes whose states in between only a watch can see.
func (w *world) changesInBetween(step string) {
	w.t.Helper()
	w.bulkPatch(w.widgets, "o", step, 0, 20)
	w.bulkPatch(w.widgets, "o", step+" again", 0, 20)
	w.create(w.widgets, "brief")
	w.delete(w.widgets, "brief")
}

// changes is the number of changes of changesInBetween.
const changes = 42

// The bus is away. The bridge buffers what it receives, is killed, and goes on buffering before it has found the bus again; then the API server
// loses its history. Every change is published once, and in order.
func TestBusAwayWithABuffer(t *testing.T) {
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.install()
			w.bridges(w.widgets)
			w.buffers()
			w.bulk(w.widgets, "o", 20)
			w.start()
			before := w.settle(w.widgets)
			w.busDown()
			w.patch(w.widgets, "o-0", "first")
			w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(w.widgets)).State == "buffered" })
			w.changesInBetween("one")
			w.buffered(1 + changes)
			w.bridge.Kill()
			w.run()
			w.changesInBetween("two")
			w.buffered(changes)
			w.bridge.Kill()
			w.changesInBetween("three") // nobody watches
			w.run()
			w.buffered(changes)
			w.expire()
			w.busUp()
			all := after(w.verify(check.Options{Types: []kube.Type{w.widgets}, Repeats: name == busKafka}), len(before))
			gaps := map[string]bool{}
			for i := range all {
				if all[i].Is("gap") {
					gaps[all[i].ID()] = true
				}
			}
			if len(gaps) > 1 { // the one at which the API server lost its history
				t.Errorf("want one gap, got %v", slices.Sorted(maps.Keys(gaps)))
			}
		})
	}
}
