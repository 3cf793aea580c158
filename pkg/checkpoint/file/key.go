package file

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/links"
)

const keyName = "hash.key"

// KeyBytes is the length of a hash key.
const KeyBytes = 32

// HashKey returns the random key in dir/hash.key. It makes the key, and dir, if
// there is none. If several processes make the key at once, one succeeds and all
// return its key. A key of another user or that everyone may
// read, or of another length, is an error.
func HashKey(dir string) ([]byte, error) {
	name := filepath.Join(dir, keyName)
	if err := links.Check(dir); err != nil {
		return nil, fmt.Errorf("hash key %s: %w", name, err)
	}
	key, err := readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(dir, name); err == nil {
			key, err = readKey(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("hash key %s: %w", name, err)
	}
	return key, nil
}

func readKey(name string) ([]byte, error) {
	f, err := links.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return nil, fmt.Errorf("everyone may use it (mode %o): run chmod 600, or remove it for a new key", mode)
	}
	if info.Size() != KeyBytes {
		return nil, fmt.Errorf("it has %d bytes, a key has %d: put a copy back, or remove it for a new key", info.Size(), KeyBytes)
	}
	key := make([]byte, KeyBytes)
	if _, err := f.Read(key); err != nil {
		return nil, err
	}
	return key, nil
}

// makeKey links a complete file into place, so that a reader never sees a part of a key, and
// an existing key is never replaced.
func makeKey(dir, name string) (err error) {
	if err := makeDir(vfs.Default, dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, keyName+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	key := make([]byte, KeyBytes)
	rand.Read(key) // never fails
	_, err = f.Write(key)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(vfs.Default, dir)
}
