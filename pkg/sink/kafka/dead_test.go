package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// The topic of dead letters is created with a retention of one month, even if the topics of events are compacted.
func TestDeadTopicIsMade(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	c := b.config()
	c.Tombstones, c.DeadLetter = true, &DeadLetter{}
	s := openSink(t, c)
	const dead = "kubebridge.test.c.audit.dead"
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{record("t", "k", "1", 0), record(dead, "k", "2", 0)}})
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(t.Context(), "t", dead)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range configs {
		for _, e := range r.Configs {
			got[r.Name+" "+e.Key] = e.MaybeValue()
		}
	}
	for key, want := range map[string]string{
		"t cleanup.policy": "compact", dead + " cleanup.policy": "delete", dead + " retention.ms": "2592000000", dead + " max.message.bytes": "8388608",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

// When an event about a collection becomes a dead letter, the pipeline removes a later end of that collection from the batch.
// Records of other partitions that were written are neither repeated nor missed.
func TestRecordsTakenOut(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "bad", 1, 0)
	b.topic(t, "good", 1, 0)
	b.topic(t, "dead", 1, 0)
	s := openSink(t, b.config())
	batch := &event.Batch{Seq: 1}
	for i := range 6 {
		batch.Records = append(batch.Records, record([]string{"bad", "good"}[i%2], "k", fmt.Sprint(i), 0))
	}
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "bad", Err: kerr.InvalidRecord, Count: 2})
	_, err := s.Write(t.Context(), batch)
	wantRecordError(t, err, 0)
	batch.Records[0] = record("dead", "k", "0", 0)
	batch.Records = append(batch.Records[:2], batch.Records[3:]...)
	writeAll(t, s, batch)
	wantIDs(t, b.consume(t, "bad"), "4")
	wantIDs(t, b.consume(t, "good"), "1", "3", "5")
	wantIDs(t, b.consume(t, "dead"), "0")
}
