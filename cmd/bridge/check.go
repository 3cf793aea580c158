package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/topic"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/access"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// busBudget is how long the buses of one sink may take to answer.
const busBudget = time.Minute

// checkBuses reads from the bus and the checkpoint of every sink. It writes nothing and does not
// fence a running bridge. weak lists warnings and bad lists errors, one line each.
func checkBuses(ctx context.Context, c *config.Config, known access.BusOptions) (weak []string, bad error) {
	var all []error
	if c.Secrets.Values == "hash" && c.Secrets.HashKeyFile != "" { // another key is made by the first run
		_, err := readHashKey(c)
		all = append(all, err)
	}
	if c.Audit.Kafka != nil {
		all = append(all, checkAuditTopic(ctx, c))
	}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		one := busCheck{config: c, sink: s, known: known, id: sinkIdentity(c, s)}
		one.id.ClusterUID = known.ClusterUID
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
	kind := kindOf(b.config, b.sink)
	if kind.Check != nil {
		// Resources that cannot be resolved have been reported by the check of the cluster.
		targets, _ := access.Targets(b.config, b.sink, b.known.ClusterOptions)
		b.found(kind.Check(ctx, b.id, targets))
	}
	if path := b.config.CheckpointDir(b.sink); path != "" {
		b.found(nil, b.directory(path))
	}
}

// directory checks that a checkpoint on disk belongs to this sink. A checkpoint that is in use or
// does not exist yet is no error.
func (b *busCheck) directory(path string) error {
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

// checkAuditTopic asks whether the topic with audit records can be read.
func checkAuditTopic(ctx context.Context, c *config.Config) error {
	ctx, cancel := context.WithTimeout(ctx, busBudget)
	defer cancel()
	o, err := auditTopic(c, audit.NewParser(audit.Options{}), zap.NewNop())
	if err == nil {
		err = topic.Check(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("audit.kafka: %w", err)
	}
	return nil
}
