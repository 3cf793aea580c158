package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/base/httpserver"
	"github.com/kubebridge/kubebridge/internal/base/httpserver/kubelogin"
	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/admin"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/internal/operate/recent"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/internal/operate/status/console"
)

func newRun(std *streams) *cobra.Command {
	var (
		path, output   string
		follow, dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes to the configured sinks until stopped",
		Long: `Streams changes to the configured sinks until stopped. When the
configuration file changes, and on SIGHUP, the bridge applies changes of resources,
exclude and log.level. Changes of other settings need a restart.

With --dry-run it prints what it would publish, with topic or subject, key and
headers, and publishes nothing. It needs the cluster, but no bus and no checkpoint.
Every object that exists is printed, as in a first start. Keyed hashes use a random
key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDryRun(cmd, dryRun, output); err != nil {
				return err
			}
			c, err := loadConfig(cmd, path)
			if err != nil {
				return err
			}
			if dryRun {
				return runDry(cmd, c, output)
			}
			o := runOptions{config: c, level: zap.NewAtomicLevelAt(logLevel(c.Log.Level)), setLibraryLog: std.setLibraryLog}
			o.log = newLogger(c.Log.Format, o.level, cmd.ErrOrStderr())
			if isTerminal(cmd.ErrOrStderr()) && !follow && !slices.ContainsFunc(c.Sinks, func(s config.Sink) bool { return kindOf(c, &s).Prints }) {
				o.bar = &console.Bar{Terminal: cmd.ErrOrStderr()}
				o.log = newLogger(terminalFormat(c.Log.Format), o.level, o.bar)
			}
			o.reload = reloader{
				path: path, every: reloadEvery, hangUps: std.hangUps, running: c, log: o.log,
				parse: func(text []byte) (*config.Config, error) { return config.Parse(path, text, cmd.Flags()) },
			}
			if follow {
				o.follow = cmd.OutOrStdout()
			}
			return run(cmd.Context(), o)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&follow, "follow", false, "print each delivered event as a line")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be published, and publish nothing")
	cmd.Flags().StringVarP(&output, "output", "o", outputYAML, "with --dry-run: yaml, json, pretty or name")
	config.AddFlags(cmd.Flags())
	return cmd
}

func checkDryRun(cmd *cobra.Command, dryRun bool, output string) error {
	if !dryRun && cmd.Flags().Changed("output") {
		return &exitError{exitConfig, errors.New("-o goes with --dry-run: see bridge run --help")}
	}
	if dryRun && cmd.Flags().Changed("follow") {
		return &exitError{exitConfig, errors.New("--follow and --dry-run exclude each other: see bridge run --help")}
	}
	return checkOutput(output)
}

// runDry prints the records that a configuration would publish.
func runDry(cmd *cobra.Command, c *config.Config, output string) error {
	log := newLogger(c.Log.Format, logLevel(c.Log.Level), cmd.ErrOrStderr())
	log.Info("started dry run: nothing is published", zap.String("name", c.Name), zap.String("cluster", c.Cluster))
	d := dryRun{config: c, log: log}
	return d.printed(cmd.Context(), output, cmd.OutOrStdout())
}

type runOptions struct {
	config *config.Config
	reload reloader // without apply, which run sets
	level  zap.AtomicLevel
	log    *zap.Logger
	bar    *console.Bar // nil unless the terminal shows only the log
	follow io.Writer    // delivered events are printed here; may be nil
	// setLibraryLog is that of streams.
	setLibraryLog func(*zap.Logger)
}

// returned drops the log lines of client-go about errors that client-go also returns.
type returned struct{ zapcore.Core }

func (c returned) With(fields []zapcore.Field) zapcore.Core { return returned{c.Core.With(fields)} }

func (c returned) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Message == "Unexpected error when reading response body" {
		return to
	}
	return c.Core.Check(e, to)
}

// run runs the bridge until ctx ends.
func run(ctx context.Context, o runOptions) error {
	c, log := o.config, o.log
	defer func() { _ = log.Sync() }()
	if o.setLibraryLog != nil {
		o.setLibraryLog(log.WithOptions(zap.IncreaseLevel(zap.LevelEnablerFunc(func(l zapcore.Level) bool {
			return l >= zap.WarnLevel && o.level.Enabled(l)
		})), zap.WrapCore(func(c zapcore.Core) zapcore.Core { return returned{c} })))
	}
	log.Info("started kubebridge", zap.String("version", currentVersion().Version), zap.String("name", c.Name), zap.String("cluster", c.Cluster))
	for _, w := range c.Warnings() {
		log.Warn("configuration warning", zap.String("warning", w))
	}

	client, err := newClient(c.Kubernetes, log)
	if err != nil {
		return err
	}
	defer client.Close()
	registry := newRegistry()
	var last *recent.Changes
	if c.Status.History {
		last = recent.New()
	}
	sinks, err := sinkSpecs(c, log, o.follow, last)
	if err != nil {
		return err
	}
	elector, err := newElector(c, registry, log)
	if err != nil {
		return err
	}
	options := bridge.Options{
		Name: c.Name, Cluster: c.Cluster, Client: client, Sinks: sinks, Lists: c.Kubernetes.ConcurrentLists,
		Shutdown: c.Shutdown.Timeout, Log: log, Metrics: bridge.NewMetrics(registry), Buffer: bufferSpec(c, elector, log), Audit: auditSpec(c, len(sinks), elector, log),
	}
	if elector != nil {
		options.Elector = elector
	}
	running := bridge.New(options)
	registry.MustRegister(bridge.NewCollector(running.Status), newReady(running.Status))
	var digest atomic.Value
	digest.Store(c.Digest())
	shown := &reporter{bridge: running, last: last, digest: func() string { return digest.Load().(string) }, started: time.Now(), listen: c.Status.Listen}
	servers, err := openServers(c, shown, registry, log)
	if err != nil {
		return &exitError{exitEnvironment, err}
	}
	o.reload.apply = func(c *config.Config) {
		digest.Store(c.Digest())
		o.level.SetLevel(logLevel(c.Log.Level))
		var all []bridge.SinkResources
		for i := range c.Sinks {
			all = append(all, sinkResources(c, &c.Sinks[i]))
		}
		running.Reconfigure(all)
	}
	beside, stopBeside := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBeside()
	var group errgroup.Group
	watchLists := func(ctx context.Context) error { return console.LogProgress(ctx, running.Status, log) }
	if o.bar != nil {
		watchLists = func(ctx context.Context) error { return o.bar.Run(ctx, running.Status) }
	}
	for _, serve := range append(servers, o.reload.Run, watchLists) {
		group.Go(func() error { return serve(beside) })
	}
	err = running.Run(ctx)
	stopBeside()
	return errors.Join(err, group.Wait())
}

// openServers starts to listen for scrapes, probes and commands. The returned functions serve until their context ends.
func openServers(c *config.Config, shown *reporter, registry *prometheus.Registry, log *zap.Logger) ([]func(context.Context) error, error) {
	var (
		servers  []func(context.Context) error
		commands *admin.Server
		err      error
		running  = shown.bridge
	)
	if c.Admin.Socket == config.Off {
		log.Info("admin socket is off: the bridge accepts no commands")
	} else {
		commands, err = admin.New(admin.Options{Socket: c.Admin.Socket, Resync: func(ctx context.Context, sink, resource string) ([]string, error) {
			started, err := running.Resync(ctx, sink, resource)
			var unknown *bridge.UnknownResourceError
			if errors.As(err, &unknown) {
				err = &admin.NotFoundError{Message: err.Error()}
			}
			return started, err
		}, Checkpoint: func(ctx context.Context, sink string) (json.RawMessage, error) {
			return openCheckpointOf(ctx, c, running, sink)
		}})
		if errors.As(err, new(*fs.PathError)) {
			err = fmt.Errorf("%w: set checkpoint.file.path or admin.socket to a path in a directory that the bridge can write to", err)
		}
		if err != nil {
			return nil, err
		}
		servers = append(servers, commands.Run)
	}
	if c.Status.Listen != config.Off {
		endpoint, err := statusEndpoint(c, log)
		if err != nil {
			return nil, closed(commands, err)
		}
		o := status.Options{Serve: endpoint, Gatherer: registry, Alive: running.Alive, Report: shown.report}
		if shown.last != nil {
			o.Changes = shown.changes
		}
		server, err := status.New(o)
		if err != nil {
			return nil, closed(commands, err)
		}
		log.Info("status listens", zap.Stringer("address", server.Addr()))
		servers = append(servers, server.Run)
	}
	return servers, nil
}

// openCheckpointOf describes the checkpoint that a running bridge has open.
func openCheckpointOf(ctx context.Context, c *config.Config, running *bridge.Bridge, sink string) (json.RawMessage, error) {
	id, store, ok := running.Checkpoint(sink)
	i := slices.IndexFunc(c.Sinks, func(s config.Sink) bool { return s.Name == sink })
	if !ok || i < 0 {
		return nil, &admin.NotFoundError{Message: fmt.Sprintf("the checkpoint of sink %q is not open: the bridge may be waiting for the cluster or be a standby", sink)}
	}
	info, err := inspect.Describe(openPlace(ctx, c, &c.Sinks[i], store), id, store)
	if err != nil {
		return nil, err
	}
	return json.Marshal(info)
}

// closed closes the admin socket, if there is one, and returns err.
func closed(commands *admin.Server, err error) error {
	if commands == nil {
		return err
	}
	return errors.Join(err, commands.Close())
}

// statusEndpoint returns the options of the status server: address, certificate and login.
func statusEndpoint(c *config.Config, log *zap.Logger) (httpserver.Options, error) {
	s := c.Status
	o := httpserver.Options{Listen: s.Listen, Hosts: s.Hosts, Cert: s.TLS.Cert, Key: s.TLS.Key, Log: log.Named("status")}
	switch {
	case s.Login.TokenFile != "":
		o.Login = httpserver.TokenFile(s.Login.TokenFile)
	case s.Login.Kubernetes:
		cfg, err := renewal(c.Kubernetes, log).Config()
		if err != nil {
			return o, err
		}
		if o.Login, err = kubelogin.New(cfg); err != nil {
			return o, fmt.Errorf("status.login.kubernetes: %w", err)
		}
	}
	return o, nil
}
