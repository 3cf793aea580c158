package chart

import (
	"maps"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// alertsOf returns the rules that the chart makes of its own alerts, by name.
func alertsOf(t *testing.T, set map[string]any, serve bool) map[string]monitoringv1.Rule {
	t.Helper()
	v := valuesOf(t, "testdata/kafka.good.yaml")
	v["serve"] = map[string]any{"enabled": serve, "tlsSecret": "mirror-tls"}
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
	plain := alertsOf(t, map[string]any{}, true)
	set := alertsOf(t, map[string]any{
		"KubebridgeLag":       map[string]any{"threshold": 300, "for": "10m", "labels": map[string]any{"severity": "critical", "team": "audit"}},
		"KubebridgeTruncated": map[string]any{"enabled": false},
	}, true)
	if len(plain) == 0 || len(set) != len(plain)-1 {
		t.Fatalf("%d alerts, and with one left out %d", len(plain), len(set))
	}
	const bridges = `namespace="bridges",pod=~"audit-kubebridge-([0-9]+|[0-9a-z]+-[0-9a-z]{5})"`
	const serve = `namespace="bridges",pod=~"audit-kubebridge-serve-[0-9]+"`
	for name, rule := range plain {
		expr, pods := rule.Expr.String(), bridges
		if strings.HasPrefix(name, "KubebridgeServe") {
			pods = serve
		}
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

// A release without serve has no alerts about it, and their thresholds can be set nevertheless, for example in values that several releases share.
func TestAlertsOfServe(t *testing.T) {
	without := alertsOf(t, map[string]any{"KubebridgeServeNotReady": map[string]any{"for": "2h"}}, false)
	of := func(rule string) bool { return strings.HasPrefix(rule, "KubebridgeServe") }
	for name := range without {
		if of(name) {
			t.Errorf("%s is in a release without serve", name)
		}
	}
	with := alertsOf(t, nil, true)
	maps.DeleteFunc(with, func(name string, _ monitoringv1.Rule) bool { return !of(name) })
	if len(with) == 0 {
		t.Error("a release with serve has no alerts about it")
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
