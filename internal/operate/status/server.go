// Package status serves the state of a running bridge to operators and kubelets:
// /metrics, /healthz and /readyz, the status page at /, the same as JSON at
// /api/status, and if configured the last changes at /changes and /api/changes. All endpoints are read-only:
// methods other than GET and HEAD get 405. /healthz and /readyz need no login. If the others need one, /healthz and
// /readyz do not reveal more than the state.
package status

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
)

// Options of a [Server]. All but Changes are required.
type Options struct {
	// Serve has the address, TLS and login. New sets its Handler and Open.
	Serve    httpserver.Options
	Gatherer prometheus.Gatherer
	// Alive reports whether the loops make progress. It must return when ctx is cancelled.
	Alive func(ctx context.Context) bool
	// Report returns the present state. The server adds rates and the sinks' lags.
	Report func() Report
	// Changes returns the last changes; nil if they are not kept.
	Changes ChangesFunc
}

// Server is the HTTP server.
type Server struct {
	*httpserver.Server
	history *history
}

// aliveTimeout is how long a loop may take to answer /healthz.
const aliveTimeout = 5 * time.Second

// New opens the listener; Run serves.
func New(o Options) (*Server, error) {
	h := newHistory(o.Report)
	mux := http.NewServeMux()
	if err := addPage(mux, o, h); err != nil {
		return nil, err
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), aliveTimeout)
		defer cancel()
		if !o.Alive(ctx) {
			http.Error(w, "a loop does not answer", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	o.Serve.Handler, o.Serve.Open = mux, []string{"/healthz", "/readyz"}
	s, err := httpserver.New(o.Serve)
	if err != nil {
		return nil, fmt.Errorf("status.listen %s: %w", o.Serve.Listen, err)
	}
	return &Server{Server: s, history: h}, nil
}

// Run serves until ctx is cancelled.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	sampling.Go(func() { s.history.Run(ctx) })
	defer sampling.Wait()
	defer cancel()
	if err := s.Server.Run(ctx); err != nil {
		return fmt.Errorf("serve status: %w", err)
	}
	return nil
}
