package e2e

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

var (
	roles        = kube.Type{GroupVersionResource: rbac.WithResource("roles"), Kind: "Role", Namespaced: true}
	roleBindings = kube.Type{GroupVersionResource: rbac.WithResource("rolebindings"), Kind: "RoleBinding", Namespaced: true}
)

// allowHere lets a user read a resource in the world's namespace alone.
func (w *world) allowHere(user, resource string) {
	w.t.Helper()
	_, err := w.kube.Create(w.soon(), roles, resource, kube.Fields{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{resource}, "verbs": []any{"get", "list", "watch"},
	}}})
	w.must(err)
	_, err = w.kube.Create(w.soon(), roleBindings, resource, kube.Fields{
		"roleRef":  map[string]any{"apiGroup": rbac.Group, "kind": roles.Kind, "name": resource},
		"subjects": []any{map[string]any{"apiGroup": rbac.Group, "kind": "User", "name": user}},
	})
	w.must(err)
}

// A namespace that is deleted may lose its RoleBindings first. A bridge whose permissions come from these then gets 403 and
// does not see the deletions. If it may get the namespace, it finds that the namespace is gone, and publishes the deletions. Otherwise it
// has no proof, and must not publish deletions.
func TestNamespaceDeletedRoleBindingsFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		proof bool
	}{{"the namespace may be looked up", true}, {"nothing may be looked up", false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
			user := "tenant-" + w.ns
			w.allowKubeSystem(user)
			if c.proof {
				w.allow(user, "namespaces", "get")
			}
			w.allowHere(user, "configmaps")
			path, err := w.cluster.KubeconfigFor(user)
			w.must(err)
			toCluster := w.proxyToCluster()
			w.kubeconfigOf(path, func(*api.Config) {})
			w.bulk(kube.ConfigMaps, "o", 20)
			w.start()
			before := len(w.settle(kube.ConfigMaps))
			w.committed()

			toCluster.Refuse() // otherwise the open watch would report the deletions
			w.delete(roleBindings, "configmaps")
			w.must(w.cluster.DeleteNamespace(w.soon(), w.ns))
			for _, o := range w.kube.Ledger.Objects(kube.ConfigMaps) {
				w.kube.Ledger.Deleted(o.UID)
			}
			toCluster.Pass()
			if !c.proof {
				w.awaitStatus(w.isWaiting(kube.ConfigMaps, "forbidden"))
				if more := w.since(before); len(more) > 0 {
					t.Errorf("published without proof:\n%s", bus.Tail(more, 10))
				}
				return
			}
			for _, o := range w.kube.Ledger.Objects(kube.ConfigMaps) {
				w.deletionPublished(o.UID)
			}
			w.awaitStatus(w.isGone(kube.ConfigMaps))
			all := w.since(0)
			w.none(check.History(w.kube.Ledger, all, check.Options{Types: []kube.Type{kube.ConfigMaps}, Gap: true}), all)
		})
	}
}

// allowKubeSystem lets a user read the cluster's identity, but no other namespace.
func (w *world) allowKubeSystem(user string) {
	w.t.Helper()
	name := w.ns + "-identity"
	_, err := w.kube.Create(w.soon(), clusterRoles, name, kube.Fields{"rules": []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"namespaces"}, "resourceNames": []any{"kube-system"}, "verbs": []any{"get"},
	}}})
	w.must(err)
	_, err = w.kube.Create(w.soon(), clusterRoleBindings, name, kube.Fields{
		"roleRef":  map[string]any{"apiGroup": clusterRoles.Group, "kind": clusterRoles.Kind, "name": name},
		"subjects": []any{map[string]any{"apiGroup": clusterRoles.Group, "kind": "User", "name": user}},
	})
	w.must(err)
}
