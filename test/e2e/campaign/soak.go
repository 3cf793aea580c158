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

// Soak describes a long run under a steady load and faults: one bridge for each of several pairs, all on one API server that nothing
// else uses. The resource usage of every bridge is sampled.
type Soak struct {
	Pairs  []Pair
	Seed   uint64
	Binary string // the bridge, built without the race detector, which itself needs memory
	For    time.Duration
	Rate   int           // operations per second of all pairs together
	Sample time.Duration // interval between two samples of a bridge
	// Pause is the mean time between two faults of one bridge's connections, bus or history; a single pause is between 0.5 and 1.5
	// times as long. Faults of the API server come a quarter as often. Each bridge except the first is killed once, in the first half
	// of the run.
	Pause time.Duration
	// Stretch is the factor by which faults last longer than in a seed, where cuts and outages last up to two seconds.
	Stretch int
	// Away is the mean time of one outage of a bus, which is then away a third of the time; every second outage of all pairs except the
	// first also has a kill. 0: no long outages. Otherwise each bridge has a disk buffer, and its bus has no other faults.
	Away time.Duration
	Each func(Sample) // called with every sample, if it is not nil
}

// SoakResult is the result of a soak.
type SoakResult struct {
	Results  []Result // of each pair
	Samples  []Sample
	Faults   []string // faults of the API server
	Problems []string // problems that do not belong to one pair
}

// soak is a running soak.
type soak struct {
	Soak
	cluster *clustertest.Cluster
	begun   time.Time
	all     []*soaked
	server  *nemesis     // inflicts the faults of the API server
	gate    sync.RWMutex // held for writing while the API server fails

	mu  sync.Mutex
	out SoakResult
}

// soaked is one bridge of a soak.
type soaked struct {
	*world
	nemesis *nemesis
	ledger  *ledger
}

// RunSoak runs a soak. Errors of the bridges are in the result. The returned error is about the soak itself.
func RunSoak(ctx context.Context, cluster *clustertest.Cluster, options Soak) (SoakResult, error) {
	s := &soak{Soak: options, cluster: cluster}
	defer func() {
		for _, one := range s.all {
			one.close()
		}
	}()
	if err := s.start(ctx); err != nil {
		return s.out, err
	}
	var running, watch sync.WaitGroup
	for i, one := range s.all {
		running.Go(func() { s.load(ctx, i, one) })
		running.Go(func() { s.harm(ctx, i, one) })
		if s.Away > 0 {
			running.Go(func() { s.problem(ctx, one.pair.Name, one.nemesis.awayThird(ctx, s.Soak, i > 0, uint64(50+i))) })
		}
		if i > 0 {
			at := s.begun.Add(s.For * time.Duration(i) / time.Duration(2*len(s.all)))
			running.Go(func() { s.problem(ctx, one.pair.Name, one.nemesis.killAt(ctx, at)) })
		}
	}
	running.Go(func() { s.harmServer(ctx) })
	watching, end := context.WithCancel(ctx)
	watch.Go(func() { s.watch(watching) })
	running.Wait()
	end()
	watch.Wait()
	s.out.Faults = s.server.schedule
	return s.out, s.judge(ctx)
}

// start starts the bridges, and waits until their first lists are complete.
func (s *soak) start(ctx context.Context) error {
	r := newChance(s.Seed, 0)
	for _, p := range s.Pairs {
		w := &world{pair: p, cluster: s.cluster, spec: Spec{Pair: p, Seed: s.Seed, Binary: s.Binary, soak: true, away: s.Away > 0}}
		s.all = append(s.all, &soaked{w, &nemesis{world: w}, newLedger()})
		if err := w.prepare(ctx, r); err != nil {
			return fmt.Errorf("prepare %s: %w", p.Name, err)
		}
		if err := w.launch(); err != nil {
			return fmt.Errorf("launch %s: %w", p.Name, err)
		}
	}
	for _, one := range s.all {
		if err := one.synced(ctx); err != nil {
			return fmt.Errorf("%s: %w", one.pair.Name, err)
		}
	}
	s.begun = time.Now()
	s.server = &nemesis{world: s.all[0].world, begun: s.begun}
	for _, one := range s.all {
		one.nemesis.begun = s.begun
	}
	return nil
}

// problem records an error of the soak itself. The soak continues.
func (s *soak) problem(ctx context.Context, who string, err error) {
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out.Problems = append(s.out.Problems, fmt.Sprintf("[soak] %s: %v", who, err))
	}
}

func (s *soak) load(ctx context.Context, i int, one *soaked) {
	load := &workload{kube: one.kube, who: one.who, ledger: one.ledger, types: one.types, seed: s.Seed + uint64(i), fresh: true}
	ops := int(s.For.Seconds() * float64(s.Rate) / float64(len(s.all)))
	s.problem(ctx, one.pair.Name+": workload", load.run(ctx, ops, s.For))
}

func (s *soak) harm(ctx context.Context, i int, one *soaked) {
	faults := one.nemesis.kubeFaults()
	if s.Away == 0 {
		faults = append(faults, slices.DeleteFunc(one.bus.faults, func(f fault) bool { return f.once })...)
	}
	if one.disk != "" {
		faults = append(faults, fault{name: "checkpoint's disk full", do: one.nemesis.fillDisk})
	}
	s.problem(ctx, one.pair.Name, one.nemesis.steadily(ctx, s.Soak, s.gate.RLocker(), faults, uint64(10+i)))
}

func (s *soak) harmServer(ctx context.Context) {
	seldom := s.Soak
	seldom.Pause *= 4
	faults := s.server.serverFaults()[:3] // without the last one, a fault of one bridge's connection
	for i, f := range faults {
		faults[i].do = func(ctx context.Context, r *chance) error {
			err := f.do(ctx, r)
			if err != nil && ctx.Err() == nil { // the API server did not stop in time, and was killed
				err = errors.Join(err, s.cluster.Restart(ctx))
			}
			return err
		}
	}
	s.problem(ctx, "API server", s.server.steadily(ctx, seldom, &s.gate, faults, 1))
}

// watch samples every bridge until ctx is cancelled, and restarts bridges that have ended.
func (s *soak) watch(ctx context.Context) {
	tick := time.NewTicker(s.Sample)
	defer tick.Stop()
	for {
		for _, one := range s.all {
			one.mu.Lock()
			revived := one.revive()
			one.mu.Unlock()
			s.problem(ctx, one.pair.Name, revived)
			sample := one.sample(ctx, one.ledger)
			if sample.At = time.Since(s.begun); ctx.Err() != nil || sample.At > s.For {
				continue
			}
			s.out.Samples = append(s.out.Samples, sample)
			if s.Each != nil {
				s.Each(sample)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// judge stops the bridges, and judges what is on their buses, one pair at a time to save memory.
func (s *soak) judge(ctx context.Context) error {
	for _, one := range s.all {
		limit := time.Minute + s.For/2
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
		result := Result{Pair: one.pair.Name, Seed: s.Seed, Harm: true}
		_, _ = one.bus.newest(ctx) // skips older messages, so that finish looks for its markers only among newer ones; after an error, the next call reads again
		err := one.finish(ctx, one.nemesis, one.ledger, &result)
		cancel()
		result.Seconds = time.Since(s.begun).Seconds()
		s.out.Results = append(s.out.Results, result)
		if err != nil {
			return fmt.Errorf("%s: %w", one.pair.Name, err)
		}
		one.close() // frees the memory of the bus
		one.ledger, one.bus = nil, nil
	}
	return nil
}

// steadily inflicts all faults in rounds, each round in another order, until the time of the soak is over. It returns the errors of all
// faults together at the end.
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

// awayThird takes the bus away a third of the time, until the time of the soak is over.
func (n *nemesis) awayThird(ctx context.Context, s Soak, kills bool, stream uint64) error {
	r := newChance(s.Seed, stream)
	until := n.begun.Add(s.For)
	about := func(d time.Duration) time.Time { return time.Now().Add(d/2 + time.Duration(r.Int64N(int64(d)))) }
	for round := 1; ; round++ {
		if next := about(2 * s.Away); !pause(ctx, next) || next.Add(3*s.Away/2).After(until) {
			return nil
		}
		f := fault{name: "bus away", hurts: true, do: func(ctx context.Context, _ *chance) error {
			defer n.refuseBus()()
			pause(ctx, about(s.Away))
			return nil
		}}
		if kills && round%2 == 0 {
			f.name = "bus away, bridge kill -9"
			f.do = func(ctx context.Context, _ *chance) error {
				defer n.refuseBus()()
				pause(ctx, about(s.Away/2))
				err := n.killRecording()
				pause(ctx, about(s.Away/2))
				return err
			}
		}
		if err := n.inflict(ctx, r, f); err != nil {
			return err
		}
	}
}

// killRecording kills the bridge, notes what it had in its disk buffer, and starts it again.
func (n *nemesis) killRecording() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current[0].Kill()
	if err := n.readBuffer(); err != nil {
		return fmt.Errorf("read the buffer of a killed bridge: %w", err)
	}
	return n.relaunch(0)
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

// pause waits until a point in time; it returns false if ctx ended first.
func pause(ctx context.Context, until time.Time) bool {
	select {
	case <-time.After(time.Until(until)):
		return true
	case <-ctx.Done():
		return false
	}
}

// FaultCounts returns the number of faults by name.
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
