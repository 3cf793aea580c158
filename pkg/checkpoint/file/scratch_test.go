package file

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// scratchVariable makes the test program hold a working copy until it
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

// A bridge that is killed several times does not fill the disk, and the start of one bridge does not
// remove the working copy of another one.
func TestScratch(t *testing.T) {
	if os.Getenv(scratchVariable) != "" {
		s, err := OpenScratch("", testIdentity)
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
	for _, name := range strangers { // their owner is unknown
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
	_ = first.Wait() // returns an error, because the process was killed
	foreign, err := OpenScratch("", other)
	if err != nil {
		t.Fatal(err)
	}
	want(killed, alive, filepath.Base(foreign.path))
	ours, err := OpenScratch("", testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	second, err := OpenScratch("", testIdentity) // of the same process
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

// Other users may write to a shared temporary directory. Files that they put there under the names of a bridge's
// working copies do not make the bridge empty or remove a file of its user.
func TestScratchAmongStrangers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dir, "kubebridge-"+testIdentity.Bridge+"-"+testIdentity.Sink+"-")
	plant := func(path string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(
			os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, markerName), []byte(markUnfinished), 0o600),
			os.Symlink(victim, filepath.Join(path, lockName)), os.Chmod(path, mode),
		); err != nil {
			t.Fatal(err)
		}
	}
	plant(prefix+"1", 0o777)
	plant(prefix+"2", 0o755)
	plant(prefix+"3", 0o700) // like a changed copy of the bridge's own
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	plant(elsewhere, 0o700)
	if err := os.Symlink(elsewhere, prefix+"4"); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // owned by another user
		if err := errors.Join(os.Mkdir(prefix+"5", 0o700), os.WriteFile(filepath.Join(prefix+"5", markerName), []byte(markUnfinished), 0o600), os.Chown(prefix+"5", 12345, 12345)); err != nil {
			t.Fatal(err)
		}
	}
	planted := names(t, dir)
	s, err := OpenScratch("", testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the working copy is open to others: %v, %v", info.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file that links lead to holds %q, %v", text, err)
	}
	if left := names(t, dir); !slices.Equal(left, planted) {
		t.Errorf("the directory holds %q, want what strangers have: %q", left, planted)
	}
}

// Another user may have prepared a checkpoint's directory, with a link in the place of a file that the bridge creates there.
func TestLockIsNoLink(t *testing.T) {
	for _, name := range []string{lockName, markerTemp} {
		dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
		if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(dir, testIdentity, Options{}); !errors.Is(err, ErrNotCheckpoint) {
			t.Errorf("%s: it is taken: %v, %v", name, s, err)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("the file that the link %s leads to holds %q, %v", name, text, err)
		}
	}
}

// A checkpoint's path may be a link to another disk if this user made the link, but not if another user did.
func TestPathIsNoLinkOfOthers(t *testing.T) {
	elsewhere, path := t.TempDir(), filepath.Join(t.TempDir(), "checkpoint")
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Log("only root can make links of other users")
		return
	}
	if err := os.Lchown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(path, testIdentity, Options{}); !errors.Is(err, links.ErrForeign) {
		t.Errorf("it is taken: %v, %v", s, err)
	}
	if err := Reset(path); !errors.Is(err, links.ErrForeign) {
		t.Errorf("it is reset: %v", err)
	}
}
