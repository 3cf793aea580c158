package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A new default in a schema changes objects without a write and without a new resourceVersion. The changes are
// published under new ids, because consumers and the bus would ignore the old ones as repetitions.
func TestSchemaGainsADefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.install()
	w.bridges(w.widgets)
	untouched, _ := w.create(w.widgets, "untouched")
	patched, _ := w.create(w.widgets, "patched")
	w.start()
	w.patch(w.widgets, "patched", "live")
	before := w.settle(w.widgets)
	_, err := w.kube.Patch(w.soon(), kube.CRDs, w.widgets.ResourceID(), fmt.Sprintf(`{"spec":{"versions":[{"name":%q,"served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
			"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"color":{"type":"string","default":"red"}}}}}}}]}}`, w.widgets.Version))
	w.must(err)
	w.onBus("the end of the comparison", func(all []bus.Message) bool {
		return slices.ContainsFunc(after(all, len(before)), isSynced)
	})
	all := w.settle(w.widgets)
	ids := map[string]bool{}
	for i := range before {
		ids[before[i].ID()] = true
	}
	for name, uid := range map[string]string{"untouched": untouched, "patched": patched} {
		n := 0
		for _, m := range after(all, len(before)) {
			if m.UID() != uid {
				continue
			}
			n++
			spec, _ := m.Body()["spec"].(map[string]any)
			if !m.Is("modified") || spec["color"] != "red" || ids[m.ID()] {
				t.Errorf("%s: want the new body as a modification with a new id, got %s with %v", name, &m, spec)
			}
		}
		if n != 1 {
			t.Errorf("%s is published %d times, want once:\n%s", name, n, bus.Tail(after(all, len(before)), 20))
		}
	}
}
