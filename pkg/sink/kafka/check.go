package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// shortRetention is how long a consumer should be able to be away: over a night.
	shortRetention = 24 * time.Hour

	minInsyncReplicas = "min.insync.replicas"
)

// Check asks the brokers what would keep the sink from writing to topics, and writes
// nothing: a topic that is missing must be one that could be created. err joins what
// must be mended, a line each; weak is what is legal, but less than it could be.
func Check(ctx context.Context, o Options, topics []string) (weak []string, err error) {
	o.Logger = zap.NewNop()
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := s.Open(ctx, nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.check(ctx, o, topics)
}

func (s *Sink) check(ctx context.Context, o Options, names []string) (weak []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	opts, err := ClientOptions(s.config, o.Identity)
	if err != nil {
		return nil, err
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	meta, err := askTopics(ctx, c, names)
	if err != nil {
		return nil, fmt.Errorf("look up topic %q: %w", names[0], s.explain(fromFranz(err)))
	}
	var (
		bad            []error
		missing, there []string
	)
	for i := range meta.Topics {
		t := &meta.Topics[i]
		name := *t.Topic
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing = append(missing, name)
		case err != nil:
			bad = append(bad, fmt.Errorf("topic %q: %w", name, s.explain(fromFranz(err))))
		case !mayWrite(t.AuthorizedOperations):
			bad = append(bad, fmt.Errorf("topic %q: %s may not write to it: allow WRITE", name, s.user()))
		default:
			there = append(there, name)
			weak = append(weak, s.weakReplicas(t, len(meta.Brokers))...)
		}
	}
	bad = append(bad, s.checkMissing(ctx, c, missing, len(meta.Brokers)))
	more, err := s.checkConfigs(ctx, c, there)
	slices.Sort(weak)
	return append(weak, more...), errors.Join(append(bad, err)...)
}

func askTopics(ctx context.Context, c *kgo.Client, names []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req.RequestWith(ctx, c)
}

// mayWrite reports what the broker says of our permissions (KIP-430); brokers that say
// nothing may allow it.
func mayWrite(bits int32) bool {
	all := kadm.DecodeACLOperations(bits)
	return len(all) == 0 || slices.Contains(all, kadm.OpWrite) || slices.Contains(all, kadm.OpAll)
}

func (s *Sink) weakReplicas(t *kmsg.MetadataResponseTopic, brokers int) (weak []string) {
	least := brokers
	for _, p := range t.Partitions {
		least = min(least, len(p.Replicas))
	}
	switch want := s.config.Create.ReplicationFactor; {
	case want > least:
		weak = append(weak, fmt.Sprintf("topic %q has %d replicas, and create.replicationFactor is %d", *t.Topic, least, want))
	case want < 1 && least == 1 && brokers > 1:
		weak = append(weak, fmt.Sprintf("topic %q has one replica: it is gone with its broker", *t.Topic))
	}
	return weak
}

func (s *Sink) checkMissing(ctx context.Context, c *kgo.Client, names []string, brokers int) error {
	var bad []error
	if !*s.config.Create.Enabled {
		for _, name := range names {
			bad = append(bad, fmt.Errorf("topic %q does not exist, or %s may not see it: create it, or set `create.enabled: true`", name, s.user()))
		}
		return errors.Join(bad...)
	}
	if len(names) == 0 {
		return nil
	}
	configs := map[string]*string{}
	for key, value := range s.config.TopicConfigs(false) {
		configs[key] = &value
	}
	// Not kafka-go, which waits for the topics to be seen.
	create := s.config.Create
	tried, err := kadm.NewClient(c).ValidateCreateTopics(ctx, int32(create.Partitions), int16(create.ReplicationFactor), configs, names...)
	if err != nil {
		return fmt.Errorf("ask whether topic %q could be created: %w", names[0], s.explain(fromFranz(err)))
	}
	for _, name := range names {
		if err := tried[name].Err; err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			bad = append(bad, s.uncreated(name, fromFranz(err), brokers))
		}
	}
	return errors.Join(bad...)
}

// checkConfigs reads the topics' configuration.
func (s *Sink) checkConfigs(ctx context.Context, c *kgo.Client, names []string) (weak []string, _ error) {
	if len(names) == 0 {
		return nil, nil
	}
	// Not kadm, which makes one topic's refusal that of all.
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		one := kmsg.NewDescribeConfigsRequestResource()
		one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, one)
	}
	all, err := req.RequestWith(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of topic %q: %w", names[0], s.explain(fromFranz(err)))
	}
	var bad []error
	for _, found := range all.Resources {
		name := found.ResourceName
		err := kerr.ErrorForCode(found.ErrorCode)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			weak = append(weak, fmt.Sprintf("topic %q: its configuration may not be read, and Kafka's default is taken for max.message.bytes: allow DESCRIBE_CONFIGS", name))
		case err != nil:
			bad = append(bad, fmt.Errorf("read the configuration of topic %q: %w", name, s.explain(fromFranz(err))))
		default:
			configs := map[string]string{}
			for _, one := range found.Configs {
				if one.Value != nil {
					configs[one.Name] = *one.Value
				}
			}
			weak = append(weak, s.weakConfigs(name, configs)...)
		}
	}
	return weak, errors.Join(bad...)
}

func (s *Sink) weakConfigs(topic string, configs map[string]string) (weak []string) {
	say := func(format string, args ...any) {
		weak = append(weak, fmt.Sprintf("topic %q: ", topic)+fmt.Sprintf(format, args...))
	}
	policy := configs[cleanupPolicy]
	compacted := strings.Contains(policy, policyCompact)
	switch {
	case topic == s.dead && !compacted:
	case topic == s.dead:
		say("its cleanup.policy is %q: of an object's dead letters only the last is kept: set it to delete", policy)
	case s.config.Tombstones && !compacted:
		say("its cleanup.policy is %q, and tombstones are for compacted topics: set it to compact, or tombstones to false", policy)
	case compacted && !s.config.Tombstones:
		say("its cleanup.policy is %q: only the last event of an object is kept, a deletion for ever: set it to delete, or tombstones to true", policy)
	}
	if n, err := strconv.Atoi(configs[maxMessageBytes]); err == nil && n < brokerMaxBytes {
		say("its max.message.bytes is %d: larger events are cut down; objects have up to 1.5 MB", n)
	}
	if ms, err := strconv.ParseInt(configs[retentionMS], 10, 64); err == nil && ms >= 0 && strings.Contains(policy, policyDelete) {
		if d := time.Duration(ms) * time.Millisecond; d < shortRetention {
			say("its retention.ms is %d (%v): who is away for longer misses events", ms, d)
		}
	}
	if n, err := strconv.Atoi(configs[minInsyncReplicas]); err == nil && n == 1 && s.config.Create.ReplicationFactor > 1 {
		say("its min.insync.replicas is 1: one broker can lose what was acknowledged")
	}
	return weak
}

// CheckPins compares topics with what a checkpoint says that they were when they were
// first written to: with what scan finds in it, see [Journal], or, where the delivery is
// at least once, with the recorded mark. What it returns is as [Check]'s is.
func CheckPins(ctx context.Context, o Options, mark []byte, scan func(prefix []byte, fn func(key, value []byte) error) error) (weak []string, err error) {
	o.Logger = zap.NewNop()
	x, err := NewTransactional(o, nil)
	if err != nil {
		return nil, err
	}
	var was pins
	if o.Config.ExactlyOnce() {
		was, err = scanPins(scan)
	} else {
		was, err = decodePins(mark)
	}
	if err != nil || len(was) == 0 {
		return nil, err
	}
	found, hidden, err := x.look(ctx, slices.Sorted(maps.Keys(was)))
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		_, ok := found[name]
		switch {
		case slices.Contains(hidden, name):
			weak = append(weak, x.forbidden(name).Error())
		case !ok:
			weak = append(weak, fmt.Sprintf("topic %q was written to and is gone: consumers of a new one lack what it held", name))
		}
	}
	remade, moved := was.compare(found)
	for _, name := range remade {
		weak = append(weak, remadeError(name).Error()+": a declared reset is due")
	}
	var bad []error
	for _, m := range moved {
		bad = append(bad, refuse(m))
	}
	return weak, errors.Join(bad...)
}
