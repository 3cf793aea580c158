package e2e

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// exitRuntime is the exit code of a bridge that was fenced while it ran.
const exitRuntime = 1

// secureNATS starts a NATS server with TLS and a password. It returns the port, and the file of the CA to trust.
func secureNATS(t *testing.T, password string) (port int, ca string) {
	t.Helper()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate, good for 127.0.0.1
	t.Cleanup(web.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		TLS: true, TLSConfig: &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}, Username: "writer", Password: password,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	return s.Addr().(*net.TCPAddr).Port, ca
}

// The exit codes on NATS are those on Kafka (test/kafka/program): an untrusted certificate, rejected credentials
// and a bucket that cannot keep a checkpoint end the program at its start with code 3. A bridge that is
// fenced, here by `bridge checkpoint reset`, ends with code 1.
func TestExitCodesOnNATS(t *testing.T) {
	t.Parallel()
	const password = "pencil"
	port, ca := secureNATS(t, password)
	w := newWorld(t, options{types: []kube.Type{kube.ConfigMaps}})
	w.config.Checkpoint = map[string]any{"nats": map[string]any{"scratch": w.dir}}
	with := func(ca, password string) {
		conf := map[string]any{"url": fmt.Sprintf("tls://127.0.0.1:%d", port), "auth": map[string]any{"username": "writer", "password": password}}
		if ca != "" {
			conf["tls"] = map[string]any{"ca": ca}
		}
		w.config.Sinks = []bridge.Sink{{Name: "audit", NATS: conf}}
	}
	for _, wrong := range []struct{ ca, password, says string }{
		{"", password, "nats.tls.ca"},
		{ca, "wrong", "nats.auth"},
	} {
		with(wrong.ca, wrong.password)
		w.run()
		w.exits(w.bridge, exitEnvironment)
		says(t, w.bridge.Log(), wrong.says)
	}

	with(ca, password)
	w.start()
	w.create(kube.ConfigMaps, "before")
	w.exits(w.launch("checkpoint", "reset", "--yes", "-c", w.writeConfig(w.config)), 0)
	for i, ctx := 0, w.within(5*time.Minute); w.bridge.Running() && ctx.Err() == nil; i++ { // an idle bridge does not write, so make changes
		w.create(kube.ConfigMaps, fmt.Sprintf("after-%d", i))
		time.Sleep(100 * time.Millisecond)
	}
	w.exits(w.bridge, exitRuntime)
	says(t, w.bridge.Log(), "taken", "start this one again")

	nc, err := nats.Connect(fmt.Sprintf("tls://127.0.0.1:%d", port), nats.RootCAs(ca), nats.UserInfo("writer", password))
	w.must(err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	w.must(err)
	forgetful := 0
	for info := range js.ListStreams(w.soon()).Info() {
		if strings.HasPrefix(info.Config.Name, "KV_") {
			info.Config.MaxAge = time.Hour
			_, err := js.UpdateStream(w.soon(), info.Config)
			w.must(err)
			forgetful++
		}
	}
	if forgetful != 1 {
		t.Fatalf("%d buckets, want that of the checkpoint", forgetful)
	}
	w.run()
	w.exits(w.bridge, exitEnvironment)
	says(t, w.bridge.Log(), "after 1h0m0s, want never")
}
