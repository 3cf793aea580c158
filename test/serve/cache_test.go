package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// events are the events of informers, by the kind, namespace and name of the object.
type events struct {
	mu    sync.Mutex
	byKey map[string][]string
}

func (e *events) add(what string, kind string, x any) {
	text := ""
	o, ok := x.(client.Object)
	if !ok {
		text = fmt.Sprintf("%s %T", what, x)
		o = &metav1.PartialObjectMetadata{}
	} else {
		text = what + " " + textOf(o)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := kind + " " + o.GetNamespace() + "/" + o.GetName()
	e.byKey[key] = append(e.byKey[key], text)
}

func (e *events) copy() map[string][]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string][]string{}
	for key, texts := range e.byKey {
		out[key] = slices.Clone(texts)
	}
	return out
}

// textOf returns an object as JSON: without managedFields, which are not on the bus, and without the kind. Clients leave the kind of typed
// objects empty or not, as the list had it or not.
func textOf(o client.Object) string {
	o = o.DeepCopyObject().(client.Object)
	o.SetManagedFields(nil)
	if _, ok := o.(*unstructured.Unstructured); !ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// handler adds the events of an informer.
func (e *events) handler(kind string) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.add("added", kind, o) },
		UpdateFunc: func(before, o any) { e.add("updated from "+before.(client.Object).GetResourceVersion()+" to", kind, o) },
		DeleteFunc: func(o any) { e.add("deleted", kind, o) },
	}
}

// cached is a cache of controller-runtime.
type cached struct {
	cache.Cache
	events *events
}

// onNode is the name of an index of pods.
const onNode = "spec.nodeName"

// cached starts a cache with an informer for each form of objects: typed, unstructured, and metadata only.
func (w *world) cached(config *rest.Config, selector labels.Selector) *cached {
	w.t.Helper()
	http, err := rest.HTTPClientFor(config)
	w.must(err)
	x, err := cache.New(config, cache.Options{
		HTTPClient: http, Scheme: clientgoscheme.Scheme, DefaultLabelSelector: selector, DefaultNamespaces: map[string]cache.Config{w.ns: {}},
	})
	w.must(err)
	c := &cached{x, &events{byKey: map[string][]string{}}}
	w.must(c.IndexField(w.ctx, &corev1.Pod{}, onNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }))
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		http.CloseIdleConnections()
	})
	widget, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	widget.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	metadata.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	for name, o := range map[string]client.Object{"ConfigMap": &corev1.ConfigMap{}, "Pod": &corev1.Pod{}, "Widget": widget, "Widget's metadata": metadata} {
		informer, err := c.GetInformer(ctx, o)
		w.must(err)
		_, err = informer.AddEventHandler(c.events.handler(name))
		w.must(err)
	}
	if !c.WaitForCacheSync(ctx) {
		w.t.Fatal("the cache is not synced")
	}
	return c
}

// read returns what a program reads from the cache.
func (w *world) read(c *cached) map[string]string {
	w.t.Helper()
	widgetList, metadata := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
	widgetList.SetGroupVersionKind(widgets.GroupVersion().WithKind("WidgetList"))
	metadata.SetGroupVersionKind(widgets.GroupVersion().WithKind("WidgetList"))
	out := map[string]string{}
	for name, read := range map[string]struct {
		list    client.ObjectList
		options []client.ListOption
	}{
		"ConfigMaps":                {list: &corev1.ConfigMapList{}},
		"Pods":                      {list: &corev1.PodList{}},
		"Pods on node-1":            {&corev1.PodList{}, []client.ListOption{client.MatchingFields{onNode: "node-1"}}},
		"ConfigMaps of a namespace": {&corev1.ConfigMapList{}, []client.ListOption{client.InNamespace(w.ns)}},
		"ConfigMaps with a label":   {&corev1.ConfigMapList{}, []client.ListOption{client.MatchingLabels{"tier": "web"}}},
		"Widgets":                   {list: widgetList},
		"Widgets' metadata":         {list: metadata},
	} {
		w.must(c.List(w.ctx, read.list, read.options...))
		var texts []string
		w.must(meta.EachListItem(read.list, func(item runtime.Object) error {
			texts = append(texts, textOf(item.(client.Object)))
			return nil
		}))
		slices.Sort(texts)
		out[name] = strings.Join(texts, "\n")
	}
	return out
}

// wantSame waits until two caches hold the same, and their informers have had the same events.
func (w *world) wantSame(real, served *cached) {
	w.t.Helper()
	w.eventually("the two caches are the same", func() string { return cmp.Diff(w.read(real), w.read(served)) })
	w.eventually("the informers had the same events (-API server +bridge serve)", func() string { return cmp.Diff(real.events.copy(), served.events.copy()) })
}

// change changes objects in all ways. Its rounds follow each other.
func (w *world) change(round int) {
	w.t.Helper()
	name := func(n int) string { return fmt.Sprintf("c%d-%d", round, n) }
	for i := range 4 {
		w.createConfigMap(name(i), map[string]string{"tier": "web"}, map[string]string{"round": fmt.Sprint(round), "text": "<&>\u2028é"})
		w.createWidget(name(i), []string{"red", "green"}[i%2], int64(i))
	}
	w.patch("configmaps/"+name(0), `{"data":{"round":"patched"}}`)
	w.patch("configmaps/"+name(1), `{"metadata":{"labels":{"tier":"db"}}}`) // leaves a selection
	w.patch("configmaps/"+name(1), `{"metadata":{"labels":{"tier":"web"}}}`)
	w.patch("configmaps/"+name(1), `{"metadata":{"labels":{"tier":null}}}`)
	w.remove("configmaps/" + name(2))
	w.createConfigMap(name(2), map[string]string{"tier": "web"}, nil) // another object of the same name
	w.patch("widgets/"+name(0), `{"spec":{"size":42}}`)
	w.patch("widgets/"+name(0)+"/status", `{"status":{"shelf":"top"}}`)
	w.patch("widgets/"+name(1), `{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.remove("widgets/" + name(1))
	w.patch("widgets/"+name(1), `{"metadata":{"finalizers":null}}`)
	w.createPod(name(0), "node-1", map[string]string{"tier": "web"})
	w.createPod(name(1), "node-2", map[string]string{"tier": "web"})
	w.setPod(name(0), "10.2.0.1", corev1.PodRunning)
	w.setPod(name(1), "10.2.0.2", corev1.PodFailed)
	w.remove("pods/" + name(1))
}

// Programs that use controller-runtime must be able to read from `bridge serve` instead of the API server: their caches hold the same, and their
// informers have the same events, although `bridge serve` is killed and changes happen while it is away.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.change(0)
	w.ready()
	atReal, atServed := w.clients()
	web, err := labels.Parse("tier=web")
	w.must(err)
	real, served := w.cached(atReal, nil), w.cached(atServed, nil)
	realWeb, servedWeb := w.cached(atReal, web), w.cached(atServed, web)
	w.eventually("the caches have all", func() string {
		return cmp.Diff(w.read(real), w.read(served)) + cmp.Diff(w.read(realWeb), w.read(servedWeb))
	})

	w.change(1)
	w.wantSame(real, served)
	w.wantSame(realWeb, servedWeb)
	w.kill()
	w.change(2)
	w.restart()
	w.change(3)
	w.wantSame(real, served)
	w.wantSame(realWeb, servedWeb)

	if got := len(served.events.copy()); got < 40 {
		t.Errorf("there were events of %d objects only", got)
	}
	var none corev1.ConfigMap
	for _, c := range []*cached{real, served} {
		if err := c.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "none"}, &none); !apierrors.IsNotFound(err) {
			t.Errorf("get of what does not exist: %v", err)
		}
	}
	// A client without a cache reads the same, and learns that it cannot write.
	direct, err := client.New(atServed, client.Options{Scheme: clientgoscheme.Scheme})
	w.must(err)
	var pod, want corev1.Pod
	w.must(direct.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "c1-0"}, &pod))
	w.must(real.Get(w.ctx, client.ObjectKey{Namespace: w.ns, Name: "c1-0"}, &want))
	if diff := cmp.Diff(textOf(&want), textOf(&pod)); diff != "" {
		t.Errorf("a pod (-API server +bridge serve):\n%s", diff)
	}
	if err := direct.Update(w.ctx, &pod); !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "it can only be read") {
		t.Errorf("update: %v", err)
	}
}
