package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// untilReset writes a batch until the sink reports that acknowledged records are lost, and returns the errors before.
func untilReset(t *testing.T, x *exact, b *event.Batch) (errs []error) {
	t.Helper()
	must(t, await(t.Context(), "the loss to be reported", func() error {
		_, err := x.Write(t.Context(), b)
		if err == nil || errors.Is(err, sink.ErrFenced) {
			t.Fatalf("Write: %v, want ErrReset; before that: %v", err, errs)
		}
		errs = append(errs, err)
		if errors.Is(err, sink.ErrReset) {
			return nil
		}
		return err
	}))
	return errs
}

// wantRequest checks whether the next start of the bridge is a reset.
func wantRequest(t *testing.T, x *exact, want []byte) {
	t.Helper()
	if got, err := x.Get(checkpoint.ResetKey()); err != nil || string(got) != string(want) {
		t.Errorf("the request for a reset is %q (%v), want %q", got, err, want)
	}
}

// remove deletes a topic, and waits until every broker knows that.
func remove(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	must(t, c.DeleteTopic(t.Context(), topic))
	must(t, c.Settle(t.Context()))
}

// If a topic is deleted and created again, consumers have lost the records that they had not read yet. So everything is published again.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	remake := func(topic string, partitions int) {
		remove(t, shared, topic)
		must(t, shared.CreateTopic(t.Context(), topic, partitions, 0, nil))
	}
	for name, partitions := range map[string]int{"alike": 3, "larger": 5} {
		t.Run(name, func(t *testing.T) {
			topic, o := newTopic(t, shared, 3, 0, nil), kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}, TransactionTimeout: 4 * time.Second}
			l, x := newWriter(t, shared, topic), openExact(t, exactly(shared), o)
			l.write(x, l.batch(100, 0))
			remake(topic, partitions)
			errs := untilReset(t, x, l.batch(100, 0))
			wantWords(t, errs[len(errs)-1], topic, "was deleted and made again")
			t.Log(errs)
			seq := l.seq
			l = newWriter(t, shared, topic) // expects all records again
			l.seq = seq
			l.write(x, l.batch(100, 0))
			l.checkExactly(x)
			must(t, x.Close())

			x = openExact(t, exactly(shared), o)
			wantRequest(t, x, nil)
			must(t, x.Close())
			remake(topic, partitions) // while nobody looks
			x = openExact(t, exactly(shared), o)
			wantRequest(t, x, checkpoint.ResetRequested())
			l = newWriter(t, shared, topic)
			l.write(x, l.batch(100, 0))
			l.checkExactly(x)
		})
	}
}

// If a topic is deleted and not created again, the bridge creates it.
func TestTopicOnlyDeleted(t *testing.T) {
	t.Parallel()
	topic, o := newTopic(t, shared, 3, 0, nil), kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}, TransactionTimeout: 4 * time.Second}
	l, x := newWriter(t, shared, topic), openExact(t, exactly(shared), o)
	l.write(x, l.batch(100, 0))
	remove(t, shared, topic)
	errs := untilReset(t, x, l.batch(100, 0))
	wantWords(t, errs[len(errs)-1], topic, "was deleted and made again")
	seq := l.seq
	l = newWriter(t, shared, topic) // expects all records again
	l.seq = seq
	l.write(x, l.batch(100, 0))
	l.checkExactly(x)
}

// The deletion of a checkpoint topic leads to a reset: everything is published again, also if the bridge is restarted in between.
func TestCheckpointTopicDeleted(t *testing.T) {
	t.Parallel()
	topic, o := newTopic(t, shared, 3, 0, nil), kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}, TransactionTimeout: 4 * time.Second}
	l, x := newWriter(t, shared, topic), openExact(t, exactly(shared), o)
	l.write(x, l.batch(100, 0))
	remove(t, shared, kafka.CheckpointTopic("", o.Identity))
	batch := l.batch(100, 0)
	t.Log(untilReset(t, x, batch))
	must(t, x.Close())
	x = openExact(t, exactly(shared), o)
	wantRequest(t, x, checkpoint.ResetRequested())
	l.write(x, batch)
	l.checkExactly(x)
}

// If the bridge may not create the topic, its error says so and it waits.
func testCheckpointTopicNotAllowed(t *testing.T, c *kafkatest.Cluster) {
	const user = "seer" // who may not create anything
	o := kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, c)}, TransactionTimeout: 4 * time.Second}
	topic, checkpoints := newTopic(t, c, 3, 0, nil), kafka.CheckpointTopic("", o.Identity)
	create := func() {
		must(t, c.CreateTopic(t.Context(), checkpoints, 1, 0, map[string]string{"cleanup.policy": "compact"}))
	}
	create()
	for _, name := range []string{topic, checkpoints} {
		must(t, c.Allow(t.Context(), user, name, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs))
	}
	must(t, c.AllowTransactions(t.Context(), user, kafka.TransactionalID(o.Identity), kadm.OpWrite, kadm.OpDescribe))
	l, x := newWriter(t, c, topic), openExact(t, as(exactly(c), "SCRAM-SHA-512", user, password), o)
	l.write(x, l.batch(20, 0))
	remove(t, c, checkpoints)
	batch := l.batch(20, 0)
	var err error
	for range 3 { // the first attempt may only find that the topic is gone
		if _, err = x.Write(t.Context(), batch); err == nil || errors.Is(err, sink.ErrReset) {
			t.Fatalf("Write: %v, want what is not allowed", err)
		}
	}
	wantError(t, err, checkpoints, "create it with one partition and cleanup.policy=compact, or allow CREATE on it")
	create()
	untilReset(t, x, batch)
	l.write(x, batch)
	l.checkExactly(x)
}
