package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

func newCheckpointMove() *cobra.Command {
	var (
		path, to, sink string
		fence          bool
	)
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move checkpoints between a directory and the bus",
		Long: `Moves the checkpoint of each sink from where the configuration -c keeps it to where the configuration --to keeps it: from a
directory to the bus of the sink, or from the bus to a directory. The next start with the other configuration continues
without a snapshot. Stop the bridge first.

A move that is interrupted leaves one of the two in force: run it again, or start the bridge with the configuration that it
accepts. The former store keeps its content, and a bridge refuses it.`,
		Example: "  bridge checkpoint move -c bridge.yaml --to bridge-on-kafka.yaml --sink audit",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			moves, err := planMoves(cmd, path, to, sink)
			if err != nil {
				return err
			}
			for i := range moves {
				if err := moves[i].check(cmd.Context(), fence); err != nil {
					return &exitError{exitEnvironment, fmt.Errorf("sink %q: %w", moves[i].sink, err)}
				}
			}
			for i := range moves {
				if err := moves[i].run(cmd.Context()); err != nil {
					return &exitError{exitEnvironment, fmt.Errorf("sink %q: %w", moves[i].sink, err)}
				}
				terminal.Show(cmd.OutOrStdout(), "sink %s: the checkpoint is in %s", moves[i].sink, moves[i].to.name)
			}
			return nil
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&to, "to", "", "configuration file that keeps the checkpoint elsewhere (required)")
	cmd.Flags().StringVar(&sink, "sink", "", "only the checkpoint of this sink")
	cmd.Flags().BoolVar(&fence, "fence", false, "also if a bridge did not end cleanly: one that still runs is fenced, and ends")
	return cmd
}

// end is a place of a checkpoint: a directory, or the bus.
type end struct {
	name string
	bus  move.Bus // nil: a directory
	path string   // of the directory
}

// read opens the store without disturbing a writer.
func (e end) read(ctx context.Context) (move.Opened, error) {
	if e.bus == nil {
		return file.OpenReadOnly(e.path)
	}
	return e.bus.Read(ctx, e.name)
}

// checkpointMove is the move of one sink's checkpoint.
type checkpointMove struct {
	sink     string
	id       event.Identity // the UID of the cluster is added by check
	from, to end
	ends     func(event.Identity) (from, to end)
}

// planMoves returns what is to be moved, as far as the two configurations say.
func planMoves(cmd *cobra.Command, fromPath, toPath, only string) ([]checkpointMove, error) {
	from, err := loadWith(cmd, fromPath, nil)
	if err != nil {
		return nil, err
	}
	if toPath == "" {
		return nil, &exitError{exitConfig, errors.New("no target: give --to FILE, a configuration that keeps the checkpoint elsewhere")}
	}
	to, err := loadWith(cmd, toPath, nil)
	if err != nil {
		return nil, err
	}
	var out []checkpointMove
	for i := range from.Sinks {
		s := &from.Sinks[i]
		if only != "" && s.Name != only {
			continue
		}
		m, err := planMove(from, to, s)
		switch {
		case errors.Is(err, errStays) && only == "":
		case err != nil:
			return nil, &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
		default:
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, &exitError{exitConfig, fmt.Errorf("no checkpoint to move: %s and %s keep the checkpoint of each sink in the same kind of place, or do not have the sink", fromPath, toPath)}
	}
	return out, nil
}

var errStays = errors.New("both configurations keep its checkpoint")

func planMove(from, to *config.Config, s *config.Sink) (m checkpointMove, err error) {
	at := slices.IndexFunc(to.Sinks, func(other config.Sink) bool { return other.Name == s.Name })
	if at < 0 {
		return m, errors.New("the configuration --to does not have it")
	}
	t := &to.Sinks[at]
	if from.Name != to.Name || from.Cluster != to.Cluster {
		return m, errors.New("name and cluster must be the same in both configurations")
	}
	m = checkpointMove{sink: s.Name, id: sinkIdentity(from, s)}
	m.ends = func(id event.Identity) (end, end) { return endOf(from, s, id), endOf(to, t, id) }
	m.from, m.to = m.ends(m.id)
	switch {
	case m.from.name == "" || m.to.name == "":
		return m, fmt.Errorf("%w in memory in at least one of the two: only a checkpoint in a directory or on the bus can be moved", errStays)
	case m.from.bus == nil && m.to.bus == nil:
		return m, fmt.Errorf("%w in a directory: stop the bridge and move %s, with all that is in it", errStays, m.from.path)
	case m.from.bus != nil && m.to.bus != nil && s.Kafka != nil && s.Kafka.ExactlyOnce() && t.Kafka != nil && t.Kafka.ExactlyOnce():
		return m, fmt.Errorf("%w in Kafka: with delivery exactly-once it is in the transactions of the events, and cannot be elsewhere", errStays)
	case m.from.bus != nil && m.to.bus != nil:
		return m, fmt.Errorf("%w on the bus: only a move between a directory and the bus is possible", errStays)
	}
	return m, errors.Join(sameBus(s, t), sameHashKey(from, to, s))
}

// endOf returns the place of a sink's checkpoint; its name is "" if it is in memory.
func endOf(c *config.Config, s *config.Sink, id event.Identity) end {
	kind := kindOf(c, s)
	if path := c.CheckpointDir(s); path != "" {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		return end{name: "directory " + path, path: path}
	}
	if kind.store == nil {
		return end{}
	}
	name, bus := kind.onBus(id)
	return end{name: name, bus: bus}
}

// sameBus returns an error if two sinks do not write to the same topics or stream, as far as their configurations say.
func sameBus(s, t *config.Sink) error {
	same := false
	switch {
	case s.Kafka != nil && t.Kafka != nil:
		same = slices.Equal(s.Kafka.Brokers, t.Kafka.Brokers)
	case s.NATS != nil && t.NATS != nil:
		same = s.NATS.URL == t.NATS.URL && s.NATS.Stream.Name == t.NATS.Stream.Name && s.NATS.Delivery == t.NATS.Delivery
		if e, f := s.NATS.Embedded, t.NATS.Embedded; e != nil && f != nil {
			same = same && e.Dir == f.Dir
		}
	}
	if !same {
		return errors.New("the two configurations have another bus, stream or NATS delivery for it: only the place of the checkpoint, and the delivery of a Kafka sink, may differ")
	}
	return nil
}

// sameHashKey returns an error if hashed values would change with the place of the checkpoint, which would reset their collections.
func sameHashKey(from, to *config.Config, s *config.Sink) error {
	if from.Secrets.Values != "hash" || !hashes(from, s) || from.Secrets.HashKeySecret != "" || to.Secrets.HashKeySecret != "" {
		return nil
	}
	was, err := configuredKey(from)
	if err != nil {
		return err
	}
	is, err := configuredKey(to)
	if err == nil && !bytes.Equal(was, is) {
		err = errors.New("the two configurations have different hash keys, and a change of the key resets collections: the key of a bridge with checkpoint.file.path is hash.key in that directory: set secrets.hashKeyFile in both")
	}
	return err
}

// configuredKey returns the hash key of a configuration; nil if it has none, or would make one.
func configuredKey(c *config.Config) ([]byte, error) {
	if c.Secrets.HashKeyFile != "" {
		return readHashKey(c)
	}
	if c.Checkpoint.File.Path == "" {
		return nil, nil
	}
	name := filepath.Join(c.Checkpoint.File.Path, "hash.key")
	if err := links.Check(name); err != nil {
		return nil, err
	}
	key, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return []byte("a new one"), nil
	}
	return key, err
}

// check reads both stores. It changes nothing and disturbs no bridge.
func (m *checkpointMove) check(ctx context.Context, fence bool) error {
	store, err := m.from.read(ctx)
	if err != nil {
		return err
	}
	stored, err := m.from.identity(store)
	if err == nil {
		m.id.ClusterUID = stored.ClusterUID
		err = checkpoint.CheckIdentity(checkpoint.EncodeIdentity(stored), m.id)
	}
	if err == nil {
		err = idle(m.from, store, fence)
	}
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	m.from, m.to = m.ends(m.id)
	store, err = m.to.read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(idle(m.to, store, fence), store.Close())
}

// identity returns the identity that the checkpoint at an end has.
func (e end) identity(store move.Opened) (event.Identity, error) {
	switch s := store.(type) {
	case *file.Store:
		return s.Identity()
	case identified:
		return s.id, nil
	}
	return event.Identity{}, fmt.Errorf("%s does not say whose checkpoint it has", e.name)
}

// identified is a store on a bus with the identity that was found in it.
type identified struct {
	move.Opened
	id event.Identity
}

// idle returns an error if a bridge may be running on a store.
func idle(e end, store checkpoint.Store, fence bool) error {
	since, err := store.Get(checkpoint.RunningKey())
	if err != nil || since == nil || fence {
		return err
	}
	return fmt.Errorf("%s: a bridge runs on it since %s, or ended without a clean stop: stop the bridge; if none runs, add --fence", e.name, since)
}

func (m *checkpointMove) run(ctx context.Context) (err error) {
	directory, bus := m.from, m.to
	if m.to.bus == nil {
		directory, bus = m.to, m.from
	}
	dir, err := file.Open(directory.path, m.id, file.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	local := move.End{Store: dir, Name: directory.name}
	if m.to.bus != nil {
		return move.ToBus(ctx, local, bus.bus, bus.name)
	}
	return move.ToDirectory(ctx, bus.bus, bus.name, local)
}

// kafkaBus opens checkpoints in Kafka.
type kafkaBus struct{ options kafka.StoreOptions }

func (b kafkaBus) at(name string) kafka.StoreOptions {
	o := b.options
	o.Topic, o.StandAlone = strings.TrimPrefix(name, "topic "), true
	return o
}

// Read implements [move.Bus].
func (b kafkaBus) Read(ctx context.Context, name string) (move.Opened, error) {
	store, id, err := kafka.ReadStore(ctx, b.at(name))
	return identified{store, id}, err
}

// Claim implements [move.Bus].
func (b kafkaBus) Claim(ctx context.Context, name string) (move.Opened, error) {
	store, err := kafka.NewStore(b.at(name))
	if err != nil {
		return nil, err
	}
	if err := store.Load(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// natsBus opens checkpoints on NATS.
type natsBus struct {
	config *config.Config
	sink   *config.Sink
	id     event.Identity
}

// Read implements [move.Bus].
func (b natsBus) Read(ctx context.Context, _ string) (move.Opened, error) {
	o, err := natsStore(b.config, b.sink, b.id, zap.NewNop())
	if err != nil {
		return nil, err
	}
	store, id, err := nats.ReadStore(ctx, o)
	return identified{store, id}, err
}

// Claim implements [move.Bus].
func (b natsBus) Claim(ctx context.Context, _ string) (move.Opened, error) {
	o, err := natsStore(b.config, b.sink, b.id, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return nats.ClaimStore(ctx, o)
}
