package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// After a restart, for example during an upgrade, the API server has lost the history of every collection. The
// bridge recovers, repeats no event and loses none.
func TestAPIServerRestarts(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{})
	w := newWorld(t, options{cluster: own})
	w.install()
	types := []kube.Type{kube.ConfigMaps, w.widgets}
	w.bridges(types...)
	const objects = 100
	for _, typ := range types {
		w.bulk(typ, "o", objects)
	}
	w.start()
	for _, restart := range []struct {
		name string
		down func()
	}{
		{"killed", own.Kill},
		{"stopped", func() { w.must(own.Stop()) }},
	} {
		before := len(w.settle(types...))
		for _, typ := range types {
			w.patch(typ, "o-1", "last before it was "+restart.name)
		}
		restart.down()
		w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(w.widgets)).State == "waiting" })
		w.must(own.Restart(w.soon()))
		for _, typ := range types {
			w.patch(typ, "o-2", "first after it was "+restart.name)
			w.create(typ, "new-"+restart.name)
		}
		all := w.verify(check.Options{Types: types, Gap: true})
		for _, typ := range types {
			said := check.Collections(after(all, before), w.collection(typ))
			if len(said) != 2 || !said[0].Is("gap") || !said[1].Is("synced") {
				t.Fatalf("%s: want one gap and one synced, got:\n%s", restart.name, bus.Tail(said, 10))
			}
			if c := said[1].Data.Counts; c.Unchanged < objects-2 || c.Deleted != 0 {
				t.Errorf("%s: counts %+v for %d objects of which two were changed", restart.name, *c, objects)
			}
		}
	}
}

// A restart of the bus, or broken connections to it, only delay events.
func TestBusRestarts(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name, types: []kube.Type{kube.ConfigMaps}})
			w.start()
			w.create(kube.ConfigMaps, "o")
			w.settle(kube.ConfigMaps)
			for i := range 3 {
				w.busDown()
				for step := range 20 {
					w.patch(kube.ConfigMaps, "o", fmt.Sprintf("%d-%d", i, step))
				}
				w.awaitStatus(func(s bridge.Status) bool { return !s.Ready && s.Sinks[0].Failing != "" })
				w.busUp()
				w.settle(kube.ConfigMaps)
			}
			for i := range 3 { // while the bridge is writing
				w.proxy.Cut()
				w.bulk(kube.ConfigMaps, fmt.Sprintf("more-%d", i), 50)
			}
			all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}, Repeats: name == busKafka})
			w.snapshotOf(kube.ConfigMaps, all, bus.Counts{})
		})
	}
}

// busDown stops the server, or makes kfake unreachable, because a stopped kfake loses its topics.
func (w *world) busDown() {
	w.t.Helper()
	if w.nats != nil {
		w.nats.Stop()
	} else {
		w.proxy.Refuse()
	}
}

func (w *world) busUp() {
	w.t.Helper()
	if w.nats != nil {
		w.must(w.nats.Start())
	} else {
		w.proxy.Pass()
	}
}

// outage is long enough for the API server to end the watch, and for unbounded buffers to exceed the limit. It ends well before 75 seconds, which is how
// long the API server can replay a change for certain (eventFreshDuration in its watch cache): later, the bridge must list.
const outage = 40 * time.Second

// After an outage of the bus during many changes, all events arrive in order. The bridge's memory stays bounded during the outage.
func TestBusDownForAWhile(t *testing.T) {
	t.Parallel()
	const (
		objects = 50
		updates = 5000
		limit   = 200 << 20 // bytes of memory
	)
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	body := kube.Fields{"data": map[string]any{"pad": strings.Repeat("x", 20<<10)}} // 100 MB of updates
	w.bulkOf(kube.ConfigMaps, "o", objects, body)
	w.start()
	w.settle(kube.ConfigMaps)
	w.proxy.Refuse()
	began := time.Now()
	most := 0
	for round := 0; round < updates/objects && time.Since(began) < outage; round++ { // a slow machine makes fewer
		w.bulkPatch(kube.ConfigMaps, "o", fmt.Sprint(round), 0, objects)
		rss, err := w.bridge.Memory("VmRSS")
		w.must(err)
		most = max(most, rss)
		// Distribute the updates over the outage.
		time.Sleep(time.Until(began.Add(time.Duration(round) * outage * objects / updates)))
	}
	w.awaitStatus(func(s bridge.Status) bool { return !s.Ready })
	w.proxy.Pass()
	last := w.kube.Ledger.Objects(kube.ConfigMaps)
	w.onBus("the last updates", func(all []bus.Message) bool {
		return !slices.ContainsFunc(last, func(o kube.Object) bool {
			return !slices.ContainsFunc(all, func(m bus.Message) bool { return m.UID() == o.UID && m.RV() == o.LastRV() })
		})
	})
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: objects, Present: objects})
	peak, err := w.bridge.Memory("VmHWM")
	w.must(err)
	t.Logf("memory: at most %d MiB during the outage, %d MiB in all", most>>20, peak>>20)
	if !raceEnabled && peak > limit {
		t.Errorf("the bridge took %d MiB, want at most %d", peak>>20, limit>>20)
	}
}
