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

// stored starts a bridge, waits until it has published the initial objects, and
// stops it.
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

// catchUp measures how the bridge publishes events that happened while it was stopped.
func (b *bench) catchUp(ctx context.Context) error {
	n := b.scaled(100_000)
	for _, bus := range b.buses() {
		w, err := b.newWorld(setup{program: "bridge", bus: bus, resources: "pods", initial: 1000, events: n})
		if err != nil {
			return err
		}
		r, err := w.catchUp(ctx)
		w.close()
		if err != nil {
			return err
		}
		r.Name, r.Program = fmt.Sprintf("CatchUp/n=%d/%s", n, b.label(bus)), "bridge"
		b.report.add(r)
	}
	return nil
}

func (w *world) catchUp(ctx context.Context) (r result, err error) {
	before, err := w.stored(ctx)
	if err != nil {
		return r, err
	}
	if err := errors.Join(w.command("start"), w.reset()); err != nil {
		return r, err
	}
	begun := time.Now()
	if err := w.start(); err != nil {
		return r, err
	}
	if r, err = w.caughtUp(ctx, before, w.bench.limit); err != nil {
		return r, err
	}
	r.add("s-to-first", r.Seen.First.Sub(begun).Seconds())
	r.add("s-to-last", r.Seen.Last.Sub(begun).Seconds())
	return r, nil
}

// idling returns the resident memory of a bridge that has nothing to do, in MiB.
func (b *bench) idling(ctx context.Context) (float64, error) {
	if b.idleMB > 0 {
		return b.idleMB, nil
	}
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods"})
	if err != nil {
		return 0, err
	}
	defer w.close()
	if err := errors.Join(w.start(), w.watching(ctx, startLimit), pause(ctx, calm)); err != nil {
		return 0, err
	}
	b.idleMB = w.sut.rss("VmRSS")
	return b.idleMB, nil
}

// calm is the time after which a bridge has done all work of its start.
const calm = 2 * time.Second

// listed measures the memory of a first list, and a reconcile that finds no
// differences.
func (b *bench) listed(ctx context.Context) error {
	floor, err := b.idling(ctx)
	if err != nil {
		return err
	}
	n := b.scaled(100_000)
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods", initial: n, objects: n, events: 1, silent: 1})
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
	r.Name = fmt.Sprintf("FirstList/n=%d", n)
	r.add(unitAboveIdle, r.Peak-floor)
	b.report.add(r)

	if err := errors.Join(w.command("start"), w.command("compact"), w.sut.resetPeak()); err != nil {
		return err
	}
	begun, cpu := time.Now(), w.sut.cpu()
	if err := w.command("cut"); err != nil {
		return err
	}
	if r, err = w.reconciled(ctx, begun, 2); err != nil {
		return err
	}
	r.Name = fmt.Sprintf("Reconcile/n=%d", n)
	r.add("CPU-s", w.sut.cpu()-cpu)
	r.add(unitAboveIdle, r.Peak-floor)
	b.report.add(r)
	return nil
}

// reconciled waits for the synced event of the nth list. In Kafka, the event comes in
// every partition.
func (w *world) reconciled(ctx context.Context, begun time.Time, nth uint64) (r result, err error) {
	err = await(ctx, 5*w.bench.limit, "a synced event", func() (bool, error) {
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
	r.add(unitToSynced, r.Seen.LastSynced.Sub(begun).Seconds())
	return r, nil
}

// inventories measures the time to the first watch with a large inventory, and the
// cost of an event with that inventory.
func (b *bench) inventories(ctx context.Context) error {
	floor, err := b.idling(ctx)
	if err != nil {
		return err
	}
	for _, of := range []struct {
		n     float64
		store string
	}{{1000, storeFile}, {100_000, storeFile}, {1_000_000, storeFile}, {100_000, roleKafka}, {1_000_000, roleKafka}, {100_000, roleNATS}} {
		n := b.scaled(of.n)
		s := setup{program: "bridge", bus: of.store, resources: "events", initial: n, objects: n, events: b.scaled(200_000)}
		if of.store == storeFile {
			s.bus, s.fileStore = roleKafka, true
		}
		if of.store == roleNATS {
			s.events /= 10
		}
		w, err := b.newWorld(s)
		if err != nil {
			return err
		}
		r, err := w.restart(ctx, floor)
		w.close()
		r.Name = fmt.Sprintf("Inventory/n=%d/%s", n, of.store)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		b.report.add(r)
	}
	return nil
}

const storeFile = "file" // a checkpoint in files, with a Kafka sink and at-least-once delivery

func (w *world) restart(ctx context.Context, floor float64) (r result, err error) {
	before, err := w.stored(ctx)
	if err != nil {
		return r, err
	}
	asked, err := w.asked()
	if err != nil {
		return r, err
	}
	begun := time.Now()
	if err := w.start(); err != nil {
		return r, err
	}
	var opened time.Time
	err = await(ctx, w.bench.limit, "the first watch", func() (bool, error) {
		s, err := w.asked()
		if s.Lists > asked.Lists {
			err = errors.Join(err, errors.New("the bridge listed a collection, want it to watch from the checkpoint's position"))
		}
		opened = time.Unix(0, s.Opened)
		return s.Opened > asked.Opened, errors.Join(err, w.sut.ended())
	})
	if err != nil {
		return r, err
	}
	if err := pause(ctx, calm); err != nil {
		return r, err
	}
	resident := w.sut.rss("VmRSS")
	if r, err = w.stream(ctx, before, w.bench.limit); err != nil {
		return r, err
	}
	r.Program = "bridge"
	r.add(unitToWatch, opened.Sub(begun).Seconds())
	r.add(unitAboveIdle, resident-floor)
	if w.fileStore {
		size, err := diskUsage(w.path("checkpoint"))
		if err != nil {
			return r, err
		}
		r.add(unitDisk, float64(size)/(1<<20))
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

// outage measures the memory of a bridge whose bus is frozen while events happen.
func (b *bench) outage(ctx context.Context) error {
	const around = 5 * time.Second
	n := uint64(b.rate * (b.period + 2*around).Seconds())
	w, err := b.newWorld(setup{program: "bridge", bus: roleKafka, resources: "pods", rate: b.rate, events: n})
	if err != nil {
		return err
	}
	defer w.close()
	if err := errors.Join(w.start(), w.watching(ctx, startLimit), w.command("start")); err != nil {
		return err
	}
	if _, err := w.arrived(ctx, uint64(b.rate*around.Seconds()), b.limit); err != nil {
		return err
	}
	before := w.sut.rss("VmRSS")
	if err := w.sink.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer w.sink.cmd.Process.Signal(syscall.SIGCONT) // because a frozen process cannot be stopped
	var samples []float64
	for end := time.Now().Add(b.period); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Second) {
		samples = append(samples, w.sut.rss("VmRSS"))
	}
	if err := errors.Join(ctx.Err(), w.sink.cmd.Process.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	up := time.Now()
	s, err := w.arrived(ctx, n, 5*b.limit)
	if err != nil && !errors.Is(err, errLate) {
		return err
	}
	r := result{Name: fmt.Sprintf("Outage/for=%s", b.period), Program: "bridge", Due: n, Seen: s, Late: err != nil, Peak: w.sut.peak()}
	r.add("MB-before", before)
	r.add(unitEarly, samples[len(samples)/4])
	r.add(unitLate, samples[len(samples)-1])
	r.add("MB-most", slices.Max(samples))
	r.add("s-to-caught-up", s.Last.Sub(up).Seconds())
	b.report.add(r)
	return nil
}
