package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func serve(t *testing.T, o Options) (*Server, *rest.Config) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s)
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return s, &rest.Config{Host: h.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
}

// The API machinery can decode every template, and the mark is where the tracker finds
// it.
func TestObjects(t *testing.T) {
	for _, name := range []string{"pods", "events", "secrets", "widgets"} {
		all, err := Parse(name, Resource{Events: 9, Objects: 3})
		if err != nil {
			t.Fatal(err)
		}
		r := all[0]
		if err := r.prepare(); err != nil {
			t.Fatal(name, err)
		}
		for i := range uint64(len(r.templates)) {
			for _, f := range []form{whole, listed, partial} {
				var u unstructured.Unstructured
				b := r.append(nil, version{object: i, rv: baseRV + 5, seq: 40 + i}, f)
				if err := json.Unmarshal(b, &u.Object); err != nil {
					t.Fatalf("%s %d: %v: %s", name, i, err, b)
				}
				if u.GetName() != fmt.Sprintf("kb-%08d", i) || u.GetResourceVersion() != strconv.Itoa(baseRV+5) || u.GetNamespace() != fmt.Sprintf("ns-%02d", i) {
					t.Errorf("%s %d: %s/%s@%s", name, i, u.GetNamespace(), u.GetName(), u.GetResourceVersion())
				}
				if (u.GetKind() == "") != (f == listed) || f == partial && u.Object["spec"] != nil {
					t.Errorf("%s in form %d has kind %q", name, f, u.GetKind())
				}
				if m, _ := mark.Find([]byte(u.GetAnnotations()[markKey(r)])); m.Seq != 40+i || m.Object != i {
					t.Errorf("%s %d: mark %+v", name, i, m)
				}
			}
		}
	}
}

func TestDiscovery(t *testing.T) {
	r, err := Parse("pods,widgets*2", Resource{})
	if err != nil {
		t.Fatal(err)
	}
	_, config := serve(t, Options{Resources: r})
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil || len(lists) == 0 {
		t.Fatal(lists, err)
	}
	var names []string
	for _, l := range lists {
		for _, a := range l.APIResources {
			names = append(names, a.Name+"."+l.GroupVersion)
		}
	}
	slices.Sort(names) // client-go collects them in a map
	if got := fmt.Sprint(names); got != "[apiservices.apiregistration.k8s.io/v1 customresourcedefinitions.apiextensions.k8s.io/v1 pods.v1 widgets000.bench.kubebridge.io/v1 widgets001.bench.kubebridge.io/v1]" {
		t.Error(got)
	}
}

func TestPagesResumeAndGone(t *testing.T) {
	r, _ := Parse("pods", Resource{Events: 100, Objects: 60, Initial: 37})
	s, config := serve(t, Options{Resources: r})
	client := dynamic.NewForConfigOrDie(config).Resource(pods())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	listed, last, o := 0, "", metav1.ListOptions{Limit: 3}
	for {
		l, err := client.List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		listed += len(l.Items)
		for _, o := range l.Items {
			if key := o.GetNamespace() + "/" + o.GetName(); key > last {
				last = key
			} else {
				t.Fatalf("%s is listed behind %s", key, last)
			}
		}
		if l.GetResourceVersion() != strconv.Itoa(baseRV) {
			t.Fatal(l.GetResourceVersion())
		}
		if o.Continue = l.GetContinue(); o.Continue == "" {
			break
		}
	}
	if listed != 37 {
		t.Fatal(listed)
	}
	s.Start()
	if l, err := metadata.NewForConfigOrDie(config).Resource(pods()).List(ctx, metav1.ListOptions{Limit: 1}); err != nil || l.ResourceVersion != strconv.Itoa(baseRV+100) {
		t.Fatalf("a probe is answered %+v, %v: the server's history must not be behind what a watch may send", l, err)
	}
	w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(baseRV + 90)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 91; i <= 100; i++ {
		e := <-w.ResultChan()
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || u.GetResourceVersion() != strconv.Itoa(baseRV+i) || u.GetKind() != "Pod" || e.Type != apiwatch.Modified {
			t.Fatalf("event %d: %s %v", i, e.Type, e.Object)
		}
	}
	w.Stop()
	s.Compact()
	w, err = client.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(baseRV + 10)})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != apiwatch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Fatalf("%s %v", e.Type, e.Object)
	}
}

// An informer lists by WatchList, watches, and misses no event when its watch is cut.
func TestInformerSeesEveryEvent(t *testing.T) {
	r, _ := Parse("pods", Resource{Events: 600, Objects: 50, Initial: 20, Lives: 4})
	s, config := serve(t, Options{Resources: r, Bookmarks: 50 * time.Millisecond})
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	informer := factory.ForResource(pods()).Informer()
	got := make(chan string, 1000)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { got <- "added" },
		UpdateFunc: func(any, any) { got <- "modified" },
		DeleteFunc: func(any) { got <- "deleted" },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	deadline := time.After(2 * time.Minute)
	count := map[string]int{}
	for n := range 620 {
		if n == 20 {
			s.Start()
		}
		select {
		case what := <-got:
			count[what]++
		case <-deadline:
			t.Fatalf("%d events in time: %v", n, count)
		}
	}
	if count["added"] == 0 || count["modified"] == 0 || count["deleted"] == 0 {
		t.Error(count)
	}
}

// Distinct objects differ in many places, as those of a cluster do. An object stays the same, and can be decoded.
func TestDistinct(t *testing.T) {
	all, err := Parse("pods", Resource{Events: 100, Objects: 40, Distinct: true})
	if err != nil {
		t.Fatal(err)
	}
	r := all[0]
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	same := uint64(len(r.templates)) // the next object of a template
	render := func(object uint64, f form) string {
		return string(r.append(nil, version{object: object, rv: baseRV}, f))
	}
	a, b := render(1, whole), render(1+same, whole)
	differ := 0
	for i := range a {
		if a[i] != b[i] {
			differ++
		}
	}
	if len(a) != len(b) || differ < len(a)/50 || a != render(1, whole) {
		t.Errorf("two pods of %d and %d bytes differ in %d bytes, want at least 2 %%", len(a), len(b), differ)
	}
	for _, f := range []form{whole, listed, partial} {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(render(3, f)), &o); err != nil || o.Name != "kb-00000003" {
			t.Errorf("form %d: the name is %q (%v)", f, o.Name, err)
		}
	}
	if got := render(1, listed); got[1:] != a[r.templates[1].gvk+1:] {
		t.Errorf("a listed pod differs from the same pod in an event")
	}
}
