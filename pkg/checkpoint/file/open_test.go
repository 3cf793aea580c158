package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// refused opens path and checks the error that it wraps and the texts in it.
func refused(t *testing.T, path string, id event.Identity, want error, says ...string) {
	t.Helper()
	s, err := Open(path, id, Options{})
	if err == nil {
		_ = s.Close()
		t.Fatalf("opened %s, want %v", path, want)
	}
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	for _, part := range append(says, path) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has more than one line", err)
	}
}

// testDir returns the path of a temporary directory without symbolic links.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "audit")
}

// written returns a closed checkpoint with the commits 0 to 9.
func written(t *testing.T) string {
	t.Helper()
	path := testDir(t)
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		if err := s.Commit(t.Context(), fill(n)); err != nil {
			t.Fatal(err)
		}
		if n == 5 {
			flush(t, s)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestForeign(t *testing.T) {
	path := written(t)
	other := func(change func(*event.Identity)) event.Identity {
		id := testIdentity
		change(&id)
		return id
	}
	for name, test := range map[string]struct {
		id   event.Identity
		says []string
	}{
		"cluster": {other(func(id *event.Identity) { id.ClusterUID = "another" }), []string{testIdentity.ClusterUID, "another", "checkpoint reset --sink audit"}},
		"bridge":  {other(func(id *event.Identity) { id.Bridge = "second" }), []string{`"kubebridge"`, `"second"`}},
		"sink":    {other(func(id *event.Identity) { id.Sink = "live" }), []string{`"audit"`, `"live"`, "checkpoint reset --sink live"}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, path, test.id, checkpoint.ErrForeign, test.says...) })
	}
	t.Run("a cluster may be renamed", func(t *testing.T) {
		renamed := other(func(id *event.Identity) { id.Cluster = "prod-eu-1" })
		s, err := Open(path, renamed, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got, err := s.Identity(); got != renamed || err != nil {
			t.Errorf("identity %+v, %v, want %+v", got, err, renamed)
		}
		if got := filled(t, s); got != 9 {
			t.Errorf("commit %d is there, want 9", got)
		}
	})
}

func TestLocked(t *testing.T) {
	path := written(t)
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	link := path + "-link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	refused(t, path, testIdentity, checkpoint.ErrLocked, "stop the bridge")
	if s, err := Open(link, testIdentity, Options{}); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("by another name: %v, %v", s, err)
	}
	if _, err := OpenReadOnly(path); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("for reading: %v, want %v", err, checkpoint.ErrLocked)
	}
	if err := Reset(path); !errors.Is(err, checkpoint.ErrLocked) {
		t.Errorf("reset: %v, want %v", err, checkpoint.ErrLocked)
	}
	if err := s.Commit(t.Context(), fill(10)); err != nil {
		t.Errorf("the holder: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path, testIdentity, Options{}); err != nil {
		t.Fatalf("once released: %v", err)
	}
	defer s.Close()
	if got := filled(t, s); got != 10 {
		t.Errorf("commit %d is there, want 10", got)
	}
}

func TestNotACheckpoint(t *testing.T) {
	dir := filepath.Dir(testDir(t))
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, file, testIdentity, ErrNotCheckpoint, "it is a file", "choose an empty or a new directory")
	refused(t, dir, testIdentity, ErrNotCheckpoint, `"file"`)
	refused(t, filepath.Join(file, "below"), testIdentity, syscall.ENOTDIR)
	if err := Reset(dir); !errors.Is(err, ErrNotCheckpoint) {
		t.Errorf("reset: %v, want %v", err, ErrNotCheckpoint)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("a foreign directory was written to: %v, %v", names, err)
	}
	if s, err := Open("", testIdentity, Options{}); err == nil {
		t.Errorf("opened the empty path: %v", s)
	}
}

// The directory has no write permission. The error is constructed, because root can write to any directory.
func TestUnwritable(t *testing.T) {
	on := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpMkdirAll {
			return &fs.PathError{Op: "mkdir", Path: op.Path, Err: syscall.EACCES}
		}
		return nil
	}))
	_, err := open("/x", &testIdentity, Options{fs: on})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "checkpoint /x: create directory: mkdir /x: permission denied: let user") {
		t.Errorf("error %v", err)
	}
}

func TestModes(t *testing.T) {
	path := written(t)
	err := filepath.Walk(path, func(name string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o: others may use it", name, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOtherFormats(t *testing.T) {
	path := written(t)
	for text, want := range map[string]struct {
		err  error
		says string
	}{
		"kubebridge checkpoint, format 5\n": {checkpoint.ErrNewer, "run the newer version"},
		"kubebridge checkpoint, format 3\n": {checkpoint.ErrOlder, "give it up with `bridge checkpoint reset --sink audit`"},
	} {
		if err := os.WriteFile(filepath.Join(path, markerName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, path, testIdentity, want.err, "format "+text[len(text)-2:len(text)-1]+", this version reads format 4", want.says)
	}
	if err := Reset(path); err != nil {
		t.Errorf("reset of a checkpoint in an older format: %v", err)
	}
}

// The start after Reset is a reset, even if the first one
// crashes: otherwise consumers would keep objects that were deleted in the meantime.
func TestReset(t *testing.T) {
	path := written(t)
	key, err := HashKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Reset(path); err != nil {
		t.Fatal(err)
	}
	if err := Reset(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("second reset: %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := OpenReadOnly(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open for reading: %v, want %v", err, fs.ErrNotExist)
	}
	if again, err := HashKey(path); err != nil || !bytes.Equal(key, again) {
		t.Errorf("the hash key did not survive: %v", err)
	}

	d := newDisk(vfs.Default)
	other := testIdentity
	other.Bridge = "second" // an empty checkpoint has no owner
	for point := int64(0); ; point += 5 {
		d.left.Store(point)
		s, err := open(path, &other, Options{fs: d})
		if err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			continue
		}
		d.left.Store(plenty)
		if got := filled(t, s); got != -1 {
			t.Errorf("commit %d is there", got)
		}
		if v, err := s.Get(checkpoint.ResetKey()); !bytes.Equal(v, checkpoint.ResetRequested()) || err != nil {
			t.Errorf("after %d operations that failed: reset key %q, %v", point, v, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// If the creation of a checkpoint is interrupted, the next opening starts it again, without a reset.
func TestUnfinished(t *testing.T) {
	path := written(t)
	if err := writeMarker(vfs.Default, path, markUnfinished); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open for reading: %v, want %v", err, fs.ErrNotExist)
	}
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := filled(t, s); got != -1 {
		t.Errorf("commit %d is there", got)
	}
	if v, err := s.Get(checkpoint.ResetKey()); v != nil || err != nil {
		t.Errorf("reset key %q, %v", v, err)
	}
}

func TestReadOnly(t *testing.T) {
	path := written(t)
	before := snapshot(t, path)
	s, err := OpenReadOnly(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := filled(t, s); got != 9 {
		t.Errorf("commit %d is there, want 9", got)
	}
	if id, err := s.Identity(); id != testIdentity || err != nil {
		t.Errorf("identity %+v, %v, want %+v", id, err, testIdentity)
	}
	if err := s.Commit(t.Context(), fill(10)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("commit: %v, want %v", err, ErrReadOnly)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, path); after != before {
		t.Errorf("reading changed the files:\n%s\n%s", before, after)
	}
}

func snapshot(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	names, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		info, err := n.Info()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, n.Name(), info.Size(), info.ModTime().UnixNano()*btoi(n.Name() != lockName))
	}
	return b.String()
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func TestClosed(t *testing.T) {
	s, err := OpenMem(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get([]byte("e/a")); !errors.Is(err, ErrClosed) {
		t.Errorf("get: %v, want %v", err, ErrClosed)
	}
	if err := s.Commit(t.Context(), fill(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("commit: %v, want %v", err, ErrClosed)
	}
}

func TestHashKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "directory")
	keys := make([][]byte, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			key, err := HashKey(dir)
			if err != nil {
				t.Error(err)
			}
			keys[i] = key
		})
	}
	all.Wait()
	for _, key := range keys {
		if len(key) != KeyBytes || !bytes.Equal(key, keys[0]) || bytes.Equal(key, make([]byte, KeyBytes)) {
			t.Fatalf("keys differ, or are none: %x", keys)
		}
	}
	name := filepath.Join(dir, keyName)
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// The key can be in the pipeline's own directory.
	s, err := Open(dir, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	bad := func(what string, says string) {
		t.Helper()
		key, err := HashKey(dir)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %x, %v", what, key, err)
		}
		if err != nil && strings.Contains(err.Error(), string(keys[0])) {
			t.Errorf("%s: the error contains the key", what)
		}
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	bad("readable by all", "everyone may use it (mode 644)")
	if err := os.WriteFile(name, keys[0][:12], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	bad("short", "it has 12 bytes, a key has 32")
}
