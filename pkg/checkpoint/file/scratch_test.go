package file

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// scratchVariable makes the test program one that holds a working copy until it
// is killed.
const scratchVariable = "KUBEBRIDGE_TEST_SCRATCH"

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A bridge that is killed again and again does not fill the disk; one that runs
// loses nothing to another's start.
func TestScratch(t *testing.T) {
	if os.Getenv(scratchVariable) != "" {
		s, err := OpenScratch(testIdentity)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(s.path + "\n")
		select {}
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	other := event.Identity{Bridge: "other", Cluster: "prod", Sink: "audit"}
	strangers := []string{"kubebridge-kubebridge-audit-1", "kubebridge-kubebridge-audit-notes"}
	for _, name := range strangers { // whose they are we do not know
		if err := os.MkdirAll(filepath.Join(dir, name, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hold := func() (*exec.Cmd, string) {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^TestScratch$")
		c.Env = append(os.Environ(), scratchVariable+"=1")
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return c, filepath.Base(line[:len(line)-1])
	}
	want := func(running ...string) {
		t.Helper()
		running = append(running, strangers...)
		slices.Sort(running)
		if got := names(t, dir); !slices.Equal(got, running) {
			t.Errorf("the directory holds %q, want %q", got, running)
		}
	}
	first, killed := hold()
	_, alive := hold()
	want(killed, alive)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // says that it was killed
	foreign, err := OpenScratch(other)
	if err != nil {
		t.Fatal(err)
	}
	want(killed, alive, filepath.Base(foreign.path))
	ours, err := OpenScratch(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenScratch(testIdentity) // of the same process
	if err != nil {
		t.Fatal(err)
	}
	want(alive, filepath.Base(foreign.path), filepath.Base(ours.path), filepath.Base(second.path))
	for _, s := range []*Store{foreign, ours, second} {
		if err := s.Commit(t.Context(), []event.KV{{Key: []byte("e/a"), Value: []byte("1")}}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	want(alive)
}
