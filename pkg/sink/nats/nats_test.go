package nats

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

var testIdentity = event.Identity{Bridge: "bridge", Cluster: "test", ClusterUID: "uid-1", Sink: "live"}

const (
	streamName = "K8S_test"
	subject    = "k8s.test.core.pods.default.web"
)

// bus is a real server, with methods to inspect and disturb it.
type bus struct {
	opts server.Options
	srv  *server.Server
}

// startBus starts a server with its data in a directory of the test.
func startBus(t testing.TB, change func(*server.Options)) *bus {
	t.Helper()
	b := &bus{opts: server.Options{
		Host: "127.0.0.1", Port: freePort(t), JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	}}
	if change != nil {
		change(&b.opts)
	}
	b.start(t)
	t.Cleanup(b.stop)
	return b
}

func (b *bus) start(t testing.TB) {
	t.Helper()
	opts := b.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready")
	}
	b.srv = srv
}

// lastPort counts the calls of freePort.
var lastPort atomic.Int64

// freePort returns a port that no other test of this process gets. It is below those that the system gives to outgoing connections, so that
// nothing takes it while its server is down.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 16000 + int(lastPort.Add(1)+int64(os.Getpid())*97)%16000
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (b *bus) stop() {
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

func (b *bus) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", b.opts.Port) }

// deleteStream deletes the pipeline's stream, at most once per bus: at a second time the server may still be deleting the files
// of the first stream. Another stream keeps the common directory.
func (b *bus) deleteStream(t *testing.T) {
	t.Helper()
	js := b.client(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEEP", Subjects: []string{"keep"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
}

// save stops the server, copies its data to a directory, and starts it again.
func (b *bus) save(t *testing.T) (dir string) {
	t.Helper()
	b.stop()
	dir = t.TempDir() + "/saved"
	copyDir(t, dir, b.opts.StoreDir)
	b.start(t)
	return dir
}

// restore takes the server back to the data that save copied, as after a power failure or from a backup.
func (b *bus) restore(t *testing.T, dir string) {
	t.Helper()
	b.stop()
	copyDir(t, b.opts.StoreDir, dir)
	b.start(t)
}

// reconfigure changes the settings of a stream as an operator does.
func reconfigure(t *testing.T, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	st, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	change(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// client connects as another user than the sink.
func (b *bus) client(t *testing.T, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	return client(t, b.url(), opts...)
}

func client(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// read returns what a subscriber of k8s.> gets from the stream, from its beginning.
func (b *bus) read(t *testing.T, opts ...nats.Option) []sinktest.Message {
	t.Helper()
	js := b.client(t, opts...)
	defer js.Conn().Close()
	return read(t, js)
}

func read(t *testing.T, js jetstream.JetStream) []sinktest.Message {
	t.Helper()
	names := js.StreamNames(t.Context(), jetstream.WithStreamListSubject("k8s.test.>"))
	name, found := <-names.Name()
	if !found {
		if err := names.Err(); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter("k8s.>"))
	if err != nil {
		t.Fatal(err)
	}
	pending := 0 // as the stream's leader counts; a consumer may be on a server that lags
	for _, n := range info.State.Subjects {
		pending += int(n)
	}
	consumer, err := js.CreateConsumer(t.Context(), name, jetstream.ConsumerConfig{
		FilterSubject: "k8s.>", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	var msgs []sinktest.Message
	for deadline := time.Now().Add(2 * time.Minute); len(msgs) < pending; {
		// Messages that arrive after the wait are lost, because the consumer acknowledges nothing.
		batch, err := consumer.Fetch(min(pending-len(msgs), 2000), jetstream.FetchMaxWait(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			headers := map[string]string{}
			for k, v := range m.Headers() {
				headers[k] = strings.Join(v, "\n")
			}
			msgs = append(msgs, sinktest.Message{Route: m.Subject(), Value: m.Data(), Headers: headers})
		}
		if time.Now().After(deadline) {
			t.Fatalf("read %d of %d messages: %v", len(msgs), pending, batch.Error())
		}
	}
	if err := js.DeleteConsumer(t.Context(), name, consumer.CachedInfo().Name); err != nil && !errors.Is(err, nats.ErrNoResponders) { // readers may not
		t.Fatal(err)
	}
	return msgs
}

func newSink(t *testing.T, c Config) *Sink {
	t.Helper()
	return newSinkOf(t, testIdentity, c)
}

func newSinkOf(t *testing.T, id event.Identity, c Config) *Sink {
	t.Helper()
	return newAny(t, id, c).(*Sink)
}

// newAny creates a sink of any delivery.
func newAny(t *testing.T, id event.Identity, c Config) sink.Sink {
	t.Helper()
	s, err := New(Options{Config: c, Identity: id, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // always nil
	return s
}

func testLog(t *testing.T) *zap.Logger {
	if os.Getenv("KUBEBRIDGE_TEST_LOG") == "" {
		return zap.NewNop()
	}
	return zaptest.NewLogger(t)
}

func harness(t *testing.T, b *bus) *sinktest.Harness {
	return &sinktest.Harness{
		New:         func(t *testing.T) sink.Sink { return newSink(t, Config{URL: b.url()}) },
		Read:        func(t *testing.T) []sinktest.Message { return b.read(t) },
		Route:       subject,
		Stop:        func(*testing.T) { b.stop() },
		Start:       func(t *testing.T) { b.start(t) },
		MaxRecord:   server.MAX_PAYLOAD_SIZE,
		ExactlyOnce: true,
		Header: func(a event.Attribute) (name, value string) {
			return "ce-" + a.Name, event.EscapeHeader(a.Value)
		},
	}
}

func TestSuite(t *testing.T) {
	sinktest.RunFormats(t, func(t *testing.T) *sinktest.Harness { return harness(t, startBus(t, nil)) })
}
