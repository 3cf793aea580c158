// Package diskguard is the file system under a pebble database that must survive the failure of its disk. It also replaces small files durably.
package diskguard

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Guard is the file system for one opening of pebble. Pebble handles a
// failed write with Fatalf, with a panic that cannot be recovered (a deferred
// unlock of an unlocked mutex), or by retrying without a pause. So it hides failed writes from
// pebble: at the first failure it freezes the disk in the state after a kill -9,
// keeps the error, and discards every later write. The store
// calls Err after each commit and abandons this opening. The next opening recovers
// from the disk as after a crash.
type Guard struct {
	vfs.FS
	OnFail func() // called at the first failure; must not block
	// Volatile switches syncs off: written data survives while the
	// system runs, which is enough for a store that is deleted with the process.
	Volatile bool

	mu    sync.Mutex
	cause error
	spill *vfs.MemFS // files created after the failure
}

// New returns a guard of a file system. It calls onFail, which may be nil, at the first failure; onFail must not block.
func New(base vfs.FS, onFail func()) *Guard {
	return &Guard{FS: base, OnFail: onFail, spill: vfs.NewMem()}
}

// Fail freezes the disk. The first cause is kept.
func (g *Guard) Fail(cause error) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause = cause
	}
	g.mu.Unlock()
	if first && g.OnFail != nil {
		g.OnFail()
	}
}

// Err returns the error that froze the disk, nil while it is not frozen.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// write runs a change of the disk, unless it is frozen.
func (g *Guard) write(change func() error) {
	if g.Err() != nil {
		return
	}
	if err := change(); err != nil {
		g.Fail(err)
	}
}

func (g *Guard) sync(change func() error) {
	if !g.Volatile {
		g.write(change)
	}
}

// create runs a change that opens a file, and answers a failure with a file in memory.
func (g *Guard) create(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if g.Err() == nil {
		f, err := open()
		if err == nil {
			err = Private(g.FS, name)
		}
		if err == nil {
			return &guardedFile{File: f, g: g}, nil
		}
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		g.Fail(err)
	}
	return g.spill.Create(g.PathBase(name), vfs.WriteCategoryUnspecified)
}

// Create implements [vfs.FS].
func (g *Guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.create(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

// OpenReadWrite implements [vfs.FS].
func (g *Guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.create(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

// ReuseForWrite implements [vfs.FS].
func (g *Guard) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.create(newname, func() (vfs.File, error) { return g.FS.ReuseForWrite(oldname, newname, c) })
}

// Open implements [vfs.FS].
func (g *Guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.Err() != nil {
		if f, err := g.spill.Open(g.PathBase(name), opts...); err == nil {
			return f, nil
		}
	}
	return g.FS.Open(name, opts...)
}

// OpenDir implements [vfs.FS]. It is used to sync directories.
func (g *Guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: f, g: g}, nil
}

// change is write for operations that may fail: pebble expects the error for files that do not exist.
func (g *Guard) change(op func() error) (err error) {
	g.write(func() error {
		e := op()
		if errors.Is(e, fs.ErrNotExist) {
			err, e = e, nil
		}
		return e
	})
	return err
}

// Link implements [vfs.FS].
func (g *Guard) Link(oldname, newname string) error {
	return g.change(func() error { return g.FS.Link(oldname, newname) })
}

// Remove implements [vfs.FS].
func (g *Guard) Remove(name string) error {
	return g.change(func() error { return g.FS.Remove(name) })
}

// RemoveAll implements [vfs.FS].
func (g *Guard) RemoveAll(name string) error {
	return g.change(func() error { return g.FS.RemoveAll(name) })
}

// Rename implements [vfs.FS].
func (g *Guard) Rename(oldname, newname string) error {
	return g.change(func() error { return g.FS.Rename(oldname, newname) })
}

// MkdirAll implements [vfs.FS].
func (g *Guard) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(func() error { return g.FS.MkdirAll(dir, perm) })
}

// Lock implements [vfs.FS].
func (g *Guard) Lock(name string) (io.Closer, error) { return g.FS.Lock(name) }

// Unwrap implements [vfs.FS].
func (g *Guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file on the disk.
type guardedFile struct {
	vfs.File
	g *Guard
}

func (f *guardedFile) Write(p []byte) (int, error) {
	f.g.write(func() error { _, err := f.File.Write(p); return err })
	return len(p), nil
}

func (f *guardedFile) WriteAt(p []byte, off int64) (int, error) {
	f.g.write(func() error { _, err := f.File.WriteAt(p, off); return err })
	return len(p), nil
}

func (f *guardedFile) Preallocate(off, n int64) error {
	f.g.write(func() error { return f.File.Preallocate(off, n) })
	return nil
}

func (f *guardedFile) Sync() error {
	f.g.sync(f.File.Sync)
	return nil
}

func (f *guardedFile) SyncData() error {
	f.g.sync(f.File.SyncData)
	return nil
}

func (f *guardedFile) SyncTo(n int64) (full bool, _ error) {
	f.g.sync(func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, nil
}

// Close always closes the file, even on a frozen disk, so that no descriptor leaks.
func (f *guardedFile) Close() error {
	if err := f.File.Close(); err != nil {
		f.g.Fail(err)
	}
	return nil
}

// Private makes a file accessible only for its owner.
func Private(base vfs.FS, name string) error {
	if vfs.Root(base) != vfs.Default {
		return nil
	}
	return os.Chmod(name, 0o600)
}
