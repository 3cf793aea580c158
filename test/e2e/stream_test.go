package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// buses are the buses on which a guarantee is tested.
var buses = []string{busNATS, busKafka}

// Every change of built-in and custom objects arrives in order, with the right id and with apiVersion and kind,
// whether a list, a watch or a reconciliation found it.
func TestEveryChangeArrivesInOrder(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.install()
			types := []kube.Type{kube.Pods, kube.ConfigMaps, kube.Deployments, w.widgets}
			w.bridges(types...)
			for _, typ := range types { // found by the first list
				w.create(typ, "listed")
			}
			w.start()
			for i := range 5 { // found by the watch
				for _, typ := range types {
					w.create(typ, fmt.Sprintf("live-%d", i))
					w.patch(typ, "listed", fmt.Sprint(i))
					w.patch(typ, fmt.Sprintf("live-%d", i), "only")
				}
			}
			for _, typ := range types {
				w.delete(typ, "live-0")
				w.create(typ, "live-0") // another object of the same name
				w.delete(typ, "listed")
			}
			messages := w.verify(check.Options{Types: types})
			for _, typ := range types {
				w.snapshotOf(typ, messages, bus.Counts{Listed: 1, Present: 1})
			}
			if name == busKafka {
				w.inEveryPartition(messages)
			}
		})
	}
}

// inEveryPartition checks that every partition of a topic has every collection event once.
func (w *world) inEveryPartition(messages []bus.Message) {
	w.t.Helper()
	partitions := map[string][]int{} // by id
	for i := range messages {
		if m := &messages[i]; m.OfCollection() {
			partitions[m.ID()] = append(partitions[m.ID()], m.Partition)
		}
	}
	for id, in := range partitions {
		if slices.Sort(in); !slices.Equal(in, []int{0, 1, 2}) {
			w.t.Errorf("%s is in the partitions %v, want it in each of the three, once", id, in)
		}
	}
}

// snapshotOf checks that the collection was opened and closed once, as a first list, with these counts.
func (w *world) snapshotOf(t kube.Type, messages []bus.Message, want bus.Counts) {
	w.t.Helper()
	found := check.Collections(messages, w.collection(t))
	if len(found) != 2 || !found[0].Is("gap") || !found[1].Is("synced") {
		w.t.Fatalf("%s: want one gap and one synced, got:\n%s", w.collection(t), bus.Tail(found, 20))
	}
	for i := range found {
		if m := &found[i]; m.Data.Reason != "reset" || m.Is("gap") && !m.Data.Reset || m.Attributes["origin"] != "snapshot" {
			w.t.Errorf("the first list is published as %s", m)
		}
	}
	if got := found[1].Data.Counts; got == nil || *got != want {
		w.t.Errorf("%s: counts %+v, want %+v", w.collection(t), got, want)
	}
}

// The first start publishes each existing object once, and a restart publishes none of them again.
func TestExistingObjectsAreAnnouncedOnce(t *testing.T) {
	t.Parallel()
	const n = 1000
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.bulk(kube.ConfigMaps, "old", n)
	w.start()
	before := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.snapshotOf(kube.ConfigMaps, before, bus.Counts{Listed: n, Present: n})
	w.stop()
	w.start()
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	if more := after(all, len(before)); len(more) != 2 {
		t.Errorf("after the restart more than the marker was published:\n%s", bus.Tail(more, 20))
	}
}

// Changes while the bridge is down are all published after its start, not only their outcome.
func TestChangesWhileDownArrive(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.install()
			types := []kube.Type{kube.ConfigMaps, w.widgets}
			w.bridges(types...)
			w.start()
			for _, typ := range types {
				w.create(typ, "kept")
				w.create(typ, "gone")
				w.create(typ, "again")
			}
			w.settle(types...)
			w.stop()
			for _, typ := range types {
				for i := range 20 {
					w.patch(typ, "kept", fmt.Sprint(i))
				}
				w.delete(typ, "gone")
				w.delete(typ, "again")
				w.create(typ, "again")
				w.create(typ, "brief")
				w.delete(typ, "brief")
			}
			w.start()
			messages := w.verify(check.Options{Types: types})
			for _, typ := range types { // the server still had the history: no second list
				w.snapshotOf(typ, messages, bus.Counts{})
			}
		})
	}
}

// Cluster-scoped objects have no namespace, and names of roles may have characters with a meaning in subjects. Each object
// still has a subject of its own.
func TestClusterScopedObjectsWithOddNames(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.config.Resources = []bridge.Resource{{Resource: clusterRoles.ResourceID(), LabelSelector: "of=" + w.ns}}
			labels := kube.Fields{"metadata": map[string]any{"labels": map[string]any{"of": w.ns}}}
			odd := []string{"system:node", "a*b", "a>b", "a.b", "a_b", "a=2Eb", "über", "with space", "UPPER"}
			create := func(when string) {
				for _, name := range odd {
					_, err := w.kube.Create(w.soon(), clusterRoles, w.ns+when+name, labels)
					w.must(err)
				}
			}
			create("-listed-")
			w.start()
			create("-live-")
			for _, name := range odd {
				w.patch(clusterRoles, w.ns+"-listed-"+name, "1")
				w.delete(clusterRoles, w.ns+"-live-"+name)
			}
			for _, o := range w.kube.Ledger.Objects(clusterRoles) {
				if o.Deleted {
					w.deletionPublished(o.UID)
				} else {
					w.published(o.UID, o.LastRV())
				}
			}
			all := w.since(0)
			w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{clusterRoles}}), all)
		})
	}
}

// All names that kubectl accepts for a resource have the same effect.
func TestResourceNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   kube.Type
		name bridge.Resource
	}{
		{kube.ConfigMaps, bridge.Resource{Resource: "cm"}},
		{kube.Deployments, bridge.Resource{Resource: "deploy.apps"}},
		{kube.Deployments, bridge.Resource{Resource: "deployments.v1.apps"}},
		{kube.Deployments, bridge.Resource{Resource: "deployments", Version: "v1", Group: "apps"}},
		{kube.Pods, bridge.Resource{Resource: "pods", Version: "v1"}},
	} {
		t.Run(strings.Trim(c.name.Resource+"."+c.name.Version+"."+c.name.Group, "."), func(t *testing.T) {
			w := newWorld(t, options{})
			c.name.Namespaces = []string{w.ns}
			w.config.Resources = []bridge.Resource{c.name}
			w.start()
			w.snapshotOf(c.of, w.verify(check.Options{Types: []kube.Type{c.of}}), bus.Counts{})
		})
	}
}

// count returns the number of messages on the bus.
func (w *world) count() int {
	w.t.Helper()
	all, err := w.log.Messages()
	w.must(err)
	return len(all)
}
