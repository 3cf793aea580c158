package pipeline

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
)

// leaky is a bus that loses events.
type leaky struct {
	bus
	lost atomic.Uint64
}

func (b *leaky) Lost() uint64 { return b.lost.Load() }

// What an at-most-once bus loses nobody will ever send again: it must be seen in the
// metrics and in the status, also what is lost after the last write.
func TestLossesAreShown(t *testing.T) {
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	metrics := NewMetrics(prometheus.NewRegistry())
	leaks := &leaky{}
	lane := NewLane(LaneOptions{Identity: identity, Sink: leaks, Store: store, Log: zap.NewNop(), Metrics: metrics})
	other := identity
	other.Sink = "sure"
	sure := NewLane(LaneOptions{Identity: other, Sink: &bus{}, Store: store, Log: zap.NewNop(), Metrics: metrics})
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(func() []LaneStatus { return []LaneStatus{lane.Status(), sure.Status()} }))
	for _, n := range []string{"0", "3"} {
		want := `# HELP kubebridge_events_lost_total Events that an at-most-once bus did not take, or may not have taken.
# TYPE kubebridge_events_lost_total counter
kubebridge_events_lost_total{sink="` + identity.Sink + `"} ` + n + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubebridge_events_lost_total"); err != nil {
			t.Error(err)
		}
		body, err := json.Marshal(lane.Status())
		if err != nil || !strings.Contains(string(body), `"lost":`+n+`,`) {
			t.Errorf("the status is %s, %v", body, err)
		}
		leaks.lost.Add(3)
	}
	if body, err := json.Marshal(sure.Status()); err != nil || strings.Contains(string(body), "lost") {
		t.Errorf("the status of a sink that loses nothing is %s, %v", body, err)
	}
	if problems, err := testutil.GatherAndLint(registry, "kubebridge_events_lost_total"); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
