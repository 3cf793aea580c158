package config

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// storedConfigurations represent the files of users, by version. They are never edited: see the README next to them.
const storedConfigurations = "testdata/stored/*/*.yaml"

// The file of a user is accepted by every later program of its version, and every key that a user may have is in one
// of the stored files.
func TestStoredConfigurations(t *testing.T) {
	files, err := filepath.Glob(storedConfigurations)
	if err != nil || len(files) < 14 {
		t.Fatalf("found %d stored configurations: %v", len(files), err)
	}
	used := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(path, text, nil, testEnv); err != nil {
			t.Errorf("a stored configuration is refused, and so are users' files: accept it, and do not edit it:\n%v", err)
		}
		doc, err := instance(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		addKeys(used, doc, "")
	}
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	addSchemaKeys(known, root, "")
	if len(known) < 150 {
		t.Errorf("only %d keys were found in the schema", len(known))
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if !used[key] {
			t.Errorf("%s is in no stored configuration: add a file that has it to the newest directory of testdata/stored", key)
		}
	}
}

// addKeys adds the path of every key of a configuration, for example "sinks[].kafka.brokers".
func addKeys(to map[string]bool, value any, path string) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			at := join(path, key)
			to[at] = true
			addKeys(to, inner, at)
		}
	case []any:
		for _, item := range v {
			addKeys(to, item, path+"[]")
		}
	}
}

// addSchemaKeys adds the path of every key in a schema. An item of a list may have a short form in addition to the
// map.
func addSchemaKeys(to map[string]bool, schema map[string]any, path string) {
	forms, _ := schema["anyOf"].([]any)
	for _, form := range forms {
		addSchemaKeys(to, form.(map[string]any), path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, inner := range properties {
		at := join(path, key)
		to[at] = true
		addSchemaKeys(to, inner.(map[string]any), at)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		addSchemaKeys(to, items, path+"[]")
	}
}
