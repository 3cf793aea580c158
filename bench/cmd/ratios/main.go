// Ratios compares two files of results that bench -out has written alternately. For each benchmark and unit, it prints the mean of
// after ÷ before over the pairs, with its 95 % confidence interval.
//
//	ratios BEFORE AFTER
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// units are the units that are compared. Values in other units are settings, or zero in every valid run.
var units = []string{"events/s", "CPU-s/M", "peak-MB", "MB-above-idle", "s-to-synced", "CPU-s"}

// quantiles are the 97.5 % quantiles of Student's t-distribution, by degrees of freedom from 1 on.
var quantiles = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "ratios: usage: ratios BEFORE AFTER")
		os.Exit(2)
	}
	if err := compare(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// series identifies the values of one benchmark in one unit.
type series struct{ benchmark, unit string }

func compare(beforeFile, afterFile string) error {
	before, order, err := read(beforeFile)
	if err != nil {
		return err
	}
	after, _, err := read(afterFile)
	if err != nil {
		return err
	}
	fmt.Println("| benchmark | unit | pairs | before | after | after ÷ before | 95 % interval |\n|---|---|---:|---:|---:|---:|---:|")
	for _, s := range order {
		b, a := before[s], after[s]
		n := min(len(b), len(a))
		if n < 2 {
			continue
		}
		mean, low, high := ratio(b[:n], a[:n])
		fmt.Printf("| %s | %s | %d | %.4g | %.4g | %.3f | %.3f to %.3f |\n", s.benchmark, s.unit, n, median(b[:n]), median(a[:n]), mean, low, high)
	}
	return nil
}

// ratio returns the geometric mean of the pairs' ratios and its 95 % confidence interval.
func ratio(before, after []float64) (mean, low, high float64) {
	var logs []float64
	sum := 0.0
	for i := range before {
		logs = append(logs, math.Log(after[i]/before[i]))
		sum += logs[i]
	}
	n := float64(len(logs))
	center, squares := sum/n, 0.0
	for _, l := range logs {
		squares += (l - center) * (l - center)
	}
	t := quantiles[min(len(logs)-2, len(quantiles)-1)]
	half := t * math.Sqrt(squares/(n-1)/n)
	return math.Exp(center), math.Exp(center - half), math.Exp(center + half)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// read returns the values in a file, and the series in the order in which they first occur.
func read(name string) (values map[series][]float64, order []series, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	values = map[series][]float64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		benchmark := strings.TrimSuffix(strings.TrimPrefix(fields[0], "Benchmark"), "/program=bridge")
		for i := 2; i+1 < len(fields); i += 2 {
			if !slices.Contains(units, fields[i+1]) {
				continue
			}
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %s: %w", name, fields[0], err)
			}
			s := series{benchmark, fields[i+1]}
			if values[s] == nil {
				order = append(order, s)
			}
			values[s] = append(values[s], v)
		}
	}
	return values, order, lines.Err()
}
