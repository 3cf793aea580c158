// Campaign runs the fault campaign: seeds of every pair of sink and store, several side by side, until all have passed or one
// has failed too often. It appends one JSON line per seed to a file, and goes on where that ends. With -soak it runs a few
// pairs for hours instead, and measures.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/campaign"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
)

func main() {
	served, err := campaign.ServeNATS()
	if !served {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	seeds    uint64
	first    uint64
	seed     uint64
	pair     string
	parallel int
	faults   time.Duration
	out      string
	calm     bool
	harm     bool
	entries  bool
	only     string
	hostile  bool
	audit    bool
	serve    bool
	kills    int
	race     bool
	show     bool
	soak     time.Duration
	rate     int
	away     time.Duration
}

func run(ctx context.Context) (err error) {
	var o options
	flag.Uint64Var(&o.seeds, "seeds", 200, "how many seeds in all, shared out among the pairs")
	flag.Uint64Var(&o.first, "first", 1, "the first seed")
	flag.Uint64Var(&o.seed, "seed", 0, "only this seed, again")
	flag.StringVar(&o.pair, "pair", "", "only this pair, for example nats-eo/nats")
	flag.IntVar(&o.parallel, "parallel", 3, "seeds side by side")
	flag.DurationVar(&o.faults, "faults", 10*time.Second, "how long there are faults in a seed")
	flag.StringVar(&o.out, "out", "campaign", "directory of results.jsonl and of the reports of what failed")
	flag.BoolVar(&o.calm, "calm", false, "no faults")
	flag.BoolVar(&o.harm, "harm", false, "with -seed: the API server itself fails")
	flag.BoolVar(&o.entries, "entries", true, "also draw entries that share a resource, edits of them, and a second sink")
	flag.BoolVar(&o.hostile, "hostile", false, "every seed has a hostile tenant, not one in four")
	flag.BoolVar(&o.audit, "audit", false, "every seed has an audit input, not two in three")
	flag.BoolVar(&o.serve, "serve", false, "every seed has bridge serve, if it can read the bus, not one in three")
	flag.IntVar(&o.kills, "kills", 0, "no other faults, but so often: two entries of one resource are edited under load, and the bridge is killed")
	flag.StringVar(&o.only, "only", "", "with -seed: only faults whose names contain this")
	flag.BoolVar(&o.race, "race", true, "build the bridge with Go's race detector")
	flag.BoolVar(&o.show, "table", false, "only show the results so far")
	flag.DurationVar(&o.soak, "soak", 0, "no seeds, but a few pairs side by side for so long, and what they take meanwhile")
	flag.IntVar(&o.rate, "rate", 48, "with -soak: operations a second, of all pairs together")
	flag.DurationVar(&o.away, "away", 0, "with -soak: the bridges have disk buffers, and each bus is away a third of the time, for so long on average")
	flag.Parse()
	if o.show {
		return o.table()
	}
	source, err := buildOf(ctx)
	if err != nil {
		return err
	}
	plan, err := o.plan(source)
	if err != nil || len(plan) == 0 && o.soak == 0 {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubebridge-campaign-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.soak > 0 {
		binary := filepath.Join(dir, "bridge")
		if err := bridge.Build(ctx, bridge.Root(), "./cmd/bridge", binary); err != nil {
			return err
		}
		return o.runSoak(ctx, binary)
	}
	if err := o.build(ctx, dir, plan); err != nil {
		return err
	}
	return o.runAll(ctx, plan)
}

// build builds the bridge for each seed of the plan. Where delays are judged, it has no race detector: that makes the work on an
// object ten times as long, and nothing else.
func (o options) build(ctx context.Context, dir string, plan []campaign.Spec) error {
	built := map[bool]string{}
	for i := range plan {
		race := o.race && !plan[i].Hostile
		if built[race] == "" {
			built[race] = filepath.Join(dir, fmt.Sprint("bridge-race-", race))
			var flags []string
			if race {
				flags = append(flags, "-race")
			}
			if err := bridge.Build(ctx, bridge.Root(), "./cmd/bridge", built[race], flags...); err != nil {
				return err
			}
		}
		plan[i].Binary = built[race]
	}
	return nil
}

// plan is what has not passed yet on this commit. Every fifth seed is one in which the API server itself fails.
func (o options) plan(source build) ([]campaign.Spec, error) {
	pairs := campaign.Pairs()
	if o.pair != "" {
		p, err := campaign.FindPair(o.pair)
		if err != nil {
			return nil, err
		}
		pairs = []campaign.Pair{p}
	}
	passed, err := o.passed(source)
	if err != nil {
		return nil, err
	}
	var plan []campaign.Spec
	for i := range o.seeds {
		seed, pair := o.first+i, pairs[i%uint64(len(pairs))]
		harm := seed%5 == 0
		if o.seed != 0 {
			seed, harm = o.seed, o.harm || o.seed%5 == 0
			if i >= uint64(len(pairs)) {
				break
			}
		} else if passed[key(pair.Name, seed)] {
			continue
		}
		hostile := o.isHostile(seed)
		limit := time.Minute
		if hostile { // others' changes are timed, three times as long as there were faults
			limit += 2 * time.Minute
		}
		if harm { // two starts of an API server take their time
			limit *= 2
		}
		if o.entries { // their copies are waited for, too
			limit += 3 * time.Minute
		}
		if o.kills == 0 { // changes wait for audit records
			limit += 2 * time.Minute
		}
		if o.serves(seed) { // several collections wait for bookmarks
			limit += 3 * time.Minute
		}
		if o.kills > 0 {
			harm, limit = false, limit+time.Duration(o.kills)*3*time.Second
		}
		plan = append(plan, campaign.Spec{Kills: o.kills, Pair: pair, Seed: seed, Faults: o.faults, Limit: o.faults + limit, Harm: harm, Calm: o.calm, Entries: o.entries, Hostile: hostile, Audit: o.audit, Serve: o.serves(seed), Only: o.only, Commit: source.commit, Dirty: source.dirty})
	}
	return plan, nil
}

// isHostile chooses the seeds with a hostile tenant.
func (o options) isHostile(seed uint64) bool { return o.kills == 0 && (o.hostile || seed%4 == 3) }

// serves chooses the seeds with bridge serve.
func (o options) serves(seed uint64) bool { return o.serve || campaign.DrawServe(seed) }

func key(pair string, seed uint64) string { return fmt.Sprintf("%s %d", pair, seed) }

// passed are the seeds that need not run again: only runs of the very commit count.
func (o options) passed(source build) (map[string]bool, error) {
	all, err := o.results()
	passed := map[string]bool{}
	for _, r := range all {
		passed[key(r.Pair, r.Seed)] = r.Passed && !source.dirty && !r.Dirty && r.Commit == source.commit && r.Entries == o.entries && r.Hostile == o.isHostile(r.Seed)
	}
	return passed, err
}

// runAll runs the plan: what harms the API server one after the other on a cluster of its own, the rest side by side. Then come the
// seeds with a hostile tenant, each alone: what other seeds take of the machine would be taken for the tenant's.
func (o options) runAll(ctx context.Context, plan []campaign.Spec) error {
	var beside, harm, hostile []campaign.Spec
	for _, s := range plan {
		switch {
		case s.Hostile:
			hostile = append(hostile, s)
		case s.Harm:
			harm = append(harm, s)
		default:
			beside = append(beside, s)
		}
	}
	r := &runner{options: o}
	var all sync.WaitGroup
	all.Go(func() { r.run(ctx, beside, o.parallel) })
	all.Go(func() { r.run(ctx, harm, 1) })
	all.Wait()
	for _, harmed := range []bool{false, true} {
		r.run(ctx, slices.DeleteFunc(slices.Clone(hostile), func(s campaign.Spec) bool { return s.Harm != harmed }), 1)
	}
	if len(r.failed) > 0 {
		r.broken = errors.Join(r.broken, fmt.Errorf("%d seeds failed: %s", len(r.failed), strings.Join(r.failed, ", ")))
	}
	return r.broken
}

// runner runs seeds and records what came of them.
type runner struct {
	options
	mu     sync.Mutex
	failed []string
	broken error
}

// run runs seeds on a cluster of their own, some side by side. Either all have faults of the API server itself, or none has.
func (r *runner) run(ctx context.Context, seeds []campaign.Spec, workers int) {
	if len(seeds) == 0 || ctx.Err() != nil {
		return
	}
	dir, err := os.MkdirTemp("", "kubebridge-campaign-audit-")
	if err != nil {
		r.note(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	options, auditLog, err := campaign.AuditedCluster(dir, seeds[0].Harm)
	if err != nil {
		r.note(err)
		return
	}
	cluster, err := clustertest.Launch(ctx, options)
	if err != nil {
		r.note(err)
		return
	}
	defer cluster.Close()
	queue := make(chan campaign.Spec, len(seeds))
	for _, s := range seeds {
		queue <- s
	}
	close(queue)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for s := range queue {
				s.AuditLog = auditLog
				result, err := campaign.Run(ctx, cluster, s)
				if ctx.Err() != nil {
					return // broken off: it has no result
				}
				if err != nil {
					result.Problems = append(result.Problems, "[campaign] "+err.Error())
				}
				r.done(result)
			}
		})
	}
	all.Wait()
}

func (r *runner) done(result campaign.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(result.Problems) > 0 {
		r.failed = append(r.failed, key(result.Pair, result.Seed))
	}
	r.broken = errors.Join(r.broken, r.record(result))
}

func (r *runner) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = errors.Join(r.broken, err)
}

// record appends a result, and writes down the log of a failure.
func (o options) record(r campaign.Result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(o.out, "results.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	err = errors.Join(err, f.Close())
	fmt.Printf("%s %-16s seed %-4d %4.0fs %4d operations %5d events %3d gaps %3d excused, %d faults\n", verdict(r), r.Pair, r.Seed, r.Seconds, r.Ops, r.Events, r.Gaps, r.Excused, len(r.Faults))
	if r.Buffer != "" {
		fmt.Printf("  disk buffer of %s, %d changes in it when a bridge was killed\n", r.Buffer, r.Recorded)
	}
	if r.Audit != "" {
		fmt.Printf("  audit input: %s; %s\n", r.Audit, r.Answers)
	}
	if r.Serve != nil {
		fmt.Printf("  bridge serve: %s\n", r.Serve)
	}
	if r.Delays != nil {
		fmt.Printf("  others' changes %s\n  99 of 100 took %.1f times as long beside hostile objects as beside ordinary ones\n", r.Delays, r.Delays.Times())
	}
	if r.Passed {
		return err
	}
	for _, problem := range r.Problems[:min(len(r.Problems), 5)] {
		fmt.Printf("  %.600s\n", problem)
	}
	name := strings.ReplaceAll(r.Pair, "/", "-") + fmt.Sprintf("-%d.txt", r.Seed)
	again := fmt.Sprintf("make campaign SEED=%d PAIR=%s", r.Seed, r.Pair)
	if o.hostile {
		again += " CAMPAIGN=-hostile"
	}
	if o.audit {
		again += " CAMPAIGN=-audit"
	}
	if o.serve {
		again += " CAMPAIGN=-serve"
	}
	fmt.Printf("  again: %s; all of it: %s\n", again, name)
	return errors.Join(err, os.WriteFile(filepath.Join(o.out, name), []byte(r.Log), 0o644))
}

// verdict returns the result of a run in one word.
func verdict(r campaign.Result) string {
	if r.Passed {
		return "passed"
	}
	return "FAILED"
}
