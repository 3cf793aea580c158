package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"
	franz "github.com/twmb/franz-go/pkg/sasl"
)

const (
	// dialTimeout bounds how long a connection takes to be of use; tcpTimeout
	// leaves time for the other bootstrap brokers when one is dead.
	dialTimeout = 10 * time.Second
	tcpTimeout  = 3 * time.Second
	// silence is how long franz-go waits for an answer beyond the time that a
	// request gives the broker. It tries one that hangs twice before another:
	// retryTimeout is for two that do.
	silence      = 3 * time.Second
	retryTimeout = 5 * silence
	// metadataTTL bounds how long a change of the cluster's layout that makes no
	// request fail goes unseen: every failure brings fresh metadata.
	metadataTTL = time.Minute
	// metadataMinAge bounds how often a client asks for it.
	metadataMinAge = 250 * time.Millisecond
)

// link is one generation of connections to the cluster. kafka-go leaves a request
// running when its context ends, and hides its connections; a link keeps them, so
// that close can end every request and see it ended.
type link struct {
	*kafka.Client
	transport   *kafka.Transport
	compression kafka.Compression

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	inUse  sync.WaitGroup // connections that kafka-go has not closed yet

	authenticating atomic.Int32 // authentications begun, less those that succeeded
}

func newLink(s *Sink) *link {
	l := &link{conns: map[*conn]struct{}{}, compression: kafka.Compression(slices.Index(compressions, s.config.Compression))}
	l.transport = &kafka.Transport{
		Dial:        l.dial,
		DialTimeout: min(dialTimeout, s.timeout),
		MetadataTTL: metadataTTL,
		ClientID:    s.client,
		TLS:         s.tls,
	}
	if s.sasl != nil {
		l.transport.SASL = mechanism{s.sasl, &l.authenticating}
	}
	l.Client = &kafka.Client{Addr: kafka.TCP(s.config.Brokers...), Timeout: s.timeout, Transport: l.transport}
	return l
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: tcpTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	c := &conn{Conn: raw, link: l}
	l.conns[c] = struct{}{}
	l.inUse.Add(1)
	return c, nil
}

// close ends every request and returns when none is being encoded, sent or
// awaited any more. A request that the broker has read may still be carried out.
func (l *link) close() {
	l.transport.CloseIdleConnections()
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	l.mu.Unlock()
	l.inUse.Wait()
}

// errHungUp is what some brokers do instead of refusing credentials, and what any
// broker may do that goes down.
var errHungUp = fmt.Errorf("the broker hung up while authenticating: %w", kafka.SASLAuthenticationFailed)

// cause is the reason of an error of the client, without the name of the Go
// function in front of it.
func (l *link) cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	hungUp := isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) && l.authenticating.Load() > 0
	if hungUp || err == error(kafka.SASLAuthenticationFailed) { //nolint:errorlint // a refusal wraps it, with the broker's words
		return errHungUp
	}
	for _, e := range []error{protocol.ErrNoTopic, protocol.ErrNoPartition, protocol.ErrNoLeader} {
		if errors.Is(err, e) {
			return e // what surrounds it speaks of a fetch, and repeats the topic
		}
	}
	return err
}

// mechanism is one of franz-go's as kafka-go wants it: both clients authenticate
// with the same code. It counts the authentications under way.
type mechanism struct {
	franz.Mechanism
	pending *atomic.Int32
}

func (m mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m.pending.Add(1)
	address := ""
	if at := sasl.MetadataFromContext(ctx); at != nil {
		address = net.JoinHostPort(at.Host, strconv.Itoa(at.Port))
	}
	s, first, err := m.Authenticate(ctx, address)
	return session{s, m.pending}, first, err
}

type session struct {
	franz.Session
	pending *atomic.Int32
}

func (s session) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	done, answer, err := s.Challenge(challenge)
	if done && err == nil {
		s.pending.Add(-1)
	}
	return done, answer, err
}

// conn tells its link when kafka-go is through with it.
type conn struct {
	net.Conn
	link *link
	once sync.Once
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
		c.link.inUse.Done()
	})
	return err
}
