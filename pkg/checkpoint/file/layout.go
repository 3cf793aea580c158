package file

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/internal/base/links"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
)

// ErrNotCheckpoint is returned for a path that is no checkpoint: a file, or
// a directory with other files in it. The store never writes to such a path.
var ErrNotCheckpoint = errors.New("not a checkpoint")

// The files of a checkpoint's directory that are not pebble's.
const (
	markerName = "KUBEBRIDGE" // says what the directory is
	markerTemp = ".KUBEBRIDGE.tmp"
	lockName   = "LOCK" // pebble's
)

// Texts of the marker. The marker is written before all other files, so that a
// directory with data and without a marker belongs to another program, and an interrupted
// creation or reset is detected.
const (
	markUnfinished = "kubebridge checkpoint, unfinished\n"
	markReset      = "kubebridge checkpoint, reset\n"
	markFormat     = "kubebridge checkpoint, format %d\n"
)

type condition int

const (
	absent     condition = iota // there is no such directory
	vacant                      // the directory is empty
	unfinished                  // its creation was interrupted
	wasReset                    // Reset has removed the checkpoint; remaining files are removed by the next Open
	complete
)

// inspect returns the condition of path. It returns ErrCorrupt for an unreadable marker, ErrNewer or ErrOlder for another
// format, and ErrNotCheckpoint for a path that belongs to another program.
func inspect(on vfs.FS, path string) (condition, error) {
	info, err := on.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return absent, err
	case !info.IsDir():
		return absent, fmt.Errorf("%w: it is a file, a directory is needed", ErrNotCheckpoint)
	}
	names, err := on.List(path)
	if err != nil {
		return absent, err
	}
	var others []string
	for _, name := range names {
		if name == markerName {
			return readMarker(on, on.PathJoin(path, markerName))
		}
		if !ownName(name) {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		return absent, fmt.Errorf("%w: the directory has other files in it (%d, one is %q)", ErrNotCheckpoint, len(others), others[0])
	}
	return vacant, nil
}

// ownName reports whether a file may be in a directory that counts as empty,
// and survives a reset.
func ownName(name string) bool {
	return name == lockName || name == markerName || name == markerTemp || strings.HasPrefix(name, keyName)
}

func readMarker(on vfs.FS, name string) (condition, error) {
	f, err := on.Open(name)
	if err != nil {
		return absent, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 100))
	if err = cmp.Or(err, f.Close()); err != nil {
		return absent, err
	}
	switch string(text) {
	case markUnfinished:
		return unfinished, nil
	case markReset:
		return wasReset, nil
	}
	var format int
	if _, err := fmt.Sscanf(string(text), markFormat, &format); err != nil || format < 1 {
		return absent, fmt.Errorf("%w: its file %s does not parse", checkpoint.ErrCorrupt, markerName)
	}
	if err := checkpoint.CheckVersion(format); err != nil {
		return absent, err
	}
	return complete, nil
}

// writeMarker replaces the marker durably.
func writeMarker(on vfs.FS, path, text string) error {
	return diskguard.Replace(on, on.PathJoin(path, markerName), on.PathJoin(path, markerTemp), []byte(text))
}

// clear removes all files except those of ownName.
func clear(on vfs.FS, path string) error {
	names, err := on.List(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !ownName(name) {
			if err := on.RemoveAll(on.PathJoin(path, name)); err != nil {
				return err
			}
		}
	}
	return syncDir(on, path)
}

// makeDir creates path durably, parents included.
func makeDir(on vfs.FS, path string) error {
	var made []string
	for dir := path; ; dir = on.PathDir(dir) {
		if _, err := on.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == on.PathDir(dir) {
			break
		}
		made = append(made, dir)
	}
	if err := on.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, dir := range made {
		if err := syncDir(on, on.PathDir(dir)); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(on vfs.FS, path string) error {
	d, err := on.OpenDir(path)
	if err != nil {
		return err
	}
	return cmp.Or(d.Sync(), d.Close())
}

// lock takes pebble's lock. The error wraps ErrLocked when it is held.
func lock(on vfs.FS, path string) (*pebble.Lock, error) {
	if vfs.Root(on) == vfs.Default {
		if err := onlyPlain(path); err != nil {
			return nil, err
		}
	}
	name := on.PathJoin(path, lockName)
	l, err := pebble.LockDirectory(path, on)
	if err == nil {
		return l, diskguard.Private(on, name)
	}
	var file *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.As(err, &file): // the lock file could not be made
		return nil, err
	case errors.As(err, &errno) && errno != syscall.EAGAIN && errno != syscall.EACCES:
		return nil, fmt.Errorf("lock: %w", err)
	}
	// The remaining case is a lock held by another process, or by this one. That error
	// has no type.
	return nil, fmt.Errorf("%w: %w", checkpoint.ErrLocked, err)
}

// onlyPlain refuses a directory with links in it. Pebble empties the files that it locks and makes, and the target of a link
// may belong to another program.
func onlyPlain(path string) error {
	all, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range all {
		if !e.Type().IsRegular() && !e.IsDir() {
			return fmt.Errorf("%w: its %s is no plain file", ErrNotCheckpoint, e.Name())
		}
	}
	return nil
}

// Reset removes the content of the checkpoint at path, damaged or not. The next [Open] makes an
// empty checkpoint with a request for a declared reset (checkpoint.ResetKey), because the bus still
// has events of the removed checkpoint. Reset fails with ErrNotCheckpoint for a
// path that is no checkpoint, with checkpoint.ErrLocked while a process holds it, and with
// fs.ErrNotExist if there is none (any more). A hash key stays.
func Reset(path string) error {
	path, err := canonical(path)
	if err == nil {
		err = reset(vfs.Default, path)
	}
	return pathError(path, "", err)
}

func reset(on vfs.FS, path string) error {
	if err := resettable(on, path); err != nil {
		return err
	}
	l, err := lock(on, path)
	if err != nil {
		return err
	}
	err = resettable(on, path) // another process may have changed it before this one got the lock
	if err == nil {
		err = writeMarker(on, path, markReset)
	}
	if err == nil {
		err = clear(on, path)
	}
	return cmp.Or(err, l.Close())
}

func resettable(on vfs.FS, path string) error {
	found, err := inspect(on, path)
	switch {
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrNewer), errors.Is(err, checkpoint.ErrOlder):
		return nil
	case err == nil && found != complete:
		return fs.ErrNotExist
	}
	return err
}

// canonical returns a unique name for path, because pebble's lock identifies holders within
// a process by name. It does not follow links of other users.
func canonical(path string) (string, error) {
	if path == "" {
		return path, errors.New("no path is given")
	}
	abs, err := filepath.Abs(path)
	if err == nil {
		err = links.Check(abs)
	}
	if err != nil {
		return path, err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}

// pathError adds the checkpoint's path and the remedy to an error. sink is "" when it is not
// known.
func pathError(path, sink string, err error) error {
	if err == nil {
		return nil
	}
	reset := "`bridge checkpoint reset`"
	if sink != "" {
		reset = "`bridge checkpoint reset --sink " + sink + "`"
	}
	forget := strings.TrimSuffix(reset, "`") + " --forget`"
	hint := ""
	switch {
	case errors.Is(err, checkpoint.ErrLocked):
		hint = "stop the bridge that holds it, or choose another checkpoint path"
	case errors.Is(err, checkpoint.ErrForeign):
		hint = "choose another checkpoint path, or give this one up with " + forget
	case errors.Is(err, checkpoint.ErrNewer):
		hint = "run the newer version, or give it up with " + reset
	case errors.Is(err, checkpoint.ErrOlder):
		hint = "give it up with " + reset
	case errors.Is(err, checkpoint.ErrCorrupt):
		hint = "put a copy back, or give it up with " + reset
	case errors.Is(err, ErrNotCheckpoint):
		hint = "choose an empty or a new directory"
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("checkpoint %s: there is none: %w", path, fs.ErrNotExist)
	case errors.Is(err, os.ErrPermission):
		hint = fmt.Sprintf("let user %d write there, or choose another checkpoint path", os.Getuid())
	}
	if hint == "" {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return fmt.Errorf("checkpoint %s: %w: %s", path, err, hint)
}
