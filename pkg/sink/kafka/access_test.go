package kafka

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Every client of a sink that delivers exactly once is encrypted and authenticated.
func TestExactlyOnceSecured(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	defer web.Close()
	dir := t.TempDir()
	save := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert := save("cert.pem", "CERTIFICATE", web.Certificate().Raw)
	der, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := save("key.pem", "PRIVATE KEY", der)
	for _, mechanism := range []string{mechanismPlain, mechanismScram256, mechanismScram512} {
		t.Run(mechanism, func(t *testing.T) {
			b := startBus(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates, ClientAuth: tls.RequireAnyClientCert}),
				kfake.EnableSASL(), kfake.Superuser(mechanism, "writer", password))
			c := b.config()
			c.Delivery = exactlyOnce
			c.SASL = SASL{Mechanism: mechanism, Username: "writer", Password: password}
			c.TLS = TLS{Enabled: true, CA: cert, Cert: cert, Key: key}
			x := openExact(t, c)
			n := number("t")
			deliver(t, x, n.batch(50, 10))
			deliver(t, x, n.batch(50, 10))

			c.SASL.Password = "wrong-" + password
			wrong := newExact(t, c)
			defer wrong.Close()
			wantRefused(t, wrong, b.brokers[0], "sasl.password")
			c.SASL.Password = password
			c.TLS.Cert, c.TLS.Key = "", ""
			anonymous := newExact(t, c)
			defer anonymous.Close()
			if err := anonymous.Open(t.Context(), nil); err == nil {
				t.Error("the broker took a client without a certificate")
			}
		})
	}
}

// A certificate that is not accepted at the start ends the program. If the brokers' certificate changes later, the sink
// retries.
func TestUnknownAuthority(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	defer web.Close()
	b := startBus(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates}))
	for _, delivery := range []string{"at-least-once", exactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			c := b.config()
			c.Delivery = delivery
			c.TLS = TLS{Enabled: true} // with the system's certificate authorities
			create := func() sink.Sink {
				var s sink.Sink = newSink(t, c)
				if delivery == exactlyOnce {
					s = newExact(t, c)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			wantRefused(t, create(), b.brokers[0], "check tls.ca")

			c.TLS.CA = ca
			s := create()
			if err := s.Open(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			newCertificate(t).save(t, c.TLS) // as if the brokers had changed their certificate authority
			switch s := s.(type) {
			case *Sink:
				s.drop()
			case *owned:
				s.topics.close()
				s.topics.forget()
			}
			_, err := s.Write(t.Context(), number("t").batch(5, 10))
			if err == nil || errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), "check tls.ca") {
				t.Errorf("Write: %v, want an error to be tried again, with what to check", err)
			}
		})
	}
}

// When a token is renewed in its file, the next connection uses the new token.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	c := Config{Brokers: []string{"kafka:9092"}, SASL: SASL{Mechanism: mechanismOAuth, TokenFile: path}}
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), "sasl.tokenFile: open "+path) {
		t.Errorf("a missing token: %v", err)
	}
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := newAccess(Options{Config: c})
		if err != nil {
			t.Fatal(err)
		}
		want := "n,,\x01auth=Bearer " + token + "\x01\x01" // RFC 7628, section 3.1
		_, first, err := s.sasl.Authenticate(t.Context(), "kafka:9092")
		if string(first) != want || err != nil || s.sasl.Name() != "OAUTHBEARER" {
			t.Errorf("%s begins with %q, %v, want %q", s.sasl.Name(), first, err, want)
		}
	}
	state, _, err := tokenFile(path).Authenticate(t.Context(), "kafka:9092")
	if err != nil {
		t.Fatal(err)
	}
	if done, _, err := state.Challenge(nil); !done || err != nil {
		t.Errorf("an accepted token: %t, %v", done, err)
	}
	if done, _, err := state.Challenge([]byte(`{"status":"invalid_token"}`)); done || !refused(err) {
		t.Errorf("a refused token: %t, %v", done, err)
	}
}

// certificate is a self-signed certificate, valid for the brokers of these tests and for a client.
type certificate struct {
	tls.Certificate
	cert, key []byte // PEM
}

func newCertificate(t *testing.T) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificate{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
	if c.Certificate, err = tls.X509KeyPair(c.cert, c.key); err != nil {
		t.Fatal(err)
	}
	return c
}

// save writes the certificate to the configured files, both as authority and as client certificate.
func (c *certificate) save(t *testing.T, to TLS) {
	t.Helper()
	for path, content := range map[string][]byte{to.CA: c.cert, to.Cert: c.cert, to.Key: c.key} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// secured is a cluster that accepts one password and one client certificate, both of which change.
type secured struct {
	*bus
	certificate atomic.Pointer[certificate]
	password    atomic.Pointer[string]
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{}
	s.bus = startBus(t, kfake.EnableSASL(), kfake.TLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAnyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.certificate.Load().Certificate, nil
		},
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if !bytes.Equal(raw[0], s.certificate.Load().Certificate.Certificate[0]) {
				return errors.New("not the client's certificate")
			}
			return nil
		},
	}), kfake.Superuser(mechanismPlain, "writer", "any"))
	s.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.KeepControl()
		auth := req.(*kmsg.SASLAuthenticateRequest)
		if string(auth.SASLAuthBytes) == "\x00writer\x00"+*s.password.Load() {
			auth.SASLAuthBytes = []byte("\x00writer\x00any")
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	return s
}

// rotate makes the brokers accept another password and certificate, and ends all connections.
func (s *secured) rotate(t *testing.T, c Config, password string) {
	t.Helper()
	one := newCertificate(t)
	one.save(t, c.TLS)
	if err := os.WriteFile(c.SASL.PasswordFile, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.certificate.Store(one)
	s.password.Store(&password)
	s.stop(t)
	s.start(t)
}

// Passwords, client certificates and authorities are replaced in their files: a running bridge needs no restart.
func TestRotation(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{atLeastOnce, exactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			b, dir := startSecured(t), t.TempDir()
			c := b.config()
			c.Delivery = delivery
			c.TLS = TLS{Enabled: true, CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
			c.SASL = SASL{Mechanism: mechanismPlain, Username: "writer", PasswordFile: filepath.Join(dir, "password")}
			b.rotate(t, c, "first")
			var s sink.Sink
			if delivery == exactlyOnce {
				s = openExact(t, c)
			} else {
				s = openSink(t, c)
			}
			n := number("t")
			write := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				batch := n.batch(20, 10)
				_, err := s.Write(ctx, batch)
				for err != nil && ctx.Err() == nil {
					_, err = s.Write(ctx, batch)
				}
				if err != nil {
					t.Fatalf("batch %d: %v", batch.Seq, err)
				}
			}
			for _, password := range []string{"second", "third"} {
				write()
				b.rotate(t, c, password)
			}
			write()
			r, err := NewReader(t.Context(), Options{Config: c, Identity: identity}, func(topic string) bool { return topic == "t" })
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var ranges []sink.Range
			for _, p := range r.Parts() {
				ranges = append(ranges, sink.Range{From: p.First, To: p.End})
			}
			found := 0
			err = r.Read(t.Context(), ranges, false, func(*sink.Message) error { found++; return nil })
			if err != nil || found != 60 {
				t.Errorf("%d records were read, want 60: %v", found, err)
			}
		})
	}
}
