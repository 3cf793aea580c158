package kafka

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The client hands the first records of a new topic to its sender, and only then stores the topic's partitions. A transaction
// that ends in between is aborted, but reported as committed: see awaitLayout. In this test the client waits 100 ms there,
// longer than the whole transaction takes. The client is compiled with that pause, so that other tests of this package are not
// affected.
func TestTransactionBeforeLayout(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the client")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const library = "github.com/twmb/franz-go"
	original, version, _ := strings.Cut(run("list", "-m", "-f", "{{.Dir}} {{.Version}}", library), " ")
	cache, err := os.UserCacheDir()
	must(err)
	// In the same directory every time, the client is compiled once.
	changed := filepath.Join(cache, "kubebridge", "slow-client-"+version)
	if _, err := os.Stat(changed); err != nil {
		must(os.MkdirAll(filepath.Dir(changed), 0o755))
		part, err := os.MkdirTemp(filepath.Dir(changed), "part-")
		must(err)
		defer os.RemoveAll(part)
		must(os.CopyFS(filepath.Join(part, "library"), os.DirFS(original)))
		_ = os.Rename(filepath.Join(part, "library"), changed) // another run may be faster
	}
	write := func(name, text string) {
		path := filepath.Join(changed, "pkg", "kgo", name)
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			must(os.WriteFile(path, []byte(text), 0o600))
		}
	}
	const slow, store = "topics_and_partitions.go", "\tdefer l.v.Store(lv)\n"
	source, err := os.ReadFile(filepath.Join(original, "pkg", "kgo", slow))
	must(err)
	if strings.Count(string(source), store) != 1 {
		t.Fatalf("%s no longer has %q once: find out where it stores the partitions of a new topic, and whether awaitLayout still waits for that", library, store)
	}
	write(slow, strings.Replace(string(source), store, "\tdefer func() { slowly(); l.v.Store(lv) }()\n", 1))
	write("slowly.go", "package kgo\n\nimport \"time\"\n\nfunc slowly() { time.Sleep(100 * time.Millisecond) }\n")

	dir := t.TempDir()
	modfile := filepath.Join(dir, "go.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(dir, "go.sum")} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(run("env", "GOMOD")), from))
		must(err)
		must(os.WriteFile(to, content, 0o600))
	}
	run("mod", "edit", "-replace", library+"="+changed, modfile)
	run("test", "-vet=off", "-count=1", "-modfile", modfile, "-run", "^(TestTornCommit|TestTakenOver|TestNotOurs|TestLookAndReset|TestAborted)$", ".")
}
