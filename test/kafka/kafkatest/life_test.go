package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Acknowledged records survive every way of stopping and restarting a broker.
func TestLife(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Props: map[string]string{"message.max.bytes": "5000"}})
	b := c.Broker(1)
	must(t, c.CreateTopic(t.Context(), "t", 1, 0, nil))
	mustProduce(t, c, "t", "one")
	for name, down := range map[string]func() error{"stop": b.Stop, "kill": b.Kill} {
		must(t, down())
		if err := c.CreateTopic(t.Context(), "u", 1, 0, nil); err == nil {
			t.Errorf("after %s: a topic was created without a broker", name)
		}
		must(t, b.Start(t.Context()))
		wantValues(t, c, "t", "one")
	}
	must(t, b.Pause())
	produced := make(chan error, 1)
	go func() { produced <- produce(t.Context(), t, c, "t", "two") }()
	select {
	case err := <-produced:
		t.Errorf("a paused broker answered (%v)", err)
	case <-time.After(300 * time.Millisecond):
	}
	must(t, b.Resume())
	must(t, <-produced)
	wantValues(t, c, "t", "one", "two")
	if err := produce(t.Context(), t, c, "t", string(make([]byte, 6000))); err == nil {
		t.Error("Props had no effect: the record is larger than message.max.bytes")
	}
	must(t, b.Kill())
	must(t, b.Stop())
	if err := b.Pause(); err == nil {
		t.Error("Pause of a broker that is down: no error")
	}
}

// Readers see neither aborted nor uncommitted records, and do not wait for them.
func TestReadIsCommitted(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	topic := "read-committed-" + suffix()
	must(t, c.CreateTopic(t.Context(), topic, 1, 0, nil))
	defer func() { must(t, c.DeleteTopic(context.Background(), topic)) }()
	wantValues(t, c, topic)
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.TransactionalID("x-"+suffix()), kgo.DefaultProduceTopic(topic))
	must(t, err)
	defer producer.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, producer.BeginTransaction())
		must(t, producer.ProduceSync(t.Context(), kgo.StringRecord(map[kgo.TransactionEndTry]string{kgo.TryCommit: "kept", kgo.TryAbort: "aborted"}[end])).FirstErr())
		must(t, producer.EndTransaction(t.Context(), end))
		wantValues(t, c, topic, "kept")
	}
	must(t, producer.BeginTransaction())
	must(t, producer.ProduceSync(t.Context(), kgo.StringRecord("open")).FirstErr())
	wantValues(t, c, topic, "kept")
	must(t, producer.EndTransaction(t.Context(), kgo.TryCommit))
	wantValues(t, c, topic, "kept", "open")
}

// A leader moves on request, and when its broker is killed. A topic with one replica has no leader while its broker is down.
func TestLeaders(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Brokers: 3})
	must(t, c.CreateTopic(t.Context(), "three", 1, 0, nil))
	must(t, c.CreateTopic(t.Context(), "one", 1, 1, nil))
	if _, err := c.MoveLeader(t.Context(), "one", 0); err == nil {
		t.Error("MoveLeader of a topic with one replica: no error")
	}
	was, err := c.Leader(t.Context(), "three", 0)
	must(t, err)
	seen := map[int32]bool{}
	for range 3 {
		now, err := c.MoveLeader(t.Context(), "three", 0)
		must(t, err)
		if got, err := c.Leader(t.Context(), "three", 0); err != nil || got != now || now == was {
			t.Fatalf("the leader was %d and is %d (%v), MoveLeader says %d", was, got, err, now)
		}
		was, seen[now] = now, true
		mustProduce(t, c, "three", "x")
	}
	if len(seen) != 3 {
		t.Errorf("leaders were %v, want each broker once", seen)
	}

	only, err := c.Leader(t.Context(), "one", 0)
	must(t, err)
	must(t, c.Broker(only).Kill())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, await(ctx, "the partition to have no leader", func(ctx context.Context) (bool, error) {
		leader, err := c.Leader(ctx, "one", 0)
		return leader == -1, err
	}))
	mustProduce(t, c, "three", "without one")
	must(t, c.Broker(only).Start(t.Context()))
	if leader, err := c.Leader(t.Context(), "one", 0); err != nil || leader != only {
		t.Errorf("after its start the leader is %d (%v), want %d", leader, err, only)
	}
	wantValues(t, c, "three", "x", "x", "x", "without one")
}

// The broker executes the request, and the client does not receive the answer.
func TestLoseAnswer(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Proxy: true})
	must(t, c.CreateTopic(t.Context(), "t", 1, 0, nil))
	mustProduce(t, c, "t", "before")
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.DisableIdempotentWrite(), kgo.RecordRetries(3))
	must(t, err)
	defer client.Close()
	lost := c.Broker(1).Proxy().LoseAnswer(0)
	must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("twice")}).FirstErr())
	select {
	case <-lost:
	default:
		t.Error("no answer was lost")
	}
	wantValues(t, c, "t", "before", "twice", "twice")

	c.Broker(1).Proxy().Refuse()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the record never passes the proxy
	defer cancel()
	if err := produce(ctx, t, c, "t", "refused"); err == nil {
		t.Error("a record passed a proxy that refuses")
	}
	c.Broker(1).Proxy().Pass()
	mustProduce(t, c, "t", "after")
	wantValues(t, c, "t", "before", "twice", "twice", "after")
}
