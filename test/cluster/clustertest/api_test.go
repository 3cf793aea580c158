package clustertest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The releases of Kubernetes and etcd in the program's go.mod.
const (
	release     = "v1.37.2"
	etcdRelease = "3.7.0"
)

func TestServerVersion(t *testing.T) {
	v, err := clientFor(t, shared.Kubeconfig()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v.GitVersion != release || v.Major != "1" || v.Minor != "37" {
		t.Errorf("version %s, major %s, minor %s; want %s, 1, 37", v.GitVersion, v.Major, v.Minor, release)
	}
	if v, err := shared.EtcdVersion(t.Context()); err != nil || v != etcdRelease {
		t.Errorf("etcd %s, %v; want %s", v, err, etcdRelease)
	}
}

// Clients can only distinguish clusters by the UID of kube-system.
func TestSystemNamespace(t *testing.T) {
	ns, err := clientFor(t, shared.Kubeconfig()).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil || ns.UID == "" {
		t.Errorf("kube-system's uid %q, %v", ns.UID, err)
	}
}

// Pods must not wait for a service account controller, and no object's deletion may wait for a controller.
func TestBuiltInObjectsComeAndGo(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	core := clientFor(t, shared.Kubeconfig()).CoreV1()
	meta := metav1.ObjectMeta{Name: "x"}
	if _, err := core.Pods(ns).Create(ctx, pod("x"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := core.ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := core.Pods(ns).Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := core.Pods(ns).Get(ctx, "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted pod: %v, want not found", err)
	}
}

func TestCustomResources(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	dyn, err := dynamic.NewForConfig(shared.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	crds := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = crds.Create(ctx, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.test.kubebridge.io", map[string]any{
		"group": "test.kubebridge.io", "scope": "Namespaced",
		"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	widgets := dyn.Resource(schema.GroupVersionResource{Group: "test.kubebridge.io", Version: "v1", Resource: "widgets"}).Namespace(ns)
	eventually(t, "create a widget", func(ctx context.Context) (bool, error) {
		_, err := widgets.Create(ctx, object("test.kubebridge.io/v1", "Widget", "w", nil), metav1.CreateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err := crds.Delete(ctx, "widgets.test.kubebridge.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "see the CRD gone", func(ctx context.Context) (bool, error) {
		_, err := crds.Get(ctx, "widgets.test.kubebridge.io", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// Tests use an aggregated API to get resourceVersions that are not numbers.
func TestAggregatedAPI(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	remote := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, `{"kind":"Answer","user":%q}`, r.Header.Get("X-Remote-User"))
	}))
	remote.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	remote.StartTLS()
	defer remote.Close()

	client := clientFor(t, shared.Kubeconfig())
	_, err := client.CoreV1().Services(ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "remote"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(shared.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	services := dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	_, err = services.Create(ctx, object("apiregistration.k8s.io/v1", "APIService", "v1.remote.kubebridge.io", map[string]any{
		"group": "remote.kubebridge.io", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10), "insecureSkipTLSVerify": true,
		"service": map[string]any{"namespace": ns, "name": "remote", "port": int64(remote.Listener.Addr().(*net.TCPAddr).Port)},
	}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer services.Delete(context.WithoutCancel(ctx), "v1.remote.kubebridge.io", metav1.DeleteOptions{})
	eventually(t, "reach the aggregated API as admin", func(ctx context.Context) (bool, error) {
		body, err := client.RESTClient().Get().AbsPath("/apis/remote.kubebridge.io/v1").DoRaw(ctx)
		return err == nil && string(body) == `{"kind":"Answer","user":"admin"}`, nil
	})
}

func TestRestrictedUser(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	kubeconfig, err := shared.KubeconfigFor("alice/ops", "auditors")
	if err != nil {
		t.Fatal(err)
	}
	alice := clientFor(t, kubeconfig)
	if _, err := alice.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list without a role: %v, want 403", err)
	}

	rbac := clientFor(t, shared.Kubeconfig()).RbacV1()
	_, err = rbac.Roles(ns).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "auditors"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "list through the group's role", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	if _, err := alice.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list what the role does not name: %v, want 403", err)
	}
}

func TestServiceAccountToken(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	for range 2 { // the second time the account exists
		kubeconfig, err := shared.KubeconfigForServiceAccount(ctx, ns, "bridge")
		if err != nil {
			t.Fatal(err)
		}
		client := clientFor(t, kubeconfig)
		if got, want := whoami(t, client), "system:serviceaccount:"+ns+":bridge"; got != want {
			t.Errorf("user %q, want %q", got, want)
		}
		if _, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list without a role: %v, want 403", err)
		}
	}
}

// One write between the saved resourceVersion and the compaction must be enough for 410: tests of resuming count on it.
func TestCompactionEndsHistoryOfEvents(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	events := clientFor(t, shared.Kubeconfig()).CoreV1().Events(ns)
	create := func() *corev1.Event {
		t.Helper()
		e, err := events.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "e-"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: "x"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	saved := create().ResourceVersion
	create()
	// Twice: the second compaction may find nothing written since the first.
	for range 2 {
		rev, err := shared.CompactEtcd(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := shared.Revision(ctx); err != nil || now < rev {
			t.Errorf("revision %d after compaction at %d, %v", now, rev, err)
		}
		if err := shared.CompactEtcdAt(ctx, rev); err == nil {
			t.Errorf("compaction at %d succeeded a second time", rev)
		}
	}

	w, err := events.Watch(ctx, metav1.ListOptions{ResourceVersion: saved})
	if err != nil {
		t.Fatalf("open watch: %v, want the error inside the stream", err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("got %s %v, want ERROR 410 Expired", e.Type, err)
		}
	case <-time.After(time.Minute):
		t.Error("watch from a compacted resourceVersion is silent")
	}
}

func TestDeleteNamespaceTakesItsContents(t *testing.T) {
	ctx, ns := t.Context(), namespace(t, shared)
	core := clientFor(t, shared.Kubeconfig()).CoreV1()
	bound := pod("bound")
	bound.Spec.NodeName = "nowhere" // its deletion would wait for a kubelet
	if _, err := core.Pods(ns).Create(ctx, bound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shared.DeleteNamespace(ctx, ns); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Namespaces().Get(ctx, ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace: %v, want not found", err)
	}
	if _, err := core.Pods(ns).Get(ctx, "bound", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("pod: %v, want not found", err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
}

func object(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// Two API servers of one cluster have the same objects and credentials, and serve the same custom resources.
func TestTwoAPIServers(t *testing.T) {
	ctx := t.Context()
	first := Start(t, Options{})
	second := Start(t, Options{Beside: first})
	ns := namespace(t, first)
	user, err := second.KubeconfigForServiceAccount(ctx, ns, "bridge")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := whoami(t, clientFor(t, user)), "system:serviceaccount:"+ns+":bridge"; got != want {
		t.Errorf("user %q, want %q", got, want)
	}
	made, err := clientFor(t, second.Kubeconfig()).CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := clientFor(t, first.Kubeconfig()).CoreV1().ConfigMaps(ns).Get(ctx, "m", metav1.GetOptions{})
	if err != nil || found.UID != made.UID || found.ResourceVersion != made.ResourceVersion {
		t.Errorf("the first server has %v, %v; want what the second one has made: %v", found, err, made)
	}
	if first.Server() == second.Server() || first.EtcdURL() != second.EtcdURL() {
		t.Errorf("servers %s and %s, etcd %s and %s", first.Server(), second.Server(), first.EtcdURL(), second.EtcdURL())
	}
}
