package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
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
	// inFlightBytes bounds the total bytes of all running requests, except for a single larger
	// record. It matters for broadcasts over many partitions.
	inFlightBytes = 8 << 20
)

// send writes the queues. When it returns, no request is running, except one
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
				if q.err != nil && !errors.As(q.err, new(*refusal)) { // a refusal does not concern other topics
					stop.Store(true)
				}
			}
			return nil
		})
	}
	_ = workers.Wait() // each queue holds its own error
	return s.outcome(b, queues)
}

// step sends the next request of a queue. If the broker rejects the content of a
// chunk, step does not return an error: the chunk is sent again, record by record.
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
		full := fmt.Errorf("topic %q, partition %d: %w", q.partition.topic, q.id, s.topics.explain(err))
		if errors.Is(err, kerr.TopicAuthorizationFailed) { // whether the topic is missing has to be looked up first
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

// build makes the messages of the next n records.
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
	var made arena[kafka.Header] // it is not reused, because kafka-go may leave a request running
	made.reserve(b, q.rest[:n])
	now := time.Now()
	for _, it := range q.rest[:n] {
		r := &b.Records[it.index]
		m := made.message(q.topic, r, now)
		add(m)
		if q.topic.buries(r) {
			add(m.tombstone(r))
		}
	}
	return records
}

// chunk returns the number of records of the next request, and its bytes.
func (q *queue) chunk() (n, bytes int) {
	bytes = batchOverhead + q.rest[0].size
	limit := min(chunkBytes, q.topic.limit)
	for n = 1; n < len(q.rest) && q.alone == 0 && bytes+q.rest[n].size <= limit; n++ {
		bytes += q.rest[n].size
	}
	return n, bytes
}

// outcome records the acknowledged records and chooses the error to return. A rejected record takes
// precedence, and then a refused topic, because the caller can react to both at once. Errors that
// need a wait come last.
func (s *Sink) outcome(b *event.Batch, queues []*queue) error {
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
		s.drop() // if the error lasts, it comes again on a new connection
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
	return fromKafkaGo(resp.Error)
}
