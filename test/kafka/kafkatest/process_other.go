//go:build !linux

package kafkatest

import (
	"errors"
	"syscall"
)

// diesWithParent has no such effect here, because only Linux can end a child with its parent: a test that is killed leaves its brokers running.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func stopped(int) bool { return true }

func limitFileSize(int, uint64) error {
	return errors.New("limit the size of the broker's files: only Linux can")
}
