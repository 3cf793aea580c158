package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CheckStore checks a checkpoint's topic as Open does, but writes nothing and does not fence another writer.
// err joins the errors, weak lists warnings. The returned store has the
// content of the topic; the caller closes it. It is nil if the
// topic is missing or belongs to another sink.
func CheckStore(ctx context.Context, o StoreOptions) (s *Store, weak []string, err error) {
	o.Logger = nil
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
	if err := s.checkWriter(ctx); err != nil {
		return false, nil, err
	}
	t, brokers, err := s.lookUp(ctx)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		if _, err := s.create(ctx, true); err != nil {
			return false, nil, fmt.Errorf("it does not exist, and it could not be created: %w", err)
		}
		return false, nil, nil
	case err != nil:
		return false, nil, fmt.Errorf("look it up: %w", s.explain(err))
	}
	if err := checkPartitions(t); err != nil {
		return false, nil, err
	}
	if len(t.Partitions[0].Replicas) == 1 && brokers > 1 {
		weak = append(weak, fmt.Sprintf("checkpoint topic %q has one replica: if its broker is lost, all objects are published again", s.topic))
	}
	err = s.checkTopic(ctx)
	if s.warned {
		weak = append(weak, fmt.Sprintf("checkpoint topic %q: its configuration may not be read: make sure of cleanup.policy=compact, or allow DESCRIBE_CONFIGS", s.topic))
	}
	return true, weak, err
}

// checkWriter checks whether the transactional id may be used, as far as this is
// possible without fencing its present user.
func (s *Store) checkWriter(ctx context.Context) error {
	id := TransactionalID(s.id)
	err := s.admin.do(ctx, stall, func(ctx context.Context, c *kgo.Client) error {
		_, err := kadm.NewClient(c).DescribeTransactions(ctx, id)
		return err
	})
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return fmt.Errorf("transactional id %q: %w", id, s.explain(err))
	}
	return nil // other errors also fail the next request, or mean that the id is not used yet
}
