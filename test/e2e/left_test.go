package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// An object that leaves a selection still exists, and consumers must be able to distinguish that from its deletion: in a live watch,
// in a replayed watch, and in a reconciliation. If the object returns to the selection, its event has a new id.
func TestLeavingIsNoDeletion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		begin    func(*world) // of what happens, and
		end      func(*world)
		compared bool
	}{
		{"live", func(*world) {}, func(*world) {}, false},
		{"replayed", (*world).stop, (*world).start, false},
		{"compared", (*world).stop, func(w *world) { w.expire(); w.start() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.install()
			w.config.Resources = []bridge.Resource{{Resource: w.widgets.ResourceID(), Namespaces: []string{w.ns}, LabelSelector: "audit=true"}}
			uids := map[string]string{}
			for _, name := range []string{"stays", "leaves", "enters", "dies", "leaves-and-dies"} {
				uids[name], _ = w.create(w.widgets, name)
				if name != "enters" {
					w.label(name, `"true"`)
				}
			}
			w.start()
			before := len(w.onBus("the list", func(all []bus.Message) bool { return slices.ContainsFunc(all, isSynced) }))
			w.committed()

			c.begin(w)
			w.label("leaves", "null")
			w.label("enters", `"true"`)
			w.delete(w.widgets, "dies")
			w.label("leaves-and-dies", "null")
			if c.name != "live" { // in a live watch it depends on timing whether the bridge finds the object still existing
				w.delete(w.widgets, "leaves-and-dies")
			}
			last := w.label("stays", `"true","again":"1"`)
			c.end(w)
			w.published(uids["stays"], last)
			for _, name := range []string{"leaves", "dies", "leaves-and-dies"} {
				w.deletionPublished(uids[name])
			}
			w.onBus("the one that enters", func(all []bus.Message) bool { return len(typesOf(all, uids["enters"])) > 0 })

			for _, m := range w.since(before) {
				left := m.Data.Reason == "left"
				switch {
				case m.OfCollection():
				case m.UID() == uids["leaves"] && !(m.Is("deleted") && left):
					t.Errorf("it left: %s", &m)
				case m.UID() == uids["dies"] && (!m.Is("deleted") || left):
					t.Errorf("it did not leave, it died: %s", &m)
				case m.UID() == uids["enters"] && !m.Is("added"):
					t.Errorf("it entered: %s", &m)
				}
			}
			w.label("leaves", `"true"`)
			w.onBus("the return", func(all []bus.Message) bool {
				return !slices.Contains(typesOf(all[len(all)-1:], uids["leaves"]), "deleted") && len(typesOf(all, uids["leaves"])) == 3
			})
			w.uniqueIDs()
			w.mirrors(w.widgets, "audit=true")
		})
	}
}

// label sets the label audit, with a merge patch that may contain more.
func (w *world) label(name, audit string) (rv string) {
	w.t.Helper()
	o, err := w.kube.Patch(w.soon(), w.widgets, name, fmt.Sprintf(`{"metadata":{"labels":{"audit":%s}}}`, audit))
	w.must(err)
	return o.GetResourceVersion()
}

// uniqueIDs checks that no two events on the bus have the same id.
func (w *world) uniqueIDs() {
	w.t.Helper()
	seen := map[string]bool{}
	for _, m := range w.since(0) {
		if seen[m.ID()] {
			w.t.Errorf("repeated: %s", &m)
		}
		seen[m.ID()] = true
	}
}

// mirrors waits until a consumer of the bus has exactly the selected objects of a type in the namespaces (none given: the
// world's namespace).
func (w *world) mirrors(t kube.Type, labelSelector string, namespaces ...string) {
	w.t.Helper()
	if len(namespaces) == 0 {
		namespaces = []string{w.ns}
	}
	objects := w.listed(t, labelSelector, namespaces)
	var problems []string
	all, err := w.log.Wait(w.soon(), func(all []bus.Message) bool {
		problems = check.State(all, objects, t.ResourceID())
		return len(problems) == 0
	})
	if err != nil {
		w.none(append(problems, err.Error()), all)
	}
}

// Objects in excluded namespaces are not published, neither from the first list nor from the watch.
func TestExcludeNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	out := w.namespace()
	excluded := w.kube.In(out)
	_, err := excluded.Create(w.soon(), kube.ConfigMaps, "listed", sample(kube.ConfigMaps, "1"))
	w.must(err)
	w.config.Resources = []bridge.Resource{{Resource: "configmaps", ExcludeNamespaces: []string{out, "kube-system"}}}
	w.start()
	_, err = excluded.Create(w.soon(), kube.ConfigMaps, "live", sample(kube.ConfigMaps, "1"))
	w.must(err)
	for _, m := range w.settle(kube.ConfigMaps) {
		if ns := m.Attributes["namespace"]; ns == out || ns == "kube-system" {
			t.Errorf("excluded: %s", &m)
		}
	}
}
