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
// system's temporary directory), which Close removes: the working copy of one that
// is kept elsewhere. It loses nothing for as long as the system runs, and syncs
// nothing. What a process of the same bridge and sink left behind when it was killed
// is removed first.
//
// Others may write to parent. Only directories that this user made, and that nobody
// else can enter, are opened or removed. That rests on the sticky bit of a parent that
// others may write to, as /tmp has it: without one they can move anybody's directories.
func OpenScratch(parent string, id event.Identity) (*Store, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	name := "kubebridge-" + id.Bridge + "-" + id.Sink + "-"
	removeAbandoned(parent, name)
	s, err := openScratch(parent, name, id)
	if err != nil { // another process may have taken it for abandoned before it was locked
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

// removeAbandoned removes the scratch directories of that name whose lock nobody
// holds: the kernel drops it with the process. A name is never used twice, so
// what is removed is never opened again. What cannot be removed stays, and so does
// what others may have made.
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

// isOwn reports whether path is a directory, and no link to one, that this user made
// and nobody else can enter.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && info.Mode().Perm() == 0o700 && isOwner(info)
}
