package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/campaign"
)

// soaked are the pairs that a soak runs side by side. The first one's bridge is never killed.
var soaked = []string{"kafka-eo/kafka", "nats-eo/nats", "nats-alo/file", "kafka-alo/file"}

// runSoak runs for hours what seeds run for seconds. It writes the samples as they come, and a report at the end.
func (o options) runSoak(ctx context.Context, binary string) (err error) {
	s := campaign.Soak{
		Seed: max(o.seed, 1), Binary: binary, For: o.soak, Rate: o.rate,
		Sample: 10 * time.Second, Pause: 45 * time.Second, Stretch: 8, Away: o.away,
	}
	for _, name := range soaked {
		p, err := campaign.FindPair(name)
		if err != nil {
			return err
		}
		if o.pair == "" || o.pair == name {
			s.Pairs = append(s.Pairs, p)
		}
	}
	if len(s.Pairs) == 0 {
		return fmt.Errorf("pair %q: a soak has %v", o.pair, soaked)
	}
	file, err := os.Create(filepath.Join(o.out, "samples.csv"))
	if err != nil {
		return err
	}
	csv := bufio.NewWriter(file)
	defer func() { err = errors.Join(err, csv.Flush(), file.Close()) }()
	fmt.Fprintln(csv, campaign.CSVHeader())
	printed := map[string]time.Duration{}
	s.Each = func(sample campaign.Sample) {
		fmt.Fprintln(csv, sample.CSV())
		_ = csv.Flush() // the last one returns the error
		if last, ok := printed[sample.Pair]; !ok || sample.At-last > time.Minute {
			printed[sample.Pair] = sample.At
			fmt.Println(sample.CSV())
		}
	}
	debug.SetGCPercent(40) // an hour is some gigabytes of events
	cluster, err := clustertest.Launch(ctx, clustertest.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	begun := time.Now()
	out, err := campaign.RunSoak(ctx, cluster, s)
	if err != nil {
		out.Problems = append(out.Problems, "[soak] "+err.Error())
	}
	report, problems := describe(s, begun, out)
	fmt.Println(report)
	for _, r := range out.Results {
		if !r.Passed {
			name := "failed-" + strings.ReplaceAll(r.Pair, "/", "-") + ".txt"
			err = errors.Join(err, os.WriteFile(filepath.Join(o.out, name), []byte(r.Log), 0o644))
		}
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(o.out, "report.md"), []byte(report), 0o644))
	if problems > 0 {
		err = errors.Join(err, fmt.Errorf("%d problems, see %s", problems, filepath.Join(o.out, "report.md")))
	}
	return err
}

// describe is the report, and how many problems it lists.
func describe(s campaign.Soak, begun time.Time, out campaign.SoakResult) (string, int) {
	var b strings.Builder
	problems := append(slices.Clone(out.Problems), campaign.Flat(out.Samples)...)
	fmt.Fprintf(&b, "# Soak of %s, begun %s, seed %d, %d operations a second\n", s.For, begun.UTC().Format(time.DateTime), s.Seed, s.Rate)
	fmt.Fprintf(&b, "\n| sink and store | verdict | operations | events | gaps | excused by them | faults | on disk when killed |\n|---|---|---|---|---|---|---|---|\n")
	schedules := [][]string{out.Faults}
	for _, r := range out.Results {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d |\n", r.Pair, verdict(r), r.Ops, r.Events, r.Gaps, r.Excused, len(r.Faults), r.Recorded)
		schedules = append(schedules, r.Faults)
		for _, p := range r.Problems {
			problems = append(problems, r.Pair+": "+p)
		}
	}
	fmt.Fprintf(&b, "\nAPI server: %d faults.\n\n## Problems: %d\n\n", len(out.Faults), len(problems))
	for _, p := range problems {
		fmt.Fprintf(&b, "- %.2000s\n", p)
	}
	fmt.Fprintf(&b, "\n## What each process took\n\n%s\n## Faults\n\n", campaign.Table(out.Samples))
	counts := campaign.FaultCounts(schedules...)
	var lines []string
	for name, n := range counts {
		lines = append(lines, fmt.Sprintf("| %4d | %s |", n, name))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	fmt.Fprintf(&b, "| times | fault |\n|---|---|\n%s\n", strings.Join(lines, "\n"))
	for i, schedule := range schedules {
		who := "API server"
		if i > 0 {
			who = out.Results[i-1].Pair
		}
		fmt.Fprintf(&b, "\n%s:\n\n```\n%s\n```\n", who, strings.Join(schedule, "\n"))
	}
	return b.String(), len(problems)
}
