package source_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// spy records which lists a client requests.
type spy struct {
	mu       sync.Mutex
	streamed []int // the status of each answer
	pages    int
}

func (s *spy) on(cfg *rest.Config) *rest.Config {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			s.mu.Lock()
			defer s.mu.Unlock()
			switch q := r.URL.Query(); {
			case err != nil:
			case q.Has("sendInitialEvents"):
				s.streamed = append(s.streamed, resp.StatusCode)
			case q.Has("limit"):
				s.pages++
			}
			return resp, err
		})
	})
	return cfg
}

func (s *spy) seen() (streamed []int, pages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.streamed), s.pages
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bodies returns digests of objects, by name. They do not depend on the order of apiVersion and kind, because streams have another order.
func bodies(objects map[string]*source.Object) map[string]string {
	out := map[string]string{}
	for name, o := range objects {
		h := sha256.New()
		o.Hash(h)
		out[name] = fmt.Sprintf("%s %s of %d bytes, %x", o.APIVersion, o.Kind, len(o.Raw), h.Sum(nil))
	}
	return out
}

// A collection with a selector is listed as a stream, which has the same objects as pages have. The watch continues where the stream ended.
func TestStreamedListMatchesPages(t *testing.T) {
	w := newWorld(t, shared)
	for name, typ := range map[string]kube.Type{"built-in": kube.ConfigMaps, "custom": w.install()} {
		for _, metadataOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, metadataOnly=%t", name, metadataOnly), func(t *testing.T) {
				w := newWorld(t, shared)
				w.bulk(typ, "o", 250)
				var spy spy
				target := w.target(typ, event.Collection{LabelSelector: "half=even", MetadataOnly: metadataOnly})
				r := w.run(w.connect(spy.on(shared.RESTConfig())), target)
				end := w.await(r, "the list's end", ended)
				if streamed, pages := spy.seen(); !slices.Equal(streamed, []int{http.StatusOK}) || pages > 0 {
					t.Fatalf("streamed %v, and %d pages", streamed, pages)
				}

				paged := newRecorder()
				rv, err := source.NewCollection(source.Options{Client: w.client, Target: target}).Survey(w.ctx, paged)
				w.must(err)
				if rv == "" || end.RV == "" || end.Resume != end.RV {
					t.Errorf("streamed up to %s (%s), paged at %s", end.RV, end.Resume, rv)
				}
				want := bodies(paged.objects(source.Listed))
				if diff := cmp.Diff(want, bodies(r.objects(source.Listed))); diff != "" || len(want) != 125 {
					t.Errorf("%d objects (-paged +streamed):\n%s", len(want), diff)
				}

				w.bulk(typ, "new", 1)
				w.await(r, "a new object", func(s source.Signal) bool { return s.Kind == source.Added && s.Object.Name == "new-0" })
				w.must(w.kube.Delete(w.ctx, typ, "o-0"))
				w.await(r, "a deletion", func(s source.Signal) bool { return s.Kind == source.Deleted && s.Object.Name == "o-0" })
				for _, s := range r.all() {
					if s.Object != nil {
						checkForm(t, s.Object, typ, metadataOnly)
					}
				}
			})
		}
	}
}

// checkForm checks that o is of the type, and whether it has a body.
func checkForm(t *testing.T, o *source.Object, typ kube.Type, metadataOnly bool) {
	t.Helper()
	if o.Kind != typ.Kind || o.APIVersion != typ.GroupVersion().String() || strings.Contains(string(o.Raw), "PartialObjectMetadata") {
		t.Fatalf("%s %s: %s", o.APIVersion, o.Kind, o.Raw)
	}
	if strings.Contains(string(o.Raw), `"body":"of `) == metadataOnly {
		t.Fatalf("metadataOnly=%t: %s", metadataOnly, o.Raw)
	}
	if !strings.Contains(string(o.Raw), `"half":"`) {
		t.Fatalf("labels are missing: %s", o.Raw)
	}
}

// A collection without a selector is listed in pages, which have whole objects or, if configured, only metadata.
func TestPagedList(t *testing.T) {
	for _, metadataOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("metadataOnly=%t", metadataOnly), func(t *testing.T) {
			w := newWorld(t, shared)
			w.bulk(kube.ConfigMaps, "o", 250) // more than a page
			var spy spy
			r := w.run(w.connect(spy.on(shared.RESTConfig())), w.target(kube.ConfigMaps, event.Collection{MetadataOnly: metadataOnly}))
			w.await(r, "the list's end", ended)
			if streamed, pages := spy.seen(); pages < 2 || len(streamed) > 0 {
				t.Errorf("%d pages, streamed %v", pages, streamed)
			}
			got := r.objects(source.Listed)
			if len(got) != 250 {
				t.Errorf("%d objects", len(got))
			}
			for _, o := range got {
				checkForm(t, o, kube.ConfigMaps, metadataOnly)
			}
		})
	}
}

// A server without WatchList, as before Kubernetes 1.32, refuses a stream. The client then requests pages at once, and tries no more streams.
func TestServerWithoutWatchList(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, clustertest.Options{ExtraArgs: []string{"--feature-gates=WatchList=false"}})
	w := newWorld(t, cluster)
	w.bulk(kube.ConfigMaps, "o", 20)
	var spy spy
	client := w.connect(spy.on(cluster.RESTConfig()))
	for _, half := range []string{"even", "odd"} {
		r := w.run(client, w.target(kube.ConfigMaps, event.Collection{LabelSelector: "half=" + half}))
		w.await(r, "the list's end", ended)
		if got := r.objects(source.Listed); len(got) != 10 {
			t.Errorf("%s: %d objects", half, len(got))
		}
	}
	if streamed, _ := spy.seen(); len(streamed) != 1 || streamed[0] == http.StatusOK {
		t.Errorf("streamed %v, want one refusal that is remembered", streamed)
	}
}

// A call of Survey while a watch is open finds the existing objects and does not disturb the watch.
func TestSurvey(t *testing.T) {
	w := newWorld(t, shared)
	w.bulk(kube.ConfigMaps, "o", 30)
	target := w.target(kube.ConfigMaps, event.Collection{FieldSelector: "metadata.name!=o-7"})
	r := w.run(w.client, target)
	w.await(r, "the list's end", ended)
	before := len(r.all())

	survey := newRecorder()
	collection := source.NewCollection(source.Options{Client: w.client, Target: target, Handler: r})
	if _, err := collection.Survey(w.ctx, survey); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(bodies(r.objects(source.Listed)), bodies(survey.objects(source.Listed))); diff != "" || len(survey.all()) != 29 {
		t.Errorf("%d signals (-list +survey):\n%s", len(survey.all()), diff)
	}
	if len(r.all()) != before {
		t.Errorf("Run's handler received %v", r.all()[before:])
	}

	kubeconfig, err := shared.KubeconfigFor("nobody")
	w.must(err)
	refused, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	w.must(err)
	nobody := source.NewCollection(source.Options{Client: w.connect(refused), Target: target})
	if rv, err := nobody.Survey(w.ctx, newRecorder()); !apierrors.IsForbidden(err) || rv != "" {
		t.Errorf("Survey by a user without the permission to list returns %q and %v, want no version and a Forbidden error", rv, err)
	}
}
