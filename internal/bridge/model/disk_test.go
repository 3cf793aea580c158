package model

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/internal/bridge"
)

// diskSize is the size of the disk buffer.
type diskSize int

const (
	noBuffer diskSize = iota
	ample
	scarce // it is full after a few changes
)

// disk is a file system with the disk buffer. It outlives processes. nil: there is no buffer.
type disk struct {
	fs   *vfs.MemFS
	size diskSize
	// fails is what fails at present.
	fails atomic.Int32
}

// diskFault is what of a disk fails.
type diskFault = int32

const (
	nothingFails diskFault = iota
	writesFail             // it is full
	readsFail
)

func newDisk(size diskSize) *disk {
	if size == noBuffer {
		return nil
	}
	return &disk{fs: vfs.NewCrashableMem(), size: size}
}

// spec returns the buffer of a process.
func (d *disk) spec() *bridge.BufferSpec {
	if d == nil {
		return nil
	}
	fs := errorfs.Wrap(d.fs, errorfs.InjectorFunc(d.fault))
	return &bridge.BufferSpec{Open: func(context.Context) (*spool.Spool, bool, error) {
		o := spool.Options{FS: fs, SegmentBytes: 8 << 10, Key: make([]byte, spool.LeastKeyBytes)}
		if d.size == scarce {
			o.MaxBytes = 800
		}
		s, err := spool.Open("buffer", o)
		return s, true, err
	}}
}

// fault returns the error of an operation. Opening the spool does not fail, because a bridge then does not start.
func (d *disk) fault(op errorfs.Op) error {
	switch f := d.fails.Load(); {
	case f == writesFail && slices.Contains([]errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData}, op.Kind):
		return syscall.ENOSPC
	case f == readsFail && slices.Contains([]errorfs.OpKind{errorfs.OpFileRead, errorfs.OpFileReadAt}, op.Kind):
		return syscall.EIO
	}
	return nil
}

// crash ends the writes of a process: later ones go to a file system that nobody reads. After a kill, the operating system keeps what was written,
// also without a sync. After a power failure it keeps a part of it, in percent.
func (d *disk) crash(kept int) {
	if d != nil {
		d.fs = d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(1, 1))})
	}
}
