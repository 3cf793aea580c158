package encode_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/attribute"
	"github.com/kubebridge/kubebridge/internal/attribution/audit"
	"github.com/kubebridge/kubebridge/internal/attribution/join"
	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/encode"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// auditLog has records in the order in which they were written. The first one has number 1.
type auditLog struct {
	mu      sync.Mutex
	records []*audit.Record
	more    chan struct{}
}

func (g *auditLog) write(r *audit.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.records = append(g.records, r)
	close(g.more)
	g.more = make(chan struct{})
}

func (g *auditLog) after(number int) ([]*audit.Record, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.records[number:]), g.more
}

// follow passes records to a loop until ctx ends, as the pipeline does.
func (g *auditLog) follow(ctx context.Context, l *loop.Loop, a *attribute.Attribution, floor *atomic.Int64) {
	generation, at := 0, 0
	for ctx.Err() == nil {
		caught := time.Now()
		fresh, more := g.after(at)
		last := uint64(at + len(fresh))
		planned, _ := l.Page(ctx, 1000*len(fresh), func(p loop.Page) {
			a.Turn(p)
			now := time.Now()
			if a.Generation() != generation {
				generation = a.Generation()
				stored, _ := a.Stored()
				at, _ = strconv.Atoi(string(stored))
				a.Begin(uint64(at), now)
				return
			}
			for _, r := range fresh {
				at++
				a.Read(uint64(at), r, now)
			}
			a.Caught(caught, last)
			if version := floor.Swap(0); version > 0 {
				a.Floor(attribute.Resource{Resource: join.Resource{Resource: "configmaps"}}, strconv.FormatInt(version, 10), last, caught, caught)
			}
			p.NoteLatest(attribute.StorePosition(strconv.AppendUint(nil, min(a.Needed()-1, uint64(at)), 10)))
		})
		if !planned {
			more = nil
		}
		select {
		case <-more:
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// recordOf returns the record of the request by which a user wrote a version of a ConfigMap.
func recordOf(verb, name, version, before, user string) *audit.Record {
	r := &audit.Record{
		ID: version, Stage: audit.Complete, Level: audit.RequestResponse, Verb: verb, Resource: "configmaps", Namespace: "shop", Name: name, Code: 200, Expected: before,
		Answer: &audit.Answer{Namespace: "shop", Name: name, UID: "uid-" + name, Version: version}, Received: start, Reached: start,
		Actor: audit.Actor{User: audit.User{Name: user}},
	}
	if verb == "create" {
		r.Code = 201
	}
	return r
}

// waitBus is a sink of the mode Intents. It takes values up to a limit.
type waitBus struct {
	mu     sync.Mutex
	limit  int
	values []*event.Received
	states [][]event.KV
	mode   delivery.Mode
	store  checkpoint.Store
}

func (*waitBus) Open(context.Context, []byte) error { return nil }
func (*waitBus) Close() error                       { return nil }

func (b *waitBus) Write(_ context.Context, batch *event.Batch) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range batch.Records {
		if len(r.Value) > b.limit {
			if b.mode == delivery.Log {
				b.add(batch.Records[:i])
			}
			return nil, &sink.RecordError{Index: i, Size: len(r.Value), Limit: b.limit, Err: errors.New("too large")}
		}
	}
	b.add(batch.Records)
	switch b.mode {
	case delivery.Log:
		return b.mark(), nil
	case delivery.Transaction:
		return nil, b.store.Commit(context.Background(), batch.Commit.Changes)
	}
	return nil, nil
}

func (b *waitBus) add(records []event.Record) {
	for i := range records {
		e, err := event.Parse(records[i].Value)
		if err != nil {
			panic(err)
		}
		b.values, b.states = append(b.values, e), append(b.states, slices.Clone(records[i].State))
	}
}

func (b *waitBus) mark() []byte { return []byte(strconv.Itoa(len(b.states))) }

func (b *waitBus) read() []*event.Received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.values)
}

// sink returns the bus as a sink of its mode.
func (b *waitBus) sink() sink.Sink {
	switch b.mode {
	case delivery.Log:
		return waitLog{b}
	case delivery.Transaction:
		return waitTransactions{b}
	}
	return b
}

type waitLog struct{ *waitBus }

func (b waitLog) Mark() []byte { return b.mark() }

func (b waitLog) Tail(_ context.Context, from []byte, apply func([]event.KV, []byte) error) error {
	at, _ := strconv.Atoi(string(from))
	for n, state := range b.states[at:] {
		if err := apply(state, []byte(strconv.Itoa(at+n+1))); err != nil {
			return err
		}
	}
	return nil
}

type waitTransactions struct{ *waitBus }

func (b waitTransactions) Commit(_ context.Context, _ uint64, changes []event.KV) error {
	return b.store.Commit(context.Background(), changes)
}

// waitRun is what a test of waiting changes runs again and again.
type waitRun struct {
	t       *testing.T
	cluster *cluster
	log     *auditLog
	bus     *waitBus
	store   *file.Store
	join    join.Options
	floor   atomic.Int64 // the version that the API server has, once; 0: nobody has asked it
	wait    time.Duration
	linger  time.Duration
}

func newWaitRun(t *testing.T, mode delivery.Mode, wait time.Duration) *waitRun {
	t.Helper()
	store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &waitRun{
		t: t, store: store, wait: wait, cluster: &cluster{objects: map[string]string{}, changed: make(chan struct{})}, log: &auditLog{more: make(chan struct{})},
		bus:  &waitBus{limit: 1 << 20, mode: mode, store: store},
		join: join.Options{Settle: time.Hour, Keep: 2 * time.Hour, MaxOpen: time.Minute, MaxChanges: 100_000, MaxRequests: 100_000},
	}
}

// life runs a loop. end ends it at once, or after it has delivered what it has emitted.
func (w *waitRun) life() (end func(gently bool)) {
	w.t.Helper()
	a := attribute.New(attribute.Options{Join: w.join, Storage: func(join.Resource) (string, bool) { return "", true }, Inputs: 1, Wait: w.wait})
	e := encode.New(encode.Options{Store: w.store, Log: zap.NewNop(), Witness: a, Chronicle: a, Reports: encode.Reports{Plan: reports().Plan}, Config: encode.Config{
		Encoder: event.Encoder{Cluster: "prod", ClusterUID: "uid"}, Route: encode.Route{Topic: template(w.t, "{resource}")}, Oversize: encode.Truncate,
	}, Count: func(string, encode.Count, event.Type) {}})
	l := loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: w.bus.sink(), Store: w.store}), Store: w.store, Reader: w.cluster, Encoder: e, Observer: blind{}, Linger: w.linger,
		Delayer: a, Chronicle: a, Log: zap.NewNop(),
	})
	ctx, kill := context.WithCancel(w.t.Context())
	stopping, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx, stopping); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
		kill()
	})
	running.Go(func() { w.log.follow(ctx, l, a, &w.floor) })
	if err := l.Set(ctx, loop.Plan{
		Outcomes: &plan.Outcomes{Wanted: []plan.Collection{{Target: source.Target{Collection: configMaps}}}},
		Wanted: []loop.Wanted{{ID: "configmaps", Properties: func() (reconcile.Properties, error) {
			return configure(e, configMaps, encode.Settings{})
		}}},
	}); err != nil {
		w.t.Fatal(err)
	}
	return func(gently bool) {
		if gently {
			stop()
		} else {
			kill()
		}
		running.Wait()
	}
}

// change is what consumers know of a change.
type change struct{ actor, attributed string }

// changes returns what consumers know of each change, by its version, and the versions in the order of their events. A consumer
// ignores an event whose ID it has seen.
func (w *waitRun) changes() (byVersion map[int]change, order []int, repeated int) {
	byVersion, byID := map[int]change{}, map[string]int{}
	for _, e := range w.bus.read() {
		if e.Type.OfCollection() || e.Type == event.Present {
			continue
		}
		if e.Type == event.Attributed {
			version := byID[e.Attribution.Explains]
			c := byVersion[version]
			if c.attributed != "" {
				repeated++
			}
			c.attributed = e.Attribution.Request.User.Name
			byVersion[version] = c
			continue
		}
		if byID[e.ID] != 0 {
			repeated++
			continue
		}
		text := e.ResourceVersion
		if e.Type == event.Deleted {
			text = e.DeletionVersion
		}
		version, _ := strconv.Atoi(text)
		c := change{}
		if e.Actor != nil {
			c.actor = e.Actor.User.Name
		}
		byID[e.ID], byVersion[version] = version, c
		order = append(order, version)
	}
	return byVersion, order, repeated
}

func (w *waitRun) synced() bool {
	return slices.ContainsFunc(w.bus.read(), func(e *event.Received) bool { return e.Type == event.Synced })
}

var waitModes = []delivery.Mode{delivery.Transaction, delivery.Log, delivery.Intents}

// Records come before their change, within the wait, after it, or never; the bus rejects some events because of what a client has sent; and
// the loop is killed or stopped again and again. Each change is published, in order; each with a record says once who made it; and nobody is
// named who has not made it.
func TestChangesWait(t *testing.T) {
	for _, mode := range waitModes {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s %d", mode, seed), func(t *testing.T) {
				t.Parallel()
				const wait = 200 * time.Millisecond
				w := newWaitRun(t, mode, wait)
				w.bus.limit = 4000
				random := rand.New(rand.NewPCG(seed, 1))
				end := w.life()
				await(t, w.synced)
				users := map[int]string{} // of versions with a record
				var later []*audit.Record
				changes := 0
				versions := map[string]int{} // of objects that exist
				ended := map[int]int{}       // number of removed objects of a place
				step := func() {
					n := random.IntN(20)
					name := fmt.Sprintf("n%d-%d", n, ended[n]) // an object's UID follows from its name
					before, version := versions[name], len(w.cluster.history)+1
					verb := "update"
					switch {
					case before == 0:
						verb = "create"
					case random.IntN(4) == 0:
						verb = "delete"
					}
					user := fmt.Sprint("user-", version)
					r := recordOf(verb, name, strconv.Itoa(version), strconv.Itoa(before), user)
					value := user
					if random.IntN(8) == 0 { // the event has no room for the request
						r.Actor.User.Groups, value = []string{strings.Repeat("g", 2000)}, strings.Repeat("v", 2000)
					}
					kind := random.IntN(6)
					if kind == 0 {
						w.log.write(r)
					}
					changes++
					if verb == "delete" {
						w.cluster.remove(name)
						delete(versions, name)
						ended[n]++
					} else {
						w.cluster.write(name, value)
						versions[name] = version
					}
					users[version] = user
					switch kind {
					case 0:
					case 1:
						later = append(later, r)
					case 2:
						delete(users, version)
					default:
						w.log.write(r)
					}
				}
				for range 8 {
					for range 40 {
						step()
						time.Sleep(time.Duration(random.IntN(15)) * time.Millisecond)
					}
					end(random.IntN(3) == 0)
					for _, r := range later[:len(later)/2] {
						w.log.write(r)
					}
					later = later[len(later)/2:]
					end = w.life()
				}
				time.Sleep(2 * wait) // what is written now is late
				for _, r := range later {
					w.log.write(r)
				}
				await(t, func() bool {
					known, order, _ := w.changes()
					for version := range users {
						if known[version] == (change{}) {
							return false
						}
					}
					return len(order) == changes
				})
				end(true)
				known, order, repeated := w.changes()
				if !slices.IsSorted(order) {
					t.Errorf("the order of changes is %d", order)
				}
				actors, attributed, both := 0, 0, 0
				for version, c := range known {
					user := users[version]
					if c.actor != "" && c.actor != user || c.attributed != "" && c.attributed != user {
						t.Errorf("change %d was made by %q: %+v", version, user, c)
					}
					switch {
					case c.actor != "" && c.attributed != "":
						both++
					case c.actor != "":
						actors++
					case c.attributed != "":
						attributed++
					}
				}
				if mode != delivery.Intents && (repeated > 0 || both > 0) {
					t.Errorf("%d events are repeated, and %d changes are attributed twice", repeated, both)
				}
				least := changes / 10
				if mode == delivery.Intents { // after a rejection or a kill, events of a batch are in doubt; on a slow machine all are
					least = 0
				}
				if actors < least || attributed < changes/20 {
					t.Errorf("of %d changes, %d carry who made them and %d have another event: this test shows nothing", changes, actors, attributed)
				}
				t.Logf("%d changes: %d carry who made them, %d have another event, %d both; %d events repeated", changes, actors, attributed, both, repeated)
				if keys := w.waiting(); len(keys) != changes-len(users) {
					t.Errorf("%d changes wait in the store, want %d without a record", len(keys), changes-len(users))
				}
			})
		}
	}
}

// Changes wait side by side, and no longer than the wait: the time that records take delays each change, and not the number of changes in a second.
// Nothing behind a change overtakes it, and a change with its record at hand does not wait.
func TestChangesWaitSideBySide(t *testing.T) {
	const n, late = 2000, 300 * time.Millisecond
	w := newWaitRun(t, delivery.Transaction, time.Minute)
	end := w.life()
	defer end(false)
	await(t, w.synced)
	begun := time.Now()
	var writing sync.WaitGroup
	for i := range n {
		version := strconv.Itoa(i + 1)
		r := recordOf("create", "n"+version, version, "", "alice")
		w.cluster.write("n"+version, "x")
		writing.Go(func() {
			time.Sleep(late) // that of an API server
			w.log.write(r)
		})
	}
	writing.Wait()
	await(t, func() bool { _, order, _ := w.changes(); return len(order) == n })
	known, order, _ := w.changes()
	if !slices.IsSorted(order) {
		t.Error("the changes are not in order")
	}
	for version, c := range known {
		if c.actor != "alice" {
			t.Fatalf("change %d: %+v", version, c)
		}
	}
	if took := time.Since(begun); took > 20*time.Second { // one after the other, they take 10 minutes
		t.Errorf("%d changes took %s", n, took)
	}
	w.log.write(recordOf("delete", "n1", strconv.Itoa(n+1), "", "bob"))
	await(t, func() bool { return len(w.log.records) == n+1 })
	w.cluster.remove("n1")
	await(t, func() bool { known, _, _ := w.changes(); return known[n+1].actor == "bob" })
	if keys := w.waiting(); len(keys) > 0 {
		t.Errorf("%d changes wait in the store", len(keys))
	}
}

// When its time is over, a change is published without who made it, and the change behind it goes on to wait for its own record.
func TestWaitIsOver(t *testing.T) {
	w := newWaitRun(t, delivery.Transaction, 400*time.Millisecond)
	end := w.life()
	defer end(false)
	await(t, w.synced)
	begun := time.Now()
	w.cluster.write("without", "x")
	w.cluster.write("with", "x")
	w.log.write(recordOf("create", "with", "2", "", "alice"))
	await(t, func() bool { known, _, _ := w.changes(); return known[2].actor == "alice" })
	known, order, _ := w.changes()
	if took := time.Since(begun); took < w.wait || known[1] != (change{}) || !slices.Equal(order, []int{1, 2}) {
		t.Errorf("after %s: %+v in the order %d", took, known, order)
	}
	w.log.write(recordOf("create", "without", "1", "", "bob"))
	await(t, func() bool { known, _, _ := w.changes(); return known[1].attributed == "bob" })
	if keys := w.waiting(); len(keys) > 0 {
		await(t, func() bool { return len(w.waiting()) == 0 })
	}
}

// Objects of a first list do not wait, and neither does a change that is too large for the memory of those that wait.
func TestWaitNeedsMemory(t *testing.T) {
	w := newWaitRun(t, delivery.Transaction, time.Hour)
	w.bus.limit = 64 << 20
	w.cluster.write("listed", "x")
	end := w.life()
	defer end(false)
	await(t, w.synced)
	large := strings.Repeat("x", 4<<20)
	for i := range 8 { // 32 MiB: the readers have no more memory than that
		w.cluster.write(fmt.Sprint("n", i), large)
	}
	await(t, func() bool { _, order, _ := w.changes(); return len(order) >= 4 })
	w.log.write(recordOf("create", "n7", "9", "", "alice")) // records still come
	for i := range 7 {
		w.log.write(recordOf("create", fmt.Sprint("n", i), strconv.Itoa(i+2), "", "alice"))
	}
	await(t, func() bool {
		known, order, _ := w.changes()
		return len(order) == 8 && known[9].actor == "alice" && known[2].attributed == "alice"
	})
}

// With complete records, a patch that is answered while nothing else happens is known when its records are read.
func TestPatchesWait(t *testing.T) {
	w := newWaitRun(t, delivery.Transaction, time.Hour)
	w.join.Complete, w.join.MaxOpen = true, time.Millisecond
	end := w.life()
	defer end(false)
	await(t, w.synced)
	w.cluster.write("n", "x")
	w.log.write(recordOf("create", "n", "1", "", "alice"))
	await(t, func() bool { known, _, _ := w.changes(); return known[1].actor == "alice" })
	w.floor.Store(1)
	await(t, func() bool { return w.floor.Load() == 0 })
	received := recordOf("patch", "n", "2", "", "bob")
	received.Stage, received.Answer, received.Code = audit.Received, nil, 0
	w.log.write(received)
	w.cluster.write("n", "y")
	w.log.write(recordOf("patch", "n", "2", "", "bob"))
	await(t, func() bool { known, _, _ := w.changes(); return known[2].actor == "bob" })
}

// waiting returns the keys of changes that wait in the store.
func (w *waitRun) waiting() (keys []string) {
	w.t.Helper()
	if err := w.store.Scan([]byte("a/"), func(key, _ []byte) error {
		keys = append(keys, string(key))
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return keys
}
