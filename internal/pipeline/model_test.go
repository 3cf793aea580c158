package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// endsHang is the deadline of what a test waits for: it only ends a hang.
const endsHang = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// change is one entry of the model cluster's history.
type change struct {
	rv   int
	kind source.SignalKind
	name string
	uid  string
	// What its body has beside: a value that matters, and one that may be ignored.
	spec, noise int
}

// cluster is a model of one collection's history, which a lane reads as
// pkg/source would hand it over.
type cluster struct {
	mu        sync.Mutex
	history   []change
	compacted int // watches from below it are gone
	alive     map[string]change
	grown     chan struct{}
	pace      time.Duration // between two signals
}

func newCluster() *cluster {
	return &cluster{alive: map[string]change{}, grown: make(chan struct{})}
}

func (c *cluster) do(kind source.SignalKind, name string) { c.doWith(kind, name, 0, 0) }

func (c *cluster) doWith(kind source.SignalKind, name string, spec, noise int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := change{rv: len(c.history) + 1, kind: kind, name: name, uid: c.alive[name].uid, spec: spec, noise: noise}
	if kind == source.Added {
		ch.uid = fmt.Sprintf("uid-%s-%d", name, ch.rv)
	}
	if kind == source.Deleted {
		delete(c.alive, name)
	} else {
		c.alive[name] = ch
	}
	c.history = append(c.history, ch)
	close(c.grown)
	c.grown = make(chan struct{})
}

func (c *cluster) compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compacted = len(c.history)
}

// otherReplica lets watches begin anywhere again: behind a load balancer another
// API server may still serve what the first had forgotten.
func (c *cluster) otherReplica() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compacted = 0
}

func objectOf(ch change) *source.Object {
	padding := ""
	if ch.name == "large" {
		padding = strings.Repeat("x", 3000)
	}
	o, err := source.ParseObject(fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":"%d"},"data":{"x":%q,"spec":"%d","noise":"%d"}}`, ch.name, ch.uid, ch.rv, padding, ch.spec, ch.noise))
	if err != nil {
		panic(err)
	}
	return &o
}

// list is what the cluster holds now, in the order of its history.
func (c *cluster) list() ([]change, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.alive), func(a, b change) int { return a.rv - b.rv }), len(c.history)
}

// history is what a cluster that has forgotten nothing tells of vanished objects.
type history struct{ c *cluster }

func (h history) Alive(_ context.Context, _, name, uid string) (alive, known bool) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.c.alive[name].uid == uid, true
}

func (h history) Recall(_ context.Context, rv string, objects []source.Name, found func(*source.Object) error) error {
	at, _ := strconv.Atoi(rv)
	h.c.mu.Lock()
	then := map[string]change{}
	for _, ch := range h.c.history[:min(at, len(h.c.history))] {
		if then[ch.name] = ch; ch.kind == source.Deleted {
			delete(then, ch.name)
		}
	}
	h.c.mu.Unlock()
	for _, n := range objects {
		if ch, ok := then[n.Name]; ok {
			if err := found(objectOf(ch)); err != nil {
				return err
			}
		}
	}
	return nil
}

// read plays pkg/source for one member until ctx ends.
func (c *cluster) read(ctx context.Context, h source.Handler, from event.Position) {
	send := func(s source.Signal) bool {
		return (c.pace == 0 || pause(ctx, c.pace)) && h.Handle(ctx, s) == nil
	}
	at, _ := strconv.Atoi(from.RV)
	void, reason := !from.Resumable(), source.ReasonSnapshot
	if from.Void {
		reason = source.ReasonInterrupted
	}
	for {
		c.mu.Lock()
		if !void && at < c.compacted {
			void, reason = true, source.ReasonExpired
		}
		listed := slices.SortedFunc(maps.Values(c.alive), func(a, b change) int { return a.rv - b.rv })
		rv, grown := len(c.history), c.grown
		news := slices.Clone(c.history[min(at, rv):])
		c.mu.Unlock()
		if void {
			from := ""
			if at > 0 {
				from = strconv.Itoa(at)
			}
			if !send(source.Signal{Kind: source.ListBegun, RV: from, Reason: reason}) {
				return
			}
			for _, ch := range listed {
				if !send(source.Signal{Kind: source.Listed, Object: objectOf(ch)}) {
					return
				}
			}
			at, void = rv, false
			if !send(source.Signal{Kind: source.ListEnded, RV: strconv.Itoa(rv), Resume: strconv.Itoa(rv)}) {
				return
			}
			continue
		}
		for _, ch := range news {
			if !send(source.Signal{Kind: ch.kind, Object: objectOf(ch), Resume: strconv.Itoa(ch.rv - 1)}) {
				return
			}
			at = ch.rv
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}

// bus is a durable log that can be made to fail around a write.
type bus struct {
	mu      sync.Mutex
	records []event.Record
	// crashAfter counts down writes; the one that reaches zero becomes durable and
	// its acknowledgement never arrives.
	crashAfter int
	crashed    chan struct{}
	lost       bool // Tail and Write report ErrReset once
	stuck      bool // nothing is written
	latency    time.Duration
	// limit is the bytes that it takes of a record, nil: any.
	limit func(*event.Record) int
}

var errNoAck = errors.New("no acknowledgement")

func (b *bus) Open(context.Context, []byte) error { return nil }
func (b *bus) Close() error                       { return nil }

// kept is a copy of a record, whose memory the lane uses again.
func kept(r *event.Record) event.Record {
	out, ev := *r, *r.Event
	out.Value, out.Attributes, out.Headers, out.Event = bytes.Clone(r.Value), slices.Clone(r.Attributes), slices.Clone(r.Headers), &ev
	ev.Object = bytes.Clone(ev.Object)
	out.State = nil
	for _, kv := range r.State {
		out.State = append(out.State, event.KV{Key: bytes.Clone(kv.Key), Value: bytes.Clone(kv.Value)})
	}
	return out
}

// check finds a record that is too large.
func (b *bus) check(batch *event.Batch) error {
	for i := range batch.Records {
		r := &batch.Records[i]
		if b.limit == nil {
			return nil
		}
		if limit := b.limit(r); len(r.Value) > limit {
			return &sink.RecordError{Index: i, Size: len(r.Value), Limit: limit, Err: errors.New("too large")}
		}
	}
	return nil
}

func (b *bus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if err := b.check(batch); err != nil {
		return nil, err
	}
	if b.stuck {
		<-ctx.Done()
		return nil, errNoAck
	}
	if b.latency > 0 && !pause(ctx, b.latency) {
		return nil, errNoAck
	}
	b.mu.Lock()
	for i := range batch.Records {
		b.records = append(b.records, kept(&batch.Records[i]))
	}
	b.crashAfter--
	crash := b.crashAfter == 0
	mark := strconv.Itoa(len(b.records))
	b.mu.Unlock()
	if crash {
		close(b.crashed)
		<-ctx.Done()
		return nil, errNoAck
	}
	return []byte(mark), nil
}

// logBus is a bus that can be read back.
type logBus struct{ *bus }

func (b logBus) Tail(_ context.Context, from []byte, fn func([]event.KV, []byte) error) error {
	n, _ := strconv.Atoi(string(from))
	if b.lost {
		b.lost = false
		return fmt.Errorf("%w: the test says so", sink.ErrReset)
	}
	for i, r := range b.records[n:] {
		if err := fn(r.State, []byte(strconv.Itoa(n+i+1))); err != nil {
			return err
		}
	}
	return nil
}

func (b logBus) Mark() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []byte(strconv.Itoa(len(b.records)))
}

// atomicBus is a bus that keeps the checkpoint in the transaction with the records.
type atomicBus struct {
	*bus
	store checkpoint.Store
}

func (atomicBus) Transactional() {}

func (b atomicBus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if err := b.check(batch); err != nil {
		return nil, err
	}
	if err := b.store.Commit(ctx, batch.Commit.Changes); err != nil {
		return nil, err
	}
	_, err := b.bus.Write(ctx, batch)
	return nil, err
}

var (
	identity   = event.Identity{Bridge: "b", Cluster: "c", ClusterUID: "u", Sink: "s"}
	configMaps = source.Target{
		Collection: event.Collection{Resource: "configmaps"},
		Resource:   source.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
	}
)

var wantConfigMaps = []Wanted{{Target: configMaps}}

// modelReader reads the model cluster for a lane.
type modelReader struct {
	lane *Lane
	c    *cluster
}

func (r modelReader) read(ctx context.Context, j job) error {
	r.c.read(ctx, &laneHandler{lane: r.lane, member: j.member, last: history{r.c}}, j.from)
	return ctx.Err()
}

func (r modelReader) survey(ctx context.Context, _ source.Target, h source.Handler) (string, error) {
	listed, rv := r.c.list()
	for _, ch := range listed {
		if err := h.Handle(ctx, source.Signal{Kind: source.Listed, Object: objectOf(ch)}); err != nil {
			return "", err
		}
	}
	return strconv.Itoa(rv), nil
}

func newTestLane(s sink.Sink, store checkpoint.Store) *Lane {
	return NewLane(LaneOptions{
		Identity: identity, Sink: s, Store: store, Shape: Shape{Encoder: event.Encoder{Cluster: "c", ClusterUID: "u"}},
		Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

// life runs a lane over the cluster until stop returns or the bus "crashes",
// which is kill -9 between bus and checkpoint.
func life(t rapidOrT, c *cluster, s sink.Sink, crashed <-chan struct{}, store checkpoint.Store, until func() bool) {
	runLife(t, c, newTestLane(s, store), crashed, until)
}

func runLife(t rapidOrT, c *cluster, lane *Lane, crashed <-chan struct{}, until func() bool) {
	runLifeOf(t, c, lane, wantConfigMaps, crashed, until)
}

func runLifeOf(t rapidOrT, c *cluster, lane *Lane, wanted []Wanted, crashed <-chan struct{}, until func() bool) {
	time.Sleep(time.Millisecond) // no process starts in the instant in which the last one ended: ids of gaps have the time
	lane.cluster = modelReader{lane, c}
	hard, kill := context.WithCancel(context.Background())
	stop, finish := context.WithCancel(hard)
	done := make(chan error, 1)
	go func() { done <- lane.Run(hard, stop) }()
	if err := lane.Set(hard, wanted, nil, true); err != nil {
		t.Fatalf("add: %v", err)
	}
	deadline := time.After(endsHang)
	for ended := false; !ended; {
		select {
		case <-crashed:
			kill()
			<-done
			ended = true
		case err := <-done:
			t.Fatalf("the lane ended by itself: %v", err)
		case <-deadline:
			t.Fatalf("the bus never came to hold what the cluster has")
		case <-time.After(time.Millisecond):
			if !until() {
				continue
			}
			ended = true
			finish()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("stop: %v", err)
				}
			case <-crashed: // in its very last write
				kill()
				<-done
			}
		}
	}
	kill()
	finish()
}

// withoutDeadline hides what may not be asked for in a bubble.
type withoutDeadline struct{ testing.TB }

// checkInBubble is rapid.Check in a bubble of [synctest]. Time passes there only while
// everything waits: how busy the machine is decides neither what is under way when the
// cluster changes or the lane is stopped, nor when a deadline is over.
func checkInBubble(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { rapid.Check(withoutDeadline{t}, property) })
}

// drawPaces decides how fast a cluster is read and a bus writes. Changes come, and lanes
// stop, once in a millisecond: at a slow pace in the middle of a list or of a write.
func drawPaces(t *rapid.T, c *cluster, b *bus) {
	c.pace = rapid.SampledFrom([]time.Duration{0, 300 * time.Microsecond, 1700 * time.Microsecond}).Draw(t, "pace")
	b.latency = rapid.SampledFrom([]time.Duration{0, 700 * time.Microsecond, 2900 * time.Microsecond}).Draw(t, "latency")
}

type rapidOrT interface{ Fatalf(string, ...any) }

// view is what a consumer makes of the bus: per uid, ignore what is not newer.
type view struct {
	alive   map[string]string // uid → name
	last    map[string]int    // uid → highest resourceVersion
	ids     map[string]int    // id → times seen
	synced  bool
	inOrder bool
	older   bool // an id that was not seen before came with an older version
	repeats int
}

func consume(t rapidOrT, records []event.Record) view {
	v := view{alive: map[string]string{}, last: map[string]int{}, ids: map[string]int{}, inOrder: true}
	for _, r := range records {
		var ce struct {
			ID, Type, UID, Name string
			ResourceVersion     string `json:"resourceversion"`
			Data                struct {
				Reset bool `json:"reset"`
			} `json:"data"`
		}
		if err := json.Unmarshal(r.Value, &ce); err != nil {
			t.Fatalf("record %s: %v", r.Value, err)
		}
		if v.ids[ce.ID]++; v.ids[ce.ID] > 1 {
			v.repeats++
		}
		rv, _ := strconv.Atoi(ce.ResourceVersion)
		switch ce.Type {
		case event.Gap.CloudEvent():
			v.synced = false
			if ce.Data.Reset {
				v.alive, v.last = map[string]string{}, map[string]int{}
			}
		case event.Synced.CloudEvent():
			v.synced = true
		case event.Deleted.CloudEvent():
			delete(v.alive, ce.UID)
			v.last[ce.UID] = max(v.last[ce.UID], rv)
		default:
			if rv <= v.last[ce.UID] {
				if v.ids[ce.ID] == 1 {
					v.inOrder = false
					v.older = v.older || rv < v.last[ce.UID]
				}
				continue
			}
			v.last[ce.UID] = rv
			v.alive[ce.UID] = ce.Name
		}
	}
	return v
}

func (c *cluster) same(v view) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.synced || len(v.alive) != len(c.alive) {
		return false
	}
	for name, ch := range c.alive {
		if v.alive[ch.uid] != name || v.last[ch.uid] != ch.rv {
			return false
		}
	}
	return true
}

// TestCrashesLoseNothing lets a lane be killed between bus and checkpoint again
// and again, with objects changing, vanishing and coming back under their names
// and the history being compacted in between. Consumers must end with the
// cluster's state (a ghost or a loss would show), see each object in order, and,
// where the bus can be read back or keeps the checkpoint itself, nothing twice.
func TestCrashesLoseNothing(t *testing.T) {
	for _, kind := range []string{"plain", "log", "transactional"} {
		t.Run(kind, func(t *testing.T) {
			checkInBubble(t, func(t *rapid.T) {
				c, b := newCluster(), &bus{}
				store, err := file.OpenMem(identity)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				defer func() {
					if err := store.Close(); err != nil {
						t.Fatalf("close: %v", err)
					}
				}()
				mutate(t, c) // no cluster is at resourceVersion 0
				lives := rapid.IntRange(1, 5).Draw(t, "lives")
				for i := range lives {
					for range rapid.IntRange(0, 12).Draw(t, "changes") {
						mutate(t, c)
					}
					switch rapid.IntRange(0, 2).Draw(t, "history") {
					case 0:
						c.compact()
					case 1:
						c.otherReplica()
					}
					b.crashed = make(chan struct{})
					b.crashAfter = 0
					if i < lives-1 {
						b.crashAfter = rapid.IntRange(1, 4).Draw(t, "crash after")
					}
					live := rapid.IntRange(0, 6).Draw(t, "live changes")
					drawPaces(t, c, b)
					var s sink.Sink = b
					switch kind {
					case "log":
						s = logBus{b}
					case "transactional":
						s = atomicBus{b, store}
					}
					life(t, c, s, b.crashed, store, func() bool {
						if live > 0 {
							live--
							mutate(t, c)
							return false
						}
						b.mu.Lock()
						v := consume(t, b.records)
						b.mu.Unlock()
						// What a crash left in doubt is settled by what comes after it: a
						// lane that is stopped before leaves it to the next.
						return c.same(v) && (i < lives-1 || leftIntents(t, store) == 0)
					})
				}
				v := consume(t, b.records)
				if !v.inOrder {
					t.Fatalf("an object went back in time:\n%s", dump(b.records))
				}
				if kind != "plain" && v.repeats > 0 {
					t.Fatalf("%d events came twice:\n%s", v.repeats, dump(b.records))
				}
				if left := leftIntents(t, store); left > 0 {
					t.Fatalf("%d intents were left behind:\n%s", left, dump(b.records))
				}
			})
		})
	}
}

// TestLostBusIsDeclared lets the bus forget what it had acknowledged: consumers
// are told to drop their copy and get everything present again, also when the
// bridge is killed in the middle of telling them.
func TestLostBusIsDeclared(t *testing.T) {
	c, b := newCluster(), &bus{}
	store, err := file.OpenMem(identity)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"a", "b", "c"} {
		c.do(source.Added, name)
	}
	inStep := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return c.same(consume(t, b.records))
	}
	life(t, c, logBus{b}, nil, store, inStep)
	c.do(source.Deleted, "a") // and the bus loses everything
	b.records, b.lost = nil, true
	b.crashed, b.crashAfter = make(chan struct{}), 1
	life(t, c, logBus{b}, b.crashed, store, func() bool { return false })
	c.do(source.Deleted, "b")
	life(t, c, logBus{b}, nil, store, inStep)
	v := consume(t, b.records)
	first := b.records[0].Event
	if first.Type != event.Gap || !first.Report.Reset {
		t.Errorf("the first thing said is %s, not a gap with reset", b.records[0].ID)
	}
	for id := range v.ids {
		if strings.HasSuffix(id, ":added") {
			t.Errorf("%s: after a reset an object is present, not added", id)
		}
	}
	if reset, err := store.Get(checkpoint.ResetKey()); err != nil || reset != nil {
		t.Errorf("the reset is not over: %q, %v", reset, err)
	}
}

// TestResetIsNotForgotten kills a lane that was asked for a reset before and after the
// bus has the first word of it. The bus holds everything from before: that must not
// come back into the checkpoint.
func TestResetIsNotForgotten(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			c, b := newCluster(), &bus{}
			store, err := file.OpenMem(identity)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for _, name := range []string{"a", "b", "c"} {
				c.do(source.Added, name)
			}
			until := 0
			inStep := func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.records) > until && c.same(consume(t, b.records))
			}
			life(t, c, logBus{b}, nil, store, inStep)
			until = len(b.records)

			if err := store.Commit(t.Context(), []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}); err != nil {
				t.Fatal(err)
			}
			b.crashed, b.crashAfter, b.stuck = make(chan struct{}), 1, when == "before"
			life(t, c, logBus{b}, b.crashed, store, func() bool {
				reset, err := store.Get(checkpoint.ResetKey())
				if err != nil {
					t.Fatal(err)
				}
				if begun := string(reset); b.stuck && begun != string(checkpoint.ResetRequested()) && !strings.HasPrefix(begun, wiping) {
					close(b.crashed)
				}
				return false
			})
			b.crashAfter, b.stuck = 0, false
			life(t, c, logBus{b}, nil, store, inStep)
			declared := slices.ContainsFunc(b.records[until:], func(r event.Record) bool {
				return r.Event.Type == event.Gap && r.Event.Report.Reset
			})
			if !declared {
				t.Errorf("no reset was declared:\n%s", dump(b.records[until:]))
			}
		})
	}
}

func leftIntents(t rapidOrT, s checkpoint.Store) (n int) {
	if err := s.Scan(checkpoint.IntentPrefix("", ""), func(_, _ []byte) error { n++; return nil }); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return n
}

func dump(records []event.Record) (s string) {
	for _, r := range records {
		s += r.ID + "\n"
	}
	return s
}

func mutate(t *rapid.T, c *cluster) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
	c.mu.Lock()
	_, alive := c.alive[name]
	c.mu.Unlock()
	switch {
	case !alive:
		c.do(source.Added, name)
	case rapid.Bool().Draw(t, "delete"):
		c.do(source.Deleted, name)
	default:
		c.do(source.Modified, name)
	}
}
