package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// CheckStore looks at a lane's topic as Open does, but writes nothing and shuts out nobody.
// err joins what must be mended, weak is what is legal but less than it could be. What
// the topic holds can be read from the store, which the caller closes; it is nil if the
// topic is missing, or not the lane's.
func CheckStore(ctx context.Context, o StoreOptions) (s *Store, weak []string, err error) {
	o.Logger = zap.NewNop()
	if s, err = NewStore(o); err != nil {
		return nil, nil, err
	}
	there, weak, err := s.check(ctx)
	if err == nil && there {
		if err = s.catchUp(ctx, committed); err == nil {
			return s, weak, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("checkpoint topic %q: %w", s.topic, err)
	}
	return nil, weak, errors.Join(err, s.Close())
}

func (s *Store) check(ctx context.Context) (there bool, weak []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	c, err := s.client(ctx)
	if err != nil {
		return false, nil, err
	}
	defer c.Close()
	admin := kadm.NewClient(c)
	if err := s.checkWriter(ctx, admin); err != nil {
		return false, nil, err
	}
	meta, err := admin.Metadata(ctx, s.topic)
	if err != nil {
		return false, nil, fmt.Errorf("look it up: %w", explain(err))
	}
	t := meta.Topics[s.topic]
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return false, nil, s.tryCreate(ctx, admin)
	case t.Err != nil:
		return false, nil, fmt.Errorf("look it up: %w", explain(t.Err))
	}
	if err := checkPartitions(t); err != nil {
		return false, nil, err
	}
	if n := t.Partitions.NumReplicas(); n == 1 && len(meta.Brokers) > 1 {
		weak = append(weak, fmt.Sprintf("checkpoint topic %q has one replica: everything is announced again when its broker is lost", s.topic))
	}
	err = s.checkTopic(ctx, admin)
	if s.warned {
		weak = append(weak, fmt.Sprintf("checkpoint topic %q: its configuration may not be read: make sure of cleanup.policy=compact, or allow DESCRIBE_CONFIGS", s.topic))
	}
	return true, weak, err
}

// checkWriter asks whether the transactional id may be used, as far as that can be
// asked without shutting out who uses it.
func (s *Store) checkWriter(ctx context.Context, admin *kadm.Client) error {
	id := TransactionalID(s.o.Identity)
	_, err := admin.DescribeTransactions(ctx, id)
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return fmt.Errorf("transactional id %q: %w", id, explain(err))
	}
	return nil // what else is wrong shows below, or is that nobody has used it yet
}

func (s *Store) tryCreate(ctx context.Context, admin *kadm.Client) error {
	resp, err := admin.ValidateCreateTopics(ctx, 1, s.replicas(), checkpointTopicConfigs(), s.topic)
	if err == nil {
		_, err = resp.On(s.topic, nil)
	}
	if err == nil {
		err = resp[s.topic].Err
	}
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return fmt.Errorf("it does not exist, and it could not be created: %w", s.uncreated(ctx, admin, err))
}
