//go:build unix

package links

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// trusted reports whether a file is this process's user's, or root's.
func trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(stat.Uid) == os.Geteuid() || stat.Uid == 0)
}

// ownsVolume reports whether a file's user is that of the root directory of the mounted file system that has it. path has no links.
func ownsVolume(info fs.FileInfo, path string) bool {
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	root := *file
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		var above syscall.Stat_t
		if syscall.Stat(filepath.Dir(at), &above) != nil || above.Dev != file.Dev {
			break
		}
		root = above
	}
	return root.Uid == file.Uid
}
