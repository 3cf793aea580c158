package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// OpenScratch opens an empty checkpoint in a new directory below parent ("": the
// system's temporary directory), which Close removes. It is the working copy of a checkpoint that
// is kept on a bus. It does not sync, so its data survives only while the system
// runs. It first removes directories that killed processes of the same bridge and sink
// left behind.
//
// Other users may have write access to parent. OpenScratch opens and removes only directories that this user made and
// that other users cannot enter. This relies on the sticky bit of such a parent,
// as /tmp has it: without the sticky bit, other users can move directories of this user.
func OpenScratch(parent string, id event.Identity) (*Store, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	name := "kubebridge-" + id.Bridge + "-" + id.Sink + "-"
	removeAbandoned(parent, name)
	s, err := openScratch(parent, name, id)
	if err != nil { // another process may have removed it as abandoned before it was locked
		s, err = openScratch(parent, name, id)
	}
	return s, err
}

func openScratch(parent, name string, id event.Identity) (*Store, error) {
	dir, err := os.MkdirTemp(parent, name) // mode 0700
	if err != nil {
		return nil, err
	}
	s, err := open(dir, &id, Options{scratch: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// removeAbandoned removes the scratch directories of that name whose lock is free: the kernel
// releases the lock of a process that ends. A name is never used twice, so a
// removed directory is never opened again. Directories that cannot be removed, or that other users
// may have made, stay.
func removeAbandoned(parent, name string) {
	parent, err := canonical(parent)
	if err != nil {
		return
	}
	found, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range found {
		random, ours := strings.CutPrefix(e.Name(), name)
		path := filepath.Join(parent, e.Name())
		if !ours || strings.Trim(random, "0123456789") != "" || !isOwn(path) {
			continue
		}
		if _, err := inspect(vfs.Default, path); err != nil { // it is not a checkpoint
			continue
		}
		if held, err := lock(vfs.Default, path); err == nil {
			_ = os.RemoveAll(path)
			_ = held.Close()
		}
	}
}

// isOwn reports whether path is a directory, not a link, that this user made
// and that other users cannot enter.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && info.Mode().Perm() == 0o700 && isOwner(info)
}
