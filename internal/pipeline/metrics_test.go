package pipeline

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetricNames: dashboards are written against these names, so they follow
// Prometheus' rules from the start.
func TestMetricNames(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	m.seen.WithLabelValues("s", "pods")
	m.lists.WithLabelValues("s", "pods", "snapshot")
	m.state.WithLabelValues("s", "pods", "watching")
	m.repeated.WithLabelValues("s", "pods")
	m.delivered.WithLabelValues("s", "pods", "added")
	m.gaps.WithLabelValues("s", "pods", "expired")
	m.truncated.WithLabelValues("s", "pods")
	m.dead.WithLabelValues("s", "oversize")
	m.unredacted.WithLabelValues("s", "pods")
	m.failures.WithLabelValues("s")
	m.writes.WithLabelValues("s")
	m.records.WithLabelValues("s")
	m.commits.WithLabelValues("s")
	m.lastCommit.WithLabelValues("s")
	m.lastEvent.WithLabelValues("s")
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := r.Gather()
	if err != nil || len(families) != 15 {
		t.Errorf("%d metrics were linted: %v", len(families), err)
	}
}
