package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/clientgo"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

type runner interface {
	Run(ctx context.Context, from event.Position) error
}

// follow runs what create returns until the test ends, and hands out its signals.
func follow(t *testing.T, from event.Position, create func(source.Handler) runner) <-chan source.Signal {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	signals, done := make(chan source.Signal), make(chan error)
	run := create(source.HandlerFunc(func(ctx context.Context, s source.Signal) error {
		select {
		case signals <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	go func() { done <- run.Run(ctx, from) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want the context's error", err)
		}
	})
	return signals
}

// next is the next signal that is no progress.
func next(t *testing.T, signals <-chan source.Signal) source.Signal {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		select {
		case s := <-signals:
			if s.Kind != source.Progress {
				return s
			}
		case <-timeout.C:
			t.Fatal("no signal for a minute")
		}
	}
}

// listSecrets is a typed client's ListerWatcher over a namespace.
func listSecrets(t *testing.T, c *clustertest.Cluster, ns string) cache.ListerWatcher {
	t.Helper()
	return cache.NewListWatchFromClient(clientOf(t, c).CoreV1().RESTClient(), "secrets", ns, fields.Everything())
}

func fromListerWatcher(lw cache.ListerWatcher) func(source.Handler) runner {
	return func(h source.Handler) runner {
		return clientgo.FromListerWatcher(lw, clientgo.ListerWatcherOptions{Handler: h, Scheme: scheme.Scheme})
	}
}

// The ListerWatcher of a typed client passes on the same signals as a Collection: the same objects, versions and positions, and
// equivalent bodies.
func TestListerWatcherMatchesCollection(t *testing.T) {
	ctx, client := within(t), clientOf(t, cluster)
	ns := namespace(t, client)
	secrets := client.CoreV1().Secrets(ns)
	secret := func(i int) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%03d", i), Labels: map[string]string{"text": "a"}},
			Data:       map[string][]byte{"binary": {0, 255, '<'}},
		}
	}
	const listed = 600 // more than one page
	for i := range listed {
		if _, err := secrets.Create(ctx, secret(i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other, err := source.NewClient(cluster.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	sides := []<-chan source.Signal{
		follow(t, event.Position{}, fromListerWatcher(listSecrets(t, cluster, ns))),
		follow(t, event.Position{}, func(h source.Handler) runner {
			return source.NewCollection(source.Options{Client: other, Handler: h, Target: source.Target{
				Collection: event.Collection{Resource: "secrets", Namespace: ns},
				Resource:   source.Resource{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true},
			}})
		}),
	}
	same := func(want source.SignalKind) {
		t.Helper()
		a, b := next(t, sides[0]), next(t, sides[1])
		if a.Kind != want || b.Kind != want || a.Resume != b.Resume {
			t.Fatalf("got %v, resume from %q, and %v, resume from %q; want %v", a.Kind, a.Resume, b.Kind, b.Resume, want)
		}
		if a.Object == nil {
			return
		}
		x, y := *a.Object, *b.Object
		if x.APIVersion != "v1" || x.Kind != "Secret" || x.Name != y.Name || x.Namespace != y.Namespace || x.UID != y.UID ||
			x.ResourceVersion != y.ResourceVersion || x.APIVersion != y.APIVersion || x.Kind != y.Kind {
			t.Fatalf("got\n%s\nand\n%s", x.Raw, y.Raw)
		}
		var typed [2]corev1.Secret
		if err := errors.Join(json.Unmarshal(x.Raw, &typed[0]), json.Unmarshal(y.Raw, &typed[1])); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(typed[0], typed[1]) {
			t.Fatalf("bodies differ:\n%s\n%s", x.Raw, y.Raw)
		}
	}
	same(source.ListBegun)
	for range listed {
		same(source.Listed)
	}
	same(source.ListEnded)
	if _, err := secrets.Create(ctx, secret(listed), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	same(source.Added)
	changed := secret(0)
	changed.Labels["text"] = "b"
	if _, err := secrets.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	same(source.Modified)
	if err := secrets.Delete(ctx, "s-001", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	same(source.Deleted)
}

// A lost history, and a restored older history, must be detected through a typed client, too.
func TestListerWatcherGoneAndOtherHistory(t *testing.T) {
	ctx := within(t)
	own := clustertest.Start(t, clustertest.Options{})
	ns := namespace(t, clientOf(t, own))
	create := func(name string) string {
		t.Helper()
		s, err := clientOf(t, own).CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.ResourceVersion
	}
	first := create("a")
	saved := t.TempDir() + "/etcd"
	down := func(do func(string) error) { // an API server that comes back has forgotten its history
		t.Helper()
		if err := errors.Join(own.Stop(), do(saved), own.Restart(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	down(own.SaveEtcd)
	const since = 300 // more than an API server writes when it starts
	for i := range since {
		create(fmt.Sprintf("b-%03d", i))
	}
	late := create("c")
	t.Run("gone", func(t *testing.T) {
		signals := follow(t, event.Position{RV: first}, fromListerWatcher(listSecrets(t, own, ns)))
		if s := next(t, signals); s.Kind != source.ListBegun || s.Reason != event.ReasonExpired || s.RV != first || !strings.Contains(s.Detail, "too old resource version") {
			t.Fatalf("got %+v", s)
		}
		for range since + 2 {
			if s := next(t, signals); s.Kind != source.Listed {
				t.Fatalf("got %+v", s)
			}
		}
		if s := next(t, signals); s.Kind != source.ListEnded {
			t.Fatalf("got %+v", s)
		}
	})
	t.Run("another history", func(t *testing.T) {
		signals := follow(t, event.Position{RV: late}, fromListerWatcher(listSecrets(t, own, ns)))
		down(own.RestoreEtcd)
		if s := next(t, signals); s.Kind != source.ListBegun || s.Reason != event.ReasonHistory || !s.NewEpoch || s.RV != late {
			t.Fatalf("got %+v", s)
		}
		if s := next(t, signals); s.Kind != source.Listed || s.Object.Name != "a" {
			t.Fatalf("got %+v", s)
		}
		if s := next(t, signals); s.Kind != source.ListEnded {
			t.Fatalf("got %+v", s)
		}
	})
}

// Objects from client-go's clients have no kind, so RestoreGVK is needed. If this test begins to fail because they have one,
// RestoreGVK does no harm but is less needed.
func TestRestoreGVKOfWhatClientsReturn(t *testing.T) {
	ctx, client := within(t), clientOf(t, cluster)
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	if list.Items[0].Kind != "" {
		t.Errorf("the client now says %q", list.Items[0].Kind)
	}
	if err := clientgo.RestoreGVK(scheme.Scheme, list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if list.Kind != "NamespaceList" || item.Kind != "Namespace" || item.APIVersion != "v1" {
			t.Errorf("got %v with %v", list.TypeMeta, item.TypeMeta)
		}
	}
}

// Handlers and listers of an informer see the kind, in what was listed as in what was watched, deletions included.
func TestRestoreGVKTransformInInformer(t *testing.T) {
	ctx, client := within(t), clientOf(t, cluster)
	ns := namespace(t, client)
	configMaps := client.CoreV1().ConfigMaps(ns)
	create := func(name string) {
		t.Helper()
		if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("listed")
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(ns), informers.WithTransform(clientgo.RestoreGVKTransform(scheme.Scheme)))
	seen := make(chan string, 16) // the informer must not wait for a test that has failed
	note := func(what string, obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		c := obj.(*corev1.ConfigMap)
		seen <- what + " " + c.APIVersion + " " + c.Kind + " " + c.Name
	}
	informer := factory.Core().V1().ConfigMaps()
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note("added", obj) },
		UpdateFunc: func(_, obj any) { note("updated", obj) },
		DeleteFunc: func(obj any) { note("deleted", obj) },
	}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	factory.StartWithContext(running)
	t.Cleanup(func() { stop(); factory.Shutdown() })
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("never saw %q", want)
		}
	}
	expect("added v1 ConfigMap listed")
	create("watched")
	expect("added v1 ConfigMap watched")
	cached, err := informer.Lister().ConfigMaps(ns).Get("watched")
	if err != nil || cached.Kind != "ConfigMap" {
		t.Errorf("the lister has %v: %v", cached, err)
	}
	changed := cached.DeepCopy()
	changed.Data = map[string]string{"a": "b"}
	if _, err := configMaps.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("updated v1 ConfigMap watched")
	if err := configMaps.Delete(ctx, "listed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("deleted v1 ConfigMap listed")
}

// Into must accept each of Kubernetes' own types for its own kind, and for no other group's or version's.
func TestIntoKnowsKubernetesTypes(t *testing.T) {
	checked := 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		obj := reflect.New(typ).Interface()
		if _, ok := obj.(metav1.Object); !ok || !strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") {
			continue
		}
		checked++
		into := func(gvk schema.GroupVersionKind) error {
			apiVersion, kind := gvk.ToAPIVersionAndKind()
			e := event.Received{
				Type: event.Added, APIVersion: apiVersion, Kind: kind, Name: "x",
				Object: fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"}}`, apiVersion, kind),
			}
			return e.Into(obj)
		}
		if err := into(gvk); err != nil {
			t.Error(err)
		}
		for _, other := range []schema.GroupVersionKind{
			{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind + "Claim"},
			{Group: gvk.Group, Version: "v7", Kind: gvk.Kind},
			{Group: "other.example.com", Version: gvk.Version, Kind: gvk.Kind},
		} {
			if err := into(other); !errors.Is(err, event.ErrOtherKind) {
				t.Errorf("%v into %T: %v", other, obj, err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d types", checked)
	}
}
