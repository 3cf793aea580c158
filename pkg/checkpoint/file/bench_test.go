package file_test

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// cpu returns the CPU time that the process has used since then, in microseconds, divided by n.
func cpu(b *testing.B, since syscall.Rusage, n int) {
	now := used(b)
	spent := now.Utime.Nano() + now.Stime.Nano() - since.Utime.Nano() - since.Stime.Nano()
	b.ReportMetric(float64(spent)/1e3/float64(n), "cpu-us")
}

func used(b *testing.B) (r syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r
}

// size returns the sizes of all files of a directory, in bytes.
func size(b *testing.B, dir string) (sum int64) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		sum += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

func inventoryKey(i int) []byte {
	return fmt.Appendf(nil, "o/pods/namespace-%d/deployment-7c5ddbdf54-%07d", i%100, i)
}

func inventoryEntry(i, rv int) []byte {
	b := checkpoint.AppendUID(nil, fmt.Sprintf("%08x-2033-4dcb-a16f-%012x", rand.Uint32(), i))
	b = checkpoint.AppendVersion(checkpoint.AppendVersion(b, strconv.Itoa(rv)), strconv.Itoa(1000+i))
	return append(checkpoint.AppendText(binary.LittleEndian.AppendUint64(b, rand.Uint64()), "v1"), "Pod"...)
}

// BenchmarkInventory measures inventories of several sizes: their size on disk and in the heap, and the time to open one, to
// count its objects, to look up an object, and to commit 2000 changes.
func BenchmarkInventory(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkInventory(b, n) })
	}
}

func benchmarkInventory(b *testing.B, n int) {
	dir := filepath.Join(b.TempDir(), "checkpoint")
	id := event.Identity{Bridge: "bench", Cluster: "bench", ClusterUID: "u", Sink: "s"}
	var s *file.Store
	open := func() {
		var err error
		if s, err = file.Open(dir, id, file.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	shut := func() {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	commit := func(changes []event.KV) {
		if err := s.Commit(b.Context(), changes); err != nil {
			b.Fatal(err)
		}
	}
	open()
	order := rand.Perm(n)
	for len(order) > 0 {
		var changes []event.KV
		for _, i := range order[:min(len(order), 2000)] {
			changes = append(changes, event.KV{Key: inventoryKey(i), Value: inventoryEntry(i, 1_000_000+i)})
		}
		order = order[len(changes):]
		commit(changes)
	}
	shut()
	atRest := size(b, dir)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			open()
			found := 0
			if err := s.Scan([]byte("o/pods/"), func(_, value []byte) error {
				d := checkpoint.NewDecoder(value)
				if d.UID(""); !d.Failed() {
					found++
				}
				return nil
			}); err != nil || found != n {
				b.Fatal(found, err)
			}
			shut()
		}
		b.ReportMetric(float64(atRest)/1e6, "MB")
	})
	open()
	defer shut()
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		keys := make([][]byte, 10_000)
		for i := range keys {
			keys[i] = inventoryKey(rand.IntN(n))
		}
		i, since := 0, used(b)
		for b.Loop() {
			if v, err := s.Get(keys[i%len(keys)]); v == nil || err != nil {
				b.Fatal(err)
			}
			i++
		}
		cpu(b, since, i)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "MB-heap")
	})
	b.Run("absent", func(b *testing.B) {
		keys := make([][]byte, 10_000)
		for i := range keys {
			keys[i] = append(inventoryKey(rand.IntN(n)), "-new"...)
		}
		i, since := 0, used(b)
		for b.Loop() {
			if v, err := s.Get(keys[i%len(keys)]); v != nil || err != nil {
				b.Fatal(err)
			}
			i++
		}
		cpu(b, since, i)
	})
	b.Run("commit", func(b *testing.B) {
		changes := make([]event.KV, 2000)
		rv := 2_000_000
		for b.Loop() {
			b.StopTimer()
			for j := range changes {
				rv++
				i := rand.IntN(n)
				changes[j] = event.KV{Key: inventoryKey(i), Value: inventoryEntry(i, rv)}
			}
			b.StartTimer()
			commit(changes)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(changes)), "ns/change")
	})
	b.Run("steady", func(b *testing.B) {
		changes := make([]event.KV, 1500)
		rv, done := 4_000_000, 0
		var spent time.Duration
		for b.Loop() {
			for j := range changes {
				rv++
				i := rand.IntN(n)
				changes[j] = event.KV{Key: inventoryKey(i), Value: inventoryEntry(i, rv)}
			}
			since := used(b)
			for _, c := range changes {
				if v, err := s.Get(c.Key); v == nil || err != nil {
					b.Fatal(err)
				}
			}
			commit(changes)
			done += len(changes)
			now := used(b)
			spent += time.Duration(now.Utime.Nano() + now.Stime.Nano() - since.Utime.Nano() - since.Stime.Nano())
		}
		b.ReportMetric(float64(spent.Nanoseconds())/1e3/float64(done), "cpu-us/change")
		b.ReportMetric(float64(size(b, dir))/1e6, "MB")
	})
}
