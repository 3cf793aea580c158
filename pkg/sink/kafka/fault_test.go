package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// numbered makes batches whose records are numbered per key.
type numbered struct {
	topic string
	seq   uint64
	count map[string]int
}

func number(topic string) *numbered { return &numbered{topic: topic, count: map[string]int{}} }

// batch returns the next batch: n records of pad bytes, spread over 20 keys.
func (n *numbered) batch(records, pad int) *event.Batch {
	n.seq++
	b := &event.Batch{Seq: n.seq}
	for i := range records {
		key := fmt.Sprintf("key-%d", i%20)
		n.count[key]++
		b.Records = append(b.Records, record(n.topic, key, fmt.Sprintf("%d-", n.count[key]), pad))
	}
	return b
}

// check fails the test unless every record is in the topic, in order per key, and at most repeats of them are there twice.
func (n *numbered) check(t *testing.T, msgs []consumed, repeats int) {
	t.Helper()
	last := map[string]int{}
	for _, m := range msgs {
		id, _, _ := bytes.Cut(m.Value, []byte("-"))
		i, err := strconv.Atoi(string(id))
		if err != nil {
			t.Fatalf("record %.20q: %v", m.Value, err)
		}
		switch {
		case i == last[m.Key]+1:
			last[m.Key] = i
		case i > last[m.Key]:
			t.Fatalf("key %s: %d follows %d", m.Key, i, last[m.Key])
		default:
			repeats--
		}
	}
	for key, want := range n.count {
		if last[key] != want {
			t.Fatalf("key %s: %d records arrived, want %d", key, last[key], want)
		}
	}
	if repeats < 0 {
		t.Errorf("%d records too many were repeated", -repeats)
	}
}

// While a leader moves, it answers that it wrote nothing. No record is repeated, and one retry is enough.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	b := startBus(t, kfake.NumBrokers(3))
	b.topic(t, "t", 6, 0)
	s := openSink(t, b.config())
	n := number("t")
	for i := range int32(12) {
		if err := b.MoveTopicPartition("t", i%6, (b.LeaderFor("t", i%6)+1)%3); err != nil {
			t.Fatal(err)
		}
		errs := writeAll(t, s, n.batch(200, 1000))
		if len(errs) > 1 {
			t.Errorf("move %d: Write failed %d times, want at most one retry: %v", i, len(errs), errs)
		}
		for _, err := range errs {
			wantError(t, err, `topic "t", partition `, "leader")
		}
	}
	n.check(t, b.consume(t, "t"), 0)
}

// leaderless answers metadata requests for the topic t without a leader for partition 0.
func leaderless(b *bus) func(kmsg.Request) (kmsg.Response, error, bool) {
	host, port, _ := net.SplitHostPort(b.brokers[0])
	number, _ := strconv.Atoi(port)
	return func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = host, int32(number)
		resp.Brokers = append(resp.Brokers, broker)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr("t")
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader, partition.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	}
}

func TestNoLeader(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 1, 0)
	s := openSink(t, b.config())
	n := number("t")
	writeAll(t, s, n.batch(10, 0))

	var mu sync.Mutex
	without := true
	answer := leaderless(b)
	b.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		if !without {
			return nil, nil, false
		}
		return answer(req)
	})
	s.drop()
	batch := n.batch(10, 0)
	for range 3 {
		_, err := s.Write(t.Context(), batch)
		wantError(t, err, `topic "t", partition 0`, "no leader", "check the brokers")
	}
	mu.Lock()
	without = false
	mu.Unlock()
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), 0)
}

// The broker has written a chunk, but its answer is lost. Only this chunk is written again, after itself.
func TestAckLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(b *bus, n int32){
		"connection cut": func(b *bus, _ int32) {
			b.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				b.DropControl()
				b.gates[0].loseAnswer()
				return nil, nil, false
			})
		},
		"replicas late": func(b *bus, partition int32) {
			b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{partition}, Err: kerr.RequestTimedOut})
		},
		"replicas lost": func(b *bus, partition int32) {
			b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{partition}, Err: kerr.NotEnoughReplicasAfterAppend})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			b.topic(t, "t", 3, 0)
			s := openSink(t, b.config())
			n := number("t")
			writeAll(t, s, n.batch(100, 0))
			before := b.PartitionInfos("t")
			lose(b, 1)
			errs := writeAll(t, s, n.batch(100, 0))
			if len(errs) != 1 {
				t.Fatalf("Write failed %d times, want once: %v", len(errs), errs)
			}
			wantError(t, errs[0], `topic "t", partition `)
			largest := 0
			for i, p := range b.PartitionInfos("t") {
				largest = max(largest, int(p.HighWatermark-before[i].HighWatermark)/2)
			}
			n.check(t, b.consume(t, "t"), largest)
		})
	}
}

// A partition that fails stops at its first chunk. Records that other partitions have written are not written again.
func TestFailureStopsPartition(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	b.topic(t, "t", 4, 0)
	s := openSink(t, b.config())
	n := number("t")
	fault := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{2}, Err: kerr.NotEnoughReplicas, Count: -1})
	batch := n.batch(400, 20_000) // more than two chunks in each partition
	for i := range 5 {
		_, err := s.Write(t.Context(), batch)
		wantError(t, err, `partition 2`, "min.insync.replicas")
		if hits := fault.Hits(); hits > i+1 {
			t.Fatalf("the failing partition had %d requests in %d writes", hits, i+1)
		}
	}
	fault.Remove()
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), 0)
	if _, err := s.Write(t.Context(), batch); err != nil { // the commit failed, and the pipeline retries
		t.Errorf("Write of a batch that is durable: %v", err)
	}
	n.check(t, b.consume(t, "t"), 0)
}

// When one partition fails, the others finish only the requests that are already sent, so that the pipeline gets the error at
// once.
func TestFailureStopsOthers(t *testing.T) {
	t.Parallel()
	const each = 100
	b := startBus(t)
	b.topic(t, "t", 2, 1000) // one record per request
	s := openSink(t, b.config())
	fault := b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas})
	failed, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// From the failure on, all requests of the other partition would take five seconds: much longer than Write needs to return
	// the error.
	var heard atomic.Bool
	b.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		if req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Partition == 1 && !heard.Load() {
			b.SleepControl(func() {
				_ = fault.Wait(failed, 1)
				time.Sleep(5 * time.Second / each)
			})
		}
		return nil, nil, false
	})
	batch := &event.Batch{Seq: 1}
	for range each {
		batch.Records = append(batch.Records, event.Record{Route: "t", Broadcast: true, Value: make([]byte, 600)})
	}
	_, err := s.Write(t.Context(), batch)
	heard.Store(true)
	wantError(t, err, "partition 0", "min.insync.replicas")
	// No record at all is right, too: the first partition may have failed before the other one began.
	if n := b.PartitionInfo("t", 1).HighWatermark; n > each/2 {
		t.Errorf("the other partition holds %d of %d records, want few", n, each)
	}
	writeAll(t, s, batch)
	for _, p := range b.PartitionInfos("t") {
		if p.HighWatermark != each {
			t.Errorf("partition %d holds %d records, want %d", p.Partition, p.HighWatermark, each)
		}
	}
}

// A broker that never answers must not block a pipeline without end, and its error must not look like the end of the caller's
// context.
func TestBrokerSilent(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := openSink(t, b.config())
	s.timeout = 2 * time.Second // a busy machine must answer the other partitions in time
	n := number("t")
	writeAll(t, s, n.batch(10, 0))
	s.drop() // the next connection has the short timeout
	b.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, true })
	batch := n.batch(10, 0)
	_, err := s.Write(t.Context(), batch)
	wantError(t, err, `topic "t", partition `, "no answer in time")
	if isAny(err, context.DeadlineExceeded, os.ErrDeadlineExceeded) {
		t.Errorf("%v is a deadline, as if it were the caller's", err)
	}
	s.timeout = requestTimeout
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), 0)
}

// When a pipeline stops, none of its requests continues.
func TestCanceledWriteLeavesNoConnection(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	s := openSink(t, b.config())
	n := number("t")
	writeAll(t, s, n.batch(10, 0))
	ctx, cancel := context.WithCancel(t.Context())
	b.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel()
		return nil, nil, true
	})
	batch := n.batch(10, 0)
	l := s.link
	began := time.Now()
	if _, err := s.Write(ctx, batch); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v, want %v", err, context.Canceled)
	}
	if took := time.Since(began); took >= requestTimeout {
		t.Errorf("Write took %v to obey", took)
	}
	l.mu.Lock()
	if len(l.conns) > 0 {
		t.Errorf("%d connections are still open", len(l.conns))
	}
	l.mu.Unlock()
	writeAll(t, s, batch)
	n.check(t, b.consume(t, "t"), len(batch.Records))
}

// A slow broker slows the pipeline down. The requests that are sent are bounded: in number per partition, in total number and
// in bytes.
func TestSlowBroker(t *testing.T) {
	t.Parallel()
	const partitions = 40
	b := startBus(t)
	b.topic(t, "t", partitions, 2<<20)
	s := openSink(t, b.config())

	var mu sync.Mutex
	requests, bytes, mostRequests, mostBytes := 0, 0, 0, 0
	busy := map[int32]bool{}
	b.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		produce := req.(*kmsg.ProduceRequest)
		if produce.Acks != -1 {
			t.Errorf("a request wants %d acknowledgements, want all", produce.Acks)
		}
		p := produce.Topics[0].Partitions[0]
		mu.Lock()
		if busy[p.Partition] {
			t.Errorf("partition %d has two requests under way", p.Partition)
		}
		busy[p.Partition] = true
		requests, bytes = requests+1, bytes+len(p.Records)
		mostRequests, mostBytes = max(mostRequests, requests), max(mostBytes, bytes)
		mu.Unlock()
		b.SleepControl(func() { time.Sleep(10 * time.Millisecond) })
		mu.Lock()
		busy[p.Partition] = false
		requests, bytes = requests-1, bytes-len(p.Records)
		mu.Unlock()
		return nil, nil, false
	})
	large := event.Record{Route: "t", Broadcast: true, Value: make([]byte, 900<<10)}
	writeAll(t, s, &event.Batch{Seq: 1, Records: []event.Record{large}})
	if mostBytes > inFlightBytes || mostBytes < 2*len(large.Value) {
		t.Errorf("%d bytes were under way, want several records and at most %d", mostBytes, inFlightBytes)
	}
	small := event.Record{Route: "t", Broadcast: true, Value: make([]byte, 10)}
	writeAll(t, s, &event.Batch{Seq: 2, Records: []event.Record{small, small}})
	if mostRequests > parallel || mostRequests < 2 {
		t.Errorf("%d requests were under way, want several and at most %d", mostRequests, parallel)
	}
	for _, p := range b.PartitionInfos("t") {
		if p.HighWatermark != 3 {
			t.Errorf("partition %d holds %d records, want 3", p.Partition, p.HighWatermark)
		}
	}
}

func TestBrokerDownAtStart(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().(*net.TCPAddr)
	ln.Close()
	s := newSink(t, Config{Brokers: []string{address.String()}, Delivery: atLeastOnce})
	defer s.Close()
	for range 2 {
		wantError(t, s.Open(t.Context(), nil), address.String(), "connection refused")
	}
	b := startBus(t, kfake.Ports(address.Port))
	if err := s.Open(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	n := number("t")
	writeAll(t, s, n.batch(10, 0))
	n.check(t, b.consume(t, "t"), 0)
}

// late delays the result of a record that the client refuses.
type late chan struct{}

func (l late) OnProduceRecordUnbuffered(_ *kgo.Record, err error) {
	if err != nil {
		<-l
	}
}

// The client's Flush does not wait for the result of a record that it refuses at once. A transaction that lacks this record
// must not be committed.
func TestRefusedBeforeSent(t *testing.T) {
	t.Parallel()
	held := make(late)
	c, err := kgo.NewClient(kgo.MaxBufferedBytes(1000), kgo.WithHooks(held)) // it connects only when it has records to send
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer close(held)
	p := production{made: &made{records: []kgo.Record{{Topic: "t", Value: make([]byte, 2000)}}, origins: make([]origin, 1)}}
	wantError(t, p.run(t.Context(), c), "0 of 1 records")
}
