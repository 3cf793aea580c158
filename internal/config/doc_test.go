package config

import (
	"os"
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

// The example is what people copy.
func TestDocumentedExample(t *testing.T) {
	for _, path := range []string{document, "../../README.md"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(raw), "```yaml\n")
		text, _, ok := strings.Cut(rest, "```\n")
		if !ok {
			t.Fatalf("%s has no example", path)
		}
		env := func(name string) (string, bool) {
			value, ok := map[string]string{"KAFKA_PASSWORD": "p"}[name]
			return value, ok
		}
		if _, err := parse(path, []byte(text), nil, env); err != nil {
			t.Errorf("the example: %v", err)
		}
	}
}
