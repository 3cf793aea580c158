package clustertest

import "syscall"

// diesWithParent has the kernel kill the child, paused or not, when its parent dies.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
