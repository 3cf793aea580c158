package source

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// resolve finds one resource once, like a caller that does not follow the catalog.
func resolve(ctx context.Context, c *Client, name string) (Resource, error) {
	catalog, err := c.Catalog(ctx)
	if err != nil {
		return Resource{}, err
	}
	return catalog.Find(discovery.Parse(name))
}

// Resources are named as kubectl names them.
func TestFind(t *testing.T) {
	pods := Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	deployments := Resource{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true}
	events := Resource{Version: "v1", Name: "events", Kind: "Event", Namespaced: true}
	forms(t, func(t *testing.T, d *discoveryStub) {
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			for name, want := range map[string]Resource{
				"pods": pods, "po": pods, "pod": pods, "Pods": pods, "pods.": pods, "po.core": pods, "pods.v1.": pods, "pods.v1.core": pods,
				"deploy": deployments, "deployments": deployments, "deployments.apps": deployments, "deployments.v1.apps": deployments, "deploy.apps": deployments,
				"deployments.v1beta1.apps": {Group: "apps", Version: "v1beta1", Name: "deployments", Kind: "OldDeployment", Namespaced: true},
				"events":                   events, "ev": events,
				"events.events.k8s.io":   {Group: "events.k8s.io", Version: "v1", Name: "events", Kind: "Event", Namespaced: true},
				"ns":                     {Version: "v1", Name: "namespaces", Kind: "Namespace"},
				"widgets.v1.example.com": {Group: "v1.example.com", Version: "v2", Name: "widgets", Kind: "Widget"},
			} {
				got, err := resolve(t.Context(), client, name)
				if err != nil || got != want {
					t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
				}
			}
			for name, want := range map[string]error{
				"unicorns": discovery.ErrNoResource, "unicorns.example.com": discovery.ErrNoResource, "pods.apps": discovery.ErrNoResource, "deployments.core": discovery.ErrNoResource, "deployments.v7.apps": discovery.ErrNoResource,
				"bindings": discovery.ErrNotWatchable, "pods.metrics.k8s.io": discovery.ErrNotWatchable,
			} {
				got, err := resolve(t.Context(), client, name)
				if !errors.Is(err, want) || got != (Resource{}) {
					t.Errorf("%q: got %+v, %v, want an error that is %v", name, got, err, want)
				} else if !strings.Contains(err.Error(), `resource "`+name+`"`) {
					t.Errorf("%q: the error does not name it: %v", name, err)
				}
			}
		})
	})
}

// A CRD that is installed while the bridge runs must be found.
func TestCatalogFollowsTheCluster(t *testing.T) {
	forms(t, func(t *testing.T, d *discoveryStub) {
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			if _, err := resolve(t.Context(), client, "crontabs"); !errors.Is(err, discovery.ErrNoResource) {
				t.Fatalf("got %v", err)
			}
			d.mu.Lock()
			before := d.groups
			d.groups = append(slices.Clone(before), groupVersion{"stable.example.com", "v1", []metav1.APIResource{{Name: "crontabs", SingularName: "crontab", Kind: "CronTab", Namespaced: true, Verbs: readable}}})
			d.mu.Unlock()
			want := Resource{Group: "stable.example.com", Version: "v1", Name: "crontabs", Kind: "CronTab", Namespaced: true}
			if got, err := resolve(t.Context(), client, "crontabs"); err != nil || got != want {
				t.Errorf("got %+v, %v", got, err)
			}
			d.mu.Lock()
			d.groups = before
			d.mu.Unlock()
		})
	})
}

// One API service that is down must not hide the others.
func TestCatalogBesideABrokenGroup(t *testing.T) {
	forms(t, func(t *testing.T, d *discoveryStub) {
		d.broken = "metrics.k8s.io/v1beta1"
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			if got, err := resolve(t.Context(), client, "deploy"); err != nil || got.Kind != "Deployment" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	})
}

// An error of the discovery does not prove that the server lacks the resource.
func TestCatalogCannotAsk(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		client := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			status(http.StatusInternalServerError, "InternalError")(w, r)
		}))
		_, err := resolve(t.Context(), client, "pods")
		if err == nil || errors.Is(err, discovery.ErrNoResource) || errors.Is(err, discovery.ErrNotWatchable) {
			t.Errorf("got %v", err)
		}
	})
}

// Discovery must end with its caller's context, and still work for the next caller.
func TestCatalogEndsWithItsContext(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		cluster, asked, stuck := clusterOf(false), make(chan struct{}, 64), true
		var mu sync.Mutex
		client := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			hang := stuck
			mu.Unlock()
			if hang {
				asked <- struct{}{}
				<-r.Context().Done()
				return
			}
			cluster.ServeHTTP(w, r)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := resolve(ctx, client, "pods")
			done <- err
		}()
		<-asked
		begin := time.Now()
		cancel()
		if err := <-done; err == nil || errors.Is(err, discovery.ErrNoResource) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begin); d > 20*time.Second {
			t.Errorf("it took %s", d)
		}
		mu.Lock()
		stuck = false
		mu.Unlock()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got, err := resolve(t.Context(), client, "pods"); err != nil || got.Kind != "Pod" {
					t.Errorf("afterwards: got %+v, %v", got, err)
				}
			})
		}
		all.Wait()
	})
}

// A resource that an unavailable API service may serve is not absent. Resources of other services are found.
func TestFindBesideAnUnknownGroup(t *testing.T) {
	forms(t, func(t *testing.T, d *discoveryStub) {
		d.broken = "metrics.k8s.io/v1beta1"
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			c, err := serve(d).Catalog(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.Known("metrics.k8s.io") || !c.Known("apps") || !c.Known("") || !c.Known("no.such.group") {
				t.Errorf("unknown are %v", c.Unknown())
			}
			for name, want := range map[string]error{
				"pods.metrics.k8s.io": discovery.ErrUnknownGroup, "pods.v1beta1.metrics.k8s.io": discovery.ErrUnknownGroup, "unicorns": discovery.ErrUnknownGroup,
				"unicorns.apps": discovery.ErrNoResource, "deployments.v7.apps": discovery.ErrNoResource, "pods": nil, "deploy": nil,
			} {
				_, err := c.Find(discovery.Parse(name))
				if !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", name, err, want)
				}
				if errors.Is(want, discovery.ErrUnknownGroup) && !strings.Contains(err.Error(), "metrics.k8s.io/v1beta1") {
					t.Errorf("%s: the error does not say which group: %v", name, err)
				}
			}
		})
	})
}

// A short name must not resolve to a resource of another group while the core group is temporarily unavailable.
func TestFindWhileTheCoreGroupIsUnknown(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		d := clusterOf(true)
		c, err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Trim(r.URL.Path, "/") == "api" {
				status(http.StatusNotFound, "NotFound")(w, r)
				return
			}
			d.ServeHTTP(w, r)
		})).Catalog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Known("") {
			t.Error("the core group counts as known")
		}
		if got, err := c.Find(discovery.Parse("events")); !errors.Is(err, discovery.ErrUnknownGroup) {
			t.Errorf("events: got %+v, %v", got, err)
		}
		if got, err := c.Find(discovery.Parse("events.events.k8s.io")); err != nil || got.Group != "events.k8s.io" {
			t.Errorf("events.events.k8s.io: got %+v, %v", got, err)
		}
	})
}

// A restart of the server behind an APIService must not look like a restored backup of the API server's etcd.
func TestStorageOfAGroup(t *testing.T) {
	const list = `{"items":[{"spec":{"group":"metrics.k8s.io","service":{"name":"metrics"}}},{"spec":{"group":"apps"}}]}`
	for name, c := range map[string]struct {
		code   int
		answer string
		known  bool
		own    string
	}{
		"listed":       {http.StatusOK, list, true, "metrics.k8s.io"},
		"none":         {http.StatusOK, `{"items":[]}`, true, ""},
		"not served":   {http.StatusNotFound, `{"kind":"Status","code":404,"reason":"NotFound"}`, true, ""},
		"not allowed":  {http.StatusForbidden, `{"kind":"Status","code":403,"reason":"Forbidden"}`, false, ""},
		"out of order": {http.StatusServiceUnavailable, "", false, ""},
		"no list":      {http.StatusOK, `{}`, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := clusterOf(true)
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				client := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != apiServicePath {
						d.ServeHTTP(w, r)
						return
					}
					if got := r.URL.Query().Get("labelSelector"); got != "!"+automanaged {
						t.Errorf("the label selector is %q", got)
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.code)
					_, _ = w.Write([]byte(c.answer))
				}))
				catalog, err := client.Catalog(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				own, known := catalog.Storage("metrics.k8s.io")
				shared, _ := catalog.Storage("apps")
				if own != c.own || known != c.known || shared != "" {
					t.Errorf("metrics.k8s.io is in %q, %t, and apps in %q", own, known, shared)
				}
			})
		})
	}
}
