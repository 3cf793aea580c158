package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/checkpointtest"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

func TestMain(m *testing.M) {
	checkpointtest.Main(m, openPlace, brokerGoroutines()...)
}

// brokerGoroutines lists the broker's own goroutines, which start and end with connections.
func brokerGoroutines() []goleak.Option {
	var o []goleak.Option
	for _, f := range []string{"(*clientConn).read", "(*clientConn).read.func3", "(*clientConn).write", "(*clientConn).write.func1", "(*Cluster).run", "(*broker).listen"} {
		o = append(o, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake."+f))
	}
	return o
}

// gate is a broker's listener that can cut the broker off.
type gate struct {
	net.Listener
	mu    sync.Mutex
	down  bool
	mute  bool // lose the next answer and its connection
	conns map[*gated]struct{}
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		if g.down {
			g.mu.Unlock()
			c.Close()
			continue
		}
		gc := &gated{Conn: c, gate: g}
		g.conns[gc] = struct{}{}
		g.mu.Unlock()
		return gc, nil
	}
}

func (g *gate) set(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
	if down {
		for c := range g.conns {
			c.Conn.Close()
		}
	}
}

// loseAnswer closes the connection on which the broker sends its next answer, and drops the answer.
func (g *gate) loseAnswer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = true
}

type gated struct {
	net.Conn
	gate *gate
}

func (c *gated) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	mute := c.gate.mute
	c.gate.mute = false
	c.gate.mu.Unlock()
	if mute {
		c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

func (c *gated) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// bus is a Kafka cluster in this process.
type bus struct {
	*kfake.Cluster
	brokers []string
	gates   []*gate
}

func startBus(t *testing.T, opts ...kfake.Opt) *bus {
	t.Helper()
	b := &bus{}
	listen := kfake.ListenFn(func(network, address string) (net.Listener, error) {
		ln, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		g := &gate{Listener: ln, conns: map[*gated]struct{}{}}
		b.gates = append(b.gates, g)
		return g, nil
	})
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), listen}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b.Cluster, b.brokers = cluster, cluster.ListenAddrs()
	return b
}

func (b *bus) stop(*testing.T) {
	for _, g := range b.gates {
		g.set(true)
	}
}

func (b *bus) start(*testing.T) {
	for _, g := range b.gates {
		g.set(false)
	}
}

// topic creates a topic with max.message.bytes; 0 means the broker's default.
func (b *bus) topic(t *testing.T, name string, partitions int32, maxBytes int) {
	t.Helper()
	configs := map[string]string{}
	if maxBytes > 0 {
		configs["max.message.bytes"] = fmt.Sprint(maxBytes)
	}
	if err := b.CreateTopic(name, partitions, configs); err != nil {
		t.Fatal(err)
	}
}

func (b *bus) config() Config {
	return Config{Brokers: b.brokers, Delivery: atLeastOnce, Create: Create{Partitions: 4}}
}

var identity = event.Identity{Bridge: "test", Cluster: "c", ClusterUID: "uid", Sink: "audit"}

func newSink(t *testing.T, c Config) *Sink {
	t.Helper()
	s, err := New(Options{Config: c, Identity: identity, Logger: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openSink returns a sink that is open until the test ends.
func openSink(t *testing.T, c Config) *Sink {
	t.Helper()
	s := newSink(t, c)
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// consumed is a message with the properties that only Kafka has.
type consumed struct {
	sinktest.Message
	key  []byte
	time time.Time
}

// consume reads every record of a topic, in order within each partition, with a consumer that is independent of the sink.
func (b *bus) consume(t *testing.T, topic string) []consumed {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.brokers...), Transport: transport}
	var all []consumed
	for _, p := range b.PartitionInfos(topic) {
		for offset := int64(0); offset < p.HighWatermark; {
			resp, err := client.Fetch(t.Context(), &kafka.FetchRequest{
				Topic: topic, Partition: int(p.Partition), Offset: offset, MinBytes: 1, MaxBytes: 64 << 20, MaxWait: time.Second,
			})
			if err == nil {
				err = resp.Error
			}
			if err != nil {
				t.Fatalf("consume %s/%d: %v", topic, p.Partition, err)
			}
			for {
				r, err := resp.Records.ReadRecord()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("consume %s/%d: %v", topic, p.Partition, err)
				}
				if r.Offset >= offset {
					all = append(all, toMessage(t, topic, int(p.Partition), r))
					offset = r.Offset + 1
				}
			}
		}
	}
	return all
}

func toMessage(t *testing.T, topic string, partition int, r *kafka.Record) consumed {
	t.Helper()
	read := func(b kafka.Bytes) []byte {
		if b == nil {
			return nil
		}
		v, err := kafka.ReadAll(b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	c := consumed{key: read(r.Key), time: r.Time}
	c.Message = sinktest.Message{
		Route: topic, Key: string(c.key), Partition: partition, Value: read(r.Value), Headers: map[string]string{},
	}
	for _, h := range r.Headers {
		c.Headers[h.Key] = string(h.Value)
	}
	return c
}

// record makes a record whose value is pad bytes of x behind id.
func record(topic, key, id string, pad int) event.Record {
	return event.Record{ID: id, Route: topic, Key: key, Value: append([]byte(id), slices.Repeat([]byte("x"), pad)...)}
}

// values returns the ids of the records in each partition, in order.
func values(msgs []consumed) map[int][]string {
	v := map[int][]string{}
	for _, m := range msgs {
		id := m.Value
		for len(id) > 0 && id[len(id)-1] == 'x' {
			id = id[:len(id)-1]
		}
		v[m.Partition] = append(v[m.Partition], string(id))
	}
	return v
}

// writeAll retries like a pipeline until the batch is written, and returns the errors of the failed attempts.
func writeAll(t *testing.T, s *Sink, b *event.Batch) (errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := s.Write(ctx, b)
		if err == nil {
			return errs
		}
		errs = append(errs, err)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("batch %d was not taken: %v", b.Seq, err)
		}
	}
}
