package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// startNATS starts a real server and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	return srv.ClientURL()
}

// jetStream connects to a server until the test ends.
func jetStream(t *testing.T, url string) natsgo.JetStreamContext {
	t.Helper()
	nc, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// messagesOn returns the messages of a stream, in order.
func messagesOn(t *testing.T, js natsgo.JetStreamContext, stream string) (all []*natsgo.RawStreamMsg) {
	t.Helper()
	info, err := js.StreamInfo(stream)
	if err != nil {
		t.Fatal(err)
	}
	for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
		m, err := js.GetMsg(stream, n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// runNATS opens sink and checkpoint as a running bridge does.
func runNATS(t *testing.T, path string) (bus sink.Sink, store *nats.Store, stop func()) {
	t.Helper()
	c, err := config.LoadPart(path, nil, config.Whole)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := sinkSpec(c, &c.Sinks[0], zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	bus, any, _, err := spec.Open(t.Context(), testIdentity("live"))
	if err != nil {
		t.Fatal(err)
	}
	store = any.(*nats.Store)
	if err := errors.Join(bus.Open(t.Context(), nil), store.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	return bus, store, func() {
		if err := errors.Join(store.Close(), bus.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A checkpoint in a bucket can be shown and reset like any other. `checkpoint show` does not disturb a running
// bridge, and `checkpoint reset` fences it. If the NATS server is embedded in a running bridge, both
// fail.
func TestCheckpointOnNATS(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		t.Run(fmt.Sprintf("embedded %t", embedded), func(t *testing.T) {
			dir := t.TempDir()
			where := fmt.Sprintf("embedded: {dir: %q, listen: '127.0.0.1:0'}", filepath.Join(dir, "nats"))
			if !embedded {
				where = "url: " + startNATS(t)
			}
			path := filepath.Join(dir, "bridge.yaml")
			if err := os.WriteFile(path, []byte("cluster: prod\nresources: [pods]\nsinks: [{name: live, nats: {"+where+"}}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, "no checkpoint of bridge kubebridge, cluster prod, sink live")
			command(t, "checkpoint", "reset", "-c", path, "--yes").failed(t, exitEnvironment, "no checkpoint of bridge kubebridge, cluster prod, sink live")

			_, store, stop := runNATS(t, path)
			rememberIn(t, store)
			changes := []event.KV{{Key: []byte("s/elsewhere"), Value: []byte("2")}}
			if err := store.Commit(t.Context(), changes); err != nil {
				t.Fatal(err)
			}
			if embedded {
				command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, filepath.Join(dir, "nats"), "in use by another process")
				command(t, "checkpoint", "reset", "-c", path, "--yes").failed(t, exitEnvironment, "in use by another process")
				stop()
			}
			show := func() inspect.Checkpoint {
				t.Helper()
				got := shown(t, "-c", path)
				if len(got) != 1 {
					t.Fatalf("shows %v", got)
				}
				return got[0]
			}
			bucket := "bucket kubebridge_kubebridge_5b8f1c34_live"
			want := inspect.Checkpoint{
				Path: bucket, Identity: testIdentity("live"), Format: 4, Mark: "beef", Epochs: map[string]uint64{"": 1, "elsewhere": 2}, Owed: []string{},
				Collections: []inspect.Collection{{
					ID: "pods", Phase: "in step", Run: firstRun, Incarnation: firstRun, Epoch: 1, Position: "42", Seen: "42", Objects: durable.Holdings{Published: 2},
				}},
			}
			if diff := cmp.Diff(want, show()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !embedded {
				if err := store.Commit(t.Context(), changes); err != nil {
					t.Errorf("after somebody looked: %v", err)
				}
			}
			command(t, "checkpoint", "reset", "-c", path).failed(t, exitConfig, "add --yes")
			out := command(t, "checkpoint", "reset", "-c", path, "--yes").ok(t)
			if !strings.HasPrefix(out, bucket+": ") || !strings.Contains(out, "the next start resets every collection") {
				t.Errorf("reset says %q", out)
			}
			want.Reset = true
			if diff := cmp.Diff(want, show()); diff != "" {
				t.Errorf("after the reset (-want +got):\n%s", diff)
			}
			if !embedded {
				for range 2 {
					if err := store.Commit(t.Context(), changes); err == nil {
						t.Error("the bridge that was running could still write")
					}
				}
				stop()
			}
			if out := command(t, "checkpoint", "reset", "--forget", "-c", path, "--yes").ok(t); !strings.Contains(out, "emptied") {
				t.Errorf("reset --forget says %q", out)
			}
			_, store, stop = runNATS(t, path)
			defer stop()
			reset, err := store.Get(checkpoint.ResetKey())
			if err != nil || !bytes.Equal(reset, checkpoint.ResetRequested()) {
				t.Errorf("after --forget the next start finds %q, %v", reset, err)
			}
		})
	}
}

// `checkpoint show` does not create a checkpoint of an embedded server.
func TestCheckpointOfNoEmbeddedServer(t *testing.T) {
	dir := t.TempDir()
	path, missing := filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "nats")
	text := fmt.Sprintf("cluster: prod\nresources: [pods]\nsinks: [{name: a, nats: {embedded: {dir: %q, listen: '127.0.0.1:0'}}}]\n", missing)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, "nats.embedded.dir", missing)
	command(t, "checkpoint", "reset", "-c", path, "--yes").failed(t, exitEnvironment, missing)
	if _, err := os.Stat(missing); err == nil {
		t.Error("the directory was made")
	}
}

// The key of the digests is in the bucket, so that another replica continues with it. The key is not in the stream,
// because readers of the stream have the digests.
func TestKeyOfDigestsOnNATS(t *testing.T) {
	smallCluster(t)
	url := startNATS(t)
	path := filepath.Join(t.TempDir(), "bridge.yaml")
	write(t, path, "cluster: prod\nresources: [pods]\nsinks: [{name: live, nats: {url: "+url+"}}]\n")
	log, stop := start(t, path)
	log.awaits(t, `"msg":"synced"`)
	if code := stop(); code != exitOK {
		t.Fatalf("the bridge ends with %d:\n%s", code, log)
	}
	_, store, leave := runNATS(t, path)
	key, err := durable.LoadKey(store)
	leave()
	if err != nil || key == nil {
		t.Fatalf("the next replica finds the key %x: %v", key, err)
	}
	states := 0
	for _, m := range messagesOn(t, jetStream(t, url), "K8S_prod") {
		_, text, _ := strings.Cut(m.Header.Get("Kubebridge-State"), ":")
		state, err := base64.RawStdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if states += min(len(state), 1); bytes.Contains(state, key) || bytes.Contains(m.Data, key) {
			t.Errorf("message %d has the key", m.Sequence)
		}
	}
	if states == 0 {
		t.Error("no message has a state")
	}
}
