package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// inPassword matches a line in which a password consists of one reference and nothing else.
var inPassword = regexp.MustCompile(`^ +password: \$\{env:TEST_PASSWORD\}$`)

// FuzzParse: a configuration is either accepted, with the same result each time, or refused with lines that name the
// file. No message contains the value of a password.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("cluster: a\nresources: [pods]\nsinks:\n- name: b\n  nats:\n    url: nats://u@h\n    password: ${env:TEST_PASSWORD}\n    usr: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "${file:") || len(text) > 1<<14 {
			return // the reference would read files of this machine
		}
		c, err := parse("x.yaml", []byte(text), nil, testEnv)
		again, err2 := parse("x.yaml", []byte(text), nil, testEnv)
		if err != nil {
			var mistakes Errors
			if c != nil || !errors.As(err, &mistakes) || len(mistakes) == 0 {
				t.Fatalf("%q: %v, %v", text, c, err)
			}
			for _, line := range mistakes {
				if !strings.HasPrefix(line, "x.yaml:") {
					t.Fatalf("%q: the message does not name the file: %q", text, line)
				}
			}
			if err2 == nil || err2.Error() != err.Error() {
				t.Fatalf("%q: %q, then %q", text, err, err2)
			}
			if onlyPasswords(text) && strings.Contains(err.Error(), "from-the-environment") {
				t.Fatalf("%q: a password is printed: %q", text, err)
			}
			return
		}
		if err2 != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%q: %+v, then %+v, %v", text, c, again, err2)
		}
		if c.Cluster == "" || len(c.Sinks) == 0 {
			t.Fatalf("%q was taken: %+v", text, c)
		}
	})
}

// onlyPasswords reports whether every reference is the whole value of a password.
func onlyPasswords(text string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "${") && !inPassword.MatchString(strings.TrimRight(line, "\n")) {
			return false
		}
	}
	return !strings.ContainsAny(text, `|>"'&*`) // with these characters a reference may be part of another value
}
