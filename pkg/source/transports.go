package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/transport"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// Bytes that the HTTP/2 client buffers per request while the answer is not read.
// Go's default of 4 MiB would be 2 GiB for 500 watches. With a small buffer a
// busy watch needs a round trip and a write for every few objects. So the buffer is small, and
// lists and at most wideWatches busy watches use a connection with a large buffer.
const (
	streamBuffer = 64 << 10
	wideBuffer   = 512 << 10
	wideWatches  = 16
	// frameSize is the maximum size of an HTTP/2 frame from the server, in bytes. With Go's 16 KiB, a list takes
	// 20 % more CPU, and a watch of objects of that size a few percent more.
	frameSize = 128 << 10
)

// freshFor is the maximum age of a connection that probes share.
const freshFor = 5 * time.Second

func newTransport(tc *transport.Config, perStream int) (*http.Transport, error) {
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if tc.Proxy != nil {
		proxy = tc.Proxy
	}
	return &http.Transport{
		Proxy: proxy,
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return listwatch.ProxyError(fmt.Errorf("the proxy %s refuses the connection: %s", proxy.Host, resp.Status))
		},
		DialContext:         tc.DialHolder.Dial, // closes connections when the certificate of an exec plugin changes
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableCompression:  tc.DisableCompression,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: perStream,
			MaxReadFrameSize:          frameSize,
			SendPingTimeout:           30 * time.Second,
			PingTimeout:               15 * time.Second,
		},
	}, nil
}

// transports are the connections to the server. single, fresh and other do not hang if a shared
// connection is half open:
//
//	shared  for most requests
//	wide    for large answers that are read immediately
//	single  for one request, and closed with it
//	fresh   for probes
//	other   for watches at another server behind a load balancer
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

// fresh uses a connection that is not older than freshFor and had no failed request when a request begins. With one
// connection per probe, 500 quiet collections would make 500 connections per minute, and a handshake costs more than
// the rest of a probe. A canceled request has not failed: the end of a watch cancels its probe, and if that cost a
// connection, a load balancer that takes turns would give the next watch the same server again.
type fresh struct {
	like *http.Transport

	mu    sync.Mutex
	now   *http.Transport // nil before the first request
	until time.Time
}

func (f *fresh) RoundTrip(r *http.Request) (*http.Response, error) {
	t := f.transport()
	resp, err := t.RoundTrip(r)
	if err != nil && !errors.Is(r.Context().Err(), context.Canceled) { // a caller that needs no answer any more says nothing about the connection
		f.leave(t)
	}
	return resp, err
}

func (f *fresh) transport() *http.Transport {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil || time.Now().After(f.until) {
		if f.now != nil {
			f.now.CloseIdleConnections() // busy connections close when they become idle
		}
		f.now, f.until = f.like.Clone(), time.Now().Add(freshFor)
	}
	return f.now
}

// leave makes the next request begin a new connection, if t is the present transport or nil.
func (f *fresh) leave(t *http.Transport) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil && (t == nil || t == f.now) {
		f.now.CloseIdleConnections()
		f.now = nil
	}
}

type (
	way    struct{} // the context key of the connection to use: single, wide, afresh or *other
	single struct{}
	wide   struct{}
	afresh struct{}
	// other is a watch that uses another server, because the first server does not have its history. All such
	// watches share a connection until one of them finds that this server does not have its
	// history either.
	other struct {
		used *http.Transport
	}
)

// throwAway makes the requests of ctx use a connection of their own.
func throwAway(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, single{}) }

// freshly makes the requests of ctx use a connection that is fresh.
func freshly(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, afresh{}) }

// elsewhere makes the request of ctx use the connection to another server, and records it in o.
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
