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

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/move"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
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
	case m.from.bus != nil && m.to.bus != nil && inTransaction(s) && inTransaction(t):
		return m, fmt.Errorf("%w in Kafka: with delivery exactly-once it is in the transactions of the events, and cannot be elsewhere", errStays)
	case m.from.bus != nil && m.to.bus != nil:
		return m, fmt.Errorf("%w on the bus: only a move between a directory and the bus is possible", errStays)
	}
	return m, errors.Join(sameBus(kindOf(from, s).Bus, t.Block()), sameHashKey(from, to, s))
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
	if !c.OnBus(s) {
		return end{}
	}
	at := kind.Checkpoint(id)
	return end{name: at.Name(), bus: at}
}

func inTransaction(s *config.Sink) bool { return s.Block().Traits().Keeps == bus.InTransaction }

// sameBus returns an error if two sinks do not write to the same topics or stream, as far as their configurations say.
func sameBus(s *bus.Bus, t bus.Config) error {
	if s.Same == nil || !s.Same(t) {
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
	if s, ok := store.(interface {
		Identity() (event.Identity, error)
	}); ok {
		return s.Identity()
	}
	return event.Identity{}, fmt.Errorf("%s does not say whose checkpoint it has", e.name)
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
	directory, onBus := m.from, m.to
	if m.to.bus == nil {
		directory, onBus = m.to, m.from
	}
	dir, err := file.Open(directory.path, m.id, file.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	local := move.End{Store: dir, Name: directory.name}
	if m.to.bus != nil {
		return move.ToBus(ctx, local, onBus.bus, onBus.name)
	}
	return move.ToDirectory(ctx, onBus.bus, onBus.name, local)
}
