package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
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

// queue has the records for a partition, in order.
type queue struct {
	partition
	topic *topic
	rest  []item
	// alone is the number of records at the front that are sent one per request, to find
	// the rejected one.
	alone int
	stale bool  // the known limit of the topic was too high
	acked []int // indexes
	err   error
}

type item struct {
	index int
	size  int
}

// routes returns the topics of the pending records, each once.
func routes(b *event.Batch, pending func(i int) bool) (names []string) {
	seen := map[string]bool{}
	for i := range b.Records {
		if name := b.Records[i].Route; !seen[name] && pending(i) {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// plan divides the records that are not in acked into queues. It finds a record that is too
// large before any record is sent.
func (t *topics) plan(ctx context.Context, b *event.Batch, acked map[delivery]bool) ([]*queue, error) {
	var (
		queues []*queue
		places []sink.Place
		to     *topic
		ofTo   []*queue // by index of the partition
	)
	byTopic := map[*topic][]*queue{}
	if len(acked) > 0 {
		places = sink.Places(b.Records)
	}
	for i := range b.Records {
		r := &b.Records[i]
		if i == 0 || r.Route != b.Records[i-1].Route {
			to = t.known[r.Route]
			if ofTo = byTopic[to]; ofTo == nil {
				ofTo = make([]*queue, len(to.partitions))
				byTopic[to] = ofTo
			}
		}
		it := item{index: i, size: to.size(r)}
		pending := false
		for at, end := to.span(r); at < end; at++ {
			p := partition{r.Route, to.partitions[at]}
			if places != nil && acked[delivery{places[i], p}] {
				continue
			}
			pending = true
			if ofTo[at] == nil {
				ofTo[at] = &queue{partition: p, topic: to}
				queues = append(queues, ofTo[at])
			}
			ofTo[at].rest = append(ofTo[at].rest, it)
		}
		if !pending || batchOverhead+it.size <= to.limit {
			continue
		}
		// The limit may have been raised since it was read.
		if err := t.readSettings(ctx, []string{r.Route}); err != nil {
			return nil, err
		}
		if n := batchOverhead + it.size; n > to.limit {
			return nil, &sink.RecordError{
				Index: i, Size: n, Limit: to.limit,
				Err: fmt.Errorf("max.message.bytes of topic %q", r.Route),
			}
		}
	}
	return queues, nil
}

// choose returns the partitions for r.
func (t *topic) choose(r *event.Record) []int {
	from, to := t.span(r)
	return t.partitions[from:to]
}

// span returns the range of these partitions in the topic's partitions.
func (t *topic) span(r *event.Record) (from, to int) {
	if r.Broadcast {
		return 0, len(t.partitions)
	}
	t.hashed = append(t.hashed[:0], r.Key...)
	// Consistent: a record without a key also has a fixed partition.
	id := kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: t.hashed}, t.partitions...)
	from, _ = slices.BinarySearch(t.partitions, id)
	return from, from + 1
}

// reject returns the error for the record at the front.
func (q *queue) reject(err error) *sink.RecordError {
	e := &sink.RecordError{Index: q.rest[0].index, Err: fmt.Errorf("topic %q, partition %d: %w", q.partition.topic, q.id, err)}
	if tooLarge(err) {
		// The broker has a lower limit than the topic shows, and does not send
		// it, so any smaller record is worth an attempt.
		e.Size = batchOverhead + q.rest[0].size
		e.Limit = min(q.topic.limit, e.Size-1)
	}
	return e
}
