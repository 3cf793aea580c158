package file

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guard is the file system for one opening of pebble. Pebble handles a
// failed write with Fatalf, with a panic that cannot be recovered (a deferred
// unlock of an unlocked mutex), or by retrying without a pause. So guard hides failed writes from
// pebble: at the first failure it freezes the disk in the state after a kill -9,
// keeps the error, and discards every later write. The store
// calls err after each commit and abandons this opening. The next opening recovers
// from the disk as after a crash.
type guard struct {
	vfs.FS
	onFail func() // called at the first failure; must not block
	// volatile switches syncs off: written data survives while the
	// system runs, which is enough for a store that is deleted with the process.
	volatile bool

	mu    sync.Mutex
	cause error
	spill *vfs.MemFS // files created after the failure
}

func newGuard(base vfs.FS, onFail func()) *guard {
	return &guard{FS: base, onFail: onFail, spill: vfs.NewMem()}
}

// fail freezes the disk. The first cause is kept.
func (g *guard) fail(cause error) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause = cause
	}
	g.mu.Unlock()
	if first && g.onFail != nil {
		g.onFail()
	}
}

// err returns the error that froze the disk, nil while it is not frozen.
func (g *guard) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause
}

// write runs a change of the disk, unless it is frozen.
func (g *guard) write(change func() error) {
	if g.err() != nil {
		return
	}
	if err := change(); err != nil {
		g.fail(err)
	}
}

func (g *guard) sync(change func() error) {
	if !g.volatile {
		g.write(change)
	}
}

// create runs a change that opens a file, and answers a failure with a file in
// memory.
func (g *guard) create(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if g.err() == nil {
		f, err := open()
		if err == nil {
			err = private(g.FS, name)
		}
		if err == nil {
			return &guardedFile{File: f, g: g}, nil
		}
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		g.fail(err)
	}
	return g.spill.Create(g.PathBase(name), vfs.WriteCategoryUnspecified)
}

func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.create(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.create(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

func (g *guard) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.create(newname, func() (vfs.File, error) { return g.FS.ReuseForWrite(oldname, newname, c) })
}

func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.err() != nil {
		if f, err := g.spill.Open(g.PathBase(name), opts...); err == nil {
			return f, nil
		}
	}
	return g.FS.Open(name, opts...)
}

// OpenDir is used to sync directories.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: f, g: g}, nil
}

// change is write for operations that may fail: pebble expects the error for
// files that do not exist.
func (g *guard) change(op func() error) (err error) {
	g.write(func() error {
		e := op()
		if errors.Is(e, fs.ErrNotExist) {
			err, e = e, nil
		}
		return e
	})
	return err
}

func (g *guard) Link(oldname, newname string) error {
	return g.change(func() error { return g.FS.Link(oldname, newname) })
}

func (g *guard) Remove(name string) error {
	return g.change(func() error { return g.FS.Remove(name) })
}

func (g *guard) RemoveAll(name string) error {
	return g.change(func() error { return g.FS.RemoveAll(name) })
}

func (g *guard) Rename(oldname, newname string) error {
	return g.change(func() error { return g.FS.Rename(oldname, newname) })
}

func (g *guard) MkdirAll(dir string, perm os.FileMode) error {
	return g.change(func() error { return g.FS.MkdirAll(dir, perm) })
}

func (g *guard) Lock(name string) (io.Closer, error) { return g.FS.Lock(name) }

func (g *guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file on the disk.
type guardedFile struct {
	vfs.File
	g *guard
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
		f.g.fail(err)
	}
	return nil
}

// private makes a file accessible only for its owner.
func private(base vfs.FS, name string) error {
	if vfs.Root(base) != vfs.Default {
		return nil
	}
	return os.Chmod(name, 0o600)
}
