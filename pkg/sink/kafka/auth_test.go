package kafka

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const password = "pencil-hunter2"

func TestSASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{mechanismPlain, mechanismScram256, mechanismScram512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			b := startBus(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "writer", password))
			c := b.config()
			c.SASL = SASL{Mechanism: mechanism, Username: "writer", Password: password}
			s := openSink(t, c)
			n := number("t")
			writeAll(t, s, n.batch(10, 0))
			if p := b.PartitionInfos("t"); len(p) != 4 {
				t.Errorf("the topic has %d partitions, want 4", len(p))
			}

			c.SASL.Password = "wrong-" + password
			wantRefused(t, newSink(t, c), b.brokers[0], "sasl.password", "writer")
		})
	}
}

func TestMechanismNotOffered(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.EnableSASL(), kfake.Superuser(mechanismPlain, "writer", password))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismScram512, Username: "writer", Password: password}
	wantRefused(t, newSink(t, c), b.brokers[0], "sasl.mechanism (SCRAM-SHA-512)", "sasl.username (writer)")
}

// Kafka answers that the credentials are wrong. The error is certain, so there is no second attempt, which could lock the
// account.
func TestRefusedInWords(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.EnableSASL(), kfake.Superuser(mechanismPlain, "writer", password))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismPlain, Username: "writer", Password: password}
	var attempts atomic.Int32
	b.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		attempts.Add(1)
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password")
		return resp, nil, true
	})
	wantRefused(t, newSink(t, c), b.brokers[0], "Invalid username or password")
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts to authenticate, want 1", n)
	}
}

// A broker that goes down during authentication must not end the program.
func TestHangUpWhileAuthenticating(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.EnableSASL(), kfake.Superuser(mechanismPlain, "writer", password))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismPlain, Username: "writer", Password: password}
	b.ControlKey(int16(kmsg.SASLAuthenticate), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("going down"), true
	})
	openSink(t, c)
}

func wantRefused(t *testing.T, s sink.Sink, parts ...string) {
	t.Helper()
	defer s.Close()
	err := s.Open(t.Context(), nil)
	if !errors.As(err, new(*sink.RefusedError)) {
		t.Fatalf("Open: %v, want a RefusedError", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("%q shows the password", err)
	}
}

// Credentials that stop working later are tried again, because they may be corrected.
func TestCredentialsRevoked(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.EnableSASL(), kfake.Superuser(mechanismPlain, "writer", password))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismPlain, Username: "writer", Password: password}
	s := openSink(t, c)
	n := number("t")
	writeAll(t, s, n.batch(10, 0))
	var restored atomic.Bool
	b.ControlKey(int16(kmsg.SASLAuthenticate), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		if restored.Load() {
			return nil, nil, false
		}
		return nil, errors.New("revoked"), true
	})
	s.drop()
	batch := n.batch(10, 0)
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, "sasl.password")
	restored.Store(true)
	writeAll(t, s, batch)
}

// allowed returns a configuration whose user has the operations on the topic "t"
// and is denied everything else.
func allowed(t *testing.T, operations ...kmsg.ACLOperation) (*bus, Config) {
	t.Helper()
	var acls []kfake.ACL
	for _, op := range operations {
		acls = append(acls, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "t", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true,
		})
	}
	b := startBus(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(mechanismPlain, "writer", password, acls...))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismPlain, Username: "writer", Password: password}
	return b, c
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	const describe, configs, write = kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationWrite
	for name, c := range map[string]struct {
		operations []kmsg.ACLOperation
		exists     bool
		want       []string
	}{
		"to write":             {[]kmsg.ACLOperation{describe, configs}, true, []string{`topic "t", partition `, `allow user "writer" WRITE`}},
		"to see":               {nil, true, []string{`topic "t": `, `allow user "writer" WRITE and DESCRIBE`}},
		"to create":            {[]kmsg.ACLOperation{describe, configs, write}, false, []string{`topic "t" does not exist`, "authorization failed", `let user "writer" create topics`}},
		"to see what it makes": {[]kmsg.ACLOperation{kmsg.ACLOperationCreate}, true, []string{`topic "t": `, `allow user "writer" WRITE and DESCRIBE`}},
	} {
		t.Run(name, func(t *testing.T) {
			b, config := allowed(t, c.operations...)
			if c.exists {
				b.topic(t, "t", 3, 0)
			}
			s := openSink(t, config)
			_, err := s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0)}})
			wantError(t, err, c.want...)
		})
	}
}

// Without permission to read the limit, the sink uses the default limit, and finds records that the broker rejects one by one.
func TestLimitUnreadable(t *testing.T) {
	t.Parallel()
	b, c := allowed(t, kmsg.ACLOperationWrite) // implies DESCRIBE, not DESCRIBE_CONFIGS
	b.topic(t, "t", 1, 50_000)
	s := openSink(t, c)
	batch := sequence(1, 4)
	batch.Records[2] = record("t", "k", "large", brokerMaxBytes)
	_, err := s.Write(t.Context(), batch)
	if e := wantRecordError(t, err, 2); e.Limit != brokerMaxBytes {
		t.Errorf("RecordError has limit %d, want the default %d", e.Limit, brokerMaxBytes)
	}
	if n := b.PartitionInfo("t", 0).HighWatermark; n != 0 {
		t.Errorf("the topic holds %d records before the check is passed", n)
	}
	batch.Records[2] = record("t", "k", "cut", 60_000)
	_, err = s.Write(t.Context(), batch)
	if e := wantRecordError(t, err, 2); e.Limit >= e.Size || e.Size < 60_000 {
		t.Errorf("RecordError has size %d and limit %d", e.Size, e.Limit)
	}
	if n := b.PartitionInfo("t", 0).HighWatermark; n != 2 {
		t.Errorf("the topic holds %d records, want the two before the one that is too large", n)
	}
	batch.Records[2] = record("t", "k", "2", 0)
	writeAll(t, s, batch)
	if n := b.PartitionInfo("t", 0).HighWatermark; n != 4 {
		t.Errorf("the topic holds %d records, want 4", n)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	defer web.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}
	if err := os.WriteFile(ca, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBus(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates}),
		kfake.EnableSASL(), kfake.Superuser(mechanismScram256, "writer", password))
	c := b.config()
	c.SASL = SASL{Mechanism: mechanismScram256, Username: "writer", Password: password}

	c.TLS = TLS{Enabled: true}
	wantRefused(t, newSink(t, c), b.brokers[0], "certificate")
	c.TLS.CA = ca
	s := openSink(t, c)
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0)}})

	c.TLS = TLS{}
	plain := newSink(t, c)
	wantError(t, plain.Open(t.Context(), nil), b.brokers[0], "whether the brokers want TLS")
}
