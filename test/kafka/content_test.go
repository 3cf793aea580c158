package kafka_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// The sink computes the size of a record batch as Kafka sees it. A size that is too small would make the broker reject a
// whole chunk. A size that is much too large would truncate events that fit.
func TestSizeIsWhatKafkaSees(t *testing.T) {
	t.Parallel()
	const limit = 5000
	topic := newTopic(t, shared, 1, 0, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
	s := openSink(t, config(shared))
	made := func(pad int) *event.Batch {
		r := record(topic, "some/key", strings.Repeat("x", pad))
		r.Attributes = []event.Attribute{{Name: "specversion", Value: "1.0"}, {Name: "id", Value: "an-id"}}
		r.Event = &event.Event{Time: time.Now()}
		return &event.Batch{Seq: 1, Records: []event.Record{r}}
	}
	_, err := s.Write(t.Context(), made(limit))
	e := wantRecordError(t, err, 0)
	if e.Limit != limit {
		t.Errorf("the limit is said to be %d, want %d", e.Limit, limit)
	}
	largest := limit - (e.Size - e.Limit)
	_, err = s.Write(t.Context(), made(largest+1))
	wantRecordError(t, err, 0)
	if _, err := s.Write(t.Context(), made(largest)); err != nil {
		t.Errorf("Write of a record of the largest size that the sink permits returns %v, want no error", err)
	}
	if n := len(read(t, shared, topic)); n != 1 {
		t.Fatalf("the topic holds %d records, want one", n)
	}
	// slack bounds the difference: the sink does not know the size of the timestamp.
	const slack = 25
	must(t, shared.SetTopicConfig(t.Context(), topic, "max.message.bytes", fmt.Sprint(limit-slack)))
	batch := made(largest)
	batch.Seq = 2 // the sink has read the limit before
	_, err = s.Write(t.Context(), batch)
	wantRecordError(t, err, 0)
}

// The limit is lowered after the sink has read it: first chunks are too large, then a record.
func TestLimitLowered(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 1, 0, nil)
	l := newWriter(t, shared, topic)
	s := openSink(t, config(shared))
	l.write(s, l.batch(10, 0))
	must(t, shared.SetTopicConfig(t.Context(), topic, "max.message.bytes", "5000"))
	if errs := l.write(s, l.batch(10, 2000)); errs != nil {
		t.Errorf("Write of chunks that are too large: %v, want none to notice", errs)
	}
	must(t, shared.SetTopicConfig(t.Context(), topic, "max.message.bytes", "1000"))
	batch := l.batch(3, 500)
	large := batch.Records[1]
	batch.Records[1].Value = append([]byte(string(large.Value)), make([]byte, 1500)...)
	_, err := s.Write(t.Context(), batch)
	if e := wantRecordError(t, err, 1); e.Limit >= e.Size {
		t.Errorf("RecordError has size %d and limit %d: nothing to cut", e.Size, e.Limit)
	}
	batch.Records[1] = large
	l.write(s, batch)
	l.check(0)
}

// A compacted topic rejects records without a key. Kafka reports which ones, and the others are written.
func TestCompactedTopicWantsKeys(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 1, 0, map[string]string{"cleanup.policy": "compact"})
	s := openSink(t, config(shared))
	batch := &event.Batch{Seq: 1, Records: []event.Record{
		record(topic, "k", "before"), record(topic, "", "no key"), record(topic, "k", "after"),
	}}
	_, err := s.Write(t.Context(), batch)
	e := wantRecordError(t, err, 1)
	wantWords(t, e, topic)
	batch.Records[1].Key = "k"
	_, err = s.Write(t.Context(), batch)
	must(t, err)
	var got []string
	for _, r := range read(t, shared, topic) {
		got = append(got, string(r.Value))
	}
	if want := []string{"before", "no key", "after"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the topic holds %q, want %q", got, want)
	}
}

// If events that waited for Kafka are older than a topic accepts, they wait on, and the error names the setting.
func TestTooOldForTheTopic(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 1, 0, map[string]string{"message.timestamp.before.max.ms": "60000"})
	s := openSink(t, config(shared))
	r := record(topic, "k", "1")
	r.Event = &event.Event{Time: time.Now().Add(-time.Hour)}
	batch := &event.Batch{Seq: 1, Records: []event.Record{r}}
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, topic, "message.timestamp.before.max.ms")
	must(t, shared.SetTopicConfig(t.Context(), topic, "message.timestamp.before.max.ms", ""))
	_, err = s.Write(t.Context(), batch)
	must(t, err)
}

// Events with times of a clock that was ahead are accepted as soon as the clock is right. The
// broker rejects records that are an hour ahead of its own clock.
func TestSeenByAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 1, 0, map[string]string{"message.timestamp.after.max.ms": "3600000"})
	s := openSink(t, config(shared))
	r := record(topic, "k", "1")
	r.Event = &event.Event{Time: time.Now().Add(2 * time.Hour)}
	_, err := s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{r}})
	must(t, err)
	if got := read(t, shared, topic); len(got) != 1 || got[0].Timestamp.After(time.Now()) {
		t.Errorf("the topic holds %v", got)
	}
}

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	topic := topicName(t, shared)
	c := config(shared)
	c.Create.Enabled = new(false)
	s := openSink(t, c)
	batch := &event.Batch{Seq: 1, Records: []event.Record{record(topic, "k", "1")}}
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, topic, "does not exist", "create.enabled")
	must(t, shared.CreateTopic(t.Context(), topic, 1, 0, nil)) // as the error has asked the operator to do
	if _, err = s.Write(t.Context(), batch); err != nil {
		t.Errorf("Write after the topic was created: %v", err)
	}
}

// A missing topic is created as configured, and can be written to at once.
func TestCreatesTopic(t *testing.T) {
	t.Parallel()
	topic := topicName(t, shared)
	c := config(shared)
	c.Create.Partitions = 7
	s := openSink(t, c)
	l := newWriter(t, shared, topic)
	l.write(s, l.batch(100, 0)) // the election of the new topic's leaders may take a moment
	l.check(0)
	if n, err := shared.Partitions(t.Context(), topic); err != nil || n != 7 {
		t.Errorf("the topic has %d partitions (%v), want 7", n, err)
	}
	l = newWriter(t, shared, topic)
	large := record(topic, "large", strings.Repeat("x", 3<<20)) // over Kafka's default of a million
	if _, err := s.Write(t.Context(), &event.Batch{Seq: 2, Records: []event.Record{large}}); err != nil {
		t.Errorf("Write of a record of 3 MiB to a created topic returns %v, want no error", err)
	}
}

func TestCannotCreateTopic(t *testing.T) {
	t.Parallel()
	own(t) // skips the test for an external Kafka, whose number of brokers is not known
	topic := topicName(t, shared)
	c := config(shared)
	c.Create.ReplicationFactor = 3
	s := openSink(t, c)
	_, err := s.Write(t.Context(), &event.Batch{Seq: 1, Records: []event.Record{record(topic, "k", "1")}})
	wantError(t, err, topic, "replication factor 3", "too few brokers (1): set kafka.create.replicationFactor to at most 1")
	if strings.Contains(err.Error(), "let ") {
		t.Errorf("%q speaks of permissions", err)
	}
	o := kafka.StoreOptions{Options: kafka.Options{Identity: bridge(t, shared)}, Replicas: 3}
	wantError(t, newExact(t, exactly(shared), o).Open(t.Context(), nil), "too few brokers (1): set checkpoint.kafka.replicas to at most 1")
}

// If a topic was deleted, its records are lost. The sink must report that, even if a new topic has the name.
func TestTopicDeleted(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, shared, 1, 0, nil)
	l := newWriter(t, shared, topic)
	s := openSink(t, config(shared))
	l.write(s, l.batch(10, 0))
	must(t, shared.DeleteTopic(t.Context(), topic))
	batch := l.batch(10, 0)
	_, err := s.Write(t.Context(), batch)
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); { // a broker deletes the topic some time after it has acknowledged the request
		batch = l.batch(10, 0)
		_, err = s.Write(t.Context(), batch)
	}
	for range 2 { // the first attempt may only find that the leader is gone
		_, err = s.Write(t.Context(), batch)
	}
	wantError(t, err, topic, "is gone")
	if n, err := shared.Partitions(t.Context(), topic); err == nil {
		t.Errorf("the topic was created again, with %d partitions", n)
	}
}
