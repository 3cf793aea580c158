package chart

import (
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// alertsOf returns the rules that the chart makes of its own alerts, by name.
func alertsOf(t *testing.T, set map[string]any) map[string]monitoringv1.Rule {
	t.Helper()
	v := valuesOf(t, "testdata/kafka.good.yaml")
	v["prometheusRule"] = map[string]any{"enabled": true, "alerts": set}
	r, err := render(chart(t), v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]monitoringv1.Rule{}
	for _, manifest := range r.objects {
		if o, ok := decode(t, manifest).(*monitoringv1.PrometheusRule); ok {
			for _, g := range o.Spec.Groups {
				for _, rule := range g.Rules {
					out[rule.Alert] = rule
				}
			}
		}
	}
	return out
}

// A release's alerts cover only its own pods, with the thresholds in its values. Everything else equals the file.
func TestAlertsAreSet(t *testing.T) {
	plain := alertsOf(t, map[string]any{})
	set := alertsOf(t, map[string]any{
		"KubebridgeLag":       map[string]any{"threshold": 300, "for": "10m", "labels": map[string]any{"severity": "critical", "team": "audit"}},
		"KubebridgeTruncated": map[string]any{"enabled": false},
	})
	if len(plain) == 0 || len(set) != len(plain)-1 {
		t.Fatalf("%d alerts, and with one left out %d", len(plain), len(set))
	}
	const pods = `namespace="bridges",pod=~"audit-kubebridge-([0-9]+|[0-9a-z]+-[0-9a-z]{5})"`
	for name, rule := range plain {
		expr := rule.Expr.String()
		if strings.Contains(expr, `job!=""`) || !strings.Contains(expr, pods) {
			t.Errorf("%s is not of this release's pods: %s", name, expr)
		}
		if name == "KubebridgeLag" || name == "KubebridgeTruncated" {
			continue
		}
		if other := set[name]; other.Expr != rule.Expr || other.Labels["severity"] != rule.Labels["severity"] || rule.Annotations["runbook_url"] == "" {
			t.Errorf("%s changes with others: %v, %v", name, rule, other)
		}
	}
	before, lag := plain["KubebridgeLag"], set["KubebridgeLag"]
	if !strings.HasSuffix(before.Expr.String(), " > 60") || lag.Expr.String() != strings.TrimSuffix(before.Expr.String(), "60")+"300" {
		t.Errorf("the threshold: %s, then %s", before.Expr.String(), lag.Expr.String())
	}
	if lag.For == nil || *lag.For != "10m" || lag.Labels["severity"] != "critical" || lag.Labels["team"] != "audit" {
		t.Errorf("KubebridgeLag is not as it was set: %v", lag)
	}
	if down := plain["KubebridgeDown"]; down.KeepFiringFor == nil || !strings.Contains(down.Annotations["description"], "{{ . }}") {
		t.Errorf("KubebridgeDown: %v", down)
	}
}

// A mistyped name would leave an alert unchanged without notice, so it is refused.
func TestAlertIsUnknown(t *testing.T) {
	v := valuesOf(t, "testdata/kafka.good.yaml")
	v["prometheusRule"] = map[string]any{"enabled": true, "alerts": map[string]any{"KubebridgeLagg": map[string]any{"threshold": 1}}}
	if _, err := render(chart(t), v); err == nil || !strings.Contains(err.Error(), "prometheusRule.alerts.KubebridgeLagg: there is no such alert; there are KubebridgeDown") {
		t.Errorf("%v", err)
	}
}
