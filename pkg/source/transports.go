package source

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// What the HTTP/2 client takes in for one request whose answer nobody reads, in
// bytes. Go's default, 4 MiB, would be 2 GiB for 500 watches; a small one costs a
// busy watch a round trip, and a write, for every few objects. So it is small, and
// lists and at most wideWatches busy watches have a connection where it is not.
const (
	streamBuffer = 64 << 10
	wideBuffer   = 512 << 10
	wideWatches  = 16
	// frameSize is what a server may write as one frame, in bytes. Go's 16 KiB cost a
	// list a fifth more CPU, and a watch of objects of that size some hundredths.
	frameSize = 128 << 10
)

// freshFor is how old a connection may be that probes share.
const freshFor = 5 * time.Second

func newTransport(cfg *rest.Config, perStream int) (*http.Transport, error) {
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if cfg.Proxy != nil {
		proxy = cfg.Proxy
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  cfg.DisableCompression,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: perStream,
			MaxReadFrameSize:          frameSize,
			SendPingTimeout:           30 * time.Second,
			PingTimeout:               15 * time.Second,
		},
	}, nil
}

// transports are the ways to the server: shared connections; others for what is
// much and read at once; for requests that ask for it one each, closed with the
// request; fresh ones, for probes; and one to another server than the shared one's,
// where a load balancer leads there. None of the last three hangs where a shared
// connection is half open.
type transports struct {
	shared, wide, single *http.Transport
	fresh, other         *fresh
}

func newTransports(shared *http.Transport) transports {
	t := transports{shared: shared, wide: shared.Clone(), single: shared.Clone(), fresh: &fresh{like: shared.Clone()}, other: &fresh{like: shared.Clone()}}
	t.wide.HTTP2.MaxReceiveBufferPerStream = wideBuffer
	t.single.DisableKeepAlives = true
	t.fresh.like.IdleConnTimeout = freshFor
	t.other.like.IdleConnTimeout = freshFor
	return t
}

func (t transports) closeIdle() {
	t.shared.CloseIdleConnections()
	t.wide.CloseIdleConnections()
	t.single.CloseIdleConnections()
	t.fresh.leave(nil)
	t.other.leave(nil)
}

// fresh is a way over connections of which none is older than freshFor, or had a
// request that failed, when a request begins. With one connection for each probe, 500
// quiet collections would make as many a minute, and a handshake costs more than all
// else that a probe takes.
type fresh struct {
	like *http.Transport

	mu    sync.Mutex
	now   *http.Transport // nil: none yet
	until time.Time
}

func (f *fresh) RoundTrip(r *http.Request) (*http.Response, error) {
	t := f.transport()
	resp, err := t.RoundTrip(r)
	if err != nil {
		f.leave(t)
	}
	return resp, err
}

func (f *fresh) transport() *http.Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil || time.Now().After(f.until) {
		if f.now != nil {
			f.now.CloseIdleConnections() // what is busy closes soon after
		}
		f.now, f.until = f.like.Clone(), time.Now().Add(freshFor)
	}
	return f.now
}

// leave makes the next request begin a new connection, if t, or with nil whatever
// it is, is what the last one began.
func (f *fresh) leave(t *http.Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil && (t == nil || t == f.now) {
		f.now.CloseIdleConnections()
		f.now = nil
	}
}

type (
	way    struct{} // the key of one of these in a context
	single struct{}
	wide   struct{}
	afresh struct{}
	// other is a watch that a server's lack of history sends to another server. All such
	// watches share a connection until one of them finds that its server has no more
	// history either, so that what one has found serves all.
	other struct {
		used *http.Transport
	}
)

// throwAway makes the requests of ctx use a connection of their own.
func throwAway(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, single{}) }

// freshly makes the requests of ctx use a connection that is fresh.
func freshly(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, afresh{}) }

// elsewhere makes the request of ctx use the connection that o is for.
func elsewhere(ctx context.Context, o *other) context.Context {
	return context.WithValue(ctx, way{}, o)
}

// widely makes the requests of ctx use a connection with large buffers.
func widely(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, wide{}) }

func isWide(ctx context.Context) bool { return ctx.Value(way{}) == wide{} }

func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	switch w := r.Context().Value(way{}).(type) {
	case *other:
		w.used = t.other.transport()
		resp, err := w.used.RoundTrip(r)
		if err != nil {
			t.other.leave(w.used)
		}
		return resp, err
	case single:
		return t.single.RoundTrip(r)
	case afresh:
		return t.fresh.RoundTrip(r)
	case wide:
		return t.wide.RoundTrip(r)
	default:
		return t.shared.RoundTrip(r)
	}
}
