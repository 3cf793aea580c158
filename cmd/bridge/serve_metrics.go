package main

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/mirror/api"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// copyProgress is how far the copy of `bridge serve` has read the bus. Any goroutine may use it.
type copyProgress struct {
	mu    sync.Mutex
	ready bool
	next  map[string]int64 // by part
	ends  map[string]int64
}

// read returns a reader whose progress is noted. The copy is read until the ends of the parts are reached, and the
// reader is refreshed when everything up to these ends is committed.
func (p *copyProgress) read(r sink.Reader) sink.Reader {
	live, ok := r.(sink.Follower)
	if !ok {
		return r
	}
	return &progressReader{Follower: live, progress: p}
}

type progressReader struct {
	sink.Follower
	progress *copyProgress
}

func (r *progressReader) Read(ctx context.Context, ranges []sink.Range, collections bool, fn func(m *sink.Message) error) error {
	parts, p := r.Parts(), r.progress
	p.mu.Lock()
	p.next, p.ends = map[string]int64{}, map[string]int64{}
	for i, part := range parts {
		p.next[part.Name], p.ends[part.Name] = ranges[i].From, ranges[i].To
	}
	p.mu.Unlock()
	return r.Follower.Read(ctx, ranges, collections, func(m *sink.Message) error {
		if err := fn(m); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.next[parts[m.Part].Name] = m.Offset + 1
		return nil
	})
}

func (r *progressReader) Refresh(ctx context.Context) error {
	p := r.progress
	reached := map[string]int64{}
	for _, part := range r.Parts() {
		reached[part.Name] = part.End
	}
	if err := r.Follower.Refresh(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.next, p.ends = true, reached, map[string]int64{}
	for _, part := range r.Parts() {
		p.ends[part.Name] = part.End
	}
	return nil
}

// check returns why the copy is not ready to be read.
func (p *copyProgress) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready {
		return errors.New("the bus was not read yet up to where it ended at the start")
	}
	return nil
}

// behind returns how many messages the bus had at the last look that were not read; ok is false before the first one.
func (p *copyProgress) behind() (n int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for part, end := range p.ends {
		n += max(0, end-p.next[part])
	}
	return n, p.ends != nil
}

// newServeMetrics returns the metrics of `bridge serve` that are not of requests.
func newServeMetrics(states func() []api.State, p *copyProgress, bytes func() int64) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "kubebridge", Subsystem: "serve", Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		api.NewCollector(states),
		gauge("ready", "1 since `bridge serve` has read the bus up to where it ended at the start, 0 before.", func() float64 {
			if p.check() != nil {
				return 0
			}
			return 1
		}),
		behindCollector{p},
		gauge("disk_bytes", "Bytes of the directory of --data.", func() float64 { return float64(bytes()) }),
	}
}

var behindMessages = prometheus.NewDesc("kubebridge_serve_behind_messages", "Messages that the bus had at the last look and `bridge serve` had not read; absent until the bus was looked at.", nil, nil)

type behindCollector struct{ *copyProgress }

func (behindCollector) Describe(to chan<- *prometheus.Desc) { to <- behindMessages }

func (c behindCollector) Collect(to chan<- prometheus.Metric) {
	if n, ok := c.behind(); ok {
		to <- prometheus.MustNewConstMetric(behindMessages, prometheus.GaugeValue, float64(n))
	}
}

// bytesOf returns the bytes of the files in a directory. Files that are removed meanwhile do not count.
func bytesOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
