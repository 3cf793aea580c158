package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/kubebridge/test/e2e/internal/bridge"
	"github.com/kubebridge/kubebridge/test/e2e/internal/bus"
	"github.com/kubebridge/kubebridge/test/e2e/internal/kube"
)

// secondSink is a NATS sink beside the sink under test. A fault blocks it for a time.
type secondSink struct {
	server *natsServer
	conn   *nats.Conn
}

func startSecond(dir string) (*secondSink, error) {
	server, err := startNATS(dir)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect("nats://"+server.addr(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		server.end(syscall.SIGKILL)
		return nil, err
	}
	return &secondSink{server, conn}, nil
}

func (s *secondSink) close() {
	s.conn.Close()
	s.server.end(syscall.SIGKILL)
}

// share adds a resource that several entries share to the configuration, and a second sink for this resource alone.
func (w *world) share(ctx context.Context, c *bridge.Config) error {
	w.gadgets = &gadgets{world: w, typ: kube.Widgets("gadgets." + w.ns + ".kubebridge.io"), random: newChance(w.spec.Seed, 4), truth: newGadgetTruth()}
	w.gadgets.typ.Resource, w.gadgets.typ.Kind = "gadgets", "Gadget"
	if err := w.gadgets.prepare(ctx); err != nil {
		return err
	}
	second, err := startSecond(w.dir + "/second")
	if err != nil {
		return err
	}
	w.beside, w.own = second, len(c.Resources)
	w.later(second.close)
	c.Sinks = append(c.Sinks, bridge.Sink{Name: "second", NATS: map[string]any{"url": "nats://" + second.server.addr(), "delivery": "exactly-once"}})
	first := firstEdition(newChance(w.spec.Seed, 5), w.gadgets.namespaces)
	if w.spec.Kills > 0 {
		first = twoEntries(w.gadgets.namespaces)
	}
	first.since = time.Now()
	w.gadgets.editions = []edition{first}
	w.asked(c, first)
	return nil
}

// asked puts an edition's entries into a configuration.
func (w *world) asked(c *bridge.Config, e edition) {
	var entries []bridge.Resource
	for _, one := range e.entries {
		entries = append(entries, one.resource(w.gadgets.typ.ResourceID(), gadgetLabel+"="+w.ns))
	}
	c.Resources = append(slices.Clone(c.Resources[:w.own]), entries...)
	c.Sinks = slices.Clone(c.Sinks)
	c.Sinks[1].Resources = entries
}

// shares reports whether a message is of the resource that entries share.
func (w *world) shares(m *bus.Message) bool {
	return w.gadgets != nil && resourceOf(m) == w.gadgets.typ.ResourceID()
}

// ofEntries divides a sink's messages into those of the shared resource and the others.
func (w *world) ofEntries(all []bus.Message) (shared, others []bus.Message) {
	for i := range all {
		if w.shares(&all[i]) {
			shared = append(shared, all[i])
		} else {
			others = append(others, all[i])
		}
	}
	return shared, others
}

// edition returns the configured edition.
func (g *gadgets) edition() edition { return g.editions[len(g.editions)-1] }

// write makes an edition the configured one. The caller holds the world's mu; the running bridges notice it by polling, or at a SIGHUP.
func (n *nemesis) write(next edition) error {
	next.since = time.Now()
	n.gadgets.editions = append(n.gadgets.editions, next)
	n.asked(&n.wanted, next)
	return n.configure(n.wanted)
}

// redo draws a random edit and writes it.
func (n *nemesis) redo(r *chance) (before edition, err error) {
	g := n.gadgets
	before = g.edition()
	back := g.editions[max(0, len(g.editions)-2)]
	return before, n.write(before.edited(r, back, g.namespaces))
}

// back configures an earlier edition again, but with the present labels of the namespaces.
func (n *nemesis) back(before edition) error {
	before.labelled = n.gadgets.edition().labelled
	return n.write(before)
}

// reload makes the running bridges read the file. The caller holds mu.
func (w *world) reload() {
	for _, p := range w.processes {
		if p.Running() && strings.Contains(p.Log(), "status listens") { // before that, SIGHUP would terminate the bridge; it polls the file anyway
			p.Signal(syscall.SIGHUP)
		}
	}
}

// movedAndExpired is the combination of faults in which the list of one entry lacks objects that the list of another one has.
const movedAndExpired = "objects given to another entry while the bridge is down, then entries' history expired (410)"

// entriesFaults returns the edits of the entries, alone and combined with other faults.
func (n *nemesis) entriesFaults() []fault {
	g := n.gadgets
	held := func(do func() error) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		return do()
	}
	live := func(do func() error) error {
		return held(func() error {
			err := do()
			n.reload()
			return err
		})
	}
	edit := func(r *chance) (before edition, err error) {
		err = live(func() error { before, err = n.redo(r); return err })
		return before, err
	}
	// down stops or kills all bridges, calls do, and starts the bridges again.
	down := func(r *chance, do func() error) error {
		return held(func() error {
			if err := n.revive(); err != nil {
				return err
			}
			for _, p := range n.current {
				if r.IntN(2) == 0 {
					p.Kill()
				} else {
					p.Signal(syscall.SIGTERM)
					if _, err := p.Wait(2 * time.Second); err != nil {
						p.Kill()
					}
				}
			}
			err := do()
			for i := range n.current {
				err = errors.Join(err, n.relaunch(i))
			}
			return err
		})
	}
	during := func(begin, end func(), r *chance, do func() error) func(context.Context) error {
		return func(ctx context.Context) error {
			begin()
			err := do()
			r.wait(ctx, time.Second)
			end()
			return err
		}
	}
	back := func(ctx context.Context, r *chance) error {
		before, err := edit(r)
		if err != nil {
			return err
		}
		r.wait(ctx, 800*time.Millisecond)
		return live(func() error { return n.back(before) })
	}
	relabel := func(ctx context.Context, r *chance) error {
		return g.locked(func() error { return g.relabel(ctx, r) })
	}
	return []fault{
		{name: "entries edited", do: func(_ context.Context, r *chance) error { _, err := edit(r); return err }},
		{name: "entries edited and the edit reverted", do: back},
		{name: "entries edited while lists are open", do: func(ctx context.Context, r *chance) error {
			return during(n.api.Hold, n.api.Pass, r, func() error {
				if r.IntN(2) == 0 {
					return back(ctx, r)
				}
				_, err := edit(r)
				return err
			})(ctx)
		}},
		{name: "entries edited in an outage of the bus", do: func(ctx context.Context, r *chance) error {
			each := func(do func(int)) func() {
				return func() {
					for i := range n.bus.proxies {
						do(i)
					}
				}
			}
			begin, end := each(func(i int) { n.bus.proxies[i].Refuse() }), each(func(i int) { n.bus.proxies[i].Pass() })
			return during(begin, end, r, func() error {
				if r.IntN(2) == 0 {
					return back(ctx, r)
				}
				_, err := edit(r)
				return err
			})(ctx)
		}, hurts: true},
		{name: "entries edited with a restart", do: func(_ context.Context, r *chance) error {
			return down(r, func() error { _, err := n.redo(r); return err })
		}},
		{name: "entries edited with a restart, and the edit reverted with another restart", do: func(ctx context.Context, r *chance) error {
			var before edition
			if err := down(r, func() (err error) { before, err = n.redo(r); return err }); err != nil {
				return err
			}
			r.wait(ctx, time.Second)
			return down(r, func() error { return n.back(before) })
		}},
		{name: "objects relabelled", do: relabel},
		{name: "objects relabelled, entries edited", do: func(ctx context.Context, r *chance) error {
			if err := relabel(ctx, r); err != nil {
				return err
			}
			_, err := edit(r)
			return err
		}},
		{name: "objects relabelled while the bridge is down", do: func(ctx context.Context, r *chance) error {
			return down(r, func() error { return relabel(ctx, r) })
		}},
		{name: movedAndExpired, often: true, do: func(ctx context.Context, r *chance) error {
			return down(r, func() error {
				return g.locked(func() error { return errors.Join(g.handOver(ctx, r, g.edition()), g.forget(ctx)) })
			})
		}},
		{name: "objects relabelled behind a cut connection, then entries' history expired (410)", do: func(ctx context.Context, r *chance) error {
			return during(n.api.Refuse, n.api.Pass, r, func() error {
				return g.locked(func() error { return errors.Join(g.relabel(ctx, r), g.forget(ctx)) })
			})(ctx)
		}},
		{name: "entries' history expired (410)", do: func(ctx context.Context, _ *chance) error {
			return g.locked(func() error { return g.forget(ctx) })
		}},
		{name: "entries' CRD deleted and created again", once: true, do: func(ctx context.Context, r *chance) error {
			return g.locked(func() error { return g.remake(ctx, r) })
		}},
		{name: "a namespace leaves the selector and returns", do: func(ctx context.Context, r *chance) error {
			namespace := g.namespaces[r.IntN(len(g.namespaces))]
			if err := n.label(ctx, namespace, false); err != nil {
				return err
			}
			r.wait(ctx, 1500*time.Millisecond)
			return n.label(ctx, namespace, true)
		}},
		{name: "resync of entries requested", do: func(ctx context.Context, r *chance) error {
			return held(func() error {
				path := n.socket(slices.Index(n.processes, n.current[0]))
				return ignoreAway(askAdmin(ctx, path, "/resync?resource="+url.QueryEscape(g.typ.ResourceID())))
			})
		}},
		{name: "second sink blocked", do: n.blockSecond, once: true},
	}
}

// label adds to a namespace, or removes from it, the label that the namespace selector of entries requires.
func (n *nemesis) label(ctx context.Context, namespace string, on bool) error {
	value := "null"
	if on {
		value = `"` + n.ns + `"`
	}
	n.mu.Lock()
	g := n.gadgets
	next := edition{since: time.Now(), entries: g.edition().entries, labelled: maps.Clone(g.edition().labelled)}
	next.labelled[namespace] = on
	g.editions = append(g.editions, next)
	n.mu.Unlock()
	for {
		_, err := n.kube.Patch(ctx, kube.Namespaces, namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, gadgetLabel, value))
		if err == nil || !rest(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// unblocked is how long a change may take to reach the first sink's bus while the second sink's bus is stopped. Without a blocked sink,
// it takes a second or two under load.
const unblocked = 30 * time.Second

// blockSecond stops the second sink's bus for a time. The first sink must continue, even if the API server loses the history meanwhile.
func (n *nemesis) blockSecond(ctx context.Context, r *chance) error {
	g := n.gadgets
	n.beside.server.signal(syscall.SIGSTOP)
	defer n.beside.server.signal(syscall.SIGCONT)
	err := g.locked(func() error {
		err := g.relabel(ctx, r)
		if r.IntN(2) == 0 {
			err = errors.Join(err, g.forget(ctx))
		}
		return err
	})
	if err != nil || n.pair.lossy() {
		return err
	}
	// Other faults at the same time delay the first sink as well, but none of them lasts this long.
	patience := unblocked
	if n.spec.Harm { // the API server may restart twice, which takes long on a busy machine
		patience *= 4
	}
	n.mu.Lock()
	last := g.edition()
	n.mu.Unlock()
	for i, one := range last.entries {
		if one.types != nil {
			continue
		}
		var marker *unstructured.Unstructured
		if err := g.locked(func() (err error) {
			marker, err = g.marker(ctx, one, fmt.Sprintf(markerPrefix+"blocked-%d", i))
			return err
		}); err != nil {
			return err
		}
		limit, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience)) // for each marker: the one before may have been undone
		err := n.await(limit, string(marker.GetUID())+" "+marker.GetResourceVersion())
		cancel()
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			if g.undone(string(marker.GetUID())) {
				continue
			}
			n.record.Lock()
			n.delayed = append(n.delayed, fmt.Sprintf("[blocked] first sink: a change for entry %d did not reach the bus while the second one's bus was stopped: %v", i, err))
			n.record.Unlock()
			return nil
		}
	}
	return nil
}

// undone reports whether a restore of etcd has undone an object.
func (g *gadgets) undone(uid string) (is bool) {
	_ = g.locked(func() error { is = g.truth.objects[uid] == nil; return nil })
	return is
}

// markerPrefix is the prefix of the names of markers.
const markerPrefix = "marker-"

// marker creates an object that an entry selects. Call it through [gadgets.locked].
func (g *gadgets) marker(ctx context.Context, e entry, name string) (*unstructured.Unstructured, error) {
	value, namespace := gadgetValues[0], g.namespaces[0]
	switch e.selectBy {
	case byNamespace:
		namespace = e.values[0]
	case byOtherNamespaces:
		namespace = g.namespaces[slices.IndexFunc(g.namespaces, func(n string) bool { return !slices.Contains(e.values, n) })]
	default:
		value = e.values[0]
	}
	g.next++
	name = fmt.Sprintf("%s-%d", name, g.next)
	return g.made(ctx, namespace, name, value, "yes", g.stamp(name))
}

// settleEntries configures a last edition that leaves no types out. It returns when the copies of both sinks equal the selected objects,
// or after 30 seconds; the verdict reports differences that remain. It returns an error if the bridge does not follow the edition.
func (n *nemesis) settleEntries(ctx context.Context) error {
	g := n.gadgets
	n.mu.Lock()
	err := n.write(g.edition().whole())
	n.mu.Unlock()
	if err != nil {
		return err
	}
	for _, namespace := range g.namespaces {
		if err := n.label(ctx, namespace, true); err != nil {
			return err
		}
	}
	if err := n.reloaded(ctx); err != nil {
		return err
	}
	if !n.pair.lossy() {
		for i, one := range g.edition().entries {
			var marker *unstructured.Unstructured
			if err := g.locked(func() (err error) { marker, err = g.marker(ctx, one, fmt.Sprintf(markerPrefix+"%d", i)); return err }); err != nil {
				return err
			}
			attempt, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not within 1 minute"))
			err := n.await(attempt, string(marker.GetUID())+" "+marker.GetResourceVersion())
			cancel()
			if err != nil {
				return fmt.Errorf("the marker of entry %d did not reach the bus: %w; %s", i, err, n.discovered(ctx, g.typ))
			}
		}
	}
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		messages, err := n.bus.read(limit)
		equal := err == nil
		var verdicts []*entriesVerdict
		if equal {
			ofEntries, _ := n.ofEntries(messages)
			verdicts, err = n.entriesVerdicts(limit, ofEntries)
			equal = err == nil
		}
		for _, v := range verdicts {
			equal = equal && (v.lost || len(v.union()) == 0)
		}
		if equal || !rest(limit, 300*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// reloaded returns when every running bridge has read the present configuration.
func (n *nemesis) reloaded(ctx context.Context) error {
	const said = "configuration reloaded"
	n.mu.Lock()
	err := n.revive()
	processes := slices.Clone(n.current)
	n.mu.Unlock()
	for _, p := range processes {
		for before := strings.Count(p.Log(), said); err == nil && p.Running() && strings.Count(p.Log(), said) == before; {
			if strings.Contains(p.Log(), "status listens") {
				p.Signal(syscall.SIGHUP)
			}
			if !rest(ctx, 500*time.Millisecond) {
				return fmt.Errorf("the bridge did not reload its configuration: %w", context.Cause(ctx))
			}
		}
	}
	return err
}

// entriesVerdicts returns a verdict for each sink, which is not judged yet: for the first sink with the messages given, for the second sink
// with all messages that its bus has now.
func (n *nemesis) entriesVerdicts(ctx context.Context, first []bus.Message) ([]*entriesVerdict, error) {
	second, err := bus.ReadStream(ctx, n.beside.conn, 0)
	if err != nil {
		return nil, err
	}
	g := n.gadgets
	return []*entriesVerdict{
		{
			sink: "first sink", pair: n.pair, truth: g.truth, resource: g.typ.ResourceID(), editions: g.editions, happened: n.happened, messages: first,
			lost: n.mayHaveLost(), killed: n.inDoubt(),
		},
		{
			sink: "second sink", pair: Pair{Bus: "nats", Delivery: "exactly-once"}, truth: g.truth, resource: g.typ.ResourceID(), editions: g.editions,
			happened: n.happened, messages: second,
		},
	}, nil
}
