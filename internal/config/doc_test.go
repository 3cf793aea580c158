package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/kubebridge/internal/bridge/model"
)

const document = "../../docs/configuration.md"

// The documentation of a setting that has a flag or a variable names them. Every other setting is in keys.md.
func TestFlagsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		row := "| `" + s.key + "` | `--" + s.flag + "` | `" + variable(s.key) + "` |"
		if !strings.Contains(string(raw), row) {
			t.Errorf("%s lacks the line %s", document, row)
		}
	}
}

// The effect of changing an option of an entry must be decided, and users must be able to look it up. Otherwise the
// change is a surprise in production.
func TestEffectsOfEdits(t *testing.T) {
	raw, err := os.ReadFile("../../docs/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[model.Effect]string{
		model.NoEffect: "| nothing |", model.Difference: "| the difference", model.Reset: "| a reset", model.Reroute: "| `closed` on the old route, and a reset on the new one",
		model.Replacement: "`closed` for ",
	}
	documented := func(setting, says string) bool {
		for line := range strings.Lines(string(raw)) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			if strings.Contains(first, "`"+setting+"`") && strings.Contains(line, says) {
				return true
			}
		}
		return false
	}
	effects := map[string]bool{}
	for _, row := range model.Effects() {
		for _, setting := range slices.Concat(row.Settings, row.Outer) {
			if !documented(setting, words[row.Effect]) {
				t.Errorf("docs/upgrade.md has no row of `%s` with %q", setting, words[row.Effect])
			}
		}
		for _, setting := range row.Settings {
			if effects[setting] {
				t.Errorf("%s has two effects", setting)
			}
			effects[setting] = true
		}
	}
	for f := range reflect.TypeFor[Resource]().Fields() {
		setting := f.Tag.Get("yaml")
		if !effects[setting] {
			t.Errorf("model.Effects does not have %s", setting)
		}
		delete(effects, setting)
	}
	if len(effects) > 0 {
		t.Errorf("model.Effects has settings that entries do not have: %v", effects)
	}
}

// completeExamples returns the complete configurations on a page, also those within values of the chart. Parts of a
// configuration are left out.
func completeExamples(t *testing.T, page string) []string {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range strings.Split(string(raw), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```\n")
		if _, values, ok := strings.Cut("\n"+text, "\nconfig:"); ok {
			_, values, _ = strings.Cut(values, "\n") // config: is followed by a comment at most
			text = strings.ReplaceAll("\n"+values, "\n  ", "\n")
			text, _, _ = strings.Cut(text, "\nimage:")
		}
		if strings.Contains(text, "cluster:") && strings.Contains("\n"+text, "\nsinks:") {
			found = append(found, text)
		}
	}
	return found
}

// Users copy the examples, so the examples must be valid.
func TestDocumentedExamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"KAFKA_PASSWORD": "p", "NATS_PASSWORD": "p"}[name]
		return value, ok
	}
	seen := map[string]int{}
	for _, page := range append(pages, "../../README.md") {
		for _, text := range completeExamples(t, page) {
			seen[page]++
			if _, err := parse(page, []byte(text), nil, env); err != nil {
				t.Errorf("an example: %v", err)
			}
		}
	}
	for page, least := range map[string]int{
		document: 1, "../../README.md": 1, "../../docs/production.md": 2, "../../docs/ha.md": 1, "../../docs/install.md": 1, "../../docs/get-started.md": 2,
		"../../docs/recipes.md": 7, "../../docs/kafka-services.md": 3, "../../docs/coming-from.md": 4,
	} {
		if seen[page] < least {
			t.Errorf("%s has %d complete examples, want %d", page, seen[page], least)
		}
	}
}
