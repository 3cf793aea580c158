package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
)

// busUnderTest is the bus of one seed: its configuration, a reader, and its faults.
type busUnderTest struct {
	sink    bridge.Sink
	read    func(context.Context) ([]bus.Message, error)       // all messages
	news    func(context.Context) ([]bus.Message, error)       // the messages since its last call; nil if read is fast enough
	size    func(context.Context) (keys, bytes int, err error) // size of a checkpoint on the bus; nil if it is not measured
	timed   func(context.Context) ([]bus.Message, error)       // all messages, with the times of their arrival; nil if read returns these times, or nothing does
	byKey   bool                                               // order is kept per key only: a batch that was not acknowledged may be there in part, in any order
	proxies []*faultproxy.Proxy
	close   func()
	faults  []fault
}

// fault is a fault that the nemesis can inflict. Its function returns when the fault has ended. hurts is true if the bridge could not reach
// the bus, so that a bus that keeps no messages has lost events.
type fault struct {
	name  string
	do    func(ctx context.Context, r *chance) error
	hurts bool
	once  bool // at most once in a seed: it is slow, or its gaps excuse many transitions
	often bool // among the kinds of at least every other seed
}

// newest returns all messages, or at least those since the last call.
func (b *busUnderTest) newest(ctx context.Context) ([]bus.Message, error) {
	if b.news != nil {
		return b.news(ctx)
	}
	return b.read(ctx)
}

func (w *world) startBus() (*busUnderTest, error) {
	switch w.pair.Bus {
	case "nats":
		return w.onNATS()
	case "kafka":
		return w.onKafka()
	case "http":
		return w.onHTTP()
	case "file":
		path := filepath.Join(w.dir, "events.jsonl")
		return &busUnderTest{
			sink: bridge.Sink{File: map[string]any{"path": path, "maxSize": 256 << 10, "keep": 1000}},
			read: func(context.Context) ([]bus.Message, error) {
				all, _, err := bus.ReadFiles(path)
				return all, err
			},
			close: func() {},
		}, nil
	case "stdout":
		return &busUnderTest{
			sink:  bridge.Sink{Stdout: map[string]any{"format": "json"}},
			read:  func(context.Context) ([]bus.Message, error) { return w.outputs() },
			close: func() {},
		}, nil
	}
	return nil, fmt.Errorf("the campaign has no bus %q", w.pair.Bus)
}

// outputs returns what all processes wrote to standard output. The last line of a killed process may be incomplete, and is left out.
func (w *world) outputs() ([]bus.Message, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	path := filepath.Join(w.dir, "output")
	var all []bus.Message
	for i, p := range w.processes {
		text := p.Output()
		text = text[:strings.LastIndexByte(text, '\n')+1]
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
		lines, _, err := bus.ReadFiles(path)
		if err != nil {
			return nil, fmt.Errorf("output of process %d: %w", i, err)
		}
		all = append(all, lines...)
	}
	return all, nil
}

// connection returns the faults that proxies can cause on the bridge's connections.
func connection(name string, proxies ...*faultproxy.Proxy) []fault {
	all := func(do func(*faultproxy.Proxy)) {
		for _, p := range proxies {
			do(p)
		}
	}
	during := func(begin func(*faultproxy.Proxy), end func(*faultproxy.Proxy)) func(context.Context, *chance) error {
		return func(ctx context.Context, r *chance) error {
			all(begin)
			r.wait(ctx, 2*time.Second)
			all(end)
			return nil
		}
	}
	hold := during((*faultproxy.Proxy).Hold, (*faultproxy.Proxy).Pass)
	return []fault{
		{name: name + " cut", do: during((*faultproxy.Proxy).Cut, (*faultproxy.Proxy).Cut), hurts: true},
		{name: name + " refused", do: during((*faultproxy.Proxy).Refuse, (*faultproxy.Proxy).Pass), hurts: true},
		{name: name + " answers held", do: hold},
		{name: name + " answers lost", do: during((*faultproxy.Proxy).Hold, func(p *faultproxy.Proxy) { p.Cut(); p.Pass() }), hurts: true},
		{name: name + " half-open", do: during((*faultproxy.Proxy).Silence, (*faultproxy.Proxy).Cut), hurts: true},
	}
}

func (w *world) onNATS() (*busUnderTest, error) {
	n, err := startNATS(filepath.Join(w.dir, "nats"))
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.Start(n.addr())
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect("nats://"+n.addr(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	down := func(end, begin func() error) func(context.Context, *chance) error {
		return func(ctx context.Context, r *chance) error {
			if err := end(); err != nil {
				return err
			}
			r.wait(ctx, 1500*time.Millisecond)
			return begin()
		}
	}
	killed := func(s syscall.Signal) func() error { return func() error { n.end(s); return nil } }
	sent := func(s syscall.Signal) func() error { return func() error { n.signal(s); return nil } }
	b := &busUnderTest{
		sink:    bridge.Sink{NATS: map[string]any{"url": "nats://" + proxy.Addr(), "delivery": w.pair.Delivery}},
		proxies: []*faultproxy.Proxy{proxy},
		close: func() {
			conn.Close()
			n.end(syscall.SIGKILL)
			_ = proxy.Close()
		},
		faults: append(connection("bus", proxy),
			fault{name: "bus kill -9", do: down(killed(syscall.SIGKILL), n.start), hurts: true},
			fault{name: "bus restart", do: down(killed(syscall.SIGTERM), n.start), hurts: true},
			fault{name: "bus frozen", do: down(sent(syscall.SIGSTOP), sent(syscall.SIGCONT)), hurts: true},
		),
	}
	if w.pair.lossy() {
		b.read, err = subscribe(conn)
		return b, err
	}
	former := &incarnations{}
	b.read = func(ctx context.Context) ([]bus.Message, error) {
		now, err := bus.ReadStream(ctx, conn, 0)
		return former.and(now), err
	}
	if w.spec.soak {
		b.news, b.size = followStream(conn), bucketSize(conn)
	}
	b.faults = append(b.faults, fault{name: "bus full", do: func(ctx context.Context, r *chance) error { return full(ctx, conn, r) }})
	if w.pair.exact() {
		b.faults = append(b.faults, fault{name: "stream deleted", once: true, do: func(ctx context.Context, _ *chance) error {
			messages, err := bus.ReadStream(ctx, conn, 0)
			if err != nil {
				return err
			}
			stream, err := theStream(ctx, conn)
			if err != nil || stream == nil {
				return err
			}
			for i := range messages {
				messages[i].Forgotten = true // the stream has the newest part of the checkpoint
			}
			former.ended(messages)
			js, _ := jetstream.New(conn)
			return js.DeleteStream(ctx, stream.CachedInfo().Config.Name)
		}})
	}
	return b, nil
}

// incarnations has the messages of streams and topics that were deleted.
type incarnations struct {
	mu     sync.Mutex
	ends   int
	former []bus.Message
}

func (i *incarnations) ended(messages []bus.Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ends++
	for _, m := range messages {
		m.Place = fmt.Sprintf("%d.%s", i.ends, m.Place)
		i.former = append(i.former, m)
	}
}

func (i *incarnations) and(now []bus.Message) []bus.Message {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append(i.former[:len(i.former):len(i.former)], now...)
}

func theStream(ctx context.Context, conn *nats.Conn) (jetstream.Stream, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	name, err := js.StreamNameBySubject(ctx, bus.Subjects)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return js.Stream(ctx, name)
}

// full limits the stream's size for a time, so that it accepts almost nothing.
func full(ctx context.Context, conn *nats.Conn, r *chance) error {
	stream, err := theStream(ctx, conn)
	if err != nil || stream == nil {
		return err
	}
	js, _ := jetstream.New(conn)
	before := stream.CachedInfo().Config
	small := before
	small.MaxBytes, small.Discard = int64(stream.CachedInfo().State.Bytes)+int64(r.IntN(20000)), jetstream.DiscardNew
	if _, err := js.UpdateStream(ctx, small); err != nil {
		return ignoreAway(err)
	}
	r.wait(ctx, 2*time.Second)
	for {
		_, err := js.UpdateStream(ctx, before)
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// ignoreAway drops the error of a fault whose server was down because of another fault.
func ignoreAway(error) error { return nil }

// subscribe subscribes to a bus that keeps no messages, and returns a function that returns all messages received so far.
func subscribe(conn *nats.Conn) (func(context.Context) ([]bus.Message, error), error) {
	var mu sync.Mutex
	var all []bus.Message
	var wrong error
	_, err := conn.Subscribe(bus.Subjects, func(raw *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		m, err := bus.FromCore(raw, len(all))
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w: %.2000s", m.Place, err, m.Raw))
			return
		}
		all = append(all, m)
	})
	if err == nil {
		err = conn.Flush()
	}
	return func(context.Context) ([]bus.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		return all[:len(all):len(all)], wrong
	}, err
}

func (w *world) onKafka() (*busUnderTest, error) {
	k, err := bus.StartBrokers(2)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, p := range k.Proxies {
		addresses = append(addresses, p.Addr())
	}
	former := &incarnations{}
	b := &busUnderTest{
		sink: bridge.Sink{Kafka: map[string]any{
			"brokers": addresses, "delivery": w.pair.Delivery, "create": map[string]any{"partitions": 3},
		}},
		proxies: k.Proxies,
		timed:   func(context.Context) ([]bus.Message, error) { return k.Messages() },
		close:   func() { _ = k.Close() },
		faults: append(connection("bus", k.Proxies...), fault{name: "leaders moved", do: func(context.Context, *chance) error {
			k.MoveLeaders()
			return nil
		}}),
	}
	for i, p := range k.Proxies {
		b.faults = append(b.faults, connection(fmt.Sprintf("broker %d", i), p)...)
	}
	b.read = func(ctx context.Context) ([]bus.Message, error) {
		now, err := k.ReadCommitted(ctx)
		return former.and(now), err
	}
	if w.spec.soak {
		compacted, err := k.Compacted()
		if err != nil {
			return nil, errors.Join(err, k.Close())
		}
		b.news, b.size = followTopics(k), compacted.Size
		b.close = func() { compacted.Close(); _ = k.Close() }
	}
	if w.pair.exact() {
		b.faults = append(b.faults, fault{name: "topic deleted", once: true, do: func(ctx context.Context, r *chance) error {
			topics, err := k.Topics(ctx)
			if err != nil || len(topics) == 0 {
				return err
			}
			messages, err := k.ReadCommitted(ctx)
			if err != nil {
				return err
			}
			one := topics[r.IntN(len(topics))]
			former.ended(slices.DeleteFunc(messages, func(m bus.Message) bool { return m.Route != one }))
			return k.DeleteTopic(ctx, one)
		}})
	}
	return b, nil
}
