package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/test/e2e/campaign"
)

// results are the last result of each seed that was run.
func (o options) results() ([]campaign.Result, error) {
	f, err := os.Open(filepath.Join(o.out, "results.jsonl"))
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	last := map[string]int{}
	var all []campaign.Result
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r campaign.Result
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // a torn line is a run that is done again
		}
		if i, again := last[key(r.Pair, r.Seed)]; again {
			all[i] = r
			continue
		}
		last[key(r.Pair, r.Seed)] = len(all)
		all = append(all, r)
	}
	return all, lines.Err()
}

// table prints what the results file holds, and how often there was which fault.
func (o options) table() error {
	all, err := o.results()
	if err != nil {
		return err
	}
	commit, err := campaign.OneCommit(all)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(o.out, "results.jsonl"), err)
	}
	fmt.Printf("Commit %s\n\n", commit)
	fmt.Println("| sink and store | passed | failed | of these with the API server failing | faults | operations | events | gaps |\n|---|---|---|---|---|---|---|---|")
	var schedules [][]string
	for _, p := range campaign.Pairs() {
		var passed, failed, harm, done, ops, events, gaps int
		for _, r := range all {
			if r.Pair != p.Name {
				continue
			}
			if r.Passed {
				passed++
			} else {
				failed++
			}
			if r.Harm {
				harm++
			}
			done, ops, events, gaps = done+len(r.Faults), ops+r.Ops, events+r.Events, gaps+r.Gaps
			schedules = append(schedules, r.Faults)
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d |\n", p.Name, passed, failed, harm, done, ops, events, gaps)
	}
	var names []string
	for name, n := range campaign.FaultCounts(schedules...) {
		names = append(names, fmt.Sprintf("%6d %s", n, name))
	}
	slices.Sort(names)
	slices.Reverse(names)
	fmt.Println("\n" + strings.Join(names, "\n"))
	return nil
}
