package plan

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// The API server asks clients to retry later while it creates the storage of a new resource.
func TestCheckWaitsForANewResource(t *testing.T) {
	var refused atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`)
		case !strings.HasSuffix(r.URL.Path, "/pods"):
			http.NotFound(w, r)
		case refused.Add(1) <= 2:
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","message":"storage is (re)initializing","details":{"retryAfterSeconds":1},"code":429}`)
		case r.URL.Query().Get("watch") == "":
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`)
		}
	}))
	defer server.Close()
	client, err := source.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := Check(t.Context(), client, []Entry{{Resource: "pods"}}, nil); err != nil {
		t.Error(err)
	}
	if refused.Load() < 3 {
		t.Errorf("the server was asked %d times, want 3 or more", refused.Load())
	}
}

// All mistakes are reported together, each once and with its place in the configuration.
func TestCheckReportsEverything(t *testing.T) {
	client := newClient(t, newServer().ServeHTTP) // it does not serve the pods themselves
	warnings, err := Check(t.Context(), client, []Entry{
		{Resource: "pods", Place: "f:1:1"}, {Resource: "pod", Place: "f:2:1"}, {Resource: "pod", Name: "x", NamespaceSelector: "a", Place: "f:3:1"}, {Resource: "unicorns", Place: "f:4:1"},
	}, nil)
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{
		`f:2:1: resource "pod": name: another entry of pods has no name either, "pods" (at f:1:1; everywhere)`, `f:4:1: resource "unicorns": the server has no such resource`, "f:1:1: collection pods: list",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want once %q", err, want)
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], `f:3:1: resource "pod:x": `) {
		t.Errorf("got warnings %q", warnings)
	}
}
