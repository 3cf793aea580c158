package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	dialTimeout   = 3 * time.Second
	apiTimeout    = 5 * time.Second
	reconnectWait = 500 * time.Millisecond
	// writeTimeout bounds a write to a server that has stopped reading, which no
	// context can end.
	writeTimeout = 2 * time.Second
	// pingInterval finds a dead connection within three of them.
	pingInterval = 10 * time.Second
)

// conn is one connection, and the replies that come over it.
type conn struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	address string // of the servers, without credentials
	inbox   string // of the acknowledgements
	acks    chan *nats.Msg
	// events are what the client learns beside replies: a lost connection, a
	// denied publish. A denied publish gets no other answer.
	events chan error
}

// connect dials and authenticates once. Wrong credentials are a
// [sink.RefusedError].
func (s *Sink) connect() (*conn, error) {
	c := &conn{
		address: s.config.address(),
		acks:    make(chan *nats.Msg, 64),
		events:  make(chan error, 16),
	}
	if s.server != nil {
		c.address = "embedded server at " + s.server.url()
	}
	nc, err := nats.Connect(s.config.URL, append(s.clientOptions(), s.callbacks(c)...)...)
	for _, wrong := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
		if errors.Is(err, wrong) {
			return nil, &sink.RefusedError{What: c.address, Err: err, Hint: "correct the credentials under nats.auth"}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.address, err)
	}
	c.nc = nc
	c.inbox = nc.NewInbox()
	if err := c.prepare(); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to %s: %w", c.address, err)
	}
	return c, nil
}

func (c *conn) prepare() (err error) {
	if _, err := c.nc.ChanSubscribe(c.inbox+".>", c.acks); err != nil {
		return err
	}
	if err := c.nc.FlushTimeout(dialTimeout); err != nil {
		return err
	}
	if err := c.nc.LastError(); err != nil { // the subscription was denied
		return err
	}
	c.js, err = jetstream.New(c.nc)
	return err
}

func (s *Sink) clientOptions() []nats.Option {
	opts := []nats.Option{
		nats.Name("kubebridge " + s.id.Bridge + "/" + s.id.Sink),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.FlusherTimeout(writeTimeout),
		nats.PingInterval(pingInterval),
		// What is published while there is no connection must fail: a buffer would
		// let later messages overtake.
		nats.ReconnectBufSize(-1),
		// Credentials that are revoked and given back must heal.
		nats.IgnoreAuthErrorAbort(),
		nats.NoCallbacksAfterClientClose(),
	}
	switch a := s.config.Auth; {
	case s.server != nil:
		return append(opts, s.server.clientOptions()...)
	case a.Username != "":
		opts = append(opts, nats.UserInfo(a.Username, a.Password))
	case a.Token != "":
		opts = append(opts, nats.Token(a.Token))
	case a.Creds != "":
		opts = append(opts, nats.UserCredentials(a.Creds))
	}
	if s.config.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(s.config.TLS.CA))
	}
	return opts
}

func (s *Sink) callbacks(c *conn) []nats.Option {
	tell := func(err error) {
		select {
		case c.events <- err:
		default: // the first ones say enough
		}
	}
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err == nil {
				err = nats.ErrDisconnected
			}
			s.log.Warn("connection to NATS lost", zap.String("server", c.address), zap.Error(err))
			tell(fmt.Errorf("connection to %s lost: %w", c.address, err))
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			s.log.Info("connection to NATS restored", zap.String("server", nc.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { tell(err) }),
	}
}

// forget drops the events of what is over.
func (c *conn) forget() {
	for {
		select {
		case <-c.events: //nolint:errcheck // what is over
		default:
			return
		}
	}
}

// do makes a request. It ends early when the connection is lost or the request
// denied, which the request itself would not notice.
func (c *conn) do(ctx context.Context, f func(ctx context.Context) error) error {
	c.forget()
	if err := c.connected(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	select {
	case err := <-result:
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
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			u.User = nil
			all = append(all, u.String())
		}
	}
	return strings.Join(all, ",")
}
