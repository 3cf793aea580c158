package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
	"github.com/kubebridge/kubebridge/internal/operate/estimate"
	"github.com/kubebridge/kubebridge/internal/operate/status"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// estimateEvery is how often an estimate samples lists and memory.
const estimateEvery = 250 * time.Millisecond

func newEstimate() *cobra.Command {
	var (
		path, output string
		watched      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "estimate",
		Short: "Measure what a configuration will cost, without publishing anything",
		Long: `Runs the configuration without its buses and measures objects and bytes of the
first list, changes per second and bytes per day of each resource, the objects that change most, CPU
and memory, and the size of the checkpoint. It suggests partitions and values for the chart. It
lists every configured resource from the API server once, and then watches for the time of --for.
Bytes are keys, headers and values before compression. Press Ctrl-C to end the measurement early.`,
		Example: "  bridge estimate -c bridge.yaml --for 10m\n  bridge estimate -c bridge.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkJSON(output); err != nil {
				return err
			}
			if watched <= 0 {
				return &exitError{exitConfig, fmt.Errorf("--for %s: not a positive duration: give the time to watch, for example 2m", watched)}
			}
			c, err := loadPart(cmd, path, cmd.Flags(), config.WithoutSecrets)
			if err != nil {
				return err
			}
			e := estimator{config: c, registry: newRegistry(), meters: map[string]*estimate.Meter{}, notes: cmd.ErrOrStderr()}
			result, err := e.run(cmd.Context(), watched)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), result)
			}
			return result.Print(cmd.OutOrStdout())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().DurationVar(&watched, "for", 2*time.Minute, "how long to watch once the first lists are complete")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for tables")
	config.AddFlags(cmd.Flags(), "name", "cluster", "kubernetes.kubeconfig", "kubernetes.context", "checkpoint.file.path", "log.format")
	return cmd
}

type estimator struct {
	config   *config.Config
	registry *prometheus.Registry       // of the process
	meters   map[string]*estimate.Meter // by sink
	notes    io.Writer

	memory float64 // highest resident memory in bytes
}

// run reads the first lists, watches for a time, and returns what it has measured.
func (e *estimator) run(ctx context.Context, watched time.Duration) (*estimate.Estimate, error) {
	d := dryRun{config: e.config, log: newLogger(e.config.Log.Format, zap.WarnLevel, e.notes), open: e.open}
	for i := range e.config.Sinks {
		s := &e.config.Sinks[i]
		e.meters[s.Name] = newMeter(e.config, s)
	}
	bridge, closeClient, err := d.bridge()
	if err != nil {
		return nil, err
	}
	defer closeClient()
	var group errgroup.Group
	running, stop := context.WithCancel(ctx)
	group.Go(func() error {
		defer stop()
		return bridge.Run(running)
	})
	began := time.Now()
	result, complete, cpu := e.watch(running, bridge.Status, watched)
	end := time.Now()
	stop()
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if complete.IsZero() {
		return nil, errors.New("interrupted before the first lists were complete: there is no estimate; let it run longer")
	}
	result.FirstList, result.Watched = complete.Sub(began).Seconds(), end.Sub(complete).Seconds()
	result.CPU = cpu / result.Watched
	result.MemoryBytes, result.Values = int64(e.memory), estimate.ValuesFor(e.memory, result.CPU)
	for i := range e.config.Sinks {
		name := e.config.Sinks[i].Name
		result.Sinks = append(result.Sinks, e.meters[name].Estimate(name, end, end.Sub(complete)))
	}
	return result, nil
}

func newMeter(c *config.Config, s *config.Sink) *estimate.Meter {
	kind := kindOf(c, s)
	return estimate.NewMeter(estimate.Options{Bus: kind.Kind, Partitions: kind.Templates.Topic != "", Headers: kind.Headers})
}

func (e *estimator) open(s *config.Sink, id event.Identity) (sink.Sink, bridge.OpenStore, error) {
	m := e.meters[s.Name]
	store, err := m.Store(id)
	return m, store, err
}

// watch returns once the time watched has passed since all first lists were complete, or when ctx ends. It returns the time at which
// the first lists were complete and the CPU seconds used since then.
func (e *estimator) watch(ctx context.Context, report func() status.Report, watched time.Duration) (result *estimate.Estimate, complete time.Time, cpu float64) {
	result = &estimate.Estimate{}
	listing := e.look()
	var over <-chan time.Time // nil until the first lists are complete
	tick := time.NewTicker(estimateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return result, complete, e.look() - listing
		case <-over:
			return result, complete, e.look() - listing
		case <-tick.C:
		}
		used := e.look()
		if !complete.IsZero() {
			continue
		}
		if r := report(); estimate.Listed(&r, len(e.config.Sinks)) {
			complete, listing, over = time.Now(), used, time.After(watched)
			result.Troubled = estimate.Troubled(&r)
			fmt.Fprintf(e.notes, "the first lists are complete; watching for %s\n", watched)
		}
	}
}

// look updates the highest memory of the process and returns the CPU seconds that the process has used.
func (e *estimator) look() (cpu float64) {
	families, err := e.registry.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		switch f.GetName() {
		case "process_resident_memory_bytes":
			e.memory = max(e.memory, f.GetMetric()[0].GetGauge().GetValue())
		case "process_cpu_seconds_total":
			cpu = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return cpu
}
