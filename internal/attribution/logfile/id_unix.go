//go:build unix

package logfile

import (
	"io/fs"
	"syscall"
)

// idOf returns what identifies a file as long as it exists.
func idOf(info fs.FileInfo) fileID {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{Device: uint64(stat.Dev), Inode: stat.Ino} //nolint:unconvert // the type differs between systems
}
