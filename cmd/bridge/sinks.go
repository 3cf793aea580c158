package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/encode"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/recent"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	filesink "github.com/kubebridge/kubebridge/pkg/sink/file"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
	"github.com/kubebridge/kubebridge/pkg/source/discovery"
)

// sinkSpecs describe the configured sinks. What they deliver is printed to follow, and kept in last, unless these are nil.
func sinkSpecs(c *config.Config, log *zap.Logger, follow io.Writer, last *recent.Changes) ([]pipeline.SinkSpec, error) {
	var out []pipeline.SinkSpec
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

// keep has what a sink delivers be kept in last, from when it is opened.
func keep(spec *pipeline.SinkSpec, last *recent.Changes) {
	name, open, others, take := spec.Sink, spec.Open, spec.Delivered, last.Listen(spec.Sink)
	spec.Open = func(id event.Identity) (sink.Sink, pipeline.OpenStore, encode.Config, error) {
		last.Forget(name)
		return open(id)
	}
	spec.Delivered = func(records []event.Record) {
		if others != nil {
			others(records)
		}
		take(records)
	}
}

// encodeConfig is what is configured of how a sink's events are encoded and routed, without the hash key.
func encodeConfig(c *config.Config, s *config.Sink) (form encode.Config, err error) {
	own := event.Identity{Bridge: c.Name, Cluster: c.Cluster, Sink: s.Name} // its UID is found out later
	form = encode.Config{
		KeepManagedFields: c.ManagedFields == "keep", Secrets: shape.Secrets{Plain: c.Secrets.Values == "plain"},
		Oversize: encode.Oversize(s.Oversize), Route: route(s, nil), Tombstones: s.Kafka != nil && s.Kafka.Tombstones,
	}
	dead := ""
	switch {
	case s.Kafka != nil:
		dead = s.Kafka.DeadTopic(own)
	case s.NATS != nil:
		dead = s.NATS.DeadSubject(own)
	}
	form.Encoder.Format, err = event.ParseFormat(s.Format)
	if err == nil && dead != "" {
		form.DeadLetters, err = shape.ParseTemplate(dead, shape.SubjectNames)
	}
	if err != nil {
		err = &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
	}
	return form, err
}

// sinkSpec describes a configured sink.
func sinkSpec(c *config.Config, s *config.Sink, log *zap.Logger) (pipeline.SinkSpec, error) {
	form, err := encodeConfig(c, s)
	if err != nil {
		return pipeline.SinkSpec{}, err
	}
	var open func(event.Identity) (sink.Sink, error)
	// Where a bus keeps the checkpoint itself, it opens both.
	var openBoth func(event.Identity) (sink.Sink, pipeline.OpenStore, error)
	log = log.With(zap.String("sink", s.Name))
	switch {
	case s.Kafka != nil:
		open = func(id event.Identity) (sink.Sink, error) {
			return kafka.New(kafka.Options{Config: *s.Kafka, Identity: id, Logger: log})
		}
		if c.InKafka(s) {
			openBoth = func(id event.Identity) (sink.Sink, pipeline.OpenStore, error) { return openKafka(c, s, id, log) }
		}
	case s.NATS != nil:
		open = func(id event.Identity) (sink.Sink, error) {
			return nats.New(nats.Options{Config: *s.NATS, Identity: id, Logger: log})
		}
		if c.InNATS(s) {
			openBoth = func(id event.Identity) (sink.Sink, pipeline.OpenStore, error) { return openNATS(c, s, id, log) }
		}
	case s.File != nil:
		open = func(event.Identity) (sink.Sink, error) { return filesink.New(filesink.Options{Config: *s.File}) }
	default:
		o := stdout.Options{Config: *s.Stdout}
		if o.Config.Format != stdout.Pretty {
			o.Writer = document(os.Stdout)
		}
		open = func(event.Identity) (sink.Sink, error) { return stdout.New(o) }
	}
	return pipeline.SinkSpec{
		SinkResources: sinkResources(c, s), Linger: s.Linger, Shown: shownOf(s),
		Open: func(id event.Identity) (sink.Sink, pipeline.OpenStore, encode.Config, error) {
			var err error
			if form.Secrets.Key, err = hashKey(c); err != nil {
				return nil, nil, form, &pipeline.EnvironmentError{Err: err}
			}
			if c.Secrets.Values == "hash" && form.Secrets.Key == nil && hashes(c, s) {
				log.Warn("secret values are redacted, not hashed: there is no key: set secrets.hashKeyFile")
			}
			if openBoth == nil {
				openBoth = beside(filepath.Join(c.Checkpoint.File.Path, s.Name), open)
			}
			bus, store, err := openBoth(id)
			if err != nil {
				return nil, nil, form, &pipeline.EnvironmentError{Err: err}
			}
			return bus, store, form, nil
		},
	}, nil
}

// beside opens a sink whose checkpoint is kept in a directory.
func beside(path string, open func(event.Identity) (sink.Sink, error)) func(event.Identity) (sink.Sink, pipeline.OpenStore, error) {
	return func(id event.Identity) (sink.Sink, pipeline.OpenStore, error) {
		store, err := file.Open(path, id, file.Options{})
		if err != nil {
			return nil, nil, err
		}
		bus, err := open(id)
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return bus, store, nil
	}
}

// openKafka opens a Kafka sink whose checkpoint is kept in Kafka too.
func openKafka(c *config.Config, s *config.Sink, id event.Identity, log *zap.Logger) (sink.Sink, pipeline.OpenStore, error) {
	o := kafkaStore(c, s, id)
	o.Logger = log
	store, err := kafka.NewStore(o)
	if err != nil {
		return nil, nil, err
	}
	if s.Kafka.ExactlyOnce() {
		return kafka.NewTransactional(store), store, nil
	}
	bus, err := kafka.New(o.Options)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return bus, store, nil
}

// kafkaStore says where a sink's checkpoint is kept on Kafka.
func kafkaStore(c *config.Config, s *config.Sink, id event.Identity) kafka.StoreOptions {
	return kafka.StoreOptions{
		Options: kafka.Options{Config: *s.Kafka, Identity: id},
		Topic:   kafka.CheckpointTopic(c.Checkpoint.Kafka.Topic, id), Replicas: c.Checkpoint.Kafka.Replicas,
		StandAlone: !s.Kafka.ExactlyOnce(),
	}
}

// openNATS opens a NATS sink whose checkpoint is kept on its NATS too.
func openNATS(c *config.Config, s *config.Sink, id event.Identity, log *zap.Logger) (sink.Sink, pipeline.OpenStore, error) {
	bus, err := natsSink(s, id, log)
	if err != nil {
		return nil, nil, err
	}
	return bus, nats.NewStore(nats.StoreOptions{Sink: bus, Scratch: c.Checkpoint.NATS.Scratch}), nil
}

// natsSink is a sink beside which a checkpoint can stand.
func natsSink(s *config.Sink, id event.Identity, log *zap.Logger) (*nats.Sink, error) {
	bus, err := nats.New(nats.Options{Config: *s.NATS, Identity: id, Logger: log})
	if err != nil {
		return nil, err
	}
	stream, ok := bus.(*nats.Sink)
	if !ok {
		return nil, fmt.Errorf("a checkpoint on NATS beside delivery %s", s.NATS.Delivery)
	}
	return stream, nil
}

// sinkResources are the entries of a sink, with their options.
func sinkResources(c *config.Config, s *config.Sink) pipeline.SinkResources {
	entries := c.Entries(s)
	for i, r := range c.ResourcesOf(s) {
		entries[i].Place = "" // a reload does not know it
		entries[i].Options = pipeline.CollectionOptions{
			Settings: encode.Settings{
				SkipSnapshot: r.Snapshot == config.SnapshotSkip, Types: eventTypes(r.Types), Redact: c.Rules(&r),
				Filter: r.Filter, Ignore: r.Ignore, ChangedBy: r.ChangedBy,
				Before: r.Diff == config.DiffBefore || r.Diff == config.DiffBoth,
				Patch:  r.Diff == config.DiffPatch || r.Diff == config.DiffBoth,
				Route:  route(s, &r),
			},
			SyncedEvery: r.SyncedEvery, ResyncEvery: r.Resync, VerifyEvery: r.VerifyEvery,
		}
	}
	return pipeline.SinkResources{Sink: s.Name, Entries: entries, Exclude: c.Exclude}
}

// route is where a sink's events go, or, with a resource, what that has of its own. The
// templates have been checked with the configuration.
func route(s *config.Sink, r *config.Resource) (out encode.Route) {
	parse := func(text string, names []string) *shape.Template {
		if text == "" {
			return nil
		}
		t, _ := shape.ParseTemplate(text, names)
		return t
	}
	topic, key, subject, headers := "", "", "", s.Headers
	if s.Kafka != nil {
		topic, key = s.Kafka.Topic, s.Kafka.Key
	}
	if s.NATS != nil {
		subject = s.NATS.Subject
	}
	if r != nil {
		topic, key, subject, headers = r.Topic, r.Key, r.Subject, r.Headers
	}
	switch {
	case s.Kafka != nil:
		out.Topic, out.Key = parse(topic, shape.TopicNames), parse(key, shape.KeyNames)
	case s.NATS != nil:
		out.Subject = parse(subject, shape.SubjectNames)
	default:
		return out
	}
	out.Headers, _ = shape.ParseHeaders(headers)
	return out
}

// eventTypes are the types of configured names, which have been checked.
func eventTypes(names []string) []event.Type {
	var out []event.Type
	for _, t := range []event.Type{event.Added, event.Modified, event.Deleted} {
		if slices.Contains(names, t.String()) {
			out = append(out, t)
		}
	}
	return out
}

// hashKey is the key that Secrets' values are hashed with, nil for none.
func hashKey(c *config.Config) ([]byte, error) {
	switch {
	case c.Secrets.Values != "hash":
		return nil, nil
	case c.Secrets.HashKeyFile == "" && c.Checkpoint.File.Path == "":
		return nil, nil // values are redacted
	case c.Secrets.HashKeyFile == "":
		return file.HashKey(c.Checkpoint.File.Path)
	}
	key, err := os.ReadFile(c.Secrets.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("secrets.hashKeyFile: %w", err)
	}
	if len(key) < 16 {
		return nil, fmt.Errorf("secrets.hashKeyFile %s: %d bytes are too few for a key: use at least 16 random ones", c.Secrets.HashKeyFile, len(key))
	}
	return key, nil
}

// hashes reports whether a sink watches Secrets, or what else has values hashed. Patterns leave Secrets out.
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
		// What a closed terminal misses, the bus has.
		_, _ = s.Write(context.Background(), &event.Batch{Seq: seq, Records: records})
	}, nil
}
