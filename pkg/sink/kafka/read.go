package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// stall is how long a read may make no progress. An open transaction of another producer
// holds back later records until the transaction times out.
const stall = 20 * time.Second

// span is a part of a partition: the offsets from from up to, but not including, to.
type span struct {
	partition
	from, to int64
}

// readOptions returns the options of a client that reads committed records until life ends.
func readOptions(life context.Context) []kgo.Opt {
	return []kgo.Opt{
		kgo.WithContext(life),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.KeepRetryableFetchErrors(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // records that were removed must not be skipped without an error
		kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.FetchMaxBytes(4 << 20),
	}
}

// read calls fn for the committed records of spans, in order within each span, and in the order of their timestamps between spans; i is the
// span's index. Control records and records of aborted transactions have offsets, too, and count only as progress. An error of fn
// ends read and is returned, except for [sink.ErrEnough], which ends only the span.
func (a *admin) read(ctx context.Context, spans []span, fn func(i int, r *kgo.Record) error) error {
	r := reading{left: map[partition]int{}, fetched: make([][]*kgo.Record, len(spans)), spans: spans, fn: fn}
	offsets, topics := map[string]map[int32]kgo.Offset{}, []string{}
	for i, s := range spans {
		if s.from >= s.to {
			continue
		}
		if offsets[s.topic] == nil {
			offsets[s.topic] = map[int32]kgo.Offset{}
			topics = append(topics, s.topic)
		}
		offsets[s.topic][int32(s.id)] = kgo.NewOffset().At(s.from)
		r.left[s.partition] = i
		r.open = append(r.open, i)
	}
	if len(r.left) == 0 {
		return nil
	}
	var failed error // the error of fn
	err := a.do(ctx, 0, func(ctx context.Context, c *kgo.Client) (err error) {
		c.AddConsumePartitions(offsets)
		if failed, err = r.run(ctx, c); err == nil {
			c.PurgeTopicsFromConsuming(topics...)
			c.ResumeFetchPartitions(r.done)
			c.ResumeFetchPartitions(r.paused)
		}
		return err
	})
	if err != nil {
		a.close() // the client would continue to read
		return err
	}
	return failed
}

// reading is one call of read.
type reading struct {
	spans []span
	left  map[partition]int // indexes of spans
	done  map[string][]int32
	fn    func(i int, r *kgo.Record) error
	last  error // the last temporary error of the brokers

	open    []int              // the values of left
	fetched [][]*kgo.Record    // by span: they wait, because the next one of another span is not known
	bytes   int                // of all of them
	paused  map[string][]int32 // partitions that are not fetched until those have come
}

// fetchedBytes is how much waits before only the partitions are fetched of which nothing waits.
const fetchedBytes = 32 << 20

// run returns an error of fn as failed, or an error of the brokers as err.
func (r *reading) run(ctx context.Context, c *kgo.Client) (failed, err error) {
	r.done = map[string][]int32{}
	for len(r.left) > 0 {
		wait, cancel := context.WithTimeout(ctx, stall)
		progress := false
		for !progress && wait.Err() == nil && err == nil {
			fetches := c.PollFetches(wait)
			progress = !fetches.Empty()
			err = r.note(wait, fetches)
			for iter := fetches.RecordIter(); !iter.Done(); {
				r.add(iter.Next())
			}
			failed = r.merge(c)
		}
		cancel()
		switch {
		case failed != nil:
			return failed, nil
		case progress:
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case r.last != nil:
			return nil, fmt.Errorf("no record came for %v: %w", stall, r.last)
		default:
			return nil, fmt.Errorf("no record came for %v, and the brokers have more: another producer's transaction may be open: if this lasts, find it with `kafka-transactions.sh find-hanging`", stall)
		}
	}
	return nil, nil
}

// note records the errors of a poll, and returns an error that retries do not correct.
func (r *reading) note(wait context.Context, fetches kgo.Fetches) error {
	for _, f := range fetches.Errors() {
		if wait.Err() != nil {
			return nil
		}
		r.last = f.Err
		var code *kerr.Error
		if errors.Is(f.Err, kerr.OffsetOutOfRange) {
			return fmt.Errorf("partition %s/%d: records were removed before they were read (%w): try again", f.Topic, f.Partition, f.Err)
		}
		if errors.As(f.Err, &code) && !code.Retriable {
			return fmt.Errorf("partition %s/%d: %w", f.Topic, f.Partition, f.Err)
		}
	}
	return nil
}

// add keeps a record that was fetched until merge passes it on.
func (r *reading) add(k *kgo.Record) {
	if i, ok := r.left[partition{topic: k.Topic, id: int(k.Partition)}]; ok {
		r.fetched[i] = append(r.fetched[i], k)
		r.bytes += len(k.Value)
	}
}

// merge passes records on while the next one of each partition is known.
func (r *reading) merge(c *kgo.Client) error {
	for i := r.next(); i >= 0; i = r.next() {
		k := r.fetched[i][0]
		r.fetched[i] = r.fetched[i][1:]
		r.bytes -= len(k.Value)
		if err := r.take(c, i, k); err != nil {
			return err
		}
	}
	c.ResumeFetchPartitions(r.paused)
	r.paused = map[string][]int32{}
	for _, i := range r.open {
		if p := r.spans[i].partition; r.bytes >= fetchedBytes && len(r.fetched[i]) > 0 {
			r.paused[p.topic] = append(r.paused[p.topic], int32(p.id))
		}
	}
	c.PauseFetchPartitions(r.paused)
	return nil
}

// next returns the span with the earliest record, or one with a control record, whose timestamp says nothing; -1 if the next record of some
// span is not known.
func (r *reading) next() int {
	first, earliest := -1, time.Time{}
	for _, i := range r.open {
		if len(r.fetched[i]) == 0 {
			return -1
		}
		k := r.fetched[i][0]
		if k.Attrs.IsControl() {
			return i
		}
		if first < 0 || k.Timestamp.Before(earliest) {
			first, earliest = i, k.Timestamp
		}
	}
	return first
}

// take passes a record on.
func (r *reading) take(c *kgo.Client, i int, k *kgo.Record) (err error) {
	p, to := r.spans[i].partition, r.spans[i].to
	if k.Offset < to && !k.Attrs.IsControl() {
		err = r.fn(i, k)
	}
	if enough := errors.Is(err, sink.ErrEnough); enough || err == nil && k.Offset >= to-1 {
		err = nil
		delete(r.left, p)
		r.open = slices.DeleteFunc(r.open, func(other int) bool { return other == i })
		for _, k := range r.fetched[i] { // behind the span
			r.bytes -= len(k.Value)
		}
		r.fetched[i] = nil
		r.done[p.topic] = append(r.done[p.topic], int32(p.id))
		c.PauseFetchPartitions(map[string][]int32{p.topic: {int32(p.id)}})
	}
	return err
}
