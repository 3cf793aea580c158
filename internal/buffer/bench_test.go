package buffer

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/base/spool"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// recorded records about as many bytes of frames, changes of pods, in a directory. It returns the last resourceVersion.
func recorded(b *testing.B, dir string, size int) (last int) {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	raw, err := os.ReadFile("../../bench/internal/corpus/pods.ndjson")
	check(err)
	var pods []*source.Object
	for line := range bytes.Lines(raw) {
		_, object, _ := bytes.Cut(bytes.TrimSpace(line), []byte(`"object":`))
		o, err := source.ParseObject(object[:len(object)-1])
		check(err)
		pods = append(pods, &o)
	}
	s, err := spool.Open(dir, spool.Options{})
	check(err)
	r, err := newRecording(s.Stream("s"), metadata{Target: things, Sink: "audit", Start: "10", Epoch: 1, End: end{Resume: "10", Seen: "10", Reached: "10"}}, zap.NewNop())
	check(err)
	r.frames = new(atomic.Uint64)
	for last = 10; size > 0; last++ {
		o := *pods[last%len(pods)]
		o.ResourceVersion = strconv.Itoa(last + 1)
		size -= len(o.Raw)
		check(r.Handle(b.Context(), source.Signal{Kind: source.Modified, Object: &o, RV: o.ResourceVersion, Resume: strconv.Itoa(last + 1)}))
	}
	check(r.stream.Flush(true))
	check(s.Close())
	return last
}

// BenchmarkRestart measures a start with a recorded backlog, for a sink that has committed some of it: how long the bridge takes to find the end of the
// recording, and the sink's position in it.
func BenchmarkRestart(b *testing.B) {
	const size = 1 << 30
	dir := b.TempDir()
	last := recorded(b, dir, size)
	for _, part := range []int{0, 50, 99} {
		b.Run(fmt.Sprintf("committed=%d%%", part), func(b *testing.B) {
			at := strconv.Itoa(10 + (last-10)*part/100)
			var find time.Duration
			for b.Loop() {
				s, err := spool.Open(dir, spool.Options{})
				if err != nil {
					b.Fatal(err)
				}
				r, err := continued(s.Stream("s"), zap.NewNop())
				if err != nil || event.Newer(strconv.Itoa(last), r.End.Resume) {
					b.Fatalf("it goes on at %s, want %d: %v", r.End.Resume, last, err)
				}
				begun := time.Now()
				u, err := r.use(Position{Committed: at, Epoch: 1, Read: at})
				find += time.Since(begun)
				if u == nil || err != nil {
					b.Fatalf("position %s is not found: %v", at, err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(find.Seconds()*1e3/float64(b.N), "find-ms/op")
		})
	}
}
