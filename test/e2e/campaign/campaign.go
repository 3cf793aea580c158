package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// Spec describes one run.
type Spec struct {
	Pair   Pair
	Seed   uint64
	Binary string        // the bridge
	Faults time.Duration // for how long faults are inflicted; the workload makes 50 operations per second during that time
	Limit  time.Duration // time limit of the whole run
	Harm   bool          // also inflict faults on the API server itself; no other run may use the cluster at the same time
	Calm   bool          // inflict no faults: problems are then errors of the checker

	// Entries adds a resource that several entries of the configuration share, edits of those entries, and a second sink.
	Entries bool
	// Kills is the number of times that the configuration is edited and the bridge is killed, under load. The bridge has one replica
	// and two entries of one resource. If Kills is not 0, Run sets Entries and Faults itself and inflicts no other faults.
	Kills int
	// Only restricts the faults to those whose names contain this text. Empty: all faults.
	Only string
	// Commit is the commit that Binary was built from. Dirty is true if files were modified.
	Commit string
	Dirty  bool

	// Hostile adds a tenant that writes the most costly objects known. After the faults, Run measures the delays of the other users'
	// changes, in several calms.
	Hostile bool

	// AuditLog is the path of the audit log of the cluster, which [AuditedCluster] has prepared. Empty: the bridge has no audit input. Otherwise
	// the seed chooses whether it has one, and which, unless Audit is true: then it has one.
	AuditLog string
	Audit    bool

	// Serve runs `bridge serve` beside the bridge, and judges it. It has no effect on a pair whose bus it cannot read, with kills, and with a
	// hostile tenant, whose delays it would change.
	Serve bool

	soak bool // the run is part of a soak: one replica and no linger, whatever the seed
	away bool // with soak: the bus is away for long, and there is a disk buffer
}

// Result is the result of a run: one line of the results file.
type Result struct {
	Commit   string        `json:"commit,omitempty"`
	Dirty    bool          `json:"dirty,omitempty"` // the worktree was not the commit
	Pair     string        `json:"pair"`
	Seed     uint64        `json:"seed"`
	Entries  bool          `json:"entries,omitempty"`
	Hostile  bool          `json:"hostile,omitempty"`
	Delays   *AllDelays    `json:"delays,omitempty"` // delays of the other users' changes; nil without a hostile tenant
	Harm     bool          `json:"harm,omitempty"`
	Passed   bool          `json:"passed"`
	Seconds  float64       `json:"seconds"`
	Ops      int           `json:"operations"`
	Events   int           `json:"events"`
	Gaps     int           `json:"gaps"`
	Excused  int           `json:"excused"`            // unpublished transitions that a declared gap excuses
	Buffer   string        `json:"buffer,omitempty"`   // size of the disk buffer; "" without one
	Recorded int           `json:"recorded,omitempty"` // changes that killed bridges had in the disk buffer, and whose publication is judged
	Audit    string        `json:"audit,omitempty"`    // the audit input; "" without one
	Answers  *auditCounts  `json:"answers,omitempty"`  // about the users of changes, on the first sink
	Serve    *servedCounts `json:"serve,omitempty"`    // about `bridge serve`; nil without it
	Faults   []string      `json:"faults"`
	Problems []string      `json:"problems,omitempty"`
	Log      string        `json:"-"` // of a failed run: its events, the histories of the objects, and the bridges' logs
}

// OneCommit returns the commit of all results. It is an error if results are of several commits, or of a modified worktree.
func OneCommit(results []Result) (string, error) {
	seeds := map[string]int{}
	for _, r := range results {
		name := r.Commit
		switch {
		case name == "":
			name = "an unknown commit"
		case r.Dirty:
			name += " with modified files"
		}
		seeds[name]++
	}
	names := slices.Sorted(maps.Keys(seeds))
	if len(names) == 1 && names[0] == results[0].Commit {
		return names[0], nil
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d of %s", seeds[name], name)
	}
	return "", fmt.Errorf("add up results: %s; only results of one unmodified commit count: remove the others, or use another directory (-out)", strings.Join(names, ", "))
}

// Run runs one seed. Errors of the bridge are in the result. The returned error is about the campaign itself.
func Run(ctx context.Context, cluster *clustertest.Cluster, s Spec) (result Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("not within %s", s.Limit))
	defer cancel()
	if s.Kills > 0 {
		s.Entries, s.Faults = true, time.Duration(s.Kills)*perKill
	}
	s.Serve = s.Serve && s.Pair.CanServe() && s.Kills == 0 && !s.Hostile
	begun := time.Now()
	r := newChance(s.Seed, 0)
	w := &world{spec: s, pair: s.Pair, cluster: cluster}
	defer w.close()
	result = Result{Commit: s.Commit, Dirty: s.Dirty, Pair: s.Pair.Name, Seed: s.Seed, Harm: s.Harm, Entries: s.Entries, Hostile: s.Hostile}
	if err := w.prepare(ctx, r); err != nil {
		return result, fmt.Errorf("prepare: %w", err)
	}
	if err := w.launch(); err != nil {
		return result, fmt.Errorf("launch: %w", err)
	}
	if r.IntN(4) > 0 { // in one of four seeds the faults start during the first lists; the gaps of these lists excuse many transitions
		if err := w.synced(ctx); err != nil {
			return result, err
		}
	}
	l := newLedger()
	if err := w.trusted(ctx, l); err != nil {
		return result, err
	}
	if s.Serve {
		if err := w.startServing(ctx, l); err != nil {
			return result, fmt.Errorf("launch bridge serve: %w", err)
		}
	}
	load := &workload{kube: w.kube, who: w.who, ledger: l, types: w.types, seed: s.Seed}
	if w.audit != nil {
		load.audit = w.audit.auditForm
	}
	loaded := make(chan error, 1)
	go func() { loaded <- load.run(ctx, int(s.Faults.Seconds()*50), s.Faults) }()
	n := &nemesis{world: w, begun: begun, load: load}
	if s.Hostile {
		n.tenant = w.attack(ctx, load)
	}
	shared := make(chan error, 1)
	if g := w.gadgets; g == nil {
		shared <- nil
	} else {
		g.pause = &load.pause
		go func() { shared <- g.run(ctx, begun.Add(time.Since(begun)+s.Faults)) }()
	}
	var wrong error
	switch {
	case s.Kills > 0:
		wrong = n.kills(ctx)
	case !s.Calm:
		wrong = n.run(ctx, s.Faults)
	}
	if err := errors.Join(wrong, <-loaded, <-shared); err != nil {
		return result, fmt.Errorf("faults or workload: %w; %v", err, n.schedule)
	}
	err = w.finish(ctx, n, l, &result)
	result.Seconds = time.Since(begun).Seconds()
	return result, err
}

// finish waits until the bridge has published everything, stops it, and judges what is on the bus.
func (w *world) finish(ctx context.Context, n *nemesis, l *ledger, result *Result) error {
	var problems []string
	result.Faults = n.schedule
	settled := w.settle(ctx, l, "marker")
	if settled == nil && w.gadgets != nil {
		settled = n.settleEntries(ctx)
	}
	if settled == nil && n.tenant != nil {
		settled = n.calm(ctx)
	}
	if settled != nil {
		problems = append(problems, fmt.Sprintf("[in step] a change made after the faults did not arrive, or a copy is not complete: %v", settled))
	}
	if settled == nil {
		if err := w.settleAudit(ctx); err != nil {
			problems = append(problems, fmt.Sprintf("[waiting] %v", err))
		}
	}
	problems = append(append(problems, n.delayed...), n.besideTenant()...)
	served, wrong := n.judgeServed(ctx, l, settled == nil)
	problems, result.Serve = append(problems, wrong...), served
	stopped := time.Now()
	w.stop()
	for i, p := range w.processes {
		if strings.Contains(p.Log(), "DATA RACE") {
			problems = append(problems, fmt.Sprintf("[race] process %d: see its log", i))
		}
	}
	reading, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute+time.Duration(l.ops)*5*time.Millisecond)
	defer done()
	all, err := w.bus.read(reading)
	if err != nil {
		problems = append(problems, fmt.Sprintf("[readable] %v", err))
	}
	ofEntries, messages := w.ofEntries(all)
	if n.tenant != nil {
		if result.Delays, err = n.delays(reading, l, messages); err != nil {
			problems = append(problems, fmt.Sprintf("[delay] %v", err))
		}
		problems = append(problems, result.Delays.judge()...)
	}
	v := &verdict{
		pair: w.pair, ledger: l, messages: messages, cluster: map[string]map[string]map[string]any{}, lost: n.mayHaveLost(), unsettled: settled != nil, byKey: w.bus.byKey, killed: n.inDoubt() || len(w.processes) > 1, taken: w.taken,
		changing: map[string]bool{w.widgets.ResourceID(): n.defaulted}, name: w.ns,
	}
	if !w.spec.soak { // in a soak, faults of the API server are of all pairs
		v.expires = w.begunAgain(reading, messages)
	}
	if w.buffer != nil {
		result.Buffer = w.buffer.size()
	}
	if n.mayJudgeBuffer() {
		v.buffered = w.buffer
		result.Recorded = w.buffer.changes()
	}
	for _, t := range w.types {
		if v.expires != nil && n.mayExpire(t) {
			v.expires[t.ResourceID()] = true
		}
		if v.cluster[t.ResourceID()], err = w.selected(reading, t); err != nil {
			return err
		}
	}
	problems = append(append(problems, w.surprises...), v.judge()...)
	result.Ops, result.Events = l.ops, len(messages)
	result.Gaps, result.Excused = v.gaps, v.excused
	if w.gadgets != nil {
		second, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		verdicts, err := n.entriesVerdicts(second, ofEntries)
		done()
		if err != nil {
			return err
		}
		for _, one := range verdicts {
			one.unsettled = settled != nil
			one.messages = withoutGapsFrom(stopped, one.messages)
			problems = append(problems, one.judge()...)
			v.messages = append(v.messages, one.messages...)
			result.Events, result.Gaps = result.Events+len(one.messages), result.Gaps+one.gaps
		}
		result.Ops += w.gadgets.truth.ops
	}
	audits, err := n.auditProblems(context.WithoutCancel(ctx), l, all, result)
	if err != nil {
		return err
	}
	problems = append(problems, audits...)
	result.Passed, result.Problems = len(problems) == 0, problems
	if !result.Passed {
		result.Log = w.report(*result, v)
	}
	return nil
}

// withoutGapsFrom leaves out unfinished gaps. If a gap of a collection began after the bridge was asked to stop, it removes that gap and
// all later events of the collection, because the bridge would complete the gap only after its next start.
func withoutGapsFrom(stopped time.Time, messages []bus.Message) []bus.Message {
	open := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(messages), func(m bus.Message) bool {
		open[m.Collection()] = open[m.Collection()] || m.Is("gap") && !timeOf(&m).Before(stopped)
		return open[m.Collection()]
	})
}

// report returns the details of a failed run.
func (w *world) report(r Result, v *verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pair %s seed %d: %d problems\n%s\n\nfaults:\n%s\n", r.Pair, r.Seed, len(r.Problems), strings.Join(r.Problems, "\n"), strings.Join(r.Faults, "\n"))
	fmt.Fprintf(&b, "\nthe bus:\n%s\nobjects:\n", bus.Tail(v.messages, len(v.messages)))
	var lives []string
	for _, o := range v.ledger.objects {
		lives = append(lives, o.String())
	}
	if g := w.gadgets; g != nil {
		for _, world := range []map[string]*gadget{g.truth.former, g.truth.objects} {
			for _, o := range world {
				lives = append(lives, o.String())
			}
		}
		fmt.Fprintln(&b, "configured entries of the shared resource, by time:")
		for _, e := range g.editions {
			fmt.Fprintf(&b, "  %s: %+v in %v\n", e.since.UTC().Format(time.RFC3339Nano), e.entries, e.labelled)
		}
	}
	slices.Sort(lives)
	fmt.Fprintln(&b, strings.Join(lives, "\n"))
	if w.serving != nil {
		fmt.Fprintf(&b, "\nbridge serve: %s\n", r.Serve)
		for _, one := range w.serving.trails {
			fmt.Fprintf(&b, "\n%s\n", one)
		}
		for i, p := range w.serving.processes {
			fmt.Fprintf(&b, "\nlog of bridge serve %d:\n%s\n", i, p.Log())
		}
	}
	for i, p := range w.processes {
		fmt.Fprintf(&b, "\nlog of process %d:\n%s\n", i, p.Log())
	}
	return b.String()
}
