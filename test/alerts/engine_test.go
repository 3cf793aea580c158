// Package alerts tests the alerts and the dashboard with Prometheus' own engine, as a library.
package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	alertsFile    = "../../charts/kubebridge/files/alerts.yaml"
	dashboardFile = "../../charts/kubebridge/files/dashboard.json"
	runbookFile   = "../../docs/runbook.md"
	metricsFile   = "../../docs/metrics.md" // written by the registry, see cmd/bridge
	scrape        = 30 * time.Second
)

func promQL() parser.Parser { return parser.NewParser(parser.Options{}) }

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// firing is an alert that fires: its labels, with its name, and its annotations.
type firing struct {
	labels, annotations map[string]string
}

// evaluate lets Prometheus evaluate the file of alerts at every scrape up to each of the moments, and returns the alerts that
// fire then. The series are in the notation of Prometheus' tests (a value every 30 seconds).
func evaluate(t *testing.T, series []string, moments ...time.Duration) [][]firing {
	t.Helper()
	// As usual, time begins at 0, and the ages that alerts look at are small.
	load, err := promqltest.NewLazyLoader("load 30s\n  "+strings.Join(series, "\n  ")+"\n", promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := load.Close(); err != nil {
			t.Error(err)
		}
	}()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(load.QueryEngine(), load.Storage()),
		Appendable: load.Storage(), Context: context.Background(), Logger: slog.New(slog.DiscardHandler), Parser: promQL(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	groups, errs := manager.LoadGroups(scrape, labels.EmptyLabels(), "", nil, false, alertsFile)
	if errs != nil {
		t.Fatal(errs)
	}
	var out [][]firing
	at := time.Unix(0, 0)
	for _, moment := range moments {
		for ; !at.After(time.Unix(0, 0).Add(moment)); at = at.Add(scrape) {
			load.WithSamplesTill(at, func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			})
			for _, g := range groups {
				g.Eval(load.Context(), at)
			}
		}
		now := []firing{}
		for _, g := range groups {
			for _, r := range g.Rules() {
				if err := r.LastError(); err != nil {
					t.Fatalf("%s: %v", r.Name(), err)
				}
				for _, a := range r.(*rules.AlertingRule).ActiveAlerts() {
					if a.State == rules.StateFiring {
						now = append(now, firing{a.Labels.Map(), a.Annotations.Map()})
					}
				}
			}
		}
		out = append(out, now)
	}
	return out
}

// with returns the labels of a target's series, and its own.
func with(own string) string {
	const target = `namespace="bridges",job="audit-kubebridge",instance="10.0.0.7:8080",pod="audit-kubebridge-0"`
	if own == "" {
		return target
	}
	return target + "," + own
}

func series(metric, own, values string) string {
	return fmt.Sprintf("%s{%s} %s", metric, with(own), values)
}
