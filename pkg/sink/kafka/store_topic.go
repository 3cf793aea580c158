package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// CheckpointTopicConfigs returns the settings of a topic that the store creates, with one partition. Segments are small and
// closed daily, because only closed segments are compacted, and a start reads all remaining records.
// A value with a body may be as large as an event.
func CheckpointTopicConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"segment.bytes":             "67108864",
		"segment.ms":                "86400000",
		"min.cleanable.dirty.ratio": "0.2",
		"max.message.bytes":         "8388608",
	}
}

// ensureTopic creates the topic, or checks that it keeps its records.
func (s *Store) ensureTopic(ctx context.Context) (created bool, err error) {
	found, _, err := s.lookUp(ctx)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return s.createTopic(ctx)
	case err != nil:
		return false, fmt.Errorf("look it up: %w", s.explain(err))
	}
	if err := checkPartitions(found); err != nil {
		return false, err
	}
	return false, s.checkTopic(ctx)
}

// lookUp returns the brokers' description of the topic, and the number of brokers.
func (s *Store) lookUp(ctx context.Context) (*kmsg.MetadataResponseTopic, int, error) {
	meta, err := s.admin.describeTopics(ctx, []string{s.topic})
	if err != nil {
		return nil, 0, err
	}
	if len(meta.Topics) != 1 {
		return nil, 0, fmt.Errorf("%d topics were described, want 1", len(meta.Topics))
	}
	return &meta.Topics[0], len(meta.Brokers), kerr.ErrorForCode(meta.Topics[0].ErrorCode)
}

// checkPartitions refuses a topic that does not have exactly one partition.
func checkPartitions(t *kmsg.MetadataResponseTopic) error {
	if n := len(t.Partitions); n != 1 {
		return fmt.Errorf("%w: the topic has %d partitions, want 1: name another one in checkpoint.kafka.topic, or delete it: the next start is then a declared reset", checkpoint.ErrUnusable, n)
	}
	return nil
}

func (s *Store) createTopic(ctx context.Context) (created bool, err error) {
	exists, err := s.create(ctx, false)
	switch {
	case err != nil:
		return false, fmt.Errorf("it does not exist, and creating it fails: %w", err)
	case exists: // another bridge was faster
		return false, s.checkTopic(ctx)
	}
	s.log.Info("created the checkpoint topic", zap.String("topic", s.topic))
	return true, nil
}

// create creates the topic, or with dry asks whether it could be created. exists: the topic exists already.
func (s *Store) create(ctx context.Context, dry bool) (exists bool, err error) {
	replicas := -1 // the broker's default
	if s.o.Replicas > 0 {
		replicas = s.o.Replicas
	}
	failed, err := s.admin.createTopics(ctx, []string{s.topic}, 1, replicas, CheckpointTopicConfigs(), dry)
	if err == nil {
		err = failed[s.topic]
	}
	switch {
	case err == nil:
		return false, nil
	case !answered(err):
		return false, s.explain(err)
	case errors.Is(err, kerr.InvalidTopicException):
		return false, fmt.Errorf("%w: choose another name in checkpoint.kafka.topic. %s", err, collision)
	case errors.Is(err, kerr.TopicAlreadyExists):
		return true, nil
	case errors.Is(err, kerr.InvalidReplicationFactor):
		if n := s.admin.brokers(ctx); n > 0 {
			return false, fmt.Errorf("%w: the cluster has too few brokers (%d): set checkpoint.kafka.replicas to at most %d, or add brokers", err, n, n)
		}
	}
	return false, fmt.Errorf("%w: create it with one partition and cleanup.policy=compact, or allow CREATE on it", err)
}

// checkTopic refuses a topic that deletes records.
func (s *Store) checkTopic(ctx context.Context) error {
	var unusable error
	err := s.admin.describeConfigs(ctx, []string{s.topic}, func(_ string, configs map[string]string, err error) {
		policy, ok := configs[cleanupPolicy]
		switch {
		case isAny(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed):
			if !s.warned {
				s.warned = true
				s.log.Warn("may not read the checkpoint topic's configuration: make sure of cleanup.policy=compact, or allow DESCRIBE_CONFIGS", zap.String("topic", s.topic))
			}
		case err != nil:
			unusable = fmt.Errorf("read its configuration: %w", err)
		case ok && strings.ReplaceAll(policy, " ", "") != policyCompact:
			unusable = fmt.Errorf("%w: the topic's cleanup.policy is %q, and what it holds would be deleted: set it to compact", checkpoint.ErrUnusable, policy)
		}
	})
	if err != nil {
		return fmt.Errorf("read its configuration: %w", err)
	}
	return unusable
}

// inspect finds out, while nothing is written, whether the topic keeps what the store has written, and whether it has lost a part. The
// errors are those of Settle.
func (s *Store) inspect(ctx context.Context) error {
	found, _, err := s.lookUp(ctx)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition): // Settle finds out whether it was deleted
		s.Release()
		_, err = s.Settle(ctx, 0)
		return err
	case err != nil:
		err = fmt.Errorf("look it up: %w", s.explain(err))
	default:
		if err = checkPartitions(found); err == nil {
			err = s.checkTopic(ctx)
		}
	}
	var first int64
	if err == nil {
		first, err = s.end(ctx, beginning)
	}
	switch {
	case err != nil:
		return fmt.Errorf("checkpoint topic %q: %w", s.topic, laterError(err))
	case first <= s.ownerAt:
		return nil
	}
	s.writer.lost = &lostError{fmt.Sprintf("its first records, up to offset %d, were removed", first)}
	s.Release()
	_, err = s.Settle(ctx, 0)
	return err
}

// laterError makes an error temporary that is for good at the start only: while the store is in use, the topic can be corrected.
func laterError(err error) error {
	if errors.Is(err, checkpoint.ErrUnusable) {
		return errors.New(err.Error())
	}
	return err
}

// explain adds the remedy to an error of the checkpoint topic.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
	case !answered(err):
		return s.admin.explain(err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w: allow READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on it", err)
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return fmt.Errorf("%w: allow WRITE and DESCRIBE on the transactional id", err)
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return fmt.Errorf("%w: transaction.max.timeout.ms of the brokers is below the %d ms that the bridge needs: raise it", err, s.writer.timeout.Milliseconds())
	}
	return err
}
