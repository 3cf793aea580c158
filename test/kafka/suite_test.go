package kafka_test

import (
	"context"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
	"github.com/kubebridge/kubebridge/test/kafka/kafkatest"
)

// TestSuite runs the suite with a broker that is stopped, killed, or paused.
func TestSuite(t *testing.T) { runSuite(t, harness) }

// TestExactSuite runs the suite for exactly-once delivery: no record may be repeated, and the second of two sinks must fence
// the first.
func TestExactSuite(t *testing.T) {
	runSuite(t, func(t *testing.T) *sinktest.Harness {
		h, o := harness(t), kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}}
		h.New = func(t *testing.T) sink.Sink { return newExact(t, exactly(shared), o) }
		h.ExactlyOnce = true
		return h
	})
}

func runSuite(t *testing.T, harness func(*testing.T) *sinktest.Harness) {
	if !shared.Owned() {
		sinktest.Run(t, harness)
		return
	}
	b := shared.Broker(1)
	start := func() error { return b.Start(context.Background()) }
	for name, outage := range map[string]struct{ stop, start func() error }{
		"stopped": {b.Stop, start},
		"killed":  {b.Kill, start},
		"paused":  {b.Pause, b.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) *sinktest.Harness {
				h := harness(t)
				h.Stop = func(t *testing.T) {
					must(t, shared.Resolved(t.Context(), h.Route)) // see Resolved: a single broker may lose the state of a transaction
					must(t, outage.stop())
				}
				h.Start = func(t *testing.T) { must(t, outage.start()) }
				t.Cleanup(func() { must(t, outage.start()) }) // a test that failed in between must not fail others
				return h
			})
		})
	}
}

// harness returns a harness for the shared Kafka, which is never stopped, with a topic of its own.
func harness(t *testing.T) *sinktest.Harness {
	const partitions, limit = 4, 100_000
	topic := newTopic(t, shared, partitions, 0, map[string]string{"max.message.bytes": "100000"})
	return &sinktest.Harness{
		New:   func(t *testing.T) sink.Sink { return newSink(t, config(shared)) },
		Read:  func(t *testing.T) []sinktest.Message { return messages(t, shared, topic) },
		Route: topic, Partitions: partitions, MaxRecord: limit,
		Header: func(a event.Attribute) (string, string) { return "ce_" + a.Name, a.Value },
	}
}

func messages(t *testing.T, c *kafkatest.Cluster, topic string) []sinktest.Message {
	t.Helper()
	var all []sinktest.Message
	for _, r := range read(t, c, topic) {
		m := sinktest.Message{Route: topic, Key: string(r.Key), Partition: int(r.Partition), Value: r.Value, Headers: map[string]string{}}
		for _, h := range r.Headers {
			m.Headers[h.Key] = string(h.Value)
		}
		all = append(all, m)
	}
	return all
}
