package campaign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// TestShortSeeds runs two short seeds of every pair, three side by side, and one in which the API server itself fails. The long
// run is `make campaign`.
func TestShortSeeds(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "bridge")
	if err := bridge.Build(t.Context(), bridge.Root(), "./cmd/bridge", binary); err != nil {
		t.Fatal(err)
	}
	cluster := clustertest.Start(t, clustertest.Options{})
	side := make(chan struct{}, 3) // by side
	try := func(t *testing.T, s Spec) {
		s.Binary, s.Faults, s.Limit = binary, 3*time.Second, time.Minute
		r, err := Run(context.WithoutCancel(t.Context()), cluster, s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%.0f s: %d operations, %d events, %d gaps; %s", r.Seconds, r.Ops, r.Events, r.Gaps, strings.Join(r.Faults, "; "))
		if !r.Passed {
			t.Errorf("again: make campaign SEED=%d PAIR=%s\n%.30000s", s.Seed, s.Pair.Name, r.Log)
		}
		if r.Events == 0 {
			t.Error("nothing was told: nothing was tested")
		}
	}
	t.Run("pairs", func(t *testing.T) {
		for _, pair := range Pairs() {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("%s/%d", pair.Name, seed+1), func(t *testing.T) {
					t.Parallel()
					side <- struct{}{}
					defer func() { <-side }()
					try(t, Spec{Pair: pair, Seed: seed + 1})
				})
			}
		}
	})
	t.Run("API server", func(t *testing.T) {
		pair, err := FindPair("nats-eo/nats")
		if err != nil {
			t.Fatal(err)
		}
		try(t, Spec{Pair: pair, Seed: 1, Harm: true})
	})
}
