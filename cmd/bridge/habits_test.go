package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"go.yaml.in/yaml/v2"

	"github.com/kubebridge/kubebridge/docs/schemas"
	"github.com/kubebridge/kubebridge/internal/config/explain"
)

// --version prints the same as the command version.
func TestVersionFlag(t *testing.T) {
	if flag, verb := command(t, "--version").ok(t), command(t, "version").ok(t); flag != verb {
		t.Errorf("--version prints %q, version prints %q", flag, verb)
	}
}

// validate accepts what init writes, also with unusual names.
func TestInit(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, test := range []struct {
		args []string
		says []string
	}{
		{nil, []string{"cluster: my-cluster\n", "  - pods\n", "stdout: {format: pretty}"}},
		{[]string{"configmaps", "*.apps", "--kafka", "a:9092,b:9092"}, []string{"  - configmaps\n", `  - "*.apps"`, "brokers: [a:9092, b:9092]"}},
		{[]string{"--nats", "nats:4222", "--cluster", "prod-eu"}, []string{"cluster: prod-eu\n", "url: nats://nats:4222\n"}},
		{[]string{"--kafka", "[::1]:9092", "--nats", "tls://n:4222"}, []string{`brokers: ["[::1]:9092"]`, "url: tls://n:4222\n"}},
	} {
		path := filepath.Join(t.TempDir(), "bridge.yaml")
		printed := command(t, append([]string{"init"}, test.args...)...).ok(t)
		if out := command(t, append([]string{"init", "-o", path}, test.args...)...).ok(t); !strings.Contains(out, path+": written") {
			t.Errorf("%v: says %q", test.args, out)
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != printed {
			t.Errorf("%v: the file holds %q, %v; printed is %q", test.args, text, err, printed)
		}
		for _, part := range test.says {
			if !strings.Contains(printed, part) {
				t.Errorf("%v: it does not say %q:\n%s", test.args, part, printed)
			}
		}
		if got := command(t, "validate", "-c", path); got.code != exitOK {
			t.Errorf("%v: %s\n%s", test.args, got.err, printed)
		}
		command(t, "init", "-o", path).failed(t, exitConfig, path+" exists and is not overwritten")
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) {
			t.Errorf("%v: the file is overwritten: %v", test.args, err)
		}
	}
	command(t, "init", "pods/x").failed(t, exitConfig, `"pods/x"`)
	command(t, "init", "--cluster", "A B").failed(t, exitConfig, `cluster: "A B" cannot be a name`)
}

// The options that init shows as comments are valid, too.
func TestInitComments(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KAFKA_PASSWORD", "p")
	t.Setenv("NATS_PASSWORD", "p")
	t.Setenv("NATS_TOKEN", "t")
	text := command(t, "init", "--kafka", "a:9092", "--nats", "tls://n:4222", "services").ok(t)
	for from, to := range map[string]string{
		"\n#  - resource": "\n  - resource", "\n#    ": "\n    ", "# topic:": "topic:", "# tls:": "tls:", "# sasl:": "sasl:",
	} {
		if !strings.Contains(text, from) {
			t.Errorf("it has no %q:\n%s", from, text)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "user.nk"), string(seed))
	write(t, filepath.Join(dir, "user.creds"), "JWT and seed")
	text = strings.NewReplacer("/path/to/user.nk", filepath.Join(dir, "user.nk"), "/path/to/user.creds", filepath.Join(dir, "user.creds")).Replace(text)
	path := filepath.Join(dir, "bridge.yaml")
	for _, login := range []string{"username", "token", "nkey", "creds"} {
		from := "# auth: {" + login + ":"
		if !strings.Contains(text, from) {
			t.Errorf("it has no %q:\n%s", from, text)
		}
		one := strings.Replace(text, from, strings.TrimPrefix(from, "# "), 1)
		write(t, path, one)
		if got := command(t, "validate", "-c", path); got.code != exitOK || !strings.Contains(got.out, "2 resources") {
			t.Errorf("%s: %+v\n%s", login, got, one)
		}
	}
}

func TestExplain(t *testing.T) {
	for key, parts := range map[string][]string{
		"sinks.oversize":         {"KEY:      sinks[].oversize\n", "TYPE:     text\n", "DEFAULT:  truncate\n", "VALUES:   truncate, dead-letter, fail\n", "what happens to an event"},
		"sinks[0].oversize":      {"KEY:      sinks[].oversize\n"},
		"kafka.topic":            {"KEY:      sinks[].kafka.topic\n"},
		"sinks.resources.ignore": {"KEY:      resources[].ignore\n"},
		"checkpoint":             {"KEYS:\n", "  file ", "  kafka ", "  nats "},
		"resources":              {"KEYS:\n", "  labelSelector ", "  filter "},
		"shutdown.timeout":       {"DEFAULT:  20s\n"},
	} {
		out := command(t, "explain", key).ok(t)
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s: it does not say %q:\n%s", key, part, out)
			}
		}
	}
	if out := command(t, "explain", "topic").ok(t); !strings.Contains(out, "KEY:      resources[].topic\n") || !strings.Contains(out, "KEY:      sinks[].kafka.topic\n") {
		t.Errorf("topic is\n%s", out)
	}
	if out := command(t, "explain").ok(t); !strings.Contains(out, "  sinks ") || strings.Contains(out, "kafka") {
		t.Errorf("without a key it prints\n%s", out)
	}
	command(t, "explain", "oversiz").failed(t, exitConfig, `no key "oversiz"; did you mean "oversize"?`)
	command(t, "explain", "kafka.topc").failed(t, exitConfig, `did you mean "kafka.topic"?`)
	command(t, "explain", "quux").failed(t, exitConfig, `no key "quux"`)
}

// explain accepts every key, and every key has a description.
func TestExplainKnowsEveryKey(t *testing.T) {
	all, err := explain.Settings(schemas.Config())
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	known := explain.Paths(all)
	n := 0
	for line := range strings.Lines(string(page)) {
		if key, ok := strings.CutPrefix(line, "| `"); ok {
			key, _, _ = strings.Cut(key, "`")
			if n++; !slices.Contains(known, key) {
				t.Errorf("%s is not explained", key)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d keys are on the page", n)
	}
}

// -c - reads the configuration from standard input.
func TestConfigFromStandardInput(t *testing.T) {
	var out, errs screen
	in := strings.NewReader("cluster: prod\nresources: [pods]\nsinks: [{name: a, stdout: {}}]\ncheckpoint: {file: {path: /cp}}\n")
	if code := execute(t.Context(), []string{"validate", "-c", "-"}, streams{out: &out, err: &errs, in: in}); code != exitOK || !strings.Contains(out.String(), "1 resource, 1 sink") {
		t.Errorf("code %d, %s%s", code, &out, &errs)
	}
	out, errs = screen{}, screen{}
	if code := execute(t.Context(), []string{"validate", "-c", "-"}, streams{out: &out, err: &errs, in: strings.NewReader("clutser: x\n")}); code != exitConfig || !strings.Contains(errs.String(), "standard input:1:1: clutser") {
		t.Errorf("code %d, %s", code, &errs)
	}
}

// history accepts kind and name as kubectl prints them, and it accepts short names.
func TestHistoryObject(t *testing.T) {
	for _, test := range []struct {
		args, namespace, want string
	}{
		{"deployments.apps shop/web", "", "deployments.apps shop/web"},
		{"deploy/web", "shop", "deployments shop/web"},
		{"deploy.apps web", "shop", "deployments.apps shop/web"},
		{"deployment.v1.apps/web", "shop", "deployments.v1.apps shop/web"},
		{"pods/shop/web", "", "pods shop/web"},
		{"no/worker-7", "", "nodes worker-7"},
		{"widgets.example.com a", "", "widgets.example.com a"},
	} {
		resource, object, err := historyObject(strings.Fields(test.args), test.namespace)
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if got := resource.String() + " " + object.String(); got != test.want {
			t.Errorf("%s -n %q is %s, want %s", test.args, test.namespace, got, test.want)
		}
	}
}

// A duration is a time before the present.
func TestRelativeTimes(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	if at, err := parseTime("--since", "90m", now); err != nil || !at.Equal(now.Add(-90*time.Minute)) {
		t.Errorf("--since 90m is %v, %v", at, err)
	}
	if p, err := parsePoint("10m", now); err != nil || !p.Time.Equal(now.Add(-10*time.Minute)) || p.RV != 0 {
		t.Errorf("--at 10m is %+v, %v", p, err)
	}
	if p, err := parsePoint("12345", now); err != nil || p.RV != 12345 {
		t.Errorf("--at 12345 is %+v, %v", p, err)
	}
	if _, err := parseTime("--since", "-1h", now); err == nil {
		t.Error("--since -1h is taken")
	}
}

// Shell completion uses the cluster, the configuration and the values of a flag.
func TestCompletionOfNames(t *testing.T) {
	smallCluster(t)
	path, _ := configFile(t)
	for line, want := range map[string][]string{
		"tail p":                            {"pods"},
		"tail pods -o ":                     {"pretty", "json", "yaml", "name"},
		"tail -n ":                          {"kube-system", "shop"},
		"resync --sink a -c " + path + " d": {"deployments.apps"},
		"checkpoint show -c " + path + " --sink ": {"audit", "live"},
		"run --log-level ":                        {"debug", "info", "warn", "error"},
		"schema ":                                 {"config", "event"},
		"explain sinks[].over":                    {"sinks[].oversize"},
	} {
		args := strings.Split(line, " ")
		got := command(t, append([]string{"__complete"}, args...)...)
		var names []string
		for _, name := range strings.Split(got.out, "\n") {
			if name != "" && !strings.HasPrefix(name, ":") && strings.HasPrefix(name, args[len(args)-1]) {
				names = append(names, name)
			}
		}
		if got.code != exitOK || !slices.Equal(names, want) {
			t.Errorf("%s: %q, want %q\n%s", line, names, want, got.err)
		}
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if got := command(t, "__complete", "tail", "deploymen"); !strings.HasPrefix(got.out, "deployments.apps\n") {
		t.Errorf("without a cluster: %s", got.out)
	}
}

// The error for a misspelt resource suggests the right name.
func TestMisspeltResource(t *testing.T) {
	smallCluster(t)
	command(t, "tail", "pdos").failed(t, exitEnvironment, `"pdos"`, `did you mean "pods"?`)
	command(t, "tail", "pods.cor").failed(t, exitEnvironment, `did you mean "pods.core"?`)
	if out := command(t, "tail", "widgets"); strings.Contains(out.err, "did you mean") {
		t.Errorf("a resource that is not installed is taken for a misspelt one: %s", out.err)
	}
}

// checkpoint show requests the content from a running bridge that has the checkpoint open.
func TestCheckpointShowWhileItRuns(t *testing.T) {
	smallCluster(t)
	path, checkpoints := runnable(t)
	log, stop := start(t, path)
	log.awaits(t, `"msg":"synced"`)
	running := shown(t, "-c", path)
	command(t, "checkpoint", "show", "--path", filepath.Join(checkpoints, "audit")).failed(t, exitEnvironment, "in use by another process")
	if code := stop(); code != exitOK {
		t.Fatalf("the bridge ends with %d:\n%s", code, log)
	}
	stopped := shown(t, "-c", path)
	if len(running) != 1 || len(running[0].Collections) != 1 || running[0].Collections[0].Objects.Published != 2 || running[0].Path != stopped[0].Path || running[0].Identity != stopped[0].Identity {
		t.Errorf("while it runs: %+v\nafterwards: %+v", running, stopped)
	}
}

// When the program runs as a kubectl plugin, its help shows the name of the plugin.
func TestKubectlPlugin(t *testing.T) {
	var out, errs screen
	code := execute(t.Context(), []string{"checkpoint", "--help"}, streams{program: "/usr/bin/kubectl-bridge", out: &out, err: &errs, in: strings.NewReader("")})
	if code != exitOK || !strings.Contains(out.String(), "kubectl bridge checkpoint [command]") {
		t.Errorf("code %d:\n%s%s", code, &out, &errs)
	}
	out = screen{}
	code = execute(t.Context(), []string{"tail", "--help"}, streams{program: "kubectl-bridge.exe", out: &out, err: &errs, in: strings.NewReader("")})
	if code != exitOK || !strings.Contains(out.String(), "\n  kubectl bridge tail pods") || strings.Contains(out.String(), "\n  bridge ") {
		t.Errorf("code %d:\n%s%s", code, &out, &errs)
	}
}

// The manifest for krew names every archive of a release, with its checksum.
func TestKrewManifest(t *testing.T) {
	dist := t.TempDir()
	write(t, filepath.Join(dist, "SHA256SUMS"), `aaa  kubebridge_1.2.3_linux_amd64.tar.gz
bbb  kubebridge_1.2.3_linux_arm64.tar.gz
ccc  kubebridge_1.2.3_windows_amd64.zip
ddd  kubebridge_1.2.3_linux_amd64.cdx.json
`)
	text, err := exec.CommandContext(t.Context(), "../../scripts/krew.sh", "v1.2.3", dist).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var m struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				URI, SHA256, Bin string
				Selector         struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if m.Kind != "Plugin" || m.Metadata.Name != "bridge" || m.Spec.Version != "v1.2.3" || len(m.Spec.Platforms) != 3 {
		t.Fatalf("the manifest is\n%s", text)
	}
	last := m.Spec.Platforms[2]
	if last.SHA256 != "ccc" || !strings.HasSuffix(last.URI, "/v1.2.3/kubebridge_1.2.3_windows_amd64.zip") || last.Bin != "bridge.exe" || last.Selector.MatchLabels["os"] != "windows" {
		t.Errorf("for Windows: %+v", last)
	}
	if first := m.Spec.Platforms[0]; first.Bin != "bridge" || first.Selector.MatchLabels["arch"] != "amd64" {
		t.Errorf("for Linux: %+v", first)
	}
}
