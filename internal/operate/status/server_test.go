package status

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestProbes: /healthz and /readyz have the state of the bridge, with the reason in the
// body.
func TestProbes(t *testing.T) {
	var ready, alive atomic.Bool
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "kubebridge_test_total", Help: "A test."})
	registry.MustRegister(counter)
	counter.Inc()
	s, err := New(Options{
		Serve: httpserver.Options{Listen: "127.0.0.1:0", Log: zap.NewNop()}, Gatherer: registry,
		Alive: func(ctx context.Context) bool { return alive.Load() }, Report: func() Report { return Report{Ready: ready.Load()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := (&http.Client{Transport: transport}).Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, now := range []bool{false, true} {
		ready.Store(now)
		alive.Store(now)
		want := http.StatusServiceUnavailable
		if now {
			want = http.StatusOK
		}
		if code, _ := get("/healthz"); code != want {
			t.Errorf("alive %t: /healthz answers %d", now, code)
		}
		code, body := get("/readyz")
		var state Report
		if err := json.Unmarshal([]byte(body), &state); err != nil || state.Ready != now || code != want {
			t.Errorf("ready %t: /readyz answers %d %q (%v)", now, code, body, err)
		}
	}
	if _, body := get("/metrics"); !strings.Contains(body, "kubebridge_test_total 1") {
		t.Errorf("/metrics lacks the counter:\n%s", body)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestAddressInUse(t *testing.T) {
	o := Options{Serve: httpserver.Options{Listen: "127.0.0.1:0", Log: zap.NewNop()}, Gatherer: prometheus.NewRegistry()}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o.Serve.Listen = s.Addr().String()
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), o.Serve.Listen) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("the error does not say what and what to do: %v", err)
	}
}

// TestProbesBesideALogin: a kubelet has no token. The probes need no login, and reveal nothing that needs one.
func TestProbesBesideALogin(t *testing.T) {
	o := Options{
		Serve:    httpserver.Options{Listen: "127.0.0.1:0", Log: zap.NewNop(), Login: func(context.Context, string, *http.Request) error { return httpserver.ErrUnknownToken }},
		Gatherer: prometheus.NewRegistry(), Alive: func(context.Context) bool { return true },
		Report: func() Report { return Report{Name: "planted", Ready: true, Sinks: []Sink{{Name: "planted"}}} }, Changes: sampleChanges,
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n", "/": "", "/metrics": "", "/api/status": "", "/api/changes": "", "/changes": "", "/page.js": ""} {
		answer, err := (&http.Client{Transport: transport}).Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if want != "" && (answer.StatusCode != http.StatusOK || string(body) != want) || want == "" && answer.StatusCode != http.StatusUnauthorized || strings.Contains(string(body), "planted") {
			t.Errorf("%s: %s %q", path, answer.Status, body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
