package nats

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	dialTimeout   = 3 * time.Second
	apiTimeout    = 5 * time.Second
	reconnectWait = 500 * time.Millisecond
	// writeTimeout bounds a write to a server that has stopped reading. The end of a context does not
	// interrupt such a write.
	writeTimeout = 2 * time.Second
	// pingInterval is the time between pings. A dead connection is found within three intervals.
	pingInterval = 10 * time.Second
)

// conn is one connection, and the replies that come over it.
type conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	leader  nats.JetStreamContext // reads from a stream's leader alone
	address string                // of the servers, without credentials
	inbox   string                // of the acknowledgements
	acks    chan *nats.Msg
	// events are errors that are not replies: a lost connection, a
	// denied publish. A denied publish gets no reply.
	events chan error
	// key identifies the nkey that the connection was made with.
	key [sha256.Size]byte
	// deaf is set once the server has ended a subscription: the client does not subscribe again when it may.
	deaf atomic.Bool
	// unanswered is the number of the last requests that got no answer over an open connection.
	unanswered atomic.Int32
}

// mostUnanswered is the number of requests without an answer after which a writer connects again.
const mostUnanswered = 2

// endpoint has the servers that a configuration names, or the embedded server. A sink and
// its store share one endpoint.
type endpoint struct {
	config Config
	id     event.Identity
	denied atomic.Uint64 // publishes

	foreign foreign

	mu     sync.Mutex      // of server, which the store's goroutine uses too
	server *embeddedServer // nil unless it runs
}

func newEndpoint(c Config, id event.Identity, log *zap.Logger) *endpoint {
	return &endpoint{config: c, id: id, foreign: foreign{log: log}}
}

// link is one connection to an endpoint, and the stream that it is for.
type link struct {
	*endpoint
	log      *zap.Logger
	name     string   // of the stream; "" where there is none, or it is not yet known
	subjects []string // patterns of the records' subjects
	names    headerNames

	conn *conn // nil when not open

	lookEvery time.Duration   // after that a writer looks at its stream again: another user may have changed it
	warned    map[string]bool // the weak settings that the log has
}

// lookDue reports whether a stream that was accepted is to be looked at again.
func (l *link) lookDue(s *stream) bool { return time.Since(s.looked) > l.lookEvery }

// run runs the embedded server if there is one.
func (e *endpoint) run(log *zap.Logger) error {
	if e.config.Embedded == nil {
		return nil
	}
	server, err := startServer(e.config, e.id, log)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server
	return nil
}

// runAlone is run without access for other clients. It makes no directory: the error wraps fs.ErrNotExist
// if there is none.
func (e *endpoint) runAlone() error {
	if e.config.Embedded == nil {
		return nil
	}
	alone := *e.config.Embedded
	if _, err := os.Stat(alone.Dir); err != nil {
		return err
	}
	alone.Listen, alone.TLS, alone.Leaf = "127.0.0.1:0", nil, nil
	e.config.Embedded = &alone
	return e.run(zap.NewNop())
}

// stop ends the embedded server if it runs.
func (e *endpoint) stop() {
	e.mu.Lock()
	server := e.server
	e.server = nil
	e.mu.Unlock()
	if server != nil {
		server.close()
	}
}

// start runs the embedded server if there is one, and connects.
func (l *link) start(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.run(l.log); err != nil {
		return err
	}
	if l.conn, err = l.connect(); err != nil || l.server == nil {
		return err
	}
	err = l.conn.doWithin(ctx, limitTime, func(ctx context.Context) error { return l.server.limitReaders(ctx, l.conn.js) })
	if err != nil { // the bridge does not depend on it
		l.log.Warn("consumers of readers not limited", zap.String("server", l.conn.address), zap.Error(err))
	}
	return nil
}

// Close disconnects, and stops the embedded server if there is one.
func (l *link) Close() error {
	l.disconnect()
	return nil
}

func (l *link) disconnect() {
	l.hangUp()
	l.stop()
}

// hangUp ends the connection alone.
func (l *link) hangUp() {
	if l.conn != nil {
		l.conn.close()
		l.conn = nil
	}
}

// ClientURL is where subscribers connect to an embedded server; "" before Open and
// without one.
func (e *endpoint) ClientURL() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return ""
	}
	return e.server.url()
}

func (e *endpoint) dial(more ...nats.Option) (nc *nats.Conn, address string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	address = e.config.address()
	opts := append(baseOptions(e.id), append(more, nats.CustomInboxPrefix(e.config.inbox(e.id)))...)
	switch {
	case e.server != nil:
		address = "embedded server at " + e.server.url()
		opts = append(opts, e.server.clientOptions()...)
	case e.config.Embedded != nil:
		return nil, "the embedded server", errors.New("it does not run")
	default:
		secure, err := e.config.securityOptions()
		if err != nil {
			return nil, address, err
		}
		opts = append(opts, secure...)
	}
	nc, err = nats.Connect(e.config.URL, opts...)
	return nc, address, err
}

// connect dials and authenticates once. It returns a [sink.RefusedError] for errors that only other credentials
// correct.
func (l *link) connect() (*conn, error) {
	c := &conn{
		acks:   make(chan *nats.Msg, 2*window),
		events: make(chan error, 16),
		key:    l.config.keyDigest(),
	}
	nc, address, err := l.dial(l.callbacks(c)...)
	c.address = address
	if hint := refusal(err); hint != "" {
		return nil, &sink.RefusedError{What: address, Err: err, Hint: hint}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	c.nc = nc
	c.inbox = nc.NewInbox()
	if err := c.prepare(strings.TrimSuffix(l.config.api(), ".")); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to %s: %w", c.address, err)
	}
	return c, nil
}

// renew connects again if the client has given up, if it gets no answers, or if it has lost the connection and
// its nkey was replaced, which the client does not see.
func (l *link) renew() error {
	if l.conn == nil {
		return errors.New("write: not open")
	}
	return l.dialUnlessOpen()
}

// dialUnlessOpen connects unless there is an open connection, or one that the client reopens.
func (l *link) dialUnlessOpen() error {
	if c := l.conn; c != nil && !c.nc.IsClosed() && !c.deaf.Load() && c.unanswered.Load() < mostUnanswered &&
		(c.nc.IsConnected() || c.key == l.config.keyDigest()) {
		return nil
	}
	c, err := l.connect()
	if err != nil {
		return temporary(err)
	}
	l.hangUp()
	l.conn = c
	return nil
}

func (c *conn) prepare(api string) (err error) {
	if _, err := c.nc.ChanSubscribe(c.inbox+".>", c.acks); err != nil {
		return err
	}
	if err := c.nc.FlushTimeout(dialTimeout); err != nil {
		return err
	}
	if err := c.nc.LastError(); err != nil { // the subscription was denied
		return err
	}
	if c.js, err = jetstream.NewWithAPIPrefix(c.nc, api); err != nil {
		return err
	}
	c.leader, err = c.nc.JetStream(nats.APIPrefix(api))
	return err
}

func baseOptions(id event.Identity) []nats.Option {
	return []nats.Option{
		nats.Name("kubebridge " + id.Bridge + "/" + id.Sink),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.FlusherTimeout(writeTimeout),
		nats.PingInterval(pingInterval),
		// A publish without a connection must fail: with a buffer, later messages could
		// overtake.
		nats.ReconnectBufSize(-1),
		// The connection must recover after credentials are revoked and restored.
		nats.IgnoreAuthErrorAbort(),
		nats.NoCallbacksAfterClientClose(),
	}
}

func (l *link) callbacks(c *conn) []nats.Option {
	report := func(err error) {
		select {
		case c.events <- err:
		default: // the first errors are enough
		}
	}
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err == nil {
				err = nats.ErrDisconnected
			}
			l.log.Warn("connection to NATS lost", zap.String("server", c.address), zap.Error(err))
			report(fmt.Errorf("connection to %s lost: %w", c.address, err))
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			l.log.Info("connection to NATS restored", zap.String("server", WithoutCredentials(nc.ConnectedUrl())))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			switch {
			case !errors.Is(err, nats.ErrPermissionViolation):
			case strings.Contains(err.Error(), "Violation for Subscription to"): // only the text distinguishes the two
				c.deaf.Store(true)
			default:
				l.denied.Add(1)
			}
			report(err)
		}),
	}
}

// forget drops earlier events.
func (c *conn) forget() {
	for {
		select {
		case <-c.events: //nolint:errcheck // what is over
		default:
			return
		}
	}
}

// do makes a request. It returns early when the connection is lost or the request
// is denied. Without this the request would wait for its timeout.
func (c *conn) do(ctx context.Context, f func(ctx context.Context) error) error {
	return c.doWithin(ctx, apiTimeout, f)
}

func (c *conn) doWithin(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	c.forget()
	if err := c.connected(); err != nil {
		return err
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	select {
	case err := <-result:
		switch {
		case ctx.Err() == nil:
			c.unanswered.Store(0)
		case outer.Err() == nil && c.nc.IsConnected():
			c.unanswered.Add(1)
		}
		return err
	case event := <-c.events:
		cancel()
		<-result //nolint:errcheck // its failure is the event
		return event
	}
}

// connected returns nil, or why nothing can be sent at the moment.
func (c *conn) connected() error {
	if c.nc.IsConnected() {
		return nil
	}
	err := c.nc.LastError()
	if err == nil {
		err = nats.ErrDisconnected
	}
	return fmt.Errorf("not connected to %s, trying again: %w", c.address, err)
}

func (c *conn) close() { c.nc.Close() }

// address is the URL without credentials.
func (c Config) address() string {
	var all []string
	for one := range strings.SplitSeq(c.URL, ",") {
		all = append(all, WithoutCredentials(one))
	}
	return strings.Join(all, ",")
}
