// Package status serves what operators and kubelets ask of a running bridge:
// /metrics, /healthz and /readyz, the status page at / and the same as JSON at
// /api/status, and where asked for the last changes at /changes and /api/changes. It only
// reads: other methods than GET and HEAD get 405. /healthz and /readyz need no login; where there is
// one, they say no more than whether.
package status

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubebridge/kubebridge/internal/serve"
)

// Options of a [Server]. All but Changes are required.
type Options struct {
	// Serve says where and for whom. Its Handler and Open are the server's own.
	Serve    serve.Options
	Gatherer prometheus.Gatherer
	// Alive reports whether the loops make progress; it must end with ctx.
	Alive func(ctx context.Context) bool
	// Report returns the present state. Rates and the sinks' lags are added to it.
	Report func() Report
	// Changes are shown where it is not nil.
	Changes ChangesFunc
}

// Server is the HTTP server. It only reads.
type Server struct {
	*serve.Server
	history *history
}

// aliveTimeout is how long a loop may take to answer /healthz.
const aliveTimeout = 5 * time.Second

// New listens; Run serves.
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
	s, err := serve.New(o.Serve)
	if err != nil {
		return nil, fmt.Errorf("status.listen %s: %w", o.Serve.Listen, err)
	}
	return &Server{Server: s, history: h}, nil
}

// Run serves until ctx ends.
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
