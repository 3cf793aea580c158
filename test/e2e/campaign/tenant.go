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

	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
	"github.com/kubebridge/kubebridge/test/hostiletest"
)

const (
	hostileSize  = 200 << 10   // bytes of one state of an object
	hostileEvery = time.Second // interval between two writes of the tenant
	calmRate     = 100         // operations per second of the other users in a calm
	aliveEvery   = 500 * time.Millisecond
	calmTurns    = 2 // number of times that each calm takes place
	// delayFactor is the highest allowed ratio of the other users' 99th percentile beside hostile objects to that beside ordinary objects.
	delayFactor = 3
	// costliest is a 99th percentile that is allowed whatever the ratio is, because a bus that answers late may affect only one of the calms.
	costliest = 50 * time.Millisecond
	// judgedFrom is the number of changes that a calm needs. With fewer changes, a single late answer could decide the 99th percentile.
	judgedFrom = 400
)

// calm is a period after the faults in which the delays of the other users' changes are measured.
type calm int

const (
	without  calm = iota // the tenant writes nothing
	ordinary             // the tenant writes ordinary objects of the same size
	beside               // the tenant writes its hostile objects
	calms
)

// AllDelays has the delays of the other users' changes in each calm.
type AllDelays struct {
	Without  Delays `json:"without"`
	Ordinary Delays `json:"ordinary"`
	Beside   Delays `json:"beside"`
}

func (d *AllDelays) String() string {
	return fmt.Sprintf("without the tenant: %s\n  beside its ordinary objects: %s\n  beside its hostile objects: %s", &d.Without, &d.Ordinary, &d.Beside)
}

// Times returns the ratio of the 99th percentile beside hostile objects to that beside ordinary objects; 0 if it is unknown.
func (d *AllDelays) Times() float64 {
	if d.Ordinary.P99 == 0 {
		return 0
	}
	return float64(d.Beside.P99) / float64(d.Ordinary.P99)
}

// judge compares hostile objects with ordinary ones of the same size: see docs/adr/0024-a-hostile-object-and-an-ordinary-one.md.
func (d *AllDelays) judge() (problems []string) {
	if min(d.Ordinary.Changes, d.Beside.Changes) < judgedFrom { // too few changes; none at all on a bus that does not record when a message arrived, such as a file
		return nil
	}
	if most := max(delayFactor*d.Ordinary.P99, costliest); d.Beside.P99 > most {
		problems = append(problems, fmt.Sprintf("[delay] 99 of 100 changes of others took up to %s beside hostile objects, and %s beside ordinary ones: want at most %s", d.Beside.P99, d.Ordinary.P99, most))
	}
	return problems
}

// Delays has the times that changes took from the API server's answer until their record was on the bus, while there was no fault.
type Delays struct {
	Changes int           `json:"changes"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	Max     time.Duration `json:"max"`
	Seen99  time.Duration `json:"seen99"` // 99th percentile of the time until the bridge had received the change
}

func (d *Delays) String() string {
	return fmt.Sprintf("%d changes, half within %s, 99 of 100 within %s (received within %s), all within %s", d.Changes, d.P50, d.P99, d.Seen99, d.Max)
}

// tenant is a user who may write in one namespace, and whose objects are as costly for the bridge as possible.
type tenant struct {
	world *world
	load  *workload
	kube  *kube.Client
	rest  func() // stops the writes, and returns when the last one is complete
	stop  func() // calls rest, stops the checks of the bridges' liveness, and returns when the last one is complete

	step   int // number of the next write, which determines the object and its state; only for use between rest and start
	writes int // number of writes after which the object existed, whether the API server accepted or refused them; for use as step

	mu       sync.Mutex
	problems []string
}

// admit creates the tenant's namespace. It makes the bridge watch the tenant's type in all namespaces, with all settings that cost time
// for each object.
func (w *world) admit(ctx context.Context) error {
	if _, err := w.kube.Create(ctx, kube.Namespaces, w.tenantNS(), nil); err != nil {
		return err
	}
	t := &w.types[1]
	t.costly, t.filter, t.ignore, t.diff = true, true, true, cmp.Or(t.diff, "patch")
	return nil
}

// attack starts the tenant, and checks the bridges' liveness probes until the tenant is stopped.
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

// start makes the tenant write objects of a kind. The tenant must not be writing: before each further start, call rest.
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

// write creates the tenant's objects and changes them, one after the other, until ctx is cancelled.
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

// one makes one write, and returns whether the object exists after it. The API server may refuse a write, for example because the CRD
// has a schema by now.
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
	t.load.ledger.wrote(typ, o, admin)
	return true, nil
}

// live checks every bridge's liveness probe until ctx is cancelled. A fault that stops or pauses a bridge holds the world's mu, so
// that live waits for its end.
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

// calm measures the delays of the other users' changes after the faults and their consequences. While a fault lasts, and until the bridge
// has caught up, a change takes seconds, with or without a tenant. That would hide the delay that a tenant adds, which is milliseconds.
//
// The calms take turns, so that other load of the machine affects all of them alike. In the calms of one turn, the tenant writes objects
// of the same size at the same rate.
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

// span is an interval of time; both ends belong to it.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool { return !at.Before(s.from) && !at.After(s.to) }

// besideTenant stops the tenant, and returns the failed liveness probes and the suspensions of its collection. The events about the
// tenant's objects are judged like all others.
func (n *nemesis) besideTenant() []string {
	if n.tenant == nil {
		return nil
	}
	n.tenant.stop()
	if n.tenant.writes == 0 {
		n.tenant.wrong("campaign", "no write of the tenant created an object, so the seed did not test a hostile tenant")
	}
	if n.happenedAny(routesRefused) { // the bus suspends collections, too
		return n.tenant.problems
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

// delays returns the delays of the other users' changes in the calms.
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

// delaysIn returns the delays in one calm. first has the first message of each change, by UID and resourceVersion.
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
