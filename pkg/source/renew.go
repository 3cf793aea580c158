package source

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// renewEvery is how often requests look for renewed credentials.
	renewEvery = 10 * time.Second
	// renewRefused is how often they look while requests fail.
	renewRefused = time.Second
)

// Renewal is how a client reaches a server with credentials that are renewed while it runs: those in a kubeconfig, and the
// certificates in files that it names. client-go reads them once.
type Renewal struct {
	// Load returns the present configuration. Requests call it again after ten seconds, and after an attempt that failed or
	// was refused with 401. If it fails, they use the configuration before.
	Load func() (*rest.Config, error)
	// Report is called with nil after the credentials were renewed, and with each new error of a renewal. nil: it is not called.
	Report func(error)
}

// Anonymous reaches the same server without credentials. Those of a [Renewal.Config] are in its transport: nothing that a
// caller changes there takes them away.
func (o Renewal) Anonymous() Renewal {
	load := o.Load
	o.Load = func() (*rest.Config, error) {
		cfg, err := load()
		if err != nil {
			return nil, err
		}
		return rest.AnonymousClientConfig(cfg), nil
	}
	return o
}

// Config returns a configuration for clients of client-go. Only its rate limits, content types and timeout may be changed.
func (o Renewal) Config() (*rest.Config, error) {
	cfg, r, err := o.start(rest.TransportFor)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil { // it was checked
		return nil, err
	}
	return &rest.Config{Host: server.String(), UserAgent: cfg.UserAgent, Transport: r}, nil
}

// start loads the first configuration. build makes the transport of a configuration.
func (o Renewal) start(build func(*rest.Config) (http.RoundTripper, error)) (*rest.Config, *renewing, error) {
	r := &renewing{Renewal: o, build: build}
	cfg, err := r.Load()
	if err != nil {
		return nil, nil, err
	}
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil { // err may have the password
		return nil, nil, fmt.Errorf("set up a client for %s: this is no URL like https://HOST:PORT", serverName(cfg))
	}
	if r.loaded, err = withFiles(cfg); err != nil {
		return nil, nil, fmt.Errorf("set up TLS for %s: %w", serverName(cfg), err)
	}
	transport, err := build(cfg)
	if err != nil {
		return nil, nil, err
	}
	r.now.Store(&transport)
	r.checked = time.Now()
	return cfg, r, nil
}

// withFiles returns what a renewal may change of a configuration, with the content of the files that it names.
func withFiles(cfg *rest.Config) (*rest.Config, error) {
	c := rest.CopyConfig(cfg)
	c.ContentConfig, c.Transport, c.WrapTransport, c.AuthConfigPersister = rest.ContentConfig{}, nil, nil, nil
	c.RateLimiter, c.WarningHandler, c.WarningHandlerWithContext, c.Dial, c.Proxy = nil, nil, nil, nil, nil
	return c, rest.LoadTLSFiles(c)
}

// renewing is the transport of the present configuration.
type renewing struct {
	Renewal
	build func(*rest.Config) (http.RoundTripper, error)
	now   atomic.Pointer[http.RoundTripper]

	mu      sync.Mutex
	checked time.Time
	loaded  *rest.Config
	failed  string // the last error that was reported
}

// RoundTrip implements [http.RoundTripper].
func (r *renewing) RoundTrip(req *http.Request) (*http.Response, error) {
	r.renew(renewEvery)
	resp, err := (*r.now.Load()).RoundTrip(req)
	if err != nil && req.Context().Err() == nil || err == nil && resp.StatusCode == http.StatusUnauthorized {
		r.renew(renewRefused)
	}
	return resp, err
}

// WrappedRoundTripper lets callers close idle connections.
func (r *renewing) WrappedRoundTripper() http.RoundTripper { return *r.now.Load() }

// renew loads the configuration if that was longer ago than the interval. One request does that, others do not wait for it.
func (r *renewing) renew(every time.Duration) {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if time.Since(r.checked) < every {
		return
	}
	r.checked = time.Now()
	renewed, err := r.replace()
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if r.Report != nil && (renewed || failed != "" && failed != r.failed) {
		r.Report(err)
	}
	r.failed = failed
}

// replace uses the present configuration, if it is another one. Requests that have begun go on.
func (r *renewing) replace() (bool, error) {
	cfg, err := r.Load()
	if err != nil {
		return false, err
	}
	loaded, err := withFiles(cfg)
	if err != nil || reflect.DeepEqual(loaded, r.loaded) {
		return false, err
	}
	if loaded.Host != r.loaded.Host {
		return false, errors.New("it names another server: restart the bridge to use it")
	}
	transport, err := r.build(cfg)
	if err != nil {
		return false, fmt.Errorf("use the renewed credentials: %w", err)
	}
	r.now.Store(&transport)
	r.loaded = loaded
	return true, nil
}

// serverName returns the address of a server without the user and password that may be in it.
func serverName(cfg *rest.Config) string {
	i := strings.LastIndex(cfg.Host, "@")
	if i < 0 {
		return cfg.Host
	}
	scheme, _, found := strings.Cut(cfg.Host[:i], "://")
	if !found {
		return cfg.Host[i+1:]
	}
	return scheme + "://" + cfg.Host[i+1:]
}
