package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/admin"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

func newCheckpoint() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show, move or reset the checkpoints of the sinks",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheckpointShow(), newCheckpointMove(), newCheckpointReset())
	for _, c := range cmd.Commands() {
		c.Args = usage(c.Args)
	}
	return cmd
}

type checkpointFlags struct {
	config, path, sink string
}

func (f *checkpointFlags) define(cmd *cobra.Command) {
	configFlag(cmd, &f.config)
	config.AddFlags(cmd.Flags(), "name", "cluster", "checkpoint.file.path")
	cmd.Flags().StringVar(&f.path, "path", "", "directory of one checkpoint, instead of a configuration")
	cmd.Flags().StringVar(&f.sink, "sink", "", "only the checkpoint of this sink")
}

// place is where one checkpoint is kept.
type place struct {
	name func(context.Context) (string, error) // a path, a topic or a bucket
	show func(context.Context) (inspect.Checkpoint, error)
	// reset makes the next start reset every collection. With empty it also removes the content and the identity of the checkpoint.
	reset func(ctx context.Context, empty bool) error
}

func directory(path string) place {
	return place{
		func(context.Context) (string, error) { return path, nil },
		func(context.Context) (inspect.Checkpoint, error) { return readCheckpoint(path) },
		func(ctx context.Context, empty bool) error {
			if empty {
				return file.Reset(path)
			}
			return requestReset(ctx, path)
		},
	}
}

// onBus returns the place of a checkpoint on a bus.
func onBus(at bus.Checkpoint) place {
	return place{
		at.Find,
		func(ctx context.Context) (info inspect.Checkpoint, err error) {
			store, err := at.Read(ctx, at.Name())
			if err != nil {
				return info, err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			found, _ := store.(bus.Stored)
			return inspect.Describe(found.Name, found.ID, store)
		},
		at.Reset,
	}
}

// orAsk returns the place. If a running bridge has its checkpoint open, the place is shown by that bridge, through its admin socket.
func (p place) orAsk(socket, sink string) place {
	if socket == config.Off {
		return p
	}
	open := p.show
	p.show = func(ctx context.Context) (info inspect.Checkpoint, err error) {
		if info, err = open(ctx); err == nil {
			return info, nil
		}
		text, failed := admin.Checkpoint(ctx, socket, sink)
		if failed != nil {
			return info, err
		}
		info = inspect.Checkpoint{}
		return info, json.Unmarshal(text, &info)
	}
	return p
}

// openPlace returns the name of the place of an open checkpoint.
func openPlace(ctx context.Context, c *config.Config, s *config.Sink, store checkpoint.Store) string {
	if path := c.CheckpointDir(s); path != "" {
		return path
	}
	if bucket, ok := store.(interface{ Name() string }); ok {
		return "bucket " + bucket.Name()
	}
	if k := kindOf(c, s); c.OnBus(s) {
		if name, err := k.Checkpoint(sinkIdentity(c, s)).Find(ctx); err == nil {
			return name
		}
	}
	return "memory"
}

func (f *checkpointFlags) places(cmd *cobra.Command) ([]place, error) {
	if f.path != "" {
		return []place{directory(f.path)}, nil
	}
	c, err := loadConfig(cmd, f.config)
	if err != nil {
		return nil, err
	}
	var (
		out     []place
		names   []string
		without string // a sink that has none
	)
	for i := range c.Sinks {
		s := &c.Sinks[i]
		names = append(names, s.Name)
		if f.sink != "" && f.sink != s.Name {
			continue
		}
		switch path := c.CheckpointDir(s); {
		case c.OnBus(s):
			out = append(out, onBus(kindOf(c, s).Checkpoint(sinkIdentity(c, s))).orAsk(c.Admin.Socket, s.Name))
		case path != "":
			out = append(out, directory(path).orAsk(c.Admin.Socket, s.Name))
		default:
			without = s.Name
		}
	}
	switch {
	case len(out) == 0 && without != "":
		return nil, &exitError{exitConfig, fmt.Errorf("sink %q has no checkpoint: set checkpoint.file.path", without)}
	case len(out) == 0:
		return nil, &exitError{exitConfig, fmt.Errorf("--sink %s: the configuration has %s", f.sink, strings.Join(names, ", "))}
	}
	return out, nil
}

func newCheckpointShow() *cobra.Command {
	var (
		which  checkpointFlags
		output string
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what a checkpoint holds",
		Long: `Shows what a checkpoint holds of each collection: phase, position, number of objects, run, incarnation, epoch, and
what is in doubt. If a running bridge keeps the checkpoint in a directory, the bridge is asked through its admin.socket. The
figures of different collections are then from slightly different moments. With --path, stop the bridge first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkJSON(output); err != nil {
				return err
			}
			places, err := which.places(cmd)
			if err != nil {
				return err
			}
			all := []inspect.Checkpoint{}
			for _, p := range places {
				info, err := p.show(cmd.Context())
				if err != nil {
					return &exitError{exitEnvironment, err}
				}
				all = append(all, info)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), all)
			}
			for i := range all {
				if err := all[i].Print(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	which.define(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for lines")
	return cmd
}

func readCheckpoint(path string) (info inspect.Checkpoint, err error) {
	store, err := file.OpenReadOnly(path)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	id, err := store.Identity()
	if err != nil {
		return info, err
	}
	return inspect.Describe(path, id, store)
}

const resetConsequence = "After the next start, consumers drop their copy, and every object is published again as `present`."

func newCheckpointReset() *cobra.Command {
	var (
		which       checkpointFlags
		yes, forget bool
	)
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Make the next start reset every collection",
		Long: "Makes the next start reset every collection. " + resetConsequence + `
A checkpoint that is damaged, or has the format of another version, is emptied. If the checkpoint is in a directory or on an
embedded NATS server, stop the bridge first. A running bridge with any other checkpoint is fenced and ends.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := which.places(cmd)
			if err != nil {
				return err
			}
			var names []string
			for _, p := range places {
				name, err := p.name(cmd.Context())
				if err != nil {
					return &exitError{exitEnvironment, err}
				}
				names = append(names, name)
			}
			if !yes {
				if err := confirm(cmd, names); err != nil {
					return err
				}
			}
			for i := range places {
				line, err := resetPlace(cmd.Context(), &places[i], forget)
				if err != nil {
					return &exitError{exitEnvironment, err}
				}
				fmt.Fprintln(cmd.OutOrStdout(), names[i]+": "+line)
			}
			return nil
		},
	}
	which.define(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&forget, "forget", false, "also empty it, so that another bridge or cluster can take it over")
	return cmd
}

func confirm(cmd *cobra.Command, names []string) error {
	in := cmd.InOrStdin()
	if !isTerminal(in) {
		return &exitError{exitConfig, errors.New("checkpoint reset: standard input is not a terminal: add --yes")}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s\n%s\nType yes to go on: ", strings.Join(names, "\n"), resetConsequence)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return errors.New("checkpoint reset: nothing was changed")
	}
	return nil
}

// resetPlace marks a checkpoint, so that the next start is a reset. With forget, or if the checkpoint cannot be read, it is also emptied.
func resetPlace(ctx context.Context, p *place, forget bool) (done string, err error) {
	const consequence = "the next start resets every collection"
	if forget {
		return "emptied; " + consequence, p.reset(ctx, true)
	}
	switch _, err := p.show(ctx); {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrNewer), errors.Is(err, checkpoint.ErrOlder):
		return "it cannot be read and is emptied; " + consequence, p.reset(ctx, true)
	case err != nil:
		return "", err
	}
	return consequence, p.reset(ctx, false)
}

func requestReset(ctx context.Context, path string) error {
	id, err := identityOf(path)
	if err != nil {
		return err
	}
	store, err := file.Open(path, id, file.Options{})
	if err != nil {
		return err
	}
	err = store.Commit(ctx, []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}})
	return errors.Join(err, store.Close())
}

func identityOf(path string) (id event.Identity, err error) {
	store, err := file.OpenReadOnly(path)
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Identity()
}
