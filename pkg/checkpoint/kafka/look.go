package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TopicPrefix starts the keys under which a sink keeps what it knows of the
// topics it writes to.
const TopicPrefix = "!topic/"

// Look returns what a topic holds, whosever it is, and shuts out nobody: Get and
// Scan of the store are then to be used, and Close. The error wraps
// fs.ErrNotExist when there is no such topic.
func Look(ctx context.Context, o Options) (*Store, event.Identity, error) {
	var id event.Identity
	s, err := New(o)
	if err != nil {
		return nil, id, err
	}
	if id, err = s.look(ctx); err != nil {
		_ = s.Close() // what it would say is not what went wrong
		return nil, id, fmt.Errorf("checkpoint topic %q: %w", s.topic, err)
	}
	return s, id, nil
}

func (s *Store) look(ctx context.Context) (id event.Identity, err error) {
	wait, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	c, err := s.client(wait)
	if err != nil {
		return id, err
	}
	defer c.Close()
	found, err := kadm.NewClient(c).ListTopics(wait, s.topic)
	switch {
	case err != nil && wait.Err() != nil:
		return id, fmt.Errorf("look it up: %w", context.Cause(wait))
	case err != nil:
		return id, fmt.Errorf("look it up: %w", err)
	case !found.Has(s.topic):
		return id, fmt.Errorf("there is none: %w", fs.ErrNotExist)
	}
	if err := s.fill(ctx, committed); err != nil {
		return id, err
	}
	if s.owner == nil {
		return id, fmt.Errorf("it holds no checkpoint: %w", fs.ErrNotExist)
	}
	var record struct {
		Identity event.Identity `json:"identity"`
	}
	if err := json.Unmarshal(s.owner, &record); err != nil {
		return id, fmt.Errorf("%w: its identity record does not parse", checkpoint.ErrCorrupt)
	}
	return record.Identity, checkpoint.CheckIdentity(s.owner, record.Identity)
}

// Reset makes the next start a declared reset, and accepts whatever number of
// partitions it then finds. With forget, any bridge or cluster may take the topic
// over. A bridge that is running is shut out. o.Identity need not be known.
func Reset(ctx context.Context, o Options, forget bool) error {
	s, id, err := Look(ctx, o)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	o.Topic, o.Identity, o.StandAlone, o.Logger = s.topic, id, true, zap.NewNop()
	if s, err = New(o); err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // a copy
	if err := s.Load(ctx); err != nil {
		return err
	}
	changes := []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}
	if forget { // what has no owner is reset by the next one
		changes = append(changes, event.KV{Key: checkpoint.IdentityKey()})
	}
	err = s.Scan([]byte(TopicPrefix), func(key, _ []byte) error {
		changes = append(changes, event.KV{Key: bytes.Clone(key)})
		return nil
	})
	if err != nil {
		return err
	}
	return s.Commit(ctx, changes)
}
