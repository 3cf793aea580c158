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

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// lookAgain is how often a [Reader] looks for topics and partitions that are new, and for topics that were deleted.
const lookAgain = 10 * time.Second

// Reader is a [sink.Reader] of a sink's topics. It sees committed records only.
type Reader struct {
	admin  *admin
	wanted func(name string) bool
	topics map[string]readTopic
	looked time.Time          // when the topics were looked up
	first  kadm.ListedOffsets // where they began then; reading what was removed since is an error
	parts  []sink.Part
	spans  []span // the whole ranges of parts
}

// readTopic is a topic that a [Reader] has found.
type readTopic struct {
	id         string // "": the brokers do not send ids
	partitions int
	policy
}

// policy is what is known of a topic's cleanup.policy.
type policy struct {
	compacted bool
	unknown   error // why it is not known; nil: it is
}

// NewReader connects and looks up the topics to read, for which topics returns true. For wrong credentials it returns a
// [sink.RefusedError].
func NewReader(ctx context.Context, o Options, topics func(name string) bool) (*Reader, error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	r := &Reader{admin: newAdmin(a), wanted: topics}
	if err := r.admin.open(ctx); err != nil {
		return nil, err
	}
	if err := r.lookUp(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// errChanged is returned if a topic was deleted, or has more partitions, since it was looked up.
var errChanged = errors.New("the topics have changed")

// Refresh implements [sink.Reader].
func (r *Reader) Refresh(ctx context.Context) error {
	if time.Since(r.looked) < lookAgain {
		if err := r.lookUpEnds(ctx); !errors.Is(err, errChanged) {
			return err
		}
	}
	return r.lookUp(ctx)
}

// lookUp looks up the topics, and where they begin and end.
func (r *Reader) lookUp(ctx context.Context) error {
	for until := time.Now().Add(spread); ; {
		found, err := r.find(ctx, nil)
		if err != nil {
			return err
		}
		for name, p := range r.policies(ctx, slices.Sorted(maps.Keys(found))) {
			t := found[name]
			t.policy = p
			found[name] = t
		}
		r.topics, r.first = found, nil
		err = r.lookUpEnds(ctx)
		if !errors.Is(err, errChanged) || time.Now().After(until) {
			r.looked = time.Now()
			return err
		}
		if err := pause(ctx, spread/20); err != nil {
			return err
		}
	}
}

// find looks up topics by their names; nil: all topics. It does not use kadm, which may return older answers.
func (r *Reader) find(ctx context.Context, names []string) (map[string]readTopic, error) {
	all, err := r.admin.describeTopics(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	found := map[string]readTopic{}
	for i := range all.Topics {
		m := &all.Topics[i]
		err := kerr.ErrorForCode(m.ErrorCode)
		if m.Topic == nil || !r.wanted(*m.Topic) || errors.Is(err, kerr.UnknownTopicOrPartition) {
			continue
		}
		name, t := *m.Topic, readTopic{partitions: len(m.Partitions)}
		if err != nil {
			return nil, fmt.Errorf("read topic %q: %w", name, err)
		}
		if id := kadm.TopicID(m.TopicID); id != (kadm.TopicID{}) {
			t.id = id.String()
		}
		if was, known := r.topics[name]; known && (was.id != t.id && was.id != "" && t.id != "" || was.partitions > t.partitions) {
			return nil, fmt.Errorf("read topic %q: it was deleted and created again", name)
		}
		found[name] = t
	}
	return found, nil
}

// lookUpEnds looks up where the topics begin and end. It looks the topics up after that, so that the ends are of the topics and partitions that are
// known. Otherwise it returns errChanged.
func (r *Reader) lookUpEnds(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(r.topics))
	if len(names) == 0 {
		r.parts, r.spans = nil, nil
		return nil
	}
	var written, end kadm.ListedOffsets
	doing := ""
	err := r.admin.do(ctx, requestTimeout, func(ctx context.Context, c *kgo.Client) error {
		k := kadm.NewClient(c)
		for _, one := range []struct {
			doing string
			list  func(context.Context, ...string) (kadm.ListedOffsets, error)
			to    *kadm.ListedOffsets
		}{
			{"look up where the topics begin", k.ListStartOffsets, &r.first},
			{"look up where the topics end", k.ListEndOffsets, &written},
			{"look up where the topics end", k.ListCommittedOffsets, &end}, // later records belong to open transactions
		} {
			if *one.to != nil {
				continue
			}
			doing = one.doing
			listed, err := one.list(ctx, names...)
			if err == nil {
				err = listed.Error()
			}
			if err != nil {
				return err
			}
			*one.to = listed
		}
		return nil
	})
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	now, err := r.find(ctx, names)
	if err != nil {
		return err
	}
	for name, t := range r.topics {
		if now[name].partitions != t.partitions {
			return errChanged
		}
	}
	r.parts, r.spans = nil, nil
	for _, name := range names {
		t := r.topics[name]
		for id := range t.partitions {
			from, ok := r.first.Lookup(name, int32(id))
			last, ok2 := written.Lookup(name, int32(id))
			to, ok3 := end.Lookup(name, int32(id))
			if !ok || !ok2 || !ok3 {
				return fmt.Errorf("read topic %q: the broker does not say where partition %d begins and ends", name, id)
			}
			r.spans = append(r.spans, span{partition{name, id}, from.Offset, to.Offset})
			r.parts = append(r.parts, sink.Part{
				Name: fmt.Sprintf("%s/%d", name, id), Log: name, ID: t.id, First: from.Offset, End: to.Offset, Written: last.Offset,
				Ordered: r.admin.config.ExactlyOnce(), // all records of a transaction are written before one of them can be read
				Latest:  t.compacted, LatestErr: t.unknown,
			})
		}
	}
	return nil
}

// policies returns the cleanup policies of topics. A topic whose policy cannot be read is taken as compacted if the sink writes tombstones.
func (r *Reader) policies(ctx context.Context, names []string) map[string]policy {
	out := map[string]policy{}
	if len(names) == 0 {
		return out
	}
	err := r.admin.describeConfigs(ctx, names, func(name string, configs map[string]string, err error) {
		p := policy{compacted: strings.Contains(configs[cleanupPolicy], policyCompact)}
		if _, shown := configs[cleanupPolicy]; err == nil && !shown {
			err = errors.New("the broker does not show it")
		}
		if err != nil {
			p = r.unknownPolicy(err)
		}
		out[name] = p
	})
	for _, name := range names {
		switch _, answered := out[name]; {
		case err != nil:
			out[name] = r.unknownPolicy(err)
		case !answered:
			out[name] = r.unknownPolicy(errors.New("the broker does not show it"))
		}
	}
	return out
}

func (r *Reader) unknownPolicy(err error) policy {
	if isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed) {
		err = fmt.Errorf("%w: allow %s DESCRIBE_CONFIGS on the topic", err, r.admin.user())
	} else {
		err = r.admin.explain(err)
	}
	return policy{r.admin.config.Tombstones, fmt.Errorf("read its cleanup.policy: %w", err)}
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
	var offsets kadm.ListedOffsets
	err := r.admin.do(ctx, requestTimeout, func(ctx context.Context, c *kgo.Client) (err error) {
		if offsets, err = kadm.NewClient(c).ListOffsetsAfterMilli(ctx, t.UnixMilli(), slices.Compact(names)...); err == nil {
			err = offsets.Error()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up what the topics held at %s: %w", t.Format(time.RFC3339), err)
	}
	for i, p := range r.parts {
		out[i] = p.End
		if at, ok := offsets.Lookup(p.Log, int32(r.spans[i].id)); ok && at.Offset >= 0 {
			out[i] = min(at.Offset, p.End)
		}
	}
	return out, nil
}

// Read implements [sink.Reader]. It passes on all records, because Kafka cannot filter them.
func (r *Reader) Read(ctx context.Context, ranges []sink.Range, _ bool, fn func(*sink.Message) error) error {
	spans := slices.Clone(r.spans)
	for i, want := range ranges {
		spans[i].from, spans[i].to = want.From, min(want.To, spans[i].to)
	}
	var m sink.Message
	return r.admin.read(ctx, spans, func(i int, k *kgo.Record) error {
		m.Part, m.Offset, m.Time, m.Value, m.Headers = i, k.Offset, k.Timestamp, k.Value, m.Headers[:0]
		for _, h := range k.Headers {
			m.Headers = append(m.Headers, sink.Header{Name: h.Key, Value: h.Value})
		}
		return fn(&m)
	})
}

// Close implements [sink.Reader].
func (r *Reader) Close() { r.admin.close() }
