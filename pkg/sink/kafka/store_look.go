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

// ReadStore returns a store with the content of a topic of any bridge. It does not fence another writer. Use only Get,
// Scan and Close of the store. The error wraps
// fs.ErrNotExist if there is no such topic, and [checkpoint.ErrOlder],
// [checkpoint.ErrNewer] or [checkpoint.ErrCorrupt] if the content cannot be read.
func ReadStore(ctx context.Context, o StoreOptions) (*Store, event.Identity, error) {
	var id event.Identity
	s, err := NewStore(o)
	if err != nil {
		return nil, id, err
	}
	if id, err = s.look(ctx); err != nil {
		_ = s.Close() // the error of Close is not the cause
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
		return id, fmt.Errorf("look it up: %w", s.explain(err))
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

// ResetStore makes the next start a reset, which accepts any number of partitions.
// With empty it also removes the whole content of the topic. Any bridge and cluster may then use the
// topic, and the content need not be readable. It fences a running bridge.
// o.Identity may be unknown.
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

// reset removes the keys with a prefix, and writes a request for a reset with the last of them. Until
// then the identity stays, so that a start after a crash does not use an incomplete checkpoint.
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

// unreadable reports whether err means that the content of a topic cannot be read.
func unreadable(err error) bool {
	return errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNewer) || errors.Is(err, checkpoint.ErrOlder)
}
