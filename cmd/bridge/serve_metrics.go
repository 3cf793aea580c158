package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/kubebridge/internal/past/mirror/api"
)

// copyProgress is how far the copy of `bridge serve` has read the bus. Any goroutine may use it.
type copyProgress struct {
	looked, ready atomic.Bool
	again         atomic.Bool  // the copy was dropped, and everything is read again
	behind        atomic.Int64 // messages that the bus had at the last look and that were not read
}

// note notes how many messages are not read: 0 once everything that the bus had at the last look is committed.
func (p *copyProgress) note(behind int64) {
	p.behind.Store(behind)
	p.looked.Store(true)
	if behind == 0 {
		p.ready.Store(true)
	}
}

// drop notes that the copy was dropped. What is read next is older than what was served.
func (p *copyProgress) drop() {
	p.again.Store(true)
	p.ready.Store(false)
}

// check returns why the copy is not ready to be read.
func (p *copyProgress) check() error {
	switch {
	case p.ready.Load():
		return nil
	case p.again.Load():
		return errors.New("the bus has lost messages, and is being read again")
	default:
		return errors.New("the bus was not read yet up to where it ended at the start")
	}
}

// newServeMetrics returns the metrics of `bridge serve` that are not of requests.
func newServeMetrics(states func() []api.State, p *copyProgress, bytes func() int64) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "kubebridge", Subsystem: "serve", Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		api.NewCollector(states),
		gauge("ready", "1 once `bridge serve` has read the bus up to where it ended at the start. 0 before, and while it reads the bus again because messages were lost.", func() float64 {
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
	if c.looked.Load() {
		to <- prometheus.MustNewConstMetric(behindMessages, prometheus.GaugeValue, float64(c.behind.Load()))
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
