package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is the content that a test's reader reads: names with the version of their last write, or 0 if deleted. The
// uid of an object is the version of its creation.
type cluster struct {
	mu      sync.Mutex
	history []change // the first has resourceVersion 1
	objects map[string]state
	changed chan struct{}
}

type change struct {
	name string
	uid  int // 0: deleted
}

func newCluster() *cluster {
	return &cluster{objects: map[string]state{}, changed: make(chan struct{})}
}

func (c *cluster) write(name string, remove bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := c.objects[name].uid
	switch {
	case remove && uid == 0:
		return
	case remove:
		uid = 0
	case uid == 0:
		uid = len(c.history) + 1
	}
	c.history = append(c.history, change{name, uid})
	if c.objects[name] = (state{uid, len(c.history)}); remove {
		delete(c.objects, name)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

type state struct{ uid, version int }

func sighting(name string, s state, origin reconcile.Origin) *reconcile.Sighting {
	return &reconcile.Sighting{
		Origin: origin, Key: durable.ObjectKey("shop", name), UID: strconv.Itoa(s.uid), Version: strconv.Itoa(s.version), Digest: reconcile.Digest(fmt.Appendf(nil, "%016d", s.version)), Body: s.version,
	}
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
	c.mu.Lock()
	uids := map[string]int{}
	for _, w := range c.history[:at] {
		uids[w.name] = w.uid
	}
	c.mu.Unlock()
	for last := at; ; {
		c.mu.Lock()
		fresh, changed := c.history[last:], c.changed
		c.mu.Unlock()
		for _, w := range fresh {
			resume := last
			last++
			s := sighting(w.name, state{w.uid, last}, reconcile.Watch)
			if w.uid == 0 {
				s.Form, s.UID = reconcile.Ended, strconv.Itoa(uids[w.name])
			}
			uids[w.name] = w.uid
			if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.Sighted, Sighting: s, Resume: strconv.Itoa(resume)}, 100, nil); err != nil {
				return err
			}
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
	c.mu.Unlock()
	inputs := []*reconcile.Input{{Kind: reconcile.ListBegun, Reason: "snapshot"}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		inputs = append(inputs, &reconcile.Input{Kind: reconcile.Sighted, Sighting: sighting(name, all[name], reconcile.List)})
	}
	inputs = append(inputs, &reconcile.Input{Kind: reconcile.ListEnded, Version: strconv.Itoa(version)})
	for _, in := range inputs {
		if err := h.Input(ctx, in, 100, nil); err != nil {
			return 0, err
		}
	}
	for {
		missing, err := h.Missing(ctx, 100)
		if err != nil {
			return 0, err
		}
		for _, a := range missing {
			s := &reconcile.Sighting{Form: reconcile.Lacking, Origin: reconcile.List, Key: a.Key, Version: strconv.Itoa(version)}
			if err := h.Input(ctx, &reconcile.Input{Kind: reconcile.ListLacks, Key: a.Key, Sighting: s}, 0, nil); err != nil {
				return 0, err
			}
		}
		if len(missing) == 0 {
			return version, h.Input(ctx, &reconcile.Input{Kind: reconcile.ListDone}, 0, nil)
		}
	}
}

// Side implements [loop.Reader].
func (c *cluster) Side(context.Context, string, reconcile.Read, *loop.Handler) error {
	return errors.New("not in this test")
}

// observer records its calls.
type observer struct {
	loop    *loop.Loop
	mu      sync.Mutex
	ids     []string // of records
	lines   []line   // their content
	objects map[string]int64
}

// Committed implements [loop.Observer].
func (o *observer) Committed(c *loop.Commit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(c.Items) != len(c.Records) {
		panic("an item has no record")
	}
	for i := range c.Records {
		o.ids = append(o.ids, c.Records[i].ID)
		var n line
		if err := json.Unmarshal(c.Records[i].Value, &n); err != nil {
			panic(err)
		}
		o.lines = append(o.lines, n)
	}
	for _, id := range c.Changed {
		o.objects[id] = o.loop.State(id).Objects
	}
}

// ListBegun implements [loop.Observer].
func (*observer) ListBegun(string) {}

// Queued implements [loop.Observer].
func (*observer) Queued(loop.Load, loop.Load) {}

// Suspended implements [loop.Observer].
func (*observer) Suspended(string, time.Time, error) {}
func (*observer) EditWaits(string, bool)             {}

// line is the output of the encoder of these tests.
type line struct {
	Collection, Type, Key, UID, At, Version string
	Run, Incarnation                        uint64
}

type encoder struct {
	key      []byte
	rejected map[string]bool // by collection, uid and version
}

// Key implements [loop.Encoder].
func (e *encoder) Key(key []byte) { e.key = key }

// Prepare implements [loop.Encoder].
func (e *encoder) Prepare(collection string, s *reconcile.Sighting, _ *reconcile.Object, _ bool) {
	s.DeadLetter = e.rejected[collection+" "+s.UID+" "+s.Version]
}

// Reject implements [loop.Encoder].
func (e *encoder) Reject(i *reconcile.Item, _ *sink.RecordError) error {
	e.rejected[i.Collection+" "+i.Object.Object.UID+" "+i.Object.Version] = true
	return nil
}

// Sealed implements [loop.Encoder].
func (*encoder) Sealed() []event.KV { return nil }

// Forgotten implements [loop.Encoder].
func (*encoder) Forgotten(string, string) []event.KV { return nil }

// Committed implements [loop.Encoder].
func (*encoder) Committed([]reconcile.Item) {}

// Dropped implements [loop.Encoder].
func (*encoder) Dropped(string) {}

// Encode implements [loop.Encoder].
func (*encoder) Encode(i *reconcile.Item, _ string, _ time.Time) (event.Record, []event.KV) {
	n := line{Collection: i.Collection, Run: i.Run, Incarnation: i.Incarnation}
	if e := i.Event; e != nil {
		n.Type, n.Version = e.Type.String(), e.Version
	} else {
		e := i.Object
		n.Type, n.Key, n.UID, n.At, n.Version = e.Type.String(), e.Key, e.Object.UID, e.Object.At, e.Version
		if e.Type == event.Deleted {
			n.Run = e.Object.Run
		}
	}
	value, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return event.Record{ID: fmt.Sprintf("%s:%d:%s:%s:%s", n.Collection, n.Run, n.UID, n.Version, n.Type), Route: i.Route, Key: n.Key, Value: value, Broadcast: i.Event != nil}, nil
}

// bus is a sink that keeps all records, and refuses a route on request.
type bus struct {
	mu      sync.Mutex
	lines   []line
	ids     []string // of all records that were written to it
	refused string
	missing bool   // the refused route does not exist
	reject  string // a key, rejected once
	fails   error  // the error of every write
	loses   int    // how many writes find that the bus has lost all messages
}

func (b *bus) Open(context.Context, []byte) error { return nil }
func (b *bus) Close() error                       { return nil }

func (b *bus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loses > 0 {
		b.loses--
		b.lines = nil
		return nil, fmt.Errorf("%w: the stream is empty", sink.ErrReset)
	}
	if b.fails != nil {
		return nil, b.fails
	}
	for i, r := range batch.Records {
		if r.Route == b.refused && r.Route != "" {
			return nil, &sink.RouteError{Index: i, Route: r.Route, Err: errors.New("not allowed"), Missing: b.missing}
		}
		if r.Key == b.reject && r.Key != "" {
			b.reject = ""
			return nil, &sink.RecordError{Index: i, Err: errors.New("not valid")}
		}
		var n line
		if err := json.Unmarshal(r.Value, &n); err != nil {
			return nil, err
		}
		b.lines, b.ids = append(b.lines, n), append(b.ids, r.ID)
	}
	return nil, nil
}

func (b *bus) refuse(route string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = route
}

// logBus is a bus that can be read back.
type logBus struct{ *bus }

// Tail implements [sink.Log].
func (logBus) Tail(context.Context, []byte, func([]event.KV, []byte) error) error { return nil }

// Mark implements [sink.Log].
func (logBus) Mark() []byte { return []byte("mark") }

// copied returns a consumer's copy of a collection, built by the rule of docs/adr/0017.
func (b *bus) copied(collection string) (names map[string]string, synced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type order struct {
		run, at uint64
		deleted bool
	}
	names = map[string]string{}
	last, incarnation := map[string]order{}, uint64(0)
	for _, n := range b.lines {
		if n.Collection != collection || n.Incarnation < incarnation {
			continue
		}
		if n.Incarnation > incarnation {
			incarnation, synced = n.Incarnation, false
			clear(names)
			clear(last)
		}
		switch n.Type {
		case "gap":
			synced = false
		case "synced":
			synced = true
		case "closed":
			clear(names)
		default:
			at, _ := strconv.ParseUint(n.At, 10, 64)
			o, l := order{n.Run, at, n.Type == "deleted"}, last[n.Key]
			if o.run < l.run || o.run == l.run && (o.at < l.at || o.at == l.at && (!o.deleted || l.deleted)) {
				continue
			}
			last[n.Key] = o
			if names[n.Key] = n.Version; o.deleted {
				delete(names, n.Key)
			}
		}
	}
	return names, synced
}

// program is a running loop.
type program struct {
	loop *loop.Loop
	made *encoder
	seen *observer
	with reconcile.Properties // properties of each collection, without its route
	root string               // what precedes the name of a collection in its route

	resyncEvery, verifyEvery, syncedEvery time.Duration
	kill                                  context.CancelFunc
	stop                                  context.CancelFunc
	done                                  chan error
}

func start(t *testing.T, c loop.Reader, b sink.Sink, store checkpoint.Store, ids ...string) *program {
	t.Helper()
	return startWith(t, c, b, store, reconcile.Properties{}, ids...)
}

func startWith(t *testing.T, c loop.Reader, b sink.Sink, store checkpoint.Store, with reconcile.Properties, ids ...string) *program {
	t.Helper()
	return startTo(t, c, b, store, with, "topic ", ids...)
}

func startTo(t *testing.T, c loop.Reader, b sink.Sink, store checkpoint.Store, with reconcile.Properties, root string, ids ...string) *program {
	t.Helper()
	p := &program{done: make(chan error, 1), made: &encoder{rejected: map[string]bool{}}, seen: &observer{objects: map[string]int64{}}, with: with, root: root}
	p.loop = loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: b, Store: store}), Store: store, Reader: c, Encoder: p.made, Observer: p.seen, Log: zaptest.NewLogger(t),
	})
	p.seen.loop = p.loop
	ctx, kill := context.WithCancel(t.Context())
	stopping, stop := context.WithCancel(ctx)
	p.kill, p.stop = kill, stop
	go func() { p.done <- p.loop.Run(ctx, stopping) }()
	p.set(t, nil, ids...)
	return p
}

func (p *program) set(t *testing.T, removed []string, ids ...string) {
	t.Helper()
	next := loop.Plan{Outcomes: &plan.Outcomes{Removed: removed}}
	for _, id := range ids {
		next.Outcomes.Wanted = append(next.Outcomes.Wanted, plan.Collection{Target: source.Target{Collection: event.Collection{Resource: id}}})
	}
	for _, id := range ids {
		next.Wanted = append(next.Wanted, loop.Wanted{ID: id, ResyncEvery: p.resyncEvery, VerifyEvery: p.verifyEvery, SyncedEvery: p.syncedEvery, Properties: func() (reconcile.Properties, error) {
			properties := p.with
			properties.Route = p.root + id
			return properties, nil
		}})
	}
	if err := p.loop.Set(t.Context(), next); err != nil {
		t.Fatal(err)
	}
}

// wait waits until the copies of collections are equal to the cluster.
func wait(t *testing.T, c *cluster, b *bus, ids ...string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for _, id := range ids {
		for {
			want := map[string]string{}
			c.mu.Lock()
			for name, s := range c.objects {
				want[durable.ObjectKey("shop", name)] = strconv.Itoa(s.version)
			}
			c.mu.Unlock()
			got, synced := b.copied(id)
			if synced && maps.Equal(got, want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: synced %v, %d of %d objects", id, synced, len(got), len(want))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func memory(t *testing.T) *file.Store {
	t.Helper()
	store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// Writes arrive even though the program is killed again and again.
func TestKilledAgainAndAgain(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	for i := range 1000 {
		c.write(fmt.Sprint("name-", i), false)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		p := start(t, c, b, store, "pods")
		for range 100 {
			c.write(fmt.Sprint("name-", r.IntN(1100)), r.IntN(4) == 0)
		}
		p.kill()
		<-p.done
	}
	p := start(t, c, b, store, "pods")
	wait(t, c, b, "pods")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	p.kill()
	if state, err := durable.Load(store); err != nil || len(state.Intents)+len(state.Drafts) > 0 {
		t.Errorf("%v: %d intents and %d drafts are left", err, len(state.Intents), len(state.Drafts))
	}
	p.counts(t, store, "pods")
}

// counts compares the number of objects that the observer received for a collection with the store.
func (p *program) counts(t *testing.T, store checkpoint.Store, id string) {
	t.Helper()
	want, err := durable.Count(store, id, 0)
	if got := p.seen.objects[id]; err != nil || got != want {
		t.Errorf("the status shows %d objects of %s, the inventory has %d (%v)", got, id, want, err)
	}
}

// The status and the events show the number of objects also for a resource whose deletions are not published, and also
// between lists.
func TestObjectsWithoutDeletions(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	c.write("first", false)
	p := startWith(t, c, b, store, reconcile.Properties{Types: event.Types(0).Without(event.Deleted)}, "pods")
	defer p.kill()
	wait(t, c, b, "pods")
	for i := range 100 {
		c.write(fmt.Sprint("name-", i), false)
		c.write(fmt.Sprint("name-", i), true)
	}
	c.write("last", false)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if names, _ := b.copied("pods"); names[durable.ObjectKey("shop", "last")] != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the last write does not arrive")
		}
	}
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if n := p.seen.objects["pods"]; n != 2 {
		t.Errorf("%d objects, want 2", n)
	}
	p.counts(t, store, "pods")
}

// Metrics and status include everything that a readable bus has, also the part of a batch that it accepted before it
// refused a route or a record.
func TestObservedWhereABatchIsRefused(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	for i := range 100 {
		c.write(fmt.Sprint("name-", i), false)
	}
	b.reject = durable.ObjectKey("shop", "name-7")
	p := start(t, c, logBus{b}, store, "configmaps", "pods", "secrets")
	defer p.kill()
	wait(t, c, b, "configmaps", "pods", "secrets")
	b.refuse("topic pods")
	for i := range 50 {
		c.write(fmt.Sprint("name-", i), i%2 == 0)
	}
	wait(t, c, b, "configmaps", "secrets")
	b.refuse("")
	wait(t, c, b, "pods")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.seen.ids, b.ids) {
		t.Errorf("the observer was given %d of %d records", len(p.seen.ids), len(b.ids))
	}
	for _, id := range []string{"configmaps", "pods", "secrets"} {
		p.counts(t, store, id)
	}
}

// A removed collection is closed. When it is configured again, it begins another incarnation.
func TestRemovedAndPutBack(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	for i := range 2500 {
		c.write(fmt.Sprint("name-", i), false)
	}
	p := start(t, c, b, store, "pods", "secrets")
	defer p.kill()
	wait(t, c, b, "pods", "secrets")
	p.set(t, []string{"pods"}, "secrets")
	c.write("name-1", true)
	closed := func() bool { names, _ := b.copied("pods"); return len(names) == 0 }
	for deadline := time.Now().Add(time.Minute); !closed(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("pods is not closed")
		}
	}
	p.set(t, nil, "pods", "secrets")
	wait(t, c, b, "pods", "secrets")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
}

// A route that refuses writes delays only its own collection. A record that the bus rejects delays only itself.
func TestRefusedAndRejected(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	for i := range 100 {
		c.write(fmt.Sprint("name-", i), false)
	}
	b.refuse("topic pods")
	p := start(t, c, b, store, "pods", "secrets")
	defer p.kill()
	wait(t, c, b, "secrets")
	c.write("name-1", false)
	wait(t, c, b, "secrets")
	if names, _ := b.copied("pods"); len(names) > 0 {
		t.Errorf("the bus has %d objects of a route that refuses", len(names))
	}
	b.mu.Lock()
	b.refused, b.reject = "", durable.ObjectKey("shop", "name-7")
	b.mu.Unlock()
	wait(t, c, b, "pods")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
}

// If a bus loses all messages, again and again, resets fill it again. Each reset has a new birth, and all later
// incarnations are at or above it: consumers drop objects that only the bus had.
func TestBusLosesEverything(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	for i := range 100 {
		c.write(fmt.Sprint("name-", i), false)
	}
	p := start(t, c, b, store, "pods", "secrets")
	defer p.kill()
	birth := uint64(0)
	for i := range 5 {
		wait(t, c, b, "pods", "secrets")
		before := birth
		if birth = storedBirth(t, store); birth <= before {
			t.Fatalf("the birth is %d after a reset, and was %d", birth, before)
		}
		b.mu.Lock()
		for _, n := range b.lines {
			if n.Incarnation < birth {
				t.Errorf("%+v is of an incarnation below the birth %d", n, birth)
			}
		}
		b.loses = 1 + i%2
		b.mu.Unlock()
		c.write(fmt.Sprint("name-", i), i%2 == 0)
		for lost := false; !lost; time.Sleep(10 * time.Millisecond) {
			b.mu.Lock()
			lost = b.loses == 0
			b.mu.Unlock()
		}
	}
	wait(t, c, b, "pods", "secrets")
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
}

func storedBirth(t *testing.T, store checkpoint.Store) uint64 {
	t.Helper()
	numbers, err := durable.LoadPlan(store)
	if err != nil {
		t.Fatal(err)
	}
	return numbers.Birth
}

// Runs have numbers above the birth although the clock was set back. Otherwise consumers would ignore them. Resyncs
// become due although the last one has a time in the future.
func TestClockSetBack(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	c.write("name", false)
	birth := uint64(time.Now().Add(time.Hour).UnixMilli())
	if err := store.Commit(t.Context(), []event.KV{{Key: []byte(plan.Key), Value: plan.Numbers{Number: birth, Birth: birth}.Encode()}}); err != nil {
		t.Fatal(err)
	}
	p := start(t, c, b, store, "pods")
	defer p.kill()
	wait(t, c, b, "pods")
	p.resyncEvery = time.Second
	p.set(t, nil, "pods")
	resynced := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.lines, func(n line) bool { return n.Type == "gap" && n.Run > n.Incarnation })
	}
	for deadline := time.Now().Add(2 * time.Minute); !resynced(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no resync")
		}
	}
	p.stop()
	if err := <-p.done; err != nil {
		t.Fatal(err)
	}
	if n := b.lines[0]; n.Incarnation < birth {
		t.Errorf("the incarnation is %d, below the birth %d", n.Incarnation, birth)
	}
}

// A permanent error of the bus ends the loop with that error.
func TestFenced(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	c.write("name", false)
	p := start(t, c, b, store, "pods")
	defer p.kill()
	wait(t, c, b, "pods")
	b.mu.Lock()
	b.fails = sink.ErrFenced
	b.mu.Unlock()
	c.write("name", false)
	if err := <-p.done; !errors.Is(err, sink.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
}

// absentBus does not answer.
type absentBus struct{ bus }

// Open implements [sink.Sink].
func (*absentBus) Open(ctx context.Context, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// A loop that is stopped before its bus could be opened ends at once, because it has nothing to deliver.
func TestStoppedBeforeTheBusIsOpen(t *testing.T) {
	store := memory(t)
	l := loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: &absentBus{}, Store: store}), Store: store, Reader: newCluster(), Encoder: &encoder{}, Observer: &observer{}, Log: zaptest.NewLogger(t),
	})
	ctx, kill := context.WithTimeout(t.Context(), time.Minute)
	defer kill()
	stopping, stop := context.WithCancel(ctx)
	stop()
	if err := l.Run(ctx, stopping); err != nil || ctx.Err() != nil {
		t.Errorf("%v; %v", err, ctx.Err())
	}
}

// The loop reports that it is alive, both while it works and while it is idle.
func TestAlive(t *testing.T) {
	c, b, store := newCluster(), &bus{}, memory(t)
	p := start(t, c, b, store, "pods")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !p.loop.Alive(ctx) {
		t.Error("no answer")
	}
	p.kill()
	<-p.done
	ended, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	if p.loop.Alive(ended) {
		t.Error("an answer after the end")
	}
}
