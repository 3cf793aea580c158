package campaign

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
)

// Sample has the resources that one bridge used at one time. Unknown values are NaN.
type Sample struct {
	At      time.Duration
	Pair    string
	Process int // number of the process, from 1; each start of the bridge increases it
	Values  []float64
}

// sample measures the running bridge.
func (w *world) sample(ctx context.Context, l *ledger) Sample {
	w.mu.Lock()
	p, s := w.current[0], Sample{Pair: w.pair.Name, Process: len(w.processes)}
	w.mu.Unlock()
	unknown := math.NaN()
	said := metrics(ctx, p)
	rss, threads, files := proc(p)
	size := map[string][]float64{"kafka": {unknown, unknown}, "nats": {unknown, unknown}}
	if w.bus.size != nil && w.pair.shared() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		if keys, bytes, err := w.bus.size(ctx); err == nil {
			size[w.pair.Store] = []float64{float64(bytes), float64(keys)}
		}
		cancel()
	}
	s.Values = []float64{
		rss, said["go_memstats_heap_inuse_bytes"], said["go_memstats_next_gc_bytes"], said["go_goroutines"], threads, files,
		directory(w.scratchDir(), filepath.Join(w.diskDir(), "checkpoint")), size["kafka"][0], size["kafka"][1], size["nats"][0], size["nats"][1],
		said["kubebridge_inventory_objects"], float64(l.live()),
	}
	return s
}

// metrics returns the values of /metrics. Series of one name are added up.
func metrics(ctx context.Context, p *bridge.Process) map[string]float64 {
	said := map[string]float64{}
	for _, name := range []string{"go_memstats_heap_inuse_bytes", "go_memstats_next_gc_bytes", "go_goroutines", "kubebridge_inventory_objects"} {
		said[name] = math.NaN()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return said
	}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		end := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line[:max(end, 0)], "{")
		if before, wanted := said[name]; wanted {
			f, err := strconv.ParseFloat(line[end+1:], 64)
			switch {
			case err != nil:
			case math.IsNaN(before):
				said[name] = f
			default:
				said[name] = before + f
			}
		}
	}
	return said
}

func proc(p *bridge.Process) (rss, threads, files float64) {
	rss, threads, files = math.NaN(), math.NaN(), math.NaN()
	if n, err := p.Memory("VmRSS"); err == nil {
		rss = float64(n)
	}
	dir := fmt.Sprintf("/proc/%d/", p.PID())
	if all, err := os.ReadDir(dir + "task"); err == nil {
		threads = float64(len(all))
	}
	if all, err := os.ReadDir(dir + "fd"); err == nil {
		files = float64(len(all))
	}
	return rss, threads, files
}

// directory returns the number of bytes of all files below the roots.
func directory(roots ...string) (sum float64) {
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error { // no error if a file is removed meanwhile
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil {
					sum += float64(info.Size())
				}
			}
			return nil
		})
	}
	return sum
}

// live returns how many objects exist, according to what the API server acknowledged.
func (l *ledger) live() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, o := range l.objects {
		if !o.deleted {
			n++
		}
	}
	return n
}

// bucketSize returns a function for the size of the checkpoint's bucket, including tombstones.
func bucketSize(conn *nats.Conn) func(context.Context) (int, int, error) {
	return func(ctx context.Context) (keys, bytes int, err error) {
		js, err := jetstream.New(conn)
		if err != nil {
			return 0, 0, err
		}
		all := js.ListStreams(ctx)
		for info := range all.Info() {
			if strings.HasPrefix(info.Config.Name, "KV_") {
				keys, bytes = keys+int(info.State.Msgs), bytes+int(info.State.Bytes)
			}
		}
		if keys == 0 {
			return 0, 0, errors.Join(errors.New("no bucket of a checkpoint, or no answer of NATS"), all.Err())
		}
		return keys, bytes, all.Err()
	}
}

// followStream returns a function that reads new messages of the stream, until the stream is deleted.
func followStream(conn *nats.Conn) func(context.Context) ([]bus.Message, error) {
	after := uint64(0)
	return func(ctx context.Context) ([]bus.Message, error) {
		news, err := bus.ReadStream(ctx, conn, after)
		for i := range news {
			_, number, _ := strings.Cut(news[i].Place, ":")
			n, wrong := strconv.ParseUint(number, 10, 64)
			after, err = max(after, n), errors.Join(err, wrong)
		}
		return news, err
	}
}

func followTopics(k *bus.Kafka) func(context.Context) ([]bus.Message, error) {
	seen := 0
	return func(context.Context) ([]bus.Message, error) {
		all, err := k.Messages()
		news := all[seen:]
		seen = len(all)
		return news, err
	}
}
