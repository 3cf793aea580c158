package kafka

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// storeOptions returns the options of a stand-alone store.
func storeOptions(t *testing.T, b *bus) StoreOptions {
	return StoreOptions{
		Options: Options{Config: b.config(), Identity: identity, Logger: zaptest.NewLogger(t)},
		Topic:   "checkpoint", TransactionTimeout: 3 * time.Second, StandAlone: true,
	}
}

// loadStore opens a store until the test ends.
func loadStore(t *testing.T, o StoreOptions) *Store {
	t.Helper()
	s, err := NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func kv(key, value string) event.KV { return event.KV{Key: []byte(key), Value: []byte(value)} }

func expect(t *testing.T, s checkpoint.Store, key, want string) {
	t.Helper()
	if got, err := s.Get([]byte(key)); err != nil || string(got) != want {
		t.Errorf("%s is %q, %v, want %q", key, got, err, want)
	}
}

// An incomplete commit that a crash has left is not read at the next start, and does not block it.
func TestTornCommit(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1"), kv("p/x", "1")}); err != nil {
		t.Fatal(err)
	}
	// This producer has the same transactional.id, and dies before the end of its transaction.
	c, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.TransactionalID(TransactionalID(identity)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{"e/a", "e/b", "p/x"} {
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "checkpoint", Key: []byte(r), Value: []byte("torn")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	again := loadStore(t, storeOptions(t, b))
	expect(t, again, "e/a", "1")
	expect(t, again, "e/b", "")
	expect(t, again, "p/x", "1")
	if err := again.Commit(t.Context(), []event.KV{kv("e/b", "2")}); err != nil {
		t.Fatal(err)
	}
	last := loadStore(t, storeOptions(t, b))
	expect(t, last, "e/a", "1")
	expect(t, last, "e/b", "2")
}

// The older of two processes ends with ErrFenced and cannot write any more.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	old := loadStore(t, storeOptions(t, b))
	young := loadStore(t, storeOptions(t, b))
	for range 2 {
		err := errors.New("")
		for err != nil && !errors.Is(err, checkpoint.ErrFenced) {
			err = old.Commit(t.Context(), []event.KV{kv("e/a", "old")})
		}
		if err == nil {
			t.Fatal("the older one committed")
		}
	}
	if err := young.Commit(t.Context(), []event.KV{kv("e/a", "young")}); err != nil {
		t.Errorf("the younger one was disturbed: %v", err)
	}
	expect(t, loadStore(t, storeOptions(t, b)), "e/a", "young")
}

// Kafka answers that a transaction is committed before consumers can see it. This is not a loss, and needs no reset.
func TestCommittedNotYetSeen(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	b.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		const readCommitted = 1
		if r := req.(*kmsg.ListOffsetsRequest); r.IsolationLevel != readCommitted {
			return nil, nil, false
		}
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		partition := kmsg.NewListOffsetsResponseTopicPartition()
		partition.Offset = 0
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic, topic.Partitions = "checkpoint", append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	s.Release() // as after a failure
	if err := s.Commit(t.Context(), []event.KV{kv("e/b", "1")}); err != nil || asked.Load() == 0 {
		t.Errorf("Commit: %v, after %d looks at what is committed", err, asked.Load())
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "e/a", "1")
	expect(t, s, "e/b", "1")
}

// A writer that is stopped before it ends a transaction knows that the transaction did not end. The client, which is closed by
// then, would report an end that it never requested.
func TestStoppedBeforeTheEnd(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	ctx, stop := context.WithCancel(t.Context())
	err := s.Transact(ctx, 1, []event.KV{kv("e/a", "1")}, func(_ context.Context, c *kgo.Client) error {
		defer stop()
		return c.Flush(t.Context())
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, errUnknown) {
		t.Errorf("Transact: %v, want that it was stopped, and no doubt", err)
	}
	expect(t, loadStore(t, storeOptions(t, b)), "e/a", "")
}

// answer rejects every record of a request with an error, and writes none.
func answer(e *kerr.Error) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode, p.BaseOffset = rp.Partition, e.Code, -1
				p.LogStartOffset = 1000 // beyond what was written, so the client concludes that retention removed it
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	}
}

// A broker that already has the records of a request whose answer was lost may not know their offsets any more. This is not
// evidence that the topic was recreated.
func TestWrittenNobodyKnowsWhere(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	b.ControlKey(int16(kmsg.Produce), answer(kerr.DuplicateSequenceNumber))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "2")}); err == nil || errors.Is(err, kerr.OffsetOutOfRange) || !strings.Contains(err.Error(), "where") {
		t.Fatalf("Commit: %v, want that it is not known where it was written", err)
	}
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "3")}); err != nil {
		t.Fatal(err)
	}
	expect(t, loadStore(t, storeOptions(t, b)), "e/a", "3")
}

// After some errors the client silently starts a new producer, and Kafka aborts what the old producer wrote. The rest must not
// be committed alone.
func TestProducerRenewedInTransaction(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	if err := b.CreateTopic("events", 1, nil); err != nil {
		t.Fatal(err)
	}
	o := storeOptions(t, b)
	o.Client = append(o.Client, kgo.MetadataMinAge(10*time.Millisecond)) // the client waits this long before it retries
	s := loadStore(t, o)
	forget := answer(kerr.UnknownProducerID)
	transact := func(seq uint64, between func()) error {
		return s.Transact(t.Context(), seq, []event.KV{kv("e/a", fmt.Sprint(seq))}, func(ctx context.Context, c *kgo.Client) error {
			if err := c.Flush(ctx); err != nil {
				return err
			}
			between()
			c.Produce(ctx, &kgo.Record{Topic: "events", Value: []byte("x")}, nil)
			return c.Flush(ctx)
		})
	}
	nothing := func() {}
	if err := transact(1, nothing); err != nil {
		t.Fatal(err)
	}
	if err := transact(2, func() { b.ControlKey(int16(kmsg.Produce), forget) }); err == nil || !strings.Contains(err.Error(), "2 producers") {
		t.Errorf("Transact by two producers: %v", err)
	}
	if err := transact(2, nothing); err != nil {
		t.Fatal(err)
	}
	expect(t, loadStore(t, storeOptions(t, b)), "e/a", "2")
}

// The topic ends with control records and aborted records. Reading must not wait for records behind them that never come.
func TestEndsWithAborted(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.InvalidTxnState, Count: 1})
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err == nil {
		t.Fatal("the commit was not refused")
	}
	s.Close()
	began := time.Now()
	again := loadStore(t, storeOptions(t, b))
	expect(t, again, "e/a", "")
	if took := time.Since(began); took >= stall {
		t.Errorf("reading took %v", took)
	}
}

func TestNotOurs(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	loadStore(t, storeOptions(t, b))
	for name, change := range map[string]func(*event.Identity){
		"cluster": func(id *event.Identity) { id.ClusterUID = "other" },
		"bridge":  func(id *event.Identity) { id.Bridge = "other" },
		"sink":    func(id *event.Identity) { id.Sink = "other" },
	} {
		o := storeOptions(t, b)
		change(&o.Identity)
		s, err := NewStore(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(t.Context()); !errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), `"checkpoint"`) {
			t.Errorf("another %s: %v, want ErrForeign with the topic", name, err)
		}
		s.Close()
	}
	o := storeOptions(t, b)
	o.Identity.Cluster = "renamed" // may change
	loadStore(t, o)
}

// A topic whose settings remove records, or that has several partitions, is refused at the start and by the check of a
// configuration.
func TestUnusableTopic(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	for topic, c := range map[string]struct {
		partitions int32
		policy     string
		says       string
	}{
		"forgets": {1, "compact,delete", `cleanup.policy is "compact,delete"`},
		"wide":    {3, "compact", "the topic has 3 partitions, want 1"},
	} {
		if err := b.CreateTopic(topic, c.partitions, map[string]string{"cleanup.policy": c.policy}); err != nil {
			t.Fatal(err)
		}
		o := storeOptions(t, b)
		o.Topic = topic
		s, err := NewStore(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, _, checked := CheckStore(t.Context(), o)
		for what, err := range map[string]error{"Load": s.Load(t.Context()), "Check": checked} {
			if !errors.Is(err, checkpoint.ErrUnusable) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), topic) {
				t.Errorf("%s: %v, want ErrUnusable with %q", what, err, c.says)
			}
		}
	}
	o := storeOptions(t, b)
	o.Topic = "made"
	loadStore(t, o)
	if p := b.TopicInfo("made").Configs["cleanup.policy"]; p == nil || *p != "compact" || len(b.PartitionInfos("made")) != 1 {
		t.Errorf("the topic was created with policy %v and %d partitions", p, len(b.PartitionInfos("made")))
	}
}

// If a topic is recreated with several partitions while the bridge runs, the bridge retries until somebody corrects it.
func TestUnusableLater(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	remake := func(partitions int32) {
		t.Helper()
		if err := errors.Join(b.DeleteTopic("checkpoint"), b.CreateTopic("checkpoint", partitions, map[string]string{"cleanup.policy": "compact"})); err != nil {
			t.Fatal(err)
		}
	}
	remake(3)
	var err error
	for range 3 { // the first attempt may only find that the topic is another one
		err = s.Commit(t.Context(), []event.KV{kv("e/b", "2")})
	}
	if err == nil || errors.Is(err, checkpoint.ErrUnusable) || errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), "has 3 partitions, want 1") {
		t.Errorf("Commit: %v, want an error to be tried again, with the number", err)
	}
	remake(1)
	untilLost(t, s)
	wantReset(t, storeOptions(t, b))
}

// If the beginning of the topic is lost, its owner and the missing entries are unknown.
func TestBeginningLost(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{{Key: checkpoint.IdentityKey()}, kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also if the first process that notices it crashes
		again := loadStore(t, storeOptions(t, b))
		expect(t, again, string(checkpoint.ResetKey()), string(checkpoint.ResetRequested()))
		again.Close()
	}
}

func TestLookAndReset(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	o := storeOptions(t, b)
	if _, _, err := ReadStore(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Look where nothing is: %v, want ErrNotExist", err)
	}
	s := loadStore(t, o)
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1"), kv(pinPrefix+"t", "4")}); err != nil {
		t.Fatal(err)
	}
	seen, id, err := ReadStore(t.Context(), o)
	if err != nil || id != identity {
		t.Fatalf("Look: %v, %v", id, err)
	}
	expect(t, seen, "e/a", "1")
	seen.Close()
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "2")}); err != nil {
		t.Errorf("looking disturbed the one that is running: %v", err)
	}
	other := o
	other.Identity = event.Identity{Bridge: "other", Cluster: "c", ClusterUID: "u", Sink: "s"}
	for _, empty := range []bool{false, true} {
		if err := ResetStore(t.Context(), StoreOptions{Options: Options{Config: o.Config}, Topic: o.Topic}, empty); err != nil {
			t.Fatal(err)
		}
		kept := "2"
		if empty {
			o, kept = other, ""
		}
		again := loadStore(t, o)
		expect(t, again, string(checkpoint.ResetKey()), string(checkpoint.ResetRequested()))
		expect(t, again, pinPrefix+"t", "")
		expect(t, again, "e/a", kept)
		again.Close()
	}
}

// A checkpoint in another format is refused with an error that names a remedy, and the remedy works. Otherwise a bridge that
// was replaced by another version could not be started again without Kafka's tools.
func TestOtherFormats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, identity string
		want           error
	}{
		{"older", `{"version":1,"identity":{"bridge":"test","cluster":"c","clusterUID":"uid","sink":"audit"}}`, checkpoint.ErrOlder},
		{"newer", `{"version":99,"identity":{"bridge":"test","cluster":"c","clusterUID":"uid","sink":"audit"}}`, checkpoint.ErrNewer},
		{"damaged", `{`, checkpoint.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := startBus(t)
			o := storeOptions(t, b)
			running := loadStore(t, o)
			old := make([]event.KV, 0, 2*copyAtOnce+1)
			for i := range 2 * copyAtOnce {
				old = append(old, kv(fmt.Sprintf("e/pods/ns/%04d", i), "x"))
			}
			if err := running.Commit(t.Context(), append(old, event.KV{Key: checkpoint.IdentityKey(), Value: []byte(c.identity)})); err != nil {
				t.Fatal(err)
			}
			s, err := NewStore(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, _, looked := ReadStore(t.Context(), o)
			for what, err := range map[string]error{"Load": s.Load(t.Context()), "Look": looked} {
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "`bridge checkpoint reset --sink audit`") || !strings.Contains(err.Error(), `"checkpoint"`) {
					t.Errorf("%s: %v, want %v with the topic and the command", what, err, c.want)
				}
			}
			if err := ResetStore(t.Context(), o, false); !errors.Is(err, c.want) {
				t.Errorf("Reset of what cannot be read: %v, want %v", err, c.want)
			}
			if err := ResetStore(t.Context(), o, true); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the first attempt only finds that its producer is not accepted any more
				err = running.Commit(t.Context(), []event.KV{kv("e/a", "1")})
			}
			if !errors.Is(err, checkpoint.ErrFenced) {
				t.Errorf("the running bridge: %v, want ErrFenced", err)
			}
			again := loadStore(t, o)
			expect(t, again, string(checkpoint.ResetKey()), string(checkpoint.ResetRequested()))
			err = again.Scan([]byte("e/"), func(key, _ []byte) error { return fmt.Errorf("%s is left", key) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// Loading is retried until it works, and continues where it stopped.
func TestLoadAgain(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	if err := s.Commit(t.Context(), []event.KV{kv("e/a", "1")}); err != nil {
		t.Fatal(err)
	}
	var failures atomic.Int32
	b.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		if failures.Add(1) > 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil, true
	})
	again, err := NewStore(storeOptions(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "allow WRITE and DESCRIBE on the transactional id") {
		t.Errorf("Load: %v, want what is not allowed", err)
	}
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, again, "e/a", "1")
}

// The time and memory of a restart are bounded; the numbers are in docs/configuration.md.
func TestRestartOfManyObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	b := startBus(t)
	s := loadStore(t, storeOptions(t, b))
	const objects = 100_000
	entry := func(i, rv int) event.KV {
		return event.KV{
			Key:   fmt.Appendf(nil, "o/pods/namespace-%d/deployment-7c5ddbdf54-%05d", i%100, i),
			Value: fmt.Appendf(nil, "an inventory entry has some 45 bytes, so %05d", rv),
		}
	}
	all := make([]event.KV, objects)
	for i := range all {
		all[i] = entry(i, i)
	}
	for batch := range slices.Chunk(all, 2000) {
		if err := s.Commit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := NewStore(storeOptions(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Load(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := 0
	if err := again.Scan([]byte("o/"), func(_, _ []byte) error { n++; return nil }); err != nil || n != objects {
		t.Errorf("%d objects, %v, want %d", n, err, objects)
	}
	t.Logf("%d objects: %v, %d KiB of heap more, %d MiB allocated on the way, topic of %d KiB", objects, took.Round(time.Millisecond),
		(int64(after.HeapInuse)-int64(before.HeapInuse))>>10, (after.TotalAlloc-before.TotalAlloc)>>20, b.PartitionInfo("checkpoint", 0).NumBytes>>10)
}
