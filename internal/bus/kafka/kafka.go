// Package kafka is the bus kafka: messages in topics, and the checkpoint in a compacted topic.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
)

// Config is the block of the configuration.
type Config kafka.Config

func (c *Config) sink() *kafka.Config { return (*kafka.Config)(c) }

// ExactlyOnce reports whether events are written in transactions, with the checkpoint.
func (c *Config) ExactlyOnce() bool { return c.sink().ExactlyOnce() }

// Traits implements [bus.Config].
func (c *Config) Traits() bus.Traits {
	t := bus.Traits{Headers: true, Keeps: bus.OnBus}
	if c.ExactlyOnce() {
		t.Keeps = bus.InTransaction
	}
	return t
}

// Bus implements [bus.Config].
func (c *Config) Bus(s *bus.Setup) *bus.Bus {
	b := &bus.Bus{
		Kind: "kafka", Address: strings.Join(c.Brokers, ", "), Delivery: cmp.Or(c.Delivery, "exactly-once"),
		Open: func(id event.Identity, log *zap.Logger) (sink.Sink, error) {
			return kafka.New(kafka.Options{Config: *c.sink(), Identity: id, Logger: log})
		},
		Same: func(other bus.Config) bool {
			k, ok := other.(*Config)
			return ok && slices.Equal(c.Brokers, k.Brokers)
		},
		Unordered:   !c.ExactlyOnce(),
		Templates:   bus.Resource{Topic: c.Topic, Key: c.Key, Headers: s.Headers},
		DeadLetters: c.sink().DeadTopic(s.Identity),
		Tombstones:  c.Tombstones,
		Headers:     kafka.Headers,
		Route: func(r *bus.Resource) bus.Route {
			headers, _ := shape.ParseHeaders(r.Headers)
			return bus.Route{Topic: bus.Template(r.Topic, shape.TopicNames), Key: bus.Template(r.Key, shape.KeyNames), Headers: headers}
		},
		Checkpoint: func(id event.Identity) bus.Checkpoint { return place{c.storeOptions(s, id)} },
		Check: func(ctx context.Context, id event.Identity, targets []bus.Target) ([]string, error) {
			return c.checkBus(ctx, s, id, targets)
		},
		Read: func(ctx context.Context, w bus.Wanted) (sink.Reader, error) { return c.read(ctx, s, w) },
	}
	b.Permissions = c.permissions(s)
	if c.keepsCheckpoint(s) {
		b.OpenBoth = func(id event.Identity, log *zap.Logger) (sink.Sink, bus.Opened, error) { return c.openBoth(s, id, log) }
	}
	return b
}

// keepsCheckpoint reports whether the sink's checkpoint is kept in Kafka.
func (c *Config) keepsCheckpoint(s *bus.Setup) bool { return c.Traits().Keeps.OnBus(s.Directory) }

func (c *Config) openBoth(s *bus.Setup, id event.Identity, log *zap.Logger) (sink.Sink, bus.Opened, error) {
	o := c.storeOptions(s, id)
	o.Logger = log
	store, err := kafka.NewStore(o)
	if err != nil {
		return nil, nil, err
	}
	if c.ExactlyOnce() {
		return kafka.NewTransactional(store), store, nil
	}
	to, err := kafka.New(o.Options)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return to, store, nil
}

func (c *Config) storeOptions(s *bus.Setup, id event.Identity) kafka.StoreOptions {
	return kafka.StoreOptions{
		Options: kafka.Options{Config: *c.sink(), Identity: id},
		Topic:   kafka.CheckpointTopic(s.Topic, id), Replicas: s.Replicas, StandAlone: !c.ExactlyOnce(),
	}
}

type place struct{ options kafka.StoreOptions }

// at returns the options for a topic by its name for people.
func (p place) at(name string) kafka.StoreOptions {
	o := p.options
	o.Topic, o.StandAlone = strings.TrimPrefix(name, "topic "), true
	return o
}

// Name implements [bus.Checkpoint].
func (p place) Name() string { return "topic " + p.options.Topic }

// Find implements [bus.Checkpoint].
func (p place) Find(context.Context) (string, error) { return p.Name(), nil }

// Read implements [bus.Checkpoint].
func (p place) Read(ctx context.Context, name string) (bus.Opened, error) {
	store, id, err := kafka.ReadStore(ctx, p.at(name))
	return bus.Stored{Opened: store, Name: name, ID: id}, err
}

// Claim implements [bus.Checkpoint].
func (p place) Claim(ctx context.Context, name string) (bus.Opened, error) {
	store, err := kafka.NewStore(p.at(name))
	if err != nil {
		return nil, err
	}
	if err := store.Load(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// Reset implements [bus.Checkpoint].
func (p place) Reset(ctx context.Context, empty bool) error {
	return kafka.ResetStore(ctx, p.options, empty)
}

func (c *Config) checkBus(ctx context.Context, s *bus.Setup, id event.Identity, targets []bus.Target) ([]string, error) {
	o := kafka.Options{Config: *c.sink(), Identity: id}
	if _, err := kafka.Check(ctx, o, nil); err != nil { // the other checks need a connection
		return nil, err
	}
	topics, _ := c.topics(s, targets)
	if dead := c.sink().DeadTopic(id); dead != "" {
		topics = append(topics, dead)
	}
	weak, bad := kafka.Check(ctx, o, topics)
	if !c.keepsCheckpoint(s) {
		return weak, bad
	}
	store, more, err := kafka.CheckStore(ctx, c.storeOptions(s, id))
	weak, bad = append(weak, more...), errors.Join(bad, err)
	if store == nil {
		return weak, bad
	}
	mark, err := store.Get(checkpoint.MarkKey())
	if err == nil {
		more, err = kafka.CheckPins(ctx, o, mark, store.Scan)
		weak = append(weak, more...)
	}
	return weak, errors.Join(bad, err, store.Close())
}
