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

// revoke ends what allow has begun.
func (w *world) revoke(resource string) {
	w.t.Helper()
	w.delete(clusterRoleBindings, w.ns+"-"+resource)
}

// refuses waits until the API server refuses to list ConfigMaps to who comes with cfg, as refusal says.
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

// isWaiting reports that a type's collection waits and says why.
func (w *world) isWaiting(t kube.Type, why string) func(bridge.Status) bool {
	return func(s bridge.Status) bool {
		c := s.Find(w.collection(t))
		return c.State == "waiting" && strings.Contains(strings.ToLower(c.Error), why)
	}
}

func (w *world) isWatching(t kube.Type) func(bridge.Status) bool {
	return func(s bridge.Status) bool { return s.Find(w.collection(t)).State == "watching" }
}

// A permission that is taken away and given back is a pause: the open watch flows on, opening another is refused. Nobody may
// conclude from it that objects are gone, and the position is still good afterwards.
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
	w.settle(kube.ConfigMaps) // over the watch that is open

	toCluster.Cut()
	w.awaitStatus(w.isWaiting(kube.ConfigMaps, "forbidden"))
	said := len(w.since(0))
	w.patch(kube.ConfigMaps, "patched", "unseen")
	w.delete(kube.ConfigMaps, "deleted")
	w.stop()
	w.run() // and a bridge that starts without the permission knows no more
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

// Tokens of service accounts are replaced in their file every hour, and the old ones expire. The bridge goes on with the new one,
// for which client-go looks once a minute; until then the collection waits, with an error in its status, and publishes no deletions.
func TestTokenIsRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	account := "system:serviceaccount:" + w.ns + ":bridge"
	w.allow(account, "namespaces", "get")
	w.allow(account, "configmaps", "list", "watch")
	tokenFile := filepath.Join(w.dir, "token")
	old, path := w.token()
	w.writeToken(tokenFile, old)
	toCluster := w.proxyToCluster()
	w.kubeconfigOf(path, func(c *api.Config) { c.AuthInfos["user"] = &api.AuthInfo{TokenFile: tokenFile} })
	w.create(kube.ConfigMaps, "o")
	w.start()
	w.settle(kube.ConfigMaps)

	w.delete(serviceAccounts, "bridge") // and its tokens are void
	renewed, _ := w.token()
	w.writeToken(tokenFile, renewed)
	cfg := rest.AnonymousClientConfig(w.cluster.RESTConfig())
	cfg.BearerToken = old
	w.refuses(cfg, apierrors.IsUnauthorized)
	w.patch(kube.ConfigMaps, "o", "over the watch that is open")
	w.settle(kube.ConfigMaps)
	toCluster.Cut()
	w.patch(kube.ConfigMaps, "o", "unseen")
	w.awaitStatus(w.isWaiting(kube.ConfigMaps, "unauthorized"))
	w.must(w.bridge.Await(w.within(2*time.Minute), w.isWatching(kube.ConfigMaps)))
	all := w.verify(check.Options{Types: []kube.Type{kube.ConfigMaps}})
	w.snapshotOf(kube.ConfigMaps, all, bus.Counts{Listed: 1, Present: 1})
}

var serviceAccounts = kube.Type{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Kind: "ServiceAccount", Namespaced: true}

// token makes the service account "bridge" if it does not exist, and a token for it, with a kubeconfig that has it.
func (w *world) token() (token, kubeconfig string) {
	w.t.Helper()
	path, err := w.cluster.KubeconfigForServiceAccount(w.soon(), w.ns, "bridge")
	w.must(err)
	cfg, err := clientcmd.LoadFromFile(path)
	w.must(err)
	return cfg.AuthInfos["user"].Token, path
}

// writeToken replaces a token's file as the kubelet does, at once.
func (w *world) writeToken(path, token string) {
	w.t.Helper()
	w.must(os.WriteFile(path+".new", []byte(token), 0o600))
	w.must(os.Rename(path+".new", path))
}
