package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// smallCluster starts an API server with the UID of [testIdentity] and two pods in the namespace shop at resourceVersion 42, and
// makes it the cluster of the default kubeconfig. Its watches of pods send events, one line each, and stay open.
func smallCluster(t *testing.T, events ...string) {
	t.Helper()
	liveCluster(t, nil, events...)
}

// liveCluster is a [smallCluster] whose open watch of pods also sends what comes from more.
func liveCluster(t *testing.T, more <-chan string, events ...string) {
	t.Helper()
	pod := func(name, uid string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"41","labels":{"app":"web"}}}`, name, uid)
	}
	pods := []string{pod("a", "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a11"), pod("b", "5b8f1c34-7a2e-4c8a-9f39-0e1f8f2f4a12")}
	answers := map[string]string{
		"/api":                           `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                          `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1":                        `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`,
		"/api/v1/namespaces/kube-system": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"` + testIdentity("").ClusterUID + `"}}`,
		"/api/v1/namespaces":             `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"42"},"items":[{"metadata":{"name":"shop"}},{"metadata":{"name":"kube-system"}}]}`,
		"/api/v1/pods":                   `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"42"},"items":[` + strings.Join(pods, ",") + `]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, known := answers[r.URL.Path]
		q := r.URL.Query()
		switch {
		case !known:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case q.Get("watch") != "true":
			fmt.Fprint(w, text)
		case q.Has("sendInitialEvents") && strings.HasSuffix(r.URL.Path, "/pods"):
			for _, p := range pods {
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", p)
			}
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"42","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			fallthrough
		default:
			if strings.HasSuffix(r.URL.Path, "/pods") {
				fmt.Fprint(w, strings.Join(events, ""))
			}
			w.(http.Flusher).Flush()
			for r.Context().Err() == nil {
				select {
				case event := <-more:
					fmt.Fprint(w, event)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
				}
			}
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: c
`)
	t.Setenv("KUBECONFIG", path)
}
