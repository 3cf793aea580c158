package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
)

// Soak is a long run: a bridge for each of a few pairs on one API server, which nobody else may use, under a steady load and
// faults, and what they take while it lasts.
type Soak struct {
	Pairs  []Pair
	Seed   uint64
	Binary string // the bridge, without race detector: that takes memory of its own
	For    time.Duration
	Rate   int           // operations a second, of all pairs together
	Sample time.Duration // between two samples of a bridge
	// Pause is between two faults of one bridge's connections, bus or history; it varies by half. The API server itself fails a
	// quarter as often. Each bridge but the first is killed once, in the first half.
	Pause time.Duration
	// Stretch is how much longer faults last than in a seed: cuts and outages are up to two seconds there.
	Stretch int
	Each    func(Sample) // called with every sample, if it is not nil
}

// SoakResult is what came of it.
type SoakResult struct {
	Results  []Result // of each pair
	Samples  []Sample
	Faults   []string // of the API server
	Problems []string // other than the pairs' own
}

// soaked is one bridge of a soak.
type soaked struct {
	*world
	nemesis *nemesis
	ledger  *ledger
}

// RunSoak runs it. The error is about the soak itself.
func RunSoak(ctx context.Context, cluster *clustertest.Cluster, s Soak) (out SoakResult, err error) {
	r := newChance(s.Seed, 0)
	var all []*soaked
	for _, p := range s.Pairs {
		w := &world{pair: p, cluster: cluster, spec: Spec{Pair: p, Seed: s.Seed, Binary: s.Binary, soak: true}}
		defer w.close()
		if err := w.prepare(ctx, r); err != nil {
			return out, fmt.Errorf("prepare %s: %w", p.Name, err)
		}
		if err := w.launch(); err != nil {
			return out, fmt.Errorf("launch %s: %w", p.Name, err)
		}
		all = append(all, &soaked{w, &nemesis{world: w}, newLedger()})
	}
	for _, one := range all {
		if err := one.synced(ctx); err != nil {
			return out, fmt.Errorf("%s: %w", one.pair.Name, err)
		}
	}
	begun := time.Now()
	server := &nemesis{world: all[0].world}
	for _, n := range append([]*nemesis{server}, nemeses(all)...) {
		n.begun = begun
	}
	var gate sync.RWMutex // held for writing while the API server fails
	var mu sync.Mutex
	problem := func(who string, err error) {
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			defer mu.Unlock()
			out.Problems = append(out.Problems, fmt.Sprintf("[soak] %s: %v", who, err))
		}
	}
	var running sync.WaitGroup
	for i, one := range all {
		running.Go(func() {
			load := &workload{kube: one.kube, ledger: one.ledger, types: one.types, seed: s.Seed + uint64(i), fresh: true}
			ops := int(s.For.Seconds() * float64(s.Rate) / float64(len(all)))
			problem(one.pair.Name+": workload", load.run(ctx, ops, s.For))
		})
		running.Go(func() {
			faults := slices.DeleteFunc(append(one.nemesis.kubeFaults(), one.bus.faults...), func(f fault) bool { return f.once })
			if one.disk != "" {
				faults = append(faults, fault{name: "checkpoint's disk full", do: one.nemesis.fillDisk})
			}
			problem(one.pair.Name, one.nemesis.steadily(ctx, s, gate.RLocker(), faults, uint64(10+i)))
		})
		if i > 0 {
			running.Go(func() {
				problem(one.pair.Name, one.nemesis.killAt(ctx, begun.Add(s.For*time.Duration(i)/time.Duration(2*len(all)))))
			})
		}
	}
	running.Go(func() {
		seldom := s
		seldom.Pause *= 4
		faults := server.serverFaults()[:3] // those of the server itself
		for i, f := range faults {
			faults[i].do = func(ctx context.Context, r *chance) error {
				err := f.do(ctx, r)
				if err != nil && ctx.Err() == nil { // it did not stop in time, and was killed
					err = errors.Join(err, cluster.Restart(ctx))
				}
				return err
			}
		}
		problem("API server", server.steadily(ctx, seldom, &gate, faults, 1))
	})
	watching, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for tick := time.NewTicker(s.Sample); ; {
			for _, one := range all {
				one.mu.Lock()
				problem(one.pair.Name, one.revive())
				one.mu.Unlock()
				sample := one.sample(watching, one.ledger)
				if sample.At = time.Since(begun); watching.Err() == nil && sample.At < s.For {
					out.Samples = append(out.Samples, sample)
					if s.Each != nil {
						s.Each(sample)
					}
				}
			}
			select {
			case <-tick.C:
			case <-watching.Done():
				tick.Stop()
				return
			}
		}
	})
	running.Wait()
	end()
	watch.Wait()
	out.Faults = server.schedule
	for _, one := range all {
		result := Result{Pair: one.pair.Name, Seed: s.Seed, Harm: true}
		limit := time.Minute + s.For/2
		finishing, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not in %s", limit))
		err := one.finish(finishing, one.nemesis, one.ledger, &result)
		cancel()
		result.Seconds = time.Since(begun).Seconds()
		out.Results = append(out.Results, result)
		if err != nil {
			return out, fmt.Errorf("%s: %w", one.pair.Name, err)
		}
		*one = soaked{} // one pair's messages at a time
	}
	return out, nil
}

func nemeses(all []*soaked) (out []*nemesis) {
	for _, one := range all {
		out = append(out, one.nemesis)
	}
	return out
}

// steadily does all faults in turn, shuffled anew in each round. One that could not be done is told at the end, and the others go on.
func (n *nemesis) steadily(ctx context.Context, s Soak, gate sync.Locker, faults []fault, stream uint64) error {
	r := newChance(s.Seed, stream)
	r.stretch = time.Duration(s.Stretch)
	until := n.begun.Add(s.For)
	var wrong []error
	for round := 0; ; round++ {
		if i := round % len(faults); i == 0 {
			r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		next := time.Now().Add(s.Pause/2 + time.Duration(r.Int64N(int64(s.Pause))))
		if !pause(ctx, next) || next.After(until) {
			return errors.Join(wrong...)
		}
		gate.Lock()
		err := n.inflict(ctx, r, faults[round%len(faults)])
		gate.Unlock()
		wrong = append(wrong, err)
	}
}

// killAt kills the bridge once, and starts it again.
func (n *nemesis) killAt(ctx context.Context, at time.Time) error {
	if !pause(ctx, at) {
		return nil
	}
	return n.inflict(ctx, nil, fault{name: "bridge kill -9", do: func(context.Context, *chance) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.current[0].Kill()
		return n.relaunch(0)
	}})
}

// pause waits for a time; it returns false if ctx ended first.
func pause(ctx context.Context, until time.Time) bool {
	select {
	case <-time.After(time.Until(until)):
		return true
	case <-ctx.Done():
		return false
	}
}

// FaultCounts are how often there was which fault, by its name.
func FaultCounts(schedules ...[]string) map[string]int {
	counts := map[string]int{}
	for _, schedule := range schedules {
		for _, line := range schedule {
			_, name, _ := strings.Cut(line, "s ")
			counts[name]++
		}
	}
	return counts
}
