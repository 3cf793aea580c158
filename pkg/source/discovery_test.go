package source

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

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
