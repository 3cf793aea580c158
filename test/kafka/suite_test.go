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
	runSuite(t, func(t *testing.T, c *kafkatest.Cluster) *sinktest.Harness {
		h, o := harness(t, c), kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, c)}}
		h.New = func(t *testing.T) sink.Sink { return newExact(t, exactly(c), o) }
		h.ExactlyOnce = true
		return h
	})
}

// runSuite gives each way of an outage a broker of its own, except for the tests beside which nothing else may run.
func runSuite(t *testing.T, harness func(*testing.T, *kafkatest.Cluster) *sinktest.Harness) {
	if !shared.Owned() {
		sinktest.Run(t, func(t *testing.T) *sinktest.Harness { return harness(t, shared) })
		return
	}
	for name, outage := range map[string]struct{ stop, start func(*kafkatest.Broker) error }{
		"stopped": {(*kafkatest.Broker).Stop, started},
		"killed":  {(*kafkatest.Broker).Kill, started},
		"paused":  {(*kafkatest.Broker).Pause, (*kafkatest.Broker).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(c *kafkatest.Cluster) func(t *testing.T) *sinktest.Harness {
				b := c.Broker(1)
				return func(t *testing.T) *sinktest.Harness {
					h := harness(t, c)
					h.Stop = func(t *testing.T) {
						must(t, c.Resolved(t.Context(), h.Route)) // see Resolved: a single broker may lose the state of a transaction
						must(t, outage.stop(b))
					}
					h.Start = func(t *testing.T) { must(t, outage.start(b)) }
					t.Cleanup(func() { must(t, outage.start(b)) }) // a test that failed in between must not fail others
					return h
				}
			}
			sinktest.RunAlone(t, with(shared))
			t.Parallel()
			sinktest.RunOthers(t, with(kafkatest.Start(t, kafkatest.Options{})))
		})
	}
	t.Parallel()
}

func started(b *kafkatest.Broker) error { return b.Start(context.Background()) }

// harness returns a harness for a Kafka, which is never stopped, with a topic of its own.
func harness(t *testing.T, c *kafkatest.Cluster) *sinktest.Harness {
	const partitions, limit = 4, 100_000
	topic := newTopic(t, c, partitions, 0, map[string]string{"max.message.bytes": "100000"})
	return &sinktest.Harness{
		New:   func(t *testing.T) sink.Sink { return newSink(t, config(c)) },
		Read:  func(t *testing.T) []sinktest.Message { return messages(t, c, topic) },
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
