package model

import (
	"context"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/pipeline"
	"github.com/kubebridge/kubebridge/internal/spool"
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
}

func newDisk(size diskSize) *disk {
	if size == noBuffer {
		return nil
	}
	return &disk{vfs.NewCrashableMem(), size}
}

// spec returns the buffer of a process.
func (d *disk) spec() *pipeline.BufferSpec {
	if d == nil {
		return nil
	}
	fs := d.fs
	return &pipeline.BufferSpec{Open: func(context.Context) (*spool.Spool, bool, error) {
		o := spool.Options{FS: fs, SegmentBytes: 8 << 10, Key: make([]byte, spool.LeastKeyBytes)}
		if d.size == scarce {
			o.MaxBytes = 800
		}
		s, err := spool.Open("buffer", o)
		return s, true, err
	}}
}

// kill ends the writes of a process that was killed: later ones go to a file system that nobody reads. The operating system keeps what was written
// before, also without a sync.
func (d *disk) kill() {
	if d != nil {
		d.fs = d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	}
}
