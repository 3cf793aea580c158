package campaign

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/hostiletest"
	"github.com/kubebridge/kubebridge/test/cluster/clustertest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	hostileSize  = 200 << 10   // bytes of a state
	hostileEvery = time.Second // between two of its writes
	calmRate     = 100         // operations of the others a second, while they are timed
	aliveEvery   = 500 * time.Millisecond
	// delayFactor is by how much the 99th percentile of the delay of others' changes may increase because of the tenant.
	delayFactor = 3
	// costliest is what one object of hostileSize may take of a sink where others use the same CPUs: preparing its event, and its way
	// to the bus. Where changes take a few milliseconds, they may take as long as that instead: a sink works on one object, and
	// has one batch on its way, after the other.
	costliest = 100 * time.Millisecond
	// judgedFrom is the number of changes that the 99th percentile needs to be meaningful.
	judgedFrom = 300
)

// runHostile runs a seed without the hostile tenant, and with it. The result is that of the second run, with the problems
// of both, and with how long changes of others took.
func runHostile(ctx context.Context, cluster *clustertest.Cluster, s Spec) (Result, error) {
	s.timed, s.Hostile = true, false
	without, err := Run(ctx, cluster, s)
	if err != nil {
		return without, fmt.Errorf("without the tenant: %w", err)
	}
	s.Hostile = true
	with, err := Run(ctx, cluster, s)
	if err != nil {
		return with, fmt.Errorf("with the tenant: %w", err)
	}
	with.Seconds += without.Seconds
	with.Without = without.With
	with.Log = without.Log + with.Log
	for _, problem := range without.Problems {
		with.Problems = append(with.Problems, problem+" (without the tenant)")
	}
	with.Problems = append(with.Problems, besides(with.Without, with.With)...)
	with.Passed = len(with.Problems) == 0
	return with, nil
}

// besides judges the effect of the tenant on others.
func besides(without, with *Delays) (problems []string) {
	if min(with.Changes, without.Changes) < judgedFrom { // a file does not say when it had a line
		return nil
	}
	if most := max(delayFactor*without.P99, costliest); with.P99 > most {
		problems = append(problems, fmt.Sprintf("[delay] 99 of 100 changes of others took up to %s beside the tenant, and %s without: want at most %s", with.P99, without.P99, most))
	}
	return problems
}

// Delays are how long changes took, from the API server's answer to their record on the bus, while there was no fault.
type Delays struct {
	Changes int           `json:"changes"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
	Seen99  time.Duration `json:"seen99"` // 99 of 100, until the bridge had received them
}

func (d *Delays) String() string {
	return fmt.Sprintf("%d changes, half within %s, 99 of 100 within %s (received within %s), all within %s", d.Changes, d.P50, d.P99, d.Seen99, d.Max)
}

// tenant is a user who may write in one namespace, and whose objects are as costly for the bridge as possible.
type tenant struct {
	world *world
	load  *workload
	kube  *kube.Client
	typ   target
	stop  func() // returns when nothing is written any more

	writes int // that the API server took, or that found the object as it was; valid when stop has returned

	mu       sync.Mutex
	problems []string
}

// attack starts the tenant, and checks the bridges' liveness probes while it runs.
func (w *world) attack(ctx context.Context, load *workload) *tenant {
	t := &tenant{world: w, load: load, kube: w.kube.In(w.tenantNS()), typ: w.types[1]}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { t.write(ctx) })
	running.Go(func() { t.live(ctx) })
	t.stop = sync.OnceFunc(func() { end(); running.Wait() })
	w.later(t.stop)
	return t
}

func (t *tenant) wrong(rule, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, "["+rule+"] "+fmt.Sprintf(format, args...))
}

func (w *world) tenantNS() string { return w.ns + "-tenant" }

// write creates the tenant's objects and changes them, one after the other, until ctx is cancelled.
func (t *tenant) write(ctx context.Context) {
	changes := hostiletest.Changes(hostileSize)
	for step := 2 * int(t.world.spec.Seed); ; step++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(hostileEvery):
		}
		n := step / 2 % len(changes)
		state := changes[n].Before
		if step%2 > 0 {
			state = changes[n].After
		}
		// The request is not cancelled, because an unknown outcome could not be judged.
		if err := t.one(context.WithoutCancel(ctx), fmt.Sprint("hostile-", n), state); err != nil {
			t.wrong("campaign", "the tenant's object %q: %v", changes[n].Name, err)
		}
	}
}

// one is one write. What the API server refuses (a CRD that has got a schema) is none.
func (t *tenant) one(ctx context.Context, name string, state []byte) error {
	fields, err := hostiletest.Writable(state, t.typ.GroupVersion().String())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t.load.pause.RLock()
	defer t.load.pause.RUnlock()
	got, err := t.kube.Replace(ctx, t.typ.Type, name, fields)
	if apierrors.IsNotFound(err) {
		got, err = t.kube.Create(ctx, t.typ.Type, name, fields)
	}
	if err != nil {
		got, err = find(ctx, t.kube, t.typ, name)
	}
	if got != nil {
		t.load.ledger.wrote(t.typ, got)
		t.writes++
	}
	return err
}

// live checks every bridge's liveness probe until ctx is cancelled, except while a fault stops or pauses one, which holds mu.
func (t *tenant) live(ctx context.Context) {
	w := t.world
	for pause(ctx, time.Now().Add(aliveEvery)) {
		w.mu.Lock()
		for _, p := range w.current {
			if !p.Listens() {
				continue
			}
			code, body, err := p.Get(ctx, "/healthz")
			if ctx.Err() == nil && p.Running() && (err != nil || code != http.StatusOK) {
				t.wrong("alive", "/healthz: %d %s, %v", code, body, err)
			}
		}
		w.mu.Unlock()
	}
}

// calm times the others' changes when the faults, and what they have led to, are over. While a fault lasts, and until the bridge has
// caught up, a change takes as long as that: seconds, with or without a tenant. That would hide what a tenant adds, which is milliseconds.
func (n *nemesis) calm(ctx context.Context) error {
	n.calmFrom = time.Now()
	err := n.load.run(ctx, int(n.spec.Faults.Seconds()*calmRate), n.spec.Faults)
	n.calmTo = time.Now()
	if n.tenant != nil {
		n.tenant.stop()
	}
	if err != nil {
		return fmt.Errorf("workload after the faults: %w", err)
	}
	return n.settle(ctx, n.load.ledger, "calm")
}

// besideTenant returns the problems that the tenant caused. Its events are judged like all others.
func (n *nemesis) besideTenant() []string {
	if n.tenant == nil {
		return nil
	}
	n.tenant.stop()
	if n.tenant.writes == 0 {
		n.tenant.wrong("campaign", "the API server took nothing from the tenant: nothing was tried")
	}
	for i, p := range n.processes {
		for line := range strings.Lines(p.Log()) {
			if strings.Contains(line, "collection suspended") && strings.Contains(line, n.widgets.ResourceID()) {
				n.tenant.wrong("held", "process %d: %.500s", i, line)
			}
		}
	}
	return n.tenant.problems
}

// delays returns the delays of others' changes in the calm.
func (n *nemesis) delays(ctx context.Context, l *ledger, messages []bus.Message) (*Delays, error) {
	if n.bus.timed != nil {
		var err error
		if messages, err = n.bus.timed(ctx); err != nil {
			return &Delays{}, err
		}
	}
	first := map[string]*bus.Message{}
	for i := range messages {
		m := &messages[i]
		if key := m.UID() + " " + m.RV(); first[key] == nil && !m.OfCollection() && !m.At.IsZero() {
			first[key] = m
		}
	}
	var all, seen []time.Duration
	for _, o := range l.objects {
		for _, v := range o.versions {
			m := first[fmt.Sprintf("%s %d", o.uid, v.rv)]
			if m == nil || v.at.Before(n.calmFrom) || v.at.After(n.calmTo) || !strings.HasPrefix(o.name, n.ns+"/") {
				continue
			}
			all = append(all, max(0, m.At.Sub(v.at)))
			seen = append(seen, max(0, timeOf(m).Sub(v.at)))
		}
	}
	if len(all) == 0 {
		return &Delays{}, nil
	}
	slices.Sort(all)
	slices.Sort(seen)
	return &Delays{len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1], seen[len(seen)*99/100]}, nil
}
