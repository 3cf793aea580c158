//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwner reports whether a file is this process's user's.
func isOwner(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
