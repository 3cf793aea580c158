package bus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Compacted follows the topics of checkpoints and computes the result of their compaction. kfake's own compaction would remove records
// that are needed if an open transaction is aborted.
type Compacted struct {
	reader *kgo.Client
	at     map[string]int64 // next offset to read, by partition
	values map[string]int   // bytes of a key and its value
}

// Compacted begins to follow. The caller closes it.
func (k *Kafka) Compacted() (*Compacted, error) {
	reader, err := kgo.NewClient(append(k.direct(),
		kgo.ConsumeRegex(), kgo.ConsumeTopics(`^kubebridge\..*`), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(metadataAge), kgo.MetadataMaxAge(metadataAge))...)
	if err != nil {
		return nil, fmt.Errorf("connect to kfake: %w", err)
	}
	return &Compacted{reader, map[string]int64{}, map[string]int{}}, nil
}

// Close ends the reader.
func (c *Compacted) Close() { c.reader.Close() }

// Size reads up to the last stable offset, and returns the number of remaining keys, and the bytes of these keys and their values.
func (c *Compacted) Size(ctx context.Context) (keys, bytes int, err error) {
	admin := kadm.NewClient(c.reader)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("list the topics: %w", err)
	}
	names := slices.DeleteFunc(topics.Names(), func(s string) bool { return !strings.HasPrefix(s, "kubebridge.") })
	if len(names) == 0 {
		return 0, 0, nil
	}
	ends, err := admin.ListCommittedOffsets(ctx, names...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the ends of the checkpoint's topics: %w", err)
	}
	for {
		behind := false
		ends.Each(func(o kadm.ListedOffset) { behind = behind || c.at[partition(o.Topic, o.Partition)] < o.Offset })
		if !behind {
			break
		}
		c.reader.PollFetches(ctx).EachRecord(c.take)
		if ctx.Err() != nil {
			return 0, 0, fmt.Errorf("read the checkpoint's topic: %w", context.Cause(ctx))
		}
	}
	for _, n := range c.values {
		bytes += n
	}
	return len(c.values), bytes, nil
}

func (c *Compacted) take(r *kgo.Record) {
	at := partition(r.Topic, r.Partition)
	c.at[at] = r.Offset + 1
	switch key := at + "\x00" + string(r.Key); {
	case r.Attrs.IsControl():
	case r.Value == nil:
		delete(c.values, key)
	default:
		c.values[key] = len(r.Key) + len(r.Value)
	}
}
