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
	dir := t.TempDir()
	must(os.CopyFS(filepath.Join(dir, "library"), os.DirFS(run("list", "-m", "-f", "{{.Dir}}", library))))
	slow := filepath.Join(dir, "library", "pkg", "kgo", "topics_and_partitions.go")
	source, err := os.ReadFile(slow)
	must(err)
	const store = "\tdefer l.v.Store(lv)\n"
	if strings.Count(string(source), store) != 1 {
		t.Fatalf("%s no longer has %q once: find out where it stores the partitions of a new topic, and whether awaitLayout still waits for that", library, store)
	}
	text := strings.Replace(string(source), store, "\tdefer func() { slowly(); l.v.Store(lv) }()\n", 1)
	must(os.WriteFile(slow, []byte(text), 0o600))
	must(os.WriteFile(filepath.Join(filepath.Dir(slow), "slowly.go"), []byte("package kgo\n\nimport \"time\"\n\nfunc slowly() { time.Sleep(100 * time.Millisecond) }\n"), 0o600))

	modfile := filepath.Join(dir, "go.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(dir, "go.sum")} {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(run("env", "GOMOD")), from))
		must(err)
		must(os.WriteFile(to, content, 0o600))
	}
	run("mod", "edit", "-replace", library+"="+filepath.Join(dir, "library"), modfile)
	run("test", "-modfile", modfile, "-run", "^(TestTornCommit|TestTakenOver|TestNotOurs|TestLookAndReset|TestAborted)$", ".")
}
