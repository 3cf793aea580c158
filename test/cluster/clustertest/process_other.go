//go:build !linux

package clustertest

import "syscall"

// diesWithParent is what only Linux offers: elsewhere a killed test leaves its cluster running.
func diesWithParent() *syscall.SysProcAttr { return nil }
