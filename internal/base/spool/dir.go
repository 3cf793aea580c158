package spool

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/links"
)

const (
	lockName     = "LOCK"
	localKeyName = "local.key"
)

// directory is where a spool keeps its files.
type directory struct {
	fs   vfs.FS
	path string
	lock io.Closer
}

// openDirectory makes the directory if it does not exist, and locks it.
func openDirectory(fsys vfs.FS, path string) (*directory, error) {
	d := &directory{fs: fsys, path: path}
	if err := d.make(path); err != nil {
		return nil, fmt.Errorf("make directory of spool: %w", err)
	}
	if err := d.secure(); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(d.join(lockName))
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return nil, fmt.Errorf("lock spool: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("lock spool %s: %w: %w", path, ErrLocked, err)
	}
	if d.isReal() {
		err = os.Chmod(d.join(lockName), 0o600)
	}
	d.lock = lock
	return d, err
}

func (d *directory) join(name string) string { return d.fs.PathJoin(d.path, name) }

// make makes a directory, and those above it that do not exist, so that they are there after a crash.
func (d *directory) make(path string) error {
	if _, err := d.fs.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := d.fs.PathDir(path)
	if parent != path {
		if err := d.make(parent); err != nil {
			return err
		}
	}
	if err := d.fs.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if err := syncDirectory(d.fs, parent); err != nil {
		return errors.Join(err, d.fs.Remove(path)) // the next attempt must not find one that a crash can take away
	}
	return nil
}

// isReal reports whether the files are those of the operating system. Others have neither modes nor links.
func (d *directory) isReal() bool { return vfs.Root(d.fs) == vfs.Default }

// secure makes sure that the directory is one, not a link, and that only its owner can use it. So nobody else can put links
// into it later.
func (d *directory) secure() error {
	if !d.isReal() {
		return nil
	}
	info, err := os.Lstat(d.path)
	if err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("open spool: %s is not a directory (%s): name the directory itself, not a link to it", d.path, info.Mode().Type())
	}
	if err := links.Check(d.path); err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(d.path, 0o700); err != nil { //nolint:gosec // a directory needs to be searchable
			return fmt.Errorf("open spool: others can use the directory %s (mode %04o): %w: name a directory of its own", d.path, info.Mode().Perm(), err)
		}
	}
	if !d.isRegular(lockName) {
		return fmt.Errorf("open spool: %s is not a regular file: remove it", d.join(lockName))
	}
	return nil
}

// isRegular reports whether a file is a regular one, or absent.
func (d *directory) isRegular(name string) bool {
	if !d.isReal() {
		return true
	}
	info, err := os.Lstat(d.join(name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular()
}

// list returns the names of segments, and of files that are not the spool's.
func (d *directory) list() (segments, foreign []string, err error) {
	names, err := d.fs.List(d.path)
	for _, name := range names {
		_, _, ok := parseName(name)
		switch {
		case name == lockName, name == localKeyName:
		case ok && d.isRegular(name):
			segments = append(segments, name)
		default:
			foreign = append(foreign, name)
		}
	}
	return segments, foreign, err
}

// localKey returns the key that is kept in the directory. It is made if it is missing or damaged; what was sealed with a damaged one cannot be
// read.
func (d *directory) localKey() ([]byte, error) {
	if f, err := d.fs.Open(d.join(localKeyName)); err == nil {
		key := make([]byte, sha256.Size+1)
		n, _ := f.ReadAt(key, 0) // fails at the end of the file
		if err := f.Close(); err == nil && n == sha256.Size {
			return key[:n], nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the spool's own key: %w", err)
	}
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	f, err := d.create(localKeyName)
	if err != nil {
		return nil, fmt.Errorf("write the spool's own key: %w", err)
	}
	_, err = f.Write(slices.Clone(key)) // [vfs.File].Write may modify what it is given
	if err = errors.Join(err, f.Sync(), f.Close(), d.sync()); err != nil {
		return nil, fmt.Errorf("write the spool's own key: %w", err)
	}
	return key, nil
}

// create makes a file that only its owner can use. It replaces what a crash has left of a file without frames.
func (d *directory) create(name string) (vfs.File, error) {
	if !d.isRegular(name) {
		return nil, fmt.Errorf("create segment: %s is not a regular file: remove it", d.join(name))
	}
	if err := d.remove(name); err != nil {
		return nil, err
	}
	f, err := d.open(name)
	if err != nil || !d.isReal() {
		return f, err
	}
	if err := os.Chmod(d.join(name), 0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d *directory) open(name string) (vfs.File, error) {
	return d.fs.OpenReadWrite(d.join(name), vfs.WriteCategoryUnspecified)
}

// remove removes a file. One that does not exist is no error.
func (d *directory) remove(name string) error {
	if err := d.fs.Remove(d.join(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove segment %s: %w", d.join(name), err)
	}
	return nil
}

// syncFile makes what is in a file durable.
func (d *directory) syncFile(name string) error {
	f, err := d.open(name)
	if err != nil {
		return err
	}
	if err = f.SyncData(); err != nil {
		err = fmt.Errorf("sync segment %s: %w", d.join(name), err)
	}
	return errors.Join(err, f.Close())
}

// sync makes created and removed files durable.
func (d *directory) sync() error { return syncDirectory(d.fs, d.path) }

func syncDirectory(fsys vfs.FS, path string) error {
	f, err := fsys.OpenDir(path)
	if err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		err = fmt.Errorf("sync directory %s: %w", path, err)
	}
	return errors.Join(err, f.Close())
}
