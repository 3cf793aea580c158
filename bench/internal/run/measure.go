package run

import (
	"context"
	"errors"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// result of a measurement. What was not measured is 0.
type result struct {
	Name    string // of the benchmark, as benchstat takes it
	Program string
	Due     uint64
	Late    bool // it was stopped before all was there
	Seen    mark.Stats
	PerSec  float64 // events
	CPU     float64 // seconds of the program per million events
	Busy    float64 // CPUs that it used
	Peak    float64 // MiB
	Extra   []value // what else it measured
}

type value struct {
	Unit   string // as benchstat takes it
	Amount float64
}

func (r *result) add(unit string, amount float64) { r.Extra = append(r.Extra, value{unit, amount}) }

// settle is how long repeated records may come after the last.
const settle = 300 * time.Millisecond

// stream lets the events happen and measures until they have arrived, beyond
// before.
func (w *world) stream(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	if err := errors.Join(w.reset(), w.tell("start")); err != nil {
		return r, err
	}
	return w.follow(ctx, before, limit)
}

// follow measures from the first record beyond before to the last that is due.
// Those that do not come in time are missing, and the result says so; that is no
// error.
func (w *world) follow(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	r.Due = w.total()
	s, err := w.arrived(ctx, before.Unique+1, limit)
	if err != nil {
		return r, err
	}
	at, cpu, server := time.Now(), w.sut.cpu(), w.feed.cpu()
	first := s
	if s, err = w.arrived(ctx, r.Due, limit); err != nil && !errors.Is(err, errLate) {
		return r, err
	}
	r.Late = err != nil
	cpuEnd, end := w.sut.cpu(), s.Last
	server = w.feed.cpu() - server
	time.Sleep(settle)
	if r.Seen, err = w.stats("?percentiles=1"); err != nil {
		return r, err
	}
	r.Peak = w.sut.peak()
	n, took := float64(s.Unique-first.Unique), end.Sub(at).Seconds()
	if n > 0 && took > 0 {
		r.PerSec, r.CPU, r.Busy = n/took, (cpuEnd-cpu)/n*1e6, (cpuEnd-cpu)/took
		if tx := float64(r.Seen.Committed - first.Committed); tx > 0 {
			r.add("tx/s", tx/took)
		}
		if w.real {
			r.add(serverCPU, server/n*1e6)
		}
	}
	return r, nil
}

// throughput runs a setup from a bridge that watches to the last event.
func (b *bench) throughput(ctx context.Context, name string, s setup) (r result, err error) {
	w, err := b.newWorld(s)
	if err != nil {
		return r, err
	}
	defer w.close()
	if err := w.start(); err != nil {
		return r, err
	}
	if err := w.watching(ctx, startLimit); err != nil {
		return r, err
	}
	if r, err = w.stream(ctx, mark.Stats{}, b.limit); err != nil {
		return r, err
	}
	r.Name, r.Program = name, s.program
	return r, nil
}

// Units of what some benchmarks measure.
const (
	serverCPU     = "server-CPU-s/M" // of a real API server
	unitAboveIdle = "MB-above-idle"
	unitToSynced  = "s-to-synced"
	unitToWatch   = "s-to-watch"
	unitDisk      = "MB-on-disk"
	unitEarly     = "MB-early" // when a quarter of an outage is over
	unitLate      = "MB-late"  // at its end
)

// startLimit bounds a start, without what a scenario lists.
const startLimit = 60 * time.Second
