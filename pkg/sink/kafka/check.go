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
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// shortRetention is the shortest retention without a warning, so that a consumer can be stopped over a night.
	shortRetention = 24 * time.Hour

	minInsyncReplicas = "min.insync.replicas"

	// strongTransactions is the level of transaction.version from which on each transaction has an epoch of its own (KIP-890).
	strongTransactions = 2

	// topicIDs is the version of the request Metadata from which on it has topic ids (KIP-516).
	topicIDs = 10
)

// Check asks the brokers whether the sink could write to topics, or create missing topics. It writes
// nothing. err joins the errors, one line each. weak lists warnings about settings that work but are
// weaker than recommended.
func Check(ctx context.Context, o Options, names []string) (weak []string, err error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	t := newTopics(newAdmin(a), o.Identity)
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	defer t.close()
	return t.check(ctx, names)
}

func (t *topics) check(ctx context.Context, names []string) (weak []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	meta, err := t.describeTopics(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("look up topic %q: %w", names[0], t.explain(err))
	}
	var (
		bad            []error
		missing, there []string
	)
	for i := range meta.Topics {
		m := &meta.Topics[i]
		name := *m.Topic
		switch err := kerr.ErrorForCode(m.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			missing = append(missing, name)
		case err != nil:
			bad = append(bad, fmt.Errorf("topic %q: %w", name, t.explain(err)))
		case !mayWrite(m.AuthorizedOperations):
			bad = append(bad, fmt.Errorf("topic %q: %s may not write to it: allow WRITE", name, t.user()))
		default:
			there = append(there, name)
			weak = append(weak, t.weakReplicas(m, len(meta.Brokers))...)
		}
	}
	bad = append(bad, t.checkMissing(ctx, missing, len(meta.Brokers)))
	weak = append(weak, t.weakBrokers(ctx)...)
	more, err := t.checkConfigs(ctx, there)
	slices.Sort(weak)
	return append(weak, more...), errors.Join(append(bad, err)...)
}

// mayWrite reports whether the broker's permission bits (KIP-430) allow writing. It returns true if the broker
// does not send these bits.
func mayWrite(bits int32) bool {
	all := kadm.DecodeACLOperations(bits)
	return len(all) == 0 || slices.Contains(all, kadm.OpWrite) || slices.Contains(all, kadm.OpAll)
}

func (t *topics) weakReplicas(m *kmsg.MetadataResponseTopic, brokers int) (weak []string) {
	least := brokers
	for _, p := range m.Partitions {
		least = min(least, len(p.Replicas))
	}
	switch want := t.config.Create.ReplicationFactor; {
	case want > least:
		weak = append(weak, fmt.Sprintf("topic %q has %d replicas, and create.replicationFactor is %d", *m.Topic, least, want))
	case want < 1 && least == 1 && brokers > 1:
		weak = append(weak, fmt.Sprintf("topic %q has one replica: its records are lost if this broker is lost", *m.Topic))
	}
	return weak
}

// weakBrokers returns a warning for each feature that the brokers lack and `exactly-once` builds on, or the warning that they did
// not answer.
func (a *admin) weakBrokers(ctx context.Context) (weak []string) {
	if !a.config.ExactlyOnce() {
		return nil
	}
	have, err := a.features(ctx)
	if err != nil {
		return []string{fmt.Sprintf("ask the brokers for their features: %v: it is unknown whether they have topic ids and transaction.version %d", a.explain(err), strongTransactions)}
	}
	if !have.topicIDs {
		weak = append(weak, "the brokers have no topic ids: a topic that is deleted and created again with as many partitions goes unnoticed: use Kafka 2.8 or later (KIP-516)")
	}
	if have.transactionVersion < strongTransactions {
		weak = append(weak, fmt.Sprintf("the brokers' transaction.version is %d: a message that arrives late can become part of the next transaction: use Kafka 4.0 or later with transaction.version %d (KIP-890)", have.transactionVersion, strongTransactions))
	}
	return weak
}

func (t *topics) checkMissing(ctx context.Context, names []string, brokers int) error {
	var bad []error
	if !*t.config.Create.Enabled {
		for _, name := range names {
			bad = append(bad, fmt.Errorf("topic %q does not exist, or %s may not see it: create it, or set `create.enabled: true`", name, t.user()))
		}
		return errors.Join(bad...)
	}
	if len(names) == 0 {
		return nil
	}
	create := t.config.Create
	failed, err := t.createTopics(ctx, names, create.Partitions, create.ReplicationFactor, t.config.TopicConfigs(false), true)
	if err != nil {
		return fmt.Errorf("ask whether topic %q could be created: %w", names[0], t.explain(err))
	}
	for _, name := range names {
		if err := failed[name]; err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			bad = append(bad, t.uncreated(name, err, brokers))
		}
	}
	return errors.Join(bad...)
}

// checkConfigs reads the topics' configuration.
func (t *topics) checkConfigs(ctx context.Context, names []string) (weak []string, _ error) {
	if len(names) == 0 {
		return nil, nil
	}
	var bad []error
	err := t.describeConfigs(ctx, names, func(name string, configs map[string]string, err error) {
		switch {
		case isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed):
			weak = append(weak, fmt.Sprintf("topic %q: its configuration may not be read, so Kafka's default is used for max.message.bytes: allow DESCRIBE_CONFIGS", name))
		case err != nil:
			bad = append(bad, fmt.Errorf("read the configuration of topic %q: %w", name, t.explain(err)))
		default:
			weak = append(weak, t.weakConfigs(name, configs)...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the configuration of topic %q: %w", names[0], t.explain(err))
	}
	return weak, errors.Join(bad...)
}

func (t *topics) weakConfigs(topic string, configs map[string]string) (weak []string) {
	say := func(format string, args ...any) {
		weak = append(weak, fmt.Sprintf("topic %q: ", topic)+fmt.Sprintf(format, args...))
	}
	policy := configs[cleanupPolicy]
	compacted := strings.Contains(policy, policyCompact)
	switch {
	case topic == t.dead && !compacted:
	case topic == t.dead:
		say("its cleanup.policy is %q: of an object's dead letters only the last is kept: set it to delete", policy)
	case t.config.Tombstones && !compacted:
		say("its cleanup.policy is %q, and tombstones are for compacted topics: set it to compact, or tombstones to false", policy)
	case compacted && !t.config.Tombstones:
		say("its cleanup.policy is %q: only the last event of an object is kept, and the events of deleted objects are never removed: set it to delete, or tombstones to true", policy)
	}
	if n, err := strconv.Atoi(configs[maxMessageBytes]); err == nil && n < brokerMaxBytes {
		say("its max.message.bytes is %d: larger events are cut down; objects have up to 1.5 MB", n)
	}
	if ms, err := strconv.ParseInt(configs[retentionMS], 10, 64); err == nil && ms >= 0 && strings.Contains(policy, policyDelete) {
		if d := time.Duration(ms) * time.Millisecond; d < shortRetention {
			say("its retention.ms is %d (%v): consumers that are stopped for longer miss events", ms, d)
		}
	}
	if n, err := strconv.Atoi(configs[minInsyncReplicas]); err == nil && n == 1 && t.config.Create.ReplicationFactor > 1 {
		say("its min.insync.replicas is 1: one broker can lose what was acknowledged")
	}
	return weak
}

// CheckPins compares topics with the pins in a checkpoint, which record the topics when they were
// first written to. The pins come from scan or, with delivery at-least-once,
// from the recorded mark. It returns the same as [Check].
func CheckPins(ctx context.Context, o Options, mark []byte, scan func(prefix []byte, fn func(key, value []byte) error) error) (weak []string, err error) {
	a, err := newAccess(o)
	if err != nil {
		return nil, err
	}
	var was pins
	if a.config.ExactlyOnce() {
		was, err = scanPins(scan)
	} else {
		was, err = decodePins(mark)
	}
	if err != nil || len(was) == 0 {
		return nil, err
	}
	t := newTopics(newAdmin(a), o.Identity)
	defer t.close()
	names := slices.Sorted(maps.Keys(was))
	found, refused, err := t.lookUp(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		switch {
		case errors.Is(refused[name], kerr.TopicAuthorizationFailed):
			weak = append(weak, t.unusable(name, refused[name]).Error())
		case found[name] == nil:
			weak = append(weak, fmt.Sprintf("topic %q was written to and no longer exists: consumers of a new topic will not have its events", name))
		}
	}
	remade, moved := was.compare(found)
	for _, name := range remade {
		weak = append(weak, (&remadeError{name}).Error()+": a declared reset is due")
	}
	var bad []error
	for _, m := range moved {
		bad = append(bad, refuse(m))
	}
	return weak, errors.Join(bad...)
}
