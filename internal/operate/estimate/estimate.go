package estimate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/kubebridge/kubebridge/internal/base/terminal"
	"github.com/kubebridge/kubebridge/internal/operate/status"
)

// Estimate is what a configuration will cost.
type Estimate struct {
	Watched     float64  `json:"watchedSeconds"`
	FirstList   float64  `json:"firstListSeconds"`
	Sinks       []Sink   `json:"sinks"`
	MemoryBytes int64    `json:"memoryBytes,omitempty"` // highest resident memory; 0: not known
	CPU         float64  `json:"cpu,omitempty"`         // average cores while watching; 0: not known
	Values      Values   `json:"values"`
	Troubled    []string `json:"troubled,omitempty"` // collections that could not be read
}

// Values are values of the chart.
type Values struct {
	CPU    string `json:"cpuRequest"`
	Memory string `json:"memoryRequest"`
	Limit  string `json:"memoryLimit"`
}

// Listed reports whether the first list of every collection that can be read is complete.
func Listed(r *status.Report, sinks int) bool {
	if !r.Ready || len(r.Sinks) < sinks {
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

// Troubled returns the collections that cannot be read, with the reason.
func Troubled(r *status.Report) (all []string) {
	for _, e := range r.Entries() {
		if c := e.Collection; c.Troubled() || c.Unwatched() {
			all = append(all, fmt.Sprintf("%s: %s", c.ID, c.Error))
		}
	}
	return all
}

const mebibyte = 1 << 20

// ValuesFor returns chart values for a bridge with this measured memory (bytes) and CPU (cores). To leave room for peaks,
// memory is 1.5 times and CPU 10 times the measured value.
func ValuesFor(memory, cpu float64) Values {
	request := max(math.Ceil(memory*1.5/mebibyte/64)*64, 128)
	cores := max(math.Ceil(cpu*peak*1000/50)*50, 100)
	return Values{CPU: fmt.Sprintf("%.0fm", cores), Memory: fmt.Sprintf("%.0fMi", request), Limit: fmt.Sprintf("%.0fMi", 2*request)}
}

// Print prints an estimate for people.
func (e *Estimate) Print(out io.Writer) error {
	for i := range e.Sinks {
		if err := e.Sinks[i].print(out); err != nil {
			return err
		}
	}
	for _, t := range e.Troubled {
		terminal.Show(out, "could not be read: %s", t)
	}
	fmt.Fprintf(out, "first lists: %.1f s; watched: %.0f s\n", e.FirstList, e.Watched)
	if e.MemoryBytes > 0 {
		fmt.Fprintf(out, "memory: %s at most, with the checkpoints in memory and without clients of buses; CPU while watching: %.2f cores\n", bytesText(float64(e.MemoryBytes)), e.CPU)
	}
	fmt.Fprintf(out, "\n# values of the chart\nresources:\n  requests: {cpu: %s, memory: %s}\n  limits: {memory: %s}\n", e.Values.CPU, e.Values.Memory, e.Values.Limit)
	return nil
}

// print prints what a sink will cost.
func (s *Sink) print(out io.Writer) error {
	terminal.Show(out, "sink %s (%s)", s.Sink, s.Bus)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tOBJECTS\tFIRST LIST\tCHANGES/S\tA DAY")
	var total Resource
	line := func(r *Resource) {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", terminal.Cell(r.Resource), r.Objects, bytesText(float64(r.FirstListBytes)), status.Number(&r.ChangesPerSecond), bytesText(r.BytesPerDay))
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
		fmt.Fprintf(w, "%s\t%d\t%s\n", terminal.Cell(o.Resource+" "+name), o.Changes, bytesText(o.BytesPerDay))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if quiet > 0 {
		fmt.Fprintf(out, "\n%s without objects and changes\n", terminal.Count(quiet, "resource"))
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
