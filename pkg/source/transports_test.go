package source

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Probes share a connection that is young and has not failed. What is thrown away
// is shared with nobody.
func TestFreshConnections(t *testing.T) {
	fails := false
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, r.RemoteAddr)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	client := newClient(t, &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	ask := func(way func(context.Context) context.Context) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(way(t.Context()), 2*time.Minute)
		defer cancel()
		raw, err := client.rest.Get().AbsPath("/").MaxRetries(0).DoRaw(ctx)
		if (err != nil) != fails {
			t.Fatalf("fails: %t; got %v", fails, err)
		}
		return string(raw)
	}
	seen := map[string]string{ask(throwAway): "thrown away"}
	met := func(what, address string) {
		t.Helper()
		if was, ok := seen[address]; ok {
			t.Errorf("the connection of %s is that of %s", what, was)
		}
		seen[address] = what
	}
	met("another one thrown away", ask(throwAway))

	first := ask(freshly)
	met("the first probe", first)
	if second := ask(freshly); second != first {
		t.Errorf("the second probe went by %s, the first by %s", second, first)
	}
	client.transport.Load().fresh.until = time.Now()
	met("a probe later", ask(freshly))
	fails = true
	ask(freshly)
	fails = false
	met("a probe after a failure", ask(freshly))
}

// TestCanceledProbe: a probe that its caller does not need any more does not cost a connection. One without an answer in time does, because the
// connection may be half open.
func TestCanceledProbe(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	f := &fresh{like: &http.Transport{}}
	defer f.leave(nil)
	ask := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := f.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
			t.Error("an answer came")
		}
	}
	first := f.transport()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if ask(ctx); f.transport() != first {
		t.Error("a canceled request costs the connection")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	go func() { <-asked }()
	if ask(ctx); f.transport() == first {
		t.Error("a request without an answer in time does not cost the connection")
	}
}

// A proxy between bridge and API server is named when it refuses a connection: "Forbidden" alone reads like missing permissions.
func TestProxyRefuses(t *testing.T) {
	code := http.StatusForbidden
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer srv.Close()
	refused := func(want string) {
		t.Helper()
		proxy, err := url.Parse(strings.Replace(srv.URL, "://", "://u:s3cret@", 1))
		if err != nil {
			t.Fatal(err)
		}
		client := newClient(t, &rest.Config{Host: "https://192.0.2.1", Proxy: http.ProxyURL(proxy)}) // an address for examples
		_, err = client.ClusterUID(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NO_PROXY") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %q and what to do", err, want)
		}
	}
	address := srv.Listener.Addr().String()
	refused("the proxy " + address + " refuses the connection: 403 Forbidden")
	code = http.StatusProxyAuthRequired
	refused("the proxy " + address + " refuses the connection: 407 Proxy Authentication Required")
	srv.Close()
	refused("proxyconnect tcp: dial tcp " + address + ": connect: connection refused")
}
