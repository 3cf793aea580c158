package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/check"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// revoke withdraws the permission that allow has granted.
func (w *world) revoke(resource string) {
	w.t.Helper()
	w.delete(clusterRoleBindings, w.ns+"-"+resource)
}

// refuses waits until the API server refuses to list ConfigMaps for the user of cfg, with an error for which refusal returns true.
func (w *world) refuses(cfg *rest.Config, refusal func(error) bool) {
	w.t.Helper()
	client, err := kube.New(cfg, w.ns)
	w.must(err)
	for ctx := w.soon(); ; {
		_, _, err := client.List(ctx, kube.ConfigMaps, metav1.ListOptions{Limit: 1})
		if refusal(err) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%v: waiting to be refused, the last answer: %v", context.Cause(ctx), err)
		}
	}
}

// isWaiting returns a condition: the type's collection waits, with an error that contains why.
func (w *world) isWaiting(t kube.Type, why string) func(bridge.Status) bool {
	return func(s bridge.Status) bool {
		c := s.Find(w.collection(t))
		return c.State == "waiting" && strings.Contains(strings.ToLower(c.Error), why)
	}
}

func (w *world) isWatching(t kube.Type) func(bridge.Status) bool {
	return func(s bridge.Status) bool { return s.Find(w.collection(t)).State == "watching" }
}

// If a permission is withdrawn, the open watch continues, and new watches are refused. The bridge must not conclude
// that objects are gone, and after the permission is back it must continue from its position.
func TestPermissionIsRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	user := "reader-" + w.ns
	path, err := w.cluster.KubeconfigFor(user)
	w.must(err)
	w.allow(user, "namespaces", "get")
	w.allow(user, "configmaps", "list", "watch")
	toCluster := w.proxyToCluster()
	w.kubeconfigOf(path, func(*api.Config) {})
	for _, name := range []string{"kept", "patched", "deleted"} {
		w.create(kube.ConfigMaps, name)
	}
	w.start()
	before := len(w.settle(kube.ConfigMaps))

	w.revoke("configmaps")
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	w.must(err)
	w.refuses(cfg, apierrors.IsForbidden)
	w.settle(kube.ConfigMaps) // by the watch that is still open

	toCluster.Cut()
	w.awaitStatus(w.isWaiting(kube.ConfigMaps, "forbidden"))
	said := len(w.since(0))
	w.patch(kube.ConfigMaps, "patched", "unseen")
	w.delete(kube.ConfigMaps, "deleted")
	w.stop()
	w.run() // a bridge that starts without the permission must behave in the same way
	w.awaitStatus(w.isWaiting(kube.ConfigMaps, "forbidden"))
	if more := w.since(said); len(more) > 0 {
		t.Errorf("published while nothing could be known:\n%s", bus.Tail(more, 10))
	}

	w.must(w.kube.Delete(w.soon(), clusterRoles, w.ns+"-configmaps"))
	w.allow(user, "configmaps", "list", "watch")
	w.awaitStatus(w.isWatching(kube.ConfigMaps))
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	if again := check.Collections(after(all, before), w.collection(kube.ConfigMaps)); len(again) > 0 {
		t.Errorf("the position was good, and yet it listed:\n%s", bus.Tail(again, 10))
	}
}

// Tokens of service accounts are replaced in their file every hour, and those in a kubeconfig when the file is renewed. If the token before
// is refused, the bridge is not ready, says why, and publishes no deletions. It continues with the new token.
func TestTokenIsRotated(t *testing.T) {
	t.Parallel()
	for name, inline := range map[string]bool{"in a file": false, "in the kubeconfig": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
			account := "system:serviceaccount:" + w.ns + ":bridge"
			w.allow(account, "namespaces", "get")
			w.allow(account, "configmaps", "list", "watch")
			tokenFile := filepath.Join(w.dir, "token")
			toCluster := w.proxyToCluster()
			use := func(token, kubeconfig string) {
				w.writeToken(tokenFile, token)
				w.kubeconfigOf(kubeconfig, func(c *api.Config) {
					if !inline {
						c.AuthInfos["user"] = &api.AuthInfo{TokenFile: tokenFile}
					}
				})
			}
			old, path := w.token()
			use(old, path)
			w.create(kube.ConfigMaps, "o")
			w.start()
			w.settle(kube.ConfigMaps)

			w.delete(serviceAccounts, "bridge") // and its tokens are void
			renewed, path := w.token()
			cfg := rest.AnonymousClientConfig(w.cluster.RESTConfig())
			cfg.BearerToken = old
			w.refuses(cfg, apierrors.IsUnauthorized)
			w.patch(kube.ConfigMaps, "o", "over the watch that is open")
			w.settle(kube.ConfigMaps)
			toCluster.Cut()
			w.patch(kube.ConfigMaps, "o", "unseen")
			w.awaitStatus(func(s bridge.Status) bool { return !s.Ready && w.isWaiting(kube.ConfigMaps, "unauthorized")(s) })
			use(renewed, path)
			w.awaitStatus(func(s bridge.Status) bool { return s.Ready && w.isWatching(kube.ConfigMaps)(s) })
			log := w.bridge.Log()
			says(t, log, "the API server does not accept the credentials; trying again", "renewed credentials for the API server")
			all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
			w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: 1, Present: 1})
		})
	}
}

var serviceAccounts = kube.Type{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Kind: "ServiceAccount", Namespaced: true}

// token creates the service account "bridge" if it does not exist, and returns a token for it and a kubeconfig with the token.
func (w *world) token() (token, kubeconfig string) {
	w.t.Helper()
	path, err := w.cluster.KubeconfigForServiceAccount(w.soon(), w.ns, "bridge")
	w.must(err)
	cfg, err := clientcmd.LoadFromFile(path)
	w.must(err)
	return cfg.AuthInfos["user"].Token, path
}

// writeToken replaces a token's file atomically, as the kubelet does.
func (w *world) writeToken(path, token string) {
	w.t.Helper()
	w.must(os.WriteFile(path+".new", []byte(token), 0o600))
	w.must(os.Rename(path+".new", path))
}
