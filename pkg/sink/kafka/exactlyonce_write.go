package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// production writes a batch's records in a transaction.
type production struct {
	batch  *event.Batch
	queues []*queue
	alone  map[partition]bool
	made   *made
	acked  int // acknowledged records of made

	mu     sync.Mutex
	failed *kgo.Record // the first failed record
	err    error       // its error
}

// made is the memory of the records that the client has. They belong to the client
// until all of them are acknowledged; after a failure the client may keep some.
type made struct {
	arena[kgo.RecordHeader]
	records []kgo.Record // does not grow while the client has records
	origins []origin     // of records
}

// maxMade bounds the number of records, for broadcasts over many partitions.
const maxMade = 4096

type origin struct {
	queue *queue
	item  item
}

func (m *made) reset() {
	m.arena.reset()
	clear(m.records) // they would keep the batch in memory
	m.records, m.origins = m.records[:0], m.origins[:0]
}

// deliveryError is the error of one record that was not written to one partition.
type deliveryError struct {
	item
	partition
	topic *topic
	err   error
}

func (e *deliveryError) Error() string {
	return fmt.Sprintf("topic %q, partition %d: %v", e.partition.topic, e.id, e.err)
}

func (e *deliveryError) Unwrap() error { return e.err }

// fill makes the next records from the queues, as many as the client gets
// at once, and reports whether there are any.
func (p *production) fill() bool {
	p.reserve()
	now := time.Now()
	for ; len(p.queues) > 0; p.queues = p.queues[1:] {
		q := p.queues[0]
		for alone := p.alone[q.partition]; len(q.rest) > 0; {
			if n := len(p.made.records); n+2 > maxMade || alone && n > 0 {
				return true
			}
			it := q.rest[0]
			q.rest = q.rest[1:]
			r := &p.batch.Records[it.index]
			m := p.made.message(q.topic, r, now)
			p.add(origin{q, it}, m)
			if q.topic.buries(r) {
				p.add(origin{q, it}, m.tombstone(r))
			}
			if alone {
				return true
			}
		}
	}
	return len(p.made.records) > 0
}

// reserve makes room for what fill makes next.
func (p *production) reserve() {
	var next [][]item
	n, records := 0, 0
	for _, q := range p.queues {
		items := q.rest[:min(len(q.rest), maxMade-n)]
		next, n, records = append(next, items), n+len(items), records+len(items)
		if q.topic.tombstones { // one may follow each record
			records += len(items)
		}
	}
	p.made.reserve(p.batch, next...)
	p.made.records = slices.Grow(p.made.records, min(records, maxMade))
}

func (p *production) add(from origin, m message[kgo.RecordHeader]) {
	p.made.records = append(p.made.records, kgo.Record{
		Topic: from.queue.partition.topic, Partition: int32(from.queue.id), Key: m.key, Value: m.value, Headers: m.headers, Timestamp: m.time,
	})
	p.made.origins = append(p.made.origins, from)
}

// run writes the filled records and all remaining ones. It returns when every record is
// acknowledged, or with the first error.
func (p *production) run(ctx context.Context, c *kgo.Client) error {
	for len(p.made.records) > 0 || p.fill() {
		for i := range p.made.records {
			c.Produce(ctx, &p.made.records[i], p.written)
		}
		if err := p.awaitAcks(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (p *production) written(r *kgo.Record, err error) {
	if err == nil {
		p.acked++
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed, p.err = r, err
	}
}

// awaitAcks waits until the client has handled all records.
func (p *production) awaitAcks(ctx context.Context, c *kgo.Client) error {
	err := c.Flush(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		for i := range p.made.records {
			if from := p.made.origins[i]; p.failed == &p.made.records[i] {
				return &deliveryError{item: from.item, partition: from.queue.partition, topic: from.queue.topic, err: p.err}
			}
		}
	}
	if err != nil {
		return err
	}
	if n := len(p.made.records); p.acked != n { // Flush does not wait for a record that was never buffered
		return fmt.Errorf("%d of %d records were acknowledged", p.acked, n)
	}
	p.made.reset()
	p.acked = 0
	return nil
}
