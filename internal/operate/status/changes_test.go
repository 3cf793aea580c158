package status

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// hostile is text that a browser must not run.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'`

// changeful serves a bridge whose pods have changes of every kind.
func changeful(t *testing.T, of ChangesFunc) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	if err := addPage(mux, Options{Report: sample, Changes: of}, newHistory(sample)); err != nil {
		t.Fatal(err)
	}
	return mux
}

func sampleChanges(string, string) ([]Change, bool) {
	at := noon.Add(1234 * time.Microsecond)
	return []Change{
		{Time: at, Type: "deleted", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "9", Origin: "watch", ID: "u:5:deleted", By: []byte("[]"), Who: "unknown"},
		{
			Time: at, Type: "modified", Name: hostile, UID: hostile, ResourceVersion: hostile, Origin: "reconcile", ID: hostile, By: []byte(`[{"manager":"</script>"}]`), Who: hostile, Users: []string{"user " + hostile},
			Note: "note " + hostile, Diff: "@@ -1 +1 @@\n a: " + hostile + "\n-" + hostile + "\n+" + hostile + "\n\n~/a: " + hostile + "\n",
		},
		{Time: at, Type: "added", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "5", Origin: "watch", ID: "u:5:added", By: []byte("[]"), Who: "kubectl"},
	}, true
}

func changesURL(prefix string) string {
	return changesLink(prefix, "audit", "secrets?namespace=a&labels=x")
}

// TestChanges: names, managers and contents of objects are untrusted text. It is escaped, and
// the headers forbid inline scripts.
func TestChanges(t *testing.T) {
	var asked []string
	h := changeful(t, func(sink, collection string) ([]Change, bool) {
		asked = append(asked, sink+" "+collection)
		return sampleChanges(sink, collection)
	})
	page, api := get(h, changesURL("/")), get(h, changesURL("/api/"))
	for _, w := range []*httptest.ResponseRecorder{page, api} {
		if csp := w.Header().Get("Content-Security-Policy"); w.Code != http.StatusOK || csp != policy || strings.Contains(csp, "unsafe") {
			t.Errorf("code %d, policy %q", w.Code, csp)
		}
		if body := w.Body.String(); strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
			t.Errorf("markup of an object's:\n%s", body)
		}
	}
	if strings.Join(asked, ",") != "audit secrets?namespace=a&labels=x,audit secrets?namespace=a&labels=x" {
		t.Errorf("asked for %q", asked)
	}
	body := page.Body.String()
	for _, part := range []string{`<span class="plus">&#43;&#34;&gt;`, `<span class="minus">-&#34;`, `<span class="other">~/a`, `<span class="place">@@`, "<p>user &#34;&gt;", "shop/web", "2026-01-02 12:00:00.001 UTC", "by kubectl"} {
		if !strings.Contains(body, part) {
			t.Errorf("the page lacks %s:\n%s", part, body)
		}
	}
	if strings.Count(body, "<script") != 1 || strings.Contains(body, "://") {
		t.Errorf("the page:\n%s", body)
	}
	var got listing
	if err := json.Unmarshal(api.Body.Bytes(), &got); err != nil || len(got.Changes) != 3 || got.Changes[1].Name != hostile ||
		got.Changes[1].Type != "modified" || got.Collection != "secrets?namespace=a&labels=x" || got.At.IsZero() {
		t.Errorf("%v: %+v", err, got)
	}
	if body := get(changeful(t, func(string, string) ([]Change, bool) { return nil, true }), changesURL("/")).Body.String(); !strings.Contains(body, "No changes since") {
		t.Errorf("a page without changes:\n%s", body)
	}
}

// TestChangesLinks: every collection leads to its changes, also with a name that means
// something in an address.
func TestChangesLinks(t *testing.T) {
	body := get(changeful(t, sampleChanges), "/").Body.String()
	if n := strings.Count(body, `<a href="changes?`); n != 4 || !strings.Contains(body, `<a href="changes?collection=secrets%3Fnamespace%3Da&amp;sink=live">`) {
		t.Errorf("%d links:\n%s", n, body)
	}
	u, err := url.Parse(changesURL("/"))
	if err != nil || u.Query().Get("collection") != "secrets?namespace=a&labels=x" || u.Query().Get("sink") != "audit" {
		t.Errorf("%v %v", u, err)
	}
}

// TestNoChanges: without status.history nothing on the page or in the API mentions changes,
// and a request for them is answered with what to do. A collection that is not there has none.
func TestNoChanges(t *testing.T) {
	off, on := changeful(t, nil), changeful(t, func(string, string) ([]Change, bool) { return nil, false })
	for _, path := range []string{"/", "/api/status"} {
		body := get(off, path).Body.String()
		if strings.Contains(body, "changes") || strings.Contains(body, "history") {
			t.Errorf("%s mentions what is off:\n%s", path, body)
		}
	}
	for _, path := range []string{changesURL("/"), changesURL("/api/")} {
		for h, want := range map[http.Handler]string{off: "no changes are kept: status.history is off\n", on: `sink "audit" has no collection "secrets?namespace=a&labels=x" now: /api/status says which there are` + "\n"} {
			w := get(h, path)
			if w.Code != http.StatusNotFound || w.Body.String() != want || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %q %v", path, w.Code, w.Body, w.Header())
			}
		}
		w := httptest.NewRecorder()
		if on.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s answers %d", path, w.Code)
		}
	}
	golden, err := os.ReadFile("testdata/page.golden.html")
	if err != nil || strings.Contains(string(golden), "changes?") {
		t.Errorf("the golden page is not one without changes: %v", err)
	}
}

// A user chooses its name, and that of an RBAC object, which may hold any character: the page does not show it as something else.
func TestChangesPageIsLegible(t *testing.T) {
	const hostile = "bob\x1b[2K\u202eecila"
	page := newChangesPage(listing{Changes: []Change{{Name: hostile, Who: hostile, Users: []string{"user " + hostile}, Note: hostile, Diff: "+ " + hostile + "\n"}}})
	c := page.Changes[0]
	for _, text := range []string{c.Object, c.Who, c.Users[0], c.Note, c.Lines[0].Text} {
		if !strings.Contains(text, `bob\x1b[2K\u202eecila`) {
			t.Errorf("the page shows %q", text)
		}
	}
}
