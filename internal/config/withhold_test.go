package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// secrets are values that end up in the wrong places: as a name, an address, a path and an expression.
var secrets = []string{"Hunter2 hunter2", "nats://bridge:hunter2@nats:4222/%zz", "a.hunter2[", "hunter2"}

// No message contains the value of a reference, wherever the reference is used. The test replaces each text of each
// test configuration by a reference, one after the other.
func TestMessagesWithholdValues(t *testing.T) {
	bad, _ := filepath.Glob("testdata/*.bad.yaml")
	good, _ := filepath.Glob("testdata/*.good.yaml")
	refused := 0
	tried := secrets
	if testing.Short() {
		tried = secrets[:1]
	}
	for _, name := range append(bad, good...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var root any
		if yaml.Unmarshal(text, &root) != nil {
			continue
		}
		each(root, nil, func(was string, set func(any)) {
			set("${env:MISPLACED}")
			written, err := yaml.Marshal(root)
			set(was)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range tried {
				c, err := parse("file", written, nil, func(name string) (string, bool) {
					if name == "MISPLACED" {
						return secret, true
					}
					return testEnv(name)
				})
				var messages []string
				if err != nil {
					refused++
					messages = append(messages, err.Error())
				} else {
					messages = c.Warnings()
				}
				if all := strings.Join(messages, "\n"); strings.Contains(strings.ToLower(all), "hunter2") {
					t.Errorf("%s, as %q, is shown:\n%s\nof\n%s", name, secret, all, written)
				}
			}
		})
	}
	if refused < 1000 {
		t.Errorf("only %d configurations were refused: this test shows nothing", refused)
	}
}

// Several brokers in one variable are a common mistake. The message must help although it cannot show the comma.
func TestBrokersInOneVariable(t *testing.T) {
	text := "cluster: a\nresources: [pods]\nsinks: [{name: s, kafka: {brokers: [\"${env:BROKERS}\"]}}]\n"
	_, err := parse("file", []byte(text), nil, func(name string) (string, bool) {
		return map[string]string{"BROKERS": "k0:9092,k1:9092"}[name], name == "BROKERS"
	})
	if err == nil || !strings.Contains(err.Error(), `"${env:BROKERS}" is not host:port, for example kafka:9092, with each address as an item of its own`) {
		t.Errorf("got %v", err)
	}
}

// each calls do for every text in a value, with a function that replaces the text.
func each(value any, set func(any), do func(was string, set func(any))) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			each(inner, func(now any) { v[key] = now }, do)
		}
	case []any:
		for i, inner := range v {
			each(inner, func(now any) { v[i] = now }, do)
		}
	case string:
		do(v, set)
	}
}

// The error for an invalid value names the reference instead of the value. If the text of the reference is invalid in
// the same way, the error also states the mistake.
func TestMessagesNameReferences(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"cluster: ${env:MISPLACED}", `file:1:10: cluster: "${env:MISPLACED}" cannot be a name: ` + nameRule},
		{"cluster: prod\nadmin: {socket: \"/${env:LONG}\"}", "file:2:17: admin.socket: it is not valid with what ${env:LONG} stands for, and that is not shown: look there"},
	} {
		text := c.text + "\nresources: [pods]\ncheckpoint: {file: {path: /x}}\nsinks: [{name: a, stdout: {}}]\n"
		_, err := parse("file", []byte(text), nil, func(name string) (string, bool) {
			return map[string]string{"MISPLACED": "Hunter2 hunter2", "LONG": strings.Repeat("hunter2", 20)}[name], true
		})
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
}
