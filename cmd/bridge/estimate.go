package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/kubebridge/internal/bridge"
	"github.com/kubebridge/kubebridge/internal/config"
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
			if output != "" && output != "json" {
				return &exitError{exitConfig, fmt.Errorf("-o %s: json is the only other format", output)}
			}
			if watched <= 0 {
				return &exitError{exitConfig, fmt.Errorf("--for %s: not a positive duration: give the time to watch, for example 2m", watched)}
			}
			c, err := loadPart(cmd, path, cmd.Flags(), config.WithoutSecrets)
			if err != nil {
				return err
			}
			e := estimator{config: c, registry: newRegistry(), meters: map[string]*meter{}, notes: cmd.ErrOrStderr()}
			result, err := e.run(cmd.Context(), watched)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(document(cmd.OutOrStdout()))
				encoder.SetIndent("", "  ")
				return encoder.Encode(result)
			}
			return result.print(cmd.OutOrStdout())
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().DurationVar(&watched, "for", 2*time.Minute, "how long to watch once the first lists are complete")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for tables")
	config.AddFlags(cmd.Flags(), "name", "cluster", "kubernetes.kubeconfig", "kubernetes.context", "checkpoint.file.path", "log.format")
	return cmd
}

// estimate is what a configuration will cost.
type estimate struct {
	Watched     float64        `json:"watchedSeconds"`
	FirstList   float64        `json:"firstListSeconds"`
	Sinks       []sinkEstimate `json:"sinks"`
	MemoryBytes int64          `json:"memoryBytes,omitempty"` // highest resident memory; 0: not known
	CPU         float64        `json:"cpu,omitempty"`         // average cores while watching; 0: not known
	Values      chartResources `json:"values"`
	Troubled    []string       `json:"troubled,omitempty"` // collections that could not be read
}

// chartResources are values of the chart.
type chartResources struct {
	CPU    string `json:"cpuRequest"`
	Memory string `json:"memoryRequest"`
	Limit  string `json:"memoryLimit"`
}

// estimator measures a dry run.
type estimator struct {
	config   *config.Config
	registry *prometheus.Registry // of the process
	meters   map[string]*meter    // by sink
	notes    io.Writer

	memory float64 // highest resident memory in bytes
}

// run reads the first lists, watches for a time, and returns what it has measured.
func (e *estimator) run(ctx context.Context, watched time.Duration) (*estimate, error) {
	d := dryRun{config: e.config, log: newLogger(e.config.Log.Format, zap.WarnLevel, e.notes), open: e.open}
	for i := range e.config.Sinks {
		s := &e.config.Sinks[i]
		e.meters[s.Name] = newMeter(kindOf(e.config, s))
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
	result.MemoryBytes, result.Values = int64(e.memory), valuesFor(e.memory, result.CPU)
	for i := range e.config.Sinks {
		name := e.config.Sinks[i].Name
		result.Sinks = append(result.Sinks, e.meters[name].estimate(name, end, end.Sub(complete)))
	}
	return result, nil
}

// open opens the meter of a sink.
func (e *estimator) open(s *config.Sink, id event.Identity) (sink.Sink, bridge.OpenStore, error) {
	m := e.meters[s.Name]
	store, err := m.store(id)
	return m, store, err
}

// watch returns once the time watched has passed since all first lists were complete, or when ctx ends. It returns the time at which
// the first lists were complete and the CPU seconds used since then.
func (e *estimator) watch(ctx context.Context, report func() status.Report, watched time.Duration) (result *estimate, complete time.Time, cpu float64) {
	result = &estimate{}
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
		if r := report(); e.listed(&r) {
			complete, listing, over = time.Now(), used, time.After(watched)
			result.Troubled = troubled(&r)
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

// listed reports whether the first list of every collection that can be read is complete.
func (e *estimator) listed(r *status.Report) bool {
	if !r.Ready || len(r.Sinks) < len(e.config.Sinks) {
		return false
	}
	for i := range r.Sinks {
		all := r.Sinks[i].Collections
		if len(all) == 0 || slices.ContainsFunc(all, func(c status.Collection) bool {
			return !c.Unwatched() && !c.Troubled() && (c.Synced == nil || c.State != status.Watching)
		}) {
			return false
		}
	}
	return true
}

// troubled returns the collections that cannot be read, with the reason.
func troubled(r *status.Report) (all []string) {
	for _, e := range r.Entries() {
		if c := e.Collection; c.Troubled() || c.Unwatched() {
			all = append(all, fmt.Sprintf("%s: %s", c.ID, c.Error))
		}
	}
	return all
}

const mebibyte = 1 << 20

// valuesFor returns chart values for a bridge with this measured memory (bytes) and CPU (cores). To leave room for peaks,
// memory is 1.5 times and CPU 10 times the measured value.
func valuesFor(memory, cpu float64) chartResources {
	request := max(math.Ceil(memory*1.5/mebibyte/64)*64, 128)
	cores := max(math.Ceil(cpu*peak*1000/50)*50, 100)
	return chartResources{CPU: fmt.Sprintf("%.0fm", cores), Memory: fmt.Sprintf("%.0fMi", request), Limit: fmt.Sprintf("%.0fMi", 2*request)}
}

// print prints an estimate for people.
func (e *estimate) print(out io.Writer) error {
	for i := range e.Sinks {
		if err := e.Sinks[i].print(out); err != nil {
			return err
		}
	}
	for _, t := range e.Troubled {
		show(out, "could not be read: %s", t)
	}
	fmt.Fprintf(out, "first lists: %.1f s; watched: %.0f s\n", e.FirstList, e.Watched)
	if e.MemoryBytes > 0 {
		fmt.Fprintf(out, "memory: %s at most, with the checkpoints in memory and without clients of buses; CPU while watching: %.2f cores\n", bytesText(float64(e.MemoryBytes)), e.CPU)
	}
	fmt.Fprintf(out, "\n# values of the chart\nresources:\n  requests: {cpu: %s, memory: %s}\n  limits: {memory: %s}\n", e.Values.CPU, e.Values.Memory, e.Values.Limit)
	return nil
}

// print prints what a sink will cost.
func (s *sinkEstimate) print(out io.Writer) error {
	show(out, "sink %s (%s)", s.Sink, s.Bus)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tOBJECTS\tFIRST LIST\tCHANGES/S\tA DAY")
	var total resourceEstimate
	line := func(r *resourceEstimate) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", inLine(r.Resource), r.Objects, bytesText(float64(r.FirstListBytes)), status.Number(&r.ChangesPerSecond), bytesText(r.BytesPerDay))
	}
	quiet := 0
	for i := range s.Resources {
		r := &s.Resources[i]
		if r.Objects == 0 && r.Changes == 0 {
			quiet++
			continue
		}
		line(r)
		total.Objects += r.Objects
		total.FirstListBytes += r.FirstListBytes
		total.ChangesPerSecond += r.ChangesPerSecond
		total.BytesPerDay += r.BytesPerDay
	}
	total.Resource = "all"
	line(&total)
	if len(s.Loudest) > 0 {
		fmt.Fprintln(w, "\nLOUDEST OBJECT\tCHANGES\tA DAY")
	}
	for _, o := range s.Loudest {
		name := o.Name
		if o.Namespace != "" {
			name = o.Namespace + "/" + name
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", inLine(o.Resource+" "+name), o.Changes, bytesText(o.BytesPerDay))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if quiet > 0 {
		fmt.Fprintf(out, "\n%s without objects and changes\n", count(quiet, "resource"))
	}
	fmt.Fprintf(out, "\ncheckpoint: %s\n", bytesText(float64(s.CheckpointBytes)))
	if s.Partitions > 0 {
		fmt.Fprintf(out, "kafka.create.partitions: %d (one for each %d events or 1 MiB a second of the busiest resource at %d times its rate; take more if you will have more consumers, since it cannot be changed later)\n",
			s.Partitions, partitionEvents, peak)
	}
	fmt.Fprintf(out, "buffer.maxBytes: about %s for each day without this bus, and %s for each list that the API server forces meanwhile\n", bytesText(s.BufferADay), bytesText(s.BufferAList))
	fmt.Fprintln(out)
	return nil
}

// bytesText formats a number of bytes for people.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}
