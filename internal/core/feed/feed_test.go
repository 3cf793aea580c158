package feed_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	planning "github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is the output of the encoder of these tests.
type line struct {
	Type, Name, UID, Version string
	Reason, Detail           string // of a gap event
	Fate                     reconcile.Fate
	Body                     string // name and version of the body of a deletion
	Epoch                    uint64
}

// String returns, for example, "deleted a@105 unknown, last body at 101".
func (n line) String() string {
	switch {
	case n.Type == "gap":
		return n.Type + " " + n.Reason
	case n.Name == "":
		return n.Type
	case n.Type != "deleted":
		return n.Type + " " + n.Name
	}
	s := n.Type + " " + n.Name + " " + [...]string{"gone", "left", "unknown"}[n.Fate]
	if n.Body != "" {
		s += ", last body at " + n.Body
	}
	return s
}

type encoder struct{}

// Key implements [loop.Encoder].
func (encoder) Key([]byte) {}

// Prepare implements [loop.Encoder].
func (encoder) Prepare(_ string, s *reconcile.Sighting, _ *reconcile.Object, _ bool) {
	if o, ok := s.Body.(*source.Object); ok {
		h := sha256.New()
		o.Hash(h)
		s.Digest = reconcile.Digest(h.Sum(nil)[:16])
	}
}

// Reject implements [loop.Encoder].
func (encoder) Reject(*reconcile.Item, *sink.RecordError) error {
	return errors.New("not in this test")
}

// Sealed implements [loop.Encoder].
func (encoder) Sealed() []event.KV { return nil }

// Forgotten implements [loop.Encoder].
func (encoder) Forgotten(string, string) []event.KV { return nil }

// Committed implements [loop.Encoder].
func (encoder) Committed([]reconcile.Item) {}

// Dropped implements [loop.Encoder].
func (encoder) Dropped(string) {}

// Encode implements [loop.Encoder].
func (encoder) Encode(i *reconcile.Item, detail string, _ time.Time) (event.Record, []event.KV) {
	n := line{Epoch: i.Epoch}
	if e := i.Event; e != nil {
		n.Type, n.Version, n.Reason, n.Detail = e.Type.String(), e.Version, string(e.Reason), detail
	} else {
		e := i.Object
		n.Type, n.UID, n.Version, n.Fate = e.Type.String(), e.Object.UID, e.Version, e.Fate
		_, n.Name, _ = strings.Cut(e.Key, "/")
		body, _ := e.Body.(*source.Object)
		switch {
		case body != nil && !json.Valid(body.Raw):
			panic("the body is not there any more")
		case body != nil && e.Type == event.Deleted && body.UID == e.Object.UID:
			n.Body = body.ResourceVersion
		}
	}
	value, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return event.Record{ID: fmt.Sprint(i.Collection, i.Run, n.UID, n.Version, n.Type), Route: i.Route, Value: value}, nil
}

// bus is a sink that keeps all records.
type bus struct {
	blocked chan struct{} // writes wait until it is closed; nil: they do not wait

	mu    sync.Mutex
	lines []line
}

func (b *bus) Open(context.Context, []byte) error { return nil }
func (b *bus) Close() error                       { return nil }

func (b *bus) Write(ctx context.Context, batch *event.Batch) ([]byte, error) {
	if b.blocked != nil {
		select {
		case <-b.blocked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch.Records {
		var n line
		if err := json.Unmarshal(r.Value, &n); err != nil {
			return nil, err
		}
		b.lines = append(b.lines, n)
	}
	return nil, nil
}

// from returns the lines from the nth on.
func (b *bus) from(n int) []line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines[min(n, len(b.lines)):])
}

// plan decides what the collections of a test read.
type plan struct {
	mu      sync.Mutex
	target  source.Target
	changed chan struct{}
}

func newPlan(labels string) *plan {
	return &plan{changed: make(chan struct{}), target: source.Target{
		Collection: event.Collection{Group: "a.example.com", Resource: "things", LabelSelector: labels},
		Resource:   source.Resource{Group: "a.example.com", Version: "v1", Name: "things", Kind: "Thing", Namespaced: true},
	}}
}

// serve sets the version in which things are served; "": none.
func (p *plan) serve(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target.Resource.Version = version
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plan) get(string, string) (source.Target, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target, true
}

func (p *plan) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// observer ignores all calls.
type observer struct{}

func (observer) Committed(*loop.Commit)             {}
func (observer) ListBegun(string)                   {}
func (observer) Queued(loop.Load, loop.Load)        {}
func (observer) Suspended(string, time.Time, error) {}
func (observer) EditWaits(string, bool)             {}

// program is a loop that reads things from a feed.
type program struct {
	t      *testing.T
	server *server
	plan   *plan
	client *source.Client
	lists  *feed.Lists
	store  checkpoint.Store
	bus    *bus
	wanted loop.Wanted

	seen   int // lines that tests have already expected
	states chan source.State
	stop   func() // ends the program after everything is committed
	end    func() // ends the program at once
}

func newProgram(t *testing.T, s *server, labels string) *program {
	t.Helper()
	store, err := file.OpenMem(event.Identity{Bridge: "b", ClusterUID: "c", Sink: "s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &program{
		t: t, server: s, plan: newPlan(labels), client: s.client(), lists: feed.NewLists(1), store: store, bus: &bus{},
		wanted: loop.Wanted{ID: "things.a.example.com", Properties: func() (reconcile.Properties, error) {
			return reconcile.Properties{Selection: labels}, nil
		}},
	}
}

// start runs the program until the test or a call of end stops it.
func (p *program) start() {
	p.t.Helper()
	states := make(chan source.State, 1000)
	p.states = states
	l := loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: p.bus, Store: p.store}), Store: p.store, Encoder: encoder{}, Observer: observer{}, Log: zaptest.NewLogger(p.t),
		Reader: feed.New(feed.Options{
			Client: p.client, Lists: p.lists, Target: p.plan.get, Changed: p.plan.next, Log: zaptest.NewLogger(p.t),
			OnState: func(_ string, s source.State) { states <- s },
		}),
	})
	ctx, kill := context.WithCancel(p.t.Context())
	stopping, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, stopping) }()
	p.stop = func() {
		stop()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
		done <- nil
	}
	p.end = sync.OnceFunc(func() {
		kill()
		<-done // an error only says that the loop was not finished
	})
	p.t.Cleanup(p.end)
	next := loop.Plan{Wanted: []loop.Wanted{p.wanted}, Outcomes: &planning.Outcomes{}}
	if err := l.Set(ctx, next); err != nil {
		p.t.Fatal(err)
	}
}

// await waits until the program, which must have been started last, is in a phase.
func (p *program) await(phase source.Phase) source.State {
	p.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case got := <-p.states:
			if got.Phase == phase {
				return got
			}
		case <-deadline:
			p.t.Fatalf("it is never %s", phase)
		}
	}
}

// expect waits for lines that follow the already expected ones, in order, and returns them.
func (p *program) expect(want ...string) []line {
	p.t.Helper()
	p.waitFor(len(want))
	lines := p.bus.from(p.seen)
	var got []string
	for _, n := range lines {
		got = append(got, n.String())
	}
	if !slices.Equal(got, want) {
		p.t.Fatalf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	p.seen += len(want)
	return lines
}

// waitFor waits until the bus has n lines after the already expected ones, for at most two minutes.
func (p *program) waitFor(n int) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		p.bus.mu.Lock()
		got := len(p.bus.lines) - p.seen
		p.bus.mu.Unlock()
		if got >= n {
			return
		}
	}
}

// requests returns the lists and watches of things since the last call, as "list v1", "stream v1" and "watch v1 from
// 100".
func (p *program) requests() []string {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	var all []string
	for _, u := range p.server.asked {
		version, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/apis/a.example.com/"), "/")
		switch q := u.Query(); {
		case q.Get("sendInitialEvents") != "":
			all = append(all, "stream "+version)
		case q.Get("watch") == "true":
			all = append(all, "watch "+version+" from "+q.Get("resourceVersion"))
		default:
			all = append(all, "list "+version)
		}
	}
	p.server.asked = nil
	return all
}

// awaitWatch waits until a watch has begun. Its request, and those before, are forgotten.
func (p *program) awaitWatch(begin string) {
	p.t.Helper()
	isWatch := func(r string) bool { return strings.HasPrefix(r, begin) }
	for deadline := time.Now().Add(30 * time.Second); !slices.ContainsFunc(p.requests(), isWatch); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("there is no %s", begin)
		}
	}
}

// Consumers get all existing objects and every change. A restart continues the watch and repeats nothing.
func TestFollowed(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b") })
	p := newProgram(t, s, "")
	p.start()
	p.expect("gap reset", "present a", "present b", "synced")
	s.do(func() { s.write("red", "c", "a"); s.remove("b"); s.write("red", "d") })
	lines := p.expect("added c", "modified a", "deleted b gone, last body at 105", "added d")
	if got := lines[2].Version; got != "105" {
		t.Errorf("the deletion is at %s", got)
	}
	p.stop()
	s.do(func() { s.remove("c"); s.write("red", "b") })
	p.requests()
	p.start()
	p.expect("deleted c gone, last body at 107", "added b")
	if got := p.requests(); !slices.Equal(got, []string{"watch v1 from 105"}) {
		t.Errorf("the restart asked for %v", got)
	}
}

// Objects that were deleted while the API server forgot its history are published as deleted. The deletions have the
// last body if an exact list still has it, and a gap event has the reason for the gap.
func TestForgotten(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b", "c") })
	p := newProgram(t, s, "")
	p.start()
	p.expect("gap reset", "present a", "present b", "present c", "synced")
	s.forget(func() { s.remove("a"); s.write("red", "b"); s.remove("c"); s.write("red", "c") })
	lines := p.expect("gap expired", "modified b", "deleted c gone, last body at 103", "added c", "deleted a gone, last body at 101", "synced")
	if d := lines[0].Detail; !strings.Contains(d, "no longer served") {
		t.Errorf("the gap's detail is %q", d)
	}
	if got := lines[4].Version; got != lines[5].Version {
		t.Errorf("the deletion that the list proved is at %s, the list at %s", got, lines[5].Version)
	}
}

// If objects were created again under their names, the former ones are published as deleted with their last bodies,
// each before its successor is added. This also holds for objects that are too many to be requested one by one.
func TestReplaced(t *testing.T) {
	s := newServer(t)
	var names, want []string
	for i := range 250 {
		names = append(names, fmt.Sprintf("name-%03d", i))
		want = append(want, fmt.Sprintf("deleted name-%03d gone, last body at %d", i, 101+i), fmt.Sprintf("added name-%03d", i))
	}
	s.do(func() { s.write("red", names...) })
	p := newProgram(t, s, "")
	p.start()
	p.expect(slices.Concat([]string{"gap reset"}, prefixed("present ", names), []string{"synced"})...)
	s.forget(func() { s.remove(names...); s.write("red", names...) })
	p.expect(slices.Concat([]string{"gap expired"}, want, []string{"synced"})...)
}

// With a selector, a deletion says whether the object still exists, or that this could not be found out.
func TestLeft(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b", "c", "d", "e") })
	p := newProgram(t, s, "team=red")
	p.start()
	p.expect("gap reset", "present a", "present b", "present c", "present d", "present e", "synced")
	s.do(func() { s.write("blue", "a") })
	p.expect("deleted a left, last body at 106")
	s.do(func() { s.remove("b") })
	p.expect("deleted b gone, last body at 107")
	s.forget(func() { s.write("blue", "c"); s.remove("d") })
	p.expect("gap expired", "deleted c left, last body at 103", "deleted d gone, last body at 104", "synced")
	s.do(func() { s.guarded = true; s.write("blue", "e"); s.write("red", "f") })
	p.expect("deleted e unknown, last body at 110", "added f")
	s.forget(func() { s.remove("f") })
	p.expect("gap expired", "deleted f unknown, last body at 111", "synced")
}

// At most 500 requests ask what became of missing objects, and last bodies are looked up for at most 10,000. The
// deletions of all others are published nevertheless.
func TestManyMissing(t *testing.T) {
	const all = 10_100
	s := newServer(t)
	var names []string
	for i := range all {
		names = append(names, fmt.Sprintf("name-%05d", i))
	}
	s.do(func() { s.write("red", names...) })
	p := newProgram(t, s, "team=red")
	p.start()
	p.expect(slices.Concat([]string{"gap reset"}, prefixed("present ", names), []string{"synced"})...)
	s.forget(func() { s.write("blue", names...) })
	p.waitFor(all + 2)
	left, bodies := 0, 0
	lines := p.bus.from(p.seen)
	for i, n := range lines {
		switch {
		case n.Type != "deleted":
			continue
		case n.Fate == reconcile.Left:
			left++
		case n.Fate != reconcile.Unknown:
			t.Errorf("%v of an object that was not asked for", n)
		}
		if n.Body != "" {
			bodies++
		}
		if n.Name != names[i-1] {
			t.Fatalf("%s came at %d", n.Name, i)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(lines) != all+2 || left != 500 || s.gets != 500 || bodies != 10_000 {
		t.Errorf("%d lines, %d left, %d requests, %d bodies", len(lines), left, s.gets, bodies)
	}
}

func prefixed(prefix string, names []string) (out []string) {
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}

// Objects that are deleted or changed while a list is streamed are part of the list.
func TestStreamedList(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b", "c") })
	s.streaming = func() { s.do(func() { s.remove("a"); s.write("blue", "b"); s.write("red", "c") }) }
	p := newProgram(t, s, "team=red")
	p.start()
	p.expect("gap reset", "present a", "present b", "present c", "deleted a gone, last body at 104", "deleted b left, last body at 105", "modified c", "synced")
	if got := p.requests(); got[0] != "stream v1" || slices.Contains(got, "list v1") {
		t.Errorf("requests: %v", got)
	}
}

// If a CustomResourceDefinition is deleted, its objects are published as deleted. When the definition exists again,
// also after a restart, its objects are read again.
func TestDefinitionDeletedAndBack(t *testing.T) {
	for name, restart := range map[string]bool{"while the program runs": false, "while it does not": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.do(func() { s.write("red", "a", "b") })
			p := newProgram(t, s, "")
			p.start()
			p.expect("gap reset", "present a", "present b", "synced")
			s.do(func() { s.remove("a", "b"); s.crd, s.forgotten = "", s.rv; s.disconnect() })
			lines := p.expect("gap gone", "deleted a gone", "deleted b gone", "synced")
			if d := lines[0].Detail; !strings.Contains(d, "does not exist") {
				t.Errorf("the gap's detail is %q", d)
			}
			p.plan.serve("")
			if restart {
				p.end()
				p.start()
			}
			p.await(source.Gone)
			p.expect() // consumers already have the deletions
			s.do(func() { s.crd = "crd-2"; s.write("red", "c") })
			p.plan.serve("v1")
			p.expect("gap expired", "added c", "synced")
			s.do(func() { s.write("red", "d") })
			p.expect("added d")
		})
	}
}

// If a CustomResourceDefinition is deleted and created again before discovery notices the deletion, its objects are
// soon read again.
func TestDefinitionMadeAgainAtOnce(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a") })
	p := newProgram(t, s, "")
	p.start()
	p.expect("gap reset", "present a", "synced")
	s.do(func() { s.remove("a"); s.crd, s.forgotten = "", s.rv; s.disconnect() })
	p.expect("gap gone", "deleted a gone", "synced")
	s.do(func() { s.crd = "crd-2"; s.write("red", "b") })
	p.expect("gap expired", "added b", "synced")
}

// If a resource is served in another version, reading continues from the same position, without a gap.
func TestOtherVersion(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a") })
	p := newProgram(t, s, "")
	p.start()
	p.expect("gap reset", "present a", "synced")
	s.do(func() { s.write("red", "b") })
	p.expect("added b")
	p.requests()
	p.plan.serve("v2")
	s.do(func() { s.write("red", "c") })
	p.expect("added c")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if got := p.requests(); len(got) > 0 {
			if !strings.HasPrefix(got[0], "watch v2 from 10") {
				t.Errorf("requests: %v", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("v2 is not read")
		}
	}
	s.do(func() { s.write("red", "d") })
	p.expect("added d")
}

// A resync publishes every object again while the watch continues, and also the changes that the watch sees in the
// meantime.
func TestResync(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b") })
	p := newProgram(t, s, "")
	p.wanted.ResyncEvery = 2 * time.Second
	p.start()
	p.expect("gap reset", "present a", "present b", "synced")
	p.awaitWatch("watch v1")
	p.expect("gap resync", "present a", "present b", "synced")
	if got := p.requests(); !slices.Equal(got, []string{"list v1"}) {
		t.Errorf("the resync asked for %v", got)
	}
}

// A resync reads a list whose first page takes longer than the first attempt waits: the next attempt waits longer, and belongs to the same resync.
func TestResyncOfASlowList(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a") })
	p := newProgram(t, s, "")
	p.wanted.ResyncEvery = 8 * time.Second // longer than the list takes
	p.start()
	p.expect("gap reset", "present a", "synced")
	s.do(func() { s.slow = 6 * time.Second })
	p.expect("gap resync", "present a", "synced")
}

// If a backup was restored to an API server, this is noticed even though the server is not behind the position, which
// trails by one version. Otherwise the server's first write would be ignored as a repeat.
func TestRestored(t *testing.T) {
	for name, restart := range map[string]bool{"while the program runs": false, "while it does not": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.do(func() { s.write("red", "a") })
			p := newProgram(t, s, "")
			p.start()
			p.expect("gap reset", "present a", "synced")
			s.do(func() { s.write("red", "a"); s.write("red", "b") })
			p.expect("modified a", "added b")
			if restart {
				p.end()
			}
			s.restore(102)
			if restart {
				p.start()
			}
			lines := p.expect("gap history", "deleted b gone", "synced")
			if lines[0].Epoch != 2 || !strings.Contains(lines[0].Detail, "103 was seen") {
				t.Errorf("epoch %d, %s", lines[0].Epoch, lines[0].Detail)
			}
			s.do(func() { s.write("red", "c") })
			if n := p.expect("added c"); n[0].Version != "103" {
				t.Errorf("c is at %s", n[0].Version)
			}
		})
	}
}

// Two epochs of a storage are at least a minute apart, also if reads begin again in the meantime.
func TestEpochsOutliveReads(t *testing.T) {
	s := newServer(t)
	s.do(func() { s.write("red", "a", "b") })
	p := newProgram(t, s, "")
	p.start()
	p.expect("gap reset", "present a", "present b", "synced")
	s.restore(101)
	p.expect("gap history", "deleted b gone", "synced")
	p.plan.serve("v2")
	s.do(func() { s.write("red", "c", "d") })
	p.expect("added c", "added d")
	p.awaitWatch("watch v2")
	for len(p.states) > 0 { // drop the states of the first restore
		<-p.states
	}
	s.restore(102)
	waits := p.await(source.Waiting)
	for strings.Contains(waits.Err.Error(), "lead no further") { // the watch had just been opened when the restore ended it
		waits = p.await(source.Waiting)
	}
	if left := time.Until(waits.Until); left < 20*time.Second || left > time.Minute || !strings.Contains(waits.Err.Error(), "history is another one") {
		t.Errorf("it waits for %s: %v; want the rest of the minute after the last epoch", left, waits.Err)
	}
}

// A sink whose writes are blocked does not keep other sinks from reading their lists. A list that waits for the
// blocked sink can be stopped.
func TestBlockedSink(t *testing.T) {
	s := newServer(t)
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("name-%05d", i))
	}
	s.do(func() { s.write("red", names...) })
	blocked, other := newProgram(t, s, ""), newProgram(t, s, "team=blue")
	other.lists = blocked.lists // both share one slot
	blocked.bus.blocked = make(chan struct{})
	blocked.start()
	for deadline := time.Now().Add(time.Minute); !slices.Contains(blocked.requests(), "list v1"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no list begins")
		}
	}
	other.start()
	other.expect("gap reset", "synced")
	blocked.end()
	blocked.bus.blocked = nil
	blocked.start()
	blocked.expect(slices.Concat([]string{"gap reset"}, prefixed("present ", names), []string{"synced"})...)
	third := newProgram(t, s, "team=blue")
	third.lists = blocked.lists
	third.start()
	third.expect("gap reset", "synced") // the slot is free
}
