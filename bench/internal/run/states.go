package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/kubebridge/kubebridge/bench/internal/mark"
)

// stored starts a bridge, awaits that it has told the initial objects, and stops
// it.
func (w *world) stored(ctx context.Context) (s mark.Stats, err error) {
	if err := errors.Join(w.start(), w.watching(ctx, 5*w.bench.limit)); err != nil {
		return s, err
	}
	if s, err = w.arrived(ctx, w.initial*w.count(), 5*w.bench.limit); err != nil {
		return s, err
	}
	w.sut.stop()
	return s, nil
}

// catchUp: the events happen while the bridge is away.
func (b *bench) catchUp(ctx context.Context) error {
	for _, bus := range []string{roleKafka, roleNATS} {
		w, err := b.newWorld(setup{program: "bridge", bus: bus, resources: "pods", initial: 1000, events: b.n})
		if err != nil {
			return err
		}
		r, err := w.catchUp(ctx)
		w.close()
		if err != nil {
			return err
		}
		r.Name, r.Program = fmt.Sprintf("CatchUp/n=%d/%s", b.n, bus), "bridge"
		b.report.add(r)
	}
	return nil
}

func (w *world) catchUp(ctx context.Context) (r result, err error) {
	before, err := w.stored(ctx)
	if err != nil {
		return r, err
	}
	if err := errors.Join(w.tell("start"), w.reset()); err != nil {
		return r, err
	}
	begun := time.Now()
	if err := w.start(); err != nil {
		return r, err
	}
	if r, err = w.follow(ctx, before, w.bench.limit); err != nil {
		return r, err
	}
	r.add("s-to-first", r.Seen.First.Sub(begun).Seconds())
	r.add("s-to-last", r.Seen.Last.Sub(begun).Seconds())
	return r, nil
}

// listed: the memory of a first list, and a reconcile that finds nothing.
func (b *bench) listed(ctx context.Context) error {
	idle, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods"})
	if err != nil {
		return err
	}
	if err = errors.Join(idle.start(), idle.watching(ctx, startLimit)); err != nil {
		idle.close()
		return err
	}
	time.Sleep(2 * time.Second) // of doing nothing
	floor := idle.sut.rss("VmRSS")
	idle.close()

	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods", initial: b.n, objects: b.n, events: 1, silent: 1})
	if err != nil {
		return err
	}
	defer w.close()
	begun := time.Now()
	if err := w.start(); err != nil {
		return err
	}
	if err := w.watching(ctx, 5*b.limit); err != nil {
		return err
	}
	r, err := w.reconciled(ctx, begun, 1)
	if err != nil {
		return err
	}
	r.Name = fmt.Sprintf("FirstList/n=%d", b.n)
	r.add("MB-above-idle", r.Peak-floor)
	b.report.add(r)

	if err := errors.Join(w.tell("start"), w.tell("compact"), w.sut.resetPeak()); err != nil {
		return err
	}
	begun, cpu := time.Now(), w.sut.cpu()
	if err := w.tell("cut"); err != nil {
		return err
	}
	if r, err = w.reconciled(ctx, begun, 2); err != nil {
		return err
	}
	r.Name = fmt.Sprintf("Reconcile/n=%d", b.n)
	r.add("cpu-s", w.sut.cpu()-cpu)
	r.add("MB-above-idle", r.Peak-floor)
	b.report.add(r)
	return nil
}

// reconciled awaits the synced event of the nth list; in Kafka it comes in every
// partition.
func (w *world) reconciled(ctx context.Context, begun time.Time, nth uint64) (r result, err error) {
	err = await(ctx, 5*w.bench.limit, "synced", func() (bool, error) {
		s, err := w.stats("")
		return s.Synced >= nth*w.bench.synced(), errors.Join(err, w.sut.ended())
	})
	if err != nil {
		return r, err
	}
	time.Sleep(settle)
	if r.Seen, err = w.stats(""); err != nil {
		return r, err
	}
	r.Program, r.Due, r.Peak = "bridge", w.total(), w.sut.peak()
	r.add("s-to-synced", r.Seen.LastSynced.Sub(begun).Seconds())
	return r, nil
}

// restart: the time to the first watch with a large inventory.
func (b *bench) restart(ctx context.Context) error {
	for _, s := range []setup{
		{bus: roleNATS, fileStore: true}, {bus: roleNATS}, {bus: roleKafka},
	} {
		s.program, s.resources, s.initial, s.objects = "bridge", "events", b.n, b.n
		name := fmt.Sprintf("Start/n=%d/%s", b.n, s.bus)
		if s.fileStore {
			name = fmt.Sprintf("Start/n=%d/file", b.n)
		}
		w, err := b.newWorld(s)
		if err != nil {
			return err
		}
		r, err := w.restart(ctx)
		w.close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Name = name
		b.report.add(r)
	}
	return nil
}

func (w *world) restart(ctx context.Context) (r result, err error) {
	if _, err := w.stored(ctx); err != nil {
		return r, err
	}
	before, err := w.asked()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	if err := w.start(); err != nil {
		return r, err
	}
	err = await(ctx, w.bench.limit, "the first watch", func() (bool, error) {
		s, err := w.asked()
		if s.Lists > before.Lists {
			err = errors.Join(err, errors.New("the bridge lists what it should know"))
		}
		r.Extra = []value{{"s-to-watch", time.Unix(0, s.Opened).Sub(begun).Seconds()}}
		return s.Opened > before.Opened, errors.Join(err, w.sut.ended())
	})
	if err != nil {
		return r, err
	}
	if r.Seen, err = w.stats(""); err != nil {
		return r, err
	}
	r.Program, r.Due, r.Peak = "bridge", w.total(), w.sut.peak()
	if w.fileStore {
		size, err := diskUsage(w.path("checkpoint"))
		if err != nil {
			return r, err
		}
		r.add("MB-on-disk", float64(size)/(1<<20))
	}
	return r, nil
}

func diskUsage(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}

// outage: the bus stands still while events happen.
func (b *bench) outage(ctx context.Context) error {
	const around = 5 * time.Second
	n := uint64(b.rate * (b.period + 2*around).Seconds())
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods", rate: b.rate, events: n})
	if err != nil {
		return err
	}
	defer w.close()
	if err := errors.Join(w.start(), w.watching(ctx, startLimit), w.tell("start")); err != nil {
		return err
	}
	if _, err := w.arrived(ctx, uint64(b.rate*around.Seconds()), b.limit); err != nil {
		return err
	}
	before := w.sut.rss("VmRSS")
	if err := w.sink.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer w.sink.cmd.Process.Signal(syscall.SIGCONT) // that it can be stopped
	var samples []float64
	for end := time.Now().Add(b.period); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Second) {
		samples = append(samples, w.sut.rss("VmRSS"))
	}
	if err := w.sink.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	up := time.Now()
	s, err := w.arrived(ctx, n, b.limit)
	if err != nil && !errors.Is(err, errLate) {
		return err
	}
	r := result{Name: fmt.Sprintf("Outage/rate=%g/period=%s", b.rate, b.period), Program: "bridge", Due: n, Seen: s, Late: err != nil, Peak: w.sut.peak()}
	r.add("MB-before", before)
	r.add("MB-early", samples[min(len(samples)-1, 5)])
	r.add("MB-late", samples[len(samples)-1])
	r.add("MB-most", slices.Max(samples))
	r.add("s-to-caught-up", s.Last.Sub(up).Seconds())
	b.report.add(r)
	return nil
}
