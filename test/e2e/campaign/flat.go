package campaign

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measure is one measured quantity, and the growth up to which it counts as flat. The median in the last quarter of a process's life may
// exceed the median in the second quarter by part, which is a fraction of that median, plus amount. The first quarter does not count,
// because caches fill in it.
type measure struct {
	name     string
	unit     float64 // divisor of the values that are shown
	part     float64
	amount   float64
	bound    float64 // if not 0, no value may exceed it; part and amount do not count then
	optional bool    // not every pair has it
}

// measures returns the measures in the order of [Sample.Values]. The bound of the checkpoint's files allows for Pebble's files, which reach
// their size in about an hour: three logs of 2 MiB (one is written, two are kept for reuse) and the tables. The bounds of the bucket on NATS
// allow for tombstones, which are removed 1000 at a time, five minutes later.
func measures() []measure {
	return []measure{
		{name: "resident memory, MiB", unit: 1 << 20, part: 0.05, amount: 4 << 20},
		{name: "heap in use, MiB", unit: 1 << 20, part: 0.10, amount: 1 << 20},
		{name: "heap's size for the next collection, MiB", unit: 1 << 20, part: 0.05, amount: 512 << 10},
		{name: "goroutines", unit: 1, amount: 8},
		{name: "threads", unit: 1, amount: 3},
		{name: "file descriptors", unit: 1, amount: 5},
		{name: "checkpoint's files, KiB", unit: 1 << 10, bound: 9 << 20, optional: true},
		{name: "checkpoint in Kafka, compacted, KiB", unit: 1 << 10, part: 0.15, amount: 4 << 10, optional: true},
		{name: "checkpoint in Kafka, keys", unit: 1, part: 0.15, amount: 10, optional: true},
		{name: "checkpoint in NATS, KiB", unit: 1 << 10, bound: 1 << 20, optional: true},
		{name: "checkpoint in NATS, messages", unit: 1, bound: 3000, optional: true},
		{name: "objects in the inventory", unit: 1, part: 0.15, amount: 5},
		{name: "objects in the cluster", unit: 1, part: 0.15, amount: 5},
	}
}

// minLife is the shortest life that is judged, and minSamples the number of known samples that each quarter needs.
const (
	minLife    = 10 * time.Minute
	minSamples = 10
)

// quarter has the least, the median and the greatest of n samples.
type quarter struct {
	least, median, greatest float64
	n                       int
}

// quarters divides the values of a life, which are in the order of time, into quarters.
func quarters(values []float64) (q [4]quarter) {
	for i := range q {
		part := slices.Clone(values[len(values)*i/4 : len(values)*(i+1)/4])
		part = slices.DeleteFunc(part, math.IsNaN)
		slices.Sort(part)
		if n := len(part); n > 0 {
			q[i] = quarter{part[0], (part[(n-1)/2] + part[n/2]) / 2, part[n-1], n}
		}
	}
	return q
}

// grown returns how a series has grown; "" if it is flat.
func (m measure) grown(q [4]quarter) string {
	for i, one := range q {
		if one.n < minSamples {
			return fmt.Sprintf("%s: quarter %d has %d samples, want at least %d", m.name, i+1, one.n, minSamples)
		}
	}
	highest := max(q[0].greatest, q[1].greatest, q[2].greatest, q[3].greatest)
	limit := q[1].median*(1+m.part) + m.amount
	switch {
	case m.bound > 0 && highest > m.bound:
		return fmt.Sprintf("%s: the greatest value is %s, want at most %s", m.name, m.show(highest), m.show(m.bound))
	case m.bound == 0 && q[3].median > limit:
		return fmt.Sprintf("%s: the median rises from %s in the second quarter to %s in the last, want at most %s", m.name, m.show(q[1].median), m.show(q[3].median), m.show(limit))
	}
	return ""
}

func (m measure) show(v float64) string {
	if v /= m.unit; m.unit > 1 && v < 100 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// life has the samples of one process, from its start to its kill.
type life struct {
	pair     string
	process  int
	from, to time.Duration
	samples  []Sample
}

func (l life) String() string {
	return fmt.Sprintf("%s, process %d, %s to %s", l.pair, l.process, l.from.Round(time.Second), l.to.Round(time.Second))
}

// judged reports whether the life was long enough to be judged.
func (l life) judged() bool { return l.to-l.from >= minLife }

// quarters returns the quarters of the i-th measure; ok is false if the process does not have that measure.
func (l life) quarters(i int, m measure) (q [4]quarter, ok bool) {
	values := make([]float64, len(l.samples))
	for j, s := range l.samples {
		values[j] = s.Values[i]
	}
	return quarters(values), !m.optional || slices.ContainsFunc(values, func(v float64) bool { return !math.IsNaN(v) })
}

// lives returns the lives of all processes, pair by pair, in the order in which pairs and processes first occur in the samples.
func lives(samples []Sample) (all []life) {
	for len(samples) > 0 {
		var of []Sample
		of, samples = split(samples, func(s Sample) bool { return s.Pair == samples[0].Pair })
		for len(of) > 0 {
			l := life{pair: of[0].Pair, process: of[0].Process, from: of[0].At}
			l.samples, of = split(of, func(s Sample) bool { return s.Process == l.process })
			l.to = l.samples[len(l.samples)-1].At
			all = append(all, l)
		}
	}
	return all
}

// Flat judges samples. It returns a text for each measure of a process that has grown.
func Flat(samples []Sample) (problems []string) {
	for _, l := range lives(samples) {
		for i, m := range measures() {
			if q, ok := l.quarters(i, m); ok && l.judged() {
				if why := m.grown(q); why != "" {
					problems = append(problems, fmt.Sprintf("[flat] %s: %s", l, why))
				}
			}
		}
	}
	return problems
}

// Table returns the measurements in Markdown: first the medians of the second and the last quarter of all judged lives, then each life.
func Table(samples []Sample) string {
	var judged []life
	var all strings.Builder
	for _, l := range lives(samples) {
		note := " (too short to be judged)"
		if l.judged() {
			judged = append(judged, l)
			note = ""
		}
		fmt.Fprintf(&all, "\n%s%s:\n\n| least / median / greatest | first quarter | second | third | last |\n|---|---|---|---|---|\n", l, note)
		for i, m := range measures() {
			q, ok := l.quarters(i, m)
			if !ok {
				continue
			}
			fmt.Fprintf(&all, "| %s |", m.name)
			for _, one := range q {
				fmt.Fprintf(&all, " %s / %s / %s |", m.show(one.least), m.show(one.median), m.show(one.greatest))
			}
			all.WriteByte('\n')
		}
	}
	var b strings.Builder
	b.WriteString("| second quarter → last (greatest) |")
	for _, l := range judged {
		fmt.Fprintf(&b, " %s, %.0f min |", l.pair, (l.to - l.from).Minutes())
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(judged)))
	for i, m := range measures() {
		fmt.Fprintf(&b, "\n| %s |", m.name)
		for _, l := range judged {
			q, ok := l.quarters(i, m)
			if !ok {
				b.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&b, " %s → %s (%s) |", m.show(q[1].median), m.show(q[3].median), m.show(max(q[0].greatest, q[1].greatest, q[2].greatest, q[3].greatest)))
		}
	}
	return b.String() + "\n" + all.String()
}

// split divides samples by the function in. Both results keep the order.
func split(samples []Sample, in func(Sample) bool) (of, rest []Sample) {
	for _, s := range samples {
		if in(s) {
			of = append(of, s)
		} else {
			rest = append(rest, s)
		}
	}
	return of, rest
}

// CSVHeader returns the first line of a file of samples.
func CSVHeader() string {
	line := "seconds,pair,process"
	for _, m := range measures() {
		name, _, _ := strings.Cut(m.name, ", MiB")
		name, _, _ = strings.Cut(name, ", KiB")
		line += "," + strings.ReplaceAll(name, ",", "")
	}
	return line
}

// CSV returns a sample as one line. Sizes are in bytes; unknown values are empty.
func (s Sample) CSV() string {
	line := fmt.Sprintf("%.1f,%s,%d", s.At.Seconds(), s.Pair, s.Process)
	for _, v := range s.Values {
		line += ","
		if !math.IsNaN(v) {
			line += strconv.FormatFloat(v, 'f', 0, 64)
		}
	}
	return line
}
