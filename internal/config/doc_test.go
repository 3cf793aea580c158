package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const document = "../../docs/configuration.md"

// A setting that is not described is one that nobody finds.
func TestEverySettingIsDocumented(t *testing.T) {
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Struct {
			if typ == reflect.TypeFor[Resource]() || typ == reflect.TypeFor[Sink]() {
				path = "" // a table of its own
			}
			for f := range typ.Fields() {
				if !f.IsExported() {
					continue
				}
				walk(f.Type, join(path, f.Tag.Get("yaml")))
			}
			return
		}
		if n++; !strings.Contains(string(raw), "`"+path+"`") {
			t.Errorf("%s does not describe `%s`", document, path)
		}
	}
	walk(reflect.TypeFor[Config](), "")
	if n < 50 {
		t.Errorf("only %d settings were found", n)
	}
	for _, s := range settings {
		row := "| `" + s.key + "` | `--" + s.flag + "` | `" + variable(s.key) + "` |"
		if !strings.Contains(string(raw), row) {
			t.Errorf("%s lacks the line %s", document, row)
		}
	}
}

// An example is what people copy.
func TestDocumentedExamples(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		value, ok := map[string]string{"KAFKA_PASSWORD": "p"}[name]
		return value, ok
	}
	seen := map[string]bool{}
	for _, page := range append(pages, "../../README.md") {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(raw), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```\n")
			if !strings.Contains(text, "cluster:") || !strings.Contains("\n"+text, "\nsinks:") {
				continue // a part of one, or values of the chart
			}
			seen[page] = true
			if _, err := parse(page, []byte(text), nil, env); err != nil {
				t.Errorf("an example: %v", err)
			}
		}
	}
	for _, page := range []string{document, "../../README.md", "../../docs/ha.md"} {
		if !seen[page] {
			t.Errorf("%s has no example", page)
		}
	}
}
