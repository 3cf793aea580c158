package alerts

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	Says    string `json:"description"`
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
		Datasource struct{ UID string }
	} `json:"targets"`
}

type dashboard struct {
	Schema     int     `json:"schemaVersion"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name, Type, AllValue string
			Query                any
		} `json:"list"`
	} `json:"templating"`
}

// filled returns a query as Grafana sends it, with all values of its variables selected.
func filled(d *dashboard, query string) string {
	query = strings.ReplaceAll(query, "$__rate_interval", "2m")
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			query = regexp.MustCompile(`\$`+v.Name+`\b`).ReplaceAllLiteralString(query, v.AllValue)
		}
	}
	return query
}

// Every query of the dashboard must parse once its variables are filled in, and must use only metrics that the bridge exports.
// Every metric of the bridge must be on the dashboard.
func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	known := exported(t)
	unseen := maps.Clone(known)
	seen := func(query string) {
		for name := range known {
			if regexp.MustCompile(`\b` + name + `\b`).MatchString(query) {
				family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
				maps.DeleteFunc(unseen, func(n string, _ []string) bool { return n == name || strings.HasPrefix(n, family+"_") })
			}
		}
	}
	labelValues := regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`)
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)["query"].(string)
		m := labelValues.FindStringSubmatch(filled(&d, query))
		if m == nil {
			t.Errorf("variable %s: %q", v.Name, query)
			continue
		}
		check(t, known, "group by ("+m[2]+") ("+m[1]+")")
	}
	if want := []string{"datasource", "cluster", "namespace", "job", "sink", "resource"}; !slices.Equal(variables, want) {
		t.Errorf("variables are %q, want %q", variables, want)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	var rows []string
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: id %d is another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Fatalf("%s lies on %q at %v", p.Title, taken[at], at)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || p.Says == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q has no title, description or query", p.ID, p.Title)
		}
		for _, q := range p.Targets {
			query := filled(&d, q.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: there is no such variable: %s", p.Title, query)
			}
			if q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: asks %q, not the data source that is chosen", p.Title, q.Datasource.UID)
			}
			check(t, known, query)
			legend(t, p.Title, query, q.Legend)
			seen(query)
		}
	}
	if want := []string{"Health", "Flow", "Bus", "Source", "Audit log", "Checkpoint", "bridge serve", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("rows are %q, want %q", rows, want)
	}
	for name := range unseen {
		if strings.HasPrefix(name, "kubebridge_") {
			t.Errorf("%s is exported, and not to be seen", name)
		}
	}
}

// legend reports a label in a legend that the query's result does not have.
func legend(t *testing.T, title, query, text string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(text, -1) {
		kept := slices.Contains(onTarget, m[1])
		if by := regexp.MustCompile(`by \(([a-z, ]+)\)`).FindStringSubmatch(query); by != nil {
			kept = slices.Contains(strings.Split(by[1], ", "), m[1])
		}
		if !kept {
			t.Errorf("%s: the legend shows %q, which the query does not keep: %s", title, m[1], query)
		}
	}
}
