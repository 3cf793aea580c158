package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/test/e2e/internal/faultproxy"
)

// metadataAge is how soon the reader notices a new topic.
const metadataAge = 250 * time.Millisecond

// Kafka is a kfake broker behind a fault proxy, and a reader of every topic that begins with "k8s." which does not go
// through the proxy.
type Kafka struct {
	*Follower
	Proxy   *faultproxy.Proxy   // the proxy of the first broker
	Proxies []*faultproxy.Proxy // one for each broker
	brokers map[string]string   // addresses of brokers, by the addresses of their proxies
	cluster *kfake.Cluster
}

// Follower reads what is committed in every topic that begins with "k8s." into its Log, as long as it is not closed.
type Follower struct {
	*Log
	client *kgo.Client
	stop   context.CancelFunc
	reader sync.WaitGroup
	ends   map[string]int64 // next offset to read, by topic and partition; guarded by Log.mu
}

// Follow starts a follower of the brokers at these addresses. It continues after outages of the brokers.
func Follow(brokers ...string) (*Follower, error) { return follow(kgo.SeedBrokers(brokers...)) }

func follow(connect ...kgo.Opt) (*Follower, error) {
	f := &Follower{Log: newLog(), ends: map[string]int64{}}
	var err error
	f.client, err = kgo.NewClient(append(connect,
		kgo.ConsumeRegex(), kgo.ConsumeTopics(`^k8s\..*`, `^kubebridge\..*\.dead$`),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(metadataAge), kgo.MetadataMaxAge(metadataAge), kgo.WithHooks(arrival{}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.reader.Go(func() { f.read(ctx) })
	return f, nil
}

// Close ends the reader. The log stays.
func (f *Follower) Close() {
	f.stop()
	f.reader.Wait()
	f.client.Close()
}

// StartKafka starts a broker. It advertises the proxy's address to its clients.
func StartKafka() (*Kafka, error) { return StartBrokers(1) }

// StartBrokers starts n brokers, each behind a proxy of its own.
func StartBrokers(n int) (*Kafka, error) {
	k := &Kafka{brokers: map[string]string{}}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(n), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		proxy, err := faultproxy.Start(l.Addr().String())
		if err != nil {
			return nil, err
		}
		k.Proxies = append(k.Proxies, proxy)
		k.brokers[proxy.Addr()] = l.Addr().String()
		return advertised{l, proxy}, nil
	}))
	if err != nil {
		return nil, fmt.Errorf("start kfake: %w", err)
	}
	k.cluster, k.Proxy = cluster, k.Proxies[0]
	k.Follower, err = follow(k.direct()...)
	if err != nil {
		cluster.Close()
		return nil, err
	}
	return k, nil
}

// direct returns options with which a client connects to the brokers without their proxies.
func (k *Kafka) direct() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(slices.Collect(maps.Keys(k.brokers))...),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, k.brokers[address])
		}),
	}
}

// advertised is a listener that advertises another address than its own.
type advertised struct {
	net.Listener
	proxy *faultproxy.Proxy
}

func (a advertised) Addr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", a.proxy.Addr())
	if err != nil {
		return a.Listener.Addr()
	}
	return addr
}

// Close ends reader, proxy and broker.
func (k *Kafka) Close() error {
	k.Follower.Close()
	var err error
	for _, p := range k.Proxies {
		err = errors.Join(err, p.Close())
	}
	k.cluster.Close()
	return err
}

// arrival sets a record's timestamp to the time when the client received it, before the reader gets to it.
type arrival struct{}

// OnFetchRecordBuffered implements [kgo.HookFetchRecordBuffered].
func (arrival) OnFetchRecordBuffered(r *kgo.Record) { r.Timestamp = time.Now() }

func (f *Follower) read(ctx context.Context) {
	for ctx.Err() == nil {
		f.client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			f.mu.Lock()
			f.ends[partition(r.Topic, r.Partition)] = r.Offset + 1
			f.mu.Unlock()
			m, err := fromKafka(r)
			m.At = r.Timestamp // see arrival
			f.add(m, err)
		})
	}
}

func partition(topic string, n int32) string { return fmt.Sprintf("%s/%d", topic, n) }

// CatchUp waits until the reader has read all records that the brokers have at the time of the call.
func (k *Kafka) CatchUp(ctx context.Context) error {
	offsets, err := kadm.NewClient(k.client).ListEndOffsets(ctx)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		return fmt.Errorf("ask kfake for the end of its partitions: %w", err)
	}
	_, err = k.Wait(ctx, func([]Message) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		behind := false
		offsets.Each(func(o kadm.ListedOffset) {
			behind = behind || k.ends[partition(o.Topic, o.Partition)] < o.Offset
		})
		return !behind
	})
	return err
}

func fromKafka(r *kgo.Record) (Message, error) {
	headers := map[string]string{}
	contentType := ""
	for _, h := range r.Headers {
		if attribute, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			headers[attribute] = string(h.Value)
		} else if h.Key == "content-type" {
			contentType = string(h.Value)
		}
	}
	m, err := parse(r.Value, headers)
	m.Route, m.Key, m.Partition = r.Topic, string(r.Key), int(r.Partition)
	m.Place = fmt.Sprintf("kafka:%d/%d", r.Partition, r.Offset)
	m.Writer, m.Term = strconv.FormatInt(r.ProducerID, 10), int(r.ProducerEpoch)
	if err == nil && contentType != "application/cloudevents+json; charset=UTF-8" {
		err = fmt.Errorf("content type %q", contentType)
	}
	return m, err
}
