// Package busreader_test runs the reader of `bridge serve` against real Kafka, with records of transactions that are committed, open and aborted.
package busreader_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/past/mirror"
	"github.com/kubebridge/kubebridge/internal/past/mirror/busreader"
	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

const (
	patience   = 2 * time.Minute
	partitions = 3
)

var pods = store.Resource{Cluster: "prod", Name: "pods"}

// topic is a topic that a bridge writes to.
type topic struct {
	t     *testing.T
	kafka *kafkatest.Cluster
	name  string
	dir   string // of the copy
	run   uint64
	nth   uint64
	size  int // partitions
}

func newTopic(t *testing.T, c *kafkatest.Cluster) *topic {
	t.Helper()
	b := &topic{t: t, kafka: c, name: "k8s.t" + strings.ToLower(rand.Text()) + ".core.pods", dir: t.TempDir(), size: partitions}
	b.create()
	return b
}

func (b *topic) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *topic) create() {
	b.t.Helper()
	b.must(b.kafka.CreateTopic(b.t.Context(), b.name, partitions, 0, nil))
}

// writer writes with transactions, as a sink with delivery exactly-once does.
func (b *topic) writer(id string) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.Addrs()...), kgo.TransactionalID(b.name+id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	b.must(err)
	b.t.Cleanup(c.Close)
	return c
}

// begin writes records in a transaction, and leaves it open.
func (b *topic) begin(w *kgo.Client, records ...*kgo.Record) {
	b.t.Helper()
	b.must(w.BeginTransaction())
	b.must(w.ProduceSync(b.t.Context(), records...).FirstErr())
}

func (b *topic) end(w *kgo.Client, how kgo.TransactionEndTry) {
	b.t.Helper()
	b.must(w.EndTransaction(b.t.Context(), how))
}

func (b *topic) commit(w *kgo.Client, records ...*kgo.Record) {
	b.t.Helper()
	b.begin(w, records...)
	b.end(w, kgo.TryCommit)
}

// record makes the record of an event for a partition.
func (b *topic) record(e event.Event, partition int) *kgo.Record {
	col := event.ParseCollection("pods")
	e.Collection, e.Time, e.Epoch, e.Run, e.Incarnation = &col, time.Now(), 1, strconv.FormatUint(b.run, 10), b.run
	if e.Type.OfCollection() {
		e.Plan = &event.Plan{Number: 1, Edit: 1, Birth: 1, Digest: event.PlanDigest(map[string]uint64{"pods": 1})}
	}
	encoder := event.Encoder{Cluster: "prod", ClusterUID: "c", Format: event.Structured}
	return &kgo.Record{Topic: b.name, Partition: int32(partition), Value: event.Structured.Append(nil, encoder.Attributes(&e), &e)}
}

func (b *topic) pod(name string, version, partition int) *kgo.Record {
	rv := strconv.Itoa(version)
	return b.record(event.Event{
		Type: event.Added, Origin: event.Watch, APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name, UID: name, ResourceVersion: rv,
		Object: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, name, rv),
	}, partition)
}

// everywhere makes the records of a collection event, which every partition has.
func (b *topic) everywhere(e event.Event) (all []*kgo.Record) {
	for p := range b.size {
		all = append(all, b.record(e, p))
	}
	return all
}

// snapshot begins an incarnation with one object in each partition.
func (b *topic) snapshot(version int) []*kgo.Record {
	b.run += 100
	b.nth = 1
	all := b.everywhere(event.Event{Type: event.Gap, Origin: event.Snapshot, Report: &event.Report{Reason: event.ReasonReset, Reset: true}})
	for p := range b.size {
		all = append(all, b.pod(fmt.Sprint("first", p), version-p, p))
	}
	rv := strconv.Itoa(version)
	return append(all, b.everywhere(event.Event{
		Type: event.Synced, Origin: event.Snapshot, ResourceVersion: rv, Nth: b.nth, Report: &event.Report{Reason: event.ReasonReset, To: rv},
	})...)
}

// reader is a running reader.
type reader struct {
	*topic
	mirror *mirror.Mirror
	stop   func() error
}

// read continues the copy in the topic's directory.
func (b *topic) read(delivery string) *reader {
	b.t.Helper()
	s, err := store.Open(b.dir, store.Options{})
	b.must(err)
	m, err := mirror.Open(s)
	b.must(err)
	config, err := kafka.Config{Brokers: b.kafka.Addrs(), Delivery: delivery}.Complete()
	b.must(err)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- busreader.Run(ctx, busreader.Options{
			Mirror: m, Cluster: "prod", Log: zaptest.NewLogger(b.t),
			Open: func(ctx context.Context) (sink.Reader, error) {
				return kafka.NewReader(ctx, kafka.Options{Config: config, Identity: event.Identity{Bridge: "b", Cluster: "prod", ClusterUID: "c", Sink: "audit"}},
					func(name string) bool { return name == b.name })
			},
		})
	}()
	stopped := false
	r := &reader{topic: b, mirror: m}
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		b.must(m.Close())
		b.must(s.Close())
		return err
	}
	b.t.Cleanup(func() { b.must(r.stop()) })
	return r
}

// await waits until so is true of the resource after a commit.
func (r *reader) await(what string, so func(*mirror.Resource) bool) {
	r.t.Helper()
	limit := time.After(patience)
	for {
		committed := r.mirror.Commits()
		if p := r.mirror.Resource(pods); p != nil && so(p) {
			return
		}
		select {
		case <-committed:
		case <-limit:
			r.t.Fatalf("waited in vain for %s: %+v", what, r.mirror.Resource(pods))
		}
	}
}

// serves waits until a version is served, with these objects.
func (r *reader) serves(version uint64, names ...string) {
	r.t.Helper()
	var at store.Position
	r.await(fmt.Sprint("version ", version), func(p *mirror.Resource) (ok bool) {
		var err error
		at, err = p.Latest()
		return err == nil && at.Version == version
	})
	var got []string
	r.must(r.mirror.Store().List(store.View{Resource: pods, At: at}, "", store.Name{}, func(o *store.Object) bool {
		got = append(got, o.Name.Name)
		return true
	}))
	if !slices.Equal(got, names) {
		r.t.Errorf("at %d are %v, want %v", version, got, names)
	}
}

// refuses waits until nothing is served, because messages were lost.
func (r *reader) refuses(reason string) {
	r.t.Helper()
	r.await("an incomplete resource", func(p *mirror.Resource) bool {
		_, err := p.Latest()
		return err != nil
	})
	if got := r.mirror.Resource(pods).Present().Reason; !strings.Contains(got, reason) {
		r.t.Errorf("the reason is %q, want %q", got, reason)
	}
}

// A change is served when it is proved in every partition: what is committed in one partition, with nothing open in the others. Records of aborted
// transactions are not seen, and those of open ones hold back what is behind them.
func TestTransactions(t *testing.T) {
	t.Parallel()
	b := newTopic(t, kafkatest.Start(t, kafkatest.Options{}))
	w, other := b.writer("w"), b.writer("other")
	b.commit(w, b.snapshot(20)...)
	r := b.read("exactly-once")
	r.serves(20, "first0", "first1", "first2")
	b.commit(w, b.pod("a", 30, 1)) // the other partitions have no event
	r.serves(30, "a", "first0", "first1", "first2")

	b.begin(w, b.pod("ghost", 31, 0))
	b.end(w, kgo.TryAbort)
	b.begin(other, b.pod("b", 32, 2)) // holds the partition back
	b.commit(w, b.pod("c", 33, 0))
	r.await("the change behind the abort", func(*mirror.Resource) bool {
		o, err := r.mirror.Store().Get(store.View{Resource: pods, At: store.Position{Era: 1, Version: 33, Seq: ^uint64(0)}}, store.Name{Namespace: "shop", Name: "c"})
		return err == nil && o != nil
	})
	if at, err := r.mirror.Resource(pods).Latest(); err != nil || at.Version != 30 {
		t.Errorf("with an open transaction %v is served (%v), want 30", at, err)
	}
	b.end(other, kgo.TryCommit)
	r.serves(33, "a", "b", "c", "first0", "first1", "first2")

	b.must(r.stop())
	b.commit(w, b.pod("d", 40, 2))
	r = b.read("exactly-once")
	r.serves(40, "a", "b", "c", "d", "first0", "first1", "first2")
	if now := r.mirror.Resource(pods).Present(); now.Number != 1 {
		t.Errorf("the copy was dropped: %s", now.Reason)
	}
}

// With at-least-once, a batch reaches the partitions in no order, so only what each partition proves itself is served.
func TestAtLeastOnce(t *testing.T) {
	t.Parallel()
	b := newTopic(t, kafkatest.Start(t, kafkatest.Options{}))
	w := b.writer("w")
	b.commit(w, b.snapshot(20)...)
	b.commit(w, b.pod("a", 30, 1), b.pod("b", 31, 0))
	r := b.read("at-least-once")
	r.serves(20, "first0", "first1", "first2")
	b.commit(w, b.pod("c", 40, 2))
	r.serves(30, "a", "first0", "first1", "first2")
	b.nth++
	b.commit(w, b.everywhere(event.Event{Type: event.Synced, Origin: event.Watch, ResourceVersion: "41", Nth: b.nth, Report: &event.Report{Reason: event.ReasonPeriodic, To: "41"}})...)
	r.serves(41, "a", "b", "c", "first0", "first1", "first2")
}

// Where a topic has lost messages that were not read, was made again, or has more partitions, what was served before does not count any more,
// until the bridge has published everything again.
func TestLost(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{})
	for name, lose := range map[string]func(b *topic, w *kgo.Client) (reason string){
		"retention": func(b *topic, w *kgo.Client) string {
			b.commit(w, b.pod("unread", 30, 1))
			b.commit(w, b.pod("kept", 31, 1))
			client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
			b.must(err)
			defer client.Close()
			var end kadm.Offsets
			end.Add(kadm.Offset{Topic: b.name, Partition: 1, At: 6})
			_, err = kadm.NewClient(client).DeleteRecords(t.Context(), end)
			b.must(err)
			return "deleted messages before they were read"
		},
		"made again": func(b *topic, _ *kgo.Client) string {
			b.must(c.DeleteTopic(t.Context(), b.name))
			b.create()
			return "was deleted and created again"
		},
	} {
		for _, running := range []bool{false, true} {
			if running && name == "retention" { // a running reader has read everything
				continue
			}
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				b := newTopic(t, c)
				w := b.writer("w")
				b.commit(w, b.snapshot(20)...)
				r := b.read("exactly-once")
				r.serves(20, "first0", "first1", "first2")
				if !running {
					b.must(r.stop())
				}
				reason := lose(b, w)
				if !running {
					r = b.read("exactly-once")
				}
				r.refuses(reason)
				b.commit(b.writer("again"), b.snapshot(50)...)
				r.serves(50, "first0", "first1", "first2")
			})
		}
	}
}

// A topic that gets more partitions is read with them, and is complete once the bridge has published everything again.
func TestMorePartitions(t *testing.T) {
	t.Parallel()
	b := newTopic(t, kafkatest.Start(t, kafkatest.Options{}))
	b.commit(b.writer("w"), b.snapshot(20)...)
	r := b.read("exactly-once")
	r.serves(20, "first0", "first1", "first2")
	b.size++
	b.must(b.kafka.Grow(t.Context(), b.name, b.size))
	b.commit(b.writer("again"), b.snapshot(50)...)
	r.serves(50, "first0", "first1", "first2", "first3")
}
