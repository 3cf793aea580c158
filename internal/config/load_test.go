package config

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite what is generated: expected messages, docs/keys.md, the schema")

func testEnv(name string) (string, bool) {
	if name == "TEST_PASSWORD" {
		return "from-the-environment", true
	}
	return "", false
}

// TestBadConfigurations pins the error for each mistake: one line that names the place, the mistake and the remedy.
// The messages are in files next to the configurations.
func TestBadConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d bad configurations: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = parse(filepath.Base(path), text, nil, testEnv)
			if err == nil {
				t.Fatal("it was taken")
			}
			want := strings.TrimSuffix(path, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(want, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			expected, readErr := os.ReadFile(want)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(expected) {
				t.Errorf("got:\n%swant:\n%s", got, expected)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("a secret is printed")
			}
		})
	}
}

func TestGoodConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.good.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %d good configurations: %v", len(files), err)
	}
	shipped, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(shipped) < 3 {
		t.Fatalf("found %d shipped configurations: %v", len(shipped), err)
	}
	for _, path := range append(files, shipped...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(path, text, nil, testEnv); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestWhatTheFileSays(t *testing.T) {
	text, err := os.ReadFile("testdata/full.good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("full", text, nil, testEnv)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Sinks[0].Kafka.SASL.Password; got != "from-the-environment" {
		t.Errorf("password is %q", got)
	}
	if got := c.Resources[2].Name(); got != "jobs.v1.batch" {
		t.Errorf("the long form of a GVR is %q", got)
	}
	if got := c.ResourcesOf(&c.Sinks[1]); len(got) != 1 || got[0].Resource != "pods" {
		t.Errorf("a sink's share is %v", got)
	}
	if got := c.ResourcesOf(&c.Sinks[0]); len(got) != len(c.Resources) {
		t.Errorf("a sink without a share has %d resources", len(got))
	}
	if c.Shutdown.Timeout != time.Minute || c.Sinks[0].Linger != 5*time.Millisecond {
		t.Errorf("durations are %v and %v", c.Shutdown.Timeout, c.Sinks[0].Linger)
	}
}

// The error for a mistake in the environment or in a flag does not name the file as its place.
func TestMistakesElsewhere(t *testing.T) {
	text := []byte("cluster: file\nname: Wrong\nresources: [pods]\nsinks: [{name: a, stdout: {}}]\ncheckpoint: {file: {path: /file}}\n")
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"KUBEBRIDGE_CLUSTER": "Env", "KUBEBRIDGE_LOG_LEVEL": "", "KUBEBRIDGE_LOG_FORMAT": "env"}[name]
		return v, ok
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--log-format=flag"}); err != nil {
		t.Fatal(err)
	}
	_, err := parse("file", text, flags, env)
	if err == nil {
		t.Fatal("it was taken")
	}
	want := []string{
		`KUBEBRIDGE_CLUSTER: cluster: "Env" cannot be a name: ` + nameRule,
		`--log-format: log.format: "flag" is not one of json, console, auto`,
		`file:2:7: name: "Wrong" cannot be a name: ` + nameRule,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

// TestPrecedence: flags override the environment, the environment overrides the file, and the file overrides defaults.
func TestPrecedence(t *testing.T) {
	text := []byte("cluster: file\nresources: [pods]\nsinks: [{name: a, stdout: {}}]\ncheckpoint: {file: {path: /file}}\nlog: {level: error}\n")
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"KUBEBRIDGE_CLUSTER": "env", "KUBEBRIDGE_LOG_LEVEL": "warn"}[name]
		return v, ok
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse([]string{"--log-level=debug"}); err != nil {
		t.Fatal(err)
	}
	c, err := parse("file", text, flags, env)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Name, c.Checkpoint.File.Path, c.Cluster, c.Log.Level}
	want := []string{"kubebridge", "/file", "env", "debug"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v (default, file, environment, flag)", got, want)
			break
		}
	}
}

// TestReferences: which references are replaced, where a dollar sign is allowed, and how to write one where it would
// be read as a reference.
func TestReferences(t *testing.T) {
	for _, c := range []struct{ value, want string }{
		{"${env:TEST_PASSWORD}", "from-the-environment"},
		{"a${env:TEST_PASSWORD}b${env:TEST_PASSWORD}", "afrom-the-environmentbfrom-the-environment"},
		{"$${env:TEST_PASSWORD}", "${env:TEST_PASSWORD}"},
		{"$${NAME}", "${NAME}"},
		{"$$NAME", "$NAME"},
		{"x:$$NAME:$$OTHER.", "x:$NAME:$OTHER."},
		// Regular expressions, CEL expressions and paths.
		{"^(a|b)$", "^(a|b)$"},
		{"^A$|^B$", "^A$|^B$"},
		{`object.metadata.name.matches("^FOO$")`, `object.metadata.name.matches("^FOO$")`},
		{`spec["$ref"].$x`, `spec["$ref"].$x`},
		// User names and passwords.
		{"$ConnectionString", "$ConnectionString"},
		{"pa$$word", "pa$$word"},
		{"PA$WORD", "PA$WORD"},
		{"PA$$WORD", "PA$$WORD"},
		{"$2a$11$ABCdef", "$2a$11$ABCdef"},
		{"$", "$"},
		{"$$", "$$"},
		{"$G", "$G"},
	} {
		p := problems{}
		if got := p.interpolate("x", c.value, testEnv); got != c.want || len(p.list) > 0 {
			t.Errorf("%q becomes %q, want %q; mistakes: %v", c.value, got, c.want, p.list)
		}
	}
}

// The value of a reference is not parsed for further references, because a generated password may contain any text.
func TestReferencesAreReplacedOnce(t *testing.T) {
	env := func(string) (string, bool) { return "${env:X} $HOME $${", true }
	p := problems{}
	if got := p.interpolate("x", "${env:PASSWORD}", env); got != "${env:X} $HOME $${" || len(p.list) > 0 {
		t.Errorf("it becomes %q; mistakes: %v", got, p.list)
	}
}

func parse(path string, text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) (*Config, error) {
	return parsePart(path, text, flags, Whole, env)
}
