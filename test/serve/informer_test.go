package serve

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// counter counts the lists and the streamed lists that a client asks for.
type counter struct {
	next            http.RoundTripper
	lists, streamed *atomic.Int32
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") == "true":
		c.streamed.Add(1)
	case q.Get("watch") == "":
		c.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}

// informed starts client-go's typed informers of ConfigMaps and Pods.
func (w *world) informed(config *rest.Config) (e *events, lists, streamed *atomic.Int32) {
	w.t.Helper()
	e, lists, streamed = &events{byKey: map[string][]string{}}, &atomic.Int32{}, &atomic.Int32{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, lists, streamed} })
	client, err := kubernetes.NewForConfig(config)
	w.must(err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(w.ns))
	_, err = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(e.handler("ConfigMap"))
	w.must(err)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(e.handler("Pod"))
	w.must(err)
	stop := make(chan struct{})
	factory.Start(stop)
	w.t.Cleanup(func() { close(stop); factory.Shutdown() })
	for kind, synced := range factory.WaitForCacheSync(w.ctx.Done()) {
		if !synced {
			w.t.Fatalf("%s is not synced", kind)
		}
	}
	return e, lists, streamed
}

// client-go's informers must work in both ways in which they begin: with a list, or with a streamed list (WatchListClient).
func TestInformers(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		t.Run(fmt.Sprintf("%s=%t", clientfeatures.WatchListClient, streamed), func(t *testing.T) {
			featuretesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streamed)
			w := newWorld(t)
			w.change(0)
			w.ready()
			atReal, atServed := w.clients()
			real, _, _ := w.informed(atReal)
			served, lists, streams := w.informed(atServed)
			same := func(when string) {
				t.Helper()
				w.eventually("the informers had the same events "+when+" (-API server +bridge serve)", func() string { return cmp.Diff(real.copy(), served.copy()) })
			}
			same("at first")
			w.change(1)
			same("after changes")
			w.kill()
			w.change(2)
			w.restart()
			same("after bridge serve was killed")
			if n, m := lists.Load(), streams.Load(); streamed && (n > 0 || m < 2) || !streamed && (n < 2 || m > 0) {
				t.Errorf("the informers asked for %d lists and %d streamed lists", n, m)
			}
		})
	}
}
