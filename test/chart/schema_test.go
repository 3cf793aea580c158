package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Values are checked by the bridge's own schema, which is at the end of the chart's schema, because Helm does not follow
// references to other files. The chart itself reports missing required values and suggests names for unknown keys, because its
// messages are better.
func TestConfigSchema(t *testing.T) {
	config := bridgeSchema(t)
	lenient(config)
	for _, key := range []string{"$schema", "$id", "title", "required"} {
		delete(config, key)
	}
	head, cut := ownSchema(t)
	golden(t, schemaFile(), slices.Concat(head, cut, bytes.TrimSpace(encoded(t, "  ", map[string]any{"config": config})), []byte("\n}\n")))
}

// The chart refuses values that are not in this file, and suggests values that are. It needs the file because templates cannot
// read the schema.
func TestKnownValues(t *testing.T) {
	head, _ := ownSchema(t)
	var own map[string]any
	if err := json.Unmarshal(slices.Concat(bytes.TrimSuffix(head, []byte(",")), []byte("}")), &own); err != nil {
		t.Fatal(err)
	}
	own["properties"].(map[string]any)["config"] = bridgeSchema(t)
	golden(t, filepath.Join(chartDir(), "files", "known-values.json"), encoded(t, "", knownValues(own)))
}

func schemaFile() string { return filepath.Join(chartDir(), "values.schema.json") }

// ownSchema returns the handwritten part of the values' schema, and the text that ends it.
func ownSchema(t *testing.T) (head, cut []byte) {
	t.Helper()
	have, err := os.ReadFile(schemaFile())
	if err != nil {
		t.Fatal(err)
	}
	cut = []byte("\n  \"$defs\": ")
	head, _, ok := bytes.Cut(have, cut)
	if !ok {
		t.Fatalf("%s has no $defs of its own at its end", schemaFile())
	}
	return head, cut
}

func bridgeSchema(t *testing.T) map[string]any {
	t.Helper()
	published, err := os.ReadFile(filepath.Join(root(), "docs", "schemas", "config.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(published, &config); err != nil {
		t.Fatal(err)
	}
	return config
}

func encoded(t *testing.T, prefix string, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// lenient makes a schema accept null, by which values are left out, and keys that it does not know. It makes it refuse references in
// place of true and false.
func lenient(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, each := range s {
			lenient(each)
		}
	case map[string]any:
		if s["additionalProperties"] == false {
			delete(s, "additionalProperties")
			delete(s, "oneOf") // of kafka, nats, file and stdout: a misspelt one is an unknown key
		}
		if choices, ok := s["anyOf"].([]any); ok && choices[0].(map[string]any)["type"] == "boolean" {
			s["type"] = "boolean" // the templates decide by it, so it is no reference
			delete(s, "anyOf")
		}
		if kind, ok := s["type"].(string); ok {
			s["type"] = []any{kind, "null"}
		}
		for key, value := range s {
			if key != "default" && key != "enum" {
				lenient(value)
			}
		}
	}
}

// knownValues returns the names of an object's members, and what is known of each: null where anything may be. "*" stands for a
// name of the user's, "[]" for the elements of a list.
func knownValues(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	known := map[string]any{}
	choices, _ := s["anyOf"].([]any)
	for _, choice := range choices {
		if found, ok := knownValues(choice).(map[string]any); ok {
			known = found
		}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for name, property := range properties {
			known[name] = knownValues(property)
		}
	}
	if more := knownValues(s["additionalProperties"]); more != nil {
		known["*"] = more
	}
	if items := knownValues(s["items"]); items != nil {
		known["[]"] = items
	}
	if len(known) == 0 {
		return nil
	}
	return known
}

// The chart only suggests values that exist.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(chartDir(), "files", "known-values.json"))
	if err != nil {
		t.Fatal(err)
	}
	var known map[string]any
	if err := json.Unmarshal(raw, &known); err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{
		"replicas": "replicaCount", "env": "extraEnv", "extraEnvs": "extraEnv", "sidecars": "extraContainers", "extraManifests": "extraObjects",
		"liveness": "livenessProbe", "imagePullSecret": "imagePullSecrets", "toleration": "tolerations", "Affinity": "affinity", "lifecycleHooks": "lifecycle",
		"updateStrategy": "strategy", "logLevel": "config.log.level", "route": "httpRoute",
		"sinks": "config.sinks", "serviceMontior": "serviceMonitor", "podAnnotation": "podAnnotations", "persistance": "persistence", "nodeselector": "nodeSelector",
	} {
		v := valuesOf(t, "testdata/kafka.good.yaml")
		v[asked] = map[string]any{}
		_, err := render(chart(t), v)
		if err == nil || !strings.Contains(err.Error(), "\n"+asked+": there is no such value, did you mean "+want+"?") {
			t.Errorf("%s: %v", asked, err)
		}
		name, _, _ := strings.Cut(want, ".")
		if _, ok := known[name]; !ok {
			t.Errorf("%s is suggested, and is no value", want)
		}
	}
	for path, want := range map[string]string{
		"autoscaling": ": one replica writes and the others stand by, so there is nothing to scale: set replicaCount",
		"zebra":       "; there are affinity, annotations, ", "istio": "; there are affinity, ", "terminationPolicy": "; there are affinity, ",
		"service.port": ", did you mean service.ports.status?", "prometheusRule.rules": ", did you mean prometheusRule.additionalRules?",
		"ingress.ingressClassName": ", did you mean ingress.className?",
	} {
		v := valuesOf(t, "testdata/kafka.good.yaml")
		set(v, strings.Split(path, "."), map[string]any{})
		if _, err := render(chart(t), v); err == nil || !strings.Contains(err.Error(), "\n"+path+": there is no such value"+want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
