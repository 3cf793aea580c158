package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// setLimit changes a topic's max.message.bytes, as an operator does.
func (b *bus) setLimit(t *testing.T, topic string, bytes int) {
	t.Helper()
	b.set(t, topic, "max.message.bytes", fmt.Sprint(bytes))
}

// set changes a setting of a topic.
func (b *bus) set(t *testing.T, topic, name, value string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(b.brokers...), Transport: transport}
	resp, err := client.IncrementalAlterConfigs(t.Context(), &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: topic,
			Configs:      []kafka.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet}},
		}},
	})
	if err == nil {
		err = resp.Resources[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wantRecordError(t *testing.T, err error, index int) *sink.RecordError {
	t.Helper()
	var e *sink.RecordError
	if !errors.As(err, &e) || e.Index != index {
		t.Fatalf("Write: %v, want a RecordError about record %d", err, index)
	}
	return e
}

// sequence returns a batch of n records of one key, numbered from 0.
func sequence(seq uint64, n int) *event.Batch {
	b := &event.Batch{Seq: seq}
	for i := range n {
		b.Records = append(b.Records, record("t", "k", fmt.Sprint(i), 0))
	}
	return b
}

func wantIDs(t *testing.T, got []consumed, want ...string) {
	t.Helper()
	if ids := values(got)[0]; !slices.Equal(ids, want) {
		t.Errorf("the topic holds %v, want %v", ids, want)
	}
}

// The size check cannot know the broker's own rules about content. The one rejected record is found; the records before it are
// written, and none behind it.
func TestBrokerRejectsRecord(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 0)
	b.topic(t, "dead", 1, 0)
	sent := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1, When: func(req kmsg.Request) bool {
		return bytes.Contains(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records, []byte("poison"))
	}})
	s := openSink(t, b.config())
	batch := sequence(1, 8)
	batch.Records[3].Value = []byte("poison-3")
	batch.Records[6].Value = []byte("poison-6")

	_, err := s.Write(t.Context(), batch)
	if e := wantRecordError(t, err, 3); e.Size != 0 || e.Limit != 0 {
		t.Errorf("RecordError %+v speaks of a size", e)
	}
	wantIDs(t, b.consume(t, "t"), "0", "1", "2")
	if n := sent.Hits(); n != 1+4 {
		t.Errorf("finding record 3 took %d requests, want the chunk and four of one record", n)
	}

	batch.Records[3] = record("t", "k", "truncated", 0) // in the same place
	_, err = s.Write(t.Context(), batch)
	wantRecordError(t, err, 6)
	wantIDs(t, b.consume(t, "t"), "0", "1", "2", "truncated", "4", "5")

	batch.Records[6] = record("dead", "k", "dead letter", 0) // in another topic
	writeAll(t, s, batch)
	wantIDs(t, b.consume(t, "t"), "0", "1", "2", "truncated", "4", "5", "7")
	wantIDs(t, b.consume(t, "dead"), "dead letter")
}

// A dead letter may come before records of its topic that are already written. These are neither lost nor repeated.
func TestReplacedRecordMovesInFront(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 0)
	b.topic(t, "dead", 1, 0)
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord})
	s := openSink(t, b.config())
	batch := &event.Batch{Seq: 1, Records: []event.Record{
		record("dead", "k", "before", 0), record("t", "k", "poison", 0), record("dead", "k", "behind", 0),
	}}
	_, err := s.Write(t.Context(), batch)
	wantRecordError(t, err, 1)
	written := len(b.consume(t, "dead"))
	batch.Records[1] = record("dead", "k", "moved", 0)
	writeAll(t, s, batch)
	want := []string{"before", "moved", "behind"}
	if written == 2 {
		want = []string{"before", "behind", "moved"}
	}
	wantIDs(t, b.consume(t, "dead"), want...)
}

// The record is larger than the topic's limit, so no record of the batch is sent.
func TestOversizeIsFoundBeforeSending(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 5000)
	s := openSink(t, b.config())
	sent := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	batch := sequence(1, 5)
	batch.Records[3] = record("t", "k", "large", 9000)
	_, err := s.Write(t.Context(), batch)
	e := wantRecordError(t, err, 3)
	if e.Limit != 5000 || e.Size < 9000 {
		t.Errorf("RecordError has size %d and limit %d, want over 9000 and 5000", e.Size, e.Limit)
	}
	if sent.Hits() > 0 {
		t.Errorf("%d requests were sent", sent.Hits())
	}
	b.setLimit(t, "t", 20_000) // instead of replacing the record
	if errs := writeAll(t, s, batch); errs != nil {
		t.Errorf("Write after the limit was raised: %v", errs)
	}
	wantIDs(t, b.consume(t, "t"), "0", "1", "2", "large", "4")
}

// The limit is lowered after the sink has read it. First chunks become too large, then a record.
func TestLimitLowered(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 0)
	s := openSink(t, b.config())
	n := number("t")
	writeAll(t, s, n.batch(10, 0))
	b.setLimit(t, "t", 5000)
	if errs := writeAll(t, s, n.batch(10, 2000)); errs != nil {
		t.Errorf("Write of chunks that are too large: %v, want none to notice", errs)
	}
	n.check(t, b.consume(t, "t"), 0)
	sent := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	writeAll(t, s, n.batch(10, 2000))
	if sent.Hits() != 5 {
		t.Errorf("ten records of 2000 bytes took %d requests of at most 5000 bytes, want 5", sent.Hits())
	}
	n.check(t, b.consume(t, "t"), 0)

	b.setLimit(t, "t", 1000)
	batch := n.batch(3, 500)
	large := batch.Records[1]
	batch.Records[1].Value = append(bytes.Clone(large.Value), make([]byte, 1500)...)
	_, err := s.Write(t.Context(), batch)
	e := wantRecordError(t, err, 1)
	if e.Limit >= e.Size {
		t.Errorf("RecordError has size %d and limit %d: nothing to cut", e.Size, e.Limit)
	}
	_, err = s.Write(t.Context(), batch)
	if e = wantRecordError(t, err, 1); e.Limit != 1000 {
		t.Errorf("RecordError has limit %d, want the new one of 1000", e.Limit)
	}
	batch.Records[1] = large
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), 0)
}

// One record among many partitions is rejected. Each partition has a prefix of its records, and in the end each record once.
func TestPoisonAmongPartitions(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 6, 0)
	var requests atomic.Int64
	b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1, When: func(req kmsg.Request) bool {
		requests.Add(1)
		return bytes.Contains(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records, []byte("poison"))
	}})
	s := openSink(t, b.config())
	n := number("t")
	batch := n.batch(300, 0)
	whole := batch.Records[150].Value
	batch.Records[150].Value = append(bytes.Clone(whole), "poison"...)
	_, err := s.Write(t.Context(), batch)
	if e := wantRecordError(t, err, 150); e.Limit >= e.Size || e.Limit <= 0 {
		t.Errorf("RecordError has size %d and limit %d", e.Size, e.Limit)
	}
	batch.Records[150].Value = whole
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), 0)
	if r := requests.Load(); r > 200 {
		t.Errorf("%d requests were sent: more partitions than the bad one went record by record", r)
	}
}
