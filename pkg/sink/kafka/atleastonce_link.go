package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/kerr"
	franz "github.com/twmb/franz-go/pkg/sasl"
)

// link is one generation of connections to the cluster. kafka-go leaves a request
// running when its context ends, and hides its connections; a link keeps them, so
// that close can end every request and see it ended.
type link struct {
	*kafka.Client
	*access
	transport   *kafka.Transport
	compression kafka.Compression

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	inUse  sync.WaitGroup // connections that kafka-go has not closed yet

	authenticating atomic.Int32 // authentications begun, less those that succeeded
}

func newLink(s *Sink) *link {
	a := s.topics.access
	l := &link{access: a, conns: map[*conn]struct{}{}, compression: kafka.Compression(slices.Index(compressions, a.config.Compression))}
	l.transport = &kafka.Transport{
		Dial:        l.dial,
		DialTimeout: min(dialTimeout, s.timeout),
		MetadataTTL: metadataTTL,
		ClientID:    a.client,
	}
	if a.sasl != nil {
		l.transport.SASL = mechanism{counted{a.sasl, &l.authenticating}}
	}
	l.Client = &kafka.Client{Addr: kafka.TCP(a.config.Brokers...), Timeout: s.timeout, Transport: l.transport}
	return l
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := l.access.dial(ctx, network, address)
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

// cause returns the cause of an error of the client, without the name of the Go
// function in front of it.
func (l *link) cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	hungUp := isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET) && l.authenticating.Load() > 0
	if hungUp || err == error(kafka.SASLAuthenticationFailed) { //nolint:errorlint // a refusal wraps it, with the broker's words
		return errHungUp
	}
	return fromKafkaGo(err)
}

// clientError is an error of kafka-go, with the kerr of the same meaning.
type clientError struct {
	code *kerr.Error
	err  error
}

func (e *clientError) Error() string   { return e.err.Error() }
func (e *clientError) Unwrap() []error { return []error{e.code, e.err} }

// fromKafkaGo makes an error of kafka-go comparable with errors of kerr.
func fromKafkaGo(err error) error {
	for from, to := range map[error]*kerr.Error{
		protocol.ErrNoTopic: kerr.UnknownTopicOrPartition, protocol.ErrNoPartition: kerr.UnknownTopicOrPartition, protocol.ErrNoLeader: kerr.LeaderNotAvailable,
	} {
		if errors.Is(err, from) {
			return &clientError{to, from} // the text around it names a fetch, and repeats the topic
		}
	}
	var e kafka.Error
	if !errors.As(err, &e) {
		return err
	}
	return &clientError{kerr.TypedErrorForCode(int16(e)), err}
}

// mechanism adapts a mechanism of franz-go to kafka-go, so that both clients authenticate
// with the same code.
type mechanism struct{ franz.Mechanism }

func (m mechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	address := ""
	if at := sasl.MetadataFromContext(ctx); at != nil {
		address = net.JoinHostPort(at.Host, strconv.Itoa(at.Port))
	}
	s, first, err := m.Authenticate(ctx, address)
	return session{s}, first, err
}

type session struct{ franz.Session }

func (s session) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	return s.Challenge(challenge)
}

// conn reports to its link when kafka-go has closed it.
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
