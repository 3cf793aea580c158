package api

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestClientDoesNotRead: a client that asks and does not read what it gets does not keep the handler, whatever it has asked for.
func TestClientDoesNotRead(t *testing.T) {
	b := threePods(t)
	b.server.limits.write = 50 * time.Millisecond
	b.server.Exported = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 64<<20)) // more than the buffers of a connection
	})
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		b.server.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	c, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("the handler does not end")
	}
}

// deadlines is an answer that counts its parts and their deadlines.
type deadlines struct {
	httptest.ResponseRecorder
	parts []int
	set   int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }

func (d *deadlines) Write(b []byte) (int, error) {
	d.parts = append(d.parts, len(b))
	return d.ResponseRecorder.Write(b)
}

// TestPartsHaveDeadlines: a large part of an answer does not have to be read within the time for one, and a flush has a deadline too.
func TestPartsHaveDeadlines(t *testing.T) {
	d := &deadlines{ResponseRecorder: *httptest.NewRecorder()}
	c := &countingWriter{ResponseWriter: d, time: time.Second}
	if n, err := c.Write(make([]byte, 2*writeBytes+1)); n != 2*writeBytes+1 || err != nil {
		t.Errorf("%d written (%v)", n, err)
	}
	if !slices.Equal(d.parts, []int{writeBytes, writeBytes, 1}) || d.set != 3 {
		t.Errorf("the parts %v have %d deadlines", d.parts, d.set)
	}
	if err := http.NewResponseController(c).Flush(); err != nil || d.set != 4 {
		t.Errorf("a flush has no deadline (%v)", err)
	}
}

// TestTableInParts: a long table is written while it is read, so that it is never in memory as a whole.
func TestTableInParts(t *testing.T) {
	b := threePods(t)
	b.server.limits.bytes = 100
	d := &deadlines{ResponseRecorder: *httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?limit=2", nil)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	b.server.ServeHTTP(d, r)
	var table metav1.Table
	if err := json.Unmarshal(d.Body.Bytes(), &table); err != nil {
		t.Fatalf("%s: %v", d.Body, err)
	}
	if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.ColumnDefinitions) != 9 || len(table.Rows) != 2 || len(table.Rows[1].Cells) != 9 || table.Rows[1].Cells[0] != "cart" || table.ResourceVersion != "50" || table.Continue == "" {
		t.Errorf("the table is %+v", table)
	}
	if len(d.parts) < 3 || len(d.Header().Values("Warning")) != 1 {
		t.Errorf("it has the parts %v and the warnings %v", d.parts, d.Header().Values("Warning"))
	}
}

// TestListsAtOnce: clients that read slowly do not fill the memory with lists. Others wait for one to end.
func TestListsAtOnce(t *testing.T) {
	b := threePods(t)
	lists := httpserver.NewQuota(1, 1)
	b.server.AcquireList = lists.Acquire
	list := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		b.server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil).WithContext(ctx))
		return w.Code
	}
	for range 2 { // the first one has ended
		if code := list(t.Context()); code != 200 {
			t.Errorf("a list: %d", code)
		}
	}
	release, _ := lists.Acquire(t.Context(), "192.0.2.1:1")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if code := list(gone); code != 429 {
		t.Errorf("beside another list: %d", code)
	}
	release()
	if code := list(t.Context()); code != 200 {
		t.Errorf("after another list: %d", code)
	}
}

// TestLargeAnswersAtOnce: large objects and OpenAPI documents count as lists while clients read them. Small objects, and what a client has
// already, do not.
func TestLargeAnswersAtOnce(t *testing.T) {
	b := threePods(t)
	large := thing{"shop", "large", "u-9", 60, "a=" + strings.Repeat("x", smallBody)}
	b.object("pods", event.Added, event.Watch, large)
	lists := httpserver.NewQuota(1, 1)
	b.server.AcquireList = lists.Acquire
	send := func(path string, header http.Header, w http.ResponseWriter) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
		r.Header = header
		b.server.ServeHTTP(w, r)
	}
	table := http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}
	_, document, _ := b.get(t, "/openapi/v3/api/v1", "")
	tag := http.Header{"If-None-Match": {document.Get("Etag")}}
	hash := "?hash=" + strings.Trim(document.Get("Etag"), `"`)
	for _, c := range []struct {
		path    string
		header  http.Header
		code    int
		limited bool
	}{
		{"/api/v1/namespaces/shop/pods/large", nil, 200, true},
		{"/api/v1/namespaces/shop/pods/large?includeObject=Object", table, 200, true},
		{"/api/v1/namespaces/shop/pods/web", nil, 200, false},
		{"/api/v1/namespaces/shop/pods/none", nil, 404, false},
		{"/openapi/v3/api/v1", nil, 200, true},
		{"/openapi/v3/api/v1" + hash, nil, 200, true},
		{"/openapi/v3/api/v1" + hash, tag, 304, false},
		{"/openapi/v3", nil, 200, false},
	} {
		asked := 0
		w := &reading{ResponseRecorder: httptest.NewRecorder(), wrote: func() {
			if asked++; asked > 1 {
				return
			}
			other := httptest.NewRecorder()
			send("/api/v1/pods", nil, other)
			if limited := other.Code == http.StatusTooManyRequests; limited != c.limited {
				t.Errorf("a list while a client reads %s: %d", c.path, other.Code)
			}
		}}
		if send(c.path, c.header, w); w.Code != c.code {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
		release, _ := lists.Acquire(t.Context(), "192.0.2.1:1")
		w = &reading{ResponseRecorder: httptest.NewRecorder(), wrote: func() {}}
		send(c.path, c.header, w)
		release()
		if limited := w.Code == http.StatusTooManyRequests; limited != c.limited {
			t.Errorf("%s beside a list: %d", c.path, w.Code)
		}
		if h := w.Header(); w.Code == http.StatusTooManyRequests && (h.Get("Cache-Control") != "" || h.Get("Expires") != "" || h.Get("Etag") != "") {
			t.Errorf("%s: the client may keep the refusal: %v", c.path, h)
		}
	}
}

// reading is an answer that calls wrote before each part.
type reading struct {
	*httptest.ResponseRecorder
	wrote func()
}

func (r *reading) Write(b []byte) (int, error) {
	r.wrote()
	return r.ResponseRecorder.Write(b)
}

// TestListsEnd: a list, and the changes that a watch is behind, end after a time, because the store keeps old files as long.
func TestListsEnd(t *testing.T) {
	b := threePods(t)
	b.deleted("pods", web, 60)
	b.server.limits.list = 0
	if code, _, body := b.get(t, "/api/v1/pods", ""); code != 504 || !strings.Contains(body, "request pages") {
		t.Errorf("a list: %d %s", code, body)
	}
	for _, c := range []struct{ namespace, version string }{{"", ""}, {"", "50"}, {"none", "50"}} {
		w, err := b.client("").Resource(podsResource).Namespace(c.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: c.version})
		if err != nil {
			t.Fatal(err)
		}
		wantNext(t, w, "ERROR 504", "end")
		w.Stop()
	}
	if code, _, _ := b.get(t, "/api/v1/namespaces/shop/pods/cart", ""); code != 200 {
		t.Errorf("an object: %d", code)
	}
}
