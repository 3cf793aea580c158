// Package status serves what operators and kubelets ask of a running bridge:
// /metrics, /healthz and /readyz, the status page at / and the same as JSON at
// /api/status, and where asked for the last changes at /changes and /api/changes. It only reads: other methods than GET and HEAD get 405.
package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a [Server]. All but Changes are required.
type Options struct {
	Listen   string // host:port
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
	listener net.Listener
	http     http.Server
	history  *history
}

// aliveTimeout is how long a loop may take to answer /healthz.
const aliveTimeout = 5 * time.Second

// New listens; Run serves.
func New(o Options) (*Server, error) {
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("status.listen %s: %w: choose another address, or off", o.Listen, err)
	}
	h := newHistory(o.Report)
	mux := http.NewServeMux()
	if err := addPage(mux, o, h); err != nil {
		return nil, errors.Join(err, l.Close())
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
	return &Server{listener: l, history: h, http: http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var sampling sync.WaitGroup
	sampling.Go(func() { s.history.Run(ctx) })
	defer sampling.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve status: %w", err)
	}
	return nil
}
