package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
)

const (
	token = "a-token-of-a-test"
	item  = `{"level":"Metadata","auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/pods","verb":"create","user":{"username":"alice"},"objectRef":{"resource":"pods","namespace":"a","name":"b","apiVersion":"v1"},"responseStatus":{"code":201}}`
	read  = `{"stage":"ResponseComplete","verb":"get","objectRef":{}}`
)

func list(items ...string) string {
	return `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{t, cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost", name + ".example"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	must(a.t, err)
	text, err := x509.MarshalECPrivateKey(private)
	must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

// memory is a Store. If wait is set, Append reports on asked, and returns when it has received from wait.
type memory struct {
	mu      sync.Mutex
	records []audit.Record
	err     error
	asked   chan struct{}
	wait    chan struct{}
}

func (m *memory) Append(records []audit.Record) error {
	if m.wait != nil {
		m.asked <- struct{}{}
		<-m.wait
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.records = append(m.records, records...)
	}
	return m.err
}

// rig is a server that runs.
type rig struct {
	t       testing.TB
	dir     string
	ca      *authority
	options Options
	store   *memory
	server  *Server
	logs    *observer.ObservedLogs
	cancel  context.CancelFunc
	done    chan error
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name string, text []byte) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(name), text, 0o600))
}

func newRig(t testing.TB, change func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), ca: newAuthority(t, "ca"), store: &memory{}, done: make(chan error, 1)}
	cert, key := r.ca.issue("server")
	r.write("cert", cert)
	r.write("key", key)
	r.write("token", []byte(token+"\n"))
	core, logs := observer.New(zapcore.WarnLevel)
	r.logs = logs
	r.options = Options{
		Listen: "127.0.0.1:0", Cert: r.path("cert"), Key: r.path("key"), TokenFile: r.path("token"),
		Parser: audit.NewParser(audit.Options{}), Store: r.store, Log: zap.New(core),
	}
	if change != nil {
		change(r)
	}
	var err error
	r.server, err = New(r.options)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- r.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-r.done)
	})
	return r
}

// client returns a client with a certificate, or without one if name is "". It opens a connection of its own.
func (r *rig) client(ca *authority, name string) *http.Client {
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	c.RootCAs.AddCert(r.ca.cert)
	if name != "" {
		cert, key := ca.issue(name)
		pair, err := tls.X509KeyPair(cert, key)
		must(r.t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	t := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// request returns a request with the token.
func (r *rig) request(body io.Reader) *http.Request {
	req, err := http.NewRequest(http.MethodPost, "https://"+r.server.Addr().String()+"/audit?timeout=30s", body)
	must(r.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

func (r *rig) do(c *http.Client, req *http.Request) (code int, header http.Header, text string) {
	r.t.Helper()
	res, err := c.Do(req)
	must(r.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	must(r.t, err)
	return res.StatusCode, res.Header, string(b)
}

func (r *rig) send(c *http.Client, body string) (code int, header http.Header, text string) {
	r.t.Helper()
	return r.do(c, r.request(strings.NewReader(body)))
}

func (r *rig) want(c *http.Client, body string, code int) {
	r.t.Helper()
	if got, _, text := r.send(c, body); got != code {
		r.t.Errorf("got %d %s, want %d", got, text, code)
	}
}

// A batch that is answered with 200 is durable: the answer must not come before the store's.
func TestAnswerComesAfterTheStore(t *testing.T) {
	r := newRig(t, func(r *rig) { r.store.asked, r.store.wait = make(chan struct{}), make(chan struct{}) })
	answered := make(chan int)
	c := r.client(nil, "")
	go func() {
		code, _, _ := r.send(c, list(item, read, `5`, item))
		answered <- code
	}()
	<-r.store.asked
	select {
	case code := <-answered:
		t.Fatalf("the answer %d came before the records were durable", code)
	default:
	}
	if got := r.server.Counters(); got != (Counters{}) {
		t.Errorf("counted %+v before the answer", got)
	}
	r.store.wait <- struct{}{}
	if code := <-answered; code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	if len(r.store.records) != 2 || r.store.records[0].Actor.User.Name != "alice" {
		t.Errorf("stored %+v", r.store.records)
	}
	want := Counters{Accepted: 1, Bytes: uint64(len(list(item, read, `5`, item))), Events: 4, Stored: 2, Unparsable: 1}
	want.Dropped[audit.DropRead] = 1
	if got := r.server.Counters(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if r.logs.FilterMessageSnippet("do not parse").Len() != 1 {
		t.Error("no sample of unparsable events is logged")
	}
}

func TestRefusals(t *testing.T) {
	lost := 0
	r := newRig(t, func(r *rig) {
		r.options.MaxBody, r.options.Refused = 2000, func([]audit.Record, error) { lost++ }
	})
	c := r.client(nil, "")
	var want Counters
	for _, one := range []struct {
		name   string
		change func(*http.Request)
		body   string
		code   int
		why    Refusal
	}{
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, list(item), 401, RefusedClient},
		{"another scheme", func(r *http.Request) { r.SetBasicAuth("a", token) }, list(item), 401, RefusedClient},
		{"wrong token", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") }, list(item), 401, RefusedClient},
		{"wrong token and a large body", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, strings.Repeat(" ", 9000), 401, RefusedClient},
		{"GET", func(r *http.Request) { r.Method = http.MethodGet }, "", 405, RefusedForm},
		{"another type", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, list(item), 415, RefusedForm},
		{"compressed", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, list(item), 415, RefusedForm},
		{"no list", nil, item, 400, RefusedForm},
		{"another version", nil, strings.Replace(list(item), "/v1", "/v1beta1", 1), 400, RefusedForm},
		{"torn", nil, list(item)[:100], 400, RefusedForm},
		{"too large", nil, list(item) + strings.Repeat(" ", 2000), 413, RefusedSize},
		{"too large, of unknown length", func(r *http.Request) { r.ContentLength = -1 }, list(item) + strings.Repeat(" ", 2000), 413, RefusedSize},
	} {
		req := r.request(strings.NewReader(one.body))
		if one.change != nil {
			one.change(req)
		}
		code, header, text := r.do(c, req)
		if code != one.code || header.Get("Retry-After") != "" {
			t.Errorf("%s: got %d with Retry-After %q, want %d: %s", one.name, code, header.Get("Retry-After"), one.code, text)
		}
		want.Refused[one.why]++
	}
	if got := r.server.Counters(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if lost != 5 {
		t.Errorf("%d batches may be lost, want the 2 that are too large, and the 3 that are no lists: others have no batch, or no credentials", lost)
	}
	if len(r.store.records) > 0 {
		t.Errorf("stored %+v", r.store.records)
	}
	r.want(c, list(item)+strings.Repeat(" ", 2000-len(list(item))), 200) // the limit itself
	for _, entry := range r.logs.All() {
		if strings.Contains(fmt.Sprint(entry.Message, entry.ContextMap()), "alice") {
			t.Errorf("a value of an event is logged: %v %v", entry.Message, entry.ContextMap())
		}
	}
}

// The API server repeats these for minutes, and drops the batch later.
func TestRetriesAreAskedFor(t *testing.T) {
	lost := 0
	r := newRig(t, func(r *rig) { r.options.Refused = func([]audit.Record, error) { lost++ } })
	c := r.client(nil, "")
	for _, one := range []struct {
		err  error
		code int
	}{{fmt.Errorf("append: %w", inbox.ErrFull), 429}, {errors.New("disk failed"), 503}} {
		r.store.err = one.err
		code, header, _ := r.send(c, list(item))
		if code != one.code || header.Get("Retry-After") == "" {
			t.Errorf("%v: got %d with Retry-After %q, want %d", one.err, code, header.Get("Retry-After"), one.code)
		}
	}
	r.store.err = nil
	must(t, os.Remove(r.path("token")))
	if code, header, _ := r.send(c, list(item)); code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("without the token file: got %d with Retry-After %q", code, header.Get("Retry-After"))
	}
	if lost != 3 {
		t.Errorf("%d of 3 refused batches may be lost", lost)
	}
	r.write("token", []byte("another-token-of-a-test"))
	r.want(c, list(item), 401)
	req := r.request(strings.NewReader(list(item)))
	req.Header.Set("Authorization", "Bearer another-token-of-a-test")
	if code, _, text := r.do(c, req); code != 200 {
		t.Errorf("with the new token: got %d %s", code, text)
	}
}

// A batch that is refused may be lost. Records of another replica are not: it repeats them until they are accepted.
func TestOnlyBatchesMayBeLost(t *testing.T) {
	var lost []string
	r := newRig(t, func(r *rig) {
		r.options.MaxBody, r.options.Leads, r.store.err = 2000, func() bool { return true }, fmt.Errorf("append: %w", inbox.ErrFull)
		r.options.Refused = func(records []audit.Record, why error) {
			for _, one := range records {
				lost = append(lost, one.Actor.User.Name)
			}
			lost = append(lost, why.Error())
		}
	})
	c := r.client(nil, "")
	long := strings.Repeat(" ", 2001)
	for _, one := range []struct {
		path, body string
		code       int
	}{{RecordsPath, `[{"id":"a","stage":2}]`, 429}, {RecordsPath, long, 413}, {"/audit", list(item), 429}, {"/audit", long, 413}} {
		req := r.request(strings.NewReader(one.body))
		req.URL.Path = one.path
		if code, _, text := r.do(c, req); code != one.code {
			t.Errorf("%s: got %d %s, want %d", one.path, code, text, one.code)
		}
	}
	if got := strings.Join(lost, ", "); got != "alice, a batch was refused: the inbox is full, a batch was refused: the limit is 2000 bytes" {
		t.Errorf("lost may be %q", got)
	}
}

// What another replica sends is held to what a parser can make, and counts as memory: a client that has the token stops no replica.
func TestRecordsOfAReplica(t *testing.T) {
	const limit = 2 << 20
	r := newRig(t, func(r *rig) { r.options.MaxBody, r.options.Leads = limit, func() bool { return true } })
	c := r.client(nil, "")
	send := func(body string) (int, string) {
		req := r.request(strings.NewReader(body))
		req.URL.Path = RecordsPath
		code, _, text := r.do(c, req)
		return code, text
	}
	for _, one := range []struct {
		name, body string
		code       int
	}{
		{"a record and a loss", `[{"id":"a","stage":2},{"id":"b","lost":{"until":"2026-11-26T00:00:00Z","detail":"d"}}]`, 200},
		{"none", `[]`, 200},
		{"no array", `{"id":"a","stage":2}`, 400},
		{"two texts", `[] []`, 400},
		{"no record", `[{"id":"a","stage":2},null]`, 400},
		{"an empty record", `[{}]`, 400},
		{"an unknown stage", `[{"stage":9}]`, 400},
		{"a number that is too large", `[{"stage":900}]`, 400},
		{"the year 10000 in UTC", `[{"stage":2,"received":"9999-12-31T23:59:59-01:00"}]`, 400},
		{"the year 10000 in a loss", `[{"lost":{"until":"9999-12-31T23:59:59-01:00","detail":"d"}}]`, 400},
		{"a long text", `[{"stage":2,"uri":"` + strings.Repeat("x", limit*3/4) + `"}]`, 400},
		{"more than the memory for them", `[` + strings.Repeat(`{"stage":2},`, 4<<10) + `{"stage":2}]`, 429},
		{"many empty records", `[` + strings.Repeat(`{},`, limit/3-1) + `{}]`, 400},
		{"all memory is free again", `[` + strings.Repeat(`{"stage":2},`, 1<<10) + `{"stage":2}]`, 200},
	} {
		if code, text := send(one.body); code != one.code {
			t.Errorf("%s: got %d %s, want %d", one.name, code, text, one.code)
		}
	}
	if got := len(r.store.records); got != 2+1+1<<10 {
		t.Errorf("%d records are stored, want those of the requests that were answered with 200", got)
	}
}

// A sender that is slow is cut off, over HTTP/1.1 and HTTP/2.
func TestSlowSender(t *testing.T) {
	r := newRig(t, func(r *rig) { r.options.BodyTime = 100 * time.Millisecond })
	for _, http2 := range []bool{false, true} {
		c := r.client(nil, "")
		c.Transport.(*http.Transport).ForceAttemptHTTP2 = http2
		body, w := io.Pipe()
		go func() { _, _ = w.Write([]byte(list(item)[:20])) }()
		res, err := c.Do(r.request(body))
		if err == nil {
			must(t, res.Body.Close())
			if res.StatusCode != http.StatusRequestTimeout || res.ProtoMajor == 2 != http2 {
				t.Errorf("HTTP/2 %v: got %s %s", http2, res.Proto, res.Status)
			}
		}
		must(t, w.Close())
	}
	if n := r.server.Counters().Refused[RefusedSlow]; n != 2 {
		t.Errorf("%d requests were refused as slow, want 2", n)
	}
}

// Senders that keep bodies back use memory only for what they have sent.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 1 << 20
	r := newRig(t, func(r *rig) { r.options.MaxBody = limit })
	var open []*io.PipeWriter
	results := make(chan int, 10)
	for range 3 { // each sends more than two thirds of the limit for one
		body, w := io.Pipe()
		open = append(open, w)
		c := r.client(nil, "")
		go func() {
			res, err := c.Do(r.request(body))
			if err != nil {
				results <- 0
				return
			}
			_ = res.Body.Close()
			results <- res.StatusCode
		}()
		_, _ = w.Write(bytes.Repeat([]byte(" "), limit*9/10)) // an error: the answer came before
	}
	if code := <-results; code != http.StatusTooManyRequests {
		t.Errorf("got %d, want 429", code)
	}
	for _, w := range open {
		_, _ = w.Write([]byte(list(item)))
		must(t, w.Close())
	}
	for range 2 {
		if code := <-results; code != http.StatusOK {
			t.Errorf("got %d for a body that was announced before, want 200", code)
		}
	}
	r.want(r.client(nil, ""), list(item), 200)
}

func TestClientCertificates(t *testing.T) {
	other := newAuthority(t, "other")
	r := newRig(t, func(r *rig) {
		r.write("ca", r.ca.pem)
		r.options.ClientCA, r.options.ClientNames, r.options.TokenFile = r.path("ca"), []string{"apiserver", "second.example"}, ""
	})
	refused := func(c *http.Client) {
		t.Helper()
		if res, err := c.Do(r.request(strings.NewReader(list(item)))); err == nil {
			_ = res.Body.Close()
			t.Errorf("got %s, want no connection", res.Status)
		}
	}
	r.want(r.client(r.ca, "apiserver"), list(item), 200)
	r.want(r.client(r.ca, "second"), list(item), 200)
	r.want(r.client(r.ca, "kubelet"), list(item), 403)
	refused(r.client(nil, ""))
	refused(r.client(other, "apiserver"))

	r.write("ca", other.pem)
	r.want(r.client(other, "apiserver"), list(item), 200)
	refused(r.client(r.ca, "apiserver"))
	r.write("ca", []byte("torn")) // the previous one stays
	r.want(r.client(other, "apiserver"), list(item), 200)

	old := r.ca
	r.ca = newAuthority(t, "new")
	cert, key := r.ca.issue("server")
	r.write("cert", cert)                 // the key is of the other one
	refused(r.client(other, "apiserver")) // the server still has the previous one
	r.write("key", key)
	r.write("ca", old.pem)
	r.want(r.client(old, "apiserver"), list(item), 200)
}

func TestConfigurationIsChecked(t *testing.T) {
	r := newRig(t, nil)
	for name, change := range map[string]func(*Options){
		"no credentials":       func(o *Options) { o.TokenFile = "" },
		"absent token":         func(o *Options) { o.TokenFile = r.path("absent") },
		"absent certificate":   func(o *Options) { o.Cert = r.path("absent") },
		"CA without content":   func(o *Options) { o.ClientCA = r.path("token") },
		"address that is used": func(o *Options) { o.Listen = r.server.Addr().String() },
	} {
		o := r.options
		change(&o)
		if s, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
			must(t, s.Close())
		}
	}
}

// A stop lets the requests end that wait for the store, since their records may be durable already.
func TestStopAnswersWhatIsBeingStored(t *testing.T) {
	r := newRig(t, func(r *rig) { r.store.asked, r.store.wait = make(chan struct{}), make(chan struct{}) })
	answered := make(chan int)
	c := r.client(nil, "")
	go func() {
		code, _, _ := r.send(c, list(item))
		answered <- code
	}()
	<-r.store.asked
	r.cancel()
	r.store.wait <- struct{}{}
	if code := <-answered; code != http.StatusOK {
		t.Errorf("got %d", code)
	}
}

// from makes a client connect from another address of this machine.
func from(c *http.Client, ip net.IP) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
	c.Transport.(*http.Transport).DialContext = dialer.DialContext
	return c
}

// Connections that send the beginning of a request and nothing more are limited by address, keep no other sender out, and are closed soon.
func TestHalfSentRequests(t *testing.T) {
	r := newRig(t, nil)
	roots := x509.NewCertPool()
	roots.AddCert(r.ca.cert)
	const tried = perAddress + 30
	closed := make(chan error, tried)
	begun := make(chan bool, tried)
	for i := range tried {
		go func() {
			raw, err := net.Dial("tcp", r.server.Addr().String())
			if err != nil {
				begun <- false
				closed <- err
				return
			}
			defer raw.Close()
			_ = raw.SetDeadline(time.Now().Add(time.Minute))
			c := raw
			if i%2 == 0 { // the others do not even begin with the handshake
				c = tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
				_, err = io.WriteString(c, "POST /audit HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
			}
			begun <- err == nil
			_, err = io.Copy(io.Discard, c)
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				err = nil // the server has closed the connection
			}
			closed <- err
		}()
	}
	for range tried {
		<-begun
	}
	r.want(from(r.client(nil, ""), net.IPv4(127, 0, 0, 2)), list(item), 200)
	for range tried {
		if err := <-closed; err != nil {
			t.Fatalf("a connection that sends nothing is still open: %v", err)
		}
	}
	r.want(r.client(nil, ""), list(item), 200)
}

// What a user can choose does not keep the other events of a batch out, and does not fill the disk.
func TestHostileEvents(t *testing.T) {
	r := newRig(t, nil)
	hostile := strings.Replace(item, `{"username":"alice"}`, `{"username":"a\u0000\u001b[2J\n\u202e","groups":["`+strings.Repeat("g", 1<<20)+`"],"extra":{"k":["`+strings.Repeat(`\u0001`, 1<<18)+`"]}}`, 1)
	if hostile == item {
		t.Fatal("the event has no user")
	}
	r.want(r.client(nil, ""), list(item, hostile, item), 200)
	if len(r.store.records) != 3 {
		t.Fatalf("%d records were stored, want 3", len(r.store.records))
	}
	if name := r.store.records[1].Actor.User.Name; name != "a\x00\x1b[2J\n\u202e" {
		t.Errorf("the user's name became %q", name)
	}
	text, err := json.Marshal(r.store.records[1])
	must(t, err)
	if len(text) > 512<<10 || !r.store.records[1].Cut {
		t.Errorf("the record has %d bytes, and is cut: %v", len(text), r.store.records[1].Cut)
	}
}
