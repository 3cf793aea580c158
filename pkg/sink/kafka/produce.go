package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	// chunkBytes bounds one request; a larger record goes alone.
	chunkBytes = 1 << 20
	// parallel bounds the partitions that are written at a time.
	parallel = 16
	// inFlightBytes bounds what the requests under way hold together, a larger
	// record alone excepted. It matters for broadcasts over many partitions.
	inFlightBytes = 8 << 20
)

type partition struct {
	topic string
	id    int
}

// delivery is one record in one partition.
type delivery struct {
	sink.Place
	partition
}

// queue is what is to be written to a partition, in order.
type queue struct {
	partition
	topic *topic
	rest  []item
	// alone is how many records at the front are sent one per request, to find
	// the one that the broker rejects.
	alone int
	stale bool  // the topic's limit has proved too high
	acked []int // indexes
	err   error
}

type item struct {
	index int
	size  int
}

// plan divides what is not yet acknowledged into queues. A record that is too
// large is found here, before anything is sent.
func (s *Sink) plan(ctx context.Context, b *event.Batch) ([]*queue, error) {
	var (
		queues []*queue
		places []sink.Place
		t      *topic
		ofT    []*queue // by the partition's place
	)
	byTopic := map[*topic][]*queue{}
	if len(s.progress.acked) > 0 {
		places = sink.Places(b.Records)
	}
	for i := range b.Records {
		r := &b.Records[i]
		if i == 0 || r.Route != b.Records[i-1].Route {
			t = s.topics[r.Route]
			if ofT = byTopic[t]; ofT == nil {
				ofT = make([]*queue, len(t.partitions))
				byTopic[t] = ofT
			}
		}
		it := item{index: i, size: t.size(r)}
		pending := false
		for at, end := t.span(r); at < end; at++ {
			p := partition{r.Route, t.partitions[at]}
			if places != nil && s.progress.acked[delivery{places[i], p}] {
				continue
			}
			pending = true
			if ofT[at] == nil {
				ofT[at] = &queue{partition: p, topic: t}
				queues = append(queues, ofT[at])
			}
			ofT[at].rest = append(ofT[at].rest, it)
		}
		if !pending || batchOverhead+it.size <= t.limit {
			continue
		}
		// The limit may have been raised since it was read.
		if err := s.readLimits(ctx, []string{r.Route}); err != nil {
			return nil, err
		}
		if n := batchOverhead + it.size; n > t.limit {
			return nil, &sink.RecordError{
				Index: i, Size: n, Limit: t.limit,
				Err: fmt.Errorf("max.message.bytes of topic %q", r.Route),
			}
		}
	}
	return queues, nil
}

// choose returns the partitions that r belongs in.
func (t *topic) choose(r *event.Record) []int {
	from, to := t.span(r)
	return t.partitions[from:to]
}

// span is where they stand among the topic's.
func (t *topic) span(r *event.Record) (from, to int) {
	if r.Broadcast {
		return 0, len(t.partitions)
	}
	t.hashed = append(t.hashed[:0], r.Key...)
	// Consistent: a record without a key has one place too.
	id := kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: t.hashed}, t.partitions...)
	from, _ = slices.BinarySearch(t.partitions, id)
	return from, from + 1
}

// send writes the queues. When it returns, no request is under way, except one
// that was given up because ctx ended or no answer came.
func (s *Sink) send(ctx context.Context, b *event.Batch, queues []*queue) error {
	conn := s.connection()
	budget := semaphore.NewWeighted(inFlightBytes)
	var stop atomic.Bool
	var workers errgroup.Group
	workers.SetLimit(parallel)
	for _, q := range queues {
		workers.Go(func() error {
			for len(q.rest) > 0 && q.err == nil && !stop.Load() {
				q.err = s.step(ctx, conn, budget, b, q)
				if q.err != nil && !errors.As(q.err, new(*refusal)) { // a refusal is no matter of other topics
					stop.Store(true)
				}
			}
			return nil
		})
	}
	_ = workers.Wait() // each queue holds its own error
	return s.settle(b, queues)
}

// step sends the next request of a queue. A chunk that the broker rejects for
// its content is not an error yet: it is sent again, record by record.
func (s *Sink) step(ctx context.Context, conn *link, budget *semaphore.Weighted, b *event.Batch, q *queue) error {
	n, bytes := q.chunk()
	weight := int64(min(bytes, inFlightBytes))
	if err := budget.Acquire(ctx, weight); err != nil {
		return err
	}
	defer budget.Release(weight)
	err := conn.produce(ctx, q.partition, q.build(b, n))
	switch {
	case err == nil:
		for _, it := range q.rest[:n] {
			q.acked = append(q.acked, it.index)
		}
		q.rest = q.rest[n:]
		q.alone = max(q.alone-n, 0)
		return nil
	case !aboutRecords(err):
		full := fmt.Errorf("topic %q, partition %d: %w", q.partition.topic, q.id, s.explain(err))
		if errors.Is(err, kafka.TopicAuthorizationFailed) { // that it is not there has to be looked up first
			return &refusal{q.partition.topic, full}
		}
		return full
	}
	q.stale = q.stale || tooLarge(err)
	if n == 1 {
		return q.reject(err)
	}
	q.alone = n
	return nil
}

// build makes what is written for the next n records.
func (q *queue) build(b *event.Batch, n int) []kafka.Record {
	records := make([]kafka.Record, 0, n)
	add := func(m message[kafka.Header]) {
		k := kafka.Record{Headers: m.headers, Time: m.time}
		if m.key != nil {
			k.Key = kafka.NewBytes(m.key)
		}
		if m.value != nil {
			k.Value = kafka.NewBytes(m.value)
		}
		records = append(records, k)
	}
	var all, bytes int
	for _, it := range q.rest[:n] {
		all += headers(&b.Records[it.index])
		bytes += it.size - len(b.Records[it.index].Value)
	}
	// It is not used again: kafka-go may leave a request running.
	made := arena[kafka.Header]{headers: make([]kafka.Header, 0, all), bytes: make([]byte, 0, bytes)}
	for _, it := range q.rest[:n] {
		r := &b.Records[it.index]
		m := made.message(q.topic, r)
		add(m)
		if q.topic.buries(r) {
			add(m.tombstone(r))
		}
	}
	return records
}

// chunk is how many records the next request has, and its bytes.
func (q *queue) chunk() (n, bytes int) {
	bytes = batchOverhead + q.rest[0].size
	limit := min(chunkBytes, q.topic.limit)
	for n = 1; n < len(q.rest) && q.alone == 0 && bytes+q.rest[n].size <= limit; n++ {
		bytes += q.rest[n].size
	}
	return n, bytes
}

// reject makes the error for the record at the front.
func (q *queue) reject(err error) *sink.RecordError {
	e := &sink.RecordError{Index: q.rest[0].index, Err: fmt.Errorf("topic %q, partition %d: %w", q.partition.topic, q.id, err)}
	if tooLarge(err) {
		// The broker has a lower limit than the topic shows, and does not say
		// which: any smaller record is worth trying.
		e.Size = batchOverhead + q.rest[0].size
		e.Limit = min(q.topic.limit, e.Size-1)
	}
	return e
}

// settle remembers what was acknowledged and picks the error to return: a record
// to be replaced before all others, since the lane can do that at once, and for the
// same reason a refused topic before what has to be waited for.
func (s *Sink) settle(b *event.Batch, queues []*queue) error {
	var failed error
	var poison *sink.RecordError
	for _, q := range queues {
		var e *sink.RecordError
		switch {
		case errors.As(q.err, &e) && (poison == nil || e.Index < poison.Index):
			poison = e
		case e != nil:
		case failed == nil || errors.As(q.err, new(*refusal)):
			failed = q.err
		}
		if q.stale {
			q.topic.limit = 0
		}
	}
	if failed == nil && poison == nil {
		return nil // the whole batch is durable
	}
	places := sink.Places(b.Records)
	for _, q := range queues {
		for _, i := range q.acked {
			s.progress.acked[delivery{places[i], q.partition}] = true
		}
	}
	if poison == nil {
		return failed
	}
	if failed != nil {
		s.drop() // it is met again, if it lasts, on a new connection
	}
	return poison
}

// produce sends one request and waits for all in-sync replicas.
func (l *link) produce(ctx context.Context, p partition, records []kafka.Record) error {
	resp, err := l.Produce(ctx, &kafka.ProduceRequest{
		Topic:        p.topic,
		Partition:    p.id,
		RequiredAcks: kafka.RequireAll,
		Compression:  l.compression,
		Records:      kafka.NewRecordReader(records...),
	})
	if err != nil {
		return l.cause(err)
	}
	return resp.Error
}
