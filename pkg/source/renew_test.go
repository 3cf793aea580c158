package source

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credentials that are renewed are used: ten seconds later, and at once when the server refuses those before. A configuration
// that cannot be used, or is of another server, changes nothing, and is reported once.
func TestCredentialsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := "old"
		cfg := inMemoryConfig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+accepted {
				status(http.StatusUnauthorized, "Unauthorized")(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"1"}}`)(w, r)
		}))
		var failed error
		var reports []string
		load := func(token, host string) func() (*rest.Config, error) {
			return func() (*rest.Config, error) {
				c := rest.CopyConfig(cfg)
				c.BearerToken, c.Host = token, host
				return c, failed
			}
		}
		present := load("old", cfg.Host)
		client, err := Renewal{Load: func() (*rest.Config, error) { return present() }, Report: func(err error) {
			if err == nil {
				err = errors.New("renewed")
			}
			reports = append(reports, err.Error())
		}}.NewClient()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		works := func(want bool) {
			t.Helper()
			if _, err := client.ClusterUID(t.Context()); (err == nil) != want {
				t.Errorf("with the token %s accepted: %v", accepted, err)
			}
		}
		works(true)
		present = load("new", cfg.Host)
		time.Sleep(renewEvery)
		accepted = "new"
		works(true) // before anything was refused

		accepted = "newest"
		present = load("newest", cfg.Host)
		time.Sleep(renewRefused)
		works(false)
		works(true)

		accepted = "last"
		for range 3 {
			failed = errors.New("half a file")
			time.Sleep(renewRefused)
			works(false)
		}
		failed = nil
		present = load("last", "http://other")
		time.Sleep(renewRefused)
		works(false)
		present = load("last", cfg.Host)
		time.Sleep(renewRefused)
		works(false)
		works(true)
		compare(t, reports, []string{"renewed", "renewed", "half a file", "it names another server: restart the bridge to use it", "renewed"})
	})
}

// A client certificate that is renewed, in the configuration or in files, is used although the connection with the one before
// is still open.
func TestCertificateIsRenewed(t *testing.T) {
	for _, files := range []bool{false, true} {
		t.Run(fmt.Sprintf("files %t", files), func(t *testing.T) {
			var accepted atomic.Value
			accepted.Store("old")
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != accepted.Load() {
					status(http.StatusUnauthorized, "Unauthorized")(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				text200(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"1"}}`)(w, r)
			}))
			server.EnableHTTP2 = true
			server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
			server.StartTLS()
			defer server.Close()
			cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
				CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			}}
			dir := t.TempDir()
			use := func(name string) {
				cert, key := certificateOf(t, name)
				if !files {
					cfg.CertData, cfg.KeyData = cert, key
					return
				}
				cfg.CertFile, cfg.KeyFile = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
				if err := errors.Join(os.WriteFile(cfg.CertFile, cert, 0o600), os.WriteFile(cfg.KeyFile, key, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			use("old")
			client, err := Renewal{Load: func() (*rest.Config, error) { return rest.CopyConfig(cfg), nil }}.NewClient()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.ClusterUID(t.Context()); err != nil {
				t.Fatal(err)
			}
			use("new")
			accepted.Store("new")
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				_, err := client.ClusterUID(t.Context())
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
		})
	}
}

// A client without credentials sends none of those that the configuration has, and what its caller adds.
func TestAnonymous(t *testing.T) {
	var got []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprintf("%d certificates, %q", len(r.TLS.PeerCertificates), r.Header.Get("Authorization")))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	cert, key := certificateOf(t, "bridge")
	reach := Renewal{Load: func() (*rest.Config, error) {
		return &rest.Config{Host: server.URL, BearerToken: "own", TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), CertData: cert, KeyData: key,
		}}, nil
	}}
	for _, r := range []Renewal{reach, reach.Anonymous()} {
		cfg, err := r.Config()
		if err != nil {
			t.Fatal(err)
		}
		for _, added := range []string{"", "Bearer another"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host, nil)
			if err != nil {
				t.Fatal(err)
			}
			if added != "" {
				req.Header.Set("Authorization", added)
			}
			resp, err := cfg.Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	}
	compare(t, got, []string{`1 certificates, "Bearer own"`, `1 certificates, "Bearer another"`, `0 certificates, ""`, `0 certificates, "Bearer another"`})
}

// certificateOf makes a certificate of its own with a common name.
func certificateOf(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// The password in a server's address is in no error, and errors of authentication do not blame TLS.
func TestErrorsOfNewClient(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  rest.Config
		want string
	}{
		"TLS":            {rest.Config{Host: "https://u:s3cret@h:1", TLSClientConfig: rest.TLSClientConfig{Insecure: true, CAData: []byte("x")}}, "set up TLS for https://h:1: "},
		"no address":     {rest.Config{Host: "https://u:s3c ret@h:1"}, "set up a client for https://h:1: this is no URL"},
		"no scheme":      {rest.Config{Host: "u:s3cret@h:x"}, "set up a client for h:x: "},
		"authentication": {rest.Config{Host: "https://h", AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "x"}, ExecProvider: &clientcmdapi.ExecConfig{}}, "set up authentication for https://h: "},
	} {
		_, err := NewClient(&c.cfg)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
