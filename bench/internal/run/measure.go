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

// stream lets the events happen and measures until they have arrived.
func (w *world) stream(ctx context.Context, limit time.Duration) (r result, err error) {
	before, err := w.stats("")
	if err == nil {
		err = errors.Join(w.reset(), w.tell("start"))
	}
	if err != nil {
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
	at, cpu := time.Now(), w.sut.cpu()
	first := s
	if s, err = w.arrived(ctx, r.Due, limit); err != nil && !errors.Is(err, errLate) {
		return r, err
	}
	r.Late = err != nil
	cpuEnd, end := w.sut.cpu(), s.Last
	time.Sleep(settle)
	if r.Seen, err = w.stats("?percentiles=1"); err != nil {
		return r, err
	}
	r.Peak = w.sut.peak()
	n, took := float64(s.Unique-first.Unique), end.Sub(at).Seconds()
	if n > 0 && took > 0 {
		r.PerSec, r.CPU, r.Busy = n/took, (cpuEnd-cpu)/n*1e6, (cpuEnd-cpu)/took
		r.add("tx/s", float64(r.Seen.Committed-first.Committed)/took)
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
	if r, err = w.stream(ctx, b.limit); err != nil {
		return r, err
	}
	r.Name, r.Program = name, s.program
	return r, nil
}

// startLimit bounds a start, without what a scenario lists.
const startLimit = 60 * time.Second
