package kafka_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// If the permission to write is withdrawn while a pipeline writes, the topic is refused, other topics have their records once, and the
// topic gets the rest when the permission is granted again.
func TestRightTakenAway(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, ACLs: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs))
	closed, open := newWriter(t, c, newTopic(t, c, 3, 0, nil)), newWriter(t, c, newTopic(t, c, 3, 0, nil))
	s := openSink(t, as(config(c), "SCRAM-SHA-512", "writer", password))
	mix := func() *event.Batch {
		x, y := closed.batch(200, 100), open.batch(200, 100)
		for i := range x.Records {
			y.Records = slices.Insert(y.Records, 2*i, x.Records[i])
		}
		return y
	}
	denied := make(chan error, 1)
	go func() { denied <- c.Deny(t.Context(), "writer", closed.topic, kadm.OpWrite) }()
	var refused *sink.RouteError
	var batch *event.Batch
	var err error
	repeats := 0 // caused by other failures than missing permissions
	for end := time.Now().Add(patience); refused == nil; {
		if err == nil {
			batch = mix()
		} else {
			repeats += len(batch.Records)
		}
		if _, err = s.Write(t.Context(), batch); err != nil && !errors.As(err, &refused) && time.Now().After(end) {
			t.Fatalf("Write: %v, want a RouteError", err)
		}
	}
	must(t, <-denied)
	wantError(t, refused, closed.topic, `allow user "writer" WRITE`)
	if refused.Route != closed.topic {
		t.Fatalf("%q is refused, want %q", refused.Route, closed.topic)
	}
	var stay, leave []event.Record // as a pipeline does
	for i, r := range batch.Records {
		if i >= refused.Index && r.Route == closed.topic {
			leave = append(leave, r)
		} else {
			stay = append(stay, r)
		}
	}
	batch.Records = stay
	repeats += len(batch.Records) * len(open.write(s, batch))
	repeats += 100 * len(open.write(s, open.batch(100, 0))) // is not affected
	open.check(repeats)
	must(t, c.Forget(t.Context(), "writer", closed.topic))
	open.seq++
	repeats += len(leave) * len(closed.write(s, &event.Batch{Seq: open.seq, Records: leave}))
	closed.check(repeats + len(leave)) // partitions that were written before the permission was withdrawn are written again
	open.check(repeats)
}

// If a topic gets more partitions, while the bridge is down or while it runs, keys would move.
func TestTopicGrew(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 3, 0, nil)
	s := openSink(t, config(shared))
	l := newWriter(t, shared, topic)
	first := l.batch(20, 0)
	var mark []byte
	must(t, trying(t, func(ctx context.Context) (err error) {
		mark, err = s.Write(ctx, first)
		return err
	}))
	again := newSink(t, config(shared))
	must(t, trying(t, func(ctx context.Context) error { return again.Open(ctx, mark) }))

	client, err := kgo.NewClient(kgo.SeedBrokers(shared.Addrs()...))
	must(t, err)
	defer client.Close()
	grown, err := kadm.NewClient(client).UpdatePartitions(t.Context(), 5, topic)
	must(t, err)
	must(t, grown.Error())
	must(t, shared.Settle(t.Context()))

	grew := newSink(t, config(shared))
	err = trying(t, func(ctx context.Context) error { return grew.Open(ctx, mark) })
	if !errors.As(err, new(*sink.RefusedError)) {
		t.Fatalf("Open: %v, want a RefusedError", err)
	}
	wantWords(t, err, topic, "it has 5 partitions and had 3", "checkpoint reset")
	must(t, trying(t, func(ctx context.Context) error { return grew.Open(ctx, nil) })) // after a reset
}
