package forward

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/inbox"
	"github.com/kubebridge/kubebridge/internal/attribution/webhook"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files writes a certificate for 127.0.0.1, which is its own CA, its key, and a token.
func files(t *testing.T) (cert, key, token string) {
	t.Helper()
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bridge"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	text, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return write("cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write("key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})), write("token", []byte("a-token-of-a-test\n"))
}

func open(t *testing.T) *inbox.Inbox {
	t.Helper()
	box, err := inbox.Open(t.TempDir(), inbox.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, box.Close()) })
	return box
}

// ids returns the IDs of the records in an inbox.
func ids(t *testing.T, box *inbox.Inbox) (out []string) {
	t.Helper()
	r := box.Reader(inbox.Position{})
	defer func() { must(t, r.Close()) }()
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		out = append(out, item.Record.ID)
	}
}

// run runs f until the test ends, or the result is called.
func run(t *testing.T, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Every record that a standby has accepted comes to the leader, in order, also if none leads for a while, and after a restart.
func TestRecordsComeToTheLeader(t *testing.T) {
	cert, key, token := files(t)
	standby, leader := open(t), open(t)
	var leads atomic.Bool
	server, err := webhook.New(webhook.Options{
		Listen: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: cert, TokenFile: token, Parser: audit.NewParser(audit.Options{}), Store: leader, Leads: leads.Load, Log: zap.NewNop(),
	})
	must(t, err)
	run(t, func(ctx context.Context) {
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var address atomic.Pointer[string]
	failures := make(chan error, 100)
	var at inbox.Position
	options := Options{
		Inbox: standby, CAFile: cert, Cert: cert, Key: key, TokenFile: token, Failed: func(err error) { failures <- err },
		Sent: func(p inbox.Position) { at = p },
		Lost: func(err error) { t.Errorf("lost: %v", err) },
		Leader: func() string {
			if a := address.Load(); a != nil {
				return *a
			}
			return ""
		},
	}
	var want []string
	add := func(n int) {
		var records []audit.Record
		for range n {
			id := fmt.Sprintf("r%d", len(want))
			want = append(want, id)
			records = append(records, audit.Record{ID: id, Stage: audit.Complete})
		}
		must(t, standby.Append(records))
	}
	await := func(what string, accepted func(error) bool) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		for {
			select {
			case err := <-failures:
				if accepted(err) {
					return
				}
			case <-deadline:
				t.Fatalf("no %s", what)
			}
		}
	}
	fails := func(err error) bool { return err != nil }
	sent := func(err error) bool { return err == nil }

	add(atOnce + 5)
	stop := run(t, New(options).Run)
	await("error without a leader", fails)
	of := server.Addr().String()
	address.Store(&of)
	await("error while it does not lead", func(err error) bool {
		return err != nil && err.Error() != "no replica leads, or its address is not known"
	})
	if got := ids(t, leader); len(got) != 0 {
		t.Fatalf("a replica that does not lead took %d records", len(got))
	}
	leads.Store(true)
	await("first batch", sent)
	await("second batch", sent)
	add(3)
	await("third batch", sent)
	if got := ids(t, leader); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the leader has %d records, want %d in order", len(got), len(want))
	}
	stop()
	add(2)
	options.From = at
	run(t, New(options).Run)
	await("batch after a restart", sent)
	if got := ids(t, leader); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restart the leader has %d records, want %d: the last ones are %v", len(got), len(want), got[len(got)-3:])
	}
}
