package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// CheckpointTopicConfigs are set on a topic that the store creates, with one partition. Segments are small and
// closed daily, since only closed ones are compacted: a start reads what is left.
// An entry that holds a body may be as large as an event.
func CheckpointTopicConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"segment.bytes":             "67108864",
		"segment.ms":                "86400000",
		"min.cleanable.dirty.ratio": "0.2",
		"max.message.bytes":         "8388608",
	}
}

// ensureTopic creates the topic, or checks that what it holds is kept.
func (s *Store) ensureTopic(ctx context.Context) (created bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	c, err := s.client(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	details, err := admin.ListTopics(ctx, s.topic)
	if err == nil {
		err = details.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return s.createTopic(ctx, admin)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("look it up: %w", context.Cause(ctx))
	case err != nil:
		return false, fmt.Errorf("look it up: %w", explain(err))
	}
	if err := checkPartitions(details[s.topic]); err != nil {
		return false, err
	}
	return false, s.checkTopic(ctx, admin)
}

// checkPartitions refuses a topic that has not the one partition that is written to.
func checkPartitions(t kadm.TopicDetail) error {
	if n := len(t.Partitions); n != 1 {
		return fmt.Errorf("%w: the topic has %d partitions, want 1: name another one in checkpoint.kafka.topic, or delete it: the next start is then a declared reset", checkpoint.ErrUnusable, n)
	}
	return nil
}

func (s *Store) createTopic(ctx context.Context, admin *kadm.Client) (created bool, err error) {
	_, err = admin.CreateTopic(ctx, 1, s.replicas(), checkpointTopicConfigs(), s.topic)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists): // another one was faster
		return false, s.checkTopic(ctx, admin)
	case err != nil:
		return false, fmt.Errorf("it does not exist, and creating it fails: %w", s.uncreated(ctx, admin, err))
	}
	s.log.Info("created the checkpoint topic", zap.String("topic", s.topic))
	return true, nil
}

// uncreated adds to the error of a topic that could not be created what to do.
func (s *Store) uncreated(ctx context.Context, admin *kadm.Client, err error) error {
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		brokers, unknown := admin.ListBrokers(ctx)
		if n := len(brokers); unknown == nil {
			return fmt.Errorf("%w: the cluster has too few brokers (%d): set checkpoint.kafka.replicas to at most %d, or add brokers", err, n, n)
		}
	}
	return fmt.Errorf("%w: create it with one partition and cleanup.policy=compact, or allow CREATE on it", err)
}

// replicas is the replication factor of a topic that is created, -1 the broker's own.
func (s *Store) replicas() int16 {
	if s.o.Replicas > 0 {
		return int16(s.o.Replicas)
	}
	return -1
}

func checkpointTopicConfigs() map[string]*string {
	all := map[string]*string{}
	for key, value := range CheckpointTopicConfigs() {
		all[key] = &value
	}
	return all
}

// checkTopic refuses a topic that forgets.
func (s *Store) checkTopic(ctx context.Context, admin *kadm.Client) error {
	configs, err := admin.DescribeTopicConfigs(ctx, s.topic)
	var found kadm.ResourceConfig
	if err == nil {
		found, err = configs.On(s.topic, nil)
	}
	if err == nil {
		err = found.Err
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		if !s.warned {
			s.warned = true
			s.log.Warn("may not read the checkpoint topic's configuration: make sure of cleanup.policy=compact, or allow DESCRIBE_CONFIGS", zap.String("topic", s.topic))
		}
		return nil
	case err != nil:
		return fmt.Errorf("read its configuration: %w", err)
	}
	for _, c := range found.Configs {
		if c.Key == "cleanup.policy" && c.Value != nil && strings.ReplaceAll(*c.Value, " ", "") != "compact" {
			return fmt.Errorf("%w: the topic's cleanup.policy is %q, and what it holds would be deleted: set it to compact", checkpoint.ErrUnusable, *c.Value)
		}
	}
	return nil
}

// explain adds what to do. kadm wraps the answer to a request that it shares out
// among the brokers in words about itself.
func explain(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && len(shards.Errs) > 0 {
		err = shards.Errs[0].Err
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w: allow READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on it", err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return fmt.Errorf("%w: allow WRITE and DESCRIBE on the transactional id", err)
	}
	return err
}
