package alerts

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	KeepFiring  string            `json:"keep_firing_for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// exported returns the metrics of the program with their labels, and those metrics of the process and of Go that are used here.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{
		"process_start_time_seconds": nil, "process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil,
		"process_open_fds": nil, "process_max_fds": nil, "go_gc_gomemlimit_bytes": nil, "go_goroutines": nil, "go_memstats_heap_inuse_bytes": nil,
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([a-z, –]+) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, metricsFile), -1) {
		own := strings.Split(strings.ReplaceAll(m[3], "–", ""), ", ")
		if m[2] != "histogram" {
			out[m[1]] = own
			continue
		}
		out[m[1]+"_count"], out[m[1]+"_sum"] = own, own
		out[m[1]+"_bucket"] = append([]string{"le"}, own...)
	}
	return out
}

// onTarget lists the labels that Prometheus adds to a scraped target.
var onTarget = []string{"cluster", "namespace", "job", "instance", "pod"}

// check reports a query that does not parse, or that uses a metric or label that the bridge does not export.
func check(t *testing.T, known map[string][]string, query string) {
	t.Helper()
	expr, err := promQL().ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return
	}
	n := 0
	has := map[string]bool{}
	for _, l := range onTarget {
		has[l] = true
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		n++
		own, ok := known[s.Name]
		if !ok {
			t.Errorf("%s: %q is not exported", query, s.Name)
		}
		for _, l := range own {
			has[l] = true
		}
		for _, m := range s.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(own, m.Name) && !slices.Contains(onTarget, m.Name) {
				t.Errorf("%s: %s has no label %q", query, s.Name, m.Name)
			}
		}
		return nil
	})
	if n == 0 {
		t.Errorf("%s: names no metric", query)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var by []string
		switch e := node.(type) {
		case *parser.AggregateExpr:
			by = e.Grouping
		case *parser.BinaryExpr:
			if e.VectorMatching != nil {
				by = e.VectorMatching.MatchingLabels
			}
		}
		for _, l := range by {
			if !has[l] {
				t.Errorf("%s: nothing in it has a label %q", query, l)
			}
		}
		return nil
	})
}

// Alerts must use exported metrics, and name their severity and a page to read. The chart can restrict them to a release and
// set their thresholds.
func TestAlerts(t *testing.T) {
	known := exported(t)
	var sections, names []string
	for _, m := range regexp.MustCompile(`(?m)^## (Kubebridge\w+)$`).FindAllStringSubmatch(read(t, runbookFile), -1) {
		sections = append(sections, m[1])
	}
	for _, r := range alerts(t) {
		names = append(names, r.Alert)
		check(t, known, r.Expr)
		if !regexp.MustCompile(`[<>] [0-9.]+$`).MatchString(r.Expr) {
			t.Errorf("%s: the expression does not end with its threshold: %s", r.Alert, r.Expr)
		}
		if expr, err := promQL().ParseExpr(r.Expr); err == nil {
			if top, ok := expr.(*parser.BinaryExpr); !ok || !top.Op.IsComparisonOperator() {
				t.Errorf("%s: what ends the expression is not its threshold: %s", r.Alert, r.Expr)
			}
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if s, ok := node.(*parser.VectorSelector); ok && !strings.Contains(s.String(), `job!=""`) {
					t.Errorf(`%s: %s has no job!="", which the chart replaces by the release's pods`, r.Alert, s)
				}
				return nil
			})
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: says nothing", r.Alert)
		}
		if want := "https://github.com/kubebridge/kubebridge/blob/main/docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	slices.Sort(names)
	slices.Sort(sections)
	if !slices.Equal(names, sections) {
		t.Errorf("docs/runbook.md has sections for %q, alerts are %q", sections, names)
	}
}

// The runbook must show the person on call how long an alert's condition lasts before it fires, and its severity.
func TestRunbookTable(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(read(t, runbookFile)) {
		for _, m := range regexp.MustCompile(`\[(Kubebridge\w+)\]`).FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(line, "| [") {
				rows[m[1]] = strings.TrimSpace(line)
			}
		}
	}
	for _, r := range alerts(t) {
		lasts := " | " + r.For
		if want := strings.TrimRight(lasts, " ") + " | " + r.Labels["severity"] + " |"; !strings.HasSuffix(rows[r.Alert], want) {
			t.Errorf("docs/runbook.md: the row of %s does not end with %q: %s", r.Alert, want, rows[r.Alert])
		}
		threshold := strings.Fields(r.Expr)[len(strings.Fields(r.Expr))-1]
		if (r.Alert == "KubebridgeLag" || r.Alert == "KubebridgeCheckpointOld" || r.Alert == "KubebridgeMemoryNearLimit") && !strings.Contains(rows[r.Alert], threshold) {
			t.Errorf("docs/runbook.md: the row of %s lacks its threshold %s: %s", r.Alert, threshold, rows[r.Alert])
		}
	}
}
