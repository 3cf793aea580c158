package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestOpenAPI: client-go finds the document of each group version, also of the past. That of a custom resource has the schema of its
// definition; that of another resource says that its fields are not known. A document that has not changed is not sent again.
func TestOpenAPI(t *testing.T) {
	b := threePods(t)
	b.snapshot("widgets.example.com", 50, thing{"shop", "w", "u-7", 45, ""})
	b.gap("customresourcedefinitions.apiextensions.k8s.io", event.ReasonReset)
	b.send("customresourcedefinitions.apiextensions.k8s.io", event.Event{
		Type: event.Present, Origin: event.Snapshot, APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "widgets.example.com", UID: "u-8", ResourceVersion: "40",
		Object: []byte(`{"metadata":{"name":"widgets.example.com","uid":"u-8","resourceVersion":"40"},"spec":{"names":{"kind":"Widget"},"scope":"Namespaced","versions":[{"name":"v1",` +
			`"schema":{"openAPIV3Schema":{"type":"object","description":"A widget.","required":["spec"],"properties":{"metadata":{"type":"object"},"spec":{"type":"object","properties":{"size":{"type":"integer","maximum":9007199254740993,"description":"How large it is."}}}}}}}]}}`),
	})
	b.synced("customresourcedefinitions.apiextensions.k8s.io", 50, event.ReasonReset)
	for _, prefix := range []string{"", "/at/50", "/clusters/prod/at/50"} {
		c, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: b.url + prefix})
		if err != nil {
			t.Fatal(err)
		}
		paths, err := c.OpenAPIV3().Paths()
		if err != nil || len(paths) != 5 {
			t.Fatalf("%s: %v (%v)", prefix, paths, err)
		}
		for path, want := range map[string][]string{
			"apis/example.com/v1":          {"com.example.v1.Widget", "How large it is.", "9007199254740993", "deletionTimestamp", "/apis/example.com/v1/namespaces/{namespace}/widgets"},
			"api/v1":                       {`"v1.Pod"`, "The fields are not known", "/api/v1/namespaces/{namespace}/pods/{name}"},
			"apis/authorization.k8s.io/v1": {"io.k8s.api.authorization.v1.SubjectRulesReviewStatus", `"io.k8s.api.authorization.v1.SelfSubjectAccessReview"`, "nonResourceURLs is a set of partial urls", `"post"`},
			"apis/apiextensions.k8s.io/v1": {"io.k8s.apiextensions.v1.CustomResourceDefinition", "The fields are not known"},
		} {
			if paths[path] == nil {
				t.Errorf("%s: the index lacks %s", prefix, path)
				continue
			}
			text, err := paths[path].Schema("application/json")
			if err != nil || !json.Valid(text) {
				t.Errorf("%s: %s: %v", prefix, path, err)
			}
			for _, x := range want {
				if !strings.Contains(string(text), x) {
					t.Errorf("%s: %s lacks %s:\n%s", prefix, path, x, text)
				}
			}
			if _, err := paths[path].Schema("application/com.github.proto-openapi.spec.v3.v1.0+protobuf"); err == nil {
				t.Errorf("%s: %s is sent as protobuf", prefix, path)
			}
		}
	}
	url := "/openapi/v3/apis/example.com/v1"
	status, header, _ := b.get(t, url, "")
	tag := header.Get("Etag")
	if status != 200 || len(tag) < 3 || header.Get("Expires") != "" {
		t.Errorf("%d %v", status, header)
	}
	if status, header, _ := b.get(t, url+"?hash="+strings.Trim(tag, `"`), ""); status != 200 || header.Get("Expires") == "" || header.Get("Cache-Control") != "private, immutable" {
		t.Errorf("with its hash: %d %v", status, header)
	}
	if status, header, _ := b.get(t, url+"?hash=old", ""); status != 200 || header.Get("Etag") != tag || header.Get("Expires") == "" {
		t.Errorf("with an old hash, behind the redirect: %d %v", status, header)
	}
	for path, header := range map[string]string{url: tag, "/openapi/v3": ""} {
		if header == "" {
			_, h, _ := b.get(t, path, "")
			header = h.Get("Etag")
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", header)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its tag: %d", path, a.StatusCode)
		}
	}
	for _, path := range []string{"/openapi/v3/apis/none/v1", "/openapi/v3/", "/openapi/v2"} {
		if status, _, _ := b.get(t, path, ""); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// TestDefinitionIsReadAgain: a definition that could not be read is not taken for one that does not exist.
func TestDefinitionIsReadAgain(t *testing.T) {
	c := definitionCache{lru.NewLRUExpireCache(2)}
	failed := errors.New("the disk")
	if _, err := c.get(store.View{}, "w", func() (*definition, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	want := &definition{name: "w"}
	for range 2 {
		if d, err := c.get(store.View{}, "w", func() (*definition, error) { return want, nil }); d != want || err != nil {
			t.Errorf("%v (%v)", d, err)
		}
	}
}
