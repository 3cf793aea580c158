package campaign

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/internal/hostiletest"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

const (
	hostileSize  = 200 << 10   // bytes of a state
	hostileEvery = time.Second // between two of its writes
	calmRate     = 100         // operations of the others a second, while they are timed
	aliveEvery   = 500 * time.Millisecond
	calmTurns    = 2 // of each calm
	// delayFactor is how many times as long 99 of 100 changes of others may take beside hostile objects as beside ordinary ones.
	delayFactor = 3
	// costliest is how long they may always take: a bus that answers late may hit one of the calms only.
	costliest = 50 * time.Millisecond
	// judgedFrom is the number of changes from which on the slowest hundredth is not a matter of chance.
	judgedFrom = 400
)

// calm is a time after the faults in which the changes of others are timed.
type calm int

const (
	without  calm = iota // the tenant writes nothing
	ordinary             // it writes ordinary objects of the same size
	beside               // it writes its hostile objects
	calms
)

// AllDelays are those of others' changes in each calm.
type AllDelays struct {
	Without  Delays `json:"without"`
	Ordinary Delays `json:"ordinary"`
	Beside   Delays `json:"beside"`
}

func (d *AllDelays) String() string {
	return fmt.Sprintf("without the tenant: %s\n  beside its ordinary objects: %s\n  beside its hostile objects: %s", &d.Without, &d.Ordinary, &d.Beside)
}

// Times is how many times as long 99 of 100 changes took beside hostile objects as beside ordinary ones; 0: it is not known.
func (d *AllDelays) Times() float64 {
	if d.Ordinary.P99 == 0 {
		return 0
	}
	return float64(d.Beside.P99) / float64(d.Ordinary.P99)
}

// judge compares hostile objects with ordinary ones of the same size: see docs/adr/0024-a-hostile-object-and-an-ordinary-one.md.
func (d *AllDelays) judge() (problems []string) {
	if min(d.Ordinary.Changes, d.Beside.Changes) < judgedFrom { // a file does not say when it had a line
		return nil
	}
	if most := max(delayFactor*d.Ordinary.P99, costliest); d.Beside.P99 > most {
		problems = append(problems, fmt.Sprintf("[delay] 99 of 100 changes of others took up to %s beside hostile objects, and %s beside ordinary ones: want at most %s", d.Beside.P99, d.Ordinary.P99, most))
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
	rest  func() // returns when nothing is written any more
	stop  func() // rests, and returns when nobody asks for the bridges' liveness any more

	step   int // which object is written next, and in which state; only while the tenant rests
	writes int // that the API server took, or that found the object as it was; as step

	mu       sync.Mutex
	problems []string
}

// admit makes what the tenant writes to. The bridge watches the type in all namespaces, with everything that takes time.
func (w *world) admit(ctx context.Context) error {
	if _, err := w.kube.Create(ctx, kube.Namespaces, w.tenantNS(), nil); err != nil {
		return err
	}
	t := &w.types[1]
	t.costly, t.filter, t.ignore, t.diff = true, true, true, cmp.Or(t.diff, "patch")
	return nil
}

// attack starts the tenant, and checks the bridges' liveness probes while it runs.
func (w *world) attack(ctx context.Context, load *workload) *tenant {
	t := &tenant{world: w, load: load, kube: w.kube.In(w.tenantNS()), step: 2 * int(w.spec.Seed)}
	t.start(ctx, "hostile", hostiletest.Changes(hostileSize))
	ctx, end := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { t.live(ctx) })
	t.stop = sync.OnceFunc(func() { t.rest(); end(); asking.Wait() })
	w.later(t.stop)
	return t
}

// start has the tenant, which rests, write objects of a kind.
func (t *tenant) start(ctx context.Context, kind string, changes []hostiletest.Change) {
	ctx, end := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() { t.write(ctx, kind, changes) })
	t.rest = func() { end(); writing.Wait() }
}

func (t *tenant) wrong(rule, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, "["+rule+"] "+fmt.Sprintf(format, args...))
}

func (w *world) tenantNS() string { return w.ns + "-tenant" }

// write creates the tenant's objects and changes them, one after the other, until ctx ends.
func (t *tenant) write(ctx context.Context, kind string, changes []hostiletest.Change) {
	for ; pause(ctx, time.Now().Add(hostileEvery)); t.step++ {
		n := t.step / 2 % len(changes)
		state := changes[n].Before
		if t.step%2 > 0 {
			state = changes[n].After
		}
		// The request is not cancelled, because an unknown outcome could not be judged.
		got, err := t.one(context.WithoutCancel(ctx), fmt.Sprint(kind, "-", n), state)
		if err != nil {
			t.wrong("campaign", "the tenant's object %q: %v", changes[n].Name, err)
		}
		if got {
			t.writes++
		}
	}
}

// one is one write. What the API server refuses (a CRD that has got a schema) is none.
func (t *tenant) one(ctx context.Context, name string, state []byte) (got bool, err error) {
	typ := t.world.types[1]
	fields, err := hostiletest.Writable(state, typ.GroupVersion().String())
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t.load.pause.RLock()
	defer t.load.pause.RUnlock()
	o, err := t.kube.Replace(ctx, typ.Type, name, fields)
	if apierrors.IsNotFound(err) {
		o, err = t.kube.Create(ctx, typ.Type, name, fields)
	}
	if err != nil {
		o, err = find(ctx, t.kube, typ, name)
	}
	if o == nil {
		return false, err
	}
	t.load.ledger.wrote(typ, o)
	return true, nil
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
//
// The calms take turns, so that what else the machine does meets all of them. In each turn the tenant writes as often, and objects of the
// same size.
func (n *nemesis) calm(ctx context.Context) error {
	t := n.tenant
	t.rest()
	for turn := range calmTurns {
		first := t.step
		for c := range calms {
			t.step = first
			switch c {
			case ordinary:
				t.start(ctx, "ordinary", hostiletest.Large())
			case beside:
				t.start(ctx, "hostile", hostiletest.Changes(hostileSize))
			}
			d := n.spec.Faults / calmTurns
			from := time.Now()
			err := n.load.run(ctx, int(d.Seconds()*calmRate), d)
			n.calms[c] = append(n.calms[c], span{from, time.Now()})
			t.rest()
			if err != nil {
				return fmt.Errorf("workload after the faults: %w", err)
			}
			if err := n.settle(ctx, n.load.ledger, fmt.Sprintf("calm-%d-%d", turn, c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is a time.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && !at.After(s.to) }

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

// delays returns the delays of others' changes in the calms.
func (n *nemesis) delays(ctx context.Context, l *ledger, messages []bus.Message) (*AllDelays, error) {
	if n.bus.timed != nil {
		var err error
		if messages, err = n.bus.timed(ctx); err != nil {
			return &AllDelays{}, err
		}
	}
	first := map[string]*bus.Message{}
	for i := range messages {
		m := &messages[i]
		if key := m.UID() + " " + m.RV(); first[key] == nil && !m.OfCollection() && !m.At.IsZero() {
			first[key] = m
		}
	}
	return &AllDelays{n.delaysIn(without, l, first), n.delaysIn(ordinary, l, first), n.delaysIn(beside, l, first)}, nil
}

// delaysIn are those in one calm. first are the first messages of changes.
func (n *nemesis) delaysIn(c calm, l *ledger, first map[string]*bus.Message) Delays {
	var all, seen []time.Duration
	for _, o := range l.objects {
		for _, v := range o.versions {
			m := first[fmt.Sprintf("%s %d", o.uid, v.rv)]
			timed := slices.ContainsFunc(n.calms[c], func(s span) bool { return s.has(v.at) })
			if m == nil || !timed || !strings.HasPrefix(o.name, n.ns+"/") {
				continue
			}
			all = append(all, max(0, m.At.Sub(v.at)))
			seen = append(seen, max(0, timeOf(m).Sub(v.at)))
		}
	}
	if len(all) == 0 {
		return Delays{}
	}
	slices.Sort(all)
	slices.Sort(seen)
	return Delays{len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1], seen[len(seen)*99/100]}
}
