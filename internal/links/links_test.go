//go:build unix

package links_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubebridge/kubebridge/internal/links"
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
