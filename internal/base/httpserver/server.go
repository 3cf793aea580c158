// Package httpserver is the HTTP server of every endpoint of the bridge. It limits the load by
// unknown clients: connections, in total and per address, the size of a header, the time that
// a request and its answer take, and the number of concurrent answers. It refuses a request
// for another host, so that a page in a browser cannot reach the endpoint by a name of its own
// (DNS rebinding). TLS and a login are optional.
package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Limits of a server. One address can use only a part of them, so that kubelets and scrapers are served while
// another client uses as much as it can.
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
	bodyTime              = 2 * time.Second // for the body of a request to a server of streams
	// queueTime is how long a request waits for a free slot.
	queueTime = 5 * time.Second
)

// smallBody is the largest body of a POST to a server of streams after which the connection stays open.
const smallBody = 64 << 10

// DefaultStreams is how many connections and concurrent answers a server of streams has.
const DefaultStreams = 1024

// Options of a [Server]. Listen, Handler and Log are required.
type Options struct {
	Listen string // host:port
	// Hosts are the names that requests may be sent to, in addition to IP addresses, localhost and
	// the host of Listen.
	Hosts []string
	// Cert and Key are PEM files, which are read again for every connection. "": no TLS.
	Cert, Key string
	// ClientCA is a PEM file with the CAs of client certificates, which is also read again for every connection. A client may have no
	// certificate. A connection with one that these CAs did not sign fails. "": certificates of clients are not asked for.
	ClientCA string
	// AnyHost admits requests for every host. It is for servers with TLS, whose clients have checked the certificate for the host.
	AnyHost bool
	Login   Login // nil: none
	// Open are the paths that need no login.
	Open []string
	// Streams is not 0 for a server whose answers may take as long as their clients read. It is the number of connections and concurrent answers, of
	// which one address may have half. The handler limits the time for each part that it writes. Run waits for the handler, which may use what is
	// closed after Run: it must return soon after a request's context ends.
	Streams int
	Handler http.Handler
	Log     *zap.Logger
}

// Server is an endpoint.
type Server struct {
	listener net.Listener
	http     http.Server
	streams  bool
	// running is read-locked by each request, and locked when Run ends and never unlocked.
	running sync.RWMutex
}

// New listens; Run serves. New returns an error if the address or a file cannot be used.
func New(o Options) (*Server, error) {
	var protocol *tls.Config
	if o.Cert != "" {
		var err error
		if protocol, err = TLS(o, tls.VerifyClientCertIfGiven, "http/1.1"); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address, or off", err)
	}
	if o.Streams > 0 {
		l = Limit(l, o.Streams, o.Streams/2)
	} else {
		l = Limit(l, connections, connectionsPerAddress)
	}
	if protocol != nil {
		l = tls.NewListener(l, protocol)
	}
	errorLog, err := zap.NewStdLogAt(o.Log, zap.DebugLevel) // errors of clients
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{listener: l, streams: o.Streams > 0, http: http.Server{
		ErrorLog: errorLog, MaxHeaderBytes: headerBytes,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
	}}
	if s.streams {
		s.http.ReadTimeout, s.http.WriteTimeout = 0, 0
	}
	s.http.Handler = s.counting(o.handler())
	return s, nil
}

// Addr returns the address of the server.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends. With [Options.Streams] it returns after the last handler.
func (s *Server) Run(ctx context.Context) error {
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	err := s.http.Serve(s.listener)
	if s.streams {
		_ = s.http.Close() // also after an error of the listener
		s.running.Lock()
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// counting returns a handler that does not begin once Run ends.
func (s *Server) counting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.running.TryRLock() { // the connection is closed
			return
		}
		defer s.running.RUnlock()
		h.ServeHTTP(w, r)
	})
}

// Close stops a server that does not run.
func (s *Server) Close() error { return s.listener.Close() }

// handler checks a request in this order: is it for this host, is there a slot for its answer, may
// its sender see it. Paths that need no login have slots of their own.
func (o *Options) handler() http.Handler {
	open, closed := NewQuota(answers, answersPerAddress), NewQuota(answers, answersPerAddress)
	if o.Streams > 0 {
		closed = NewQuota(o.Streams, o.Streams/2)
	}
	hosts := o.hosts()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if o.Streams > 0 { // the deadline of the connection's last answer may be over
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // tests' recorders have none
		}
		if o.Streams > 0 && r.ContentLength != 0 && refusesBody(w, r) {
			return
		}
		if !o.AnyHost && !isFor(r.Host, hosts) {
			http.Error(w, misdirected(r.Host), http.StatusMisdirectedRequest)
			return
		}
		room, login := closed, o.Login
		if slices.Contains(o.Open, r.URL.Path) {
			room, login = open, nil
		}
		release, ok := room.Acquire(r.Context(), r.RemoteAddr)
		if !ok {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "too many requests at once: try again later", http.StatusServiceUnavailable)
			return
		}
		defer release()
		if login != nil && !o.admits(w, r) {
			return
		}
		o.Handler.ServeHTTP(w, r)
	})
}

// refusesBody bounds the time for the body of a request, which the handler or net/http reads, and refuses a body of a request that has no use for
// one. After a body that is not a small one of a POST, the connection ends. net/http ends the time when it has read the body.
func refusesBody(w http.ResponseWriter, r *http.Request) bool {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // tests' recorders have none
	if r.Method == http.MethodPost && r.ContentLength > 0 && r.ContentLength <= smallBody {
		return false
	}
	w.Header().Set("Connection", "close")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	http.Error(w, "this server reads no bodies: send the request without one", http.StatusRequestEntityTooLarge)
	return true
}

// hosts returns the names that requests may be sent to.
func (o *Options) hosts() []string {
	hosts := []string{"localhost", plain(hostOf(o.Listen))}
	for _, h := range o.Hosts {
		hosts = append(hosts, plain(h))
	}
	return hosts
}

// isFor reports whether a Host header is an IP address, which DNS cannot change, or one
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

// plain returns a name in the form for comparisons.
func plain(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
}

// ClientOf returns what limits count of an address with its port: the IPv4 address, or the first 64 bits of an IPv6 address, because a client can
// have all others.
func ClientOf(remote string) string {
	host := hostOf(remote)
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return network.String()
}

// TLS reads the files of o for every connection, so new ones are used from the next connection on. While certificate and
// key do not match, or a file cannot be read, the last valid ones stay in use. auth is for clients if o has a ClientCA.
// A [Server] offers only HTTP/1.1, with which a connection has one request at a time.
func TLS(o Options, auth tls.ClientAuthType, protocols ...string) (*tls.Config, error) {
	var last atomic.Pointer[tls.Config]
	read := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := o.readTLS(auth, protocols)
		if err != nil {
			if known := last.Load(); known != nil {
				o.Log.Warn("certificate not read, keeping the previous one", zap.String("cert", o.Cert), zap.Error(err))
				return known, nil
			}
			return nil, err
		}
		last.Store(c)
		return c, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: read, NextProtos: protocols}, nil
}

func (o *Options) readTLS(auth tls.ClientAuthType, protocols []string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", o.Cert, o.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: protocols}
	if o.ClientCA == "" {
		return c, nil
	}
	c.ClientAuth = auth
	c.ClientCAs, err = ReadCAs(o.ClientCA)
	return c, err
}

// ReadCAs reads the certificates of a PEM file.
func ReadCAs(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("CA of client certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("CA of client certificates: %s has no certificate in PEM", path)
	}
	return pool, nil
}
