package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// lostWrites is the number of writes after the backup. It is larger than the number of writes of a starting API server, so that the
// restored history is shorter.
const lostWrites = 500

// restore is a cluster whose etcd is restored from a backup.
type restore struct {
	*world
	types  []kube.Type
	before int               // messages on the bus before the restore
	uids   map[string]string // by type and name
	known  map[string]bool   // the UIDs on the bus before the restore
}

// newRestore creates objects, makes a backup, and changes them. Without types, they are ConfigMaps and widgets.
func newRestore(w *world, types ...kube.Type) *restore {
	w.t.Helper()
	if len(types) == 0 {
		w.install()
		types = []kube.Type{kube.ConfigMaps, w.widgets}
	}
	r := &restore{world: w, types: types, uids: map[string]string{}, known: map[string]bool{}}
	w.bridges(r.types...)
	r.each(func(t kube.Type) {
		for _, name := range []string{"kept", "patched", "deleted", "renewed"} {
			uid, _ := w.create(t, name)
			r.uids[t.Resource+name] = uid
		}
	})
	w.must(w.cluster.Stop())
	w.must(w.cluster.SaveEtcd(filepath.Join(w.dir, "backup")))
	w.must(w.cluster.Restart(w.soon()))
	w.start()
	r.each(func(t kube.Type) {
		w.patch(t, "patched", "lost")
		w.delete(t, "deleted")
		w.delete(t, "renewed")
		uid, _ := w.create(t, "renewed")
		r.uids[t.Resource+"lost-renewed"] = uid
		uid, _ = w.create(t, "new")
		r.uids[t.Resource+"new"] = uid
		w.bulk(t, "many", lostWrites)
	})
	all := w.settle(r.types...)
	w.committed()
	r.before = len(all)
	for i := range all {
		r.known[all[i].UID()] = true
	}
	return r
}

func (r *restore) each(do func(kube.Type)) {
	for _, t := range r.types {
		do(t)
	}
}

// happens stops the cluster, restores the backup, and starts the cluster again.
func (r *restore) happens() {
	r.t.Helper()
	r.must(r.cluster.Stop())
	r.must(r.cluster.RestoreEtcd(filepath.Join(r.dir, "backup")))
	r.must(r.cluster.Restart(r.soon()))
}

// synced waits until each collection was reconciled with the restored cluster, and checks that the bus has the cluster's state, also
// after a write in the new epoch.
func (r *restore) synced() []bus.Message {
	r.t.Helper()
	r.each(func(t kube.Type) {
		r.onBus("the comparison of "+t.Resource, func(all []bus.Message) bool {
			said := check.Collections(after(all, r.before), r.collection(t))
			return slices.ContainsFunc(said, isSynced)
		})
		r.patch(t, "kept", "in the new history")
	})
	all := r.settle(r.types...)
	r.each(func(t kube.Type) {
		objects, _, err := r.kube.List(r.soon(), t, metav1.ListOptions{})
		r.must(err)
		r.none(check.State(all, objects, t.ResourceID()), all)
	})
	seen := map[string]bool{}
	for i := range all {
		if id := all[i].ID(); seen[id] {
			r.t.Errorf("repeated: %s", &all[i])
		} else {
			seen[id] = true
		}
	}
	return all
}

// After etcd was restored from a backup, resourceVersions are assigned a second time. A watch from the old, higher version stays open and
// silent, and misses all changes until the counter has passed that version. The bridge must detect this, publish a gap, and publish
// the difference between the published state and the cluster's new state in another epoch.
func TestEtcdRestoredFromABackup(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{})
	t.Run("while running", func(t *testing.T) {
		r := newRestore(newWorld(t, options{cluster: own}))
		r.happens()
		r.secondEpoch(r.synced())
	})
	t.Run("while down", func(t *testing.T) {
		r := newRestore(newWorld(t, options{cluster: own}))
		r.stop()
		r.happens()
		r.start()
		r.secondEpoch(r.synced())
	})
}

// secondEpoch checks that each collection was reconciled once, with exactly the difference.
func (r *restore) secondEpoch(all []bus.Message) {
	r.t.Helper()
	since := after(all, r.before)
	r.each(func(t kube.Type) {
		said := check.Collections(since, r.collection(t))
		if len(said) != 2 || !said[0].Is("gap") || said[0].Data.Reason != "history" || !said[1].Is("synced") {
			r.t.Fatalf("want one gap because of the history, and one synced, got:\n%s", bus.Tail(said, 10))
		}
		want := bus.Counts{Listed: 4, Added: 2, Modified: 1, Deleted: 1 + 1 + lostWrites + 1, Unchanged: 1} // new, renewed, marker
		if got := said[1].Data.Counts; *got != want {
			r.t.Errorf("%s: counts %+v, want %+v", t.Resource, *got, want)
		}
		for name, want := range map[string]string{
			"patched": "modified", "deleted": "added", "new": "deleted", "renewed": "added", "lost-renewed": "deleted", "kept": "modified",
		} {
			uid := r.uids[t.Resource+name]
			if got := typesOf(since, uid); !slices.Equal(got, []string{want}) {
				r.t.Errorf("%s %s was published as %v, want %s", t.Resource, name, got, want)
			}
		}
	})
	runs := map[string]uint64{} // of the second epoch, in which only what ends is of a run before
	for i := range since {
		m := &since[i]
		if m.Is("gap") {
			runs[m.Collection()] = m.Run()
		}
		if run := m.Run(); m.Epoch() != 2 || runs[m.Collection()] == 0 || m.Is("deleted") != (run < runs[m.Collection()]) {
			r.t.Errorf("not of the second epoch, and its run: %s", m)
		}
		if m.Is("deleted") && !r.known[m.UID()] {
			r.t.Errorf("the deletion of what was never published: %s", m)
		}
	}
}
