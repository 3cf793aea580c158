package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// recorder is a reader that may read from a disk buffer.
type recorder struct {
	*cluster

	mu       sync.Mutex
	recorded string // the selection of the recording; "": there is none
	handlers []*loop.Handler
	reads    []string // the selections of the reads
}

func (r *recorder) Read(ctx context.Context, id string, want reconcile.Read, h *loop.Handler) error {
	r.mu.Lock()
	r.handlers, r.reads = append(r.handlers, h), append(r.reads, want.Selection)
	r.mu.Unlock()
	return r.cluster.Read(ctx, id, want, h)
}

func (r *recorder) records(selection string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = selection
}

// editRig is a loop with one collection whose configuration is edited.
type editRig struct {
	*observer
	t      *testing.T
	loop   *loop.Loop
	reader *recorder
	bus    *bus
	store  checkpoint.Store
	kill   func()

	mu    sync.Mutex
	used  []string // what the reader and the encoder use: the name of an edit, or "kept" with the selection
	waits []bool
}

func (r *editRig) EditWaits(_ string, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = append(r.waits, waits)
}

// planEncoder shows the edit that an event carries.
type planEncoder struct {
	*encoder
	rig *editRig
}

func (e planEncoder) Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV) {
	r, changes := e.encoder.Encode(i, detail, at)
	r.ID = fmt.Sprint(e.rig.loop.Numbers(i.Collection).Edit)
	return r, changes
}

func newEditRig(t *testing.T, store checkpoint.Store, c *cluster, b *bus, recorded string) *editRig {
	t.Helper()
	r := &editRig{t: t, bus: b, store: store, reader: &recorder{cluster: c, recorded: recorded}, observer: &observer{objects: map[string]int64{}}}
	r.loop = loop.New(loop.Options{
		Delivery: delivery.New(delivery.Options{Sink: b, Store: store}), Store: store, Reader: r.reader,
		Encoder: planEncoder{&encoder{rejected: map[string]bool{}}, r}, Observer: r, Log: zaptest.NewLogger(t),
	})
	r.observer.loop = r.loop
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.loop.Run(ctx, ctx) }()
	r.kill = sync.OnceFunc(func() { kill(); <-done })
	t.Cleanup(r.kill)
	return r
}

func selecting(selection string) reconcile.Properties {
	return reconcile.Properties{Selection: selection, Route: "one"}
}

// edit sets a plan in which the collection has properties, named by their selection and route.
func (r *editRig) edit(p reconcile.Properties) {
	r.t.Helper()
	w := loop.Wanted{
		ID:         "pods",
		Properties: func() (reconcile.Properties, error) { return p, nil },
		Use: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.used = append(r.used, p.Selection+" "+p.Route)
		},
		Keep: func(present reconcile.Properties) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reader.mu.Lock()
			defer r.reader.mu.Unlock()
			if r.reader.recorded != present.Selection {
				return false
			}
			r.used = append(r.used, "kept "+present.Selection)
			return true
		},
	}
	wanted := []plan.Collection{{Target: source.Target{Collection: event.Collection{Resource: "pods"}}}}
	if err := r.loop.Set(r.t.Context(), loop.Plan{Outcomes: &plan.Outcomes{Wanted: wanted}, Wanted: []loop.Wanted{w}}); err != nil {
		r.t.Fatal(err)
	}
}

// direct lets the nth read say that it reads from the API server, after everything that it has read.
func (r *editRig) direct(n int) {
	r.t.Helper()
	r.reader.mu.Lock()
	h := r.reader.handlers[n]
	r.reader.mu.Unlock()
	if err := h.Handled(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := h.Direct(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// waiting reports whether an edit waits.
func (r *editRig) waiting(n int) bool {
	r.t.Helper()
	r.reader.mu.Lock()
	h := r.reader.handlers[n]
	r.reader.mu.Unlock()
	waits, err := h.EditWaits(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return waits
}

// types returns the types of all events on the bus, with the number of the edit that each carries: 1 for the first edit.
func (r *editRig) types() string {
	r.bus.mu.Lock()
	defer r.bus.mu.Unlock()
	var all, edits []string
	for i, n := range r.bus.lines {
		if !slices.Contains(edits, r.bus.ids[i]) {
			edits = append(edits, r.bus.ids[i])
		}
		all = append(all, fmt.Sprint(n.Type, slices.Index(edits, r.bus.ids[i])+1))
	}
	return strings.Join(all, " ")
}

// expect waits until the bus has certain events.
func (r *editRig) expect(want string) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); r.types() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("got %q, want %q", r.types(), want)
		}
	}
}

// expectUsed checks what the reader and the encoder have used, in order, and when edits waited.
func (r *editRig) expectUsed(used string, waits ...bool) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := strings.Join(r.used, ", "); got != used {
		r.t.Errorf("used %q, want %q", got, used)
	}
	if !slices.Equal(r.waits, waits) {
		r.t.Errorf("edits waited %v, want %v", r.waits, waits)
	}
}

// begun returns a rig that is in step with x=1, of which there is a recording.
func begun(t *testing.T) *editRig {
	t.Helper()
	r := newEditRig(t, memory(t), newCluster(), &bus{}, "x=1")
	r.edit(selecting("x=1"))
	r.expect("gap1 synced1")
	return r
}

// An edit that leads to a list takes effect behind what was recorded before it. No event before its gap has its number: a consumer would take
// the copy for complete.
func TestEditWaits(t *testing.T) {
	r := begun(t)
	r.edit(selecting("x=2"))
	r.reader.write("a", false)
	r.expect("gap1 synced1 added1")
	if !r.waiting(0) {
		t.Error("it does not wait")
	}
	r.direct(0)
	r.expect("gap1 synced1 added1 gap2 synced2")
	r.expectUsed("x=1 one, kept x=1, x=2 one", true, false)
	if got := r.reader.reads; !slices.Equal(got, []string{"x=1", "x=2"}) {
		t.Errorf("read %q", got)
	}
	r.reader.records("") // it has been left
	r.edit(selecting("x=1"))
	r.expect("gap1 synced1 added1 gap2 synced2 gap3 synced3")
}

// While the reader reads from the API server, no edit waits, also if a recording by earlier settings is left. It waits again once the reader may
// record.
func TestEditWhileTheAPIServerIsRead(t *testing.T) {
	r := begun(t)
	r.direct(0)
	r.edit(selecting("x=2"))
	r.expect("gap1 synced1 gap2 synced2")
	r.expectUsed("x=1 one, x=2 one")
	r.direct(1)
	r.reader.records("x=2")
	r.reader.mu.Lock()
	h := r.reader.handlers[1]
	r.reader.mu.Unlock()
	if err := h.Buffered(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.edit(selecting("x=3"))
	if !r.waiting(1) {
		t.Error("it does not wait")
	}
}

// Of several edits that wait, only the last one takes effect, and one that is edited back does not.
func TestEditsInARow(t *testing.T) {
	r := begun(t)
	r.edit(selecting("x=2"))
	r.edit(selecting("x=3"))
	r.direct(0)
	r.expect("gap1 synced1 gap2 synced2")
	r.expectUsed("x=1 one, kept x=1, kept x=1, x=3 one", true, false)

	r = begun(t)
	r.edit(selecting("x=2"))
	r.edit(selecting("x=1"))
	r.expectUsed("x=1 one, kept x=1, x=1 one", true, false)
	r.direct(0)
	r.reader.write("a", false)
	r.expect("gap1 synced1 added1")
}

// An edit that ends the incarnation does not wait, also if another one does.
func TestEditThatDoesNotWait(t *testing.T) {
	for name, p := range map[string]reconcile.Properties{
		"shape": {Selection: "x=3", Route: "one", Shape: "other"},
		"route": {Selection: "x=3", Route: "two"},
	} {
		t.Run(name, func(t *testing.T) {
			r := begun(t)
			r.edit(selecting("x=2"))
			r.edit(p)
			closed := " "
			if name == "route" {
				closed = " closed2 "
			}
			r.expect("gap1 synced1" + closed + "gap2 synced2")
			r.expectUsed("x=1 one, kept x=1, x=3 "+p.Route, true, false)
		})
	}
}

// After a restart with another configuration, what was recorded by the one in the checkpoint is published first.
func TestEditByARestartWaits(t *testing.T) {
	r := begun(t)
	r.kill()
	next := newEditRig(t, r.store, r.reader.cluster, r.bus, "x=1")
	next.edit(selecting("x=2"))
	next.reader.write("a", false)
	next.expect("gap1 synced1 added1")
	if !next.waiting(0) {
		t.Error("it does not wait")
	}
	next.direct(0)
	next.expect("gap1 synced1 added1 gap2 synced2")
	next.expectUsed("kept x=1, x=2 one", true, false)
	if got := next.reader.reads; !slices.Equal(got, []string{"x=1", "x=2"}) {
		t.Errorf("read %q", got)
	}
}

// If the bus rejects a record, the collection goes on from the store, and its edit still waits. What the read before says then changes nothing.
func TestEditWaitsAfterARejectedRecord(t *testing.T) {
	r := begun(t)
	r.edit(selecting("x=2"))
	r.bus.mu.Lock()
	r.bus.reject = durable.ObjectKey("shop", "a")
	r.bus.mu.Unlock()
	r.reader.write("a", false)
	r.expect("gap1 synced1 added1")
	r.direct(0)
	if !r.waiting(1) {
		t.Error("a read that is over has ended the wait")
	}
	r.direct(1)
	r.expect("gap1 synced1 added1 gap2 modified2 synced2") // the rejected event is in doubt
	r.expectUsed("x=1 one, kept x=1, kept x=1, x=2 one", true, false)
}
