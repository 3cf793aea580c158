package kafka

import (
	"cmp"
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
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	maxTopicName = 249
	// createdMaxBytes is max.message.bytes of the topics this sink creates.
	createdMaxBytes = 8 << 20
	// deadRetention is the retention of a topic of dead letters that the sink creates.
	deadRetention = 30 * 24 * time.Hour
	// brokerMaxBytes is Kafka's default of max.message.bytes.
	brokerMaxBytes = 1<<20 + 12
	// spread is how long it may take until every broker has a new topic.
	spread = 2 * time.Second

	maxMessageBytes = "max.message.bytes"
	cleanupPolicy   = "cleanup.policy"
	retentionMS     = "retention.ms"
	policyCompact   = "compact"
	policyDelete    = "delete"
)

// topics looks up the topics that a sink writes to, creates missing ones, compares them with the pins in the
// checkpoint, and reads their settings.
type topics struct {
	*admin
	dead   string            // topic of dead letters, "" for none
	pins   pins              // the pins in the checkpoint
	known  map[string]*topic // the topics as of the last look-up
	fresh  map[string]bool   // names that need no look-up: looked up in the last minute, and no request has failed since
	looked time.Time         // when all names needed a look-up for the last time
}

// topic is the sink's data about a topic.
type topic struct {
	partitions []int
	id         string // see pin
	// limit is max.message.bytes, the maximum bytes of a record batch. 0: the settings
	// must be read (again), as after each look-up.
	limit   int
	assumed bool // the settings could not be read
	// compacted: the topic keeps the last record of each key, and each record must
	// have a key. Read together with limit.
	compacted  bool
	warned     bool   // that the topic is not compacted
	tombstones bool   // as configured
	hashed     []byte // scratch of span, which one goroutine calls at a time
}

func newTopics(a *admin, id event.Identity) *topics {
	return &topics{admin: a, dead: a.config.DeadTopic(id), pins: pins{}, known: map[string]*topic{}, fresh: map[string]bool{}}
}

// forget makes every topic be looked up again.
func (t *topics) forget() { clear(t.fresh) }

// checkTopicName returns an error for a name that Kafka would not accept for a topic.
func checkTopicName(name string) error {
	illegal := strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
	})
	switch {
	case name == "", name == ".", name == "..", illegal >= 0:
		return fmt.Errorf("%q is not a topic name: only letters, digits, '.', '_' and '-' are allowed, and not '.' or '..' alone", name)
	case len(name) > maxTopicName:
		return fmt.Errorf("topic name %q has %d characters, Kafka takes %d", name, len(name), maxTopicName)
	}
	return nil
}

// resolve makes sure that topics exist, match their pins, and that their settings are known. Topics
// that were looked up in the last minute are not looked up again, unless a request has failed since. The error of a topic
// that was deleted and created again is a [*remadeError]. The topic then counts as a new one.
func (t *topics) resolve(ctx context.Context, names []string) error {
	if time.Since(t.looked) > metadataTTL {
		t.forget()
		t.looked = time.Now()
	}
	var stale []string
	for _, name := range names {
		if err := checkTopicName(name); err != nil {
			return &refusal{name, fmt.Errorf("%w: change the topic template, or give the resource a topic of its own", err)}
		}
		if !t.fresh[name] {
			stale = append(stale, name)
		}
	}
	if len(stale) > 0 {
		missing, err := t.refresh(ctx, stale)
		if err == nil && len(missing) > 0 { // another broker may have them
			missing, err = t.refresh(ctx, stale)
		}
		if err == nil && len(missing) > 0 {
			err = t.createMissing(ctx, stale, missing)
		}
		if err != nil {
			return err
		}
	}
	return t.readSettings(ctx, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return t.known[name].limit > 0 }))
}

// refresh looks up topics, and all topics that were written to before, and compares them with their pins.
func (t *topics) refresh(ctx context.Context, names []string) (missing []string, err error) {
	ask := maps.Clone(t.pins)
	for _, name := range names {
		ask[name] = pin{}
	}
	found, refused, err := t.lookUp(ctx, slices.Sorted(maps.Keys(ask)))
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if t.pins[name].remade(found[name].pin()) {
			delete(t.pins, name)
			delete(t.known, name)
			err = cmp.Or(err, error(&remadeError{name}))
		}
	}
	for name := range t.fresh { // a changed topic is looked up when it is written to
		if is, known := found[name], t.known[name]; is == nil || known == nil || len(is.partitions) != len(known.partitions) {
			delete(t.fresh, name)
		}
	}
	for _, name := range names {
		switch is, failed := found[name], refused[name]; {
		case err != nil:
		case failed != nil:
			err = t.unusable(name, failed)
		case is == nil:
			missing = append(missing, name)
		default:
			err = t.remember(name, is)
		}
	}
	return missing, err
}

// lookUp returns the brokers' descriptions of topics. Topics that do not exist are in neither result. refused has the errors
// of topics that the brokers do not describe; they do not concern other topics.
func (t *topics) lookUp(ctx context.Context, names []string) (found map[string]*topic, refused map[string]error, err error) {
	meta, err := t.describeTopics(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("look up topic %q: %w", names[0], t.explain(err))
	}
	found, refused = map[string]*topic{}, map[string]error{}
	for i := range meta.Topics {
		m := &meta.Topics[i]
		switch err := kerr.ErrorForCode(m.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil:
			refused[*m.Topic] = err
		default:
			is := &topic{tombstones: t.config.Tombstones && *m.Topic != t.dead}
			for _, p := range m.Partitions {
				is.partitions = append(is.partitions, int(p.Partition))
			}
			slices.Sort(is.partitions)
			if id := kadm.TopicID(m.TopicID); id != (kadm.TopicID{}) {
				is.id = id.String()
			}
			found[*m.Topic] = is
		}
	}
	return found, refused, nil
}

// unusable returns the error of one topic that the brokers do not describe, or that may not be written to.
func (t *topics) unusable(name string, cause error) error {
	return refusalOf(name, cause, fmt.Errorf("topic %q: %w", name, t.explain(cause)))
}

// remember records a topic after a look-up.
func (t *topics) remember(name string, is *topic) error {
	known := t.known[name]
	if known == nil {
		known = is
		t.known[name] = is
	}
	if was, is := len(known.partitions), len(is.partitions); was != is {
		return &partitionsError{topic: name, was: was, is: is}
	}
	known.id, known.limit = is.id, 0
	t.fresh[name] = true
	return nil
}

// pin returns the pin of the topic for the checkpoint.
func (t *topic) pin() pin { return pin{len(t.partitions), t.id} }

// partitionsError is the error of a topic whose number of partitions has changed.
type partitionsError struct {
	topic   string
	was, is int
}

func (e *partitionsError) Error() string {
	return fmt.Sprintf("topic %q has %d partitions and had %d when it was first written to: keys would move and lose their order", e.topic, e.is, e.was)
}

// createMissing creates the missing topics among names, and waits until the brokers have them. A topic that was written
// to before is created only if its pin has an id, which shows later that it is another topic.
func (t *topics) createMissing(ctx context.Context, names, missing []string) error {
	enabled := *t.config.Create.Enabled
	for _, name := range missing {
		if t.known[name] != nil && (!enabled || t.pins[name].id == "") {
			return &refusal{name, fmt.Errorf("topic %q is gone, and what was written to it, or %s may no longer see it: allow DESCRIBE on it, or create it again, or restart the bridge to have it looked at as a new one", name, t.user())}
		}
	}
	if !enabled {
		return &refusal{missing[0], fmt.Errorf("topic %q does not exist, or %s may not see it: create it, or set `create.enabled: true`", missing[0], t.user())}
	}
	if err := t.create(ctx, missing); err != nil {
		return err
	}
	for until := time.Now().Add(spread); ; {
		missing, err := t.refresh(ctx, names)
		switch {
		case err != nil || len(missing) == 0:
			return err
		case time.Now().After(until):
			return &refusal{missing[0], fmt.Errorf("topic %q exists but is not to be seen: if this lasts, allow %s DESCRIBE on it", missing[0], t.user())}
		}
		if err := pause(ctx, spread/20); err != nil {
			return err
		}
	}
}

func (t *topics) create(ctx context.Context, names []string) error {
	c := t.config.Create
	for _, dead := range []bool{false, true} { // dead letters have different settings
		some := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return (name == t.dead) != dead })
		if len(some) == 0 {
			continue
		}
		failed, err := t.createTopics(ctx, some, c.Partitions, c.ReplicationFactor, t.config.TopicConfigs(dead), false)
		if err != nil {
			return fmt.Errorf("create topic %q: %w", some[0], t.explain(err))
		}
		for _, name := range some {
			if err := failed[name]; err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // another bridge has created it
				return refusalOf(name, err, t.uncreated(name, err, t.brokers(ctx)))
			}
			delete(t.known, name)
			t.log.Info("created topic", zap.String("topic", name), zap.Int("partitions", c.Partitions))
		}
	}
	return nil
}

// collision explains why Kafka refuses a name that is valid.
const collision = "Kafka takes '.' and '_' for the same character: a topic whose name differs only in them is in the way"

// uncreated returns the error of a topic that could not be created. brokers is the number of brokers.
func (t *topics) uncreated(name string, err error, brokers int) error {
	c := t.config.Create
	replicas, hint := fmt.Sprintf("replication factor %d", c.ReplicationFactor), fmt.Sprintf("create it by hand, or let %s create topics", t.user())
	if c.ReplicationFactor < 1 {
		replicas = "the brokers' default.replication.factor"
	}
	switch {
	case errors.Is(err, kerr.InvalidReplicationFactor) && brokers > 0:
		hint = fmt.Sprintf("the cluster has too few brokers (%d): set kafka.create.replicationFactor to at most %d, or add brokers", brokers, brokers)
	case errors.Is(err, kerr.InvalidTopicException):
		hint = "choose another name with `topic` of the sink or of the entry. " + collision
	case isAny(err, kerr.PolicyViolation, kerr.InvalidConfig, kerr.InvalidPartitions):
		hint = "correct kafka.create, or create it by hand"
	}
	return fmt.Errorf("topic %q does not exist or is not to be seen, and creating it with %d partitions and %s fails: %w: %s", name, c.Partitions, replicas, err, hint)
}

// TopicConfigs returns the settings of topics that the sink creates, for events or for
// dead letters.
func (c Config) TopicConfigs(dead bool) map[string]string {
	configs := map[string]string{cleanupPolicy: policyDelete, maxMessageBytes: strconv.Itoa(createdMaxBytes)}
	retention := c.Create.Retention
	if dead {
		retention = deadRetention
	} else {
		maps.Copy(configs, c.Create.Config)
	}
	if c.Tombstones && !dead {
		configs[cleanupPolicy] = policyCompact
	}
	if retention != 0 {
		configs[retentionMS] = strconv.FormatInt(retention.Milliseconds(), 10)
	}
	if n := c.Create.MinInsyncReplicas; n != 0 {
		configs[minInsyncReplicas] = strconv.Itoa(n)
	}
	return configs
}

// readSettings reads max.message.bytes and cleanup.policy of known topics.
func (t *topics) readSettings(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var failed error
	err := t.describeConfigs(ctx, names, func(name string, configs map[string]string, err error) {
		switch is := t.known[name]; {
		case isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed):
			if !is.assumed {
				t.log.Warn("may not read the topic's max.message.bytes, using Kafka's default: allow DESCRIBE_CONFIGS for larger records",
					zap.String("topic", name), zap.Int("bytes", brokerMaxBytes))
			}
			is.limit, is.assumed, is.compacted = brokerMaxBytes, true, is.tombstones
		case err != nil:
			failed = fmt.Errorf("read the settings of topic %q: %w", name, t.explain(err))
		default:
			is.limit, is.assumed = brokerMaxBytes, false
			if n, err := strconv.Atoi(configs[maxMessageBytes]); err == nil {
				is.limit = n
			}
			is.compacted = strings.Contains(configs[cleanupPolicy], policyCompact)
			lacks := is.tombstones && !is.compacted
			if lacks && !is.warned {
				t.log.Warn("tombstones are written to a topic that is not compacted: set its cleanup.policy to compact, or tombstones to false", zap.String("topic", name))
			}
			is.warned = lacks
		}
	})
	if err != nil {
		return fmt.Errorf("read the settings of topic %q: %w", names[0], t.explain(err))
	}
	return failed
}

// rekeyed reads the settings of a topic that has refused a record, and reports whether its records have other keys now.
func (t *topics) rekeyed(ctx context.Context, name string) (bool, error) {
	is := t.known[name]
	was := is.compacted
	err := t.readSettings(ctx, []string{name})
	return is.compacted != was, err
}
