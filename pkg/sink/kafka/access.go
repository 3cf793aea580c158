package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/textfile"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	// dialTimeout bounds the time until a connection is usable. tcpTimeout
	// leaves time for the other bootstrap brokers when one broker is dead.
	dialTimeout = 10 * time.Second
	tcpTimeout  = 3 * time.Second
	// silence is how long franz-go waits for an answer after the timeout in the
	// request. franz-go tries a broker that hangs twice before it tries another one:
	// retryTimeout is enough for two hanging brokers.
	silence      = 3 * time.Second
	retryTimeout = 5 * silence
	// metadataTTL bounds the delay until the client sees a change of the cluster's layout that makes no
	// request fail. After a failed request the client reads metadata at once.
	metadataTTL = time.Minute
	// metadataMinAge is the minimum time between two metadata requests.
	metadataMinAge = 250 * time.Millisecond
)

// Options are the options of sinks, stores and readers.
type Options struct {
	Config   Config         // completed by New, NewStore and NewReader
	Identity event.Identity // names the client on the brokers: quotas, logs
	Logger   *zap.Logger    // nil: silent
	// Client are further options of franz-go's clients, for tests.
	Client []kgo.Opt
}

// access connects the clients of this package to the brokers. It reads files with credentials and certificates for
// each connection, because they are renewed in place.
type access struct {
	config Config // complete
	client string // client.id
	more   []kgo.Opt
	sasl   sasl.Mechanism // nil: none
	log    *zap.Logger

	mu      sync.Mutex
	reached map[string]bool // addresses of brokers that have accepted a connection
}

// newAccess reads every file once, so that a missing file is an error at the start.
func newAccess(o Options) (*access, error) {
	config, err := o.Config.Complete()
	if err != nil {
		return nil, err
	}
	a := &access{config: config, client: "kubebridge." + o.Identity.Bridge + "." + o.Identity.Sink, more: o.Client, log: o.Logger, reached: map[string]bool{}}
	if a.log == nil {
		a.log = zap.NewNop()
	}
	if _, err := config.TLS.load(); err != nil {
		return nil, err
	}
	if a.sasl, err = config.SASL.mechanism(); err != nil {
		return nil, err
	}
	return a, nil
}

// ClientOptions returns the options with which a franz-go client connects to the brokers as a sink does. They read files with credentials and
// certificates for each connection.
func ClientOptions(o Options) ([]kgo.Opt, error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	return a.options(new(atomic.Int32)), nil
}

// connected logs that a sink has connected.
func (a *access) connected() {
	if a.config.SASL.Mechanism == mechanismPlain && !a.config.TLS.Enabled {
		a.log.Warn("sasl PLAIN without TLS sends the password in clear text: set `tls.enabled: true`")
	}
	a.log.Info("connected to Kafka", zap.Strings("brokers", a.config.Brokers))
}

// options returns the options of a franz-go client. authenticating is the number of begun authentications minus the
// number of successful ones.
func (a *access) options(authenticating *atomic.Int32) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(a.config.Brokers...), kgo.ClientID(a.client), kgo.Dialer(a.dial),
		kgo.RetryTimeout(retryTimeout), kgo.MetadataMinAge(metadataMinAge), kgo.RequestTimeoutOverhead(silence),
	}
	if a.sasl != nil {
		opts = append(opts, kgo.SASL(counted{a.sasl, authenticating}))
	}
	return append(opts, a.more...)
}

// dial connects to a broker, for either client library.
func (a *access) dial(ctx context.Context, network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: tcpTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, a.undialled(address, err)
	}
	a.mu.Lock()
	a.reached[address] = true
	a.mu.Unlock()
	if !a.config.TLS.Enabled {
		return raw, nil
	}
	config, err := a.config.TLS.load()
	if err == nil {
		if config.ServerName == "" {
			config.ServerName, _, err = net.SplitHostPort(address)
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn := tls.Client(raw, config)
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, nil
		}
	}
	_ = raw.Close()
	return nil, err
}

// undialled returns the error of a connection that could not be made. An address that is not configured comes from a broker.
func (a *access) undialled(address string, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reached[address] || slices.Contains(a.config.Brokers, address) || errors.Is(err, context.Canceled) {
		return err
	}
	return &advertisedError{address, err}
}

// advertisedError is the error of an address that the brokers advertise, and that has never accepted a connection.
type advertisedError struct {
	address string
	err     error
}

func (e *advertisedError) Error() string {
	return fmt.Sprintf("the brokers answer on the configured addresses, but send clients to %s, which does not answer (%v): correct advertised.listeners of the brokers, or the network to %[1]s", e.address, e.err)
}

func (e *advertisedError) Unwrap() error { return e.err }

// load reads the files that t names. Without TLS it returns nil.
func (t TLS) load() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, &credentialsError{fmt.Errorf("tls.ca: %w", err)}
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &credentialsError{fmt.Errorf("tls.ca: %s holds no PEM certificate", t.CA)}
		}
	}
	if t.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, &credentialsError{fmt.Errorf("tls.cert, tls.key: %w", err)}
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}

// credentialsError is returned while the credentials cannot be read.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

// mechanism returns the SASL mechanism, nil for no authentication.
func (s SASL) mechanism() (m sasl.Mechanism, err error) {
	switch s.Mechanism {
	case mechanismPlain:
		m = plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.Username, Pass: password}, err
		})
	case mechanismScram256:
		m = scram.Sha256(s.scram)
	case mechanismScram512:
		m = scram.Sha512(s.scram)
	case mechanismOAuth:
		_, err = readSecret("sasl.tokenFile", s.TokenFile)
		return tokenFile(s.TokenFile), err
	case mechanismAWS:
		return newAWS(s.Region)
	}
	if m != nil {
		_, err = s.password()
	}
	return m, err
}

func (s SASL) scram(context.Context) (scram.Auth, error) {
	password, err := s.password()
	return scram.Auth{User: s.Username, Pass: password}, err
}

func (s SASL) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	return readSecret("sasl.passwordFile", s.PasswordFile)
}

// readSecret reads a file without the white space around its content.
func readSecret(field, path string) (string, error) {
	text, err := textfile.Read(path)
	if err != nil {
		return "", &credentialsError{fmt.Errorf("%s: %w", field, err)}
	}
	secret := strings.TrimSpace(text)
	if secret == "" {
		return "", &credentialsError{fmt.Errorf("%s: %s is empty", field, path)}
	}
	return secret, nil
}

// tokenFile is OAUTHBEARER (RFC 7628) with a token that another program renews in a file.
type tokenFile string

// Name implements [sasl.Mechanism].
func (tokenFile) Name() string { return mechanismOAuth }

// Authenticate implements [sasl.Mechanism].
func (t tokenFile) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	token, err := readSecret("sasl.tokenFile", string(t))
	return t, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), err
}

// Challenge implements [sasl.Session]: a broker that answers with a text refuses.
func (tokenFile) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, nil, fmt.Errorf("%w: %s", kerr.SaslAuthenticationFailed, answer)
	}
	return true, nil, nil
}

// counted is a mechanism that counts authentications that have begun and not succeeded. A broker that closes a
// connection during an authentication may have refused it.
type counted struct {
	sasl.Mechanism
	pending *atomic.Int32
}

// Authenticate implements [sasl.Mechanism].
func (c counted) Authenticate(ctx context.Context, address string) (sasl.Session, []byte, error) {
	c.pending.Add(1)
	s, first, err := c.Mechanism.Authenticate(ctx, address)
	return countedSession{s, c.pending}, first, err
}

type countedSession struct {
	sasl.Session
	pending *atomic.Int32
}

// Challenge implements [sasl.Session].
func (s countedSession) Challenge(answer []byte) (bool, []byte, error) {
	done, next, err := s.Session.Challenge(answer)
	if done && err == nil {
		s.pending.Add(-1)
	}
	return done, next, err
}
