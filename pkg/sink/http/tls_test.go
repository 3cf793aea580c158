package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
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

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	httpsink "github.com/kubebridge/kubebridge/pkg/sink/http"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}}
	a.pem, _, a.key = a.sign(t, a.cert)
	return a
}

// sign returns a certificate and its key, in PEM. The first one is that of the authority.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (cert, key []byte, private *ecdsa.PrivateKey) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), private
}

// issue returns a certificate for 127.0.0.1 that is valid for some time from now on, and its key.
func (a *authority) issue(t *testing.T, valid time.Duration) (cert, key []byte) {
	t.Helper()
	cert, key, _ = a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "x"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return cert, key
}

// A start with certificates that one side does not accept ends with what is wrong and what to do. Nothing is sent.
func TestTLS(t *testing.T) {
	servers, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	path := func(content []byte) string {
		name := filepath.Join(t.TempDir(), "x.pem")
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pair := func(by *authority, valid time.Duration) (cert, key string) {
		c, k := by.issue(t, valid)
		return path(c), path(k)
	}
	cert, key := pair(clients, time.Hour)
	otherCert, otherKey := pair(others, time.Hour)
	oldCert, oldKey := pair(clients, -time.Hour)
	good := httpsink.TLS{CA: path(servers.pem), Cert: cert, Key: key}
	for name, c := range map[string]struct {
		change func(*httpsink.TLS)
		host   string
		valid  time.Duration
		open   bool // the server wants no client certificate
		want   []string
		retry  bool // the bridge tries again: a file may be written later
	}{
		"right":                         {},
		"no client certificate":         {open: true, change: func(c *httpsink.TLS) { c.Cert, c.Key = "", "" }},
		"a certificate nobody wants":    {open: true},
		"the system's authorities":      {change: func(c *httpsink.TLS) { c.CA = "" }, want: []string{"unknown authority", "set tls.ca"}},
		"another authority":             {change: func(c *httpsink.TLS) { c.CA = path(others.pem) }, want: []string{"unknown authority", "set tls.ca"}},
		"another host":                  {host: "localhost", want: []string{"localhost", "set url to a host"}},
		"expired server":                {valid: -time.Hour, want: []string{"expired", "renew the server's certificate"}},
		"missing certificate":           {change: func(c *httpsink.TLS) { c.Cert, c.Key = "", "" }, want: []string{"certificate required", "set tls.cert and tls.key"}},
		"certificate of others":         {change: func(c *httpsink.TLS) { c.Cert, c.Key = otherCert, otherKey }, want: []string{"remote error", "check tls.cert (" + otherCert}},
		"expired client":                {change: func(c *httpsink.TLS) { c.Cert, c.Key = oldCert, oldKey }, want: []string{"remote error", "until when it is valid"}},
		"no file of the authority":      {change: func(c *httpsink.TLS) { c.CA += ".none" }, want: []string{"tls.ca: open ", ".none: no such file"}, retry: true},
		"no certificate in the file":    {change: func(c *httpsink.TLS) { c.CA = key }, want: []string{"tls.ca: " + key + " has no certificate in PEM"}, retry: true},
		"no file of the certificate":    {change: func(c *httpsink.TLS) { c.Cert += ".none" }, want: []string{"tls.cert: open ", ".none: no such file"}, retry: true},
		"certificate and key of others": {change: func(c *httpsink.TLS) { c.Key = otherKey }, want: []string{"tls.cert: ", "private key does not match"}, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.valid == 0 {
				c.valid = time.Hour
			}
			own, err := tls.X509KeyPair(servers.issue(t, c.valid))
			if err != nil {
				t.Fatal(err)
			}
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(clients.pem)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if len(c.want) > 0 {
					t.Errorf("a request is made: %s", q.Method)
				}
			}))
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
			if !c.open {
				server.TLS.ClientCAs, server.TLS.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			with, url := good, server.URL
			if c.change != nil {
				c.change(&with)
			}
			if c.host != "" {
				url = strings.Replace(url, "127.0.0.1", c.host, 1)
			}
			s := newSink(t, httpsink.Config{URL: url, TLS: with})
			defer s.Close()
			err = s.Open(t.Context(), nil)
			if len(c.want) == 0 {
				if err == nil {
					_, err = s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{{ID: "1", Key: "k", Route: url, Value: []byte("{}")}}})
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, part := range c.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("Open: %v, want %q", err, part)
				}
			}
			if refused := errors.As(err, new(*sink.RefusedError)); refused == c.retry {
				t.Errorf("Open: %v: a RefusedError: %t", err, refused)
			}
		})
	}
}

// A server's certificate that expires under a running bridge fails writes with the remedy, and does not end the bridge.
func TestCertificateExpires(t *testing.T) {
	servers := newAuthority(t, "servers")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, servers.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	var expired atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		valid := time.Hour
		if expired.Load() {
			valid = -time.Hour
		}
		own, err := tls.X509KeyPair(servers.issue(t, valid))
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}, err
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	s := newSink(t, httpsink.Config{URL: server.URL, TLS: httpsink.TLS{CA: ca}})
	defer s.Close()
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expired.Store(true)
	server.CloseClientConnections()
	b := &event.Batch{Seq: 1, Records: []event.Record{{ID: "1", Key: "k", Route: server.URL, Value: []byte("{}")}}}
	_, err := s.Write(t.Context(), b)
	if errors.Is(err, io.EOF) { // the connection from before
		_, err = s.Write(t.Context(), b)
	}
	if err == nil || errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), "renew the server's certificate") {
		t.Errorf("Write: %v", err)
	}
	expired.Store(false)
	if _, err := s.Write(t.Context(), b); err != nil {
		t.Errorf("Write with a new certificate: %v", err)
	}
}
