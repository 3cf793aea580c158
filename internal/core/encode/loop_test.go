package encode_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is the content that a loop reads: the ConfigMaps that were written. The first one has resourceVersion 1.
type cluster struct {
	mu      sync.Mutex
	history []string // raw objects; a deletion is "-" and the name
	objects map[string]string
	changed chan struct{}
	lists   int
}

// write writes an object with a value.
func (c *cluster) write(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw := configMap(name, "uid-"+name, strconv.Itoa(len(c.history)+1), value)
	c.history = append(c.history, raw)
	c.objects[name] = raw
	close(c.changed)
	c.changed = make(chan struct{})
}

// remove deletes an object if it exists.
func (c *cluster) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[name] == "" {
		return
	}
	c.history = append(c.history, "-"+name)
	delete(c.objects, name)
	close(c.changed)
	c.changed = make(chan struct{})
}

// frame returns the watch event for a line of the history, which has a version.
func frame(line string, version int) *reconcile.Sighting {
	name, removed := strings.CutPrefix(line, "-")
	if !removed {
		return sighting(line, reconcile.Watch)
	}
	return &reconcile.Sighting{Form: reconcile.Ended, Key: durable.ObjectKey("shop", name), UID: "uid-" + name, Version: strconv.Itoa(version)}
}

// Read implements [loop.Reader].
func (c *cluster) Read(ctx context.Context, _ string, want reconcile.Read, h *loop.Handler) error {
	at, _ := strconv.Atoi(want.From)
	if want.From == "" {
		var err error
		if at, err = c.list(ctx, h); err != nil {
			return err
		}
	}
	for {
		c.mu.Lock()
		fresh, changed := c.history[at:], c.changed
		c.mu.Unlock()
		for _, raw := range fresh {
			in := &reconcile.Input{Kind: reconcile.Sighted, Sighting: frame(raw, at+1), Resume: strconv.Itoa(at)}
			if err := h.Input(ctx, in, len(raw), nil); err != nil {
				return err
			}
			at++
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *cluster) list(ctx context.Context, h *loop.Handler) (int, error) {
	c.mu.Lock()
	all, version := maps.Clone(c.objects), len(c.history)
	c.lists++
	c.mu.Unlock()
	inputs := []*reconcile.Input{{Kind: reconcile.ListBegun, Reason: "snapshot"}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		inputs = append(inputs, &reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(all[name], reconcile.List)})
	}
	inputs = append(inputs, &reconcile.Input{Kind: reconcile.ListEnded, Version: strconv.Itoa(version)}, &reconcile.Input{Kind: reconcile.ListDone})
	for _, in := range inputs {
		if err := h.Input(ctx, in, 1000, nil); err != nil {
			return 0, err
		}
	}
	return version, nil
}

// Side implements [loop.Reader].
func (c *cluster) Side(context.Context, string, reconcile.Read, *loop.Handler) error {
	return errors.New("not in this test")
}

// bus is a sink that accepts values up to a limit in bytes, except for dead letters, which may be larger.
type bus struct {
	mu     sync.Mutex
	limit  int
	refuse string // the name of an object whose events are all rejected
	values []*event.Received
}

func (b *bus) Open(context.Context, []byte) error { return nil }
func (b *bus) Close() error                       { return nil }

func (b *bus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range batch.Records {
		if r.Event.Name == b.refuse && b.refuse != "" {
			return nil, &sink.RecordError{Index: i, Err: errors.New("never")}
		}
		if len(r.Value) > b.limit && r.Route != "dead" {
			return nil, &sink.RecordError{Index: i, Size: len(r.Value), Limit: b.limit, Err: errors.New("too large")}
		}
	}
	for _, r := range batch.Records {
		e, err := event.Parse(r.Value)
		if err != nil {
			return nil, err
		}
		b.values = append(b.values, e)
	}
	return nil, nil
}

func (b *bus) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.values)
}

// latest returns the latest version of each object on the bus, with its form.
func (b *bus) latest() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	latest := map[string]string{}
	for _, e := range b.values {
		if !e.Type.OfCollection() {
			f := form(e)
			if f == "diff, body" {
				f = "body"
			}
			latest[e.Name] = e.ResourceVersion + " " + f
		}
	}
	return latest
}

// blind is an observer that ignores all calls.
type blind struct{}

// ListBegun implements [loop.Observer].
func (blind) ListBegun(string) {}

// Queued implements [loop.Observer].
func (blind) Queued(loop.Load, loop.Load) {}

// Suspended implements [loop.Observer].
func (blind) Suspended(string, time.Time, error) {}
func (blind) EditWaits(string, bool)             {}

// Committed implements [loop.Observer].
func (blind) Committed(*loop.Commit) {}

// await waits until the condition holds.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never is")
		}
	}
}

// run runs a loop with diffs until kill is called.
func run(t *testing.T, r *rig, c *cluster, b *bus, policy encode.Oversize) (kill func()) {
	t.Helper()
	_, set, kill := runWith(t, r, c, b, policy)
	set(both)
	return kill
}

// runWith runs a loop until kill is called. set gives the loop a plan with one collection, and remove gives it a plan
// with none.
func runWith(t *testing.T, r *rig, c *cluster, b sink.Sink, policy encode.Oversize) (remove func(), set func(encode.Settings), kill func()) {
	t.Helper()
	e := encode.New(encode.Options{Store: r.store, Log: zap.NewNop(), Reports: encode.Reports{Plan: reports().Plan}, Config: encode.Config{
		Encoder: event.Encoder{Cluster: "prod", ClusterUID: "uid"}, Route: encode.Route{Topic: template(t, "{resource}")},
		Oversize: policy, DeadLetters: template(t, "dead"),
	}, Count: func(_ string, what encode.Count, _ event.Type) {
		if what == encode.Lost {
			r.lost.Add(1)
		}
	}})
	l := loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: b, Store: r.store}), Store: r.store, Reader: c, Encoder: e, Observer: blind{}, Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, ctx) }()
	of := configMaps
	set = func(s encode.Settings) {
		t.Helper()
		if err := l.Set(ctx, loop.Plan{
			Outcomes: &plan.Outcomes{Wanted: []plan.Collection{{Target: source.Target{Collection: of}}}},
			Wanted:   []loop.Wanted{{ID: "configmaps", Properties: func() (reconcile.Properties, error) { return configure(e, configMaps, s) }}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	remove = func() {
		t.Helper()
		e.Remove("configmaps")
		if err := l.Set(ctx, loop.Plan{Outcomes: &plan.Outcomes{Removed: []string{"configmaps"}}}); err != nil {
			t.Fatal(err)
		}
	}
	return remove, set, func() {
		cancel()
		<-done
	}
}

// logBus is a bus for the mode Log.
type logBus struct {
	bus
	states [][]event.KV // the state changes of the records
}

func (b *logBus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if _, err := b.bus.Write(ctx, batch); err != nil {
		return nil, err
	}
	for _, r := range batch.Records {
		b.states = append(b.states, slices.Clone(r.State))
	}
	return b.Mark(), nil
}

func (b *logBus) Mark() []byte { return []byte(strconv.Itoa(len(b.states))) }

func (b *logBus) Tail(_ context.Context, from []byte, apply func([]event.KV, []byte) error) error {
	at, _ := strconv.Atoi(string(from))
	for n, state := range b.states[at:] {
		if err := apply(state, []byte(strconv.Itoa(at+n+1))); err != nil {
			return err
		}
	}
	return nil
}

// keys returns the keys of the store that have a prefix, without the prefix.
func (r *rig) keys(prefix string) (keys []string) {
	r.t.Helper()
	err := r.store.Scan([]byte(prefix), func(key, _ []byte) error {
		keys = append(keys, strings.TrimPrefix(string(key), prefix))
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return keys
}

// Kept bodies never outlive the inventory entries of their objects, in a loop that is killed again and again. They are
// removed when no diff is wanted any more. A closed collection leaves none.
func TestBodiesInALoop(t *testing.T) {
	for name, log := range map[string]bool{"intents": false, "log": true} {
		for _, types := range [][]event.Type{nil, {event.Added, event.Modified}} {
			t.Run(fmt.Sprintf("%s %s", name, types), func(t *testing.T) {
				r := newRig(t, configMaps, encode.Settings{}, nil) // only its store is used
				c := &cluster{objects: map[string]string{}, changed: make(chan struct{})}
				logging := &logBus{bus: bus{limit: 1 << 20}}
				b, written := sink.Sink(&logging.bus), &logging.bus
				if log {
					b = logging
				}
				s := both
				s.Types = types
				random := rand.New(rand.NewPCG(1, 2))
				write := func() {
					for range 30 {
						if name := fmt.Sprint("n", random.IntN(40)); random.IntN(2) == 0 {
							c.write(name, name)
						} else {
							c.remove(name)
						}
					}
				}
				kept := 0
				for range 8 {
					_, set, kill := runWith(t, r, c, b, encode.Truncate)
					set(s)
					enough := written.count() + 50
					await(t, func() bool { // the reader skips states that are already replaced when it reads
						write()
						return written.count() >= enough
					})
					kill()
					objects, bodies := r.keys("o/"), r.keys("b/")
					for _, key := range bodies {
						if !slices.Contains(objects, key) {
							t.Errorf("%s has a kept body, and is not in the inventory", key)
						}
					}
					kept += len(bodies)
				}
				if kept == 0 {
					t.Error("no bodies are kept: this test shows nothing")
				}
				remove, set, kill := runWith(t, r, c, b, encode.Truncate)
				defer kill()
				set(encode.Settings{Types: types})
				c.write("n1", "last")
				last := sighting(c.objects["n1"], reconcile.Watch).Version + " body"
				await(t, func() bool { return written.latest()["n1"] == last })
				await(t, func() bool { return len(r.keys("b/")) == 0 })
				set(s)
				c.write("n1", "again")
				await(t, func() bool { return len(r.keys("b/")) == 1 })
				remove()
				await(t, func() bool { return len(r.keys("o/")) == 0 })
				await(t, func() bool {
					state, err := durable.Load(r.store)
					return err == nil && state.Records["configmaps"].Phase == reconcile.Closed
				})
				if left := slices.Concat(r.keys("o/"), r.keys("b/"), r.keys("i/"), r.keys("d/")); len(left) > 0 {
					t.Errorf("the collection is closed, and the store has %s of it", left)
				}
			})
		}
	}
}

// An object whose events are all rejected by the bus does not delay any other object, neither in a list nor in a watch
// nor after a restart. Its events are lost and counted. Events that a kill leaves uncommitted are counted a second
// time.
func TestLost(t *testing.T) {
	for _, policy := range []encode.Oversize{encode.Truncate, encode.ToDeadLetters} {
		for mode, b := range map[string]interface {
			sink.Sink
			latest() map[string]string
		}{
			"intents": &bus{limit: 1 << 20, refuse: "cursed"}, "log": &logBus{bus: bus{limit: 1 << 20, refuse: "cursed"}},
		} {
			t.Run(string(policy)+", "+mode, func(t *testing.T) {
				r := newRig(t, configMaps, encode.Settings{}, nil) // only its store is used
				c := &cluster{objects: map[string]string{}, changed: make(chan struct{})}
				events, life := 0, 0 // of the rejected object
				change := func(what func()) {
					what()
					events++
					c.write("ordinary", strconv.Itoa(events))
				}
				arrives := func() {
					t.Helper()
					want := map[string]string{"ordinary": sighting(c.objects["ordinary"], reconcile.List).Version + " body"}
					await(t, func() bool { return maps.Equal(b.latest(), want) })
					if got := int(r.lost.Load()); got < events || got > events+life {
						t.Errorf("after %d events and %d kills, %d events are counted as lost", events, life, got)
					}
				}
				write := func() { c.write("cursed", strconv.Itoa(events)) }
				for ; life < 3; life++ {
					change(write)
					_, set, kill := runWith(t, r, c, b, policy)
					set(both)
					arrives()
					change(write)
					arrives()
					if life == 2 {
						change(func() { c.remove("cursed") })
						if policy == encode.ToDeadLetters { // a deletion is not published for an object that consumers do not have
							events--
						}
						arrives()
					}
					kill()
				}
			})
		}
	}
}

// A loop is killed again and again, and a fifth of the objects do not fit the bus. The last state of every object
// still arrives: whole, truncated, or among the dead letters.
func TestInALoop(t *testing.T) {
	for policy, large := range map[encode.Oversize]string{encode.Truncate: "truncated", encode.ToDeadLetters: "dead letter (oversize), body"} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t, configMaps, encode.Settings{}, nil) // only its store is used
			c := &cluster{objects: map[string]string{}, changed: make(chan struct{})}
			b := &bus{limit: 4000}
			random := rand.New(rand.NewPCG(1, 2))
			write := func(n int) {
				value := strconv.Itoa(n)
				if n%5 == 0 {
					value = strings.Repeat(value+" ", 2000)
				}
				c.write(fmt.Sprint("n", n), value)
			}
			for n := range 300 {
				write(n)
			}
			want := func() map[string]string {
				out := map[string]string{}
				for name, raw := range c.objects {
					out[name] = sighting(raw, reconcile.List).Version + " body"
					if len(raw) > b.limit {
						out[name] = sighting(raw, reconcile.List).Version + " " + large
					}
				}
				return out
			}
			for life := range 6 {
				kill := run(t, r, c, b, policy)
				enough := b.count() + 100
				for range 200 {
					write(random.IntN(300))
				}
				await(t, func() bool { return b.count() >= enough })
				if life == 5 {
					await(t, func() bool { return maps.Equal(b.latest(), want()) })
				} else {
					for range 50 {
						write(random.IntN(300))
					}
				}
				kill()
			}
			state, err := durable.Load(r.store)
			if err != nil || state.Records["configmaps"].Phase != reconcile.InStep {
				t.Errorf("%+v, %v", state.Records, err)
			}
			if c.lists > 20 {
				t.Errorf("%d lists were read", c.lists)
			}
			r.values = b.values
			if n := strings.Count(r.differences(), "→"); n == 0 { // the number depends on how fast this machine is
				t.Error("no event says what changed: this test shows nothing")
			}
			t.Logf("%d lists, %d events", c.lists, len(b.values))
		})
	}
}
