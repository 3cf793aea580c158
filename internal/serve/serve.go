// Package serve is the HTTP server of every endpoint of the bridge. What a stranger can
// have it do is bounded: connections, in all and of one address, the size of a header, the time that
// a request and its answer take, and the number of answers under way. A request that was meant
// for another host is refused, so that no page in a browser reaches the endpoint by a name of its own
// (DNS rebinding). TLS and a login are options.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// What a server bears at most. One address has only a part of it: kubelets and scrapers go on while
// somebody else takes all that they can.
const (
	headerBytes           = 12 << 10 // net/http adds 4 KiB
	headerTime            = 5 * time.Second
	requestTime           = 10 * time.Second
	answerTime            = 30 * time.Second
	idleTime              = 90 * time.Second
	connections           = 256
	connectionsPerAddress = 32
	answers               = 16
	answersPerAddress     = 4
	// queueTime is how long a request waits for its turn.
	queueTime = 5 * time.Second
)

// Options of a [Server]. Listen, Handler and Log are required.
type Options struct {
	Listen string // host:port
	// Hosts are the names that requests may be sent to, beside IP addresses, localhost and
	// Listen's own host.
	Hosts []string
	// Cert and Key are PEM files, which are read again for every connection. "": no TLS.
	Cert, Key string
	Login     Login // nil: none
	// Open are the paths that need no login.
	Open    []string
	Handler http.Handler
	Log     *zap.Logger
}

// Server is an endpoint.
type Server struct {
	listener net.Listener
	http     http.Server
}

// New listens; Run serves. An error is about the address or a file.
func New(o Options) (*Server, error) {
	protocol, err := newTLS(o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address, or off", err)
	}
	l = &listener{Listener: l, open: newQuota(connections, connectionsPerAddress)}
	if protocol != nil {
		l = tls.NewListener(l, protocol)
	}
	errorLog, err := zap.NewStdLogAt(o.Log, zap.DebugLevel) // of what clients do wrong
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Server{listener: l, http: http.Server{
		Handler: o.handler(), ErrorLog: errorLog, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
	}}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops a server that does not run.
func (s *Server) Close() error { return s.listener.Close() }

// handler asks of a request, in this order: is it for this host, is there room for its answer, may
// its sender see it. Paths that need no login have room of their own.
func (o *Options) handler() http.Handler {
	open, closed := newQuota(answers, answersPerAddress), newQuota(answers, answersPerAddress)
	hosts := o.hosts()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !isFor(r.Host, hosts) {
			http.Error(w, misdirected(r.Host), http.StatusMisdirectedRequest)
			return
		}
		room, login := closed, o.Login
		if slices.Contains(o.Open, r.URL.Path) {
			room, login = open, nil
		}
		leave, ok := room.wait(r.Context(), hostOf(r.RemoteAddr))
		if !ok {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "too many requests at once: try again later", http.StatusServiceUnavailable)
			return
		}
		defer leave()
		if login != nil && !o.admits(w, r) {
			return
		}
		o.Handler.ServeHTTP(w, r)
	})
}

// hosts are the names that requests may be sent to.
func (o *Options) hosts() []string {
	hosts := []string{"localhost", plain(hostOf(o.Listen))}
	for _, h := range o.Hosts {
		hosts = append(hosts, plain(h))
	}
	return hosts
}

// isFor reports whether a Host header is an address, which no resolver can point elsewhere, or one
// of the names.
func isFor(header string, names []string) bool {
	host := plain(hostOf(header))
	return host != "" && (net.ParseIP(host) != nil || slices.Contains(names, host))
}

func misdirected(header string) string {
	if len(header) > 253 { // the longest name
		header = header[:253]
	}
	return fmt.Sprintf("this server does not go by the name %q: ask it by its IP address or as localhost, or have its configuration list the name (status.hosts for the status)", header)
}

// plain is a name in the form that names are compared in.
func plain(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

// newTLS reads the certificate for every connection: one that was replaced counts from the next one
// on, and while the files do not fit each other, the last one that did stays. Only HTTP/1.1 is offered, where a connection is
// one request at a time.
func newTLS(o Options) (*tls.Config, error) {
	if o.Cert == "" {
		return nil, nil
	}
	var last atomic.Pointer[tls.Certificate]
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			if known := last.Load(); known != nil {
				o.Log.Warn("certificate not read, keeping the previous one", zap.String("cert", o.Cert), zap.Error(err))
				return known, nil
			}
			return nil, fmt.Errorf("certificate %s with key %s: %w", o.Cert, o.Key, err)
		}
		last.Store(&pair)
		return &pair, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: read, NextProtos: []string{"http/1.1"}}, nil
}
