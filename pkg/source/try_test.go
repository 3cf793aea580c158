package source

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A wrong selector or a missing permission must be reported before the bridge runs, with a remedy.
func TestTry(t *testing.T) {
	forbidden, bad := status(http.StatusForbidden, "Forbidden"), status(http.StatusBadRequest, "BadRequest")
	one := pageOf("9", "more", item("a", "4"))
	selecting := event.Collection{Namespace: "n", FieldSelector: "spec.color=red"}
	for _, c := range []struct {
		name        string
		of          event.Collection
		list, watch answer
		want        []string // in the error; none: no error
		selector    bool
	}{
		{"all is well", selecting, one, open(), nil, false},
		{"may not list", event.Collection{}, forbidden, nil, []string{"collection configmaps: ", "list: the stub says Forbidden", "grant list and watch on configmaps in the whole cluster"}, false},
		{"may not watch", event.Collection{Namespace: "n"}, one, forbidden, []string{"watch: the stub says Forbidden", "in namespace n"}, false},
		{"no such field", selecting, bad, nil, []string{"collection configmaps@n: ", `fieldSelector "spec.color=red"`, "the server does not support this selector", "the stub says BadRequest"}, true},
		{"no such field to watch by", selecting, one, bad, []string{"watch: the stub says BadRequest"}, true},
		{"another mistake", event.Collection{}, bad, nil, []string{"the stub says BadRequest"}, false},
		{"down", selecting, status(http.StatusServiceUnavailable, "ServiceUnavailable"), nil, []string{"the stub says ServiceUnavailable"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				var asked []*http.Request
				err := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked = append(asked, r)
					w.Header().Set("Content-Type", "application/json")
					if r.URL.Query().Get("watch") == "true" {
						c.watch(w, r)
						return
					}
					c.list(w, r)
				})).Try(t.Context(), configMaps(c.of))
				if (err == nil) != (c.want == nil) || errors.Is(err, ErrSelector) != c.selector {
					t.Fatalf("got %v", err)
				}
				for _, want := range c.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
				}
				for i, want := range []string{"limit=1", "resourceVersion=9&timeoutSeconds=1&watch=true"}[:min(len(asked), 2)] {
					if f := c.of.FieldSelector; f != "" {
						want = "fieldSelector=" + url.QueryEscape(f) + "&" + want
					}
					if got := asked[i].URL; got.RawQuery != want || strings.Contains(got.Path, "/namespaces/n/") != (c.of.Namespace != "") {
						t.Errorf("request %d is %s, want %s", i, got, want)
					}
				}
				if (len(asked) == 2) != (c.watch != nil) {
					t.Errorf("asked %d times", len(asked))
				}
			})
		})
	}
}
