package api

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestReflector: the cache of client-go's reflector, filled by lists or by streamed lists (WatchList), has the objects that the bus has, behind
// gaps, resets and resyncs.
func TestReflector(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("streamed=%t", streamed), func(t *testing.T) { runReflector(t, streamed) })
	}
}

func runReflector(t *testing.T, streamed bool) {
	b := threePods(t)
	pods := b.client("").Resource(podsResource)
	lists := 0
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			lists++
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			if o.SendInitialEvents != nil && !streamed {
				return nil, fmt.Errorf("no streamed lists in this test")
			}
			return pods.Watch(ctx, o)
		},
	}
	held := cache.NewStore(cache.MetaNamespaceKeyFunc)
	ctx, stop := context.WithCancel(t.Context())
	r := cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, held, cache.ReflectorOptions{Name: "test"})
	done := make(chan struct{})
	go func() { defer close(done); r.RunWithContext(ctx) }()
	defer func() { stop(); <-done }()

	want := map[string]string{"shop/web": "41", "shop/cart": "42", "infra/log": "43"}
	held0 := map[string]thing{"shop/web": web, "shop/cart": cart, "infra/log": log}
	wantHeld(t, held, want)
	random, version := rand.New(rand.NewPCG(1, 2)), 50
	change := func(origin event.Origin) {
		version++
		key := fmt.Sprintf("shop/o%d", random.IntN(6))
		x, ok := held0[key]
		if ok && random.IntN(2) == 0 {
			b.deleted("pods", x, version)
			delete(held0, key)
			delete(want, key)
			return
		}
		typ := event.Modified
		if !ok {
			x, typ = thing{"shop", key[len("shop/"):], fmt.Sprint("u-", version), 0, ""}, event.Added
		}
		x.version = version
		b.object("pods", typ, origin, x)
		held0[key], want[key] = x, fmt.Sprint(version)
	}
	for round := range 4 {
		for range 20 {
			change(event.Watch)
		}
		wantHeld(t, held, want)
		switch round {
		case 0:
			b.gap("pods", event.ReasonResync)
			for _, x := range held0 {
				b.object("pods", event.Present, event.Resync, x)
			}
			version++
			b.synced("pods", version, event.ReasonResync)
		case 1:
			b.gap("pods", event.ReasonExpired)
			change(event.Reconcile)
			version++
			b.synced("pods", version, event.ReasonExpired)
		case 2:
			b.gap("pods", event.ReasonReset)
			for _, x := range held0 {
				b.object("pods", event.Present, event.Snapshot, x)
			}
			version++
			b.synced("pods", version, event.ReasonReset)
		}
		wantHeld(t, held, want)
	}
	if streamed && lists > 0 {
		t.Errorf("the reflector listed %d times", lists)
	}
	if !streamed && lists < 3 {
		t.Errorf("the reflector listed %d times, want one for the start, the gap and the reset each", lists)
	}
}

// wantHeld waits until a cache has the objects.
func wantHeld(t *testing.T, held cache.Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		clear(got)
		for _, x := range held.List() {
			o := x.(*unstructured.Unstructured)
			got[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		if maps.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the cache (-want +got):\n%s", cmp.Diff(want, got))
}
