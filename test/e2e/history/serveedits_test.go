package history_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// TestServeFollowsEdits: a server that was started with an older configuration says of the bus what the bridge publishes now: what edits of types and of
// excluded namespaces leave out is an error and not an empty answer, and what they add is served. The past stays as it was.
func TestServeFollowsEdits(t *testing.T) {
	t.Parallel()
	w := newBus(t, false)
	edit := func(r bridge.Resource) {
		r.Resource = kube.ConfigMaps.ResourceID()
		w.conf.Resources = []bridge.Resource{r}
		w.configure()
	}
	list := "/api/v1/namespaces/" + w.ns + "/configmaps"
	one := list + "/a"
	var s *server
	now := func() string { return "/at/" + time.Now().UTC().Format(time.RFC3339Nano) }
	answers := func(path string, code int, says string) {
		t.Helper()
		w.eventually(path, func() string {
			status, body := w.page(s, path)
			if status != code || !strings.Contains(body, says) {
				return body
			}
			return ""
		})
	}
	w.create(kube.ConfigMaps, "a", nil)
	edit(bridge.Resource{Types: []string{"added", "modified"}})
	w.start()
	s = w.serve()
	answers(list, http.StatusServiceUnavailable, "its deleted events are not published")
	incomplete := now()
	edit(bridge.Resource{})
	answers(one, http.StatusOK, `"name":"a"`)
	w.wantServed(s, kube.ConfigMaps)
	published := now()
	edit(bridge.Resource{ExcludeNamespaces: []string{w.ns}})
	answers(list, http.StatusServiceUnavailable, "the bridge does not publish it for namespace")
	answers(one, http.StatusServiceUnavailable, "the bridge does not publish it for namespace")
	excluded := now()
	answers(published+one, http.StatusOK, `"name":"a"`)
	answers(excluded+one, http.StatusGone, "the bridge did not publish")
	edit(bridge.Resource{MetadataOnly: true})
	answers(one, http.StatusOK, `"name":"a"`)
	for _, c := range []struct {
		at   string
		code int
		says string
	}{
		{incomplete, 3, "its deleted events are not published"},
		{published, 0, "configmaps: at"},
		{excluded, 0, "objects of configmaps are selected by the fields metadata.namespace!=" + w.ns},
	} {
		if _, notes := w.bridge(c.code, "state", "--at", strings.TrimPrefix(c.at, "/at/"), "configmaps"); !strings.Contains(notes, c.says) {
			t.Errorf("the state at %s says %s, want %s", c.at, notes, c.says)
		}
	}
}
