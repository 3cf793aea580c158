package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// proxyToCluster starts a proxy to the API server, and to others beside it. The bridge uses it after the next call of kubeconfig or kubeconfigOf.
func (w *world) proxyToCluster(others ...*clustertest.Cluster) *faultproxy.Proxy {
	w.t.Helper()
	var hosts []string
	for _, c := range append(others, w.cluster) {
		hosts = append(hosts, strings.TrimPrefix(c.Server(), "https://"))
	}
	var err error
	w.toCluster, err = faultproxy.Start(hosts...)
	w.must(err)
	w.t.Cleanup(func() { _ = w.toCluster.Close() })
	return w.toCluster
}

// kubeconfig writes the cluster's kubeconfig with a change made to it, and makes the bridge use it.
func (w *world) kubeconfig(change func(*api.Config)) {
	w.t.Helper()
	w.kubeconfigOf(w.cluster.Kubeconfig(), change)
}

// kubeconfigOf is kubeconfig with the kubeconfig of a user.
func (w *world) kubeconfigOf(user string, change func(*api.Config)) {
	w.t.Helper()
	cfg, err := clientcmd.LoadFromFile(user)
	w.must(err)
	if w.toCluster != nil {
		for _, one := range cfg.Clusters {
			one.Server = "https://" + w.toCluster.Addr()
		}
	}
	change(cfg)
	path := filepath.Join(w.dir, "kubeconfig")
	w.must(clientcmd.WriteToFile(*cfg, path))
	w.config.Kubernetes = map[string]any{"kubeconfig": path}
}

var (
	rbac                = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	clusterRoles        = kube.Type{GroupVersionResource: rbac.WithResource("clusterroles"), Kind: "ClusterRole"}
	clusterRoleBindings = kube.Type{GroupVersionResource: rbac.WithResource("clusterrolebindings"), Kind: "ClusterRoleBinding"}
)

// allow lets a user read a resource of the core group in all namespaces.
func (w *world) allow(user, resource string, verbs ...any) {
	w.t.Helper()
	w.allowIn(user, "", resource, verbs...)
}

// allowIn is allow for a resource of a group.
func (w *world) allowIn(user, group, resource string, verbs ...any) {
	w.t.Helper()
	name := w.ns + "-" + resource
	_, err := w.kube.Create(w.soon(), clusterRoles, name, kube.Fields{"rules": []any{map[string]any{
		"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs,
	}}})
	w.must(err)
	_, err = w.kube.Create(w.soon(), clusterRoleBindings, name, kube.Fields{
		"roleRef":  map[string]any{"apiGroup": clusterRoles.Group, "kind": clusterRoles.Kind, "name": name},
		"subjects": []any{map[string]any{"apiGroup": clusterRoles.Group, "kind": "User", "name": user}},
	})
	w.must(err)
}

// A missing permission does not affect other collections, is shown in the status, and the collection is read as soon as it is granted.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps, kube.Secrets}})
	user := "reader-" + w.ns
	w.allow(user, "namespaces", "get")
	w.allow(user, "configmaps", "list", "watch")
	path, err := w.cluster.KubeconfigFor(user)
	w.must(err)
	w.config.Kubernetes = map[string]any{"kubeconfig": path}
	w.create(kube.Secrets, "old")
	w.run()
	w.awaitStatus(func(s bridge.Status) bool {
		secrets := s.Find(w.collection(kube.Secrets))
		return secrets.State == "waiting" && strings.Contains(secrets.Error, "forbidden") &&
			s.Find(w.collection(kube.ConfigMaps)).State == "watching"
	})
	w.create(kube.ConfigMaps, "meanwhile")
	w.settle(kube.ConfigMaps)
	w.create(kube.Secrets, "unseen")
	w.delete(kube.Secrets, "unseen")
	w.allow(user, "secrets", "list", "watch")
	w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(kube.Secrets)).State == "watching" })
	all := w.settle(kube.ConfigMaps, kube.Secrets)
	w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps, kube.Secrets}, Gap: true}), all)
}

// If a resource does not exist yet, because its CRD is installed later, the bridge logs that it waits, and publishes its objects afterwards.
func TestResourceComesLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.config.Resources = append(w.config.Resources, bridge.Resource{Resource: w.widgets.ResourceID(), Namespaces: []string{w.ns}})
	w.run()
	w.awaitStatus(func(s bridge.Status) bool {
		return s.Find(w.widgets.ResourceID()).State == "discovering" && strings.Contains(s.Find(w.widgets.ResourceID()).Error, "no such resource") &&
			s.Find(w.collection(kube.ConfigMaps)).State == "watching"
	})
	says(t, w.bridge.Log(), w.widgets.ResourceID())
	w.create(kube.ConfigMaps, "meanwhile")
	w.settle(kube.ConfigMaps)
	w.install()
	w.create(w.widgets, "o")
	w.awaitStatus(func(s bridge.Status) bool {
		return s.Find(w.collection(w.widgets)).State == "watching" && s.Find(w.widgets.ResourceID()).State == ""
	})
	w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps, w.widgets}, Gap: true})
}

// A bridge that starts before its API server, or loses it, recovers without a restart.
func TestClusterDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	toCluster := w.proxyToCluster()
	w.kubeconfig(func(*api.Config) {})
	toCluster.Refuse()
	w.create(kube.ConfigMaps, "o")
	w.run()
	w.awaitStatus(func(s bridge.Status) bool { return !s.Ready && s.Waiting != "" && s.Waiting != "not yet asked" })
	toCluster.Pass()
	w.onBus("the first list", func(all []bus.Message) bool { return len(all) > 0 && isSynced(all[len(all)-1]) })
	for range 3 {
		toCluster.Cut() // breaks every watch
		w.patch(kube.ConfigMaps, "o", "cut")
		w.settle(kube.ConfigMaps)
	}
	toCluster.Refuse()
	w.patch(kube.ConfigMaps, "o", "away")
	w.awaitStatus(func(s bridge.Status) bool { return s.Find(w.collection(kube.ConfigMaps)).State == "waiting" })
	toCluster.Pass()
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: 1, Present: 1})
}
