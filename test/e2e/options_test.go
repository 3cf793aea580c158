package e2e

import (
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// listed returns the objects of a type in the cluster.
func (w *world) listed(t kube.Type, labelSelector string, namespaces []string) (objects []unstructured.Unstructured) {
	w.t.Helper()
	for _, ns := range namespaces {
		some, _, err := w.kube.In(ns).List(w.soon(), t, metav1.ListOptions{LabelSelector: labelSelector})
		w.must(err)
		objects = append(objects, some...)
	}
	return objects
}

// asks configures an entry for ConfigMaps of the world's namespace with options.
func (w *world) asks(r bridge.Resource) {
	r.Resource, r.Namespaces = "configmaps", []string{w.ns}
	w.config.Resources = []bridge.Resource{r}
}

// says checks what the gap and synced events say that the collections have.
func (w *world) says(all []bus.Message, want bus.Selection) {
	w.t.Helper()
	if len(syncedOf(all)) == 0 {
		w.t.Error("there is no synced event")
	}
	for i := range all {
		m := &all[i]
		if (m.Type() == "gap" || isSynced(*m)) && !reflect.DeepEqual(m.Data.Selection, want) {
			w.t.Errorf("it says that the collection has %+v, want %+v: %s", m.Data.Selection, want, m)
		}
	}
}

// With metadataOnly, objects are published with their metadata only, under their own kind.
func TestMetadataOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.asks(bridge.Resource{MetadataOnly: true})
	w.create(kube.ConfigMaps, "listed")
	w.create(kube.ConfigMaps, "deleted")
	w.run()
	w.onBus("the end of the list", func(all []bus.Message) bool { return slices.ContainsFunc(all, isSynced) })
	w.patch(kube.ConfigMaps, "listed", "live")
	w.delete(kube.ConfigMaps, "deleted")
	all := w.settle(kube.ConfigMaps)
	w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps}}), all)
	for i := range all {
		if m := &all[i]; m.Body()["data"] != nil {
			t.Errorf("its data are on the bus: %s", m)
		}
	}
	w.says(all, bus.Selection{MetadataOnly: true})
}

// With snapshot skip, the objects that exist at the start are not published, but all their later changes are.
func TestSnapshotSkip(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.asks(bridge.Resource{Snapshot: "skip"})
	uids := map[string]string{}
	for _, name := range []string{"untouched", "patched", "deleted"} {
		uids[name], _ = w.create(kube.ConfigMaps, name)
	}
	w.start()
	_, rv := w.patch(kube.ConfigMaps, "patched", "live")
	w.published(uids["patched"], rv)
	w.delete(kube.ConfigMaps, "deleted")
	all := w.settle(kube.ConfigMaps)
	if types := typesOf(all, uids["untouched"]); len(types) > 0 {
		t.Errorf("published what was there: %v", types)
	}
	if types := typesOf(all, uids["patched"]); len(types) != 1 {
		t.Errorf("published a change as %v", types)
	}
	w.stop()
	w.start()
	if more := after(w.settle(kube.ConfigMaps), len(all)); len(more) != 2 {
		t.Errorf("after a restart, more than the marker:\n%s", bus.Tail(more, 10))
	}
}

// With types, no other types of events are published.
func TestTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.asks(bridge.Resource{Types: []string{"added", "deleted"}})
	uid, _ := w.create(kube.ConfigMaps, "o")
	w.start()
	w.patch(kube.ConfigMaps, "o", "unheard")
	w.delete(kube.ConfigMaps, "o")
	all := w.deletionPublished(uid)
	if got, want := typesOf(all, uid), []string{"present", "deleted"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	w.says(all, bus.Selection{Types: []string{"added", "deleted"}})
}

// Core events expire, thousands an hour. By default their deletions are not published.
func TestExpiryOfEventsIsNotPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.Events}})
	uid, _ := w.create(kube.Events, "o")
	w.start()
	w.patch(kube.Events, "o", "live")
	w.delete(kube.Events, "o")
	all := w.settle(kube.Events)
	if got, want := typesOf(all, uid), []string{"present", "modified"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	w.says(all, bus.Selection{Types: []string{"added", "modified"}})
}

// With syncedEvery, synced events are repeated, so that a consumer can distinguish a quiet cluster from a failed bridge.
func TestSyncedEvery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.asks(bridge.Resource{SyncedEvery: "1s"})
	w.create(kube.ConfigMaps, "o")
	w.start()
	w.onBus("the second synced", func(all []bus.Message) bool { return len(syncedOf(all)) >= 2 })
	_, rv := w.patch(kube.ConfigMaps, "o", "live")
	w.patch(kube.ConfigMaps, "o", "and on") // the position follows one change behind; in a quiet collection, the next proof takes a minute
	all := w.onBus("a synced that has the change", func(all []bus.Message) bool {
		return slices.ContainsFunc(syncedOf(all), func(m bus.Message) bool { return kube.CompareRV(m.RV(), rv) >= 0 })
	})
	w.uniqueIDs()
	for _, m := range syncedOf(all) {
		if m.Data.To == "" || m.Data.To != m.RV() {
			t.Errorf("complete up to %q: %s", m.Data.To, &m)
		}
	}
}

func syncedOf(all []bus.Message) (synced []bus.Message) {
	for _, m := range all {
		if isSynced(m) {
			synced = append(synced, m)
		}
	}
	return synced
}

// A resync publishes the present state for a consumer that has lost its copy, while the bridge continues.
func TestResync(t *testing.T) {
	t.Parallel()
	const n = 50
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.bulk(kube.ConfigMaps, "o", n)
	path := w.startWithFile()
	before := len(w.settle(kube.ConfigMaps))
	command := w.launch("resync", "configmaps", "-c", path)
	w.exits(command, 0)
	says(t, command.Output()+command.Log(), w.collection(kube.ConfigMaps))
	all := w.onBus("the end of the resync", func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
	present := map[string]bool{}
	for _, m := range after(all, before) {
		switch {
		case m.Is("present"):
			present[m.UID()] = true
		case !m.OfCollection():
			t.Errorf("something else was published: %s", &m)
		}
	}
	if want := len(w.kube.Ledger.Objects(kube.ConfigMaps)); len(present) != want {
		t.Errorf("%d objects are present, want %d", len(present), want)
	}
	unknown := w.launch("resync", "pods", "-c", path)
	w.exits(unknown, exitConfig)
	says(t, unknown.Log(), "pods")
	w.stop()
	nobody := w.launch("resync", "configmaps", "-c", path)
	w.exits(nobody, exitEnvironment)
}

// startWithFile is start, and returns the configuration's path.
func (w *world) startWithFile() string {
	w.t.Helper()
	path := w.writeConfig(w.config)
	w.bridge = w.launch("run", "-c", path)
	w.awaitStatus(func(s bridge.Status) bool { return s.Ready && w.isWatching(kube.ConfigMaps)(s) })
	return path
}
