package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Values are checked by the bridge's own schema, which stands at the end of theirs: helm follows no reference to another
// file. What the chart says better itself, that something must be there at all, is left to it.
func TestConfigSchema(t *testing.T) {
	published, err := os.ReadFile(filepath.Join(root(), "docs", "schemas", "config.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(published, &config); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"$schema", "$id", "title", "required"} {
		delete(config, key)
	}
	var defs bytes.Buffer
	e := json.NewEncoder(&defs)
	e.SetEscapeHTML(false)
	e.SetIndent("  ", "  ")
	if err := e.Encode(map[string]any{"config": config}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(chartDir(), "values.schema.json")
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const cut = "\n  \"$defs\": "
	head, _, ok := bytes.Cut(have, []byte(cut))
	if !ok {
		t.Fatalf("%s has no $defs of its own at its end", path)
	}
	golden(t, path, slices.Concat(head, []byte(cut), bytes.TrimSpace(defs.Bytes()), []byte("\n}\n")))
}
