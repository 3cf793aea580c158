package history_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kubebridge/kubebridge/internal/history"
)

// FuzzYAML: whatever an annotation holds, the object is shown, and a restore of what
// is shown is the object.
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
		if _, err := history.Diff(nil, object); err != nil {
			t.Fatalf("%q: %q: the difference: %v", key, value, err)
		}
	})
}

// A server may write a character as two escapes, and a broken one as half of one.
func TestYAMLOfEscapes(t *testing.T) {
	text, err := history.YAML([]byte(`{"a":"\ud83d\ude00","b":"\ud83d","c":"\/"}`))
	if err != nil || !strings.Contains(string(text), "a: \"\\U0001F600\"") && !strings.Contains(string(text), "a: 😀") || !strings.Contains(string(text), "c: /") {
		t.Errorf("%s, %v", text, err)
	}
}
