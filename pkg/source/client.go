package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
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
)

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest      rest.Interface
	discovery *discovery.DiscoveryClient
	transport transports
	probes    probes
	cluster   identity
	streams   pause         // after a server showed that it does not know streamed lists
	wide      chan struct{} // has one for each busy watch on the wide connection
	memory    memories      // of what is read
}

// NewClient returns a client for the server that cfg names. It does not connect.
// cfg is not changed; its Timeout and rate limits are ignored, because they
// would end watches.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.QPS, cfg.RateLimiter = 0, -1, nil
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status, for errors
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.WarningHandler = rest.NoWarnings{} // of deprecated versions: nothing that a reader of all can act on
	cfg.AcceptContentTypes, cfg.ContentType = "application/json", "application/json"

	shared, err := newTransport(cfg, streamBuffer)
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", cfg.Host, err)
	}
	base := transports{shared: shared, wide: shared.Clone(), single: shared.Clone()}
	base.wide.HTTP2.MaxReceiveBufferPerStream = wideBuffer
	base.single.DisableKeepAlives = true
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("set up authentication for %s: %w", cfg.Host, err)
	}
	wrapped, err := transport.HTTPWrappersForConfig(tc, base)
	if err != nil {
		return nil, fmt.Errorf("set up authentication for %s: %w", cfg.Host, err)
	}
	rc, err := rest.UnversionedRESTClientForConfigAndClient(cfg, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf("set up a client for %s: %w", cfg.Host, err)
	}
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf("set up discovery for %s: %w", cfg.Host, err)
	}
	return &Client{
		rest: rc, discovery: dc, transport: base, probes: newProbes(), cluster: newIdentity(),
		wide: make(chan struct{}, wideWatches),
	}, nil
}

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
			SendPingTimeout:           30 * time.Second,
			PingTimeout:               15 * time.Second,
		},
	}, nil
}

// transports are the ways to the server: shared connections, others for what is
// much and read at once, and for requests that ask for it one each, closed with the
// request. Such a one does not hang where a shared connection is half open, and
// behind a load balancer it may reach another server.
type transports struct{ shared, wide, single *http.Transport }

type (
	way    struct{} // the key of one of these in a context
	single struct{}
	wide   struct{}
)

// throwAway makes the requests of ctx use a connection of their own.
func throwAway(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, single{}) }

// widely makes the requests of ctx use a connection with large buffers.
func widely(ctx context.Context) context.Context { return context.WithValue(ctx, way{}, wide{}) }

func isWide(ctx context.Context) bool { return ctx.Value(way{}) == wide{} }

func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Context().Value(way{}).(type) {
	case single:
		return t.single.RoundTrip(r)
	case wide:
		return t.wide.RoundTrip(r)
	default:
		return t.shared.RoundTrip(r)
	}
}

// Close drops idle connections.
func (c *Client) Close() {
	c.transport.shared.CloseIdleConnections()
	c.transport.wide.CloseIdleConnections()
	c.transport.single.CloseIdleConnections()
}
