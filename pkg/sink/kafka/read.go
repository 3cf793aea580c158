package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	readFetch     = 2 << 20   // bytes asked of a broker at a time
	readPartition = 512 << 10 // bytes asked of a partition at a time
	// readStall is how long nothing may come of what is known to be there.
	readStall = 30 * time.Second
)

// ReaderOptions are what a [Reader] is made of.
type ReaderOptions struct {
	Config   Config // completed by NewReader
	Identity event.Identity
	// Topics reports whether a topic is read.
	Topics func(name string) bool
}

// Reader is a [sink.Reader] of a sink's topics. It sees committed records only.
type Reader struct {
	opts  []kgo.Opt
	admin *kadm.Client
	parts []sink.Part
	ids   []partition
}

// NewReader connects and looks the topics up. Wrong credentials are a
// [sink.RefusedError].
func NewReader(ctx context.Context, o ReaderOptions) (_ *Reader, err error) {
	s, err := New(Options{Config: o.Config, Identity: o.Identity})
	if err != nil {
		return nil, err
	}
	// The sink tells wrong credentials from brokers that are away, which franz-go
	// tries again in silence.
	if err := s.Open(ctx, nil); err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	opts, err := ClientOptions(s.config, o.Identity)
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(readFetch), kgo.FetchMaxPartitionBytes(readPartition))
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	r := &Reader{opts: opts, admin: kadm.NewClient(c)}
	if err := r.lookUp(ctx, o); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) lookUp(ctx context.Context, o ReaderOptions) error {
	all, err := r.admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list the topics: %w", err)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if o.Topics(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	first, err := r.admin.ListStartOffsets(ctx, names...)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return fmt.Errorf("look up where the topics begin: %w", err)
	}
	end, err := r.admin.ListCommittedOffsets(ctx, names...) // what follows is not yet decided
	if err == nil {
		err = end.Error()
	}
	if err != nil {
		return fmt.Errorf("look up where the topics end: %w", err)
	}
	compacted := r.compacted(ctx, o.Config.Tombstones, names)
	for _, name := range names {
		for id := range len(end[name]) {
			from, ok := first.Lookup(name, int32(id))
			to, ok2 := end.Lookup(name, int32(id))
			if !ok || !ok2 {
				return fmt.Errorf("read topic %q: the broker does not say where partition %d begins and ends", name, id)
			}
			p := partition{topic: name, id: id}
			r.ids = append(r.ids, p)
			r.parts = append(r.parts, sink.Part{Name: fmt.Sprintf("%s/%d", name, id), Log: name, First: from.Offset, End: to.Offset, Latest: compacted[name]})
		}
	}
	return nil
}

// compacted returns which topics are compacted. Without permission to ask, these are the topics of a sink with
// tombstones.
func (r *Reader) compacted(ctx context.Context, tombstones bool, names []string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		out[name] = tombstones
	}
	configs, _ := r.admin.DescribeTopicConfigs(ctx, names...) // an error of all topics is treated as one of each
	for _, c := range configs {
		for _, entry := range c.Configs {
			if c.Err == nil && entry.Key == cleanupPolicy {
				out[c.Name] = strings.Contains(entry.MaybeValue(), policyCompact)
			}
		}
	}
	return out
}

// Parts implements [sink.Reader].
func (r *Reader) Parts() []sink.Part { return r.parts }

// At implements [sink.Reader].
func (r *Reader) At(ctx context.Context, t time.Time) ([]int64, error) {
	out := make([]int64, len(r.parts))
	if len(r.parts) == 0 {
		return out, nil
	}
	var names []string
	for _, p := range r.parts {
		names = append(names, p.Log)
	}
	found, err := r.admin.ListOffsetsAfterMilli(ctx, t.UnixMilli(), slices.Compact(names)...)
	if err == nil {
		err = found.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("look up what the topics held at %s: %w", t.Format(time.RFC3339), err)
	}
	for i, p := range r.parts {
		out[i] = p.End
		if at, ok := found.Lookup(p.Log, int32(r.ids[i].id)); ok && at.Offset >= 0 {
			out[i] = min(at.Offset, p.End)
		}
	}
	return out, nil
}

// Read implements [sink.Reader]. Kafka cannot leave records out.
func (r *Reader) Read(ctx context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	var (
		from = map[string]map[int32]kgo.Offset{}
		left = map[partition]int{}
	)
	for i, want := range ranges {
		if want.From >= want.To {
			continue
		}
		p := r.ids[i]
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][int32(p.id)] = kgo.NewOffset().At(want.From)
		left[p] = i
	}
	if len(left) == 0 {
		return nil
	}
	c, err := kgo.NewClient(append(slices.Clip(r.opts), kgo.ConsumePartitions(from))...)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer c.Close()
	var m sink.Message
	for len(left) > 0 {
		fetches, err := r.poll(ctx, c)
		if err != nil {
			return fmt.Errorf("read %s: %w", r.parts[anyOf(left)].Name, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			k := iter.Next()
			p := partition{topic: k.Topic, id: int(k.Partition)}
			i, ok := left[p]
			if !ok {
				continue
			}
			var err error
			if k.Offset < ranges[i].To && !k.Attrs.IsControl() {
				m.Part, m.Offset, m.Value, m.Headers = i, k.Offset, k.Value, m.Headers[:0]
				for _, h := range k.Headers {
					m.Headers = append(m.Headers, sink.Header{Name: h.Key, Value: h.Value})
				}
				err = fn(&m)
			}
			if err != nil && !errors.Is(err, sink.ErrEnough) {
				return err
			}
			if err != nil || k.Offset >= ranges[i].To-1 {
				delete(left, p)
				c.PauseFetchPartitions(map[string][]int32{p.topic: {int32(p.id)}})
			}
		}
	}
	return nil
}

func anyOf(left map[partition]int) int {
	for _, i := range left {
		return i
	}
	return 0
}

// poll waits for the next records.
func (r *Reader) poll(ctx context.Context, c *kgo.Client) (kgo.Fetches, error) {
	waiting, cancel := context.WithTimeout(ctx, readStall)
	defer cancel()
	fetches := c.PollFetches(waiting)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, f := range fetches.Errors() {
		switch {
		case errors.Is(f.Err, context.DeadlineExceeded):
			return nil, fmt.Errorf("nothing came for %s of what the brokers say is there", readStall)
		case errors.Is(f.Err, kerr.OffsetOutOfRange):
			return nil, fmt.Errorf("partition %s/%d: retention has removed what was about to be read: try again", f.Topic, f.Partition)
		default:
			return nil, fmt.Errorf("partition %s/%d: %w", f.Topic, f.Partition, f.Err)
		}
	}
	return fetches, nil
}

// Close implements [sink.Reader].
func (r *Reader) Close() { r.admin.Close() }
