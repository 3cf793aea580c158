package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// isGone returns a condition: the type's collection is in the state "gone", without an error.
func (w *world) isGone(t kube.Type) func(bridge.Status) bool {
	return func(s bridge.Status) bool { return s.Find(w.collection(t)).State == "gone" }
}

// The deletion of a CRD deletes its objects. Each is published as deleted, whether the bridge is running or finds the CRD
// absent at its start. A CRD that is installed later under the same names has objects of its own, and may have another kind.
func TestCRDIsDeleted(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"while running": false, "while down": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.must(w.kube.Install(w.soon(), w.widgets))
			w.bridges(kube.ConfigMaps, w.widgets)
			w.bulk(w.widgets, "o", 20)
			w.start()
			before := len(w.settle(kube.ConfigMaps, w.widgets))
			if down {
				w.stop()
			}
			w.must(w.kube.Uninstall(w.soon(), w.widgets))
			w.must(w.kube.AwaitAbsent(w.soon(), kube.CRDs, w.widgets.ResourceID()))
			if down {
				w.run()
			}
			for _, o := range w.kube.Ledger.Objects(w.widgets) {
				w.kube.Ledger.Deleted(o.UID)
				w.deletionPublished(o.UID)
			}
			w.awaitStatus(w.isGone(w.widgets))
			w.settle(kube.ConfigMaps) // other collections continue
			all := w.since(0)
			w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps, w.widgets}, Gap: true}), all)
			if down {
				said := check.Collections(after(all, before), w.collection(w.widgets))
				if len(said) == 0 || said[0].Data.Reason != "gone" {
					t.Errorf("want it to be said that the type is gone, got:\n%s", bus.Tail(said, 10))
				}
			}

			widgets, gadgets := w.widgets, w.widgets // another kind under the same resource
			gadgets.Kind = "Gadget"
			w.widgets = gadgets
			w.install()
			w.bulk(gadgets, "o", 5)
			w.awaitStatus(w.isWatching(gadgets))
			all = w.settle(gadgets, kube.ConfigMaps)
			w.none(check.History(w.kube.Ledger, all, check.Options{Gap: true, Types: []kube.Type{gadgets, kube.ConfigMaps, widgets}}), all)
		})
	}
}

// If a version is no longer served, its objects still exist. A collection whose entry names no version moves to another version, and
// publishes no events about unchanged objects.
func TestServedVersionIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	versions := func(v1 bool) {
		w.t.Helper()
		schema := `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
		_, err := w.kube.Patch(w.soon(), kube.CRDs, w.widgets.ResourceID(), fmt.Sprintf(`{"spec":{"versions":[
			{"name":"v1","served":%t,"storage":true,%s},{"name":"v1beta1","served":true,"storage":false,%s}]}}`, v1, schema, schema))
		w.must(err)
	}
	versions(true)
	w.bridges(w.widgets)
	w.bulk(w.widgets, "o", 20)
	w.start()
	before := len(w.settle(w.widgets))
	w.committed()

	versions(false)
	w.must(w.kube.AwaitUnserved(w.soon(), w.widgets))
	beta := w.widgets
	beta.Version = "v1beta1"
	for step, last := 0, ""; last != beta.GroupVersion().String(); step++ { // the open watch of v1 goes on for a second or two
		o, err := w.kube.Patch(w.soon(), beta, "o-0", change(fmt.Sprint(step)))
		w.must(err)
		all := w.published(string(o.GetUID()), o.GetResourceVersion())
		last = all[len(all)-1].Attributes["apiversion"]
	}
	w.awaitStatus(w.isWatching(beta))
	for _, m := range w.since(before) {
		if !m.OfCollection() && (m.Is("deleted") || m.Attributes["name"] != "o-0") {
			t.Errorf("nothing has happened to it, and yet it was published: %s", &m)
		}
	}
	versions(true) // for the CRD's removal
}

// promptly is when a new type must be watched: it takes a second or two, more on a busy machine, but less than the
// 30 seconds after which discovery is repeated.
const promptly = 25 * time.Second

// With a pattern for all resources, or for an operator's group, objects of a new CRD are published at
// once, including the first ones.
func TestPatternsFollowTheCluster(t *testing.T) {
	for _, all := range []bool{true, false} {
		w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
		pattern := "*." + w.widgets.Group
		if all {
			pattern = "*.*"
		}
		t.Run(pattern[:3], func(t *testing.T) {
			w.t = t
			w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: pattern, Namespaces: []string{w.ns}})
			w.config.Exclude = []string{"deployments.apps"}
			w.run()
			w.awaitStatus(w.isWatching(kube.ConfigMaps))
			if !all {
				w.settle(kube.ConfigMaps)
			}
			w.install()
			began := time.Now()
			uid, rv := w.create(w.widgets, "early")
			w.published(uid, rv)
			if took := time.Since(began); took > promptly {
				t.Errorf("published after %s, want at most %s", took, promptly)
			}
			w.create(kube.Deployments, "excluded")
			w.create(kube.Secrets, "skipped") // patterns leave Secrets out
			types := []kube.Type{kube.ConfigMaps, w.widgets}
			if all {
				types = append(types, kube.Pods)
				w.create(kube.Pods, "o")
			}
			messages := w.verify(check.Options{Types: types, Gap: true})
			for i := range messages {
				if m := &messages[i]; slices.Contains([]string{"secrets", "deployments"}, m.Attributes["resource"]) {
					t.Errorf("not asked for: %s", m)
				}
			}
			if all {
				says(t, w.bridge.Log(), "secrets", "deployments.apps")
			}
		})
	}
}
