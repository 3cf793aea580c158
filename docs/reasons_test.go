package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// between is the part of a text that stands between two others.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(text, from)
	if !found {
		t.Fatalf("%q was not found", from)
	}
	text, _, _ = strings.Cut(text, to)
	return text
}

// all returns the matches of an expression's group in a text, sorted and without repeats.
func all(expression, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return sorted(found)
}

func sorted[T ~string](list []T) []string {
	var texts []string
	for _, one := range list {
		texts = append(texts, string(one))
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// unexpected returns the reasons that an operator should know about.
func unexpected() (list []event.Reason) {
	for _, c := range event.Reasons() {
		if c.Unexpected {
			list = append(list, c.Reason)
		}
	}
	return list
}

func same(t *testing.T, where string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons in %s (-program +there):\n%s", where, diff)
	}
}

// events.md must explain every reason, because consumers look it up there.
func TestEventsListReasons(t *testing.T) {
	var want, got []string
	for _, c := range event.Reasons() {
		types := make([]string, len(c.Types))
		for i, typ := range c.Types {
			types[i] = "`" + typ.String() + "`"
		}
		of := strings.Join(types, ", ")
		if c.Reason == event.ReasonReset && slices.Contains(c.Types, event.Gap) {
			of = "`gap` with `reset: true`, and its `synced`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", c.Reason, of, c.Text))
	}
	for line := range strings.Lines(between(t, readFile(t, "events.md"), "| `reason` | of | cause |\n|---|---|---|\n", "\n\n") + "\n") {
		got = append(got, strings.TrimSpace(line))
	}
	same(t, "events.md", want, got)
}

// The schemas must have every reason, because consumers that validate with them refuse other reasons.
func TestSchemasListReasons(t *testing.T) {
	type reason struct {
		Enum        []string
		Description string
	}
	var known []event.Reason
	for _, c := range event.Reasons() {
		known = append(known, c.Reason)
	}
	var data struct {
		Properties struct{ Reason reason }
	}
	if err := json.Unmarshal([]byte(readFile(t, "schemas/collection-v1.json")), &data); err != nil {
		t.Fatal(err)
	}
	same(t, "collection-v1.json", sorted(known), sorted(data.Properties.Reason.Enum))
	same(t, "the description in collection-v1.json", sorted(known), all(`(\w+): `, data.Properties.Reason.Description))

	whole := readFile(t, "schemas/event-v1.json")
	for _, typ := range []event.Type{event.Gap, event.Synced, event.Closed} {
		enum := between(t, between(t, whole, fmt.Sprintf(`"if": {"properties": {"type": {"const": %q}}}`, typ.CloudEvent()), `}}`+"\n"), `"reason": {"enum": [`, `]`)
		same(t, typ.String()+" in event-v1.json", sorted(event.ReasonsOf(typ)), all(`"(\w+)"`, enum))
	}
}

// Operators look up a reason where an alert or a metric shows it, so it must be explained there.
func TestOperatorsFindReasons(t *testing.T) {
	row := between(t, readFile(t, "metrics.md"), "| `kubebridge_gaps_total` |", "\n")
	same(t, "metrics.md", sorted(event.ReasonsOf(event.Gap)), all("`([a-z]+)`", row))

	alert := between(t, readFile(t, "../charts/kubebridge/files/alerts.yaml"), "- alert: KubebridgeGap\n", "- alert: ")
	matchers := all(`reason=~"([^"]*)"`, alert)
	if len(matchers) != 1 {
		t.Fatalf("the alert KubebridgeGap is about different reasons: %q", matchers)
	}
	same(t, "the alert KubebridgeGap", sorted(unexpected()), sorted(strings.Split(matchers[0], "|")))

	section := between(t, readFile(t, "runbook.md"), "\n## KubebridgeGap\n", "\n## ")
	same(t, "runbook.md", sorted(unexpected()), all("`([a-z]+)`: ", section))
}

// A reason in a page or an alert must exist.
func TestNamedReasonsExist(t *testing.T) {
	known := []string{"left", "unknown"} // of `deleted`
	for _, c := range event.Reasons() {
		known = append(known, string(c.Reason))
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md", "../charts/kubebridge/files/alerts.yaml") {
		for _, named := range all("(?:`reason: |reason `|reason\":\\s*\"|reason=~?\")([a-z|]+)", readFile(t, page)) {
			for _, one := range strings.Split(named, "|") {
				if !slices.Contains(known, one) {
					t.Errorf("%s names the reason %q", page, one)
				}
			}
		}
	}
}
