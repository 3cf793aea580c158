package run

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what was measured, in that order.
type report struct{ results []result }

func (r *report) add(one result) {
	r.results = append(r.results, one)
	fmt.Fprintf(os.Stderr, "%s %s: %s\n", one.Name, filepath.Base(one.Program), one.line())
}

func (r *result) missing() uint64 { return r.Due - min(r.Due, r.Seen.Unique) }

// values are the measured ones, with units as benchstat takes them.
func (r *result) values() []value {
	var all []value
	for _, v := range []value{
		{"events/s", r.PerSec},
		{"cpu-s/M", r.CPU},
		{"cpus", r.Busy},
		{"peak-MB", r.Peak},
		{"p50-ms", r.Seen.P50.Seconds() * 1e3},
		{"p99-ms", r.Seen.P99.Seconds() * 1e3},
	} {
		if v.Amount != 0 {
			all = append(all, v)
		}
	}
	return append(all, r.Extra...)
}

func (r *result) line() string {
	var parts []string
	for _, v := range r.values() {
		parts = append(parts, fmt.Sprintf("%.5g %s", v.Amount, v.Unit))
	}
	return strings.Join(parts, "  ")
}

// of returns the latest result of the same benchmark by another program.
func (r *report) of(name, program string) (found result) {
	for _, o := range r.results {
		if o.Name == name && o.Program == program {
			found = o
		}
	}
	return found
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g×", a/b)
}

// print writes a table: beside the figures, how many times as many events and
// how much of the CPU time of the floor (raw) and the baseline (dynamic) that is.
func (r *report) print(to io.Writer) error {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "benchmark\tprogram\tevents/s\tCPU-s/M\tpeak MB\tp50 ms\tp99 ms\tdelivered\tmissing\trepeated\tout of order\tev/s ÷ raw\tCPU ÷ raw\tev/s ÷ dyn\tCPU ÷ dyn\t also\t")
	for _, one := range r.results {
		raw, dynamic := r.of(one.Name, roleRaw), r.of(one.Name, roleDynamic)
		var also []string
		for _, v := range one.Extra {
			if v.Amount != 0 {
				also = append(also, fmt.Sprintf("%.3g %s", v.Amount, v.Unit))
			}
		}
		if one.PerSec == 0 && one.Busy > 0 {
			also = append(also, fmt.Sprintf("%.2g%% of a CPU", one.Busy*100))
		}
		if one.Late {
			also = append(also, "not done in time")
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.1f\t%.0f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t %s\t\n",
			one.Name, filepath.Base(one.Program), one.PerSec, one.CPU, one.Peak, one.Seen.P50.Seconds()*1e3, one.Seen.P99.Seconds()*1e3,
			one.Seen.Unique, one.missing(), one.Seen.Repeated, one.Seen.OutOfOrder,
			ratio(one.PerSec, raw.PerSec), ratio(one.CPU, raw.CPU), ratio(one.PerSec, dynamic.PerSec), ratio(one.CPU, dynamic.CPU), strings.Join(also, ", "))
	}
	return t.Flush()
}

// save appends the results in the format of Go's benchmarks, which benchstat reads.
func (r *report) save(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fmt.Fprintf(f, "goos: %s\ngoarch: %s\ncpu: %s\ndate: %s\n", runtime.GOOS, runtime.GOARCH, cpuModel(), time.Now().UTC().Format(time.RFC3339))
	for _, one := range r.results {
		fmt.Fprintf(f, "Benchmark%s/program=%s %d", one.Name, filepath.Base(strings.Fields(one.Program)[0]), max(one.Seen.Unique, 1))
		for _, v := range one.values() {
			fmt.Fprintf(f, " %g %s", v.Amount, v.Unit)
		}
		fmt.Fprintf(f, " %d missing %d repeated %d out-of-order\n", one.missing(), one.Seen.Repeated, one.Seen.OutOfOrder)
	}
	return nil
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	_, after, _ := strings.Cut(string(b), "model name\t: ")
	model, _, _ := strings.Cut(after, "\n")
	return cmp.Or(model, "unknown")
}

// verdict is an error if the bridge did not deliver everything once, in order.
func (r *report) verdict() error {
	var all []error
	for _, one := range r.results {
		if one.Program == "bridge" && one.missing()+one.Seen.Repeated+one.Seen.OutOfOrder > 0 {
			all = append(all, fmt.Errorf("%s: %d missing, %d repeated, %d out of order", one.Name, one.missing(), one.Seen.Repeated, one.Seen.OutOfOrder))
		}
	}
	return errors.Join(all...)
}
