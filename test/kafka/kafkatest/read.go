package kafkatest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Read returns the records of a topic as a consumer of committed data sees them, partition after partition: those written
// before the call, up to the first transaction that is still open. It is an error if Kafka has deleted any.
func (c *Cluster) Read(ctx context.Context, topic string) ([]*kgo.Record, error) {
	return c.read(ctx, topic, kgo.ReadCommitted())
}

// ReadUncommitted is Read as a consumer with Kafka's defaults does it: with what was aborted, and what is not committed yet.
func (c *Cluster) ReadUncommitted(ctx context.Context, topic string) ([]*kgo.Record, error) {
	return c.read(ctx, topic, kgo.ReadUncommitted())
}

func (c *Cluster) read(ctx context.Context, topic string, isolation kgo.IsolationLevel) (records []*kgo.Record, err error) {
	var starts, ends kadm.ListedOffsets
	if err := c.Resolved(ctx, topic); err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	err = c.admin(func(a *kadm.Client) (err error) {
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
	})
	if err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	from := map[int32]kgo.Offset{}
	last := map[int32]int64{} // offset to be seen
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
		kgo.KeepControlRecords(), // one may be the last
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

// Resolved returns when what transactions have committed to a topic can be read: a producer learns of the end of a transaction
// before that. A single broker that is killed in between may never show it: Kafka 4.4 takes up the transaction before it knows its
// own address, skips the partitions as if they had been deleted, and calls it complete. Consumers then wait without end
// (find-hanging in kafka-transactions.sh), unless the producer commits something more to the same partitions.
func (c *Cluster) Resolved(ctx context.Context, topic string) error {
	return await(ctx, "the end of transactions", func(ctx context.Context) (bool, error) { return c.resolved(ctx, topic) })
}

// resolved reports whether no transaction on a topic has been reported to its producer as ended while its records cannot be
// read yet. A coordinator that has just been started does not know of any yet: then the end of the topic shows it.
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
