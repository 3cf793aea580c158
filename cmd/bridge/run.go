package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/status"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/sink/kafka"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
	"github.com/kubebridge/kubebridge/pkg/sink/stdout"
)

func newRun() *cobra.Command {
	var (
		path   string
		follow bool
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes to the configured sinks until told to stop",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd, path)
			if err != nil {
				return err
			}
			var out io.Writer
			if follow {
				out = cmd.OutOrStdout()
			}
			return run(cmd.Context(), c, newLogger(c.Log, cmd.ErrOrStderr()), out)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&follow, "follow", false, "print each delivered event as a line")
	config.AddFlags(cmd.Flags())
	return cmd
}

// run runs the bridge until ctx ends. Delivered events are printed to follow
// unless it is nil.
func run(ctx context.Context, c *config.Config, log *zap.Logger, follow io.Writer) error {
	defer func() { _ = log.Sync() }()
	klog.SetLogger(zapr.NewLogger(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))))
	log.Info("kubebridge starts", zap.String("version", currentVersion().Version), zap.String("name", c.Name), zap.String("cluster", c.Cluster))

	client, err := newClient(c.Kubernetes)
	if err != nil {
		return err
	}
	defer client.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o := pipeline.BridgeOptions{
		Name: c.Name, Cluster: c.Cluster, Client: client, Lists: c.Kubernetes.ConcurrentLists,
		Shutdown: c.Shutdown.Timeout, Log: log, Metrics: pipeline.NewMetrics(registry),
	}
	for i := range c.Sinks {
		spec, err := laneSpec(c, &c.Sinks[i], log)
		if err != nil {
			return err
		}
		if follow != nil {
			if spec.Delivered, err = printer(follow); err != nil {
				return err
			}
		}
		o.Lanes = append(o.Lanes, spec)
	}
	bridge := pipeline.NewBridge(o)
	if c.Status.Listen == "off" {
		return bridge.Run(ctx)
	}
	server, err := status.New(status.Options{
		Listen: c.Status.Listen, Gatherer: registry, Alive: bridge.Alive,
		Ready: func() (any, bool) { s := bridge.Status(); return s, s.Ready },
	})
	if err != nil {
		return &exitError{exitEnvironment, err}
	}
	log.Info("status listens", zap.Stringer("address", server.Addr()))
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return server.Run(serving) })
	err = bridge.Run(ctx)
	stopServing()
	return errors.Join(err, group.Wait())
}

// laneSpec says how a configured sink's lane is made.
func laneSpec(c *config.Config, s *config.Sink, log *zap.Logger) (pipeline.LaneSpec, error) {
	form := pipeline.Shape{KeepManagedFields: c.ManagedFields == "keep", Secrets: shape.Secrets{Plain: c.Secrets.Values == "plain"}}
	var (
		err  error
		open func(event.Identity) (sink.Sink, error)
	)
	log = log.With(zap.String("sink", s.Name))
	switch {
	case s.Kafka != nil:
		form.Topic, err = shape.ParseTemplate(s.Kafka.Topic, shape.TopicNames)
		open = func(id event.Identity) (sink.Sink, error) {
			return kafka.New(kafka.Options{Config: *s.Kafka, Identity: id, Logger: log})
		}
	case s.NATS != nil:
		form.Subject, err = shape.ParseTemplate(s.NATS.Subject, shape.SubjectNames)
		open = func(id event.Identity) (sink.Sink, error) {
			return nats.New(nats.Options{Config: *s.NATS, Identity: id, Logger: log})
		}
	default:
		open = func(event.Identity) (sink.Sink, error) { return stdout.New(stdout.Options{Config: *s.Stdout}) }
	}
	if err != nil {
		return pipeline.LaneSpec{}, &exitError{exitConfig, fmt.Errorf("sink %q: %w", s.Name, err)}
	}
	return pipeline.LaneSpec{
		Sink: s.Name, Resources: resourceSpecs(c.ResourcesOf(s)), Linger: s.Linger,
		Open: func(id event.Identity) (sink.Sink, checkpoint.Store, pipeline.Shape, error) {
			var err error
			if form.Secrets.Key, err = hashKey(c); err != nil {
				return nil, nil, form, &pipeline.EnvironmentError{Err: err}
			}
			bus, err := open(id)
			if err != nil {
				return nil, nil, form, &pipeline.EnvironmentError{Err: err}
			}
			store, err := file.Open(filepath.Join(c.Checkpoint.File.Path, s.Name), id, file.Options{})
			if err != nil {
				return nil, nil, form, &pipeline.EnvironmentError{Err: err}
			}
			return bus, store, form, nil
		},
	}, nil
}

func resourceSpecs(list []config.Resource) []pipeline.ResourceSpec {
	var out []pipeline.ResourceSpec
	for _, r := range list {
		out = append(out, pipeline.ResourceSpec{
			Name: r.Name(), Namespaces: r.Namespaces, Required: r.Required,
			LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
		})
	}
	return out
}

// hashKey is the key that Secrets' values are hashed with, nil for none.
func hashKey(c *config.Config) ([]byte, error) {
	switch {
	case c.Secrets.Values != "hash":
		return nil, nil
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
