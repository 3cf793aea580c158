package kafka

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// settingsWorld is a sink that has written to a topic with cleanup.policy=delete.
type settingsWorld struct {
	*bus
	t         *testing.T
	topics    *topics
	compacted atomic.Bool
	seq       uint64
	deliver   func(b *event.Batch) []error
}

func forEachDelivery(t *testing.T, test func(w *settingsWorld)) {
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			w := &settingsWorld{bus: startBus(t), t: t}
			w.topic(t, "t", 1, 0)
			// kfake does not refuse what Kafka refuses on a compacted topic: records without a key.
			w.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: -1, When: func(req kmsg.Request) bool {
				return w.compacted.Load() && slices.ContainsFunc(req.(*kmsg.ProduceRequest).Topics, func(topic kmsg.ProduceRequestTopic) bool {
					records := topic.Partitions[0].Records
					return bytes.Contains(records, []byte("gap-")) && !bytes.Contains(records, []byte("/_collection/"))
				})
			}})
			if delivery == exactlyOnce {
				x := openExact(t, w.config())
				w.topics, w.deliver = x.topics, func(b *event.Batch) []error { return deliver(t, x, b) }
			} else {
				s := openSink(t, w.config())
				w.topics, w.deliver = s.topics, func(b *event.Batch) []error { return writeAll(t, s, b) }
			}
			test(w)
		})
	}
}

// compact changes the topic's cleanup.policy, as an operator does.
func (w *settingsWorld) compact() {
	w.t.Helper()
	w.set(w.t, "t", cleanupPolicy, policyCompact)
	w.compacted.Store(true)
}

// minute makes the sink look up the topic again.
func (w *settingsWorld) minute() { w.topics.looked = time.Now().Add(-metadataTTL - time.Second) }

// write writes records without an error, and returns the keys of all records of the topic.
func (w *settingsWorld) write(records ...event.Record) (keys []string) {
	w.t.Helper()
	w.seq++
	if errs := w.deliver(&event.Batch{Seq: w.seq, Records: records}); errs != nil {
		w.t.Errorf("batch %d: %v", w.seq, errs)
	}
	for _, m := range w.consumeCommitted(w.t, "t") {
		keys = append(keys, string(m.key))
	}
	return keys
}

func gapRecord(id string) event.Record {
	r := record("t", "", id, 0)
	r.Broadcast, r.Event = true, &event.Event{Type: event.Gap}
	r.Attributes = []event.Attribute{{Name: "cluster", Value: "c"}, {Name: "collection", Value: "pods"}, {Name: "type", Value: event.Gap.CloudEvent()}}
	return r
}

func (w *settingsWorld) want(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("the keys are %q, want %q", got, want)
	}
}

// A topic becomes compacted under a running bridge. Kafka refuses the next event about a collection, because it has no key. It is written with its
// key, and nothing counts as refused.
func TestCompactedWhileRunning(t *testing.T) {
	t.Parallel()
	forEachDelivery(t, func(w *settingsWorld) {
		w.write(gapRecord("gap-1"))
		w.compact()
		w.want(w.write(record("t", "a", "object", 0), gapRecord("gap-2"), gapRecord("gap-3")), "", "a", "c/_collection/pods/gap", "c/_collection/pods/gap")
	})
}

// Kafka does not refuse an event about a request that has the key of its object. It has a key of its own as of the next look-up.
func TestRequestsOnceCompacted(t *testing.T) {
	t.Parallel()
	forEachDelivery(t, func(w *settingsWorld) {
		attributed := record("t", "a", "attributed", 0)
		attributed.Event = &event.Event{Type: event.Attributed}
		w.want(w.write(attributed), "a")
		w.compact()
		w.minute()
		w.want(w.write(attributed), "a", "a/_attributed")
		w.set(w.t, "t", cleanupPolicy, policyDelete)
		w.minute()
		w.want(w.write(attributed), "a", "a/_attributed", "a")
	})
}

// The settings of a topic that is written to all the time are read once a minute, also while other topics are found.
func TestSettingsAreReadOnceAMinute(t *testing.T) {
	t.Parallel()
	forEachDelivery(t, func(w *settingsWorld) {
		read := w.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Count: -1, Observe: true})
		for range 10 {
			w.write(record("t", "a", "object", 0))
		}
		if n := read.Hits(); n != 1 {
			t.Errorf("ten batches read the settings %d times, want once", n)
		}
		w.topics.looked = w.topics.looked.Add(-metadataTTL / 2)
		before := w.topics.looked
		w.write(record("other", "a", "object", 0))
		if w.topics.looked != before {
			t.Error("the look-up of another topic postpones that of this one")
		}
	})
}
