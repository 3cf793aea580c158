// Package links keeps other local users from leading the program to files of its own user, and from having it use theirs: it
// follows no symbolic link, and takes no file or directory, of another user than this process's and root. A user that may replace a file of this user in a directory can still do
// harm there: the sticky bit of a directory that others may write to, as /tmp has it, forbids that.
package links

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrForeign is returned for a link of another user.
var ErrForeign = errors.New("a symbolic link of another user is on the way: remove it, or name another path")

// ErrOwner is returned for a file or directory of another user, who could read and change what the program keeps there.
var ErrOwner = errors.New("it belongs to another user")

// Check returns an error that wraps [ErrForeign] if path or a directory above it is a link of another user, and one that wraps
// [ErrOwner] if what is at path belongs to another user than this process's and root. What is on a volume may also belong to the owner
// of the volume's root directory: some network file systems store every file as one user's. What does not exist passes.
func Check(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for at := path; ; at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err == nil && info.Mode().Type() == fs.ModeSymlink && !trusted(info) {
			return fmt.Errorf("%s: %w", at, ErrForeign)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	info, err := os.Stat(path)
	if err != nil || trusted(info) {
		return nil // what uses the path reports the error
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && ownsVolume(info, real) {
		return nil
	}
	return fmt.Errorf("%s: %w: run chown %d on it, or name another path", path, ErrOwner, os.Geteuid())
}

// OpenFile is [os.OpenFile] for a path that passes [Check]. A link that comes to stand there after that is not followed.
func OpenFile(path string, flag int, mode os.FileMode) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSymlink {
		flag |= noFollow
	}
	return os.OpenFile(path, flag, mode)
}
