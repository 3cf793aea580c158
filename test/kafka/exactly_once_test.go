package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// All faults happen to one pipeline in the middle of a transaction: the records are written, but not committed.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Proxy: true, Props: map[string]string{
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
	}})
	topic := newTopic(t, c, 3, 0, map[string]string{"min.insync.replicas": "2"})
	o := kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, c)}, TransactionTimeout: 4 * time.Second}
	transactions := kafka.TransactionalID(o.Identity)
	// timeout holds the sink's client until the transaction is aborted: by the sink shortly before the timeout, otherwise by Kafka.
	timeout := func(ctx context.Context) error {
		began, err := c.Transaction(ctx, transactions)
		if err != nil {
			return err
		}
		return await(ctx, "the transaction to be aborted", func() error {
			now, err := c.Transaction(ctx, transactions)
			if err == nil && now == began {
				err = fmt.Errorf("it is still %+v", now)
			}
			return err
		})
	}
	nothing := func(context.Context) error { return nil }
	lifetime := t // sinks outlive the subtests
	l, x := newWriter(t, c, topic), openExact(t, exactly(c), o)
	// amid writes a batch while fault happens, and one afterwards.
	amid := func(t *testing.T, fault func(context.Context) error) (errs []error) {
		t.Helper()
		l.t = t
		x.arm(t.Context(), fault)
		errs = l.write(x, l.batch(batchRecords, 100))
		x.happened(t)
		l.write(x, l.batch(batchRecords, 100))
		return errs
	}
	amid(t, nothing)
	l.checkExactly(x)

	// The request is executed and its answer is lost. Client and sink must find out whether it was executed.
	for name, lost := range map[string]struct {
		request int16
		times   int
		fault   func(context.Context) error
	}{
		"acknowledgement":    {0, 3, nothing},
		"end of transaction": {26, 3, nothing},
		"initialisation":     {22, 1, timeout}, // requested only after a failure
	} {
		t.Run(name+" lost", func(t *testing.T) {
			for range lost.times {
				var answers []<-chan struct{}
				errs := amid(t, func(ctx context.Context) error {
					for _, b := range c.Brokers() { // any of them may receive the request
						answers = append(answers, b.Proxy().LoseAnswer(lost.request))
					}
					return lost.fault(ctx)
				})
				if !slices.ContainsFunc(answers, ended) {
					t.Error("no answer was lost")
				}
				t.Log(errs)
			}
			l.checkExactly(x)
		})
	}

	t.Run("leaders move", func(t *testing.T) {
		moves := map[string]int32{topic: 3, kafka.CheckpointTopic("", o.Identity): 1, "__transaction_state": 3}
		for name, partitions := range moves {
			amid(t, func(ctx context.Context) (err error) {
				for p := range partitions {
					_, e := c.MoveLeader(ctx, name, p)
					err = errors.Join(err, e)
				}
				return err
			})
		}
		l.checkExactly(x)
	})

	t.Run("brokers killed", func(t *testing.T) {
		for _, b := range c.Brokers() {
			t.Cleanup(func() { must(t, b.Start(context.Background())) })
			began := time.Now()
			errs := amid(t, func(context.Context) error { return b.Kill() })
			t.Log(time.Since(began).Round(time.Millisecond), errs)
			must(t, b.Start(t.Context()))
			l.write(x, l.batch(200, 100))
		}
		l.checkExactly(x)
	})

	// The broker that leads the checkpoint's topic is paused for longer than the transaction timeout. When it resumes, it does not
	// know what was decided in the meantime.
	t.Run("broker paused", func(t *testing.T) {
		id, err := c.Leader(t.Context(), kafka.CheckpointTopic("", o.Identity), 0)
		must(t, err)
		b := c.Broker(id)
		t.Cleanup(func() { must(t, b.Resume()) })
		began := time.Now()
		errs := amid(t, func(context.Context) error { return b.Pause() })
		t.Log(time.Since(began).Round(time.Millisecond), errs)
		must(t, b.Resume())
		l.write(x, l.batch(200, 100))
		l.checkExactly(x)
	})

	t.Run("all brokers paused", func(t *testing.T) {
		all := func(do func(*kafkatest.Broker) error) (err error) {
			for _, b := range c.Brokers() {
				err = errors.Join(err, do(b))
			}
			return err
		}
		l.t = t
		t.Cleanup(func() { must(t, all((*kafkatest.Broker).Resume)) })
		x.arm(t.Context(), func(context.Context) error { return all((*kafkatest.Broker).Pause) })
		batch := l.batch(batchRecords, 100)
		for began := time.Now(); time.Since(began) < 2*o.TransactionTimeout; {
			attempt, end := context.WithTimeout(t.Context(), o.TransactionTimeout)
			_, err := x.Write(attempt, batch)
			end()
			if err == nil || errors.Is(err, sink.ErrFenced) {
				t.Fatalf("Write to brokers that hang: %v, want an error to be tried again", err)
			}
		}
		must(t, all((*kafkatest.Broker).Resume))
		x.happened(t)
		l.write(x, batch)
		l.checkExactly(x)
	})

	t.Run("transaction timeout", func(t *testing.T) {
		must(t, x.Close())
		x = newExact(lifetime, exactly(c), o) // with the short timeout again
		must(t, x.Open(t.Context(), nil))
		errs := amid(t, timeout)
		if len(errs) == 0 {
			t.Error("nobody noticed that the transaction was aborted")
		}
		l.checkExactly(x)
		t.Log(errs)
	})

	// A second instance fences the first one in the middle of a transaction, which is aborted, and continues from
	// the checkpoint.
	t.Run("taken over", func(t *testing.T) {
		l.t = t
		for range 3 {
			next := newExact(lifetime, exactly(c), o)
			x.arm(t.Context(), func(ctx context.Context) error {
				if err := next.Open(ctx, nil); err != nil {
					return err
				}
				return next.Load(ctx)
			})
			batch := l.batch(batchRecords, 100)
			var err error
			for tries := 0; tries < 5 && !errors.Is(err, sink.ErrFenced); tries++ {
				if _, err = x.Write(t.Context(), batch); err == nil {
					t.Fatal("the fenced writer has written")
				}
				t.Log(err)
			}
			x.happened(t)
			if _, err := x.Write(t.Context(), batch); !errors.Is(err, sink.ErrFenced) {
				t.Errorf("Write: %v, want ErrFenced for good", err)
			}
			before := position(l.seq - 1)[0]
			if got, err := next.Get(before.Key); err != nil || string(got) != string(before.Value) {
				t.Errorf("the second one begins at %q (%v), want %q", got, err, before.Value)
			}
			x = next
			if errs := disturbed(l.write(x, batch)); len(errs) > 0 {
				t.Errorf("the second one was disturbed: %v", errs)
			}
			l.checkExactly(x)
		}
	})

	// The limit was lowered after the sink has read it. The sink finds the record, and nothing of the batch is visible until the record is replaced.
	t.Run("message too large", func(t *testing.T) {
		l.t = t
		must(t, c.SetTopicConfig(t.Context(), topic, "max.message.bytes", "5000"))
		if errs := disturbed(l.write(x, l.batch(100, 2000))); len(errs) > 0 {
			t.Errorf("Write of chunks that are too large: %v, want none to notice", errs)
		}
		must(t, c.SetTopicConfig(t.Context(), topic, "max.message.bytes", "1000"))
		seen := len(read(t, c, topic))
		batch := l.batch(60, 500)
		large := batch.Records[31]
		batch.Records[31].Value = append([]byte(string(large.Value)), make([]byte, 1500)...)
		_, err := x.Write(t.Context(), batch)
		if e := wantRecordError(t, err, 31); e.Limit >= e.Size {
			t.Errorf("RecordError has size %d and limit %d: nothing to cut", e.Size, e.Limit)
		}
		if n := len(read(t, c, topic)); n != seen {
			t.Errorf("consumers see %d records of a batch that is not written", n-seen)
		}
		batch.Records[31] = large
		l.write(x, batch)
		l.checkExactly(x)
		must(t, c.SetTopicConfig(t.Context(), topic, "max.message.bytes", ""))
	})

	// If the number of partitions grows, keys would move to other partitions. The program ends instead of breaking their order.
	t.Run("partitions grown", func(t *testing.T) {
		l.t = t
		must(t, c.Grow(t.Context(), topic, 5))
		want := func(err error) {
			t.Helper()
			if !errors.As(err, new(*sink.RefusedError)) {
				t.Fatalf("%v, want a RefusedError", err)
			}
			wantWords(t, err, topic, "5 partitions and had 3")
		}
		batch := l.batch(20, 0)
		for _, b := range c.Brokers() { // the sink reads the number of partitions after a failure, or once a minute
			b.Proxy().Refuse()
		}
		attempt, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		if _, err := x.Write(attempt, batch); err == nil {
			t.Fatal("Write passed a network that refuses")
		}
		for _, b := range c.Brokers() {
			b.Proxy().Pass()
		}
		var seen error
		must(t, await(t.Context(), "the new number to be seen", func() error {
			if _, seen = x.Write(t.Context(), batch); errors.As(seen, new(*sink.RefusedError)) {
				return nil
			}
			return seen
		}))
		want(seen)
		l.take(batch)
		want(newExact(t, exactly(c), o).Open(t.Context(), nil))
		l.checkExactly(x)
	})

	all, err := c.ReadUncommitted(t.Context(), topic)
	must(t, err)
	seen := len(read(t, c, topic))
	t.Logf("%d records were written, %d of them are committed", len(all), seen)
	if len(all) <= seen {
		t.Error("nothing was aborted, so nothing was in the middle of a transaction")
	}
}

// Missing permissions are reported, with the topic if they concern only one, and the sink notices when they are granted.
func testExactNotAllowed(t *testing.T, c *kafkatest.Cluster) {
	writer := as(exactly(c), "SCRAM-SHA-512", "writer", password)
	o := kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, c)}}
	checkpoints := kafka.CheckpointTopic("", o.Identity)
	must(t, c.CreateTopic(t.Context(), checkpoints, 1, 0, map[string]string{"cleanup.policy": "compact"}))
	fine, forbidden := newTopic(t, c, 3, 0, nil), newTopic(t, c, 3, 0, nil)

	x := newExact(t, writer, o)
	wantError(t, x.Open(t.Context(), nil), checkpoints, "allow READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS")
	must(t, c.Allow(t.Context(), "writer", checkpoints, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs))
	id := kafka.TransactionalID(o.Identity)
	wantError(t, x.Open(t.Context(), nil), checkpoints, id, "allow WRITE and DESCRIBE on the transactional id")
	must(t, c.AllowTransactions(t.Context(), "writer", id, kadm.OpWrite, kadm.OpDescribe))
	must(t, x.Open(t.Context(), nil))

	l := newWriter(t, c, fine)
	l.write(x, l.batch(20, 0))
	must(t, c.Deny(t.Context(), "writer", forbidden, kadm.OpWrite))
	batch := l.batch(20, 0)
	batch.Records = append(batch.Records, record(forbidden, "k", "1"), record(fine, "key-0", "after"))
	_, err := x.Write(t.Context(), batch)
	var route *sink.RouteError
	if !errors.As(err, &route) || route.Route != forbidden || route.Index != 20 {
		t.Fatalf("Write: %v, want a RouteError about record 20", err)
	}
	wantWords(t, err, forbidden, `allow user "writer" WRITE`)
	if n := len(read(t, c, fine)); n != 20 {
		t.Errorf("consumers see %d records, want the 20 of the first batch", n)
	}
	batch.Records = batch.Records[:20] // as a pipeline does
	l.write(x, batch)
	must(t, c.Forget(t.Context(), "writer", forbidden))
	l.write(x, &event.Batch{Seq: batch.Seq + 1, Records: []event.Record{record(forbidden, "k", "1")}})
	if n := len(read(t, c, forbidden)); n != 1 {
		t.Errorf("topic %q holds %d records, want one", forbidden, n)
	}
	l.checkExactly(x)
	t.Run("checkpoint deleted", func(t *testing.T) { testCheckpointTopicNotAllowed(t, c) })
}

// A bridge of another cluster with the same names does not fence the first one.
func TestForeignCheckpoint(t *testing.T) {
	t.Parallel()
	o := kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}}
	l, x := newWriter(t, shared, newTopic(t, shared, 3, 0, nil)), openExact(t, exactly(shared), o)
	l.write(x, l.batch(20, 0))
	other := o
	other.Identity.ClusterUID = "another"
	if err := newExact(t, exactly(shared), other).Open(t.Context(), nil); !errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), kafka.CheckpointTopic("", o.Identity)) {
		t.Errorf("Open: %v, want ErrForeign with the topic", err)
	}
	if errs := disturbed(l.write(x, l.batch(20, 0))); len(errs) > 0 {
		t.Errorf("the owner was disturbed: %v", errs)
	}
	l.checkExactly(x)
}

// disturbed returns errs without errors that only mean that a busy machine has exceeded the tests' short transaction timeout.
func disturbed(errs []error) []error {
	return slices.DeleteFunc(errs, func(err error) bool { return strings.Contains(err.Error(), "the transaction took longer than") })
}

// ended reports whether c is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// await tries until there is no error. It returns the last one when ctx ends, and when its patience does.
func await(ctx context.Context, what string, try func() error) error {
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
