package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// asProgram has the test binary be the program.
const asProgram = "KUBEBRIDGE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// result is what a user sees of a command.
type result struct {
	code     int
	out, err string
}

func bridge(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(t.Context(), args, streams{out: &out, err: &errs, in: strings.NewReader("yes\n")})
	return result{code, out.String(), errs.String()}
}

// failed checks a failure: its code, and one line on standard error that says
// each of the parts, with no usage behind it.
func (r result) failed(t *testing.T, code int, says ...string) {
	t.Helper()
	if r.code != code || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "bridge: ") {
		t.Errorf("code %d, out %q, err %q; want code %d and one line", r.code, r.out, r.err, code)
	}
	for _, part := range says {
		if !strings.Contains(r.err, part) {
			t.Errorf("%q does not say %q", r.err, part)
		}
	}
}

// ok checks a success and returns what was printed.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != 0 || r.err != "" {
		t.Fatalf("code %d, err %q", r.code, r.err)
	}
	return r.out
}

func TestUsageErrors(t *testing.T) {
	t.Setenv("KUBEBRIDGE_CONFIG", "")
	path, _ := configFile(t)
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"nope"}, `unknown command "nope"`},
		{[]string{"run", "bridge.yaml"}, `bridge run takes no arguments, but "bridge.yaml" is one (a configuration file is given with -c): see bridge run --help`},
		{[]string{"tail"}, "bridge tail needs RESOURCE..."},
		{[]string{"tail", "pods", "-o", "xml"}, "-o xml: pretty and json"},
		{[]string{"tail", "pods", "-n", "A_B"}, "-n A_B: this cannot be a namespace"},
		{[]string{"schema", "nope"}, `bridge schema takes config|event, not "nope"`},
		{[]string{"completion", "nope"}, `unknown command "nope"`},
		{[]string{"help", "nope"}, `there is no help on "nope"`},
		{[]string{"resync"}, "bridge resync needs RESOURCE"},
		{[]string{"rbac", "--bus", "--principal", "me", "-c", "CONFIG"}, "--principal me: Kafka's ACLs name a user as User:me"},
		{[]string{"history", "pods"}, `bridge history takes RESOURCE NAMESPACE/NAME, not "pods"`},
		{[]string{"history", "pods", "a/b/c"}, `"a/b/c" names no object`},
		{[]string{"history", "pods", "a/b", "--until", "now"}, `--until: "now" is no time like`},
		{[]string{"history", "pods", "a/b", "--since", "2026-03-14T09:26:00Z", "--until", "2026-03-13T09:26:00Z"}, "is before --since"},
		{[]string{"state", "--diff", "2026-03-14T09:26:00Z", "now"}, `"now" is neither a time`},
		{[]string{"state", "--at", "1", "--apply", "--kubeconfig", "/does/not/exist"}, "--kubeconfig /does/not/exist: "},
		{[]string{"validate", "--nope"}, "unknown flag: --nope: see bridge validate --help"},
		{[]string{"validate"}, "give -c FILE or set KUBEBRIDGE_CONFIG"},
		{[]string{"checkpoint", "nope"}, `unknown command "nope"`},
		{[]string{"checkpoint", "show", "-o", "xml", "--path", "/x"}, "-o xml"},
		{[]string{"version", "-o", "xml"}, "-o xml"},
		{[]string{"version", "more"}, `"more"`},
		{[]string{"validate", "-c", "/does/not/exist"}, "/does/not/exist: no such file"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			for i := range test.args {
				test.args[i] = strings.Replace(test.args[i], "CONFIG", path, 1)
			}
			bridge(t, test.args...).failed(t, exitConfig, test.says)
		})
	}
}

func TestVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if out := bridge(t, "version").ok(t); !strings.HasPrefix(out, "bridge ") || !strings.Contains(out, runtime.Version()) || !strings.Contains(out, platform) {
		t.Errorf("version prints %q", out)
	}
	var v versionInfo
	if err := json.Unmarshal([]byte(bridge(t, "version", "-o", "json").ok(t)), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || v.Go != runtime.Version() || v.Platform != platform {
		t.Errorf("version is %+v", v)
	}
}

// configFile writes a configuration with two sinks, and returns its path and
// that of its checkpoints.
func configFile(t *testing.T) (path, checkpoints string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, checkpoints = filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "checkpoints")
	text := fmt.Sprintf(`cluster: prod
resources: [pods, deployments.apps]
checkpoint: {file: {path: %q}}
sinks:
  - {name: audit, stdout: {}}
  - {name: live, stdout: {}, resources: [pods]}
`, checkpoints)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, checkpoints
}

func TestValidate(t *testing.T) {
	path, _ := configFile(t)
	want := path + ": ok: 3 resources, 2 sinks\n"
	if got := bridge(t, "validate", "-c", path).ok(t); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	t.Setenv("KUBEBRIDGE_CONFIG", path)
	if got := bridge(t, "validate").ok(t); got != want {
		t.Errorf("with KUBEBRIDGE_CONFIG: prints %q, want %q", got, want)
	}
	bridge(t, "validate", "--cluster", "Prod").failed(t, exitConfig, "--cluster: ", `"Prod"`)

	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "  - {name: more, stdout: {}}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	want = path + ": ok: 3 resources, 3 sinks\n" // two of them share theirs
	if got := bridge(t, "validate").ok(t); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}

	if err := os.WriteFile(path, []byte("nmae: x\nlog: {levle: debug}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := bridge(t, "validate")
	wantErr := "bridge: " + path + `:1:1: nmae: unknown key; did you mean "name"?` + "\n" +
		"bridge: " + path + `:2:7: log.levle: unknown key; did you mean "level"?` + "\n"
	if got.code != exitConfig || got.err != wantErr {
		t.Errorf("code %d, err %q, want %q", got.code, got.err, wantErr)
	}
}

func lane(sink string) event.Identity {
	return event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "5b8f1c34", Sink: sink}
}

// openCheckpoint opens a lane's checkpoint as a running bridge does.
func openCheckpoint(t *testing.T, checkpoints, sink string) *file.Store {
	t.Helper()
	s, err := file.Open(filepath.Join(checkpoints, sink), lane(sink), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// remember makes checkpoints as a bridge leaves them, of every lane.
func remember(t *testing.T, checkpoints string) {
	t.Helper()
	entry := checkpoint.EncodeEntry(checkpoint.Entry{UID: "u", RV: "7", Told: true, Entry: "7"})
	for _, sink := range []string{"audit", "live"} {
		s := openCheckpoint(t, checkpoints, sink)
		err := s.Commit(t.Context(), []event.KV{
			{Key: checkpoint.PositionKey("pods"), Value: checkpoint.EncodePosition(event.Position{RV: "42"})},
			{Key: checkpoint.PositionKey("deployments.apps"), Value: checkpoint.EncodePosition(event.Position{RV: "41", Void: true})},
			{Key: checkpoint.EntryKey("pods", "a", "x"), Value: entry},
			{Key: checkpoint.EntryKey("pods", "b", "y"), Value: entry},
			{Key: checkpoint.EntryKey("deployments.apps", "a", "x"), Value: entry},
			{Key: checkpoint.IntentKey("pods", "a", "z", "u"), Value: entry},
			{Key: checkpoint.MarkKey(), Value: []byte{0xbe, 0xef}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckpointShow(t *testing.T) {
	path, checkpoints := configFile(t)
	audit := filepath.Join(checkpoints, "audit")
	bridge(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, audit, "there is none")
	remember(t, checkpoints)

	out := bridge(t, "checkpoint", "show", "-c", path).ok(t)
	for _, part := range []string{audit, "cluster prod (5b8f1c34)", "sink audit", "sink live", "resumes from 42", "begins with a list", "2 objects", "1 object told", "1 intent"} {
		if !strings.Contains(out, part) {
			t.Errorf("show does not say %q:\n%s", part, out)
		}
	}
	want := []checkpointInfo{{
		Path: audit, Identity: lane("audit"), Intents: 1, Mark: "beef",
		Positions: map[string]event.Position{"pods": {RV: "42"}, "deployments.apps": {RV: "41", Void: true}},
		Objects:   map[string]int{"pods": 2, "deployments.apps": 1},
	}}
	for _, args := range [][]string{{"-c", path, "--sink", "audit"}, {"--path", audit}} {
		var got []checkpointInfo
		if err := json.Unmarshal([]byte(bridge(t, append([]string{"checkpoint", "show", "-o", "json"}, args...)...).ok(t)), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}

	bridge(t, "checkpoint", "show", "-c", path, "--sink", "nope").failed(t, exitConfig, "nope", "audit, live")
	bridge(t, "checkpoint", "show", "--path", filepath.Dir(path)).failed(t, exitEnvironment, "not a checkpoint")
	held := openCheckpoint(t, checkpoints, "audit")
	defer held.Close()
	bridge(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, audit, "in use by another process", "stop the bridge")
}

// due reports whether the next run of a lane begins with a declared reset, and
// whether the checkpoint still knows its objects.
func due(t *testing.T, checkpoints, sink string) (due, knows bool) {
	t.Helper()
	s := openCheckpoint(t, checkpoints, sink)
	defer s.Close()
	reset, err := s.Get(checkpoint.ResetKey())
	if err != nil {
		t.Fatal(err)
	}
	entry, err := s.Get(checkpoint.EntryKey("pods", "a", "x"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(reset, checkpoint.ResetRequested()), entry != nil
}

func TestCheckpointReset(t *testing.T) {
	path, checkpoints := configFile(t)
	remember(t, checkpoints)

	bridge(t, "checkpoint", "reset", "-c", path, "--sink", "audit").failed(t, exitConfig, "add --yes")
	if is, knows := due(t, checkpoints, "audit"); is || !knows {
		t.Errorf("without --yes: reset due %t, objects known %t", is, knows)
	}
	held := openCheckpoint(t, checkpoints, "audit")
	bridge(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").failed(t, exitEnvironment, "in use by another process")
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}

	out := bridge(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").ok(t)
	if !strings.Contains(out, filepath.Join(checkpoints, "audit")) || !strings.Contains(out, "declared reset") {
		t.Errorf("reset says %q", out)
	}
	if is, _ := due(t, checkpoints, "audit"); !is {
		t.Error("no reset is due")
	}
	if is, knows := due(t, checkpoints, "live"); is || !knows {
		t.Errorf("the other sink: reset due %t, objects known %t", is, knows)
	}
	if out := bridge(t, "checkpoint", "show", "-c", path).ok(t); strings.Count(out, "a declared reset is due") != 1 {
		t.Errorf("show does not tell of the reset:\n%s", out)
	}
}

// A damaged checkpoint can be given up like any other: the error that names the
// damage says to do so.
func TestCheckpointResetDamaged(t *testing.T) {
	for _, test := range []struct{ pattern, text, says string }{
		{"KUBEBRIDGE", "damage", "checkpoint is damaged"},
		{"KUBEBRIDGE", "kubebridge checkpoint, format 99\n", "newer version"},
		{"MANIFEST-*", "damage", "checkpoint is damaged"},
		{"*.sst", "damage", "checkpoint is damaged"},
	} {
		t.Run(test.pattern+" "+test.says, func(t *testing.T) {
			path, checkpoints := configFile(t)
			remember(t, checkpoints)
			names, err := filepath.Glob(filepath.Join(checkpoints, "audit", test.pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("no %s: %v", test.pattern, err)
			}
			for _, name := range names {
				if err := os.WriteFile(name, []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			bridge(t, "checkpoint", "show", "-c", path, "--sink", "audit").failed(t, exitEnvironment, test.says, "bridge checkpoint reset")
			bridge(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").ok(t)
			if is, knows := due(t, checkpoints, "audit"); !is || knows {
				t.Errorf("reset due %t, objects known %t", is, knows)
			}
		})
	}
}

// Whose cluster was made anew may give its checkpoint to the new one: the error
// that refuses it says how.
func TestCheckpointResetForget(t *testing.T) {
	path, checkpoints := configFile(t)
	remember(t, checkpoints)
	anew := lane("audit")
	anew.ClusterUID = "another"
	if _, err := file.Open(filepath.Join(checkpoints, "audit"), anew, file.Options{}); err == nil || !strings.Contains(err.Error(), "`bridge checkpoint reset --sink audit --forget`") {
		t.Fatalf("the other cluster's: %v", err)
	}
	bridge(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--forget", "--yes").ok(t)
	s, err := file.Open(filepath.Join(checkpoints, "audit"), anew, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, err := s.Get(checkpoint.ResetKey()); !bytes.Equal(v, checkpoint.ResetRequested()) || err != nil {
		t.Errorf("reset key %q, %v", v, err)
	}
}

// What stands in back quotes in a flag's help is shown as the name of its value.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	root := newRoot(nil)
	checked := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			checked++
			takes, _ := pflag.UnquoteUsage(f)
			want, special := map[string]string{"bool": "", "stringSlice": "strings"}[f.Value.Type()]
			if !special {
				want = f.Value.Type()
			}
			if takes != want {
				t.Errorf("%s --%s: help says that it takes %q, it is a %s", cmd.CommandPath(), f.Name, takes, f.Value.Type())
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
	if checked < 50 {
		t.Errorf("only %d flags were found", checked)
	}
}
