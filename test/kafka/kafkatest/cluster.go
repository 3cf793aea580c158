package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Env names the environment variable with an external Kafka's addresses, host:port[,host:port…]. That Kafka must allow all operations
// without credentials. Tests remove everything that they create in it, unless they crash.
const Env = "KUBEBRIDGE_KAFKA"

// launchTimeout bounds the start of a cluster, and of one broker; about three seconds are usual.
const launchTimeout = 5 * time.Minute

// Options of a cluster. The zero value means one broker without authentication.
type Options struct {
	// Brokers is the number of brokers, each of which is also a controller; 0 means one. A cluster of three tolerates the failure of one.
	Brokers int
	// Users are users with their passwords. If set, clients must authenticate, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Users map[string]string
	// Tokens requires clients to authenticate by OAUTHBEARER, with tokens of Token. It cannot be combined with Users.
	Tokens bool
	// TLS encrypts the clients' connections with certificates for 127.0.0.1; see Cluster.CA.
	TLS bool
	// ClientCertificates requires TLS and a client certificate; see Cluster.Certificate.
	ClientCertificates bool
	// ACLs denies clients everything that Cluster.Allow has not allowed. Without Users or ClientCertificates all clients are
	// the anonymous superuser, like the test itself.
	ACLs bool
	// Proxy puts a Proxy before every broker.
	Proxy bool
	// Props are additional lines of server.properties, which override others.
	Props map[string]string
	// Data is a directory that Broker.Save has made. The only broker starts with a copy of it.
	Data string
}

// plain reports whether any Kafka meets the options.
func (o Options) plain() bool {
	return o.Brokers <= 1 && o.Users == nil && !o.Tokens && !o.TLS && !o.ClientCertificates && !o.ACLs && !o.Proxy && o.Props == nil && o.Data == ""
}

// Cluster is a Kafka cluster. Its methods may be called from several goroutines.
type Cluster struct {
	opts     Options
	dir      string
	jars     string
	archive  string   // file with the parsed classes of a broker, which may not exist yet; "" for none
	pki      *pki     // nil without TLS
	external []string // addresses of an external Kafka; nil if Launch started the brokers
	brokers  []*Broker

	mu sync.Mutex // guards opts.Users
}

// Start is Launch for one test: it fails t if Launch fails, and closes the cluster when t and its subtests are done. It skips
// t if Env names a Kafka and the options require a cluster of the test's own.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if os.Getenv(Env) != "" && !opts.plain() {
		t.Skipf("needs brokers of its own, and %s names others", Env)
	}
	c, err := Launch(t.Context(), opts)
	if err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the brokers' logs:\n%s", c.Logs())
		}
		if err := c.Close(); err != nil {
			t.Errorf("close Kafka: %v", err)
		}
	})
	return c
}

// Launch starts a cluster in a temporary directory, on free ports of 127.0.0.1, and returns when every broker is
// ready. If Env names a Kafka, it returns that one, or an error if the options require more than any Kafka has.
// ctx bounds the start, including the fetch of Kafka, not the cluster's life: the caller must call Close.
// On Linux the brokers also end with the calling process. If the start fails, no process is left.
func Launch(ctx context.Context, opts Options) (_ *Cluster, err error) {
	if addrs := os.Getenv(Env); addrs != "" {
		if !opts.plain() {
			return nil, fmt.Errorf("%s names a Kafka whose brokers cannot be set up as the test needs them: unset it", Env)
		}
		return &Cluster{external: strings.Split(addrs, ",")}, nil
	}
	opts.Brokers = max(opts.Brokers, 1)
	c := &Cluster{opts: opts}
	if c.jars, err = Jars(ctx); err != nil {
		return nil, err
	}
	c.archive = archive(c.jars)
	ctx, cancel := context.WithTimeoutCause(ctx, launchTimeout, fmt.Errorf("not ready after %s", launchTimeout))
	defer cancel()
	if c.dir, err = os.MkdirTemp("", "kubebridge-kafka-"); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w; the end of the logs:\n%s", err, c.Logs()), c.Close())
		}
	}()
	if err = c.prepare(); err != nil {
		return nil, err
	}
	if err = c.each(func(b *Broker) error { return b.format(ctx) }); err != nil {
		return nil, err
	}
	if err = c.each(func(b *Broker) error { return b.Start(ctx) }); err != nil {
		return nil, err
	}
	for user, password := range opts.Users {
		if err = c.SetPassword(ctx, user, password); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// prepare gives every broker its ports, proxy and configuration.
func (c *Cluster) prepare() error {
	if c.opts.TLS || c.opts.ClientCertificates {
		var err error
		if c.pki, err = newPKI(c.dir); err != nil {
			return err
		}
	}
	for i := range c.opts.Brokers {
		b := &Broker{cluster: c, id: int32(i + 1), dir: filepath.Join(c.dir, fmt.Sprintf("broker-%d", i+1))}
		c.brokers = append(c.brokers, b)
		if err := os.Mkdir(b.dir, 0o700); err != nil {
			return fmt.Errorf("make data directory: %w", err)
		}
		for _, addr := range []*string{&b.client, &b.admin, &b.controller} {
			var err error
			if *addr, err = freeAddress(); err != nil {
				return err
			}
		}
		if c.opts.Proxy {
			var err error
			if b.proxy, err = startProxy(b.client, c.pki == nil); err != nil {
				return err
			}
		}
	}
	for _, b := range c.brokers {
		if err := os.WriteFile(b.properties(), b.configure(), 0o600); err != nil {
			return fmt.Errorf("configure broker %d: %w", b.id, err)
		}
	}
	return nil
}

// each calls do for all brokers concurrently.
func (c *Cluster) each(do func(b *Broker) error) error {
	errs := make(chan error)
	for _, b := range c.brokers {
		go func() { errs <- do(b) }()
	}
	var err error
	for range c.brokers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// Owned reports whether the test may stop the brokers. It is false for an external Kafka.
func (c *Cluster) Owned() bool { return c.external == nil }

// Brokers returns the brokers in the order of their IDs, from 1; none if Owned is false.
func (c *Cluster) Brokers() []*Broker { return c.brokers }

// Broker returns the broker with an ID.
func (c *Cluster) Broker(id int32) *Broker { return c.brokers[id-1] }

// Addrs returns the addresses (host:port) that clients use.
func (c *Cluster) Addrs() []string {
	addrs := slices.Clone(c.external)
	for _, b := range c.brokers {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// Logs returns the end of each broker's log.
func (c *Cluster) Logs() string {
	var all strings.Builder
	for _, b := range c.brokers {
		text, err := os.ReadFile(b.log())
		if err != nil {
			continue // it was never started
		}
		fmt.Fprintf(&all, "broker %d:\n%s\n", b.id, text[max(0, len(text)-4000):])
	}
	return all.String()
}

// Close ends the brokers and removes their files. It does nothing if the cluster is not owned.
func (c *Cluster) Close() error {
	err := c.each(func(b *Broker) error {
		err := b.end()
		if b.proxy != nil {
			err = errors.Join(err, b.proxy.close())
		}
		return err
	})
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// await calls done at once and then every 50 ms until it returns true.
func await(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%v)", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
