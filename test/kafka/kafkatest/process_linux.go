package kafkatest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent has the kernel kill the child, paused or not, when its parent dies. A group of its own keeps the
// terminal's Ctrl-C from it: who started it ends it.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// stopped reports whether no thread of a process runs after a SIGSTOP: on a busy machine some do for a while.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // a good pattern
	for _, stat := range threads {
		line, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// proc_pid_stat(5): the state comes behind the name, which may hold anything.
		if _, state, ok := bytes.Cut(line[bytes.LastIndexByte(line, ')'):], []byte(" ")); !ok || state[0] != 'T' {
			return false
		}
	}
	return true
}

// limitFileSize bounds the files that a process writes: a write past it fails, as on a disk that is full.
func limitFileSize(pid int, bytes uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		return fmt.Errorf("limit the size of the broker's files: %w", err)
	}
	return nil
}
