package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

// dryRun runs the pipelines of a configuration without its buses and checkpoints, and without Lease, status and admin
// socket. It only reads from the cluster.
type dryRun struct {
	config    *config.Config
	log       *zap.Logger
	watchOnly bool // objects of the first list are left out
	// open opens a replacement for a sink and its checkpoint.
	open func(s *config.Sink, id event.Identity) (sink.Sink, bridge.OpenStore, error)
}

// bridge returns a bridge that runs the pipelines. The caller closes its client with the returned function.
func (d *dryRun) bridge() (_ *bridge.Bridge, closeClient func(), _ error) {
	c := d.config
	for _, w := range c.Warnings() {
		d.log.Warn("configuration warning", zap.String("warning", w))
	}
	var specs []bridge.SinkSpec
	for i := range c.Sinks {
		spec, err := d.spec(&c.Sinks[i])
		if err != nil {
			return nil, nil, err
		}
		specs = append(specs, spec)
	}
	client, err := newClient(c.Kubernetes, d.log)
	if err != nil {
		return nil, nil, err
	}
	return bridge.New(bridge.Options{
		Name: c.Name, Cluster: c.Cluster, Client: client, Sinks: specs, Lists: c.Kubernetes.ConcurrentLists,
		Shutdown: c.Shutdown.Timeout, Log: d.log, Metrics: bridge.NewMetrics(prometheus.NewRegistry()),
	}), client.Close, nil
}

// spec describes a sink whose records go to the replacement that d.open opens.
func (d *dryRun) spec(s *config.Sink) (bridge.SinkSpec, error) {
	spec, err := sinkSpec(d.config, s, d.log)
	if err != nil {
		return spec, err
	}
	form, err := encodeConfig(d.config, s)
	if err != nil {
		return spec, err
	}
	form.Secrets.Key = d.hashKey()
	for i := range spec.Entries {
		o := spec.Entries[i].Options.(bridge.CollectionOptions)
		o.SkipSnapshot = o.SkipSnapshot || d.watchOnly
		spec.Entries[i].Options = o
	}
	spec.Open = func(_ context.Context, id event.Identity) (sink.Sink, bridge.OpenStore, encode.Config, error) {
		bus, store, err := d.open(s, id)
		return bus, store, form, err
	}
	return spec, nil
}

// hashKey returns a random key if the bridge would have a key, and nil if it would redact values. The bridge's own key is
// not read: it may not exist yet, and the user of a dry run may have no permission to read it.
func (d *dryRun) hashKey() []byte {
	c := d.config
	if c.Secrets.Values != "hash" || cmp.Or(c.Secrets.HashKeySecret, c.Secrets.HashKeyFile, c.Checkpoint.File.Path) == "" {
		return nil
	}
	key := make([]byte, file.KeyBytes)
	rand.Read(key) // never fails
	return key
}

// printed runs until ctx ends and prints the records in a format.
func (d *dryRun) printed(ctx context.Context, output string, w io.Writer) error {
	color := output == stdout.Pretty && isTerminal(w)
	if output != stdout.Pretty {
		w = document(w)
	}
	out := zapcore.Lock(zapcore.AddSync(w)) // sinks take turns
	d.open = func(s *config.Sink, id event.Identity) (sink.Sink, bridge.OpenStore, error) {
		kind := kindOf(d.config, s)
		render := renderer(output, color, kind.wholeRecord(s.Name))
		if output == stdout.Pretty {
			render = kind.lineOf(s.Name, color)
		}
		store, err := file.OpenMem(id)
		if err != nil {
			return nil, nil, err
		}
		bus, err := stdout.New(stdout.Options{Writer: out, Render: render})
		return bus, store, err
	}
	bridge, closeClient, err := d.bridge()
	if err != nil {
		return err
	}
	defer closeClient()
	return bridge.Run(ctx)
}
