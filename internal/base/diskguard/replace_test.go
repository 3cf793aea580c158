package diskguard

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A machine that loses power must find the last value that was reported as written: a file that is empty instead keeps a bridge from starting.
func TestReplaceIsDurable(t *testing.T) {
	disk := vfs.NewCrashableMem()
	if err := disk.MkdirAll("/state", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", "/state"} {
		d, err := disk.OpenDir(dir)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"first", "second, which is longer", "third"} {
		if err := Replace(disk, "/state/position", "/state/position.new", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, disk.CrashClone(vfs.CrashCloneCfg{}), "/state/position"); got != text {
			t.Errorf("after a crash the file has %q, want %q", got, text)
		}
	}
}

// If writing fails, the former content stays.
func TestReplaceFails(t *testing.T) {
	disk := vfs.NewMem()
	if err := Replace(disk, "position", "new", []byte("before")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename} {
		failing := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		}))
		if err := Replace(failing, "position", "new", []byte("after")); !errors.Is(err, syscall.EIO) {
			t.Errorf("operation %v fails, and Replace returns %v", kind, err)
		}
		if got := content(t, disk, "position"); got != "before" {
			t.Errorf("operation %v fails, and the file has %q", kind, got)
		}
	}
}
