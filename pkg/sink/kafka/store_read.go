package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// end selects an end of the topic.
type end int

const (
	// committed ends before the first open transaction.
	committed end = iota
	// written ends after all written records; the read waits for open transactions.
	written
	// beginning is the first offset that the topic still has.
	beginning
)

// end asks the brokers for an end of the topic. Not all brokers learn of a new topic at once, so
// it retries if a broker does not have the topic yet.
func (s *Store) end(ctx context.Context, e end) (offset int64, err error) {
	for until := time.Now().Add(spread); ; {
		offset, err = s.askEnd(ctx, e)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || time.Now().After(until) {
			return offset, err
		}
		if pause(ctx, spread/20) != nil {
			return 0, err
		}
	}
}

func (s *Store) askEnd(ctx context.Context, e end) (int64, error) {
	var offsets kadm.ListedOffsets
	err := s.admin.do(ctx, stall, func(ctx context.Context, c *kgo.Client) (err error) {
		list := kadm.NewClient(c).ListEndOffsets
		switch e {
		case committed:
			list = kadm.NewClient(c).ListCommittedOffsets
		case beginning:
			list = kadm.NewClient(c).ListStartOffsets
		}
		if offsets, err = list(ctx, s.topic); err == nil {
			err = offsets.Error()
		}
		return err
	})
	o, ok := offsets.Lookup(s.topic, 0)
	switch {
	case err != nil:
		return 0, fmt.Errorf("ask for its end: %w", s.explain(err))
	case !ok:
		return 0, errors.New("ask for its end: it has no partition 0")
	}
	return o.Offset, nil
}

// read calls fn for the committed records from from up to, but not including, to, in order.
func (s *Store) read(ctx context.Context, from, to int64, fn func(*kgo.Record) error) error {
	err := s.admin.read(ctx, []span{{partition{topic: s.topic}, from, to}}, func(_ int, r *kgo.Record) error { return fn(r) })
	return s.explain(err)
}
