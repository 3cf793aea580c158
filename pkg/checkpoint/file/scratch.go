package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// OpenScratch opens an empty checkpoint in a new temporary directory, which
// Close removes: the working copy of one that is kept elsewhere. It loses nothing
// for as long as the system runs, and syncs nothing. What a process of the same bridge and sink left behind
// when it was killed is removed first.
func OpenScratch(id event.Identity) (*Store, error) {
	name := "kubebridge-" + id.Bridge + "-" + id.Sink + "-"
	removeAbandoned(os.TempDir(), name)
	s, err := openScratch(name, id)
	if err != nil { // another process may have taken it for abandoned before it was locked
		s, err = openScratch(name, id)
	}
	return s, err
}

func openScratch(name string, id event.Identity) (*Store, error) {
	dir, err := os.MkdirTemp("", name)
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
// what is removed is never opened again. What cannot be removed stays.
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
		if !ours || !e.IsDir() || strings.Trim(random, "0123456789") != "" {
			continue
		}
		path := filepath.Join(parent, e.Name())
		if _, err := inspect(vfs.Default, path); err != nil { // it is not a checkpoint
			continue
		}
		if held, err := lock(vfs.Default, path); err == nil {
			_ = os.RemoveAll(path)
			_ = held.Close()
		}
	}
}
