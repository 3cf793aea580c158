package spool

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkAppendAlone writes each pod alone, as where changes are rare: it does not compress together with others.
func BenchmarkAppendAlone(b *testing.B) {
	list := pods(b, 2000)
	s, err := Open(b.TempDir(), Options{FS: vfs.Default})
	must(b, err)
	st := s.Stream("pods")
	_, err = st.Begin(nil, 0)
	must(b, err)
	total, n := 0, 0
	for b.Loop() {
		pod := list[n%len(list)]
		_, err := st.Append(pod)
		must(b, err)
		must(b, st.Flush(false))
		total, n = total+len(pod), n+1
	}
	b.SetBytes(int64(total / n))
	b.ReportMetric(float64(s.Bytes())/float64(n), "disk-B/op")
	must(b, s.Close())
}

// benchmark appends pods to a spool on the disk, reads them once and trims them. An operation is one pod.
func benchmark(b *testing.B, key []byte, read bool) {
	list := pods(b, 2000)
	s, err := Open(b.TempDir(), Options{Key: key, FS: vfs.Default})
	must(b, err)
	st := s.Stream("pods")
	_, err = st.Begin(nil, 0)
	must(b, err)
	put := func(n int) {
		for i := range n {
			_, err := st.Append(list[i%len(list)])
			must(b, err)
		}
		must(b, st.Flush(false))
	}
	total := 0
	for _, pod := range list {
		total += len(pod)
	}
	b.SetBytes(int64(total / len(list)))
	b.ReportAllocs()
	if !read {
		b.ResetTimer()
		put(b.N)
		b.StopTimer()
	} else {
		put(min(b.N, 20_000))
		r := st.Reader(1)
		b.ResetTimer()
		for i := range b.N {
			_, err := r.Next()
			must(b, err)
			if i%20_000 == 19_999 {
				must(b, r.Close())
				r = st.Reader(1)
			}
		}
		b.StopTimer()
	}
	b.ReportMetric(float64(s.Bytes())/float64(st.Next()-1), "disk-B/op")
	must(b, st.Trim(st.Next()))
	must(b, s.Close())
}

func BenchmarkAppend(b *testing.B)       { benchmark(b, nil, false) }
func BenchmarkAppendSealed(b *testing.B) { benchmark(b, testKey, false) }
func BenchmarkRead(b *testing.B)         { benchmark(b, nil, true) }
func BenchmarkReadSealed(b *testing.B)   { benchmark(b, testKey, true) }
