package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/internal/access"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// busBudget is how long the buses of one sink may take to answer.
const busBudget = time.Minute

// checkBuses asks the bus and the checkpoint of every sink, without writing to them and
// without shutting out a bridge that runs. bad is what must be mended, a line each.
func checkBuses(ctx context.Context, c *config.Config, known access.BusOptions) (weak []string, bad error) {
	var all []error
	if c.Secrets.HashKeyFile != "" { // else the first run makes one
		_, err := hashKey(c)
		all = append(all, err)
	}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		one := busCheck{config: c, sink: s, known: known, id: event.Identity{
			Bridge: c.Name, Cluster: c.Cluster, ClusterUID: known.ClusterUID, Sink: s.Name,
		}}
		limit, cancel := context.WithTimeout(ctx, busBudget)
		one.run(limit)
		cancel()
		for _, w := range one.weak {
			weak = append(weak, fmt.Sprintf("sink %q: %s", s.Name, w))
		}
		for _, err := range one.bad {
			for line := range strings.Lines(err.Error()) {
				all = append(all, fmt.Errorf("sink %q: %s", s.Name, strings.TrimRight(line, "\n")))
			}
		}
	}
	return weak, errors.Join(all...)
}

// busCheck is the check of one sink.
type busCheck struct {
	config *config.Config
	sink   *config.Sink
	known  access.BusOptions
	id     event.Identity

	weak []string
	bad  []error
}

func (b *busCheck) found(weak []string, err error) {
	b.weak = append(b.weak, weak...)
	if err != nil {
		b.bad = append(b.bad, err)
	}
}

func (b *busCheck) run(ctx context.Context) {
	switch {
	case b.sink.Kafka != nil:
		b.kafka(ctx)
	case b.sink.NATS != nil:
		b.nats(ctx)
	}
	if !b.config.InKafka(b.sink) && !b.config.InNATS(b.sink) {
		b.found(nil, b.directory())
	}
}

func (b *busCheck) kafka(ctx context.Context) {
	o := kafka.Options{Config: *b.sink.Kafka, Identity: b.id}
	if _, err := kafka.Check(ctx, o, nil); err != nil { // nothing more can be asked
		b.found(nil, err)
		return
	}
	// What cannot be resolved is the cluster's matter, and was said.
	topics, _, _ := access.Topics(b.config, b.sink, b.known.ClusterOptions)
	if dead := b.sink.Kafka.DeadTopic(b.id); dead != "" {
		topics = append(topics, dead)
	}
	b.found(kafka.Check(ctx, o, topics))
	if !b.config.InKafka(b.sink) {
		return
	}
	store, weak, err := kafka.CheckStore(ctx, kafkaStore(b.config, b.sink, b.id))
	b.found(weak, err)
	if store == nil {
		return
	}
	mark, err := store.Get(checkpoint.MarkKey())
	if err == nil {
		weak, err = kafka.CheckPins(ctx, o, mark, store.Scan)
		b.found(weak, nil)
	}
	b.found(nil, errors.Join(err, store.Close()))
}

func (b *busCheck) nats(ctx context.Context) {
	b.found(nats.Check(ctx, nats.Options{Config: *b.sink.NATS, Identity: b.id}, b.config.InNATS(b.sink)))
}

// directory looks whose a checkpoint on disk is. One that is in use, or not there yet,
// is as it should be.
func (b *busCheck) directory() error {
	path := filepath.Join(b.config.Checkpoint.File.Path, b.sink.Name)
	got, err := identityOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, checkpoint.ErrLocked):
		return nil
	case err == nil:
		err = checkpoint.CheckIdentity(checkpoint.EncodeIdentity(got), b.id)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w: name another directory in checkpoint.file.path, or give it up with `bridge checkpoint reset`", path, err)
	}
	return nil
}
