package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// namesakes returns two custom types of one plural, which no other test uses. kubectl would read the name as the newcomer.
func (w *world) namesakes() (first, newcomer kube.Type) {
	first, newcomer = kube.Widgets("zz."+w.ns+".kubebridge.io"), kube.Widgets("aa."+w.ns+".kubebridge.io")
	first.Resource, first.Kind = w.ns+"s", "T"+w.ns[1:]
	newcomer.Resource, newcomer.Kind = first.Resource, first.Kind
	return first, newcomer
}

func (w *world) installs(t kube.Type) {
	w.t.Helper()
	w.must(w.kube.Install(w.soon(), t))
	w.t.Cleanup(func() { _ = w.kube.Uninstall(context.Background(), t) })
}

// Somebody installs a resource with the name of an entry. The entry keeps the resource that it has, also across restarts and without
// permission for the other one, and the bridge says that the name may mean both. Otherwise users that may create CustomResourceDefinitions could hide changes.
func TestSomebodyInstallsANamesake(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		down, limited, singular bool
	}{
		"while running":              {},
		"while down":                 {down: true},
		"by the singular":            {singular: true},
		"with rights on one of them": {limited: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
			first, newcomer := w.namesakes()
			w.installs(first)
			entry := first.Resource
			if c.singular {
				entry = strings.ToLower(first.Kind)
			}
			w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: entry, Namespaces: []string{w.ns}})
			if c.limited {
				user := "reader-" + w.ns
				w.allow(user, "namespaces", "get")
				w.allow(user, "configmaps", "list", "watch")
				w.allowIn(user, kube.CRDs.Group, kube.CRDs.Resource, "get", "list", "watch")
				w.allowIn(user, "apiregistration.k8s.io", "apiservices", "list", "watch")
				w.allowIn(user, first.Group, first.Resource, "list", "watch")
				path, err := w.cluster.KubeconfigFor(user)
				w.must(err)
				w.config.Kubernetes = map[string]any{"kubeconfig": path}
			}
			w.create(first, "before")
			w.start()
			w.settle(kube.ConfigMaps, first)
			if c.down {
				w.stop()
			}
			w.installs(newcomer)
			if c.down {
				w.run()
			}
			w.awaitStatus(func(s bridge.Status) bool {
				both := s.Find(entry).Error
				return strings.Contains(both, first.ResourceID()) && strings.Contains(both, newcomer.ResourceID()) && s.Find(w.collection(first)).State == "watching"
			})
			says(t, w.bridge.Log(), `"level":"warn"`, newcomer.ResourceID())
			_, metrics, err := w.bridge.Get(w.soon(), "/metrics")
			w.must(err)
			if n, _ := bridge.Sum(metrics, "kubebridge_source_waiting"); n != 1 {
				t.Errorf("kubebridge_source_waiting is %v, want 1", n)
			}
			w.create(first, "after")
			w.settle(kube.ConfigMaps, first)
			w.stop()
			w.run()
			w.create(first, "after-the-restart")
			w.must(w.kube.Uninstall(w.soon(), newcomer))
			w.awaitStatus(func(s bridge.Status) bool {
				return s.Find(entry).State == "" && s.Find(w.collection(first)).State == "watching"
			})
			all := w.settle(kube.ConfigMaps, first)
			w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps, first}}), all)
			if slices.ContainsFunc(all, func(m bus.Message) bool {
				return m.Is("closed") || strings.Contains(m.Attributes["collection"], newcomer.Group)
			}) {
				t.Errorf("a collection is closed, or the newcomer is read:\n%s", bus.Tail(all, 20))
			}
		})
	}
}

// If several resources have the name of an entry, and none was published yet, the bridge waits and names them. `validate --connect` warns, and resync
// finds the one that is published.
func TestNameOfSeveralResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	first, newcomer := w.namesakes()
	w.installs(first)
	w.installs(newcomer)
	w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: first.Resource, Namespaces: []string{w.ns}})
	w.run()
	w.awaitStatus(func(s bridge.Status) bool {
		both := s.Find(first.Resource).Error
		return strings.Contains(both, first.ResourceID()) && strings.Contains(both, newcomer.ResourceID()) && s.Find(w.collection(kube.ConfigMaps)).State == "watching"
	})
	validate := w.launch("validate", "--connect", "-c", w.writeConfig(w.config))
	w.exits(validate, 0)
	says(t, validate.Log()+validate.Output(), "warning", first.ResourceID(), newcomer.ResourceID())
	rbac := w.launch("rbac", "--connect", "-c", w.writeConfig(w.config))
	w.exits(rbac, 0)
	says(t, rbac.Log()+rbac.Output(), first.Group, newcomer.Group)

	w.stop()
	w.config.Resources[1].Resource = first.ResourceID()
	path := w.startWithFile()
	resync := w.launch("resync", first.Resource, "-c", path)
	w.exits(resync, 0)
	says(t, resync.Log()+resync.Output(), first.ResourceID())
}

// The first label of a group may look like a version. Patterns, `exclude`, rules and the long form have no version, so it belongs to the group there.
// Otherwise an exclusion would exclude nothing, and a rule would hide nothing.
func TestGroupLikeAVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.widgets = kube.Widgets("v2." + w.ns + ".kubebridge.io")
	name := w.widgets.ResourceID()
	w.installs(w.widgets)
	w.create(w.widgets, "o")
	pattern := bridge.Resource{Resource: "*." + w.widgets.Group, Namespaces: []string{w.ns}}
	for _, c := range []struct {
		what     string
		resource bridge.Resource
		exclude  []string
		watched  bool
	}{
		{"the name", bridge.Resource{Resource: name, Namespaces: []string{w.ns}}, nil, true},
		{"the pattern", pattern, nil, true},
		{"excluded", pattern, []string{name}, false},
	} {
		w.config.Resources = append(w.config.Resources[:1], c.resource)
		w.config.Exclude = c.exclude
		w.run()
		w.awaitStatus(func(s bridge.Status) bool {
			watched := s.Find(w.collection(w.widgets)).State == "watching"
			return s.Find(w.collection(kube.ConfigMaps)).State == "watching" && (watched && c.watched || !c.watched && s.Find("*."+w.widgets.Group).Error != "")
		})
		if strings.Contains(w.bridge.Log(), "it excludes nothing") {
			t.Errorf("%s: an exclusion counts for nothing", c.what)
		}
		w.stop()
	}
	w.config.Exclude = []string{"widgets." + w.ns + ".kubebridge.io"} // the group without v2
	validate := w.launch("validate", "--connect", "-c", w.writeConfig(w.config))
	w.exits(validate, 0)
	says(t, validate.Log(), "warning", "it excludes nothing")
	w.config.Resources[1], w.config.Exclude = bridge.Resource{Resource: name}, nil
	rbac := w.launch("rbac", "-c", w.writeConfig(w.config))
	w.exits(rbac, 0)
	says(t, rbac.Output(), `"`+w.widgets.Group+`"`)
}
