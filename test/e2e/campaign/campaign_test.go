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
)

func TestMain(m *testing.M) {
	if served, err := ServeNATS(); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestShortSeeds runs two short seeds of every pair, at most three at a time, two of them with `bridge serve`. Then it runs one after the other: a seed with faults of the
// API server itself, two seeds with audit records, a seed with a hostile tenant, a fixed combination of faults of entries, seeds with kills, and a short soak. The long
// run is `make campaign`.
func TestShortSeeds(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "bridge")
	if err := bridge.Build(t.Context(), bridge.Root(), "./cmd/bridge", binary); err != nil {
		t.Fatal(err)
	}
	options, log, err := AuditedCluster(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	cluster := clustertest.Start(t, options)
	side := make(chan struct{}, 3) // limits the seeds that run at a time
	try := func(t *testing.T, s Spec) {
		s.Binary, s.Faults, s.Limit = binary, 3*time.Second, time.Minute
		if !s.Harm {
			s.AuditLog, s.Limit = log, 3*time.Minute
		}
		r, err := Run(context.WithoutCancel(t.Context()), cluster, s)
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
			t.Errorf("again: make campaign SEED=%d PAIR=%s\n%.30000s", s.Seed, s.Pair.Name, r.Log)
		}
		if r.Events == 0 {
			t.Error("nothing was published: nothing was tested")
		}
	}
	t.Run("pairs", func(t *testing.T) {
		for _, pair := range Pairs() {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("%s/%d", pair.Name, seed+1), func(t *testing.T) {
					t.Parallel()
					side <- struct{}{}
					defer func() { <-side }()
					try(t, Spec{Pair: pair, Seed: seed + 1, Serve: seed == 0 && (pair.Name == "kafka-eo/kafka" || pair.Name == "nats-eo/nats")})
				})
			}
		}
	})
	t.Run("audit records", func(t *testing.T) {
		pair, err := FindPair("nats-eo/nats")
		if err != nil {
			t.Fatal(err)
		}
		for name, wanted := range map[string]func(auditForm) bool{
			"complete":          func(f auditForm) bool { return f.complete && f.denied && !f.disturbed },
			"webhook disturbed": func(f auditForm) bool { return f.input == inputWebhook && f.disturbed && f.wait },
		} {
			seed := uint64(1)
			for !wanted(auditFormOf(seed, true)) {
				seed++
			}
			t.Run(name, func(t *testing.T) { try(t, Spec{Pair: pair, Seed: seed, Entries: true, Audit: true}) })
		}
	})
	t.Run("API server", func(t *testing.T) {
		pair, err := FindPair("nats-eo/nats")
		if err != nil {
			t.Fatal(err)
		}
		try(t, Spec{Pair: pair, Seed: 1, Harm: true})
	})
	t.Run("hostile tenant", func(t *testing.T) {
		pair, err := FindPair("nats-eo/nats")
		if err != nil {
			t.Fatal(err)
		}
		try(t, Spec{Pair: pair, Seed: 1, Hostile: true})
	})
	t.Run("objects move behind a forgotten history", func(t *testing.T) { movesBehindForgottenHistory(t, binary, cluster) })
	t.Run("two entries, edited and killed", func(t *testing.T) {
		for _, name := range []string{"kafka-eo/kafka", "nats-eo/nats", "nats-alo/file"} {
			pair, err := FindPair(name)
			if err != nil {
				t.Fatal(err)
			}
			s := Spec{Pair: pair, Seed: 1, Binary: binary, Kills: 5, Limit: 5 * time.Minute}
			r, err := Run(context.WithoutCancel(t.Context()), cluster, s)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %.0f s: %d operations, %d events, %d gaps", name, r.Seconds, r.Ops, r.Events, r.Gaps)
			if !r.Passed || r.Gaps < s.Kills {
				t.Errorf("again: make kills SEED=%d PAIR=%s KILLS=%d\n%.30000s", s.Seed, name, s.Kills, r.Log)
			}
		}
	})
	t.Run("soak", func(t *testing.T) {
		s := Soak{Seed: 1, Binary: binary, For: 12 * time.Second, Rate: 40, Sample: 500 * time.Millisecond, Pause: time.Second, Stretch: 1}
		for _, name := range []string{"kafka-eo/kafka", "nats-eo/nats", "nats-alo/file"} {
			pair, err := FindPair(name)
			if err != nil {
				t.Fatal(err)
			}
			s.Pairs = append(s.Pairs, pair)
		}
		out, err := RunSoak(t.Context(), cluster, s)
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
	})
}

// movesBehindForgottenHistory repeats one fixed combination of faults: while the bridge is down, the objects of one entry move to another
// entry, and the API server loses the history.
func movesBehindForgottenHistory(t *testing.T, binary string, cluster *clustertest.Cluster) {
	pair, err := FindPair("nats-eo/nats")
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(1)
	for !firstEdition(newChance(seed, 5), []string{"a", "b", "c"}).movable() {
		seed++
	}
	s := Spec{Pair: pair, Seed: seed, Binary: binary, Entries: true, Only: movedAndExpired, Faults: 6 * time.Second, Limit: 5 * time.Minute}
	r, err := Run(context.WithoutCancel(t.Context()), cluster, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f s: %d events, %d gaps; %s", r.Seconds, r.Events, r.Gaps, strings.Join(r.Faults, "; "))
	if !r.Passed {
		t.Errorf("again: make campaign SEED=%d PAIR=%s CAMPAIGN='-only \"%s\"'\n%.30000s", s.Seed, s.Pair.Name, s.Only, r.Log)
	}
	if len(r.Faults) == 0 {
		t.Error("nothing was tried")
	}
}
