package chart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// The table of values in the chart's README must equal the comments in values.yaml.
func TestReadmeHasEveryValue(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(chartDir(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	table.WriteString("| value | default | |\n|---|---|---|\n")
	valueRows(t, &table, document.Content[0], "")
	path := filepath.Join(chartDir(), "README.md")
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: values -->\n", "<!-- end -->\n"
	head, rest, ok := bytes.Cut(have, []byte(begin))
	_, tail, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", path)
	}
	golden(t, path, bytes.Join([][]byte{head, []byte(begin), table.Bytes(), []byte(end), tail}, nil))
}

// valueRows writes a row for each value below a mapping. A mapping that is written in one line, or described as a whole, is one value.
func valueRows(t *testing.T, table *bytes.Buffer, in *yamlv3.Node, path string) {
	t.Helper()
	for i := 0; i < len(in.Content); i += 2 {
		key, value := in.Content[i], in.Content[i+1]
		here := strings.TrimPrefix(path+"."+key.Value, ".")
		if value.Kind == yamlv3.MappingNode && value.Style != yamlv3.FlowStyle && !describedAsAWhole(value) {
			valueRows(t, table, value, here)
			continue
		}
		description := strings.Join(strings.Fields(strings.ReplaceAll("\n"+key.HeadComment, "\n#", "\n")), " ")
		if _, last, ok := strings.Cut(key.HeadComment, "\n\n"); ok { // the paragraph before is the file's, or a group's
			description = strings.Join(strings.Fields(strings.ReplaceAll("\n"+last, "\n#", "\n")), " ")
		}
		if description == "" {
			t.Errorf("values.yaml does not describe %s", here)
		}
		text, err := yamlv3.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		compact, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(table, "| `%s` | `%s` | %s |\n", here, compact, strings.ReplaceAll(description, "|", `\|`))
	}
}

// describedAsAWhole reports whether no member has a comment of its own.
func describedAsAWhole(value *yamlv3.Node) bool {
	for i := 0; i < len(value.Content); i += 2 {
		if value.Content[i].HeadComment != "" || value.Content[i+1].Kind == yamlv3.MappingNode && value.Content[i+1].Style != yamlv3.FlowStyle && !describedAsAWhole(value.Content[i+1]) {
			return false
		}
	}
	return len(value.Content) > 0
}

// The command for the first installation must work when it is pasted.
func TestFirstLine(t *testing.T) {
	for _, path := range []string{"charts/kubebridge/README.md", "charts/kubebridge/examples/presets/values.yaml"} {
		raw, err := os.ReadFile(filepath.Join(root(), path))
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(raw), "--set '")
		line, _, ok := strings.Cut(line, "'")
		v, err := strvals.Parse(line)
		if err != nil || !ok {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		if _, err := render(chart(t), v); err != nil || v["presets"] == nil {
			t.Errorf("%s: %q: %v", path, line, err)
		}
	}
}

// The rendered examples can be read without Helm, so they must equal the chart's output.
func TestExamplesAreRendered(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(chartDir(), "examples", "*", "values.yaml"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range examples {
		golden(t, filepath.Join(filepath.Dir(path), "rendered.yaml"), []byte("---\n"+strings.Join(rendering(t, path).objects, "\n---\n")+"\n"))
	}
}

// Every template must normalize the values first, because Helm decides the order in which templates are rendered.
func TestTemplatesInitialize(t *testing.T) {
	for _, file := range chart(t).Templates {
		if strings.HasSuffix(file.Name, ".tpl") {
			continue
		}
		if !bytes.HasPrefix(file.Data, []byte("{{- include \"kubebridge.init\" . }}\n")) {
			t.Errorf("%s does not begin with kubebridge.init", file.Name)
		}
	}
}

// The package has no files that are for this repository alone.
func TestPackaged(t *testing.T) {
	c := chart(t)
	for _, file := range c.Files {
		if strings.HasPrefix(file.Name, "ci/") || strings.HasPrefix(file.Name, "examples/") {
			t.Errorf("%s is in the package", file.Name)
		}
	}
	if c.Metadata.Icon == "" || len(c.Metadata.Maintainers) == 0 || c.Metadata.Annotations["artifacthub.io/license"] == "" {
		t.Errorf("Chart.yaml lacks an icon, maintainers or a licence: %v", c.Metadata)
	}
}
