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

// With namespaces, only objects of these namespaces are published, from lists and watches.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	second, other := w.namespace(), w.namespace()
	w.config.Resources = []bridge.Resource{{Resource: "configmaps", Namespaces: []string{w.ns, second}}}
	everywhere := []*kube.Client{w.kube, w.kube.In(second), w.kube.In(other)}
	for _, c := range everywhere {
		_, err := c.Create(w.soon(), kube.ConfigMaps, "listed", sample(kube.ConfigMaps, "1"))
		w.must(err)
	}
	w.start()
	for _, c := range everywhere {
		_, err := c.Create(w.soon(), kube.ConfigMaps, "live", sample(kube.ConfigMaps, "1"))
		w.must(err)
		_, err = c.Patch(w.soon(), kube.ConfigMaps, "live", change("2"))
		w.must(err)
		w.must(c.Delete(w.soon(), kube.ConfigMaps, "listed"))
	}
	for _, c := range everywhere[:2] {
		o, err := c.Create(w.soon(), kube.ConfigMaps, "last", sample(kube.ConfigMaps, "1"))
		w.must(err)
		w.published(string(o.GetUID()), o.GetResourceVersion())
	}
	all := w.settle(kube.ConfigMaps)
	w.none(check.History(w.kube.Ledger, all, check.Options{
		Types:  []kube.Type{kube.ConfigMaps},
		Wanted: func(o kube.Object) bool { return o.Namespace != other },
	}), all)
}

// An object that enters the selection, by a label or a field, is published as added; if it leaves the selection, it is published as deleted. Both can
// happen several times.
func TestEnteringAndLeavingASelection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	w.config.Resources = []bridge.Resource{
		{Resource: "configmaps", Namespaces: []string{w.ns}, LabelSelector: "audit=true"},
		{Resource: "pods", Namespaces: []string{w.ns}, FieldSelector: "status.phase=Running"},
	}
	w.start()
	label := func(value string) func() string {
		return func() string {
			o, err := w.kube.Patch(w.soon(), kube.ConfigMaps, "o", fmt.Sprintf(`{"metadata":{"labels":{"audit":%s}}}`, value))
			w.must(err)
			return o.GetResourceVersion()
		}
	}
	phase := func(p string) func() string {
		return func() string {
			o, err := w.kube.Patch(w.soon(), kube.Pods, "o", fmt.Sprintf(`{"status":{"phase":%q}}`, p), "status")
			w.must(err)
			return o.GetResourceVersion()
		}
	}
	touch := func(t kube.Type) func() string {
		return func() string {
			_, rv := w.patch(t, "o", fmt.Sprint(len(w.kube.Ledger.Objects(t)[0].RVs)))
			return rv
		}
	}
	for _, c := range []struct {
		of                    kube.Type
		enter, leave, in, out func() string
	}{
		{kube.ConfigMaps, label(`"true"`), label(`null`), touch(kube.ConfigMaps), touch(kube.ConfigMaps)},
		{kube.Pods, phase("Running"), phase("Pending"), touch(kube.Pods), touch(kube.Pods)},
	} {
		uid, _ := w.create(c.of, "o")
		var want []string
		expect := func(typ, published, at string) string {
			want = append(want, typ+" "+published+" at "+at)
			w.published(uid, at)
			return at
		}
		for range 2 {
			c.out() // a change outside the selection is not published
			entered := c.enter()
			expect("added", entered, entered)
			changed := c.in()
			expect("modified", changed, changed)
			expect("deleted", changed, c.leave())
		}
		c.out()
		entered := c.enter()
		expect("added", entered, entered)
		before := len(w.since(0))
		w.delete(c.of, "o")
		all := w.onBus("the object's end", func(all []bus.Message) bool {
			return slices.ContainsFunc(after(all, before), func(m bus.Message) bool { return m.UID() == uid && m.Is("deleted") })
		})
		var got []string
		for i := range all {
			if m := &all[i]; m.UID() == uid && !terminating(m) {
				at := m.RV()
				if m.Is("deleted") {
					at = m.Attributes["deletionversion"]
				}
				got = append(got, m.Type()+" "+m.RV()+" at "+at)
			}
		}
		if n := len(got) - 1; n != len(want) || !slices.Equal(got[:n], want) {
			t.Errorf("%s:\ngot  %q,\nwant %q and the deletion", c.of.Kind, got, want)
		}
	}
}

// terminating reports whether the event is the server's own step on the way to a pod's deletion.
func terminating(m *bus.Message) bool {
	metadata, _ := m.Body()["metadata"].(map[string]any)
	return m.Is("modified") && metadata["deletionTimestamp"] != nil
}

// After a selector is narrowed or widened in the configuration, only the difference is published.
func TestSelectorIsChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	uids := map[string]string{}
	for i := range 6 {
		name := fmt.Sprintf("%s-%d", []string{"a", "b"}[i%2], i)
		o, err := w.kube.Create(w.soon(), kube.ConfigMaps, name, kube.Fields{
			"metadata": map[string]any{"labels": map[string]any{"team": name[:1]}},
		})
		w.must(err)
		uids[string(o.GetUID())] = name
	}
	w.start()
	before := len(w.settle(kube.ConfigMaps))
	w.stop()
	narrow := func(selector string, want map[string]string) {
		t.Helper()
		w.config.Resources[0].LabelSelector = selector
		w.start()
		w.onBus("synced", func(all []bus.Message) bool { return slices.ContainsFunc(after(all, before), isSynced) })
		w.stop()
		got := map[string]string{}
		since := w.since(before)
		for i := range since {
			if m := &since[i]; !m.OfCollection() && uids[m.UID()] != "" {
				got[uids[m.UID()]] += m.Type()
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with the selector %q %v was published, want %v", selector, got, want)
		}
		before += len(since)
	}
	narrow("team=a", map[string]string{"b-1": "deleted", "b-3": "deleted", "b-5": "deleted"})
	narrow("team in (a,b)", map[string]string{"b-1": "added", "b-3": "added", "b-5": "added"})
}
