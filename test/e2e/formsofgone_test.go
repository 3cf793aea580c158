package e2e

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

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
		"410 in the stream":                   goneInStream,
		"410 on a continue token":             goneOnContinueToken,
		"500 for want of the replaced object": goneForWantOfReplaced,
		"500 for want of the deleted object":  goneForWantOfDeleted,
	} {
		t.Run(name, func(t *testing.T) { test(newWorldOfEvents(t, own, busNATS)) })
	}
}

// newWorldOfEvents returns a world that publishes core events, including their deletions, which are left out by default.
func newWorldOfEvents(t *testing.T, c *clustertest.Cluster, bus string) *world {
	t.Helper()
	w := newWorld(t, options{cluster: c, bus: bus, types: []kube.Type{kube.Events}})
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

// If etcd was compacted at the revision of a modification or deletion, it has the change but not the former object, and the watch
// always fails there. The bridge may retry a few times, and must then list.
func goneForWantOfReplaced(w *world) {
	w, before := w.compactedAt(func(w *world) { w.patch(kube.Events, "changed", "unseen") })
	w.run()
	w.comparedOnce(before, bus.Counts{Listed: 2, Modified: 1, Unchanged: 1})
	w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: true})
}

func goneForWantOfDeleted(w *world) {
	w, before := w.compactedAt(func(w *world) { w.delete(kube.Events, "changed") })
	if !w.etcdKeepsDeletions() {
		w.findsLostDeletion(before)
		return
	}
	w.run()
	w.comparedOnce(before, bus.Counts{Listed: 1, Deleted: 1, Unchanged: 1})
	w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: true})
}

// compactedAt changes the object "changed" of two while the bridge is stopped, and compacts etcd at the revision of the change, which is
// the first one after the bridge's position. It returns the world of these objects, and the number of messages on its bus.
func (w *world) compactedAt(change func(*world)) (_ *world, before int) {
	w.t.Helper()
	for range 10 {
		w.create(kube.Events, "kept")
		w.create(kube.Events, "changed")
		w.start()
		listed := w.onBus("the end of the list", func(all []bus.Message) bool {
			return slices.ContainsFunc(all, isSynced)
		})
		w.stop()
		change(w)
		changed, err := w.cluster.Revision(w.soon())
		w.must(err)
		if to := listed[len(listed)-1].Data.To; to == strconv.FormatInt(changed-1, 10) {
			w.must(w.cluster.CompactEtcdAt(w.soon(), changed))
			return w, len(listed)
		}
		w = newWorldOfEvents(w.t, w.cluster, busNATS) // something else was written in between
	}
	w.t.Fatal("something else was written between list and change each time")
	return nil, 0
}

// etcdKeepsDeletions reports whether etcd keeps a deletion if it is compacted at the deletion's revision, as etcd does from 3.5.16 on
// (issue 18089 of etcd).
func (w *world) etcdKeepsDeletions() bool {
	w.t.Helper()
	text, err := w.cluster.EtcdVersion(w.soon())
	w.must(err)
	v, err := version.ParseGeneric(text)
	w.must(err)
	return v.AtLeast(version.MustParseGeneric("3.5.16"))
}

// findsLostDeletion checks that a verification finds a deletion that etcd does not have. A watch gets neither the deletion nor an error,
// so the bridge has no reason to list.
func (w *world) findsLostDeletion(before int) {
	w.t.Helper()
	w.config.Resources[0].VerifyEvery = "1m"
	w.run()
	limit := w.within(time.Minute + patience)
	for found := false; !found; {
		w.settle(kube.Events) // without bookmarks, only later events end a verification
		soon, cancel := context.WithTimeout(limit, 5*time.Second)
		_, err := w.log.Wait(soon, func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
		cancel()
		if found = err == nil; !found && limit.Err() != nil {
			w.t.Fatalf("waiting for the end of the verification on the bus: %v", err)
		}
	}
	all := w.verify(check.Options{Types: []kube.Type{kube.Events}, Gap: true})
	said := check.Collections(after(all, before), w.collection(kube.Events))
	if len(said) != 2 || !said[0].Is("gap") || said[0].Data.Reason != "drift" || !said[1].Is("synced") {
		w.t.Fatalf("want one gap, drift, and one synced, got:\n%s", bus.Tail(said, 10))
	}
	if got := said[1].Data.Counts; got.Deleted != 1 || got.Added != 0 {
		w.t.Errorf("counts %+v, want one deleted and none added", *got)
	}
}
