package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	httpsink "github.com/kubebridge/kubebridge/pkg/sink/http"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a server that keeps what it is sent.
type receiver struct {
	address string
	server  *http.Server
	done    chan struct{}
	limit   int

	mu   sync.Mutex
	msgs []sinktest.Message
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	events := []json.RawMessage{body}
	if strings.HasPrefix(q.Header.Get("Content-Type"), "application/cloudevents-batch+json") {
		if err := json.Unmarshal(body, &events); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if slices.ContainsFunc(events, func(e json.RawMessage) bool { return len(e) > r.limit }) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		m := sinktest.Message{Route: "http://" + r.address + q.URL.Path, Value: e, Headers: map[string]string{}}
		for name := range q.Header {
			m.Headers[strings.ToLower(name)] = q.Header.Get(name)
		}
		r.msgs = append(r.msgs, m)
	}
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.address, r.server, r.done = l.Addr().String(), &http.Server{Handler: r}, make(chan struct{})
	go func() {
		defer close(r.done)
		_ = r.server.Serve(l)
	}()
}

func (r *receiver) stop(t *testing.T) {
	t.Helper()
	if err := r.server.Close(); err != nil {
		t.Error(err)
	}
	<-r.done
}

func TestSuite(t *testing.T) {
	sinktest.RunFormats(t, func(t *testing.T) *sinktest.Harness {
		r := &receiver{address: "127.0.0.1:0", limit: 100_000}
		r.start(t)
		t.Cleanup(func() { r.stop(t) })
		route := "http://" + r.address + "/events"
		return &sinktest.Harness{
			New: func(t *testing.T) sink.Sink {
				return newSink(t, httpsink.Config{URL: route, MaxEvents: 7, Timeout: 5 * time.Second})
			},
			Read: func(*testing.T) []sinktest.Message {
				r.mu.Lock()
				defer r.mu.Unlock()
				return slices.Clone(r.msgs)
			},
			Route: route, MaxRecord: r.limit,
			Stop: r.stop, Start: r.start,
		}
	})
}

func newSink(t *testing.T, c httpsink.Config) *httpsink.Sink {
	t.Helper()
	s, err := httpsink.New(httpsink.Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write sends records "key:id" to a server, and returns the error and the bodies that the server was sent.
func write(t *testing.T, c httpsink.Config, serve http.HandlerFunc, format event.Format, records ...string) ([]string, error) {
	t.Helper()
	var mu sync.Mutex
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodOptions {
			return
		}
		body, _ := io.ReadAll(q.Body)
		mu.Lock()
		bodies = append(bodies, string(body))
		mu.Unlock()
		q.Body = io.NopCloser(strings.NewReader(string(body)))
		serve(w, q)
	}))
	defer server.Close()
	c.URL = server.URL + "/x?code=s3cret"
	s := newSink(t, c)
	defer s.Close()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b := &event.Batch{Seq: 1}
	for _, text := range records {
		key, id, _ := strings.Cut(text, ":")
		b.Records = append(b.Records, event.Record{
			ID: id, Key: key, Route: c.URL, Broadcast: key == "", Value: []byte(`{"id":"` + id + `"}`), Format: format,
			Attributes: []event.Attribute{{Name: "id", Value: id + ` "ü%`}, {Name: "datacontenttype", Value: event.DataContentType}},
		})
	}
	_, err := s.Write(t.Context(), b)
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error has the secret of the address: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	return bodies, err
}

// What a status means decides what the pipeline does with the record, the collection or the sink.
func TestStatus(t *testing.T) {
	for status, want := range map[int]string{
		200: "", 202: "", 204: "", 301: "route", 307: "route", 400: "record", 401: "route", 403: "route", 404: "missing", 405: "route",
		408: "again", 410: "missing", 413: "record", 422: "record", 425: "again", 429: "again", 500: "again", 503: "again",
	} {
		_, err := write(t, httpsink.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.WriteHeader(status)
		}, event.Structured, "k:1")
		got, record, route := "", new(sink.RecordError), new(sink.RouteError)
		switch {
		case errors.As(err, &record):
			got = "record"
		case errors.As(err, &route) && route.Missing:
			got = "missing"
		case errors.As(err, &route):
			got = "route"
		case err != nil:
			got = "again"
		}
		if got != want {
			t.Errorf("%d: %q, want %q: %v", status, got, want, err)
		}
	}
}

// One event that the server refuses must not take the others of its request with it.
func TestHalved(t *testing.T) {
	bodies, err := write(t, httpsink.Config{Requests: 1}, func(w http.ResponseWriter, q *http.Request) {
		if body, _ := io.ReadAll(q.Body); strings.Contains(string(body), `"bad"`) {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}, event.Structured, "a:1", "b:2", "c:bad", "d:4")
	var record *sink.RecordError
	if !errors.As(err, &record) || record.Index != 2 {
		t.Errorf("Write: %v, want a RecordError of record 2", err)
	}
	want := []string{`[{"id":"1"},{"id":"2"},{"id":"bad"},{"id":"4"}]`, `[{"id":"1"},{"id":"2"}]`, `[{"id":"bad"},{"id":"4"}]`, `[{"id":"bad"}]`}
	if !slices.Equal(bodies, want) {
		t.Errorf("requests are\n%s\nwant\n%s", strings.Join(bodies, "\n"), strings.Join(want, "\n"))
	}
}

// A token that expires in the middle leaves the rest for later: what was acknowledged is not sent again.
func TestUnauthorizedInTheMiddle(t *testing.T) {
	var n atomic.Int32
	bodies, err := write(t, httpsink.Config{Requests: 1, MaxEvents: 1}, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) > 2 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, event.Structured, "a:1", "a:2", "a:3", "a:4")
	var route *sink.RouteError
	if !errors.As(err, &route) || route.Index != 2 || len(bodies) != 3 {
		t.Errorf("Write: %v after %v, want a RouteError of record 2", err, bodies)
	}
}

// The binary content mode: attributes are in headers, escaped as the HTTP binding says.
func TestBinary(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("t0ken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := write(t, httpsink.Config{TokenFile: token}, func(w http.ResponseWriter, q *http.Request) {
		got := fmt.Sprint(q.Header.Get("Ce-Id"), " ", q.Header.Get("Content-Type"), " ", q.Header.Get("Authorization"), " ", q.Header.Get("Ce-Datacontenttype"))
		if want := "1%20%22%C3%BC%25 application/json Bearer t0ken "; got != want {
			t.Errorf("headers are %q, want %q", got, want)
		}
	}, event.Binary, "k:1")
	if err != nil {
		t.Error(err)
	}
}

// A server that never ends its answer, or answers a redirect loop, must not hold the sink.
func TestBodyWithoutEnd(t *testing.T) {
	begin := time.Now()
	_, err := write(t, httpsink.Config{}, func(w http.ResponseWriter, q *http.Request) {
		for q.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}, event.Structured, "k:1")
	if took := time.Since(begin); err != nil || took > 20*time.Second {
		t.Errorf("Write: %v after %s", err, took)
	}
}

// A server may ask for a pause, but not for one that stops the bridge.
func TestRetryAfter(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost && n.Add(1) == 1 {
			w.Header().Set("Retry-After", "1e9")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	s, err := httpsink.New(httpsink.Options{Config: httpsink.Config{URL: server.URL}, MaxPause: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b := &event.Batch{Seq: 1, Records: []event.Record{{ID: "1", Key: "k", Route: server.URL, Value: []byte("{}")}}}
	if _, err := s.Write(t.Context(), b); err == nil {
		t.Fatal("503 is no error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Write(ctx, b); !errors.Is(err, context.DeadlineExceeded) || n.Load() != 1 {
		t.Errorf("Write: %v after %d requests: the pause is not kept", err, n.Load())
	}
	if _, err := s.Write(t.Context(), b); err != nil {
		t.Errorf("Write after the longest pause: %v", err)
	}
}

// Mistakes name the field, and never the address.
func TestConfigMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "url: missing",
		"ftp://x":                     "http:// or https://",
		"https://user:s3cret@host/":   "tokenFile",
		"https://{cluster}.example/":  "placeholder",
		"https://host/%zz?k=s3cret":   "no address",
		"https://host/{resource}?a=b": "",
	} {
		_, err := httpsink.Config{URL: text}.Complete()
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: the error has the secret: %v", text, err)
		}
	}
}
