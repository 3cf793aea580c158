package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// lastChange is one change of /api/changes.
type lastChange struct {
	Type, Namespace, Name, ResourceVersion, Note, Diff string
	By                                                 []struct{ Manager string }
}

// page is Get, and fails the test if there is no answer.
func (w *world) page(path string) (code int, body string) {
	w.t.Helper()
	code, text, err := w.bridge.Get(w.soon(), path)
	w.must(err)
	return code, string(text)
}

// lastChanges waits until the status has a collection's change at a resourceVersion, and returns all, newest first, with the page.
func (w *world) lastChanges(collection, rv string) (all []lastChange, text string) {
	w.t.Helper()
	ctx, query := w.soon(), "?"+url.Values{"sink": {"audit"}, "collection": {collection}}.Encode()
	for {
		code, api := w.page("/api/changes" + query)
		var body struct{ Changes []lastChange }
		if code == http.StatusOK {
			w.must(json.Unmarshal([]byte(api), &body))
		}
		for _, c := range body.Changes {
			if c.ResourceVersion == rv {
				_, page := w.page("/changes" + query)
				return body.Changes, api + page
			}
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("no change of %s at %s is shown: %d %s", collection, rv, code, api)
		}
	}
}

// The page of last changes shows the published changes: with a diff if the resource has one, with their authors, and
// without hidden values. Without status.history there is no such page.
func TestLastChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps, kube.Secrets}})
	maps, secrets := w.collection(kube.ConfigMaps), w.collection(kube.Secrets)
	w.start()
	code, body := w.page("/api/changes?sink=audit&collection=" + url.QueryEscape(maps))
	_, page := w.page("/")
	if code != http.StatusNotFound || body != "no changes are kept: status.history is off\n" || strings.Contains(page, "changes?") {
		t.Errorf("without status.history: %d %q", code, body)
	}
	w.stop()

	w.config.Status["history"] = true
	for i := range w.config.Resources {
		w.config.Resources[i].ChangedBy, w.config.Resources[i].Diff = true, "both"
	}
	w.start()
	_, page = w.page("/")
	link := "changes?" + url.Values{"collection": {maps}}.Encode() + "&amp;sink=audit"
	if !strings.Contains(page, link) {
		t.Errorf("the page does not lead to %s", link)
	}
	const hostile = `<script>alert(1)</script>`
	_, err := w.kube.Create(w.soon(), kube.ConfigMaps, "web", kube.Fields{"data": map[string]any{"step": "one", "markup": hostile}})
	w.must(err)
	_, rv := w.patch(kube.ConfigMaps, "web", "two")
	all, text := w.lastChanges(maps, rv)
	if len(all) < 2 || all[0].Type != "modified" || all[0].Namespace != w.ns || all[0].Name != "web" || len(all[0].By) != 1 || all[0].Note != "" ||
		!strings.Contains(all[0].Diff, "+    step: two") || all[1].Type != "added" || all[1].Diff != "" {
		t.Errorf("%+v", all)
	}
	if !strings.Contains(text, `<span class="plus">&#43;    step: two</span>`) || strings.Contains(text, hostile) {
		t.Errorf("the page:\n%s", text)
	}

	passwords := []string{"correct-horse-battery-staple", "swordfish-swordfish"}
	_, err = w.kube.Create(w.soon(), kube.Secrets, "keys", kube.Fields{"stringData": map[string]any{"password": passwords[0]}})
	w.must(err)
	o, err := w.kube.Patch(w.soon(), kube.Secrets, "keys", `{"stringData":{"password":"`+passwords[1]+`"}}`)
	w.must(err)
	all, text = w.lastChanges(secrets, o.GetResourceVersion())
	if !strings.Contains(all[0].Diff, "+  password: ") {
		t.Errorf("a Secret's change does not show: %+v", all[0])
	}
	for _, p := range passwords {
		for _, form := range []string{p, base64.StdEncoding.EncodeToString([]byte(p))} {
			if strings.Contains(text, form) {
				t.Errorf("%s is shown:\n%s", form, text)
			}
		}
	}

	w.stop()
	w.config.Resources[0].Diff = ""
	w.start()
	_, rv = w.patch(kube.ConfigMaps, "web", "three")
	if all, _ = w.lastChanges(maps, rv); len(all) != 1 || all[0].Diff != "" || all[0].Note != "no diff: `diff` is off for this resource" {
		t.Errorf("without diff, after a restart: %+v", all)
	}
}
