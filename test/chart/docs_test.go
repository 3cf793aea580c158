package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Values on a page are what people copy. Those without config are added to the smallest one.
func TestDocumentedValues(t *testing.T) {
	for page, least := range map[string]int{"README.md": 1, "docs/install.md": 2} {
		raw, err := os.ReadFile(filepath.Join(root(), filepath.FromSlash(page)))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, block := range strings.Split(string(raw), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```\n")
			v := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, text)
				continue
			}
			if v["config"] == nil {
				v["config"] = map[string]any{"cluster": "c", "resources": []any{"pods"}, "sinks": []any{map[string]any{
					"name": "s", "kafka": map[string]any{"brokers": []any{"kafka:9092"}},
				}}}
			}
			n++
			if _, err := render(chart(t), v); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, text)
			}
		}
		if n < least {
			t.Errorf("%s has %d values of the chart, want %d", page, n, least)
		}
	}
}
