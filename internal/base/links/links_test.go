//go:build linux

package links_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubebridge/kubebridge/internal/base/links"
)

// A link that another user owns, at the end of a path or above it, is not followed. Otherwise the program would write
// to a file of its own user that the other user may not write. Links of the program's own user are followed, because
// people move directories to other disks.
func TestLinksOfOthers(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	victim := filepath.Join(elsewhere, "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, filepath.Join(dir, "file")), os.Symlink(elsewhere, filepath.Join(dir, "directory"))); err != nil {
		t.Fatal(err)
	}
	paths := []string{filepath.Join(dir, "file"), filepath.Join(dir, "directory", "victim"), filepath.Join(dir, "directory", "new")}
	open := func(path string) error {
		f, err := links.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	for _, path := range paths {
		if err := open(path); err != nil {
			t.Errorf("own link: %v", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("only root can make links of other users")
		return
	}
	const other = 12345
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Remove(filepath.Join(elsewhere, "new")),
		os.Lchown(filepath.Join(dir, "file"), other, other), os.Lchown(filepath.Join(dir, "directory"), other, other)); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if err := open(path); !errors.Is(err, links.ErrForeign) {
			t.Errorf("%s is opened: %v", path, err)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file that the links lead to holds %q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(elsewhere, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made where a link leads: %v", err)
	}
}

// A file or directory of another user is not taken: the other user could read what the program writes there, and change what it
// reads. A volume's files may belong to the owner of its root directory.
func TestFilesOfOthers(t *testing.T) {
	const other = 12345
	if os.Geteuid() != 0 {
		t.Log("only root can make files of other users")
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), links.Check(dir), links.Check(path)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, other, other); err != nil {
		t.Fatal(err)
	}
	if f, err := links.OpenFile(path, os.O_RDWR, 0); !errors.Is(err, links.ErrOwner) {
		t.Errorf("the file is opened: %v, %v", f, err)
	}
	if err := os.Chown(dir, other, other); err != nil {
		t.Fatal(err)
	}
	err := links.Check(dir)
	if !errors.Is(err, links.ErrOwner) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "chown 0") {
		t.Errorf("the directory passes, or the error does not say what to do: %v", err)
	}
	volume := t.TempDir()
	if err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "uid=12345,mode=0777"); err != nil {
		t.Logf("no volume: %v", err)
		return
	}
	defer func() { _ = syscall.Unmount(volume, 0) }()
	kept := filepath.Join(volume, "kept")
	if err := errors.Join(os.WriteFile(kept, nil, 0o600), os.Chown(kept, other, other)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{volume, kept} {
		if err := links.Check(path); err != nil {
			t.Errorf("on a volume of one user: %v", err)
		}
	}
	if err := os.Chown(kept, other+1, other+1); err != nil {
		t.Fatal(err)
	}
	if err := links.Check(kept); !errors.Is(err, links.ErrOwner) {
		t.Errorf("a file of a third user on the volume passes: %v", err)
	}
}
