package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/hashkey"
	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/operate/recent"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// sinkSpecs describes the configured sinks. Delivered records are printed to follow and kept in last, unless these are nil.
func sinkSpecs(c *config.Config, log *zap.Logger, follow io.Writer, last *recent.Changes) ([]bridge.SinkSpec, error) {
	var out []bridge.SinkSpec
	for i := range c.Sinks {
		spec, err := sinkSpec(c, &c.Sinks[i], log)
		if err == nil && follow != nil {
			spec.Delivered, err = printer(follow)
		}
		if err != nil {
			return nil, err
		}
		if last != nil {
			keep(&spec, last)
		}
		out = append(out, spec)
	}
	return out, nil
}

// keep makes a sink keep its delivered records in last once it is open.
func keep(spec *bridge.SinkSpec, last *recent.Changes) {
	name, open, others, take := spec.Sink, spec.Open, spec.Delivered, last.Listen(spec.Sink)
	spec.Open = func(ctx context.Context, id event.Identity) (sink.Sink, bridge.OpenStore, encode.Config, error) {
		last.Forget(name)
		return open(ctx, id)
	}
	spec.Delivered = func(records []event.Record) {
		if others != nil {
			others(records)
		}
		take(records)
	}
}

// encodeConfig returns the settings for encoding and routing a sink's events, without the hash key.
func encodeConfig(c *config.Config, s *config.Sink) (form encode.Config, err error) {
	kind := kindOf(c, s)
	form = encode.Config{
		KeepManagedFields: c.ManagedFields == "keep", Secrets: shape.Secrets{Plain: c.Secrets.Values == "plain"},
		Oversize: encode.Oversize(s.Oversize), Route: kind.routeOf(&kind.Templates), Tombstones: kind.Tombstones,
	}
	form.Encoder.Format, err = event.ParseFormat(s.Format)
	if err == nil && kind.DeadLetters != "" {
		form.DeadLetters, err = shape.ParseTemplate(kind.DeadLetters, shape.SubjectNames)
	}
	if err != nil {
		err = &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
	}
	return form, err
}

func sinkSpec(c *config.Config, s *config.Sink, log *zap.Logger) (bridge.SinkSpec, error) {
	form, err := encodeConfig(c, s)
	if err != nil {
		return bridge.SinkSpec{}, err
	}
	kind := kindOf(c, s)
	log = log.With(zap.String("sink", s.Name))
	return bridge.SinkSpec{
		SinkResources: sinkResources(c, s), Linger: s.Linger,
		Shown: status.Sink{Bus: kind.Kind, Address: kind.Address, Delivery: kind.Delivery},
		Open: func(ctx context.Context, id event.Identity) (sink.Sink, bridge.OpenStore, encode.Config, error) {
			var err error
			if form.Secrets.Key, err = hashKey(ctx, c, log); err != nil {
				return nil, nil, form, &plan.EnvironmentError{Err: err}
			}
			if c.Secrets.Values == "hash" && form.Secrets.Key == nil && hashes(c, s) {
				log.Warn("secret values are redacted instead of hashed: no key is set: set secrets.hashKeySecret or secrets.hashKeyFile")
			}
			bus, store, err := kind.openBoth(ctx, c.CheckpointDir(s), id, log)
			if err != nil {
				return nil, nil, form, &plan.EnvironmentError{Err: err}
			}
			return bus, store, form, nil
		},
	}, nil
}

// sinkResources returns the entries of a sink with their options.
func sinkResources(c *config.Config, s *config.Sink) bridge.SinkResources {
	entries, kind := c.Entries(s), kindOf(c, s)
	for i, r := range c.ResourcesOf(s) {
		templates := r.OnBus()
		entries[i].Place = "" // a reload must not see a moved entry as changed
		entries[i].Options = bridge.CollectionOptions{
			Settings: encode.Settings{
				SkipSnapshot: r.Snapshot == config.SnapshotSkip, Types: eventTypes(r.Types), Redact: c.Rules(&r),
				Filter: r.Filter, Ignore: r.Ignore, ChangedBy: r.ChangedBy,
				Before: r.Diff == config.DiffBefore || r.Diff == config.DiffBoth,
				Patch:  r.Diff == config.DiffPatch || r.Diff == config.DiffBoth,
				Route:  kind.routeOf(&templates),
			},
			SyncedEvery: r.SyncedEvery, ResyncEvery: r.Resync, VerifyEvery: r.VerifyEvery, Unbuffered: r.Buffer != nil && !*r.Buffer,
		}
	}
	return bridge.SinkResources{Sink: s.Name, Entries: entries, Exclude: c.Exclude}
}

// eventTypes returns the types for configured names, which have been validated.
func eventTypes(names []string) []event.Type {
	var out []event.Type
	for _, t := range []event.Type{event.Added, event.Modified, event.Deleted} {
		if slices.Contains(names, t.String()) {
			out = append(out, t)
		}
	}
	return out
}

// hashKey returns the key for hashing values of Secrets, nil for none. It makes a key if the configuration leaves that
// to the bridge.
func hashKey(ctx context.Context, c *config.Config, log *zap.Logger) ([]byte, error) {
	switch {
	case c.Secrets.Values != "hash":
		return nil, nil
	case c.Secrets.HashKeySecret != "":
		secret, err := hashKeySecret(c, log)
		if err != nil {
			return nil, err
		}
		return secret.Key(ctx)
	case c.Secrets.HashKeyFile != "":
		return readHashKey(c)
	case c.Checkpoint.File.Path != "":
		return onceThereIsSpace(ctx, log, func() ([]byte, error) { return file.HashKey(c.Checkpoint.File.Path) })
	default:
		return nil, nil // values are redacted
	}
}

// spaceRetry is the pause before a file is written again that did not fit the disk.
const spaceRetry = time.Second

// onceThereIsSpace repeats a call that writes to a disk until the disk is not full.
func onceThereIsSpace(ctx context.Context, log *zap.Logger, write func() ([]byte, error)) ([]byte, error) {
	for logged := false; ; logged = true {
		result, err := write()
		if !errors.Is(err, syscall.ENOSPC) {
			return result, err
		}
		if !logged {
			log.Warn("no disk space for the hash key: trying again until there is some", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(spaceRetry):
		}
	}
}

// hashKeySecret returns the configured Secret.
func hashKeySecret(c *config.Config, log *zap.Logger) (hashkey.Secret, error) {
	client, err := restConfig(c.Kubernetes)
	namespace, name, _ := strings.Cut(c.Secrets.HashKeySecret, "/")
	return hashkey.Secret{Client: client, Namespace: namespace, Name: name, Log: log}, err
}

func readHashKey(c *config.Config) ([]byte, error) {
	key, err := os.ReadFile(c.Secrets.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("secrets.hashKeyFile: %w", err)
	}
	if len(key) < hashkey.LeastBytes {
		return nil, fmt.Errorf("secrets.hashKeyFile %s: %d bytes are too few for a key: use at least %d random bytes", c.Secrets.HashKeyFile, len(key), hashkey.LeastBytes)
	}
	return key, nil
}

// hashes reports whether a sink watches Secrets or another resource with hashed values. Patterns leave Secrets out.
func hashes(c *config.Config, s *config.Sink) bool {
	for _, r := range c.ResourcesOf(s) {
		name := discovery.Parse(r.Name()).Resource()
		if name == "secret" || name == "secrets" || slices.ContainsFunc(c.Rules(&r), func(rule shape.Rule) bool { return rule.With == shape.WithHash }) {
			return true
		}
	}
	return false
}

// printer prints delivered records for people.
func printer(w io.Writer) (func([]event.Record), error) {
	s, err := stdout.New(stdout.Options{Config: stdout.Config{Format: stdout.Pretty, Color: isTerminal(w)}, Writer: w})
	if err != nil {
		return nil, err
	}
	seq := uint64(0)
	return func(records []event.Record) {
		seq++
		// An error of a closed terminal does not matter: the bus has the records.
		_, _ = s.Write(context.Background(), &event.Batch{Seq: seq, Records: records})
	}, nil
}
