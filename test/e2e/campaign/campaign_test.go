package campaign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/paralleltest"
)

func TestMain(m *testing.M) {
	if served, err := ServeNATS(); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	paralleltest.Raise(4)
	goleak.VerifyTestMain(m)
}

// TestShortSeeds runs seeds with faults of the API server itself and with a hostile tenant, and a short soak, each alone. Then it runs beside one another: two short
// seeds of every pair, two of them with `bridge serve`, seeds with audit records and with kills, and a fixed combination of faults of entries. The long run is `make campaign`.
func TestShortSeeds(t *testing.T) {
	s := shortSeeds{binary: filepath.Join(t.TempDir(), "bridge")}
	if err := bridge.Build(t.Context(), bridge.Root(), "./cmd/bridge", s.binary); err != nil {
		t.Fatal(err)
	}
	options, log, err := AuditedCluster(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	s.log, s.cluster = log, clustertest.Start(t, options)
	exact := pairNamed(t, "nats-eo/nats")
	t.Run("API server", func(t *testing.T) { s.try(t, Spec{Pair: exact, Seed: 1, Harm: true}) })
	t.Run("hostile tenant", func(t *testing.T) { s.try(t, Spec{Pair: exact, Seed: 1, Hostile: true}) })
	t.Run("soak", s.soak)
	beside := func(name string, run func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
	for name, wanted := range map[string]func(auditForm) bool{
		"complete":          func(f auditForm) bool { return f.complete && f.denied && !f.disturbed },
		"webhook disturbed": func(f auditForm) bool { return f.input == inputWebhook && f.disturbed && f.wait },
	} {
		seed := uint64(1)
		for !wanted(auditFormOf(seed, true)) {
			seed++
		}
		beside("audit records/"+name, func(t *testing.T) { s.try(t, Spec{Pair: exact, Seed: seed, Entries: true, Audit: true}) })
	}
	for _, name := range []string{"kafka-eo/kafka", "nats-eo/nats", "nats-alo/file"} {
		beside("two entries, edited and killed/"+name, func(t *testing.T) { s.kills(t, name) })
	}
	beside("objects move behind a forgotten history", s.movesBehindForgottenHistory)
	for _, pair := range Pairs() {
		for seed := range uint64(2) {
			serve := seed == 0 && (pair.Name == "kafka-eo/kafka" || pair.Name == "nats-eo/nats")
			beside(fmt.Sprintf("%s/%d", pair.Name, seed+1), func(t *testing.T) { s.try(t, Spec{Pair: pair, Seed: seed + 1, Serve: serve}) })
		}
	}
}

func pairNamed(t *testing.T, name string) Pair {
	t.Helper()
	pair, err := FindPair(name)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// shortSeeds has what the runs of TestShortSeeds share.
type shortSeeds struct {
	binary, log string // the bridge; the API server's audit log
	cluster     *clustertest.Cluster
}

// try runs a seed with three seconds of faults.
func (s shortSeeds) try(t *testing.T, spec Spec) {
	t.Helper()
	spec.Binary, spec.Faults, spec.Limit = s.binary, 3*time.Second, time.Minute
	if !spec.Harm {
		spec.AuditLog, spec.Limit = s.log, 3*time.Minute
	}
	r, err := Run(context.WithoutCancel(t.Context()), s.cluster, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s: %d operations, %d events, %d gaps; %s", r.Seconds, r.Ops, r.Events, r.Gaps, strings.Join(r.Faults, "; "))
	if r.Audit != "" {
		t.Logf("audit input: %s; %s", r.Audit, r.Answers)
	}
	if r.Serve != nil {
		t.Logf("bridge serve: %s", r.Serve)
	}
	if !r.Passed {
		t.Errorf("again: make campaign SEED=%d PAIR=%s\n%.30000s", spec.Seed, spec.Pair.Name, r.Log)
	}
	if r.Events == 0 {
		t.Error("nothing was published: nothing was tested")
	}
}

// kills edits two entries of one resource and kills the bridge, five times.
func (s shortSeeds) kills(t *testing.T, pair string) {
	spec := Spec{Pair: pairNamed(t, pair), Seed: 1, Binary: s.binary, Kills: 5, Limit: 5 * time.Minute}
	r, err := Run(context.WithoutCancel(t.Context()), s.cluster, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s: %d operations, %d events, %d gaps", r.Seconds, r.Ops, r.Events, r.Gaps)
	if !r.Passed || r.Gaps < spec.Kills {
		t.Errorf("again: make kills SEED=%d PAIR=%s KILLS=%d\n%.30000s", spec.Seed, pair, spec.Kills, r.Log)
	}
}

func (s shortSeeds) soak(t *testing.T) {
	short := Soak{Seed: 1, Binary: s.binary, For: 12 * time.Second, Rate: 40, Sample: 500 * time.Millisecond, Pause: time.Second, Stretch: 1}
	for _, name := range []string{"kafka-eo/kafka", "nats-eo/nats", "nats-alo/file"} {
		short.Pairs = append(short.Pairs, pairNamed(t, name))
	}
	out, err := RunSoak(t.Context(), s.cluster, short)
	if err != nil || len(out.Problems) > 0 {
		t.Fatal(err, out.Problems)
	}
	t.Logf("%s\n%v", Table(out.Samples), out.Faults)
	processes := map[string]bool{}
	for _, sample := range out.Samples {
		processes[fmt.Sprint(sample.Pair, sample.Process)] = true
	}
	if len(processes) != 5 {
		t.Errorf("samples of %v, want those of three bridges, two of which were killed", processes)
	}
	for i, m := range measures() {
		if !slices.ContainsFunc(out.Samples, func(s Sample) bool { return s.Values[i] > 0 }) {
			t.Errorf("nothing measured: %s", m.name)
		}
	}
	for _, r := range out.Results {
		t.Logf("%s: %d operations, %d events, %d gaps; %s", r.Pair, r.Ops, r.Events, r.Gaps, strings.Join(r.Faults, "; "))
		if !r.Passed || r.Events == 0 {
			t.Errorf("%s: %.30000s", r.Pair, r.Log)
		}
	}
}

// movesBehindForgottenHistory repeats one fixed combination of faults: while the bridge is down, the objects of one entry move to another
// entry, and the API server loses the history.
func (s shortSeeds) movesBehindForgottenHistory(t *testing.T) {
	seed := uint64(1)
	for !firstEdition(newChance(seed, 5), []string{"a", "b", "c"}).movable() {
		seed++
	}
	spec := Spec{Pair: pairNamed(t, "nats-eo/nats"), Seed: seed, Binary: s.binary, Entries: true, Only: movedAndExpired, Faults: 6 * time.Second, Limit: 5 * time.Minute}
	r, err := Run(context.WithoutCancel(t.Context()), s.cluster, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s: %d events, %d gaps; %s", r.Seconds, r.Events, r.Gaps, strings.Join(r.Faults, "; "))
	if !r.Passed {
		t.Errorf("again: make campaign SEED=%d PAIR=%s CAMPAIGN='-only \"%s\"'\n%.30000s", spec.Seed, spec.Pair.Name, spec.Only, r.Log)
	}
	if len(r.Faults) == 0 {
		t.Error("nothing was tried")
	}
}
