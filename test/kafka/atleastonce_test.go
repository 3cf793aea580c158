package kafka_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// The right to write is taken away while a lane writes: that topic is refused, what the others have is there once, and the
// topic has the rest when the right is back.
func TestRightTakenAway(t *testing.T) {
	c := kafkatest.Start(t, kafkatest.Options{Users: map[string]string{"writer": password}, ACLs: true})
	must(t, c.Allow(t.Context(), "writer", "kubebridge-test-", kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs))
	closed, open := newLane(t, c, newTopic(t, c, 3, 0, nil)), newLane(t, c, newTopic(t, c, 3, 0, nil))
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
	for refused == nil {
		batch = mix()
		if _, err := s.Write(t.Context(), batch); err != nil && !errors.As(err, &refused) {
			t.Fatalf("Write: %v, want a RouteError", err)
		}
	}
	must(t, <-denied)
	wantError(t, refused, closed.topic, `allow user "writer" WRITE`)
	if refused.Route != closed.topic {
		t.Fatalf("%q is refused, want %q", refused.Route, closed.topic)
	}
	var stay, leave []event.Record // as a lane does
	for i, r := range batch.Records {
		if i >= refused.Index && r.Route == closed.topic {
			leave = append(leave, r)
		} else {
			stay = append(stay, r)
		}
	}
	batch.Records = stay
	if errs := open.write(s, batch); errs != nil {
		t.Errorf("Write without the refused topic: %v", errs)
	}
	open.write(s, open.batch(100, 0)) // flows on
	open.check(0)
	must(t, c.Forget(t.Context(), "writer", closed.topic))
	open.seq++
	closed.write(s, &event.Batch{Seq: open.seq, Records: leave})
	closed.check(len(leave)) // partitions that had it before the right was gone have it again
	open.check(0)
}

// A topic that grew while the bridge was away, or grows under it, would move keys.
func TestTopicGrew(t *testing.T) {
	topic := newTopic(t, shared, 3, 0, nil)
	s := openSink(t, config(shared))
	l := newLane(t, shared, topic)
	mark, err := s.Write(t.Context(), l.batch(20, 0))
	must(t, err)
	again := newSink(t, config(shared))
	must(t, again.Open(t.Context(), mark))

	client, err := kgo.NewClient(kgo.SeedBrokers(shared.Addrs()...))
	must(t, err)
	defer client.Close()
	grown, err := kadm.NewClient(client).UpdatePartitions(t.Context(), 5, topic)
	must(t, err)
	must(t, grown.Error())
	must(t, shared.Settle(t.Context()))

	err = newSink(t, config(shared)).Open(t.Context(), mark)
	if !errors.As(err, new(*sink.RefusedError)) {
		t.Fatalf("Open: %v, want a RefusedError", err)
	}
	wantWords(t, err, topic, "it has 5 partitions and had 3", "checkpoint reset")
	must(t, newSink(t, config(shared)).Open(t.Context(), nil)) // reset
	l.check(0)
}
