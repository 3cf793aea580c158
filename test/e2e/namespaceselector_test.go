package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// A namespace is watched as soon as it has the label. If it loses the label, its collection is closed. If it gets the label again, its
// objects are published in their present state.
func TestNamespaceSelector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	team := w.namespace()
	w.config.Resources = []bridge.Resource{{Resource: "configmaps", NamespaceSelector: "team=" + w.ns}}
	join := func(namespace, value string) {
		_, err := w.kube.Patch(w.soon(), kube.Namespaces, namespace, fmt.Sprintf(`{"metadata":{"labels":{"team":%s}}}`, value))
		w.must(err)
	}
	member := `"` + w.ns + `"`
	join(w.ns, member)
	w.create(kube.ConfigMaps, "o")
	there := w.kube.In(team)
	var uids []string
	create := func(name string) {
		o, err := there.Create(w.soon(), kube.ConfigMaps, name, sample(kube.ConfigMaps, "1"))
		w.must(err)
		uids = append(uids, string(o.GetUID()))
	}
	create("kept")
	create("deleted")
	w.run()
	w.awaitStatus(w.isWatching(kube.ConfigMaps))
	w.settle(kube.ConfigMaps)
	w.mirrors(kube.ConfigMaps, "")

	join(team, member)
	w.mirrors(kube.ConfigMaps, "", w.ns, team)
	create("live")
	w.mirrors(kube.ConfigMaps, "", w.ns, team)

	join(team, "null")
	w.mirrors(kube.ConfigMaps, "", w.ns)
	all := w.since(0)
	for i := range all {
		if m := &all[i]; slices.Contains(uids, m.UID()) && m.Is("deleted") && m.Data.Reason != "left" {
			t.Errorf("the reason of a deletion is %q, want left because the object exists: %s", m.Data.Reason, m)
		}
	}
	outside := len(all)
	w.must(there.Delete(w.soon(), kube.ConfigMaps, "deleted"))
	create("new")
	w.settle(kube.ConfigMaps)
	for _, m := range w.since(outside) {
		if m.Attributes["namespace"] == team {
			t.Errorf("published from a namespace that is not selected: %s", &m)
		}
	}
	join(team, member)
	w.mirrors(kube.ConfigMaps, "", w.ns, team)
	w.uniqueIDs()
}
