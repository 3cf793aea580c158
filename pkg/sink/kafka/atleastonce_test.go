package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/sinktest"
)

// suite runs the suite of all sinks. connect returns the sink, and consume returns what consumers of the sink read from a
// topic.
func suite(t *testing.T, exactlyOnce bool, connect func(t *testing.T, b *bus) sink.Sink, consume func(b *bus, t *testing.T, topic string) []consumed) {
	const topic, partitions, limit = "k8s.test.core.pods", 4, 100_000
	sinktest.RunFormats(t, func(t *testing.T) *sinktest.Harness {
		b := startBus(t, kfake.NumBrokers(2))
		b.topic(t, topic, partitions, limit)
		return &sinktest.Harness{
			New: func(t *testing.T) sink.Sink { return connect(t, b) },
			Read: func(t *testing.T) []sinktest.Message {
				var msgs []sinktest.Message
				for _, m := range consume(b, t, topic) {
					msgs = append(msgs, m.Message)
				}
				return msgs
			},
			Route: topic, Partitions: partitions, MaxRecord: limit, ExactlyOnce: exactlyOnce,
			Stop: b.stop, Start: b.start,
			Header:      func(a event.Attribute) (string, string) { return "ce_" + a.Name, a.Value },
			IgnoreLeaks: brokerGoroutines(),
		}
	})
}

func TestSuite(t *testing.T) {
	suite(t, false, func(t *testing.T, b *bus) sink.Sink { return newSink(t, b.config()) }, (*bus).consume)
}

// Consumers filter by header, compact by key and expire by time.
func TestRecordOnTheWire(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := openSink(t, b.config())
	seen := time.Date(2026, 3, 4, 5, 6, 7, int(89*time.Millisecond), time.UTC)
	r := record("pods", "c/core/pods/ns/name", "id-1", 0)
	r.Attributes = []event.Attribute{{Name: "specversion", Value: "1.0"}, {Name: "name", Value: "näme"}}
	r.Event = &event.Event{Time: seen}
	tombstone := event.Record{Route: "pods", Key: r.Key}
	gap := event.Record{Route: "pods", Value: []byte("gap"), Broadcast: true}
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{r, tombstone, gap}})

	msgs := b.consume(t, "pods")
	if len(msgs) != 2+4 {
		t.Fatalf("the topic holds %d records, want 2 and one gap per partition", len(msgs))
	}
	for _, m := range msgs {
		switch {
		case string(m.Value) == "gap":
			if m.key != nil {
				t.Errorf("the collection event has key %q, want none", m.key)
			}
		case m.Value == nil:
			if string(m.key) != r.Key {
				t.Errorf("the tombstone has key %q", m.key)
			}
		default:
			want := map[string]string{"content-type": "application/cloudevents+json; charset=UTF-8", "ce_specversion": "1.0", "ce_name": "näme"}
			if d := cmp.Diff(want, m.Headers); d != "" {
				t.Errorf("headers (-want +got):\n%s", d)
			}
			if string(m.key) != r.Key || !m.time.Equal(seen) {
				t.Errorf("key %q, time %v, want %q, %v", m.key, m.time, r.Key, seen)
			}
		}
	}
}

// A missing topic is created with the configured settings.
func TestCreatesTopics(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	c := b.config()
	c.Create.Partitions = 7
	s := openSink(t, c)
	b.topic(t, "t1", 2, 0) // after Open, so the connection does not know the topic
	batch := &event.Batch{Seq: 1}
	for i := range 20 {
		batch.Records = append(batch.Records, record(fmt.Sprintf("t%d", i%3), fmt.Sprint(i), fmt.Sprint(i), 0))
	}
	if errs := writeAll(t, s, batch); errs != nil {
		t.Errorf("Write with missing topics: %v", errs)
	}
	for topic, want := range map[string]int{"t0": 7, "t1": 2, "t2": 7} {
		if n := len(b.PartitionInfos(topic)); n != want {
			t.Errorf("topic %s has %d partitions, want %d", topic, n, want)
		}
	}
	configs := b.TopicInfo("t0").Configs
	for name, want := range map[string]string{"cleanup.policy": "delete", "max.message.bytes": "8388608"} {
		if v := configs[name]; v == nil || *v != want {
			t.Errorf("the created topic's %s is %v, want %s", name, v, want)
		}
	}
}

// Two pipelines may create the same topic at the same moment.
func TestTopicCreatedByAnother(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := openSink(t, b.config())
	b.ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.DropControl()
		b.SleepControl(func() { _ = b.CreateTopic("t", 2, nil) })
		return nil, nil, false
	})
	n := number("t")
	if errs := writeAll(t, s, n.batch(20, 0)); errs != nil {
		t.Errorf("Write: %v", errs)
	}
	if p := len(b.PartitionInfos("t")); p != 2 {
		t.Errorf("the topic has %d partitions, want the 2 of the other pipeline", p)
	}
	n.check(t, b.consume(t, "t"), 0)
}

// A topic that was created a moment ago must not cause an error.
func TestTopicAppears(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	c := b.config()
	c.Create.Enabled = new(false)
	s := openSink(t, c)
	b.topic(t, "t", 1, 0)
	if errs := writeAll(t, s, number("t").batch(1, 0)); errs != nil {
		t.Errorf("Write: %v", errs)
	}
}

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	c := b.config()
	c.Create.Enabled = new(false)
	s := openSink(t, c)
	batch := &event.Batch{Seq: 1, Records: []event.Record{record("absent", "k", "1", 0)}}
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, `"absent"`, "does not exist", "create.enabled")
	b.topic(t, "absent", 1, 0) // as the operator does after reading the message
	writeAll(t, s, batch)
	if got := values(b.consume(t, "absent"))[0]; len(got) != 1 {
		t.Errorf("the topic holds %v, want one record", got)
	}
}

func TestTopicNameRefused(t *testing.T) {
	t.Parallel()
	s := openSink(t, startBus(t).config())
	for name, want := range map[string]string{
		"a b": "not a topic name", "": "not a topic name", "..": "not a topic name", "größe": "not a topic name",
		strings.Repeat("a", 250): "250 characters",
	} {
		_, err := s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{record(name, "k", "1", 0)}})
		wantError(t, err, want, "topic template")
	}
}

// More partitions would move keys, and the order of events would be lost without anyone noticing.
func TestPartitionCountChanged(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "pods", 3, 0)
	s := openSink(t, b.config())
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{record("pods", "k", "1", 0)}})
	if err := b.DeleteTopic("pods"); err != nil {
		t.Fatal(err)
	}
	b.topic(t, "pods", 5, 0)
	s.drop() // like any failed request, so the metadata is read again
	_, err := s.Write(t.Context(), &event.Batch{Seq: 2, Records: []event.Record{record("pods", "k", "2", 0)}})
	if !errors.As(err, new(*sink.RefusedError)) || !strings.Contains(err.Error(), `topic "pods": it has 5 partitions and had 3`) {
		t.Errorf("Write: %v, want a RefusedError", err)
	}
}

// The content of a deleted topic is lost, and a new topic with the same name must not hide this.
func TestTopicDeleted(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := openSink(t, b.config())
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{record("pods", "k", "1", 0)}})
	if err := b.DeleteTopic("pods"); err != nil {
		t.Fatal(err)
	}
	batch := &event.Batch{Seq: 2, Records: []event.Record{record("pods", "k", "2", 0)}}
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, `"pods"`, "deleted")
	_, err = s.Write(t.Context(), batch)
	wantError(t, err, `"pods"`, "is gone")
	if b.TopicInfo("pods") != nil {
		t.Error("the topic was created again")
	}
}

func TestWriteNeedsOpen(t *testing.T) {
	t.Parallel()
	s := newSink(t, startBus(t).config())
	_, err := s.Write(t.Context(), &event.Batch{Seq: 1})
	wantError(t, err, "not open")
}

// wantError fails the test unless err is a plain error, which is to be retried, and contains all parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	if errors.As(err, new(*sink.RecordError)) || errors.As(err, new(*sink.RefusedError)) {
		t.Errorf("%T: %v, want an error to be tried again", err, err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}
