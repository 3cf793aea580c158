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

// point is where a measurement begins.
type point struct {
	at          time.Time
	cpu, server float64 // seconds used by then
	seen        mark.Stats
}

func (w *world) now(seen mark.Stats) point {
	return point{time.Now(), w.sut.cpu(), w.feed.cpu(), seen}
}

// stream lets the events happen and measures until they have arrived, beyond
// before.
func (w *world) stream(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	if err := w.reset(); err != nil {
		return r, err
	}
	from := w.now(before)
	if err := w.command("start"); err != nil {
		return r, err
	}
	if w.rate > 0 { // latencies are those of a program that has been at work
		if err := errors.Join(pause(ctx, warmUp), w.reset()); err != nil {
			return r, err
		}
	}
	return w.follow(ctx, from, limit)
}

// warmUp is when latencies begin to count: a consumer has found the topics then.
const warmUp = 2 * time.Second

// caughtUp measures from the first record beyond before, since a start is no part
// of what an event costs.
func (w *world) caughtUp(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	s, err := w.arrived(ctx, before.Unique+1, limit)
	if err != nil {
		return r, err
	}
	return w.follow(ctx, w.now(s), limit)
}

// follow measures until the last record that is due. Those that do not come in
// time are missing, and the result says so; that is no error.
func (w *world) follow(ctx context.Context, from point, limit time.Duration) (r result, err error) {
	r.Due = w.total()
	s, err := w.arrived(ctx, r.Due, limit)
	if err != nil && !errors.Is(err, errLate) {
		return r, err
	}
	r.Late = err != nil
	to := w.now(s)
	time.Sleep(settle)
	if r.Seen, err = w.stats("?percentiles=1"); err != nil {
		return r, err
	}
	r.Peak = w.sut.peak()
	n, took := float64(s.Unique-from.seen.Unique), s.Last.Sub(from.at).Seconds()
	if n > 0 && took > 0 {
		cpu := to.cpu - from.cpu
		r.PerSec, r.CPU, r.Busy = n/took, cpu/n*1e6, cpu/took
		if tx := float64(r.Seen.Committed - from.seen.Committed); tx > 0 {
			r.add("tx/s", tx/took)
		}
		if w.real {
			r.add(serverCPU, (to.server-from.server)/n*1e6)
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
