package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// typesOf returns the types of an object's events, in order.
func typesOf(messages []bus.Message, uid string) (types []string) {
	for i := range messages {
		if m := &messages[i]; m.UID() == uid {
			types = append(types, m.Type())
		}
	}
	return types
}

// An object with finalizers is deleted in two steps: first it gets a deletionTimestamp, then it is removed. The first step is
// published as modified, the second as deleted.
func TestFinalizers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	quiet, err := kube.New(w.cluster.RESTConfig(), w.ns) // a client whose writes are not recorded in the world's ledger
	w.must(err)
	create := func(name string) (uid string) {
		o, err := w.kube.Create(w.soon(), w.widgets, name, kube.Fields{
			"metadata": map[string]any{"finalizers": []any{"kubebridge.io/test"}},
		})
		w.must(err)
		return string(o.GetUID())
	}
	release := func(name string) {
		_, err := quiet.Patch(w.soon(), w.widgets, name, `{"metadata":{"finalizers":null}}`)
		w.must(err)
	}
	isTerminating := func(uid string) func([]bus.Message) bool {
		return func(all []bus.Message) bool {
			return slices.ContainsFunc(all, func(m bus.Message) bool { return m.UID() == uid && terminating(&m) })
		}
	}
	uids := map[string]string{}
	for _, name := range []string{"live", "released-unseen", "unseen"} {
		uids[name] = create(name)
	}
	w.start()
	w.delete(w.widgets, "live")
	w.delete(w.widgets, "released-unseen")
	w.onBus("what begins to go", isTerminating(uids["released-unseen"]))
	release("live")
	w.deletionPublished(uids["live"])
	w.settle(w.widgets)
	w.stop()

	w.delete(w.widgets, "unseen")
	release("released-unseen")
	w.expire()
	w.start()
	w.onBus("what began to go unseen", isTerminating(uids["unseen"]))
	w.deletionPublished(uids["released-unseen"])
	release("unseen")
	w.deletionPublished(uids["unseen"])
	all := w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: true})
	for name, uid := range uids {
		if got, want := typesOf(all, uid), []string{"present", "modified", "deleted"}; !slices.Equal(got, want) {
			t.Errorf("%s is published as %v, want %v", name, got, want)
		}
	}
}

// One request deletes all objects of a namespace: each deletion is published once.
func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	const n = 5000
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.bulkOf(kube.ConfigMaps, "o", n, kube.Fields{"metadata": map[string]any{"labels": map[string]any{"of": "many"}}})
	w.start()
	w.settle(kube.ConfigMaps)
	w.must(w.kube.DeleteAll(w.within(bulkPatience), kube.ConfigMaps, "of=many"))
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	deleted := 0
	for i := range all {
		if all[i].Is("deleted") {
			deleted++
		}
	}
	if deleted != n {
		t.Errorf("published %d deletions, want %d", deleted, n)
	}
	w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: n, Present: n})
}

// The largest objects that the API server accepts, found by a list, a watch and a reconciliation. Kafka's topics are created for messages of
// this size. NATS with its default of 1 MiB gets events without bodies, which are marked, and the log has a warning.
func TestLargestObjects(t *testing.T) {
	t.Parallel()
	for _, name := range buses {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{bus: name})
			w.install()
			w.bridges(kube.ConfigMaps, w.widgets)
			// etcd accepts requests of 1.5 MiB, and the API server 1 MiB of data in a ConfigMap. Every < takes six bytes in a watch.
			large := kube.Fields{"spec": map[string]any{"pad": strings.Repeat("x", 3<<19-2<<10)}}
			escaped := `{"data":{"pad":"` + strings.Repeat("<", 1<<20-1<<10) + `"}}`
			_, err := w.kube.Create(w.soon(), w.widgets, "too-large", kube.Fields{"spec": map[string]any{"pad": strings.Repeat("x", 3<<19)}})
			if err == nil || !strings.Contains(err.Error(), "request is too large") { // the limit is etcd's
				t.Fatalf("want the error that this is too large for the server, got %v", err)
			}
			create := func(object string) {
				_, err := w.kube.Create(w.soon(), w.widgets, object, large)
				w.must(err)
				// Write the data by a patch, because Create would escape it to a size that the server does not accept.
				w.create(kube.ConfigMaps, object)
				_, err = w.kube.Patch(w.soon(), kube.ConfigMaps, object, escaped)
				w.must(err)
			}
			types := []kube.Type{kube.ConfigMaps, w.widgets}
			create("listed")
			w.start()
			create("live")
			for _, typ := range types {
				w.patch(typ, "listed", "live")
				w.delete(typ, "live")
			}
			w.settle(types...)
			w.stop()
			w.patch(w.widgets, "listed", "unseen")
			w.expire()
			w.start()
			all := w.verify(check.Options{Types: types, Gap: true})
			for i := range all {
				m := &all[i]
				small := m.Is("added") && m.Attributes["kind"] == kube.ConfigMaps.Kind && m.Attributes["origin"] == "watch"
				if m.OfCollection() || small || strings.Contains(m.Name(), "marker") {
					continue
				}
				switch cut := m.Data.Truncated; {
				case name == busKafka && cut != nil:
					t.Errorf("truncated to %+v: %s", *cut, m)
				case name == busNATS && (cut == nil || cut.Size < 1<<20 || cut.Limit != 1<<20 || len(cut.SHA256) != 64):
					t.Errorf("it does not fit, and says %+v: %s", cut, m)
				}
			}
			if name == busNATS {
				says(t, w.bridge.Log(), "event truncated")
			}
		})
	}
}

// Writes that change nothing are not published, however often a controller repeats them.
func TestNoOpWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.create(kube.ConfigMaps, "o")
	w.start()
	uid, rv := w.patch(kube.ConfigMaps, "o", "same")
	for range 10 {
		if _, again := w.patch(kube.ConfigMaps, "o", "same"); again != rv {
			t.Fatalf("the server made a new version %s of %s", again, rv)
		}
	}
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	if got, want := typesOf(all, uid), []string{"present", "modified"}; !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

// If an object is deleted and created again while the bridge is down, the deletion of the old UID is published first,
// then the new object. The replayed watch has both; a reconciliation must publish the same two events in the same order.
func TestRecreatedWhileDown(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"within the history": false, "after a gap": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.install()
			w.bridges(w.widgets)
			old, published := w.create(w.widgets, "o")
			w.start()
			before := len(w.settle(w.widgets))
			w.stop()
			w.delete(w.widgets, "o")
			renewed, rv := w.create(w.widgets, "o")
			if lost {
				w.expire()
			}
			w.start()
			w.published(renewed, rv)
			all := w.verify(check.Options{Types: []kube.Type{w.widgets}, Gap: lost})
			var got []string
			for _, m := range after(all, before) {
				if m.UID() == old || m.UID() == renewed {
					got = append(got, m.UID()+" "+m.Type()+" "+m.RV())
				}
			}
			want := []string{old + " deleted " + published, renewed + " added " + rv}
			if !slices.Equal(got, want) {
				t.Errorf("published %q, want %q", got, want)
			}
		})
	}
}
