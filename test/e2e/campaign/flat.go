package campaign

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measure is one thing that is measured, and how much of it counts as flat: its median in the last quarter of a process's life
// may be above that of the second quarter by a part of it and an amount. The first quarter is for caches to fill.
type measure struct {
	name     string
	unit     float64 // what it is shown in
	part     float64
	amount   float64
	bound    float64 // instead: it may grow, but never above this
	optional bool    // it is not there for every pair
}

// measures are in the order of [Sample.Values]. The files' bound is that of pebble: three logs, full at 2 MiB (one is written, two are
// kept to be written again), and tables; with the memory of what is in them they fill in about an hour.
func measures() []measure {
	return []measure{
		{name: "resident memory, MiB", unit: 1 << 20, part: 0.05, amount: 4 << 20},
		{name: "heap in use, MiB", unit: 1 << 20, part: 0.10, amount: 1 << 20},
		{name: "heap's size for the next collection, MiB", unit: 1 << 20, part: 0.05, amount: 512 << 10},
		{name: "goroutines", unit: 1, amount: 5},
		{name: "threads", unit: 1, amount: 3},
		{name: "file descriptors", unit: 1, amount: 3},
		{name: "checkpoint's files, KiB", unit: 1 << 10, bound: 9 << 20, optional: true},
		{name: "checkpoint on the bus, KiB", unit: 1 << 10, part: 0.15, amount: 4 << 10, optional: true},
		{name: "checkpoint on the bus, keys", unit: 1, part: 0.15, amount: 10, optional: true},
		{name: "objects in the inventory", unit: 1, part: 0.15, amount: 5},
		{name: "objects in the cluster", unit: 1, part: 0.15, amount: 5},
	}
}

// minLife is the shortest life of which a judgement means something, and minSamples how many must be known of each quarter.
const (
	minLife    = 10 * time.Minute
	minSamples = 10
)

// quarter is the least, the median and the greatest of what was seen; n samples.
type quarter struct {
	least, median, greatest float64
	n                       int
}

// quarters divides a life, in the order of time.
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

// grown says how a series is not flat; "" is flat.
func (m measure) grown(q [4]quarter) string {
	for i, one := range q {
		if one.n < minSamples {
			return fmt.Sprintf("%s: only %d samples of quarter %d", m.name, one.n, i+1)
		}
	}
	highest := max(q[0].greatest, q[1].greatest, q[2].greatest, q[3].greatest)
	limit := q[1].median*(1+m.part) + m.amount
	switch {
	case m.bound > 0 && highest > m.bound:
		return fmt.Sprintf("%s: up to %s, where %s is the most", m.name, m.show(highest), m.show(m.bound))
	case m.bound == 0 && q[3].median > limit:
		return fmt.Sprintf("%s: %s in the second quarter and %s in the last, where %s is flat", m.name, m.show(q[1].median), m.show(q[3].median), m.show(limit))
	}
	return ""
}

func (m measure) show(v float64) string {
	if v /= m.unit; m.unit > 1 && v < 100 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Flat judges samples: what has grown in which process, and a table of all of them, in Markdown.
func Flat(samples []Sample) (problems []string, table string) {
	var b strings.Builder
	var of []Sample
	for len(samples) > 0 || len(of) > 0 {
		if len(of) == 0 {
			of, samples = split(samples, func(s Sample) bool { return s.Pair == samples[0].Pair })
		}
		first := of[0]
		var life []Sample
		life, of = split(of, func(s Sample) bool { return s.Process == first.Process })
		from, to := first.At, life[len(life)-1].At
		who := fmt.Sprintf("%s, process %d, %s to %s", first.Pair, first.Process, from.Round(time.Second), to.Round(time.Second))
		short := to-from < minLife
		fmt.Fprintf(&b, "\n%s%s:\n\n| least / median / greatest | first quarter | second | third | last |\n|---|---|---|---|---|\n", who, map[bool]string{true: " (too short to be judged)"}[short])
		for i, m := range measures() {
			values := make([]float64, len(life))
			for j, s := range life {
				values[j] = s.Values[i]
			}
			if m.optional && !slices.ContainsFunc(values, func(v float64) bool { return !math.IsNaN(v) }) {
				continue
			}
			q := quarters(values)
			if why := m.grown(q); why != "" && !short {
				problems = append(problems, fmt.Sprintf("[flat] %s: %s", who, why))
			}
			fmt.Fprintf(&b, "| %s |", m.name)
			for _, one := range q {
				fmt.Fprintf(&b, " %s / %s / %s |", m.show(one.least), m.show(one.median), m.show(one.greatest))
			}
			b.WriteByte('\n')
		}
	}
	return problems, b.String()
}

// split keeps the order on both sides.
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

// CSVHeader is the first line of a file of samples.
func CSVHeader() string {
	line := "seconds,pair,process"
	for _, m := range measures() {
		name, _, _ := strings.Cut(m.name, ", MiB")
		name, _, _ = strings.Cut(name, ", KiB")
		line += "," + strings.ReplaceAll(name, ",", "")
	}
	return line
}

// CSV is a line; sizes are in bytes, and what is not known is empty.
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
