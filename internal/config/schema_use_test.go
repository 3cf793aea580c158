package config

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance parses a configuration as a schema validator sees it. It returns an error if the text is not YAML.
func instance(text []byte) (any, error) {
	var doc any
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.AllowDuplicateMapKey()).Decode(&doc); err != nil {
		return nil, err
	}
	raw, err := yaml.MarshalWithOptions(doc, yaml.JSON())
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(raw))
}

// An editor must not underline anything that the bridge accepts.
func TestSchemaAcceptsGoodConfigurations(t *testing.T) {
	s := published(t)
	var files []string
	for _, pattern := range []string{"testdata/*.good.yaml", storedConfigurations, "../../configs/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 3 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := instance(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(doc); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// structural matches the messages about mistakes that a schema can detect.
var structural = regexp.MustCompile(`^\S+:\d+:\d+: ([^ :]+): (unknown key|expected |"[^"]*" is not (one of|known)|it has \d of kafka|it has no name|it is empty|none given|-.* is not a time)`)

// Unknown keys, wrong types and values that are not among the choices are also shown by an editor, in the same place
// as in the bridge's message.
func TestSchemaRefusesBadConfigurations(t *testing.T) {
	s := published(t)
	files, err := filepath.Glob("testdata/*.bad.want")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range files {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(path, ".want") + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		doc, unreadable := instance(text)
		var places map[string]bool
		for line := range strings.Lines(string(want)) {
			m := structural.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if unreadable != nil {
				t.Fatalf("%s: %v", path, unreadable)
			}
			if places == nil {
				places = refusals(t, s.Validate(doc))
			}
			seen++
			if !places[m[1]] {
				t.Errorf("the schema does not refuse %s; it does at %v", strings.TrimSpace(line), places)
			}
		}
	}
	if seen < 35 {
		t.Errorf("only %d such mistakes were found", seen)
	}
}

// refusals returns the places that a validator reports, written as in a message.
func refusals(t *testing.T, err error) map[string]bool {
	t.Helper()
	places := map[string]bool{}
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		path := ""
		for _, token := range e.InstanceLocation {
			if strings.Trim(token, "0123456789") == "" {
				path += "[" + token + "]"
			} else {
				path = join(path, token)
			}
		}
		switch k := e.ErrorKind.(type) {
		case *kind.AdditionalProperties:
			for _, key := range k.Properties {
				places[join(path, key)] = true
			}
		case *kind.Required:
			places[path] = true
			for _, key := range k.Missing {
				places[join(path, key)] = true
			}
		default:
			places[path] = true
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	if err == nil {
		return places
	}
	refused, ok := err.(*jsonschema.ValidationError)
	if !ok {
		t.Fatal(err)
	}
	for _, cause := range refused.Causes { // the first cause only says that there are others
		walk(cause)
	}
	return places
}

func TestSchemaRefuses(t *testing.T) {
	s := published(t)
	for name, text := range map[string]string{
		"an entry without a resource":       "resources: [{labelSelector: a=b}]\nsinks: [{name: a, stdout: {}}]",
		"no sinks":                          "cluster: x",
		"nowhere to publish":                "sinks: [{name: a, nats: {}}]",
		"two places to publish":             "sinks: [{name: a, nats: {url: nats://x, embedded: {dir: /d}}}]",
		"half a certificate":                "sinks: [{name: a, nats: {embedded: {dir: /d, tls: {cert: /c}}}}]",
		"a leaf of nothing":                 "sinks: [{name: a, nats: {embedded: {dir: /d, leaf: {}}}}]",
		"a file without a path":             "sinks: [{name: a, file: {}}]",
		"a duration without unit":           "sinks: [{name: a, stdout: {}, linger: \"5\"}]",
		"a duration that is a number":       "sinks: [{name: a, stdout: {}, linger: 5}]",
		"a part of a number":                "sinks: [{name: a, file: {path: /f, keep: 1.5}}]",
		"a number in quotes":                "sinks: [{name: a, file: {path: /f, keep: \"3\"}}]",
		"a size of an unknown unit":         "sinks: [{name: a, file: {path: /f, maxSize: 1GB}}]",
		"an unknown level of logs":          "sinks: [{name: a, stdout: {}}]\nlog: {level: loud}",
		"something else than a reference":   "sinks: [{name: a, stdout: {}}]\nlog: {level: \"$env:X\"}",
		"a resource that is a list":         "resources: [[pods]]\nsinks: [{name: a, stdout: {}}]",
		"an unknown mechanism of passwords": "sinks: [{name: a, kafka: {brokers: [\"k:1\"], sasl: {mechanism: GSSAPI}}}]",
	} {
		doc, err := instance([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(doc) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A schema does not know the values of the environment, so it must accept references.
func TestSchemaLeavesReferences(t *testing.T) {
	doc, err := instance([]byte("resources: [\"${env:R}\"]\nlog: {level: \"${env:LEVEL}\"}\nsinks: [{name: \"${env:N}\", linger: \"${env:L}\", format: \"${file:/f}\", file: {path: f, keep: \"${env:K}\", maxSize: \"${env:S}\"}}]\nleaderElection: {enabled: \"${env:E}\"}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := published(t).Validate(doc); err != nil {
		t.Error(err)
	}
}

// A file that spells out all defaults that an editor shows has the same effect as a file without them.
func TestSchemaDefaults(t *testing.T) {
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := yaml.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	for _, sink := range []map[string]any{
		{"kafka": map[string]any{"brokers": []any{"k:9092"}}},
		{"kafka": map[string]any{"brokers": []any{"k:9092"}, "deadLetter": map[string]any{}}, "oversize": "dead-letter"},
		{"nats": map[string]any{"url": "nats://n:4222"}},
		{"nats": map[string]any{"url": "nats://n:4222", "deadLetter": map[string]any{}}, "oversize": "dead-letter"},
		{"nats": map[string]any{"embedded": map[string]any{"dir": "/n"}}},
		{"file": map[string]any{"path": "/f"}},
		{"stdout": map[string]any{}},
		{"http": map[string]any{"url": "http://r:8080"}},
	} {
		sink["name"] = "a"
		doc := map[string]any{"cluster": "x", "resources": []any{map[string]any{"resource": "pods"}}, "sinks": []any{sink}}
		if sink["kafka"] == nil && sink["nats"] == nil {
			doc["checkpoint"] = map[string]any{"file": map[string]any{"path": "/c"}}
		}
		left, count := loaded(t, doc), 0
		writeDefaults(root, doc, &count)
		if diff := cmp.Diff(left, loaded(t, doc), cmpopts.IgnoreUnexported(Config{})); diff != "" || count < 18 {
			t.Errorf("%v: %d defaults written out (-left out +written):\n%s", sink, count, diff)
		}
	}
}

func loaded(t *testing.T, doc any) *Config {
	t.Helper()
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("test", text, nil, testEnv)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// writeDefaults writes into doc every default that its schema names. Missing maps are added, unless the presence of
// the map is itself a choice.
func writeDefaults(schema, doc map[string]any, count *int) {
	properties, _ := schema["properties"].(map[string]any)
	choices := []string{"kafka", "nats", "file", "stdout", "http", "embedded", "deadLetter"}
	for key, p := range properties {
		property := p.(map[string]any)
		value, there := doc[key]
		if initial, ok := property["default"]; ok {
			if !there {
				doc[key] = initial
				*count++
			}
			continue
		}
		switch {
		case property["type"] == "array" && there:
			items := property["items"].(map[string]any)
			if either, ok := items["anyOf"].([]any); ok {
				items = either[len(either)-1].(map[string]any)
			}
			for _, item := range value.([]any) {
				if m, ok := item.(map[string]any); ok {
					writeDefaults(items, m, count)
				}
			}
		case property["type"] == "object" && there:
			writeDefaults(property, value.(map[string]any), count)
		case property["type"] == "object" && property["required"] == nil && !slices.Contains(choices, key):
			m, before := map[string]any{}, *count
			if writeDefaults(property, m, count); *count > before {
				doc[key] = m
			}
		}
	}
}
