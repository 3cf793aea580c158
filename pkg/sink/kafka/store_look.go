package kafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// ReadStore returns what a topic holds, of any bridge, and fences nobody: Get and
// Scan of the store are then to be used, and Close. The error wraps
// fs.ErrNotExist when there is no such topic, and [checkpoint.ErrOlder],
// [checkpoint.ErrNewer] or [checkpoint.ErrCorrupt] when the topic cannot be read.
func ReadStore(ctx context.Context, o StoreOptions) (*Store, event.Identity, error) {
	var id event.Identity
	s, err := NewStore(o)
	if err != nil {
		return nil, id, err
	}
	if id, err = s.look(ctx); err != nil {
		_ = s.Close() // what it would say is not what went wrong
		return nil, id, fmt.Errorf("checkpoint topic %q: %w", s.topic, s.advise(err))
	}
	return s, id, nil
}

func (s *Store) look(ctx context.Context) (id event.Identity, err error) {
	_, _, err = s.lookUp(ctx)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return id, fmt.Errorf("there is none: %w", fs.ErrNotExist)
	case err != nil:
		return id, fmt.Errorf("look it up: %w", explain(err))
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

// ResetStore makes the next start a reset, which accepts whatever number of partitions it then finds.
// empty also removes everything that the topic holds: then any bridge and cluster may take the topic
// over, and it does not matter whether its content can be read. A bridge that is running is fenced.
// o.Identity need not be known.
func ResetStore(ctx context.Context, o StoreOptions, empty bool) error {
	s, err := NewStore(o)
	if err != nil {
		return err
	}
	topic := s.topic
	id, err := s.look(ctx)
	err = errors.Join(err, s.Close())
	switch {
	case err != nil && (!empty || !unreadable(err)):
		return fmt.Errorf("checkpoint topic %q: %w", topic, err)
	case id == event.Identity{}:
		id = o.Identity
	}
	o.Topic, o.Identity, o.StandAlone, o.Logger, o.anyOwner = topic, id, true, nil, empty
	if s, err = NewStore(o); err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // a copy
	if err := s.Load(ctx); err != nil {
		return err
	}
	prefix := []byte(pinPrefix)
	if empty {
		prefix = nil
	}
	return s.reset(ctx, prefix)
}

// reset removes the keys with a prefix, and asks for a reset. The request comes with the last of them. Until
// then the identity stays, so a start after a crash does not take a part for the whole.
func (s *Store) reset(ctx context.Context, prefix []byte) error {
	var keys []event.KV
	err := s.Scan(prefix, func(key, _ []byte) error {
		if !bytes.Equal(key, checkpoint.IdentityKey()) {
			keys = append(keys, event.KV{Key: bytes.Clone(key)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for len(keys) > copyAtOnce {
		if err := s.Commit(ctx, keys[:copyAtOnce]); err != nil {
			return err
		}
		keys = keys[copyAtOnce:]
	}
	keys = append(keys, event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()})
	if len(prefix) == 0 {
		keys = append(keys, event.KV{Key: checkpoint.IdentityKey()})
	}
	return s.Commit(ctx, keys)
}

// unreadable reports whether an error says that the content of a topic cannot be read.
func unreadable(err error) bool {
	return errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNewer) || errors.Is(err, checkpoint.ErrOlder)
}
