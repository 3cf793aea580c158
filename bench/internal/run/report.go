package run

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report has the results in the order of measurement.
type report struct{ results []result }

func (r *report) add(one result) {
	one.Program = named(one.Program)
	r.results = append(r.results, one)
	fmt.Fprintf(os.Stderr, "%s %s: %s\n", one.Name, one.Program, one.line())
}

func (r *result) missing() uint64 { return r.Due - min(r.Due, r.Seen.Unique) }

// Units of what most benchmarks measure.
const (
	unitRate = "events/s"
	unitCPU  = "CPU-s/M"
	unitBusy = "CPUs"
	unitPeak = "peak-MB"
	unitP50  = "p50-ms"
	unitP99  = "p99-ms"
)

// values returns the values that were measured, with units in the format of benchstat.
func (r *result) values() []value {
	var all []value
	for _, v := range []value{
		{unitRate, r.PerSec},
		{unitCPU, r.CPU},
		{unitBusy, r.Busy},
		{unitPeak, r.Peak},
		{unitP50, r.Seen.P50.Seconds() * 1e3},
		{unitP99, r.Seen.P99.Seconds() * 1e3},
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
		parts = append(parts, short(v.Amount)+" "+v.Unit)
	}
	return strings.Join(append(parts, r.delivered()), "  ")
}

// delivered says whether everything arrived, once and in order.
func (r *result) delivered() string {
	var wrong []string
	for _, w := range []struct {
		n    uint64
		what string
	}{{r.missing(), "missing"}, {r.Seen.Repeated, "repeated"}, {r.Seen.OutOfOrder, "out of order"}} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", w.n, w.what))
		}
	}
	if r.Late {
		wrong = append(wrong, "not done in time")
	}
	return cmp.Or(strings.Join(wrong, ", "), "all of "+fmt.Sprint(r.Due))
}

// short formats a number with three significant digits, and with all digits before the
// decimal point.
func short(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// median returns the median of a program's results of a benchmark in a unit.
func (r *report) median(name, program, unit string) (float64, bool) {
	var all []float64
	for _, one := range r.results {
		if one.Name != name || one.Program != program {
			continue
		}
		for _, v := range one.values() {
			if v.Unit == unit {
				all = append(all, v.Amount)
			}
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// group returns the group of a benchmark. Each group has one table.
func group(name string) string {
	g, _, _ := strings.Cut(name, "/")
	return g
}

// print writes tables in Markdown: one for each group of benchmarks, with the medians
// of repeated runs, and one of the targets.
func (r *report) print(to io.Writer) error {
	var groups []string
	for _, one := range r.results {
		if g := group(one.Name); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	var all []error
	for _, g := range groups {
		all = append(all, r.table(to, g))
	}
	return errors.Join(append(all, r.targets(to))...)
}

func (r *report) table(to io.Writer, of string) error {
	type row struct{ name, program string }
	var (
		rows  []row
		units []string
		runs  = map[row]int{}
		last  = map[row]result{}
	)
	for _, one := range r.results {
		if group(one.Name) != of {
			continue
		}
		at := row{one.Name, one.Program}
		if runs[at]++; runs[at] == 1 {
			rows = append(rows, at)
		}
		if old, ok := last[at]; !ok || old.delivered() == "all of "+fmt.Sprint(old.Due) { // keep a run that went wrong
			last[at] = one
		}
		for _, v := range one.values() {
			if !slices.Contains(units, v.Unit) {
				units = append(units, v.Unit)
			}
		}
	}
	var others []string
	for _, at := range rows {
		if at.program != "bridge" && at.program != roleRead && !slices.Contains(others, at.program) {
			others = append(others, at.program)
		}
	}
	head := append([]string{"benchmark", "program"}, units...)
	for _, o := range others {
		head = append(head, unitRate+" ÷ "+o, "CPU ÷ "+o)
	}
	head = append(head, "delivered")
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s |\n|---|---%s|---|\n", strings.Join(head, " | "), strings.Repeat("|---:", len(head)-3))
	for _, at := range rows {
		cells := []string{at.name, at.program}
		for _, u := range units {
			cell := ""
			if v, ok := r.median(at.name, at.program, u); ok {
				cell = short(v)
			}
			cells = append(cells, cell)
		}
		for _, o := range others {
			for _, u := range []string{unitRate, unitCPU} {
				cell := ""
				v, ok := r.median(at.name, at.program, u)
				if than, found := r.median(at.name, o, u); ok && found && than > 0 && at.program != o {
					cell = short(v / than)
				}
				cells = append(cells, cell)
			}
		}
		done := last[at]
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(cells, " | "), done.delivered())
	}
	_, err := io.WriteString(to, b.String())
	return err
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
		fmt.Fprintf(f, "Benchmark%s/program=%s %d", one.Name, one.Program, max(one.Seen.Unique, 1))
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

// verdict returns an error if the bridge did not deliver every record once and in
// order.
func (r *report) verdict() error {
	var all []error
	for _, one := range r.results {
		if one.Program == "bridge" && one.missing()+one.Seen.Repeated+one.Seen.OutOfOrder > 0 {
			all = append(all, fmt.Errorf("%s: %s", one.Name, one.delivered()))
		}
	}
	return errors.Join(all...)
}
