package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var yes = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") })

// run serves until the test ends, and returns the address.
func run(t *testing.T, o Options) string {
	t.Helper()
	o.Listen, o.Log = "127.0.0.1:0", zap.NewNop()
	if o.Handler == nil {
		o.Handler = yes
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

// ask sends a request to a handler as if it came over a connection from an address.
func ask(h http.Handler, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	r.Host, r.RemoteAddr = "127.0.0.1:8080", "192.0.2.1:1"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHost: a page of evil.example can make a browser send requests to this server under that name. A legitimate
// client uses the server's address, or one of its configured names.
func TestHost(t *testing.T) {
	o := Options{Listen: "node-7.lan:8080", Hosts: []string{"Bridge.example.com.", "bridge.ns.svc"}, Handler: yes, Log: zap.NewNop()}
	h := o.handler()
	for _, host := range []string{
		"127.0.0.1:8080", "10.1.2.3:8080", "10.1.2.3", "[fd00::1]:8080", "[fd00::1]", "localhost:9", "LOCALHOST", "bridge.example.com", "BRIDGE.example.com.:443", "bridge.ns.svc:8080", "node-7.lan:8080",
	} {
		if w := ask(h, func(r *http.Request) { r.Host = host }); w.Code != http.StatusOK {
			t.Errorf("%s is answered with %d %s", host, w.Code, w.Body)
		}
	}
	for _, host := range []string{"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "10.1.2.3.nip.io", "ns.svc", "x.bridge.ns.svc", "2130706433", "a b", ":8080"} {
		w := ask(h, func(r *http.Request) { r.Host = host })
		if w.Code != http.StatusMisdirectedRequest || !strings.Contains(w.Body.String(), "status.hosts") || strings.Contains(w.Body.String(), "yes") {
			t.Errorf("%q is answered with %d %s", host, w.Code, w.Body)
		}
	}
}

// TestHalfSentHeaders: 300 connections that send headers and never end took 600 MB, and let nobody else in.
func TestHalfSentHeaders(t *testing.T) {
	address := run(t, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	line := []byte("X-Long: " + strings.Repeat("x", 2<<20))
	var all sync.WaitGroup
	for range 300 {
		all.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(headerTime - time.Second))
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n"); err != nil {
				return
			}
			if _, err := c.Write(line); err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 40 {
		t.Errorf("%d MiB were allocated", took)
	}
	get(t, http.DefaultTransport.(*http.Transport).Clone(), "http://"+address, "yes")
}

// get expects an answer.
func get(t *testing.T, transport *http.Transport, url, want string) {
	t.Helper()
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != want || answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %q, %v", url, answer.Status, text, err)
	}
}

// TestConnections: a client that opens as many connections as possible gets a part of them, and closed connections can
// be used again.
func TestConnections(t *testing.T) {
	address := run(t, Options{})
	var open []net.Conn
	for range connectionsPerAddress {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	alive := func(c net.Conn) bool {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _ := c.Read(make([]byte, 100))
		return n > 0
	}
	for i, c := range open {
		if !alive(c) {
			t.Errorf("connection %d is closed", i)
		}
	}
	more, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if alive(more) {
		t.Error("one address has more connections than it may")
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := other.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(c) {
		t.Error("one address keeps another out")
	}
	for _, c := range append(open, more, c) {
		_ = c.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; { // until the server has noticed that they are closed
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		ok := alive(c)
		_ = c.Close()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("closed connections still count")
		}
	}
}

// TestRunWaitsForHandlers: a handler reads a store that is closed after Run. Run ends the request's context and waits for it.
func TestRunWaitsForHandlers(t *testing.T) {
	began, cancelled, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s, err := New(Options{Listen: "127.0.0.1:0", Streams: DefaultStreams, Log: zap.NewNop(), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(cancelled)
		<-release
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	stop()
	<-cancelled
	select {
	case err := <-done:
		t.Errorf("Run returned (%v), and a handler runs", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestQuota: several addresses together use all connections. An address without any still gets one.
func TestQuota(t *testing.T) {
	q := NewQuota(4, 2)
	took := func(address string) bool { ok, _ := q.acquire(address); return ok }
	for i, want := range []struct {
		address string
		ok      bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", true}, {"b", false}, {"c", true}, {"c", false}, {"d", true}} {
		if got := took(want.address); got != want.ok {
			t.Errorf("%d: %s: %t", i, want.address, got)
		}
	}
	for n := range 100 {
		took(string(rune('A' + n)))
	}
	if q.used != 16 {
		t.Errorf("%d are used, four times all is the most", q.used)
	}
	q.release("a")
	if !took("z") {
		t.Error("what is given back cannot be used")
	}
}

// TestNetworks: a client with an IPv6 network has as many addresses as it wants. It gets half of what there is.
func TestNetworks(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "name:80": "name",
	} {
		if got := ClientOf(address); got != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	q := NewQuota(20, 4)
	n := 0
	for i := range 100 {
		if ok, _ := q.acquire(fmt.Sprintf("2001:db8:1:2::%x", i)); ok {
			n++
		}
	}
	if n != 10 {
		t.Errorf("a network has %d of 20", n)
	}
	for range 4 {
		if ok, _ := q.acquire("2001:db8:1:3::1"); !ok {
			t.Error("a network keeps another one out")
		}
	}
	if ok, _ := q.acquire("2001:db8:1:3::1"); ok {
		t.Error("an IPv6 address has more than it may")
	}
	for i := range 10 {
		q.release(fmt.Sprintf("2001:db8:1:2::%x", i))
	}
	if len(q.by) != 2 || q.used != 4 {
		t.Errorf("given back, %v are used", q.by)
	}
}

// TestUnsentBody: a client that declares a body and does not send it is answered, and does not keep the connection.
func TestUnsentBody(t *testing.T) {
	address := run(t, Options{Streams: DefaultStreams, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no writes", http.StatusMethodNotAllowed) })})
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx":        "413",
		"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n":   "413",
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx":       "405",
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\nxx": "405",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) {
				t.Errorf("%q (%v), want %s", answer, err, want)
			}
		})
	}
}

// TestSmallBody: clients that send small bodies keep their connections, and the time for the body does not end the answer.
func TestSmallBody(t *testing.T) {
	t.Parallel()
	address := run(t, Options{Streams: DefaultStreams, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			t.Error("the time for the body has ended the request")
		case <-time.After(bodyTime + bodyTime/2):
		}
		fmt.Fprintf(w, "%s %v", body, err)
	})})
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	from := bufio.NewReader(c)
	for _, text := range []string{"one", "two"} {
		if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n%s", text); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || string(got) != text+" <nil>" || a.Close {
			t.Errorf("%s: %q %v (%v)", text, got, a.Header, err)
		}
	}
}

// TestAnswersAtOnce: the number of slow answers is bounded. They wait for each other, and leave room for probes.
func TestAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		o := Options{Listen: "127.0.0.1:8080", Log: zap.NewNop(), Open: []string{"/healthz"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api" {
				<-release
			}
		})}
		h := o.handler()
		codes := make(chan int, 100)
		for range answersPerAddress + 1 {
			go func() { codes <- ask(h, nil).Code }()
		}
		synctest.Wait()
		if w := ask(h, func(r *http.Request) { r.URL.Path = "/healthz" }); w.Code != http.StatusOK {
			t.Errorf("a probe is answered with %d", w.Code)
		}
		began := time.Now()
		if code := <-codes; code != http.StatusServiceUnavailable || time.Since(began) != queueTime {
			t.Errorf("the one too many got %d after %v", code, time.Since(began))
		}
		go func() { codes <- ask(h, nil).Code }()
		synctest.Wait()
		close(release)
		for range answersPerAddress + 1 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("one that has waited got %d", code)
			}
		}
	})
}

// TestTokenFile: a token is required, in the header of programs or the dialog of browsers, but not for probes. The
// file is read again.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "0123456789abcdef\n")
	o := Options{Listen: "127.0.0.1:8080", Log: zap.NewNop(), Handler: yes, Open: []string{"/healthz"}, Login: TokenFile(path)}
	h := o.handler()
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"no token":          {nil, http.StatusUnauthorized},
		"another":           {bearer("0123456789abcdee"), http.StatusUnauthorized},
		"a part":            {bearer("0123456789abcde"), http.StatusUnauthorized},
		"nothing":           {bearer(""), http.StatusUnauthorized},
		"another scheme":    {func(r *http.Request) { r.Header.Set("Authorization", "Digest 0123456789abcdef") }, http.StatusUnauthorized},
		"the token":         {bearer("0123456789abcdef"), http.StatusOK},
		"a browser":         {func(r *http.Request) { r.SetBasicAuth("me", "0123456789abcdef") }, http.StatusOK},
		"a browser, wrong":  {func(r *http.Request) { r.SetBasicAuth("0123456789abcdef", "x") }, http.StatusUnauthorized},
		"a probe":           {func(r *http.Request) { r.URL.Path = "/healthz" }, http.StatusOK},
		"as if for a probe": {func(r *http.Request) { r.URL.Path = "/healthz/../api" }, http.StatusUnauthorized},
	} {
		w := ask(h, c.change)
		if w.Code != c.code || (w.Body.String() == "yes") != (c.code == http.StatusOK) || (len(w.Header().Values("WWW-Authenticate")) == 2) != (c.code == http.StatusUnauthorized) {
			t.Errorf("%s: %d %q %v", name, w.Code, w.Body, w.Header())
		}
	}
	write(t, path, "fedcba9876543210")
	if w := ask(h, bearer("0123456789abcdef")); w.Code != http.StatusUnauthorized {
		t.Errorf("the token before is answered with %d", w.Code)
	}
	if w := ask(h, bearer("fedcba9876543210")); w.Code != http.StatusOK {
		t.Errorf("the new token is answered with %d", w.Code)
	}
	for _, text := range []string{"", "short"} { // a client that sends nothing, or guesses, is not admitted
		write(t, path, text)
		if w := ask(h, bearer(text)); w.Code == http.StatusOK {
			t.Errorf("a file with %q admits", text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if w := ask(h, bearer("fedcba9876543210")); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), path) {
		t.Errorf("without the file: %d %s", w.Code, w.Body)
	}
}

// TestCertificate: a replaced certificate is used from the next connection on. A half-finished replacement does not
// stop the server.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	o := Options{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	if _, err := New(Options{Listen: "127.0.0.1:0", Cert: o.Cert, Key: o.Key, Log: zap.NewNop()}); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the files: %v", err)
	}
	one, oneKey := certificate(t)
	write(t, o.Cert, one)
	write(t, o.Key, oneKey)
	address := run(t, o)
	trusts := func(cert string) {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(cert))
		get(t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, "https://"+address, "yes")
	}
	trusts(one)
	two, twoKey := certificate(t)
	write(t, o.Cert, two)
	trusts(one)
	write(t, o.Key, twoKey)
	trusts(two)
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	if err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

// TestClientCertificates: a client may have no certificate, or one that the CA signed. With another one no request is made. A
// replaced CA counts from the next connection on.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	o := Options{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), ClientCA: filepath.Join(dir, "ca"), AnyHost: true}
	cert, key := certificate(t)
	write(t, o.Cert, cert)
	write(t, o.Key, key)
	if _, err := New(Options{Listen: "127.0.0.1:0", Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA, Log: zap.NewNop()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the CA: %v", err)
	}
	write(t, o.ClientCA, "none")
	if _, err := New(Options{Listen: "127.0.0.1:0", Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA, Log: zap.NewNop()}); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("with a CA that is none: %v", err)
	}
	user, userKey := certificate(t)
	other, otherKey := certificate(t)
	write(t, o.ClientCA, user)
	o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.TLS.VerifiedChains); n != len(r.TLS.PeerCertificates) {
			t.Errorf("%d certificates and %d chains", len(r.TLS.PeerCertificates), n)
		}
		_, _ = io.WriteString(w, strconv.Itoa(len(r.TLS.PeerCertificates)))
	})
	address := run(t, o)
	with := func(cert, key string) *http.Transport {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(one(t, o.Cert)))
		c := &tls.Config{RootCAs: pool}
		if cert != "" {
			pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return &http.Transport{TLSClientConfig: c}
	}
	refused := func(cert, key string) {
		t.Helper()
		transport := with(cert, key)
		defer transport.CloseIdleConnections()
		if a, err := (&http.Client{Transport: transport}).Get("https://" + address); err == nil {
			_ = a.Body.Close()
			t.Error("a certificate of another CA is admitted")
		}
	}
	get(t, with("", ""), "https://"+address, "0")
	get(t, with(user, userKey), "https://"+address, "1")
	refused(other, otherKey)
	write(t, o.ClientCA, other)
	get(t, with(other, otherKey), "https://"+address, "1")
	refused(user, userKey)
}

func one(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bridge"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var c, k bytes.Buffer
	_ = pem.Encode(&c, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = pem.Encode(&k, &pem.Block{Type: "PRIVATE KEY", Bytes: text})
	return c.String(), k.String()
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
