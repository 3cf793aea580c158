package source

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest      rest.Interface
	discovery *discovery.DiscoveryClient
	transport transports
	probes    probes
	watches   watches
	cluster   identity
	streams   pause         // set after a server showed that it does not support streamed lists
	wide      chan struct{} // has one element for each busy watch on the wide connection
	memory    pieces        // for pages and watch frames
	bounds    pageBounds
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
	cfg.WarningHandler = rest.NoWarnings{} // warnings about deprecated versions are of no use to a bridge
	cfg.AcceptContentTypes, cfg.ContentType = "application/json", "application/json"

	shared, err := newTransport(cfg, streamBuffer)
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", cfg.Host, err)
	}
	base := newTransports(shared)
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
		wide: make(chan struct{}, wideWatches), watches: newWatches(),
	}, nil
}

// OpenWatches returns the number of open watches. Collections that read the same objects share one.
func (c *Client) OpenWatches() int { return int(c.watches.open.Load()) }

// Close drops idle connections.
func (c *Client) Close() {
	c.transport.closeIdle()
}
