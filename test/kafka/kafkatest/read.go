package kafkatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Read returns the records of a topic as a consumer of committed data sees them, partition after partition: those written
// before the call, up to the first transaction that is still open. It is an error if Kafka has deleted any.
func (c *Cluster) Read(ctx context.Context, topic string) ([]*kgo.Record, error) {
	return c.read(ctx, topic, kgo.ReadCommitted())
}

// ReadUncommitted is Read for a consumer with Kafka's default isolation: it also returns aborted records, and records that are not committed
// yet.
func (c *Cluster) ReadUncommitted(ctx context.Context, topic string) ([]*kgo.Record, error) {
	return c.read(ctx, topic, kgo.ReadUncommitted())
}

func (c *Cluster) read(ctx context.Context, topic string, isolation kgo.IsolationLevel) (records []*kgo.Record, err error) {
	var starts, ends kadm.ListedOffsets
	if err := c.Resolved(ctx, topic); err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	list := func(a *kadm.Client) (err error) {
		if starts, err = a.ListStartOffsets(ctx, topic); err == nil {
			err = starts.Error()
		}
		if err != nil {
			return err
		}
		list := a.ListCommittedOffsets
		if isolation == kgo.ReadUncommitted() {
			list = a.ListEndOffsets
		}
		if ends, err = list(ctx, topic); err == nil {
			err = ends.Error()
		}
		return err
	}
	// A broker that misses its heartbeats on a busy machine leads no partition for a moment.
	for err = c.admin(list); errors.Is(err, kerr.LeaderNotAvailable) && ctx.Err() == nil; err = c.admin(list) {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	from := map[int32]kgo.Offset{}
	last := map[int32]int64{} // by partition: the last offset to read
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, end.Partition)
		if start.Offset > 0 {
			err = fmt.Errorf("read topic %q: Kafka has deleted what was before offset %d of partition %d: do its records have times older than the topic's retention.ms?", topic, start.Offset, end.Partition)
		}
		if start.Offset < end.Offset {
			from[end.Partition] = kgo.NewOffset().AtStart()
			last[end.Partition] = end.Offset - 1
		}
	})
	if err != nil {
		return nil, err
	}
	if len(from) == 0 {
		return nil, nil
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.seeds()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(isolation),
		kgo.KeepControlRecords(), // the last record may be a control record
	)
	if err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	defer client.Close()
	for len(last) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read topic %q: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, pending := last[r.Partition]
			if pending && r.Offset <= end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
			if pending && r.Offset >= end {
				delete(last, r.Partition)
			}
		})
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// Resolved returns when consumers can read what transactions have committed to a topic; a producer learns of the end of a transaction earlier.
// If a single broker is killed in between, consumers may never be able to read it: Kafka 4.4 resumes the transaction before it knows its own
// address, skips the partitions as if they had been deleted, and marks the transaction as complete. Consumers then wait without end
// (find-hanging in kafka-transactions.sh), unless the producer commits another transaction to the same partitions.
func (c *Cluster) Resolved(ctx context.Context, topic string) error {
	return await(ctx, "the end of transactions", func(ctx context.Context) (bool, error) { return c.resolved(ctx, topic) })
}

// resolved reports whether consumers can read all transactions on a topic that have ended for their producers. A coordinator that was just
// started may not have loaded its transactions yet; the offsets of the topic show them then.
func (c *Cluster) resolved(ctx context.Context, topic string) (ok bool, err error) {
	err = c.admin(func(a *kadm.Client) error {
		open, err := a.ListTransactions(ctx, nil, nil)
		if err != nil {
			return err
		}
		ongoing := false
		for _, t := range open {
			switch t.State {
			case "Ongoing":
				ongoing = true
			case "PrepareCommit", "PrepareAbort":
				return nil
			}
		}
		committed, err := a.ListCommittedOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := a.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ok = true
		ends.Each(func(end kadm.ListedOffset) {
			stable, _ := committed.Lookup(topic, end.Partition)
			ok = ok && (ongoing || stable.Offset == end.Offset)
		})
		return nil
	})
	return ok, err
}
