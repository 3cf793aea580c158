package kafkatest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// A client is identified by its certificate, and the ACLs of that user apply.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{ClientCertificates: true, ACLs: true})
	for _, topic := range []string{"open", "closed"} {
		must(t, c.CreateTopic(t.Context(), topic, 1, 0, nil))
	}
	must(t, c.Allow(t.Context(), "CN=writer", "open", kadm.OpWrite))
	certPath, keyPath, err := c.Certificate("writer")
	must(t, err)
	cert, err := tls.LoadX509KeyPair(certPath, keyPath)
	must(t, err)
	ca, err := os.ReadFile(c.CA())
	must(t, err)
	trust := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{cert}}
	trust.RootCAs.AppendCertsFromPEM(ca)

	must(t, produceAs(t, c, "open", kgo.DialTLSConfig(trust)))
	if err := produceAs(t, c, "closed", kgo.DialTLSConfig(trust)); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("produce to a topic that is not allowed: %v", err)
	}
	trust.Certificates = nil
	if err := stranger(t, c, "open", kgo.DialTLSConfig(trust)); err == nil {
		t.Error("produce without a certificate: no error")
	}
	wantValues(t, c, "open", "value")
	wantValues(t, c, "closed")
}

// Deny overrules Allow until Forget is called. With PLAIN, a new password is in force after a restart of the broker.
func TestUsers(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Users: map[string]string{"writer": `a"b\c`}, ACLs: true})
	must(t, c.CreateTopic(t.Context(), "t", 1, 0, nil))
	login := func(password string) kgo.Opt {
		return kgo.SASL(plain.Auth{User: "writer", Pass: password}.AsMechanism())
	}
	if err := produceAs(t, c, "t", login(`a"b\c`)); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("produce without an ACL: %v", err)
	}
	must(t, c.Allow(t.Context(), "writer", "t", kadm.OpWrite))
	must(t, produceAs(t, c, "t", login(`a"b\c`)))
	must(t, c.Deny(t.Context(), "writer", "t", kadm.OpWrite))
	if err := produceAs(t, c, "t", login(`a"b\c`)); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("produce after Deny: %v", err)
	}
	must(t, c.Forget(t.Context(), "writer", "t"))
	must(t, produceAs(t, c, "t", login(`a"b\c`)))

	must(t, c.SetPassword(t.Context(), "writer", "new"))
	must(t, c.Broker(1).Stop())
	must(t, c.Broker(1).Start(t.Context()))
	if err := stranger(t, c, "t", login(`a"b\c`)); err == nil {
		t.Error("produce with the old password: no error")
	}
	must(t, produceAs(t, c, "t", login("new")))
	wantValues(t, c, "t", "value", "value", "value")
}

// produceAs writes one record with a client that has the option opt.
func produceAs(t *testing.T, c *Cluster, topic string, opt kgo.Opt) error {
	t.Helper()
	return produceFor(t, patience, c, topic, opt)
}

// stranger is produceAs for a client that the broker refuses. The client retries, so the time limit is short.
func stranger(t *testing.T, c *Cluster, topic string, opt kgo.Opt) error {
	t.Helper()
	return produceFor(t, 3*time.Second, c, topic, opt)
}

func produceFor(t *testing.T, d time.Duration, c *Cluster, topic string, opt kgo.Opt) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), opt, kgo.DisableIdempotentWrite())
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("value")}).FirstErr()
}
