package run

import (
	"context"
	"errors"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// result is the result of a measurement. Values that were not measured are 0.
type result struct {
	Name    string // name of the benchmark, in the format of benchstat
	Program string
	Due     uint64
	Late    bool // not all records arrived within the limit
	Seen    mark.Stats
	PerSec  float64 // events per second
	CPU     float64 // CPU seconds of the program per million events
	Busy    float64 // CPUs that the program used on average
	Peak    float64 // peak of the program's resident memory, MiB
	Extra   []value // further values
}

type value struct {
	Unit   string // in the format of benchstat
	Amount float64
}

func (r *result) add(unit string, amount float64) { r.Extra = append(r.Extra, value{unit, amount}) }

// settle is the time after the last expected record in which repeated records may
// arrive.
const settle = 300 * time.Millisecond

// point has the values at the beginning or the end of a measurement.
type point struct {
	at          time.Time
	cpu, server float64 // CPU seconds of the program, and of the feed or API server, so far
	seen        mark.Stats
}

func (w *world) now(seen mark.Stats) point {
	return point{time.Now(), w.sut.cpu(), w.feed.cpu(), seen}
}

// stream starts the events, and measures until all have arrived. before has the
// statistics of records that arrived earlier, which do not count.
func (w *world) stream(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	if err := w.reset(); err != nil {
		return r, err
	}
	from := w.now(before)
	if err := w.command("start"); err != nil {
		return r, err
	}
	if w.rate > 0 { // latencies do not count before the program has warmed up
		if err := errors.Join(pause(ctx, warmUp), w.reset()); err != nil {
			return r, err
		}
	}
	return w.follow(ctx, from, limit)
}

// warmUp is the time after which latencies count. A consumer has found the topics by
// then.
const warmUp = 2 * time.Second

// caughtUp measures from the first record after those in before, because a start is
// not part of the cost of an event.
func (w *world) caughtUp(ctx context.Context, before mark.Stats, limit time.Duration) (r result, err error) {
	s, err := w.arrived(ctx, before.Unique+1, limit)
	if err != nil {
		return r, err
	}
	return w.follow(ctx, w.now(s), limit)
}

// follow measures until the last expected record. If records do not arrive within the
// limit, follow returns no error; the result has the number of missing records.
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

// throughput starts the program of a setup, waits until it watches, and measures until
// the last event.
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

// startLimit is the time limit of a start. A scenario with large lists has a longer
// one.
const startLimit = 60 * time.Second
