package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/consumer"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

var checkpointTopic = CheckpointTopic("", identity)

// position returns the change of the checkpoint that belongs to batch n.
func position(n uint64) []event.KV {
	return []event.KV{{Key: []byte("p/pods"), Value: []byte(fmt.Sprintf("at 1 %d", n))}}
}

// deliver writes a batch like a pipeline: it retries the sink until the batch is written, then commits to the store.
func deliver(t *testing.T, x *owned, b *event.Batch) (errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b.Commit.Changes = position(b.Seq)
	for {
		_, err := x.Write(ctx, b)
		if err == nil {
			break
		}
		errs = append(errs, err)
		if errors.Is(err, sink.ErrFenced) || ctx.Err() != nil {
			t.Fatalf("batch %d: %v", b.Seq, err)
		}
	}
	if err := x.store.Commit(ctx, b.Commit.Changes); err != nil {
		t.Fatal(err)
	}
	return errs
}

// wantPosition checks the position that a restart reads.
func wantPosition(t *testing.T, x *owned, n uint64) {
	t.Helper()
	got, err := x.store.Get([]byte("p/pods"))
	if err != nil || string(got) != fmt.Sprintf("at 1 %d", n) {
		t.Errorf("position %q, %v, want that of batch %d", got, err, n)
	}
}

// checkExactly checks that the topic has every record exactly once.
func (n *numbered) checkExactly(t *testing.T, msgs []consumed) {
	t.Helper()
	total := 0
	for _, c := range n.count {
		total += c
	}
	if len(msgs) != total {
		t.Errorf("the topic holds %d records, %d were written", len(msgs), total)
	}
	n.check(t, msgs, 0)
}

// Events and positions are committed together: a restart finds the position of exactly what consumers have read.
func TestRestartFromTheTopic(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	n := number("t")
	for range 4 {
		x := openExact(t, b.config())
		if n.seq > 0 {
			wantPosition(t, x, n.seq)
		}
		for range 3 {
			deliver(t, x, n.batch(50, 10))
		}
		x.Close()
	}
	n.checkExactly(t, b.consumeCommitted(t, "t"))
}

// The answer to the end of a transaction is lost. Whether the transaction was committed or not, the batch is written once.
func TestLostEndOfTransaction(t *testing.T) {
	t.Parallel()
	for name, carriedOut := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			x := openExact(t, b.config())
			n := number("t")
			deliver(t, x, n.batch(50, 10))
			var healed atomic.Bool
			b.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				b.KeepControl() // the client retries the request
				switch {
				case healed.Load():
					return nil, nil, false
				case carriedOut:
					b.gates[0].loseAnswer()
					return nil, nil, false
				default:
					return nil, errors.New("gone"), true
				}
			})
			batch := n.batch(50, 10)
			batch.Commit.Changes = position(batch.Seq)
			if _, err := x.Write(t.Context(), batch); err == nil {
				t.Fatal("no answer was lost")
			}
			healed.Store(true)
			deliver(t, x, batch)
			deliver(t, x, n.batch(50, 10))
			n.checkExactly(t, b.consumeCommitted(t, "t"))
			again := openExact(t, b.config())
			wantPosition(t, again, n.seq)
		})
	}
}

// loseEnd writes a batch that is committed, without the sink receiving the answer.
func loseEnd(t *testing.T, b *bus, x *owned, batch *event.Batch) {
	t.Helper()
	b.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.gates[0].loseAnswer()
		return nil, nil, false
	})
	if _, err := x.Write(t.Context(), batch); err == nil {
		t.Fatal("no answer was lost")
	}
}

// A commit that was observed is remembered when later steps fail, once or several times.
func TestLostEndThenNoProducer(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(50, 10))
	batch := n.batch(50, 10)
	loseEnd(t, b, x, batch)
	var asked atomic.Int32
	b.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		if asked.Add(1) > 2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil, true
	})
	if errs := deliver(t, x, batch); len(errs) != 2 {
		t.Errorf("%d errors, want those of the two producers that are refused: %v", len(errs), errs)
	}
	deliver(t, x, n.batch(50, 10))
	n.checkExactly(t, b.consumeCommitted(t, "t"))
}

// A committed record is not reported as refused, because the pipeline would then withdraw its event.
func TestLostEndThenRefused(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(50, 10))
	batch := n.batch(50, 10)
	loseEnd(t, b, x, batch)
	denied := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	if _, err := x.Write(t.Context(), batch); err != nil {
		t.Errorf("Write of a batch that is committed returns %v, want no error", err)
	}
	denied.Remove()
	n.checkExactly(t, b.consumeCommitted(t, "t"))
}

// A process that another one has replaced must not fence its successor.
func TestCutOffWhileTakenOver(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	old := openExact(t, b.config())
	n := number("t")
	deliver(t, old, n.batch(50, 10))
	old.store.Release() // as after a failed write, which closes the producer
	successor := openExact(t, b.config())
	zombie := &event.Batch{Seq: 2, Records: []event.Record{record("t", "k", "zombie", 0)}, Commit: event.Commit{Changes: position(99)}}
	for range 2 {
		if _, err := old.Write(t.Context(), zombie); !errors.Is(err, sink.ErrFenced) {
			t.Errorf("Write by the replaced process returns %v, want ErrFenced", err)
		}
	}
	if errs := deliver(t, successor, n.batch(50, 10)); errs != nil {
		t.Errorf("the successor was disturbed: %v", errs)
	}
	n.checkExactly(t, b.consumeCommitted(t, "t"))
}

// Kafka ends a transaction that takes too long in the same way as it fences a writer. This error alone must not end the
// program.
func TestTransactionTimedOut(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(50, 10))
	for _, e := range []*kerr.Error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidTxnState} {
		b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: e, Count: 1})
		errs := deliver(t, x, n.batch(50, 10))
		if len(errs) == 0 {
			t.Errorf("%v was not noticed", e)
		}
	}
	n.checkExactly(t, b.consumeCommitted(t, "t"))
}

// Consumers with read_committed wait for the end of a transaction whose bridge died. docs/configuration.md says how long.
func TestTransactionTimeout(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	var asked atomic.Int32
	b.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		asked.Store(r.(*kmsg.InitProducerIDRequest).TransactionTimeoutMillis)
		return nil, nil, false
	})
	deliver(t, openExact(t, b.config()), number("t").batch(10, 10))
	if got := asked.Load(); got != 15_000 {
		t.Errorf("the broker is asked to wait %d ms for the end of a transaction, want 15000", got)
	}
}

// If a partition refuses a record in the middle of a batch, the rest of the batch and the position are aborted, too.
func TestAborted(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "other", 1, 0)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(50, 10))
	denied := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "other", Err: kerr.TopicAuthorizationFailed, Count: -1})
	batch := n.batch(50, 10)
	batch.Records = append(batch.Records, record("other", "k", "1", 0))
	batch.Commit.Changes = position(2)
	_, err := x.Write(t.Context(), batch)
	wantError(t, err, `topic "other", partition 0`, "WRITE")
	var route *sink.RouteError
	if !errors.As(err, &route) || route.Route != "other" || route.Index != 50 {
		t.Errorf("%#v, want a RouteError about record 50", err)
	}
	if got := len(b.consumeCommitted(t, "t")); got != 50 {
		t.Errorf("consumers see %d records, want the 50 of the first batch", got)
	}
	denied.Remove()
	deliver(t, x, batch)
	n.checkExactly(t, b.consumeCommitted(t, "t"))
	if got := len(b.consumeCommitted(t, "other")); got != 1 {
		t.Errorf("the other topic holds %d records, want 1", got)
	}
}

// The one rejected record is found. Consumers see no record of the batch until it is replaced, and then each record once.
func TestPoisonInTransaction(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]*kerr.Error{"content": kerr.InvalidRecord, "size": kerr.MessageTooLarge} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			b.topic(t, "t", 4, 0)
			for p := range 4 { // each partition of a request is checked separately, as brokers do
				b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{int32(p)}, Err: e, Count: -1, When: func(req kmsg.Request) bool {
					for _, topic := range req.(*kmsg.ProduceRequest).Topics {
						for _, part := range topic.Partitions {
							if part.Partition == int32(p) && bytes.Contains(part.Records, []byte("poison")) {
								return true
							}
						}
					}
					return false
				}})
			}
			x := openExact(t, b.config())
			n := number("t")
			batch := n.batch(200, 10)
			whole := batch.Records[120].Value
			batch.Records[120].Value = append(bytes.Clone(whole), "poison"...)
			batch.Commit.Changes = position(1)
			_, err := x.Write(t.Context(), batch)
			rec := wantRecordError(t, err, 120)
			if tooLarge := e == kerr.MessageTooLarge; tooLarge != (rec.Limit > 0) || rec.Limit > 0 && rec.Limit >= rec.Size {
				t.Errorf("RecordError has size %d and limit %d", rec.Size, rec.Limit)
			}
			if got := b.consumeCommitted(t, "t"); len(got) > 0 {
				t.Errorf("%d records are to be seen", len(got))
			}
			batch.Records[120].Value = whole
			deliver(t, x, batch)
			deliver(t, x, n.batch(50, 10))
			n.checkExactly(t, b.consumeCommitted(t, "t"))
		})
	}
}

// Chunks are limited to the maximum size of each topic.
func TestLimitsPerTopic(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "small", 1, 5000)
	b.topic(t, "large", 1, 4<<20)
	x := openExact(t, b.config())
	batch := &event.Batch{Seq: 1}
	for i := range 20 {
		batch.Records = append(batch.Records, record("small", "k", fmt.Sprint(i), 2000), record("large", "k", fmt.Sprint(i), 150_000))
	}
	if errs := deliver(t, x, batch); errs != nil {
		t.Errorf("Write: %v", errs)
	}
	b.setLimit(t, "small", 2500) // too small for a chunk of two records
	batch = &event.Batch{Seq: 2, Records: []event.Record{record("small", "k", "20", 2000), record("small", "k", "21", 2000)}}
	deliver(t, x, batch)
	if got := len(values(b.consumeCommitted(t, "small"))[0]); got != 22 {
		t.Errorf("the topic holds %d records, want 22", got)
	}
}

// More partitions of a topic move keys. This ends the program, at the start and while it runs, with an error that says what to
// do. A reset lets it continue.
func TestPinnedPartitions(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 3, 0)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(20, 0))
	b.grow(t, "t", 5)
	want := func(err error) {
		t.Helper()
		if !errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), `topic "t": it has 5 partitions and had 3`) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want a RefusedError about the partitions", err)
		}
	}
	x.topics.forget() // like any failed request
	_, err := x.Write(t.Context(), n.batch(20, 0))
	want(err)
	again := newExact(t, b.config())
	defer again.Close()
	want(again.Open(t.Context(), nil))

	if err := ResetStore(t.Context(), StoreOptions{Options: Options{Config: b.config()}, Topic: checkpointTopic}, false); err != nil {
		t.Fatal(err)
	}
	fresh := openExact(t, b.config())
	if v, err := fresh.store.Get(checkpoint.ResetKey()); string(v) != string(checkpoint.ResetRequested()) {
		t.Errorf("after a reset its request is %q, %v", v, err)
	}
	deliver(t, fresh, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0)}})
}

// A second cluster with the same name must not fence the first.
func TestForeignCheckpoint(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(20, 0))
	var inits atomic.Int32
	b.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		inits.Add(1)
		return nil, nil, false
	})
	other := identity
	other.ClusterUID = "another"
	c := b.config()
	c.Delivery = exactlyOnce
	s, err := NewStore(StoreOptions{Options: Options{Config: c, Identity: other}})
	if err != nil {
		t.Fatal(err)
	}
	y := &owned{NewTransactional(s), s}
	defer y.Close()
	if err := y.Open(t.Context(), nil); !errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), checkpointTopic) {
		t.Errorf("Open of a foreign checkpoint: %v, want ErrForeign with the topic", err)
	}
	if inits.Load() != 0 {
		t.Errorf("%d producers were initialised before the identity was known", inits.Load())
	}
	if errs := deliver(t, x, n.batch(20, 0)); errs != nil {
		t.Errorf("the owner was disturbed: %v", errs)
	}
}

// Acknowledged events are lost, so the pipeline is asked to declare a reset, and can do it.
func TestCheckpointTopicMadeAnew(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	x := openExact(t, b.config())
	n := number("t")
	deliver(t, x, n.batch(20, 0))
	deliver(t, x, n.batch(20, 0))
	if err := b.DeleteTopic(checkpointTopic); err != nil {
		t.Fatal(err)
	}
	if err := b.CreateTopic(checkpointTopic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	x.store.Release()
	batch := n.batch(20, 0)
	if _, err := x.Write(t.Context(), batch); !errors.Is(err, sink.ErrReset) {
		t.Fatalf("Write: %v, want ErrReset", err)
	}
	if _, err := x.Write(t.Context(), &event.Batch{Commit: event.Commit{Changes: position(7)}}); err != nil {
		t.Fatal(err)
	}
	batch.Seq = 8
	batch.Commit.Changes = nil
	if _, err := x.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	n.checkExactly(t, b.consumeCommitted(t, "t"))
	again := openExact(t, b.config())
	wantPosition(t, again, 7)
	if p := again.topics.pins["t"]; p.partitions != 4 || p.id == "" {
		t.Errorf("the partitions are not pinned again: %v", again.topics.pins)
	}
}

// A checkpoint topic that is deleted between Open, which reads it, and Load is lost: the next write reports it.
func TestCheckpointTopicDeletedBeforeLoad(t *testing.T) {
	t.Parallel()
	for name, recreate := range map[string]bool{"deleted": false, "created again": true} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			deliver(t, openExact(t, b.config()), number("t").batch(20, 0))
			x := newExact(t, b.config())
			t.Cleanup(func() { _ = x.Close() })
			if err := x.Open(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := b.DeleteTopic(checkpointTopic); err != nil {
				t.Fatal(err)
			}
			if recreate {
				if err := b.CreateTopic(checkpointTopic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.store.Load(t.Context()); err != nil {
				t.Fatalf("Load: %v", err)
			}
			var err error
			for range 10 {
				if err = x.Commit(t.Context(), 0, position(2)); err == nil || errors.Is(err, sink.ErrReset) {
					break
				}
			}
			if !errors.Is(err, sink.ErrReset) {
				t.Fatalf("Commit: %v, want ErrReset", err)
			}
			if err := x.Commit(t.Context(), 0, append(position(2), event.KV{Key: checkpoint.ResetKey()})); err != nil {
				t.Fatal(err)
			}
			again := openExact(t, b.config())
			wantPosition(t, again, 2)
			wantRequest(t, again, "")
		})
	}
}

// removeRecords removes all records of the checkpoint topic.
func removeRecords(t *testing.T, b *bus) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.config().Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	ends, err := admin.ListEndOffsets(t.Context(), checkpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
}

// If records of the checkpoint topic were removed, a reset is requested once: at the next start, or by a running bridge.
func TestCheckpointRecordsRemoved(t *testing.T) {
	t.Parallel()
	t.Run("at a start", func(t *testing.T) {
		b := startBus(t)
		n := number("t")
		deliver(t, openExact(t, b.config()), n.batch(20, 0))
		removeRecords(t, b)
		x := openExact(t, b.config())
		wantRequest(t, x, string(checkpoint.ResetRequested()))
		if err := x.Commit(t.Context(), 0, append(position(2), event.KV{Key: checkpoint.ResetKey()})); err != nil {
			t.Fatal(err)
		}
		again := openExact(t, b.config())
		wantRequest(t, again, "")
		wantPosition(t, again, 2)
	})
	t.Run("while running", func(t *testing.T) {
		b := startBus(t)
		x := openExact(t, b.config())
		deliver(t, x, number("t").batch(20, 0))
		removeRecords(t, b)
		x.store.Release() // the next write begins a new producer
		if err := x.Commit(t.Context(), 0, position(2)); !errors.Is(err, sink.ErrReset) {
			t.Fatalf("Commit: %v, want ErrReset", err)
		}
		if err := x.Commit(t.Context(), 0, append(position(2), event.KV{Key: checkpoint.ResetKey()})); err != nil {
			t.Fatal(err)
		}
		again := openExact(t, b.config())
		wantRequest(t, again, "")
		wantPosition(t, again, 2)
	})
}

// A compacted topic rejects records without a key, and removes a deleted object only after a tombstone. Both deliveries write
// the same records.
func TestTombstones(t *testing.T) {
	t.Parallel()
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t)
			c := b.config()
			c.Delivery, c.Tombstones, c.Compression, c.Create.Partitions = delivery, true, "snappy", 1
			deleted := record("t", "c/core/pods/ns/name", "last body", 0)
			deleted.Event = &event.Event{Type: event.Deleted, Time: time.Unix(1, 0)}
			gap := record("t", "", "gap", 0)
			gap.Broadcast = true
			gap.Attributes = []event.Attribute{{Name: "cluster", Value: "c"}, {Name: "collection", Value: "pods"}, {Name: "type", Value: event.Gap.CloudEvent()}}
			batch := &event.Batch{Seq: 1, Records: []event.Record{gap, deleted, record("t", "c/core/pods/ns/other", "next", 0)}}
			if delivery == exactlyOnce {
				deliver(t, openExact(t, c), batch)
			} else {
				writeAll(t, openSink(t, c), batch)
			}
			var got []string
			for _, m := range b.consumeCommitted(t, "t") {
				value := string(m.Value)
				if m.Value == nil {
					value = "null"
				}
				got = append(got, string(m.key)+"="+value)
			}
			want := []string{"c/_collection/pods/gap=gap", "c/core/pods/ns/name=last body", "c/core/pods/ns/name=null", "c/core/pods/ns/other=next"}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if policy := b.TopicInfo("t").Configs["cleanup.policy"]; policy == nil || *policy != "compact" {
				t.Errorf("cleanup.policy of the created topic is %v", policy)
			}
		})
	}
}

// For a key, a compacted topic may have only the null value left, and a consumer must learn from it which object was deleted. A
// gap must not replace the reset before it, from which a consumer learns of an incarnation.
func TestCompactedEntries(t *testing.T) {
	t.Parallel()
	encoder := event.Encoder{Cluster: "c", ClusterUID: "1f0b1a3c-0000-4000-8000-000000000001"}
	of := &event.Collection{Resource: "pods", Entry: "canary", Namespace: "shop"}
	collectionEncoder := encoder.Of(of)
	encoded := func(ev event.Event) event.Record {
		ev.Collection, ev.Incarnation, ev.Run, ev.Time = of, 7, "7", time.Unix(1, 0)
		ev.Origin = event.Watch
		r := event.Record{Route: "t", Event: &ev, Broadcast: ev.Type.OfCollection()}
		r.Attributes = collectionEncoder.AppendAttributes(nil, &ev, &event.Text{})
		r.Value = r.Format.Append(nil, r.Attributes, &ev)
		if !r.Broadcast {
			r.Key = "c/core/pods/shop/web/canary@"
		}
		return r
	}
	deleted := encoded(event.Event{
		Type: event.Deleted, Namespace: "shop", Name: "web", UID: "u-1", APIVersion: "v1", Kind: "Pod", ResourceVersion: "9", DeletionVersion: "10", Reason: "left",
		Object: []byte(`{"apiVersion":"v1","kind":"Pod"}`),
	})
	records := []event.Record{
		encoded(event.Event{Type: event.Gap, Report: &event.Report{Reset: true}}), encoded(event.Event{Type: event.Synced, Report: &event.Report{}}),
		encoded(event.Event{Type: event.Gap, Report: &event.Report{}}), deleted, encoded(event.Event{Type: event.Closed, Report: &event.Report{}}),
		deleted,
	}
	records[5].Value = nil // as at the end of an incarnation
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			b := startBus(t)
			c := b.config()
			c.Delivery, c.Tombstones, c.Create.Partitions = delivery, true, 1
			batch := &event.Batch{Seq: 1, Records: records}
			if delivery == exactlyOnce {
				deliver(t, openExact(t, c), batch)
			} else {
				writeAll(t, openSink(t, c), batch)
			}
			var keys []string
			var before, null consumed
			for _, m := range b.consumeCommitted(t, "t") {
				keys = append(keys, string(m.key))
				if m.Value == nil {
					null = m
				} else if string(m.key) == deleted.Key {
					before = m
				}
			}
			want := []string{
				"c/_collection/pods:canary@shop/reset", "c/_collection/pods:canary@shop/synced", "c/_collection/pods:canary@shop/gap",
				deleted.Key, deleted.Key, "c/_collection/pods:canary@shop/reset", deleted.Key,
			}
			if d := cmp.Diff(want, keys); d != "" {
				t.Errorf("keys (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before.Headers, null.Headers); d != "" || null.Headers["ce_id"] != "pods:canary@shop:7:u-1:9:deleted" {
				t.Errorf("headers of the null value, which has the id %q (-deleted +null):\n%s", null.Headers["ce_id"], d)
			}
			e, err := consumer.Decode(consumer.Message{Headers: null.Headers})
			if err != nil || e.Type != event.Deleted || e.Collection != "pods:canary@shop" || e.Incarnation != 7 || e.Run != 7 || e.Name != "web" || e.ResourceVersion != "9" {
				t.Errorf("a consumer reads %+v, %v", e, err)
			}
		})
	}
}

// A consumer can read every compression.
func TestCompressions(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	for i, codec := range compressions {
		c := b.config()
		c.Compression = codec
		n := number(fmt.Sprintf("t%d", i))
		x := openExact(t, c)
		deliver(t, x, n.batch(50, 200))
		n.checkExactly(t, b.consumeCommitted(t, n.topic))
		x.Close()
		m := number(fmt.Sprintf("u%d", i))
		writeAll(t, openSink(t, c), m.batch(50, 200))
		m.checkExactly(t, b.consumeCommitted(t, m.topic))
	}
}

// A record that the client gives up after a timeout is an outage like any other: the whole batch is tried again, and is written
// once.
func TestRecordTimesOut(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 0)
	x := openExact(t, b.config())
	x.store.Release()
	x.store.writer.opts = append(x.store.writer.opts, kgo.RecordDeliveryTimeout(time.Second))
	if _, err := x.store.Settle(t.Context(), 0); err != nil { // so that the next client has the option
		t.Fatal(err)
	}
	n := number("t")
	batch := n.batch(50, 10)
	answer := leaderless(b)
	var healed atomic.Bool
	b.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if healed.Load() {
			return nil, nil, false
		}
		return answer(req)
	})
	_, err := x.Write(t.Context(), batch)
	if !errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, sink.ErrFenced) || errors.Is(err, sink.ErrReset) ||
		errors.As(err, new(*sink.RefusedError)) || errors.As(err, new(*sink.RouteError)) || errors.As(err, new(*sink.RecordError)) {
		t.Fatalf("Write: %v, want a timeout that is tried again", err)
	}
	healed.Store(true)
	deliver(t, x, batch)
	if got := len(b.consumeCommitted(t, "t")); got != len(batch.Records) {
		t.Errorf("consumers see %d records, want %d", got, len(batch.Records))
	}
}

// clients counts the clients that are created.
type clients struct{ made atomic.Int32 }

func (c *clients) OnNewClient(*kgo.Client) { c.made.Add(1) }

// A sink that delivers exactly once has two clients. Each client has a connection to every broker, and authenticates on it.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	n := number("t")
	for _, start := range []string{"first", "second"} { // the second reads what the first has written
		made := &clients{}
		c := b.config()
		c.Delivery = exactlyOnce
		s, err := NewStore(StoreOptions{Options: Options{Config: c, Identity: identity, Client: []kgo.Opt{kgo.WithHooks(made)}}})
		if err != nil {
			t.Fatal(err)
		}
		x := &owned{NewTransactional(s), s}
		if err := errors.Join(x.Open(t.Context(), nil), x.store.Load(t.Context())); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			deliver(t, x, n.batch(50, 10))
			x.topics.forget() // as after one minute
		}
		deliver(t, x, &event.Batch{Seq: n.seq + 1, Records: []event.Record{record(start, "k", "1", 0)}})
		if got := made.made.Load(); got != 2 {
			t.Errorf("the %s start made %d clients, want 2", start, got)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}
