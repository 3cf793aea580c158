package file

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// disk is a real file system that can be full, or have a bad sector.
type disk struct {
	*errorfs.FS
	left    atomic.Int64 // write operations until the disk is full
	noReads atomic.Bool
}

const plenty = 1 << 40

func newDisk(base vfs.FS) *disk {
	d := &disk{}
	d.left.Store(plenty)
	d.FS = errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind.ReadOrWrite() {
		case errorfs.OpIsWrite:
			if op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpLock && d.left.Add(-1) < 0 {
				return &fs.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
			}
		case errorfs.OpIsRead:
			if d.noReads.Load() && strings.HasSuffix(op.Path, ".sst") {
				return &fs.PathError{Op: "read", Path: op.Path, Err: syscall.EIO}
			}
		}
		return nil
	}))
	return d
}

// fill returns a commit of about 4 KiB that has its number in every value.
func fill(n int) []event.KV {
	var changes []event.KV
	for i := range 20 {
		changes = append(changes, event.KV{
			Key:   fmt.Appendf(nil, "e/pods/ns/%02d", i),
			Value: fmt.Appendf(nil, "%d %0200d", n, 0),
		})
	}
	return changes
}

// filled returns the number of the last commit in a store, or -1 if it has none. It fails if the store has a part of a commit.
func filled(t *testing.T, s *Store) int {
	t.Helper()
	found, keys := -1, 0
	err := s.Scan([]byte("e/"), func(_, v []byte) error {
		text, _, _ := strings.Cut(string(v), " ")
		n, err := strconv.Atoi(text)
		if err != nil || keys > 0 && n != found {
			return fmt.Errorf("value of commit %d beside one of %q", found, text)
		}
		found, keys = n, keys+1
		return nil
	})
	if err != nil || keys != 0 && keys != 20 {
		t.Fatalf("%d keys, %v", keys, err)
	}
	return found
}

// A disk that becomes full during a commit, flush or compaction must lead to an error of Commit: not to the end of the process,
// a hang, or a lost commit. When there is room again, the same store accepts commits again.
func TestDiskFull(t *testing.T) {
	const commits = 500 // enough to fill several memtables
	operations := func() int64 {
		d := newDisk(vfs.NewMem())
		s, err := open("/x", &testIdentity, Options{fs: d})
		if err != nil {
			t.Fatal(err)
		}
		for n := range commits {
			if err := s.Commit(t.Context(), fill(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return plenty - d.left.Load()
	}()
	if operations < commits {
		t.Fatalf("only %d operations: the disk is not counting", operations)
	}
	points := []int64{operations - 1, operations / 2}
	for range 12 {
		points = append(points, 25+rand.Int64N(operations-25))
	}
	for _, point := range points {
		base := vfs.NewMem()
		d := newDisk(base)
		s, err := open("/x", &testIdentity, Options{fs: d})
		if err != nil {
			t.Fatal(err)
		}
		d.left.Store(point)
		last, failures := -1, 0
		for n := range commits {
			err := s.Commit(t.Context(), fill(n))
			if err == nil {
				last = n
				continue
			}
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/x") {
				t.Fatalf("full after %d operations: %v", point, err)
			}
			if failures++; failures == 3 {
				break
			}
		}
		d.left.Store(plenty)
		if got := filled(t, s); got != last && got != last+1 {
			t.Fatalf("full after %d operations: commit %d is there, %d was the last that succeeded", point, got, last)
		}
		if err := s.Commit(t.Context(), fill(commits)); err != nil {
			t.Fatalf("full after %d operations, then room again: %v", point, err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		if s, err = open("/x", &testIdentity, Options{fs: base}); err != nil {
			t.Fatalf("full after %d operations, opened again: %v", point, err)
		}
		if got := filled(t, s); got != commits {
			t.Fatalf("full after %d operations, opened again: commit %d is there, want %d", point, got, commits)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A working copy keeps all its commits when its disk is full for some time. Otherwise objects would be published again.
func TestDiskFullOfAWorkingCopy(t *testing.T) {
	for after := range int64(40) {
		d := newDisk(vfs.NewMem())
		s, err := open(filepath.Join(t.TempDir(), "x"), &testIdentity, Options{fs: d, scratch: true}) // Close removes it on the real disk
		if err != nil {
			t.Fatal(err)
		}
		d.left.Store(after)
		last := -1
		for s.Commit(t.Context(), fill(last+1)) == nil {
			last++
		}
		d.left.Store(plenty)
		if got := filled(t, s); got != last && got != last+1 {
			t.Errorf("full after %d operations: commit %d is there, %d was the last that succeeded", after, got, last)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// While the disk is full, opening fails with the disk's error. The files that it leaves can be opened once there is room.
func TestDiskFullWhileCreating(t *testing.T) {
	for point := int64(0); ; point++ {
		d := newDisk(vfs.NewMem())
		d.left.Store(point)
		s, err := open("/x/y", &testIdentity, Options{fs: d})
		if err == nil {
			if err = s.Close(); err == nil {
				if point < 20 {
					t.Fatalf("created within %d operations", point)
				}
				return
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("full after %d operations: %v", point, err)
		}
		d.left.Store(plenty)
		if s, err = open("/x/y", &testIdentity, Options{fs: d}); err != nil {
			t.Fatalf("full after %d operations, then room again: %v", point, err)
		}
		if err := s.Commit(t.Context(), fill(1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A power failure loses data that was not synced. Every commit is synced.
func TestPowerFailure(t *testing.T) {
	base := vfs.NewCrashableMem()
	s, err := open("/x/y", &testIdentity, Options{fs: base})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range 700 {
		if err := s.Commit(t.Context(), fill(n)); err != nil {
			t.Fatal(err)
		}
		if n%50 != 0 && n > 3 {
			continue
		}
		after, err := open("/x/y", &testIdentity, Options{fs: base.CrashClone(vfs.CrashCloneCfg{})})
		if err != nil {
			t.Fatalf("after commit %d: %v", n, err)
		}
		if got := filled(t, after); got != n {
			t.Errorf("commit %d is there, want %d", got, n)
		}
		if err := after.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An unreadable disk is an error of the call, not damage, and the store continues when the disk can be read again.
func TestUnreadable(t *testing.T) {
	d := newDisk(vfs.NewMem())
	s, err := open("/x", &testIdentity, Options{fs: d})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The value is so large that it gets a block of its own, because opening reads the first block.
	far := event.KV{Key: []byte("z"), Value: make([]byte, 64<<10)}
	if err := s.Commit(t.Context(), append(fill(1), far)); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	d.noReads.Store(true)
	if v, err := s.Get(far.Key); !errors.Is(err, syscall.EIO) || errors.Is(err, checkpoint.ErrCorrupt) {
		t.Fatalf("get from a disk that cannot be read: %.20q, %v", v, err)
	}
	d.noReads.Store(false)
	if got := filled(t, s); got != 1 {
		t.Errorf("commit %d is there, want 1", got)
	}
}

// flush moves the data in memory to tables, by opening the store again.
func flush(t *testing.T, s *Store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.closeDB(); err != nil {
		t.Fatal(err)
	}
	if err := s.reopen(false); err != nil {
		t.Fatal(err)
	}
}

// A failure in the background stops the database at once. Otherwise it would retry without a pause until the next commit, which
// may be hours away.
func TestIdleFailure(t *testing.T) {
	d := newDisk(vfs.NewMem())
	s, err := open("/x", &testIdentity, Options{fs: d})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.disk.Fail(syscall.EIO)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		stopped := s.db == nil
		s.mu.Unlock()
		if stopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the database still runs on a frozen disk")
		}
	}
	if err := s.Commit(t.Context(), fill(1)); err != nil {
		t.Errorf("commit after a passing failure: %v", err)
	}
}

// A limit on the size of files simulates a full disk with errors of the
// operating system.
func TestFileSizeLimit(t *testing.T) {
	path := t.TempDir()
	s, err := Open(path, testIdentity, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Commit(t.Context(), fill(0)); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Skip(err)
	}
	limit := was
	limit.Cur = 64 << 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip(err)
	}
	last := 0
	for n := 1; n < 100 && err == nil; n++ {
		if err = s.Commit(t.Context(), fill(n)); err == nil {
			last = n
		}
	}
	if restored := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("%d commits, then %v; want %v", last, err, syscall.EFBIG)
	}
	if got := filled(t, s); got != last && got != last+1 {
		t.Errorf("commit %d is there, %d was the last that succeeded", got, last)
	}
	if err := s.Commit(t.Context(), fill(100)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
