package file

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// TestMemoryBounded: the memory of a checkpoint in memory depends on its content, not on everything ever written to it. By
// default pebble would keep several full logs, about 7 MiB of a pipeline's heap, for a crash that such a checkpoint does not
// survive anyway.
func TestMemoryBounded(t *testing.T) {
	s, err := OpenMem(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const objects, commits = 100, 60000
	for i := range commits {
		err := s.Commit(t.Context(), []event.KV{
			{Key: fmt.Appendf(nil, "i/configmaps/ns/o-%d", i%objects), Value: fmt.Appendf(nil, "%080d", i)},
			{Key: []byte("p/configmaps"), Value: fmt.Appendf(nil, "%040d", i)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	files, err := s.opts.fs.List(s.path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, name := range files {
		info, err := s.opts.fs.Stat(s.opts.fs.PathJoin(s.path, name))
		if err == nil { // a compaction may just have removed it
			size += info.Size()
		}
	}
	if size > 1<<20 {
		t.Errorf("%d objects, %d commits: files of %d bytes in memory, %v", objects, commits, size, files)
	}
	n := 0
	if err := s.Scan([]byte("i/"), func([]byte, []byte) error { n++; return nil }); err != nil || n != objects {
		t.Errorf("%d objects, %v; want %d", n, err, objects)
	}
}

// TestMemoryFails: a database without a log that has failed is not opened again, because it would lack data.
func TestMemoryFails(t *testing.T) {
	s, err := OpenMem(testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Commit(t.Context(), fill(0)); err != nil {
		t.Fatal(err)
	}
	s.disk.Fail(errors.New("spoilt"))
	for range 2 {
		if v, err := s.Get(fill(0)[0].Key); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("get: %q, %v; want %v", v, err, checkpoint.ErrCorrupt)
		}
	}
}
