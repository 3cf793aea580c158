package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/internal/operate/inspect"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// asProgram makes the test binary run as the program.
const asProgram = "KUBEBRIDGE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// result has the output and the exit code of a command.
type result struct {
	code     int
	out, err string
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs screen
	code := execute(t.Context(), args, streams{out: &out, err: &errs, in: strings.NewReader("yes\n")})
	return result{code, out.String(), errs.String()}
}

// failed checks that a command failed with an exit code, and with one line on standard error that has all parts and no
// usage text.
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
		{[]string{"tial", "pods"}, `unknown command "tial pods" for "bridge"; did you mean "tail"?`},
		{[]string{"checkpoint", "shwo"}, `did you mean "show"?`},
		{[]string{"run", "bridge.yaml"}, `bridge run takes no arguments, but "bridge.yaml" is one (a configuration file is given with -c): see bridge run --help`},
		{[]string{"tail"}, "bridge tail needs RESOURCE..."},
		{[]string{"tail", "pods", "-o", "xml"}, "-o xml: the formats are pretty, json, yaml, name"},
		{[]string{"tail", "pods", "-A", "-n", "shop"}, "-A and -n exclude each other"},
		{[]string{"tail", "pods", "-c", "CONFIG"}, "takes resources or -c FILE, not both"},
		{[]string{"tail", "-c", "CONFIG", "-l", "a=b"}, "set the selection in the configuration"},
		{[]string{"run", "-o", "json", "-c", "CONFIG"}, "-o goes with --dry-run"},
		{[]string{"run", "--dry-run", "--follow", "-c", "CONFIG"}, "--follow and --dry-run exclude each other"},
		{[]string{"run", "--dry-run", "-o", "xml", "-c", "CONFIG"}, "-o xml: the formats are"},
		{[]string{"tail", "pods", "-n", "A_B"}, "-n A_B: not a valid namespace name"},
		{[]string{"schema", "nope"}, `bridge schema takes config|event, not "nope"`},
		{[]string{"explain", "a", "b"}, `bridge explain takes [KEY], not "a b"`},
		{[]string{"estimate"}, "give -c FILE or set KUBEBRIDGE_CONFIG"},
		{[]string{"estimate", "--for", "soon"}, `invalid argument "soon"`},
		{[]string{"top", "--watch"}, "unknown flag: --watch: see bridge top --help"},
		{[]string{"status", "here"}, `bridge status takes no arguments, but "here" is one`},
		{[]string{"init", "--kafka"}, "flag needs an argument"},
		{[]string{"completion", "nope"}, `unknown command "nope"`},
		{[]string{"help", "nope"}, `there is no help on "nope"`},
		{[]string{"resync"}, "bridge resync needs RESOURCE"},
		{[]string{"rbac", "--bus", "--audit-policy", "-c", "CONFIG"}, "--bus and --audit-policy exclude each other"},
		{[]string{"rbac", "--bus", "--principal", "me", "-c", "CONFIG"}, "--principal me: Kafka's ACLs name a user as User:me"},
		{[]string{"history", "pods"}, `"pods" is not RESOURCE/NAME: write for example deploy/web -n shop`},
		{[]string{"history", "pods", "shop/a", "-n", "other"}, "-n other: shop/a names another namespace"},
		{[]string{"history", "pods", "a/b/c"}, `"a/b/c" is not the name of an object`},
		{[]string{"history", "pods", "a/b", "--until", "now"}, `--until: "now" is neither a time like`},
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
			command(t, test.args...).failed(t, exitConfig, test.says)
		})
	}
}

func TestVersion(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if out := command(t, "version").ok(t); !strings.HasPrefix(out, "bridge ") || !strings.Contains(out, runtime.Version()) || !strings.Contains(out, platform) {
		t.Errorf("version prints %q", out)
	}
	var v versionInfo
	if err := json.Unmarshal([]byte(command(t, "version", "-o", "json").ok(t)), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || v.Go != runtime.Version() || v.Platform != platform {
		t.Errorf("version is %+v", v)
	}
}

// configFile writes a configuration with two sinks, and returns the paths of the file and
// of the checkpoints.
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
	if got := command(t, "validate", "-c", path).ok(t); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
	t.Setenv("KUBEBRIDGE_CONFIG", path)
	if got := command(t, "validate").ok(t); got != want {
		t.Errorf("with KUBEBRIDGE_CONFIG: prints %q, want %q", got, want)
	}
	command(t, "validate", "--cluster", "Prod").failed(t, exitConfig, "--cluster: ", `"Prod"`)

	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "  - {name: more, stdout: {}}\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	want = path + ": ok: 3 resources, 3 sinks\n" // two of them share theirs
	if got := command(t, "validate").ok(t); got != want {
		t.Errorf("prints %q, want %q", got, want)
	}

	if err := os.WriteFile(path, []byte("nmae: x\nlog: {levle: debug}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := command(t, "validate")
	wantErr := "bridge: " + path + `:1:1: nmae: unknown key; did you mean "name"?` + "\n" +
		"bridge: " + path + `:2:7: log.levle: unknown key; did you mean "level"?` + "\n"
	if got.code != exitConfig || got.err != wantErr {
		t.Errorf("code %d, err %q, want %q", got.code, got.err, wantErr)
	}
}

func testIdentity(sink string) event.Identity {
	return event.Identity{Bridge: "kubebridge", Cluster: "prod", ClusterUID: "5b8f1c34", Sink: sink}
}

// openCheckpoint opens a sink's checkpoint as a running bridge does.
func openCheckpoint(t *testing.T, checkpoints, sink string) *file.Store {
	t.Helper()
	s, err := file.Open(filepath.Join(checkpoints, sink), testIdentity(sink), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// remember makes checkpoints of all sinks as a bridge leaves them: two pods are published.
func remember(t *testing.T, checkpoints string) {
	t.Helper()
	for _, sink := range []string{"audit", "live"} {
		s := openCheckpoint(t, checkpoints, sink)
		rememberIn(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// rememberIn lets the core list two pods, and commits its decisions to an empty store.
func rememberIn(t *testing.T, s checkpoint.Store) {
	t.Helper()
	core := loadCore(t, s)
	for _, in := range []reconcile.Input{
		{Kind: reconcile.Configure},
		{Kind: reconcile.ListBegun},
		seen(reconcile.List, "a", "40"),
		seen(reconcile.List, "b", "41"),
		{Kind: reconcile.ListEnded, Version: "42"},
		{Kind: reconcile.ListDone},
	} {
		step(core, in)
	}
	b := core.Seal()
	err := errors.Join(s.Commit(t.Context(), durable.NewMemory().Before(b)), s.Commit(t.Context(), append(durable.NewMemory().Changes(b, true), event.KV{Key: checkpoint.MarkKey(), Value: []byte{0xbe, 0xef}})))
	if err != nil {
		t.Fatal(err)
	}
}

// interrupt passes a change of pod a and the deletion of pod b to the core, and commits the drafts and intents that precede
// the write to the bus.
func interrupt(t *testing.T, s checkpoint.Store) {
	t.Helper()
	core := loadCore(t, s)
	step(core, reconcile.Input{Kind: reconcile.Configure})
	step(core, seen(reconcile.Watch, "a", "43"))
	gone := seen(reconcile.Watch, "b", "44")
	gone.Sighting.Form = reconcile.Ended
	step(core, gone)
	step(core, reconcile.Input{Kind: reconcile.Confirm})
	if err := s.Commit(t.Context(), durable.NewMemory().Before(core.Seal())); err != nil {
		t.Fatal(err)
	}
}

func loadCore(t *testing.T, s checkpoint.Store) *reconcile.Core {
	t.Helper()
	state, err := durable.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return reconcile.NewCore(durable.NewInventory(s), state, firstRun)
}

// firstRun is the first run of the collection of [rememberIn].
const firstRun = 1790000000001

func step(core *reconcile.Core, in reconcile.Input) {
	in.Collection, in.Now, in.Read = "pods", firstRun, core.Reading("pods").Number
	core.Step(&in)
}

// seen returns the input for an object of a list or of a watch.
func seen(origin reconcile.Origin, name, version string) reconcile.Input {
	return reconcile.Input{Kind: reconcile.Sighted, Resume: version, Sighting: &reconcile.Sighting{
		Origin: origin, Key: durable.ObjectKey("shop", name), UID: "uid-" + name, Version: version, Digest: reconcile.Digest{1},
	}}
}

func TestCheckpointShow(t *testing.T) {
	path, checkpoints := configFile(t)
	audit := filepath.Join(checkpoints, "audit")
	command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, audit, "there is none")
	remember(t, checkpoints)

	want := inspect.Checkpoint{
		Path: audit, Identity: testIdentity("audit"), Format: 4, Mark: "beef", Epochs: map[string]uint64{"": 1}, Owed: []string{},
		Collections: []inspect.Collection{{
			ID: "pods", Phase: "in step", Run: firstRun, Incarnation: firstRun, Epoch: 1, Position: "42", Seen: "42", Objects: durable.Holdings{Published: 2},
		}},
	}
	for _, args := range [][]string{{"-c", path, "--sink", "audit"}, {"--path", audit}} {
		if diff := cmp.Diff([]inspect.Checkpoint{want}, shown(t, args...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
	s := openCheckpoint(t, checkpoints, "audit")
	interrupt(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want.Collections[0].InDoubt = &inspect.Doubt{Phase: "in step", Run: firstRun, Events: []string{"synced"}, Objects: 2, Deletions: 1}
	if diff := cmp.Diff([]inspect.Checkpoint{want}, shown(t, "--path", audit)); diff != "" {
		t.Errorf("with a batch in doubt (-want +got):\n%s", diff)
	}
	out := command(t, "checkpoint", "show", "-c", path).ok(t)
	for _, part := range []string{
		audit + ": bridge kubebridge, cluster prod (5b8f1c34), sink audit, format 4\n", "sink live", "epoch 1 of the API server's storage",
		"synced, 2 objects, 1 deletion, then in step", "the next start publishes what is missing of it",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("show does not say %q:\n%s", part, out)
		}
	}
	row := regexp.MustCompile(`  pods +in step: watches from the position +42 +2 +1790000000001 +1790000000001 +1 +- +-\n`)
	if !row.MatchString(out) {
		t.Errorf("show does not have a row like %s:\n%s", row, out)
	}

	command(t, "checkpoint", "show", "-c", path, "--sink", "nope").failed(t, exitConfig, "nope", "audit, live")
	command(t, "checkpoint", "show", "--path", filepath.Dir(path)).failed(t, exitEnvironment, "not a checkpoint")
	held := openCheckpoint(t, checkpoints, "audit")
	defer held.Close()
	command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, audit, "in use by another process", "stop the bridge")
}

// shown returns what `checkpoint show -o json` prints.
func shown(t *testing.T, args ...string) (got []inspect.Checkpoint) {
	t.Helper()
	if err := json.Unmarshal([]byte(command(t, append([]string{"checkpoint", "show", "-o", "json"}, args...)...).ok(t)), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// `checkpoint show` shows the whole checkpoint of a real run.
func TestCheckpointShowAfterRun(t *testing.T) {
	smallCluster(t)
	path, checkpoints := runnable(t)
	log, stop := start(t, path)
	log.awaits(t, `"msg":"synced"`)
	if code := stop(); code != exitOK {
		t.Fatalf("the bridge ends with %d:\n%s", code, log)
	}
	got := shown(t, "-c", path)[0]
	if got.Plan == 0 || got.Birth == 0 || len(got.Collections) != 1 {
		t.Fatalf("shows %+v", got)
	}
	pods := &got.Collections[0]
	run := pods.Run
	if run < got.Birth || pods.Edit == 0 || pods.Edit > got.Plan {
		t.Errorf("run %d, edit %d of plan %d, birth %d", run, pods.Edit, got.Plan, got.Birth)
	}
	want := inspect.Collection{
		ID: "pods", Phase: "in step", Run: run, Incarnation: run, Epoch: 1, Position: "42", Seen: "42", Objects: durable.Holdings{Published: 2}, Bodies: 2, Edit: pods.Edit,
	}
	if diff := cmp.Diff(want, *pods); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if out := command(t, "checkpoint", "show", "-c", path).ok(t); !strings.Contains(out, fmt.Sprintf("plan %d; the checkpoint began, or was reset, on 20", got.Plan)) || !strings.Contains(out, "2, 2 kept for diffs") {
		t.Errorf("shows %s", out)
	}
	s := openCheckpoint(t, checkpoints, "audit")
	key, err := durable.LoadKey(s)
	if err := errors.Join(err, s.Close()); err != nil || key == nil {
		t.Fatalf("the key of digests is %x: %v", key, err)
	}
	said := log.String() + command(t, "checkpoint", "show", "-c", path).ok(t) + command(t, "checkpoint", "show", "-c", path, "-o", "json").ok(t)
	for _, text := range []string{string(key), fmt.Sprintf("%x", key), fmt.Sprintf("%X", key), fmt.Sprintf("%d", key), base64.StdEncoding.EncodeToString(key)} {
		if strings.Contains(said, text) {
			t.Errorf("the key of digests is shown: %s", text)
		}
	}
}

// A checkpoint in an older or newer format ends the program at its start, with one line that names its place and
// the remedy. The remedy works.
func TestRunRefusesOtherFormats(t *testing.T) {
	smallCluster(t)
	for format, says := range map[string]string{"3": "checkpoint was written by an older version", "5": "checkpoint was written by a newer version"} {
		path, checkpoints := runnable(t)
		remember(t, checkpoints)
		audit := filepath.Join(checkpoints, "audit")
		write(t, filepath.Join(audit, "KUBEBRIDGE"), "kubebridge checkpoint, format "+format+"\n")
		log, stop := start(t, path)
		log.awaits(t, "bridge: ")
		if code := stop(); code != exitEnvironment {
			t.Errorf("format %s: the bridge ends with %d", format, code)
		}
		_, last, _ := strings.Cut(log.String(), "bridge: ")
		for _, part := range []string{audit, says, "it has format " + format + ", this version reads format 4", "`bridge checkpoint reset --sink audit`"} {
			if !strings.Contains(last, part) {
				t.Errorf("format %s: it does not say %q:\n%s", format, part, last)
			}
		}
		if strings.Count(last, "\n") != 1 || strings.Contains(log.String(), "goroutine ") {
			t.Errorf("format %s: it says more than one line:\n%s", format, last)
		}
		command(t, "validate", "-c", path).ok(t)
		command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, says)
		if out := command(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").ok(t); !strings.Contains(out, "it cannot be read and is emptied") {
			t.Errorf("reset says %q", out)
		}
		log, stop = start(t, path)
		log.awaits(t, `"msg":"synced"`)
		if code := stop(); code != exitOK {
			t.Errorf("format %s: after the reset the bridge ends with %d:\n%s", format, code, log)
		}
	}
}

// A damaged checkpoint ends the program at its start, before it writes anything.
func TestRunRefusesADamagedCheckpoint(t *testing.T) {
	smallCluster(t)
	path, checkpoints := runnable(t)
	remember(t, checkpoints)
	manifests, err := filepath.Glob(filepath.Join(checkpoints, "audit", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifest: %v", err)
	}
	for _, name := range manifests {
		write(t, name, "damage")
	}
	log, stop := start(t, path)
	log.awaits(t, "bridge: ")
	if code := stop(); code != exitEnvironment {
		t.Errorf("the bridge ends with %d", code)
	}
	_, last, _ := strings.Cut(log.String(), "bridge: ")
	for _, part := range []string{"checkpoint is damaged", "`bridge checkpoint reset --sink audit`"} {
		if !strings.Contains(last, part) {
			t.Errorf("it does not say %q:\n%s", part, last)
		}
	}
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "events.jsonl")); len(text) > 0 {
		t.Errorf("it has written %s (%v)", text, err)
	}
}

// A checkpoint whose content does not parse can be reset: reset does not need to read it.
func TestCheckpointResetOfBrokenContent(t *testing.T) {
	smallCluster(t)
	path, checkpoints := runnable(t)
	for _, broken := range []event.KV{{Key: []byte("c/pods"), Value: []byte("{")}, {Key: []byte("n/plan"), Value: []byte("{")}, {Key: []byte("o/pods/shop/a"), Value: []byte{9}}} {
		s := openCheckpoint(t, checkpoints, "audit")
		if err := errors.Join(s.Commit(t.Context(), []event.KV{broken}), s.Close()); err != nil {
			t.Fatal(err)
		}
		command(t, "checkpoint", "show", "-c", path).failed(t, exitEnvironment, "checkpoint is damaged", "`bridge checkpoint reset`")
		if string(broken.Key) != "o/pods/shop/a" { // it is read when the object is read from the cluster
			log, stop := start(t, path)
			log.awaits(t, "bridge: ")
			if code := stop(); code != exitEnvironment || !strings.Contains(log.String(), "or give it up with `bridge checkpoint reset`") {
				t.Errorf("%s: the bridge ends with %d:\n%s", broken.Key, code, log)
			}
		}
		command(t, "checkpoint", "reset", "-c", path, "--yes").ok(t)
		log, stop := start(t, path)
		log.awaits(t, `"msg":"synced"`)
		if code := stop(); code != exitOK {
			t.Errorf("%s: after the reset the bridge ends with %d:\n%s", broken.Key, code, log)
		}
		if got := shown(t, "-c", path)[0]; got.Reset || got.Collections[0].Objects.Published != 2 {
			t.Errorf("%s: after the reset: %+v", broken.Key, got)
		}
	}
}

// runnable writes a configuration with a file sink, for [smallCluster].
func runnable(t *testing.T) (path, checkpoints string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path, checkpoints = filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "checkpoints")
	write(t, path, fmt.Sprintf(`cluster: prod
resources:
  - {resource: pods, diff: both}
checkpoint: {file: {path: %q}}
sinks:
  - {name: audit, file: {path: %q}}
`, checkpoints, filepath.Join(dir, "events.jsonl")))
	return path, checkpoints
}

// due reports whether the next run of a pipeline begins with a reset, and
// whether the checkpoint still has its objects.
func due(t *testing.T, checkpoints, sink string) (due, knows bool) {
	t.Helper()
	s := openCheckpoint(t, checkpoints, sink)
	defer s.Close()
	reset, err := s.Get(checkpoint.ResetKey())
	if err != nil {
		t.Fatal(err)
	}
	n, err := durable.Count(s, "pods", 0)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(reset, checkpoint.ResetRequested()), n > 0
}

func TestCheckpointReset(t *testing.T) {
	path, checkpoints := configFile(t)
	remember(t, checkpoints)

	command(t, "checkpoint", "reset", "-c", path, "--sink", "audit").failed(t, exitConfig, "add --yes")
	if is, knows := due(t, checkpoints, "audit"); is || !knows {
		t.Errorf("without --yes: reset due %t, objects known %t", is, knows)
	}
	held := openCheckpoint(t, checkpoints, "audit")
	command(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").failed(t, exitEnvironment, "in use by another process")
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}

	out := command(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").ok(t)
	if !strings.Contains(out, filepath.Join(checkpoints, "audit")) || !strings.Contains(out, "the next start resets every collection") {
		t.Errorf("reset says %q", out)
	}
	if is, _ := due(t, checkpoints, "audit"); !is {
		t.Error("no reset is due")
	}
	if is, knows := due(t, checkpoints, "live"); is || !knows {
		t.Errorf("the other sink: reset due %t, objects known %t", is, knows)
	}
	if out := command(t, "checkpoint", "show", "-c", path).ok(t); strings.Count(out, "the next start resets every collection") != 1 {
		t.Errorf("show does not report the reset:\n%s", out)
	}
}

// A damaged checkpoint can be reset like any other, as its error says.
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
			command(t, "checkpoint", "show", "-c", path, "--sink", "audit").failed(t, exitEnvironment, test.says, "bridge checkpoint reset")
			command(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--yes").ok(t)
			if is, knows := due(t, checkpoints, "audit"); !is || knows {
				t.Errorf("reset due %t, objects known %t", is, knows)
			}
		})
	}
}

// If a cluster was created again, its checkpoint can be given to the new one, as
// the error says.
func TestCheckpointResetForget(t *testing.T) {
	path, checkpoints := configFile(t)
	remember(t, checkpoints)
	second := testIdentity("audit")
	second.ClusterUID = "another"
	if _, err := file.Open(filepath.Join(checkpoints, "audit"), second, file.Options{}); err == nil || !strings.Contains(err.Error(), "`bridge checkpoint reset --sink audit --forget`") {
		t.Fatalf("the other cluster's: %v", err)
	}
	command(t, "checkpoint", "reset", "-c", path, "--sink", "audit", "--forget", "--yes").ok(t)
	s, err := file.Open(filepath.Join(checkpoints, "audit"), second, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, err := s.Get(checkpoint.ResetKey()); !bytes.Equal(v, checkpoint.ResetRequested()) || err != nil {
		t.Errorf("reset key %q, %v", v, err)
	}
}

// Text in back quotes in a flag's help is shown as the name of its value.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	root := newRoot(&streams{})
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

// A command takes the flags that override settings only where the setting matters to it. cluster and checkpoint-path matter wherever the
// configuration is read: without them it may be incomplete.
func TestOverridingFlags(t *testing.T) {
	all := []string{"checkpoint-path", "cluster", "context", "kubeconfig", "log-format", "log-level", "name", "status-listen"}
	want := map[string][]string{
		"bridge run": all, "bridge validate": all,
		"bridge rbac":             {"checkpoint-path", "cluster", "context", "kubeconfig", "name"},
		"bridge estimate":         {"checkpoint-path", "cluster", "context", "kubeconfig", "log-format", "name"},
		"bridge status":           {"checkpoint-path", "cluster", "context", "kubeconfig", "status-listen"},
		"bridge top":              {"checkpoint-path", "cluster", "context", "kubeconfig", "status-listen"},
		"bridge resync":           {"checkpoint-path", "cluster"},
		"bridge checkpoint show":  {"checkpoint-path", "cluster", "name"},
		"bridge checkpoint reset": {"checkpoint-path", "cluster", "name"},
	}
	got := map[string][]string{}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "(overrides ") {
				got[cmd.CommandPath()] = append(got[cmd.CommandPath()], f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRoot(&streams{}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	path, _ := runnable(t)
	command(t, "resync", "pods", "-c", path, "--log-level", "debug").failed(t, exitConfig, "unknown flag: --log-level")
}
