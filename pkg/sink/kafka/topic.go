package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	maxTopicName = 249
	// createdMaxBytes is max.message.bytes of the topics this sink creates.
	createdMaxBytes = 8 << 20
	// deadRetention is how long a topic of dead letters keeps them that it creates.
	deadRetention = 30 * 24 * time.Hour
	// brokerMaxBytes is what Kafka takes when max.message.bytes was never set.
	brokerMaxBytes = 1<<20 + 12

	maxMessageBytes = "max.message.bytes"
	cleanupPolicy   = "cleanup.policy"
	retentionMS     = "retention.ms"
	policyCompact   = "compact"
	policyDelete    = "delete"
)

// topic is what the sink remembers of a topic.
type topic struct {
	partitions []int
	// limit is max.message.bytes: the bytes one record batch may have. 0 when it
	// has to be read (again).
	limit   int
	assumed bool // limit could not be read
	// compacted: the topic keeps the last record of each key, and each has to
	// have one. Known when limit is.
	compacted  bool
	tombstones bool   // as configured
	hashed     []byte // scratch of span, which one goroutine calls at a time
}

// checkTopicName reports what Kafka would not accept as a topic's name.
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

// routes names the topics of the records that are still to be written, each once.
func (s *Sink) routes(b *event.Batch) (names []string) {
	seen := map[string]bool{}
	pending := s.pending(b.Records)
	for i := range b.Records {
		if name := b.Records[i].Route; !seen[name] && pending(i) {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// resolve makes sure that topics exist, have the partitions they had before, and
// that their limits are known.
func (s *Sink) resolve(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if err := checkTopicName(name); err != nil {
			return fmt.Errorf("%w: change the topic template", err)
		}
	}
	found, err := s.find(ctx, names)
	if err != nil {
		return err
	}
	var unread []string
	for _, t := range found {
		if err := s.remember(t); err != nil {
			return err
		}
		if s.topics[t.Name].limit == 0 {
			unread = append(unread, t.Name)
		}
	}
	return s.readLimits(ctx, unread)
}

// find looks the topics up and creates those that are missing.
func (s *Sink) find(ctx context.Context, names []string) ([]kafka.Topic, error) {
	found, missing, err := s.lookup(ctx, names)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	// A connection answers from its cache: only a new one proves the absence.
	s.drop()
	found, missing, err = s.lookup(ctx, names)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	create := *s.config.Create.Enabled
	for _, name := range missing {
		again := s.gone != nil && s.gone(name) && create
		if s.topics[name] != nil && !again {
			return nil, &refusal{name, fmt.Errorf("topic %q is gone, and what was written to it, or %s may no longer see it: allow DESCRIBE on it, or create it again, or restart the bridge to have it looked at as a new one", name, s.user())}
		}
	}
	if !create {
		return nil, &refusal{missing[0], fmt.Errorf("topic %q does not exist, or %s may not see it: create it, or set `create.enabled: true`", missing[0], s.user())}
	}
	if err := s.create(ctx, missing); err != nil {
		return nil, err
	}
	found, missing, err = s.lookup(ctx, names)
	if err == nil && len(missing) > 0 {
		return nil, &refusal{missing[0], fmt.Errorf("topic %q exists but is not to be seen: if this lasts, allow %s DESCRIBE on it", missing[0], s.user())}
	}
	return found, err
}

func (s *Sink) lookup(ctx context.Context, names []string) (found []kafka.Topic, missing []string, err error) {
	meta, err := s.metadata(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("look up topic %q: %w", names[0], s.explain(err))
	}
	for _, t := range meta.Topics {
		switch {
		case errors.Is(t.Error, kafka.UnknownTopicOrPartition):
			missing = append(missing, t.Name)
		case t.Error != nil:
			return nil, nil, refusalOf(t.Name, t.Error, fmt.Errorf("topic %q: %w", t.Name, s.explain(t.Error)))
		default:
			found = append(found, t)
		}
	}
	return found, missing, nil
}

// metadata returns the cluster's layout and the named topics in it.
func (s *Sink) metadata(ctx context.Context, names []string) (*kafka.MetadataResponse, error) {
	if names == nil {
		names = []string{} // nil would ask for all of them
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // another broker answers when one hangs
	defer cancel()
	conn := s.connection()
	meta, err := conn.Metadata(ctx, &kafka.MetadataRequest{Topics: names})
	return meta, conn.cause(err)
}

func (s *Sink) create(ctx context.Context, names []string) error {
	failed, err := s.requestTopics(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := failed[name]; err != nil {
			return err
		}
		delete(s.topics, name)
		s.log.Info("created topic", zap.String("topic", name), zap.Int("partitions", s.config.Create.Partitions))
	}
	return nil
}

// requestTopics asks for topics to be created. failed tells of each topic why not.
func (s *Sink) requestTopics(ctx context.Context, names []string) (failed map[string]error, _ error) {
	c := s.config.Create
	req := &kafka.CreateTopicsRequest{}
	for _, name := range names {
		t := kafka.TopicConfig{Topic: name, NumPartitions: c.Partitions, ReplicationFactor: c.ReplicationFactor}
		for key, value := range s.config.TopicConfigs(name == s.dead) {
			t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
		}
		req.Topics = append(req.Topics, t)
	}
	conn := s.connection()
	resp, err := conn.CreateTopics(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", names[0], s.explain(conn.cause(err)))
	}
	failed = map[string]error{}
	for _, name := range names {
		if err := resp.Errors[name]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) { // another one was faster
			failed[name] = refusalOf(name, err, s.uncreated(name, err, s.brokers(ctx)))
		}
	}
	return failed, nil
}

// brokers is how many brokers the cluster has; 0: it does not answer.
func (s *Sink) brokers(ctx context.Context) int {
	meta, err := s.metadata(ctx, nil)
	if err != nil {
		return 0
	}
	return len(meta.Brokers)
}

// uncreated is the error of a topic that could not be created, on so many brokers.
func (s *Sink) uncreated(topic string, err error, brokers int) error {
	c := s.config.Create
	replicas, hint := fmt.Sprintf("replication factor %d", c.ReplicationFactor), fmt.Sprintf("create it by hand, or let %s create topics", s.user())
	if c.ReplicationFactor < 1 {
		replicas = "the brokers' default.replication.factor"
	}
	if errors.Is(err, kafka.InvalidReplicationFactor) && brokers > 0 {
		hint = fmt.Sprintf("the cluster has too few brokers (%d): set kafka.create.replicationFactor to at most %d, or add brokers", brokers, brokers)
	}
	return fmt.Errorf("topic %q does not exist or is not to be seen, and creating it with %d partitions and %s fails: %w: %s", topic, c.Partitions, replicas, err, hint)
}

// TopicConfigs are set on the topics that the sink creates: those of events, or that of
// dead letters.
func (c Config) TopicConfigs(dead bool) map[string]string {
	configs := map[string]string{cleanupPolicy: policyDelete, maxMessageBytes: strconv.Itoa(createdMaxBytes)}
	switch {
	case dead:
		configs[retentionMS] = strconv.FormatInt(deadRetention.Milliseconds(), 10)
	case c.Tombstones:
		configs[cleanupPolicy] = policyCompact
	}
	return configs
}

func (s *Sink) remember(t kafka.Topic) error {
	known := s.topics[t.Name]
	if known == nil {
		known = &topic{tombstones: s.config.Tombstones && t.Name != s.dead}
		for _, p := range t.Partitions {
			known.partitions = append(known.partitions, p.ID)
		}
		slices.Sort(known.partitions)
		s.topics[t.Name] = known
	}
	if was, is := len(known.partitions), len(t.Partitions); was != is {
		return &partitionsError{topic: t.Name, was: was, is: is}
	}
	return nil
}

// partitionsError is a topic whose number of partitions is not what it was.
type partitionsError struct {
	topic   string
	was, is int
}

func (e *partitionsError) Error() string {
	return fmt.Sprintf("topic %q has %d partitions and had %d when it was first written to: keys would move and lose their order", e.topic, e.is, e.was)
}

// readLimits asks for max.message.bytes and cleanup.policy of topics that are
// remembered.
func (s *Sink) readLimits(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	req := &kafka.DescribeConfigsRequest{}
	for _, name := range names {
		req.Resources = append(req.Resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: name,
			ConfigNames:  []string{maxMessageBytes, cleanupPolicy},
		})
	}
	conn := s.connection()
	resp, err := conn.DescribeConfigs(ctx, req)
	if err != nil {
		return fmt.Errorf("read max.message.bytes of topic %q: %w", names[0], s.explain(conn.cause(err)))
	}
	for _, r := range resp.Resources {
		t := s.topics[r.ResourceName]
		switch {
		case errors.Is(r.Error, kafka.TopicAuthorizationFailed), errors.Is(r.Error, kafka.ClusterAuthorizationFailed):
			if !t.assumed {
				s.log.Warn("may not read the topic's max.message.bytes, taking Kafka's default: allow DESCRIBE_CONFIGS for records that are larger",
					zap.String("topic", r.ResourceName), zap.Int("bytes", brokerMaxBytes))
			}
			t.limit, t.assumed, t.compacted = brokerMaxBytes, true, t.tombstones
		case r.Error != nil:
			return fmt.Errorf("read max.message.bytes of topic %q: %w", r.ResourceName, s.explain(r.Error))
		default:
			t.limit, t.assumed = brokerMaxBytes, false
			for _, e := range r.ConfigEntries {
				switch n, err := strconv.Atoi(e.ConfigValue); {
				case e.ConfigName == maxMessageBytes && err == nil:
					t.limit = n
				case e.ConfigName == cleanupPolicy:
					t.compacted = strings.Contains(e.ConfigValue, policyCompact)
				}
			}
			if t.tombstones && !t.compacted {
				s.log.Warn("tombstones are written to a topic that is not compacted: set its cleanup.policy to compact, or tombstones to false", zap.String("topic", r.ResourceName))
			}
		}
	}
	return nil
}
