package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// Spec is one run.
type Spec struct {
	Pair   Pair
	Seed   uint64
	Binary string        // the bridge
	Faults time.Duration // how long there are faults; there are 50 operations a second meanwhile
	Limit  time.Duration // of the whole
	Harm   bool          // the API server itself fails; nobody else may use the cluster
	Calm   bool          // no faults: what the checker says then is about itself
	soak   bool          // one replica that writes at once, whatever the seed
}

// Result is what became of a run: one line of the results file.
type Result struct {
	Pair     string   `json:"pair"`
	Seed     uint64   `json:"seed"`
	Harm     bool     `json:"harm,omitempty"`
	Passed   bool     `json:"passed"`
	Seconds  float64  `json:"seconds"`
	Ops      int      `json:"operations"`
	Events   int      `json:"events"`
	Gaps     int      `json:"gaps"`
	Excused  int      `json:"excused"` // transitions that a declared gap excuses and nobody told
	Faults   []string `json:"faults"`
	Problems []string `json:"problems,omitempty"`
	Log      string   `json:"-"` // of a failed run: histories, and what the bridges said
}

// Run runs one seed. The error is about the campaign itself; what the bridge did wrong is in the result.
func Run(ctx context.Context, cluster *clustertest.Cluster, s Spec) (result Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("not in %s", s.Limit))
	defer cancel()
	begun := time.Now()
	r := newChance(s.Seed, 0)
	w := &world{spec: s, pair: s.Pair, cluster: cluster}
	defer w.close()
	result = Result{Pair: s.Pair.Name, Seed: s.Seed, Harm: s.Harm}
	if err := w.prepare(ctx, r); err != nil {
		return result, fmt.Errorf("prepare: %w", err)
	}
	if err := w.launch(); err != nil {
		return result, fmt.Errorf("launch: %w", err)
	}
	if r.IntN(4) > 0 { // else the first list is among what the faults meet, and excuses much
		if err := w.synced(ctx); err != nil {
			return result, err
		}
	}
	l := newLedger()
	load := &workload{kube: w.kube, ledger: l, types: w.types, seed: s.Seed}
	loaded := make(chan error, 1)
	go func() { loaded <- load.run(ctx, int(s.Faults.Seconds()*50), s.Faults) }()
	n := &nemesis{world: w, begun: begun, load: load}
	var wrong error
	if !s.Calm {
		wrong = n.run(ctx, s.Faults)
	}
	if err := <-loaded; err != nil || wrong != nil {
		return result, fmt.Errorf("%w; workload: %v; %v", wrong, err, n.schedule)
	}
	err = w.finish(ctx, n, l, &result)
	result.Seconds = time.Since(begun).Seconds()
	return result, err
}

// finish lets the bridge come into step, ends it, and judges.
func (w *world) finish(ctx context.Context, n *nemesis, l *ledger, result *Result) error {
	var problems []string
	result.Faults = n.schedule
	settled := w.settle(ctx, l)
	if settled != nil {
		problems = append(problems, fmt.Sprintf("[in step] after the faults: %v", settled))
	}
	w.stop()
	for i, p := range w.processes {
		if strings.Contains(p.Log(), "DATA RACE") {
			problems = append(problems, fmt.Sprintf("[race] process %d: see its log", i))
		}
	}
	reading, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second+time.Duration(l.ops)*5*time.Millisecond)
	defer done()
	messages, err := w.bus.read(reading)
	if err != nil {
		problems = append(problems, fmt.Sprintf("[readable] %v", err))
	}
	v := &verdict{pair: w.pair, ledger: l, messages: messages, cluster: map[string]map[string]map[string]any{}, lost: w.pair.lossy() && n.hurt, unsettled: settled != nil, killed: len(w.processes) > 1, second: w.second, taken: w.taken,
		changing: map[string]bool{w.widgets.ResourceID(): n.defaulted}}
	for _, t := range w.types {
		if v.cluster[t.ResourceID()], err = w.selected(reading, t); err != nil {
			return err
		}
	}
	problems = append(append(problems, w.surprises...), v.judge()...)
	result.Passed, result.Problems = len(problems) == 0, problems
	result.Ops, result.Events = l.ops, len(messages)
	result.Gaps, result.Excused = v.gaps, v.excused
	if !result.Passed {
		result.Log = w.report(*result, v)
	}
	return nil
}

// report is everything about a failed run.
func (w *world) report(r Result, v *verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pair %s seed %d: %d problems\n%s\n\nfaults:\n%s\n", r.Pair, r.Seed, len(r.Problems), strings.Join(r.Problems, "\n"), strings.Join(r.Faults, "\n"))
	fmt.Fprintf(&b, "\nthe bus:\n%s\nobjects:\n", bus.Tail(v.messages, len(v.messages)))
	var lives []string
	for _, o := range v.ledger.objects {
		lives = append(lives, o.String())
	}
	slices.Sort(lives)
	fmt.Fprintln(&b, strings.Join(lives, "\n"))
	for i, p := range w.processes {
		fmt.Fprintf(&b, "\nprocess %d said:\n%s\n", i, p.Log())
	}
	return b.String()
}
