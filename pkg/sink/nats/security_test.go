package nats

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
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.pem, _, a.key = sign(t, template, nil)
	a.cert = template
	return a
}

// sign makes a certificate; without an authority it signs itself.
func sign(t *testing.T, template *x509.Certificate, by *authority) (cert, key []byte, private *ecdsa.PrivateKey) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := template, private
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signer)
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

// issue writes a certificate for name, and its key.
func (a *authority) issue(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	cert, key, _ := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	write(t, certFile, cert)
	write(t, keyFile, key)
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// demandTLS makes a server require certificates that the authority signed.
func demandTLS(t *testing.T, o *server.Options, server, clients *authority) {
	t.Helper()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "s.crt"), filepath.Join(dir, "s.key")
	server.issue(t, "nats.example", cert, key)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(clients.pem)
	o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	o.TLSVerify, o.TLSTimeout = true, 5
}

// heals restarts the server with other requirements. The open sink fails and retries; once repair has replaced the files it
// continues, without a restart.
func heals(t *testing.T, b *bus, s *Sink, change func(*server.Options), repair func()) {
	t.Helper()
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	b.stop()
	change(&b.opts)
	b.start(t)
	var err error
	for range 8 { // at least as many times as the client tries to connect again
		_, err = s.Write(t.Context(), records(2, 1))
		wantPlain(t, err)
		time.Sleep(100 * time.Millisecond) // as a pipeline pauses
	}
	repair()
	if _, err := retry(t, s, records(2, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	b := startBus(t, func(o *server.Options) { demandTLS(t, o, ca, clients) })
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("ca.crt"), ca.pem)
	write(t, path("other-ca.crt"), others.pem)
	clients.issue(t, "bridge", path("c.crt"), path("c.key"))
	others.issue(t, "bridge", path("o.crt"), path("o.key"))
	url := strings.Replace(b.url(), "nats://", "tls://", 1)
	good := TLS{CA: path("ca.crt"), Cert: path("c.crt"), Key: path("c.key")}

	for _, c := range []struct {
		name   string
		change func(*TLS)
		want   string // "" opens
	}{
		{"right", func(*TLS) {}, ""},
		{"right name", func(c *TLS) { c.ServerName = "nats.example" }, ""},
		{"wrong name", func(c *TLS) { c.ServerName = "kafka.example" }, "nats.tls.serverName"},
		{"the system's authorities", func(c *TLS) { c.CA = "" }, "nats.tls.ca"},
		{"another authority", func(c *TLS) { c.CA = path("other-ca.crt") }, "nats.tls.ca"},
		{"no certificate", func(c *TLS) { c.Cert, c.Key = "", "" }, "nats.tls.cert"},
		{"another's certificate", func(c *TLS) { c.Cert, c.Key = path("o.crt"), path("o.key") }, "nats.tls.cert"},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := good
			c.change(&with)
			s := newSink(t, Config{URL: url, TLS: with})
			if c.want != "" {
				wantRefused(t, s.Open(t.Context(), nil), c.want)
				return
			}
			mustOpen(t, s, nil)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("replaced", func(t *testing.T) {
		next := newAuthority(t, "the next servers")
		s := newSink(t, Config{URL: url, TLS: good})
		heals(t, b, s, func(o *server.Options) { demandTLS(t, o, next, others) }, func() {
			write(t, path("ca.crt"), next.pem)
			others.issue(t, "bridge", path("c.crt"), path("c.key"))
		})
	})
	t.Run("server without", func(t *testing.T) {
		plain := startBus(t, nil)
		wantRefused(t, newSink(t, Config{URL: strings.Replace(plain.url(), "nats://", "tls://", 1), TLS: good}).Open(t.Context(), nil), "offers no TLS")
	})
	_, err := New(Options{Config: Config{URL: url, TLS: TLS{CA: path("c.key")}}, Identity: testIdentity})
	if err == nil || !strings.Contains(err.Error(), "tls.ca") {
		t.Errorf("a key for an authority: %v", err)
	}
}

func newUser(t *testing.T) (public string, seed []byte) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err == nil {
		seed, err = pair.Seed()
	}
	if err != nil {
		t.Fatal(err)
	}
	return public, seed
}

func TestNKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "user.nk")
	public, seed := newUser(t)
	_, wrong := newUser(t)
	next, nextSeed := newUser(t)
	b := startBus(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })

	write(t, file, wrong)
	err := newSink(t, Config{URL: b.url(), Auth: Auth{NKey: file}}).Open(t.Context(), nil)
	wantRefused(t, err, "nats.auth")
	if strings.Contains(err.Error(), string(wrong)) {
		t.Errorf("error %q shows the seed", err)
	}
	write(t, file, seed)
	s := newSink(t, Config{URL: b.url(), Auth: Auth{NKey: file}})
	heals(t, b, s, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: next}} }, func() { write(t, file, nextSeed) })

	write(t, file, []byte("not a seed"))
	if _, err := New(Options{Config: Config{URL: b.url(), Auth: Auth{NKey: file}}, Identity: testIdentity}); err == nil || strings.Contains(err.Error(), "not a seed") {
		t.Errorf("a file without a seed: %v", err)
	}
}

func TestSecretsInFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for _, c := range []struct {
		name   string
		auth   Auth
		demand func(o *server.Options, secret string)
	}{
		{"password", Auth{Username: "bridge", PasswordFile: file}, func(o *server.Options, secret string) {
			o.Username, o.Password = "bridge", secret
		}},
		{"token", Auth{TokenFile: file}, func(o *server.Options, secret string) { o.Authorization = secret }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t, func(o *server.Options) { c.demand(o, "first") })
			write(t, file, []byte("wr0ng\n"))
			err := newSink(t, Config{URL: b.url(), Auth: c.auth}).Open(t.Context(), nil)
			wantRefused(t, err, "nats.auth")
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("error %q shows the secret", err)
			}
			write(t, file, []byte("first\n"))
			s := newSink(t, Config{URL: b.url(), Auth: c.auth})
			heals(t, b, s, func(o *server.Options) { c.demand(o, "second") }, func() { write(t, file, []byte("second\n")) })
		})
	}
}

// operator is one that a server trusts, with an account that has JetStream.
type operator struct {
	account nkeys.KeyPair
	options func(*server.Options)
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	public := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		must(err)
		return p
	}
	op, err := nkeys.CreateOperator()
	must(err)
	system, err := nkeys.CreateAccount()
	must(err)
	account, err := nkeys.CreateAccount()
	must(err)
	resolver := &server.MemAccResolver{}
	for _, k := range []nkeys.KeyPair{system, account} {
		claims := jwt.NewAccountClaims(public(k))
		if k == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1}
		}
		token, err := claims.Encode(op)
		must(err)
		must(resolver.Store(public(k), token))
	}
	claims := jwt.NewOperatorClaims(public(op))
	claims.SystemAccount = public(system)
	token, err := claims.Encode(op)
	must(err)
	decoded, err := jwt.DecodeOperatorClaims(token)
	must(err)
	return &operator{account, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{decoded}
		o.SystemAccount = public(system)
		o.AccountResolver = resolver
	}}
}

// creds makes a user's .creds file.
func (o *operator) creds(t *testing.T) []byte {
	t.Helper()
	public, seed := newUser(t)
	token, err := jwt.NewUserClaims(public).Encode(o.account)
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCreds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "user.creds")
	first, second := newOperator(t), newOperator(t)
	b := startBus(t, first.options)
	write(t, file, second.creds(t))
	wantRefused(t, newSink(t, Config{URL: b.url(), Auth: Auth{Creds: file}}).Open(t.Context(), nil), "nats.auth")
	write(t, file, first.creds(t))
	s := newSink(t, Config{URL: b.url(), Auth: Auth{Creds: file}})
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 1))
	b.stop()
	second.options(&b.opts)
	b.start(t)
	wantPlain(t, func() error { _, err := s.Write(t.Context(), records(2, 1)); return err }())
	write(t, file, second.creds(t))
	// The other operator's account has no stream, so the sink connects and reports what it lost.
	if _, err := retry(t, s, records(2, 1)); err != nil && !errors.Is(err, sink.ErrReset) {
		t.Fatal(err)
	}
	mustWrite(t, s, records(2, 1))
}

// Subscribers of an embedded server use TLS and present a certificate if the server requires it. The bridge itself connects
// inside the process.
func TestEmbeddedTLS(t *testing.T) {
	t.Parallel()
	ca, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("ca.crt"), ca.pem)
	write(t, path("clients.crt"), clients.pem)
	ca.issue(t, "bridge", path("s.crt"), path("s.key"))
	clients.issue(t, "reader", path("c.crt"), path("c.key"))
	c := embedded(t.TempDir())
	c.Embedded.TLS = &ServerTLS{Cert: path("s.crt"), Key: path("s.key"), ClientCA: path("clients.crt")}
	s := newSink(t, c)
	mustOpen(t, s, nil)
	mustWrite(t, s, records(1, 2))
	if _, err := nats.Connect(s.ClientURL()); err == nil {
		t.Error("a subscriber without TLS was let in")
	}
	if nc, err := nats.Connect(s.ClientURL(), nats.RootCAs(path("ca.crt"))); err == nil {
		nc.Close()
		t.Error("a subscriber without a certificate was let in")
	}
	js := client(t, s.ClientURL(), nats.RootCAs(path("ca.crt")), nats.ClientCert(path("c.crt"), path("c.key")))
	wantValues(t, read(t, js), "1/0 1/1")

	// Replaced files are used from the next connection on.
	next := newAuthority(t, "the next servers")
	next.issue(t, "bridge", path("s.crt"), path("s.key"))
	write(t, path("ca2.crt"), next.pem)
	nc, err := nats.Connect(s.ClientURL(), nats.RootCAs(path("ca2.crt")), nats.ClientCert(path("c.crt"), path("c.key")))
	if err != nil {
		t.Fatalf("after the certificate was replaced: %v", err)
	}
	nc.Close()
}

// A full embedded server blocks the pipeline; it does not drop messages that subscribers have not read.
func TestEmbeddedLimit(t *testing.T) {
	t.Parallel()
	c := embedded(t.TempDir())
	c.Embedded.MaxBytes = 1 << 20
	s := newSink(t, c)
	mustOpen(t, s, nil)
	var err error
	for seq := uint64(1); err == nil && seq < 100; seq++ {
		b := records(seq, 1)
		b.Records[0].Value = make([]byte, 100<<10)
		_, err = s.Write(t.Context(), b)
	}
	wantPlain(t, err, streamName, "insufficient resources")
}

// What the bridge publishes reaches subscribers of the larger NATS system to which its server is a leaf. What they publish does
// not reach the bridge's stream, where it would fence the bridge.
func TestEmbeddedLeaf(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	hub := startBus(t, func(o *server.Options) {
		o.JetStream = false
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: port, Username: "leaf", Password: "l"}
	})
	nc, err := nats.Connect(hub.url())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("k8s.>")
	if err != nil {
		t.Fatal(err)
	}
	c := embedded(t.TempDir())
	c.Embedded.Leaf = &Leaf{URL: fmt.Sprintf("nats-leaf://leaf:l@127.0.0.1:%d", port)}
	s := newSink(t, c)
	mustOpen(t, s, nil)
	wait(t, "the leaf to join", func() bool { return hub.srv.NumLeafNodes() == 1 && s.server.NumSubscriptions() > 0 })
	for seq := uint64(1); ; seq++ { // until the leaf knows the subscription on the hub
		mustWrite(t, s, records(seq, 1))
		if m, err := sub.NextMsg(100 * time.Millisecond); err == nil {
			if got := strings.Trim(string(m.Data), `"`); !strings.HasSuffix(got, "/0") {
				t.Errorf("the hub got %q", got)
			}
			break
		}
		if seq > 100 {
			t.Fatal("nothing reached the hub")
		}
	}
	if err := nc.Publish(subject, []byte(`"foreign"`)); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(3) {
		mustWrite(t, s, records(1000+seq, 1)) // an error here would mean that the sink is fenced
	}
}
