package hostiletest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ordinary returns updates of objects that people write: captured from an API server, and larger ones of up to 256 KB.
func Ordinary(t testing.TB) []Change {
	t.Helper()
	return slices.Concat(captured(t), ordinary(1), ordinary(10), ordinary(100), Large())
}

// Large returns ordinary updates of the size that hostile ones usually have: 130 to 240 KB for each state.
func Large() []Change { return ordinary(700) }

// ordinary returns updates whose size grows with n.
func ordinary(n int) []Change {
	return []Change{
		{fmt.Sprintf("pods, %d containers", n/8+1), pod(n/8+1, 1), pod(n/8+1, 2)},
		{fmt.Sprintf("endpoints, %d", n), endpoints(n, 1), endpoints(n, 2)},
		{fmt.Sprintf("config map, %d lines", 5*n), configMap(5*n, 1), configMap(5*n, 2)},
		{fmt.Sprintf("definition, %d properties", n/3+1), definition(n/3+1, 1), definition(n/3+1, 2)},
		{fmt.Sprintf("applied, %d branches", n), applied(n, 1), applied(n, 2)},
	}
}

// captured returns the objects in the repository's watch frames, each as an update of the one before.
func captured(t testing.TB) (changes []Change) {
	root := moduleRoot(t)
	files, _ := filepath.Glob(filepath.Join(root, "internal/base/scan/testdata/*.ndjson"))
	more, _ := filepath.Glob(filepath.Join(root, "bench/internal/corpus/*.ndjson"))
	if len(files) == 0 || len(more) == 0 {
		t.Fatal("the captured frames are not there")
	}
	for _, name := range append(files, more...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var before []byte
		for line := range bytes.Lines(text) {
			var frame struct{ Object json.RawMessage }
			if err := json.Unmarshal(line, &frame); err != nil {
				t.Fatal(err)
			}
			if before != nil {
				changes = append(changes, Change{filepath.Base(name), before, frame.Object})
			}
			before = frame.Object
		}
	}
	return changes
}

// moduleRoot returns the directory of the module, which is above that of the test. The program does not know it if it was built with -trimpath.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no directory above the test has a go.mod")
	return ""
}

func managed(kind string, version int, fields, rest string) []byte {
	entries := fmt.Sprintf(`{"manager":"controller","operation":"Update","apiVersion":"v1","time":"2026-03-01T10:00:0%dZ","fieldsType":"FieldsV1","fieldsV1":%s}`, version, fields) +
		`,{"manager":"kubectl","operation":"Apply","apiVersion":"v1","time":"2026-03-01T09:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:app":{}}}}}`
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"labels":{"app":"web"},"managedFields":[%s],"name":"a","namespace":"shop","resourceVersion":"%d","uid":"u"},%s}`,
		kind, entries, version, rest)
}

func pod(n, v int) []byte {
	var containers, statuses, fields strings.Builder
	for i := range n {
		fmt.Fprintf(&containers, `{"env":%s,"image":"registry.example.com/app:%d","name":"app%d","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"limits":{"cpu":"1"}}},`,
			list(20, `{"name":"VARIABLE_%d","value":"the value of it"}`), v, i)
		fmt.Fprintf(&statuses, `{"name":"app%d","ready":%t,"restartCount":%d,"state":{"running":{"startedAt":"2026-03-01T10:00:00Z"}}},`, i, v > 1, v)
		var env strings.Builder
		for j := range 20 {
			fmt.Fprintf(&env, `"k:{\"name\":\"VARIABLE_%d\"}":{".":{},"f:name":{},"f:value":{}},`, j)
		}
		fmt.Fprintf(&fields, `"k:{\"name\":\"app%d\"}":{".":{},"f:env":{".":{},%s},"f:image":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{"f:limits":{"f:cpu":{}}}},`,
			i, strings.TrimSuffix(env.String(), ","))
	}
	return managed("Pod", v, `{"f:spec":{"f:containers":{`+strings.TrimSuffix(fields.String(), ",")+`}},"f:status":{"f:containerStatuses":{}}}`,
		`"spec":{"containers":[`+strings.TrimSuffix(containers.String(), ",")+`]},"status":{"containerStatuses":[`+strings.TrimSuffix(statuses.String(), ",")+`]}`)
}

// endpoints has its elements in another order with each version, as if they came from a map.
func endpoints(n, v int) []byte {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `{"addresses":["10.0.%d.%d"],"conditions":{"ready":%t,"serving":true},"nodeName":"node-%d","targetRef":{"kind":"Pod","name":"web-%d","namespace":"shop","uid":"uid-%d"},"zone":"a"},`,
			i*v*7%n/250, i*v*7%n%250, i%9 == v, i*v*7%n, i*v*7%n, i*v*7%n)
	}
	return managed("EndpointSlice", v, `{"f:addressType":{},"f:endpoints":{}}`, `"addressType":"IPv4","endpoints":[`+strings.TrimSuffix(all.String(), ",")+`]`)
}

// configMap has a long text in which a few lines change, and one value for every ten lines.
func configMap(lines, v int) []byte {
	var text, values, fields strings.Builder
	for i := range lines {
		n := i
		if i%97 == 0 {
			n = i * v
		}
		fmt.Fprintf(&text, `  "panel": {"title": "requests", "id": %d},\n  {\n`, n)
		if i%10 == 0 {
			fmt.Fprintf(&values, `"key-%d":"%d",`, i, n)
			fmt.Fprintf(&fields, `"f:key-%d":{},`, i)
		}
	}
	return managed("ConfigMap", v, `{"f:data":{".":{},`+fields.String()+`"f:text":{}}}`, `"data":{`+values.String()+`"text":"`+strings.ReplaceAll(text.String(), `"`, `\"`)+`"}`)
}

// definition has schemas that are nested in each other, like those of operators that embed the schema of a pod.
func definition(n, v int) []byte {
	var properties strings.Builder
	for i := range n {
		inner := fmt.Sprintf(`{"description":"What it does, in a sentence or two of documentation. Version %d.","type":"string"}`, v)
		for level := range 12 {
			inner = fmt.Sprintf(`{"description":"What this is for.","properties":{"level%d":%s},"type":"object"}`, level, inner)
		}
		fmt.Fprintf(&properties, `"property%d":%s,`, i, inner)
	}
	return managed("CustomResourceDefinition", v, `{"f:spec":{"f:versions":{}}}`,
		`"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{`+strings.TrimSuffix(properties.String(), ",")+`},"type":"object"}},"type":"object"}}}]}`)
}

// applied is a deep custom resource. Every leaf changes, and all are applied by one manager.
func applied(n, v int) []byte {
	var spec, fields strings.Builder
	for i := range n {
		leaf, field := fmt.Sprintf(`{"image":"app:%d","name":"a"}`, v), `{"f:image":{},"f:name":{}}`
		for level := range 6 {
			leaf, field = fmt.Sprintf(`{"level%d":%s}`, level, leaf), fmt.Sprintf(`{"f:level%d":%s}`, level, field)
		}
		fmt.Fprintf(&spec, `"branch%d":%s,`, i, leaf)
		fmt.Fprintf(&fields, `"f:branch%d":%s,`, i, field)
	}
	return managed("Widget", v, `{"f:spec":{"f:a":{"f:b":{"f:c":{`+strings.TrimSuffix(fields.String(), ",")+`}}}}}`,
		`"spec":{"a":{"b":{"c":{`+strings.TrimSuffix(spec.String(), ",")+`}}}}`)
}
