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

// streamBuffer bounds what the HTTP/2 client takes in for one watch that nobody
// reads. Go's default, 4 MiB, would be 2 GiB for 500 watches.
const streamBuffer = 128 << 10 // bytes

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest      rest.Interface
	discovery *discovery.DiscoveryClient
	transport transports
	probes    probes
	cluster   identity
	streams   pause // after a server showed that it does not know streamed lists
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

	shared, err := newTransport(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", cfg.Host, err)
	}
	base := transports{shared: shared, single: shared.Clone()}
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
	return &Client{rest: rc, discovery: dc, transport: base, probes: newProbes(), cluster: newIdentity()}, nil
}

func newTransport(cfg *rest.Config) (*http.Transport, error) {
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
			MaxReceiveBufferPerStream: streamBuffer,
			SendPingTimeout:           30 * time.Second,
			PingTimeout:               15 * time.Second,
		},
	}, nil
}

// transports are the ways to the server: shared connections, and for requests
// that ask for it one each, closed with the request. Such a one does not hang
// where a shared connection is half open, and behind a load balancer it may reach
// another server.
type transports struct{ shared, single *http.Transport }

type singleUse struct{}

// throwAway makes the requests of ctx use a connection of their own.
func throwAway(ctx context.Context) context.Context {
	return context.WithValue(ctx, singleUse{}, true)
}

func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(singleUse{}) != nil {
		return t.single.RoundTrip(r)
	}
	return t.shared.RoundTrip(r)
}

// Close drops idle connections.
func (c *Client) Close() {
	c.transport.shared.CloseIdleConnections()
	c.transport.single.CloseIdleConnections()
}
