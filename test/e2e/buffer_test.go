package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
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
	t.Parallel()
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

// The selection is edited while the bus is away, twice in the running bridge and once by a restart. What the bridge receives meanwhile is
// published by the selection before, each state once and in order, and only the last edit takes effect, behind it.
func TestSelectionIsEditedWhileTheBusIsAway(t *testing.T) {
	t.Parallel()
	const lost = 24 // more than the frames that the kill can lose, which are buffered, and counted, once more
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.onePartition()
			w.install()
			w.bridges(w.widgets)
			w.config.Resources[0].LabelSelector = "audit=a"
			w.buffers()
			w.bulkOf(w.widgets, "o", 10, labelled(w.widgets, "a"))
			w.bulkOf(w.widgets, "other", 2, labelled(w.widgets, "b"))
			w.bulkOf(w.widgets, "pad", lost, labelled(w.widgets, "a"))
			path := w.writeConfig(w.config)
			w.bridge = w.launch("run", "-c", path)
			w.awaitStatus(w.isWatching(w.widgets))
			w.onBus("the first list", func(all []bus.Message) bool { return slices.ContainsFunc(all, isSynced) })
			before := len(w.since(0))
			w.busDown()
			w.patch(w.widgets, "o-0", "first")
			w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(w.widgets)).State == "buffered" })
			w.bulkPatch(w.widgets, "o", "one", 0, 10)
			w.buffered(11)
			for _, selector := range []string{"audit=c", "audit=d"} {
				w.config.Resources[0].LabelSelector = selector
				w.reload(path, w.config)
			}
			w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(w.widgets)).EditWaits != nil })
			w.bulkPatch(w.widgets, "o", "two", 0, 10)
			w.buffered(21)
			w.bridge.Kill()
			w.config.Resources[0].LabelSelector = "audit in (a,b)"
			w.run()
			w.bulkPatch(w.widgets, "o", "three", 0, 10)
			left := w.label("o-9", `"c"`)
			w.bulkPatch(w.widgets, "pad", "three", 0, lost)
			w.buffered(11 + lost)
			w.busUp()
			w.mirrors(w.widgets, "audit in (a,b)")
			w.onBus("the gap of the edit", func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
			w.published(w.patch(w.widgets, "other-0", "last"))
			w.byTheSelectionBefore(w.since(before), left)
		})
	}
}

func labelled(t kube.Type, audit string) kube.Fields {
	fields := sample(t, "bulk")
	fields["metadata"] = map[string]any{"labels": map[string]any{"audit": audit}}
	return fields
}

// byTheSelectionBefore checks that every change of the objects o-0 to o-9 is on the bus once and in order, before the only gap. left is the
// resourceVersion at which the last one left the selection.
func (w *world) byTheSelectionBefore(all []bus.Message, left string) {
	w.t.Helper()
	gap := slices.IndexFunc(all, func(m bus.Message) bool { return m.Is("gap") })
	gaps := map[string]bool{}
	for i := range all {
		if all[i].Is("gap") {
			gaps[all[i].ID()] = true
		}
	}
	if len(gaps) != 1 {
		w.t.Fatalf("want one gap, got %v", slices.Sorted(maps.Keys(gaps)))
	}
	got := map[string][]string{}
	for i := range all[:gap] {
		m := &all[i]
		rv := m.RV()
		if m.Is("deleted") {
			rv = m.Attributes["deletionversion"]
		}
		if !slices.Contains(got[m.UID()], rv) { // at least once
			got[m.UID()] = append(got[m.UID()], rv)
		}
	}
	for _, o := range w.kube.Ledger.Objects(w.widgets) {
		want := o.RVs[1:] // the creation was published before
		if strings.HasPrefix(o.Name, "other") {
			want = nil
		}
		if !slices.Equal(got[o.UID], want) {
			w.t.Errorf("%s: before the gap the bus has %q, want %q (left the selection at %s)", o.Name, got[o.UID], want, left)
		}
	}
}
