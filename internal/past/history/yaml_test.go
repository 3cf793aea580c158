package history_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kubebridge/kubebridge/internal/past/history"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

// FuzzYAML: an object with any annotation can be shown as YAML, and the YAML parses to the same
// object.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a", "\x7f", "\u009b31m", "\ufeff\ufffe\uffff", "😀\U000e0041", "\x00\x1b\n\r\u0085\u2028", "- |\n  x\n", "yes", "1e3", "<", "0x1", "~", ": #"} {
		f.Add(s, s)
		f.Add("key", s)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return // JSON has no such text
		}
		want := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"key": value}}, "data": map[string]any{key: []any{value, nil, true}}}
		object, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		text, err := history.YAML(object)
		if err != nil {
			t.Fatalf("%q: %q: %v", key, value, err)
		}
		var got map[string]any
		if err := yaml.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %s, which is %v: %v", object, text, got, err)
		}
		deep := []byte(strings.Repeat(`{"a":[`, 60) + string(object) + strings.Repeat("]}", 60))
		if text, err = history.YAML(deep); err != nil || bytes.Count(text, []byte("\n")) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		var wantDeep, gotDeep map[string]any
		if err := errors.Join(json.Unmarshal(deep, &wantDeep), yaml.Unmarshal(text, &gotDeep)); err != nil || !reflect.DeepEqual(gotDeep, wantDeep) {
			t.Fatalf("%s became %s, which is %v: %v", deep, text, gotDeep, err)
		}
		if _, err := history.Diff(nil, object); err != nil {
			t.Fatalf("%q: %q: the difference: %v", key, value, err)
		}
	})
}

// A server may write a character as two escapes, and an invalid character as half of such a pair.
func TestYAMLOfEscapes(t *testing.T) {
	text, err := history.YAML([]byte(`{"a":"\ud83d\ude00","b":"\ud83d","c":"\/"}`))
	if err != nil || !strings.Contains(string(text), "a: \"\\U0001F600\"") && !strings.Contains(string(text), "a: 😀") || !strings.Contains(string(text), "c: /") {
		t.Errorf("%s, %v", text, err)
	}
}

// The name "<<", which YAML reads as a merge, and texts that look like its placeholder.
func TestYAMLOfMerge(t *testing.T) {
	object := `{"<<":{"<<":1,"mergeeee":2},"a":"merge","b":["<<"]}`
	text, err := history.YAML([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := errors.Join(yaml.Unmarshal(text, &got), json.Unmarshal([]byte(object), &want)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, %v", text, got, err)
	}
}

// The length of the YAML is proportional to the length of the object.
func TestCostOfYAML(t *testing.T) {
	for _, c := range hostiletest.Changes(100_000) {
		text, err := history.YAML(c.After)
		if err != nil || len(text) > 250*len(c.After) {
			t.Errorf("%s: %d bytes became %d, %v", c.Name, len(c.After), len(text), err)
		}
	}
}
