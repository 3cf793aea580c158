package source

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// Client talks to one API server. It is safe for concurrent use.
type Client struct {
	rest      rest.Interface
	discovery *discovery.DiscoveryClient
	transport atomic.Pointer[transports]
	probes    probes
	watches   watches
	cluster   *identity
	streams   pause         // set after a server showed that it does not support streamed lists
	wide      chan struct{} // has one element for each busy watch on the wide connection
	memory    pieces        // for pages and watch frames
	bounds    listwatch.Bounds[Target]
}

// NewClient returns a client for the server that cfg names. It does not connect.
// cfg is not changed; its Timeout and rate limits are ignored, because they
// would end watches. Certificates in files are read again when they change.
func NewClient(cfg *rest.Config) (*Client, error) {
	return Renewal{Load: func() (*rest.Config, error) { return cfg, nil }}.NewClient()
}

// NewClient returns a client whose credentials are renewed, see [Renewal]. It does not connect.
func (o Renewal) NewClient() (*Client, error) {
	c := &Client{
		probes:  probes{limit: rate.NewLimiter(probeRate, probeBurst), mu: new(sync.Mutex), last: map[string]*probe{}},
		cluster: &identity{turn: semaphore.NewWeighted(1)},
		wide:    make(chan struct{}, wideWatches),
		watches: watches{of: map[Target]*watched{}},
	}
	loaded, r, err := o.start(c.connect)
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(loaded)
	cfg.Timeout, cfg.QPS, cfg.RateLimiter = 0, -1, nil
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status, for errors
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.WarningHandler = rest.NoWarnings{} // warnings about deprecated versions are of no use to a bridge
	cfg.AcceptContentTypes, cfg.ContentType = "application/json", "application/json"
	if c.rest, err = rest.UnversionedRESTClientForConfigAndClient(cfg, &http.Client{Transport: r}); err != nil {
		return nil, fmt.Errorf("set up a client for %s: %w", serverName(cfg), err)
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{Transport: r}); err != nil {
		return nil, fmt.Errorf("set up discovery for %s: %w", serverName(cfg), err)
	}
	return c, nil
}

// connect makes the connections of a configuration, and returns them with its credentials.
func (c *Client) connect(cfg *rest.Config) (http.RoundTripper, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("set up authentication for %s: %w", serverName(cfg), err)
	}
	shared, err := newTransport(tc, streamBuffer)
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", serverName(cfg), err)
	}
	base := newTransports(shared)
	wrapped, err := transport.HTTPWrappersForConfig(tc, base)
	if err != nil {
		return nil, fmt.Errorf("set up authentication for %s: %w", serverName(cfg), err)
	}
	if before := c.transport.Swap(&base); before != nil {
		before.closeIdle()
	}
	return wrapped, nil
}

// OpenWatches returns the number of open watches. Collections that read the same objects share one.
func (c *Client) OpenWatches() int { return int(c.watches.open.Load()) }

// Close drops idle connections.
func (c *Client) Close() {
	c.transport.Load().closeIdle()
}
