package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// What connects the one client must connect the other: a sink that delivers
// exactly once uses both.
func TestExactlyOnceSecured(t *testing.T) {
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
			wantRefused(t, wrong.topics, b.brokers[0], "sasl.password")
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

// A certificate that is not accepted ends the program at its start. One that the brokers get later is tried again.
func TestUnknownAuthority(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	defer web.Close()
	b := startBus(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates}))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, delivery := range []string{"at-least-once", exactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			c := b.config()
			c.Delivery = delivery
			c.TLS = TLS{Enabled: true} // the system's authorities
			topics := func() (sink.Sink, *Sink) {
				if delivery == exactlyOnce {
					x := newExact(t, c)
					t.Cleanup(func() { x.Close() })
					return x, x.topics
				}
				s := newSink(t, c)
				t.Cleanup(func() { s.Close() })
				return s, s
			}
			_, stranger := topics()
			wantRefused(t, stranger, b.brokers[0], "check tls.ca")

			c.TLS.CA = ca
			s, own := topics()
			if err := s.Open(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			own.drop()
			own.tls.RootCAs = x509.NewCertPool() // as if the brokers' authority had changed
			_, err := s.Write(t.Context(), number("t").batch(5, 10))
			if err == nil || errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), "check tls.ca") {
				t.Errorf("Write: %v, want an error to be tried again, with what to check", err)
			}
		})
	}
}

// A token is renewed in its file: the next connection has the new one.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	c := Config{Brokers: []string{"kafka:9092"}, SASL: SASL{Mechanism: mechanismOAuth, TokenFile: path}}
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), "sasl.tokenFile: open "+path) {
		t.Errorf("a missing token: %v", err)
	}
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := newSecurity(c)
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
