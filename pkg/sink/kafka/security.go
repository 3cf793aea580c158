package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	franz "github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// security is how a connection is encrypted and authenticated, for either client.
type security struct {
	tls  *tls.Config     // nil: plain text
	sasl franz.Mechanism // nil: none
}

func newSecurity(c Config) (s security, err error) {
	if s.tls, err = newTLS(c.TLS); err != nil {
		return s, err
	}
	user, password := c.SASL.Username, c.SASL.Password
	switch c.SASL.Mechanism {
	case mechanismPlain:
		s.sasl = plain.Auth{User: user, Pass: password}.AsMechanism()
	case mechanismScram256:
		s.sasl = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case mechanismScram512:
		s.sasl = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case mechanismOAuth:
		token := tokenFile(c.SASL.TokenFile)
		_, err = token.read()
		s.sasl = token
	case mechanismAWS:
		s.sasl, err = newAWS(c.SASL.Region)
	}
	return s, err
}

// credentialsError is that there is nothing to authenticate with, at the moment.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

func newTLS(c TLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s holds no PEM certificate", c.CA)
		}
	}
	if c.Cert != "" {
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			if err != nil {
				return nil, fmt.Errorf("tls.cert, tls.key: %w", err)
			}
			return &cert, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		// Read again for every connection: certificates are renewed in place.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return out, nil
}

// tokenFile is OAUTHBEARER (RFC 7628) with a token that somebody else renews.
type tokenFile string

func (t tokenFile) read() (string, error) {
	text, err := os.ReadFile(string(t))
	if err != nil {
		return "", &credentialsError{fmt.Errorf("sasl.tokenFile: %w", err)}
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", &credentialsError{fmt.Errorf("sasl.tokenFile: %s is empty", string(t))}
	}
	return token, nil
}

// Name implements [franz.Mechanism].
func (tokenFile) Name() string { return mechanismOAuth }

// Authenticate implements [franz.Mechanism].
func (t tokenFile) Authenticate(context.Context, string) (franz.Session, []byte, error) {
	token, err := t.read()
	return t, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), err
}

// Challenge implements [franz.Session]: a broker that has something to say refuses.
func (tokenFile) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, nil, fmt.Errorf("%w: %s", kafka.SASLAuthenticationFailed, answer)
	}
	return true, nil, nil
}

// ClientOptions are what any other client needs to reach the brokers of a sink, a
// checkpoint store's for example. An error is about files that the configuration
// names.
func ClientOptions(c Config, id event.Identity) ([]kgo.Opt, error) {
	s, err := newSecurity(c)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(clientID(id)),
		kgo.DialTimeout(tcpTimeout), kgo.RetryTimeout(retryTimeout), kgo.MetadataMinAge(metadataMinAge),
		kgo.RequestTimeoutOverhead(silence),
	}
	if s.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(s.tls))
	}
	if s.sasl != nil {
		opts = append(opts, kgo.SASL(s.sasl))
	}
	return opts, nil
}

// clientID names the client on the brokers: quotas, logs.
func clientID(id event.Identity) string { return "kubebridge." + id.Bridge + "." + id.Sink }
