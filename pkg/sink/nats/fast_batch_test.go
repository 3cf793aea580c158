package nats

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// withoutFastBatches creates the stream as on a server without fast batches, and returns a configuration that does not change
// this.
func (b *bus) withoutFastBatches(t *testing.T) Config {
	t.Helper()
	c := Config{URL: b.url(), Stream: Stream{Create: new(false)}}
	definition, err := c.StreamDefinition(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	var config jetstream.StreamConfig
	if err := json.Unmarshal(definition, &config); err != nil {
		t.Fatal(err)
	}
	config.AllowBatchPublish = false
	js := b.client(t)
	defer js.Conn().Close()
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return c
}

// A server older than 2.14 gets chunks that are stored as a whole.
func TestSuiteWithoutFastBatches(t *testing.T) {
	sinktest.RunParallel(t, func(t *testing.T) *sinktest.Harness {
		b := startBus(t, nil)
		h := harness(t, b)
		c := b.withoutFastBatches(t)
		h.New = func(t *testing.T) sink.Sink { return newSink(t, c) }
		return h
	})
}

// A stream that the bridge creates or adopts accepts fast batches. A stream that the bridge already owns is not changed,
// because other servers of the cluster may be older than the one that answers.
func TestWhichStreamsTakeFastBatches(t *testing.T) {
	t.Parallel()
	b := startBus(t, nil)
	created := newSink(t, Config{URL: b.url()})
	mustOpen(t, created, nil)
	if !created.stream.config.AllowBatchPublish {
		t.Error("a created stream takes no fast batches")
	}
	old := startBus(t, nil)
	old.withoutFastBatches(t)
	s := newSink(t, Config{URL: old.url()})
	mustOpen(t, s, nil)
	if s.stream.config.AllowBatchPublish {
		t.Error("a stream that took no fast batches was changed")
	}
}

// Messages behind one of a fast batch that is refused or lost must not be stored, not even if a message of another writer has
// taken its place and the stream has the length that they expect.
func TestFastBatchEndsAtItsFirstFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, b *bus, s *Sink, c *chunk){
		"a foreign message": func(t *testing.T, b *bus, _ *Sink, _ *chunk) {
			if _, err := b.client(t).Publish(t.Context(), subject, []byte(`"foreign"`)); err != nil {
				t.Fatal(err)
			}
		},
		"another writer's term": func(t *testing.T, b *bus, _ *Sink, _ *chunk) {
			mustOpen(t, newSink(t, Config{URL: b.url()}), nil)
		},
		"a message that is lost": func(_ *testing.T, _ *bus, _ *Sink, c *chunk) {
			c.msgs = append(c.msgs[:4:4], c.msgs[5:]...)
		},
		"a server that begins again": func(t *testing.T, b *bus, s *Sink, _ *chunk) {
			b.stop()
			b.start(t)
			wait(t, "the connection", s.conn.nc.IsConnected)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, func(o *server.Options) { o.SyncAlways = true })
			s := newSink(t, Config{URL: b.url()})
			mustOpen(t, s, nil)
			c, err := s.chunk(records(1, 8).Records)
			if err != nil {
				t.Fatal(err)
			}
			first, rest := *c, *c
			first.msgs = c.msgs[:4]
			if err := s.send(&first); err != nil {
				t.Fatal(err)
			}
			wait(t, "half of the batch", func() bool { return len(b.read(t)) == 4 })
			fault(t, b, s, c)
			rest.msgs = c.msgs[4:]
			if err := s.send(&rest); err != nil {
				t.Fatal(err)
			}
			if err := s.await(t.Context(), c); err == nil {
				t.Error("the batch was acknowledged")
			}
			if got := values(b.read(t)); strings.TrimSuffix(got, " foreign") != "1/0 1/1 1/2 1/3" {
				t.Errorf("the bus holds %q", got)
			}
		})
	}
}
