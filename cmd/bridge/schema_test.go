package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// validator compiles only what `bridge schema` prints, because users who
// validate have only this document.
func validator(t *testing.T, of string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(command(t, "schema", of).ok(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("printed.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("printed.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func value(t *testing.T, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSchemaOfEvents(t *testing.T) {
	s := validator(t, "event")
	var files []string
	for _, dir := range []string{"../../pkg/event", "../../internal/core/encode"} {
		found, err := filepath.Glob(dir + "/testdata/*.json")
		if err != nil || len(found) < 10 {
			t.Fatalf("%d events in %s, %v", len(found), dir, err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(value(t, string(text))); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		// a nested schema checks the data
		spoilt := value(t, string(text)).(map[string]any)
		spoilt["data"].(map[string]any)["unknown"] = 1
		if s.Validate(spoilt) == nil {
			t.Errorf("%s is taken with unknown data", path)
		}
	}
}

func TestSchemaOfConfigurations(t *testing.T) {
	s := validator(t, "config")
	if err := s.Validate(value(t, `{"cluster": "x", "resources": ["pods"], "sinks": [{"name": "a", "stdout": {}}]}`)); err != nil {
		t.Error(err)
	}
	if s.Validate(value(t, `{"clutser": "x", "sinks": [{"name": "a", "stdout": {}}]}`)) == nil {
		t.Error("an unknown key is taken")
	}
	command(t, "schema", "events").failed(t, exitConfig, `takes config|event, not "events"`, "bridge schema --help")
	command(t, "schema").failed(t, exitConfig, "bridge schema needs config|event", "bridge schema --help")
}
