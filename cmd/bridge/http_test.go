package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A receiver of batches gets what exists, in order: the gap, the objects, and synced.
func TestSinkOfHTTP(t *testing.T) {
	smallCluster(t)
	var mu sync.Mutex
	var types []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var events []struct{ Type string }
		if r.Method != http.MethodPost || r.URL.Path != "/prod/pods" || json.NewDecoder(r.Body).Decode(&events) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			types = append(types, strings.TrimSuffix(strings.TrimPrefix(e.Type, "io.kubebridge."), ".v1"))
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, `{cluster: prod, resources: [pods], status: {listen: "off"}, checkpoint: {file: {path: "`+filepath.ToSlash(t.TempDir())+`"}},
 sinks: [{name: a, http: {url: "`+server.URL+`/{cluster}/{resource}"}}]}`)
	_, _, stop := startBridge(t, "run", "-c", path)
	const want = "collection.gap resource.present resource.present collection.synced"
	got := ""
	for deadline := time.Now().Add(30 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		got = strings.Join(types, " ")
		mu.Unlock()
	}
	if stop(); got != want {
		t.Errorf("the receiver has %q, want %q", got, want)
	}
	if r := command(t, "state", "--at", "1h", "-c", path); r.code != exitConfig || !strings.Contains(r.err, "keeps events") {
		t.Errorf("state: code %d: %s", r.code, r.err)
	}
}
