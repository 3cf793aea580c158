package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
	"github.com/kubebridge/kubebridge/internal/base/spool"
)

// Units of the benchmark buffer.
const (
	unitAppend   = "append-CPU-s/M" // CPU seconds per million events that were read and appended to the buffer
	unitAppended = "appended/s"
	unitShare    = "bytes-on-disk/byte" // size on disk by that of the frames
	unitBacklog  = "GB-of-frames"
	unitAppendMB = "peak-MB-append"
	unitDrainMB  = "peak-MB-drain"
	unitRestart  = "s-to-first" // from a start with the backlog to the first record
)

// bufferObjects is the number of distinct pods.
const bufferObjects = 10_000

// buffers measures the disk buffer: first what the same pods cost without it, then with backlogs of several sizes.
func (b *bench) buffers(ctx context.Context) error {
	direct := setup{program: "bridge", bus: roleKafka, resources: "pods", objects: bufferObjects, distinct: true, events: b.scaled(100_000)}
	r, err := b.throughput(ctx, "Buffer/none", direct)
	if err != nil {
		return err
	}
	b.report.add(r)
	frame := 0.0 // bytes
	for _, backlog := range []struct {
		name string
		of   func() uint64 // number of events
	}{
		{"10000", func() uint64 { return bufferObjects }},
		{"1GB", func() uint64 { return uint64(1e9 / frame) }},
		{"10GB", func() uint64 { return uint64(10e9 / frame) }},
	} {
		s := direct
		s.initial, s.events = 1, b.scaled(float64(backlog.of()))
		r, mean, err := b.buffered(ctx, s)
		if err != nil {
			return fmt.Errorf("backlog of %s: %w", backlog.name, err)
		}
		frame = mean
		r.Name, r.Program = "Buffer/backlog="+backlog.name, "bridge"
		b.report.add(r)
	}
	return nil
}

// freePort returns an address that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// buffered measures one backlog: the bus is frozen while all events are appended; then the bridge is killed, the bus goes on, and the
// bridge starts with the backlog. It also returns the mean size of a frame.
func (b *bench) buffered(ctx context.Context, s setup) (r result, frame float64, err error) {
	if s.buffer, err = freePort(); err != nil {
		return r, 0, err
	}
	w, err := b.newWorld(s)
	if err != nil {
		return r, 0, err
	}
	defer w.close()
	if err := errors.Join(w.start(), w.watching(ctx, startLimit)); err != nil {
		return r, 0, err
	}
	if _, err := w.reconciled(ctx, time.Now(), 1); err != nil {
		return r, 0, err
	}
	if err := pause(ctx, calm); err != nil { // the position is committed, so that the buffer can begin there
		return r, 0, err
	}
	before, err := w.stats("")
	if err != nil {
		return r, 0, err
	}
	defer w.sink.cmd.Process.Signal(syscall.SIGCONT) // because a frozen process cannot be stopped
	limit := b.limit + time.Duration(s.events)*time.Millisecond
	appended, err := w.appending(ctx, limit)
	if err != nil {
		return r, 0, err
	}
	frame, share, err := w.frames()
	if err != nil {
		return r, 0, err
	}
	size, err := diskUsage(w.path("buffer"))
	if err != nil {
		return r, 0, err
	}
	w.sut.kill()
	if err := errors.Join(w.sink.cmd.Process.Signal(syscall.SIGCONT), w.reset()); err != nil {
		return r, 0, err
	}
	begun := time.Now()
	if err := w.start(); err != nil {
		return r, 0, err
	}
	if r, err = w.caughtUp(ctx, mark.Stats{Unique: before.Unique}, limit); err != nil {
		return r, 0, err
	}
	r.Extra = append(r.Extra, appended...)
	r.add(unitShare, share)
	r.add(unitBacklog, frame*float64(s.events)/1e9)
	r.add(unitDisk, float64(size)/(1<<20))
	r.add(unitDrainMB, r.Peak)
	r.add(unitRestart, r.Seen.First.Sub(begun).Seconds())
	r.Peak = 0
	return r, frame, nil
}

// appending freezes the bus, and measures until all events are in the buffer.
func (w *world) appending(ctx context.Context, limit time.Duration) (values []value, err error) {
	if err := w.sink.freeze(ctx); err != nil {
		return nil, err
	}
	if err := w.command("start"); err != nil {
		return nil, err
	}
	first, err := w.recorded(ctx, 1, limit)
	if err != nil {
		return nil, err
	}
	if err := w.sut.resetPeak(); err != nil {
		return nil, err
	}
	from, cpu := time.Now(), w.sut.cpu()
	last, err := w.recorded(ctx, w.events, limit)
	if err != nil {
		return nil, err
	}
	n := float64(last - first)
	return []value{
		{unitAppend, (w.sut.cpu() - cpu) / n * 1e6},
		{unitAppended, n / time.Since(from).Seconds()},
		{unitAppendMB, w.sut.peak()},
	}, nil
}

// asking is the time between two requests for the status, whose answers cost the bridge CPU time as well.
const asking = 200 * time.Millisecond

// recorded waits until n frames are in the buffer, and returns their number.
func (w *world) recorded(ctx context.Context, n uint64, limit time.Duration) (frames uint64, err error) {
	err = await(ctx, limit, fmt.Sprintf("%d frames in the buffer", n), func() (bool, error) {
		if err := pause(ctx, asking); err != nil {
			return false, err
		}
		var s struct{ Buffer struct{ Frames uint64 } }
		a, err := w.client.Get("http://" + w.buffer + "/readyz")
		if err != nil {
			return false, w.sut.ended() // it may not listen yet
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK && a.StatusCode != http.StatusServiceUnavailable {
			return false, errors.New(a.Status)
		}
		err = json.NewDecoder(a.Body).Decode(&s)
		frames = s.Buffer.Frames
		return frames >= n, errors.Join(err, w.sut.ended())
	})
	return frames, err
}

// frames reads the first segment of the buffer. It returns the mean size of a frame, and the size on disk divided by that of the frames.
func (w *world) frames() (mean, share float64, err error) {
	files, err := filepath.Glob(filepath.Join(w.path("buffer"), "*.spool"))
	if err != nil || len(files) == 0 {
		return 0, 0, errors.Join(err, errors.New("the buffer has no files"))
	}
	file, dir := slices.Min(files), w.path("segment")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, 0, err
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(file)), b, 0o600)
	}
	if err != nil {
		return 0, 0, err
	}
	s, err := spool.Open(dir, spool.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	reader := s.Stream(s.List()[0].Stream).Reader(s.List()[0].First)
	defer reader.Close()
	var count, bytes int
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return float64(bytes) / float64(count), float64(len(b)) / float64(bytes), nil
		}
		if err != nil {
			return 0, 0, err
		}
		count, bytes = count+1, bytes+len(f.Data)
	}
}
