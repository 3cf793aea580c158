package kafkatest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent makes the kernel kill the child, paused or not, when its parent ends. The child is in a process group of its own, so that
// Ctrl-C in a terminal reaches only the parent, which then ends the child.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// stopped reports whether a SIGSTOP has stopped all threads of a process. On a busy machine, some threads run on for a while.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // no error: the pattern is valid
	for _, stat := range threads {
		line, err := os.ReadFile(stat)
		if err != nil {
			continue // the thread has ended
		}
		// proc_pid_stat(5): the state follows the name, which is in parentheses and may contain any character.
		if _, state, ok := bytes.Cut(line[bytes.LastIndexByte(line, ')'):], []byte(" ")); !ok || state[0] != 'T' {
			return false
		}
	}
	return true
}

// limitFileSize limits the size of the files that a process writes. A write beyond the limit fails, as on a full disk.
func limitFileSize(pid int, bytes uint64) error {
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		return fmt.Errorf("limit the size of the broker's files: %w", err)
	}
	return nil
}
