package source

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// discoveryStub serves what a cluster's discovery does, in the aggregated form or
// in that of older servers and proxies.
type discoveryStub struct {
	aggregated bool

	mu     sync.Mutex
	groups []groupVersion // in order of preference
	broken string         // a group/version that answers 503
}

type groupVersion struct {
	group, version string
	resources      []metav1.APIResource
}

var readable = metav1.Verbs{"create", "get", "list", "watch"}

func clusterOf(aggregated bool) *discoveryStub {
	return &discoveryStub{aggregated: aggregated, groups: []groupVersion{
		{"", "v1", []metav1.APIResource{
			{Name: "bindings", SingularName: "binding", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			{Name: "events", SingularName: "event", Kind: "Event", Namespaced: true, Verbs: readable, ShortNames: []string{"ev"}},
			{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: readable, ShortNames: []string{"ns"}},
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: readable, ShortNames: []string{"po"}},
		}},
		{"events.k8s.io", "v1", []metav1.APIResource{{Name: "events", SingularName: "event", Kind: "Event", Namespaced: true, Verbs: readable, ShortNames: []string{"ev"}}}},
		{"apps", "v1", []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, Verbs: readable, ShortNames: []string{"deploy"}}}},
		{"apps", "v1beta1", []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "OldDeployment", Namespaced: true, Verbs: readable}}},
		{"v1.example.com", "v2", []metav1.APIResource{{Name: "widgets", SingularName: "widget", Kind: "Widget", Verbs: readable}}},
		{"metrics.k8s.io", "v1beta1", []metav1.APIResource{{Name: "pods", SingularName: "pod", Kind: "PodMetrics", Namespaced: true, Verbs: metav1.Verbs{"get", "list"}}}},
	}}
}

func (d *discoveryStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.Trim(r.URL.Path, "/")
	if d.aggregated && (path == "api" || path == "apis") && strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		_ = json.NewEncoder(w).Encode(d.all(path == "api"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch path {
	case "api":
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case "apis":
		_ = json.NewEncoder(w).Encode(d.groupList())
		return
	}
	gv := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
	for _, g := range d.groups {
		if (schema.GroupVersion{Group: g.group, Version: g.version}).String() == gv && gv != d.broken {
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: g.resources})
			return
		}
	}
	status(http.StatusServiceUnavailable, "ServiceUnavailable")(w, r)
}

func (d *discoveryStub) groupList() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range d.groups {
		if g.group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: g.group + "/" + g.version, Version: g.version}
		if n := len(list.Groups); n > 0 && list.Groups[n-1].Name == g.group {
			list.Groups[n-1].Versions = append(list.Groups[n-1].Versions, v)
			continue
		}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: g.group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

func (d *discoveryStub) all(core bool) apidiscovery.APIGroupDiscoveryList {
	list := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, g := range d.groups {
		if (g.group == "") != core {
			continue
		}
		v := apidiscovery.APIVersionDiscovery{Version: g.version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		if d.broken == g.group+"/"+g.version {
			v.Freshness = apidiscovery.DiscoveryFreshnessStale
		}
		for _, r := range g.resources {
			scope := apidiscovery.ScopeCluster
			if r.Namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			v.Resources = append(v.Resources, apidiscovery.APIResourceDiscovery{
				Resource: r.Name, SingularResource: r.SingularName, Verbs: r.Verbs, ShortNames: r.ShortNames, Scope: scope,
				ResponseKind: &metav1.GroupVersionKind{Group: g.group, Version: g.version, Kind: r.Kind},
			})
		}
		if n := len(list.Items); n > 0 && list.Items[n-1].Name == g.group {
			list.Items[n-1].Versions = append(list.Items[n-1].Versions, v)
			continue
		}
		list.Items = append(list.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.group}, Versions: []apidiscovery.APIVersionDiscovery{v}})
	}
	return list
}

func forms(t *testing.T, f func(t *testing.T, d *discoveryStub)) {
	for name, aggregated := range map[string]bool{"aggregated": true, "legacy": false} {
		t.Run(name, func(t *testing.T) { f(t, clusterOf(aggregated)) })
	}
}

// Resources are named as kubectl names them.
func TestResolve(t *testing.T) {
	pods := Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	deployments := Resource{Group: "apps", Version: "v1", Name: "deployments", Kind: "Deployment", Namespaced: true}
	events := Resource{Version: "v1", Name: "events", Kind: "Event", Namespaced: true}
	forms(t, func(t *testing.T, d *discoveryStub) {
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			for name, want := range map[string]Resource{
				"pods": pods, "po": pods, "pod": pods, "Pods": pods,
				"deploy": deployments, "deployments": deployments, "deployments.apps": deployments, "deployments.v1.apps": deployments, "deploy.apps": deployments,
				"deployments.v1beta1.apps": {Group: "apps", Version: "v1beta1", Name: "deployments", Kind: "OldDeployment", Namespaced: true},
				"events":                   events, "ev": events,
				"events.events.k8s.io":   {Group: "events.k8s.io", Version: "v1", Name: "events", Kind: "Event", Namespaced: true},
				"ns":                     {Version: "v1", Name: "namespaces", Kind: "Namespace"},
				"widgets.v1.example.com": {Group: "v1.example.com", Version: "v2", Name: "widgets", Kind: "Widget"},
			} {
				got, err := client.Resolve(t.Context(), name)
				if err != nil || got != want {
					t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
				}
			}
			for name, want := range map[string]error{
				"unicorns": ErrNoResource, "unicorns.example.com": ErrNoResource, "pods.apps": ErrNoResource, "deployments.v7.apps": ErrNoResource,
				"bindings": ErrNotWatchable, "pods.metrics.k8s.io": ErrNotWatchable,
			} {
				got, err := client.Resolve(t.Context(), name)
				if !errors.Is(err, want) || got != (Resource{}) {
					t.Errorf("%q: got %+v, %v, want an error that is %v", name, got, err, want)
				} else if !strings.Contains(err.Error(), `resource "`+name+`"`) {
					t.Errorf("%q: the error does not name it: %v", name, err)
				}
			}
		})
	})
}

func TestResourceNames(t *testing.T) {
	for _, c := range []struct {
		r                  Resource
		apiVersion, string string
	}{
		{Resource{Version: "v1", Name: "pods"}, "v1", "pods.v1"},
		{Resource{Group: "apps", Version: "v1", Name: "deployments"}, "apps/v1", "deployments.v1.apps"},
	} {
		if c.r.APIVersion() != c.apiVersion || c.r.String() != c.string {
			t.Errorf("%+v: got %s, %s", c.r, c.r.APIVersion(), c.r)
		}
	}
}

// A CRD that is installed while the bridge runs must be found.
func TestResolveFollowsTheCluster(t *testing.T) {
	forms(t, func(t *testing.T, d *discoveryStub) {
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			if _, err := client.Resolve(t.Context(), "crontabs"); !errors.Is(err, ErrNoResource) {
				t.Fatalf("got %v", err)
			}
			d.mu.Lock()
			before := d.groups
			d.groups = append(slices.Clone(before), groupVersion{"stable.example.com", "v1", []metav1.APIResource{{Name: "crontabs", SingularName: "crontab", Kind: "CronTab", Namespaced: true, Verbs: readable}}})
			d.mu.Unlock()
			want := Resource{Group: "stable.example.com", Version: "v1", Name: "crontabs", Kind: "CronTab", Namespaced: true}
			if got, err := client.Resolve(t.Context(), "crontabs"); err != nil || got != want {
				t.Errorf("got %+v, %v", got, err)
			}
			d.mu.Lock()
			d.groups = before
			d.mu.Unlock()
		})
	})
}

// One API service that is down must not hide the others.
func TestResolveBesideABrokenGroup(t *testing.T) {
	forms(t, func(t *testing.T, d *discoveryStub) {
		d.broken = "metrics.k8s.io/v1beta1"
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			client := serve(d)
			if got, err := client.Resolve(t.Context(), "deploy"); err != nil || got.Kind != "Deployment" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	})
}

// A server that cannot be asked has not said that it lacks the resource.
func TestResolveCannotAsk(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		client := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			status(http.StatusInternalServerError, "InternalError")(w, r)
		}))
		_, err := client.Resolve(t.Context(), "pods")
		if err == nil || errors.Is(err, ErrNoResource) || errors.Is(err, ErrNotWatchable) {
			t.Errorf("got %v", err)
		}
	})
}

// Discovery must end with its caller, and serve the next one all the same.
func TestResolveEndsWithItsContext(t *testing.T) {
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
			_, err := client.Resolve(ctx, "pods")
			done <- err
		}()
		<-asked
		begin := time.Now()
		cancel()
		if err := <-done; err == nil || errors.Is(err, ErrNoResource) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("it took %s", d)
		}
		mu.Lock()
		stuck = false
		mu.Unlock()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if got, err := client.Resolve(t.Context(), "pods"); err != nil || got.Kind != "Pod" {
					t.Errorf("afterwards: got %+v, %v", got, err)
				}
			})
		}
		all.Wait()
	})
}
