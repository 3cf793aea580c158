package kafkatest

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent has the kernel kill the child, paused or not, when its parent dies. A group of its own keeps the
// terminal's Ctrl-C from it: who started it ends it.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// limitFileSize bounds the files that a process writes: a write past it fails, as on a disk that is full.
func limitFileSize(pid int, bytes uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		return fmt.Errorf("limit the size of the broker's files: %w", err)
	}
	return nil
}
