package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// Core events have no watch cache, so a compaction of etcd removes their history at once. Each test compacts the whole etcd, so
// the tests have a cluster of their own. It serves lists in pages, because only pages have tokens that can expire.
func TestFormsOfGoneFromEtcd(t *testing.T) {
	t.Parallel()
	own := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--feature-gates=WatchList=false", "--etcd-compaction-interval=0"}})
	for name, test := range map[string]func(*world){
		"410 in the stream":             goneInStream,
		"410 on a continue token":       goneOnContinueToken,
		"500 for want of a former body": goneForWantOfPrevKv,
	} {
		t.Run(name, func(t *testing.T) { test(newWorldOfEvents(t, own)) })
	}
}

// newWorldOfEvents returns a world that publishes core events, including their deletions, which are left out by default.
func newWorldOfEvents(t *testing.T, c *clustertest.Cluster) *world {
	t.Helper()
	w := newWorld(t, options{cluster: c, types: []kube.Type{kube.Events}})
	w.config.Resources[0].Types = []string{"added", "modified", "deleted"}
	return w
}

func goneInStream(w *world) {
	for _, name := range []string{"kept", "patched", "deleted"} {
		w.create(kube.Events, name)
	}
	w.start()
	before := len(w.settle(kube.Events))
	w.stop()
	w.patch(kube.Events, "patched", "unseen")
	w.delete(kube.Events, "deleted")
	w.create(kube.Events, "new")
	_, err := w.cluster.CompactEtcd(w.soon())
	w.must(err)
	w.start()
	w.comparedOnce(before, bus.Counts{Listed: 4, Added: 1, Modified: 1, Deleted: 1, Unchanged: 2}) // with a marker
	w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: true})
}

// comparedOnce waits for exactly one reconciliation after message number before, with the reason "expired", and checks its counts.
func (w *world) comparedOnce(before int, want bus.Counts) {
	w.t.Helper()
	all := w.onBus("the end of the comparison", func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
	said := check.Collections(after(all, before), w.collection(kube.Events))
	if len(said) != 2 || !said[0].Is("gap") || said[0].Data.Reason != "expired" || !said[1].Is("synced") {
		w.t.Fatalf("want one gap, expired, and one synced, got:\n%s", bus.Tail(said, 10))
	}
	if got := said[1].Data.Counts; *got != want {
		w.t.Errorf("counts %+v, want %+v", *got, want)
	}
}

// If the token of a list expires, the list must begin again: otherwise objects that were not listed would count as absent.
func goneOnContinueToken(w *world) {
	const n = 1500
	// 30 MB are more than the bridge reads while the bus does not answer, so that pages remain to be requested.
	w.bulkOf(kube.Events, "o", n, kube.Fields{"metadata": map[string]any{"annotations": map[string]any{"pad": strings.Repeat("x", 20<<10)}}})
	w.run()
	w.onBus("the list's beginning", func(all []bus.Message) bool { return len(all) > 0 })
	w.proxy.Hold()
	_, err := w.cluster.CompactEtcd(w.soon())
	w.must(err)
	w.proxy.Pass()
	w.onBus("the end of the list", func(all []bus.Message) bool { return slices.ContainsFunc(all, isSynced) })
	all := w.verify(check.Options{Types: []kube.Type{kube.Events}})
	said := check.Collections(all, w.collection(kube.Events))
	if len(said) != 2 || said[0].Data.Reason != "reset" || !said[0].Is("gap") || !said[1].Is("synced") {
		w.t.Fatalf("want one gap and one synced, got:\n%s", bus.Tail(said, 10))
	}
	if got, want := *said[1].Data.Counts, (bus.Counts{Listed: n, Present: n}); got != want { // the counts of the list that was completed
		w.t.Errorf("counts %+v, want %+v", got, want)
	}
}

// If etcd was compacted at the revision of a deletion, it has the deletion but not the deleted object, and the watch always fails there.
// The bridge may retry a few times, and must then list.
func goneForWantOfPrevKv(w *world) {
	for range 10 {
		w.create(kube.Events, "kept")
		w.create(kube.Events, "deleted")
		w.start()
		listed := w.onBus("the end of the list", func(all []bus.Message) bool {
			return slices.ContainsFunc(all, isSynced)
		})
		w.stop()
		w.delete(kube.Events, "deleted")
		deleted, err := w.cluster.Revision(w.soon())
		w.must(err)
		if to := listed[len(listed)-1].Data.To; to != strconv.FormatInt(deleted-1, 10) {
			w.t.Logf("listed at %s, deleted at %d: something else was written between the two", to, deleted)
			w = newWorldOfEvents(w.t, w.cluster)
			continue
		}
		w.must(w.cluster.CompactEtcdAt(w.soon(), deleted))
		w.run()
		w.comparedOnce(len(listed), bus.Counts{Listed: 1, Deleted: 1, Unchanged: 1})
		w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: true})
		return
	}
	w.t.Fatal("something else was written between list and deletion each time")
}
