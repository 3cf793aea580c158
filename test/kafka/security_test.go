package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// eachDelivery runs a test with both deliveries, because they use two clients. The configuration has no
// credentials.
func eachDelivery(t *testing.T, c *kafkatest.Cluster, test func(t *testing.T, c kafka.Config)) {
	for _, delivery := range []string{"at-least-once", "exactly-once"} {
		t.Run(delivery, func(t *testing.T) {
			conf := config(c)
			conf.Delivery = delivery
			test(t, conf)
		})
	}
}

// secured returns the sink of a configuration, not opened.
func secured(t *testing.T, c kafka.Config) sink.Sink {
	t.Helper()
	return logged(t, c, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
}

func logged(t *testing.T, c kafka.Config, log *zap.Logger) sink.Sink {
	t.Helper()
	if !c.ExactlyOnce() {
		s, err := kafka.New(kafka.Options{Config: c, Identity: identity, Logger: log})
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	}
	id := identity
	id.Sink = strings.NewReplacer("/", ".", "#", ".").Replace(t.Name())
	s, err := kafka.NewStore(kafka.StoreOptions{Options: kafka.Options{Config: c, Identity: id, Logger: log}, Topic: "kubebridge-test-checkpoint-" + id.Sink})
	must(t, err)
	x := kafka.NewTransactional(s)
	t.Cleanup(func() { must(t, errors.Join(x.Close(), s.Close())) })
	return x
}

// opening opens a sink as a pipeline does: it retries until it succeeds or the error is final.
func opening(t *testing.T, c kafka.Config) (sink.Sink, error) {
	t.Helper()
	s := secured(t, c)
	return s, trying(t, func(ctx context.Context) error { return s.Open(ctx, nil) })
}

func trying(t *testing.T, do func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last error
	for {
		err := do(ctx)
		if ctx.Err() == nil {
			last = err
		}
		if err == nil || errors.As(err, new(*sink.RefusedError)) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("still after %s: %v; before that: %v", patience, err, last)
		}
	}
}

// passes fails the test unless a sink writes a batch.
func (l *writer) passes(s sink.Sink) {
	l.t.Helper()
	b := l.batch(10, 0)
	must(l.t, trying(l.t, func(ctx context.Context) error { _, err := s.Write(ctx, b); return err }))
}

// fails writes until the sink returns an error that contains word. pending writes the batch that failed.
func (l *writer) fails(s sink.Sink, word string) (pending func()) {
	l.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b := l.batch(10, 0)
		for time.Now().Before(end) {
			attempt, stop := context.WithTimeout(l.t.Context(), 20*time.Second)
			_, err := s.Write(attempt, b)
			stop()
			if err == nil {
				break
			}
			if errors.As(err, new(*sink.RefusedError)) {
				l.t.Fatalf("Write: %v, want an error to be tried again", err)
			}
			if strings.Contains(err.Error(), word) {
				return func() {
					l.t.Helper()
					must(l.t, trying(l.t, func(ctx context.Context) error { _, err := s.Write(ctx, b); return err }))
				}
			}
			l.t.Logf("on the way: %v", err)
		}
	}
	l.t.Fatalf("no error says %q", word)
	return nil
}

func wantRefusedOpen(t *testing.T, c kafka.Config, words ...string) {
	t.Helper()
	_, err := opening(t, c)
	if err == nil {
		t.Fatal("Open: no error, want a RefusedError")
	}
	wantWords(t, err, words...)
}

func TestPasswordsAndAuthorities(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{TLS: true, Users: map[string]string{"writer": password}})
	other := filepath.Join(t.TempDir(), "other.pem")
	kafkatest.Authority(t, other)
	eachDelivery(t, c, func(t *testing.T, conf kafka.Config) {
		conf.TLS = kafka.TLS{Enabled: true, CA: c.CA()}
		for _, mechanism := range mechanisms {
			t.Run(mechanism, func(t *testing.T) {
				l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
				s, err := opening(t, as(conf, mechanism, "writer", password))
				must(t, err)
				l.passes(s)
				l.check(0)
				wantRefusedOpen(t, as(conf, mechanism, "writer", "wrong"), c.Addrs()[0], "sasl.password")
			})
		}
		conf = as(conf, "PLAIN", "writer", password)
		conf.TLS.ServerName = kafkatest.ServerName
		l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
		s, err := opening(t, conf)
		must(t, err)
		l.passes(s)
		conf.TLS.ServerName = "elsewhere.test"
		wantRefusedOpen(t, conf, c.Addrs()[0], "elsewhere.test", "tls.serverName")
		conf.TLS = kafka.TLS{Enabled: true, CA: other}
		wantRefusedOpen(t, conf, c.Addrs()[0], "unknown authority", "check tls.ca")
	})
}

// Client certificates are required, must be signed by the right CA, and are read again when the client reconnects.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{ClientCertificates: true, ACLs: true, Proxy: true})
	cert, key, err := c.Certificate("writer")
	must(t, err)
	otherCert, otherKey, err := c.Certificate("other")
	must(t, err)
	must(t, c.Allow(t.Context(), "CN=writer", "kubebridge-test-", kadm.OpWrite, kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpCreate))
	must(t, c.AllowTransactions(t.Context(), "CN=writer", "kubebridge.", kadm.OpWrite, kadm.OpDescribe))
	foreign := kafkatest.Authority(t, filepath.Join(t.TempDir(), "other.pem"))
	foreignCert, foreignKey := foreign("writer")
	eachDelivery(t, c, func(t *testing.T, conf kafka.Config) {
		conf.TLS = kafka.TLS{Enabled: true, CA: c.CA()}
		wantRefusedOpen(t, conf, c.Addrs()[0], "set tls.cert and tls.key")
		conf.TLS.Cert, conf.TLS.Key = foreignCert, foreignKey
		wantRefusedOpen(t, conf, c.Addrs()[0], "check tls.cert ("+foreignCert+")")

		dir := t.TempDir()
		conf.TLS.Cert, conf.TLS.Key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		copyFile(t, cert, conf.TLS.Cert)
		copyFile(t, key, conf.TLS.Key)
		l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
		s, err := opening(t, conf)
		must(t, err)
		l.passes(s)
		copyFile(t, otherCert, conf.TLS.Cert)
		copyFile(t, otherKey, conf.TLS.Key)
		c.Broker(1).Proxy().Cut()
		pending := l.fails(s, "kubebridge-test-") // the certificate of another user, who has no permission
		copyFile(t, cert, conf.TLS.Cert)
		copyFile(t, key, conf.TLS.Key)
		c.Broker(1).Proxy().Cut()
		pending()
		l.passes(s)
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, text, 0o600))
}

// A session ends after five seconds. The token is read again, and the pipeline is not affected. An expired token is an error, which only
// ends the pipeline at its start.
func TestTokens(t *testing.T) {
	t.Parallel()
	const session = 5 * time.Second // a broker takes no second authentication within one, and franz-go is early by some
	c := kafkatest.Start(t, kafkatest.Options{Tokens: true, ACLs: true, Props: map[string]string{
		"listener.name.client.oauthbearer.connections.max.reauth.ms": fmt.Sprint(session.Milliseconds()),
	}})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpCreate))
	must(t, c.AllowTransactions(t.Context(), "writer", "kubebridge.", kadm.OpWrite, kadm.OpDescribe))
	eachDelivery(t, c, func(t *testing.T, conf kafka.Config) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "token")
		renew := func(user string, valid time.Duration) {
			t.Helper()
			must(t, os.WriteFile(path+".new", []byte(kafkatest.Token(user, valid)), 0o600))
			must(t, os.Rename(path+".new", path))
		}
		conf.SASL = kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: path}
		renew("writer", -time.Hour)
		wantRefusedOpen(t, conf, c.Addrs()[0], "check the token in sasl.tokenFile ("+path+")")

		renew("writer", time.Hour)
		l := newWriter(t, c, newTopic(t, c, 1, 0, nil))
		s, err := opening(t, conf)
		must(t, err)
		for end := time.Now().Add(2*session + session/2); time.Now().Before(end); {
			b := l.batch(10, 0)
			must(t, trying(t, func(ctx context.Context) error {
				_, err := s.Write(ctx, b)
				if err != nil && (strings.Contains(err.Error(), "closed the connection") || strings.Contains(err.Error(), "SASL")) {
					t.Errorf("a session that is over is an error of Write: %v", err)
				}
				return err
			}))
		}
		l.passes(s)

		must(t, os.Remove(path))
		pending := l.fails(s, "sasl.tokenFile")
		renew("writer", time.Hour)
		pending()
		renew("nobody", time.Hour)
		pending = l.fails(s, "kubebridge-test-")
		renew("writer", time.Hour)
		pending()
		l.check(20)
	})
}

// No error and no line of the log contains a secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, ACLs: true, Proxy: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpDescribe))
	eachDelivery(t, c, func(t *testing.T, conf kafka.Config) {
		const wrong = "wrong-hunter2"
		var said buffer
		log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), &said, zap.DebugLevel))
		note := func(err error) {
			t.Helper()
			if err == nil {
				t.Error("no error, want one to look at")
				return
			}
			fmt.Fprintf(&said, "%v\n%+v\n%#v\n", err, err, err)
		}
		topic := newTopic(t, c, 1, 0, nil)
		for _, mechanism := range mechanisms {
			note(logged(t, as(conf, mechanism, "writer", wrong), log).Open(t.Context(), nil))
			s := logged(t, as(conf, mechanism, "writer", password), log)
			if err := s.Open(t.Context(), nil); err != nil { // exactly-once delivery needs more permissions
				note(err)
			} else {
				_, err := s.Write(t.Context(), newWriter(t, c, topic).batch(1, 0))
				note(err)
			}
			c.Broker(1).Proxy().Refuse()
			note(s.Open(t.Context(), nil))
			c.Broker(1).Proxy().Pass()
		}
		conf = as(conf, "GSSAPI", "writer", password)
		_, err := kafka.New(kafka.Options{Config: conf, Identity: identity})
		note(err)
		if text := said.text(); strings.Contains(text, "hunter2") || !strings.Contains(text, "connected to Kafka") {
			t.Errorf("a password is printed, or nothing is logged, in:\n%s", text)
		}
	})
}

// buffer is a log that several goroutines may write to.
type buffer struct {
	mu   sync.Mutex
	held bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held.Write(p)
}

func (*buffer) Sync() error { return nil }

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held.String()
}
