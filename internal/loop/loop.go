package loop

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/internal/delivery"
	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

const (
	batchRecords = 2000
	batchBytes   = 4 << 20
	// batchChanges bounds the inventory changes of a batch that come without records.
	batchChanges = 4 * batchRecords
	// frameBudget bounds the bytes of frames that were read and are not delivered yet.
	frameBudget = 32 << 20
	// silentDelay is how long a commit waits that moves positions only.
	silentDelay = time.Second
	// A route that refused is tried again after a pause, which doubles from one to the other.
	firstPause, lastPause = 5 * time.Second, 5 * time.Minute
)

// Wanted is a collection that the plan wants.
type Wanted struct {
	ID         string
	Properties reconcile.Properties
	// SyncedEvery, ResyncEvery and VerifyEvery are the intervals of periodic synced events, resyncs
	// and verifications; 0: never.
	SyncedEvery, ResyncEvery, VerifyEvery time.Duration
}

// Reader reads collections.
type Reader interface {
	// Read lists and watches a collection until ctx ends, as want says, and hands what it
	// reads to h. An error other than ctx's ends the loop.
	Read(ctx context.Context, collection string, want reconcile.Read, h *Handler) error
	// Side lists a collection beside its watch.
	Side(ctx context.Context, collection string, want reconcile.Read, h *Handler) error
}

// Encoder looks at objects and makes records. One goroutine uses it.
type Encoder interface {
	// Prepare completes a sighting of an object that was seen: its digests, what the filter and
	// the ignore rules say of it, and whether its event is a dead letter. known is the
	// inventory entry of the sighting's key, nil for none.
	Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool)
	// Encode makes the record of an item, and the changes of the store that go with it beside
	// the item's own. Items come in order, each once. detail says of a gap that a list is the
	// reason of why that list began, in one sentence for a human; "": it is not known.
	Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV)
	// Reject notes that the bus does not take the record of an item. The loop then continues the
	// collection from the store, and the item's event is made so that it fits, or is a dead
	// letter. An error says that nothing can be done: the collection is suspended for a while.
	Reject(i *reconcile.Item, e *sink.RecordError) error
	// Committed says that the items of a batch are in the store.
	Committed(items []reconcile.Item)
	// Dropped says that what is not in the store of a collection has been given up.
	Dropped(collection string)
}

// Options are what a loop is made of. All are required but Linger.
type Options struct {
	Delivery *delivery.Delivery
	Store    checkpoint.Store
	Reader   Reader
	Encoder  Encoder
	Linger   time.Duration // how long a batch waits for more records; 0: not at all
	Log      *zap.Logger
}

// Loop is one sink at work.
type Loop struct {
	Options
	in      chan message
	calls   chan func(ctx context.Context) error
	budget  *semaphore.Weighted
	running sync.WaitGroup

	// All below belongs to Run's goroutine.
	core      *reconcile.Core
	inventory *durable.Inventory
	wanted    map[string]Wanted
	reads     map[string]*reading
	suspended map[string]time.Time     // collections that are not in the core, until then
	pauses    map[string]time.Duration // how long collections were suspended last, until they deliver
	filling   batch
	flying    *flight
	written   chan error
	seq       uint64               // of deliveries
	since     time.Time            // when the filling batch got its first content
	last      map[string]time.Time // when something was done at an interval
	stopping  bool
}

// batch is what the loop knows of the batch that fills.
type batch struct {
	bytes int
	held  int64 // of the frame budget
}

// flight is a batch on its way.
type flight struct {
	batch
	sealed  *reconcile.Batch
	records []event.Record
}

// encoded is the payload of an item.
type encoded struct {
	record  event.Record
	changes []event.KV // that go with the item, beside its own
}

// New returns a loop that is not running yet.
func New(o Options) *Loop {
	return &Loop{
		Options: o, in: make(chan message, 64), calls: make(chan func(context.Context) error), budget: semaphore.NewWeighted(frameBudget),
		wanted: map[string]Wanted{}, reads: map[string]*reading{}, suspended: map[string]time.Time{}, pauses: map[string]time.Duration{},
		written: make(chan error, 1), last: map[string]time.Time{},
	}
}

// Run opens the delivery and delivers until stop ends; then it finishes what was decided, for as
// long as ctx lets it. It returns nil when everything is committed.
func (l *Loop) Run(ctx, stop context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		l.running.Wait()
		if l.inventory != nil {
			l.inventory.Close()
		}
		err = errors.Join(err, l.Delivery.Close())
	}()
	if err := l.open(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stopped := stop.Done()
	for {
		if err := l.advance(ctx); err != nil {
			return err
		}
		in := l.in
		if l.full() || l.stopping {
			in = nil
		}
		if l.stopping && l.flying == nil && l.core.Idle() {
			return nil
		}
		select {
		case m := <-in:
			err = l.take(m)
		case f := <-l.calls:
			err = f(ctx)
		case err = <-l.written:
			err = l.finished(ctx, err)
		case now := <-tick.C:
			l.tick(now)
		case <-l.due():
		case <-stopped:
			stopped, l.stopping = nil, true
			l.stopReads()
		case <-ctx.Done():
			return l.stopped()
		}
		if err == nil {
			err = l.inventory.Err()
		}
		if err != nil {
			return err
		}
	}
}

// open connects and continues from what the store holds.
func (l *Loop) open(ctx context.Context) error {
	err := l.Delivery.Open(ctx, false)
	if errors.Is(err, sink.ErrReset) {
		return l.reset(ctx, err)
	}
	if err != nil {
		return err
	}
	return l.load()
}

// load begins with a core that continues from what the store holds.
func (l *Loop) load() error {
	state, err := durable.Load(l.Store)
	if err != nil {
		return err
	}
	if l.inventory != nil {
		l.inventory.Close()
	}
	l.inventory = durable.NewInventory(l.Store)
	l.core = reconcile.NewCore(l.inventory, state, now())
	l.filling, l.flying, l.since = batch{}, nil, time.Time{}
	clear(l.suspended)
	for id := range l.wanted {
		l.configure(id)
	}
	return nil
}

// reset gives up what consumers have been sent: every collection begins another incarnation.
func (l *Loop) reset(ctx context.Context, why error) error {
	l.Log.Warn("reset started: the bus no longer holds what it acknowledged", zap.Error(why))
	l.stopReads()
	l.discard()
	state, err := durable.Load(l.Store)
	if err != nil {
		return err
	}
	if err := l.Delivery.Reset(ctx, durable.ResetChanges(state)); err != nil {
		return err
	}
	return l.load()
}

// now is the time in the unit of run numbers.
func now() uint64 { return uint64(time.Now().UnixMilli()) }

// Set passes on the collections that are wanted from now on, and those among the others that are to
// end. A collection that is in neither goes on as it is.
func (l *Loop) Set(ctx context.Context, wanted []Wanted, removed []string) error {
	return l.do(ctx, func(context.Context) error {
		for _, w := range wanted {
			l.wanted[w.ID] = w
			l.configure(w.ID)
		}
		for _, id := range removed {
			delete(l.wanted, id)
			l.step(reconcile.Remove, id)
		}
		return nil
	})
}

func (l *Loop) configure(id string) {
	if _, suspended := l.suspended[id]; !suspended {
		l.core.Step(&reconcile.Input{Kind: reconcile.Configure, Collection: id, Properties: l.wanted[id].Properties, Now: now()})
	}
}

// do runs f in the loop's goroutine. When ctx ends first, f may still run.
func (l *Loop) do(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	call := func(ctx context.Context) error {
		err := f(ctx)
		done <- err
		return err
	}
	select {
	case l.calls <- call:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// advance does everything that can be done without waiting.
func (l *Loop) advance(ctx context.Context) error {
	if err := l.resume(time.Now()); err != nil {
		return err
	}
	l.forget()
	l.encode("")
	l.dispatch(ctx)
	for _, id := range l.core.IDs() {
		l.follow(ctx, id)
	}
	for id := range l.reads {
		l.follow(ctx, id) // it may not be in the core any more
	}
	return l.inventory.Err()
}

// tick does what is due at intervals.
func (l *Loop) tick(at time.Time) {
	for _, id := range l.core.IDs() {
		c := l.core.Collection(id)
		switch w := l.wanted[id]; {
		case c.Phase == reconcile.Leaving && l.replaced(id):
			l.step(reconcile.Release, id)
		case c.Phase != reconcile.InStep:
		case c.Resync:
			l.step(reconcile.SideBegun, id)
		case w.ResyncEvery > 0 && l.passed(id, "resync", at, w.ResyncEvery):
			l.step(reconcile.Demand, id)
		case w.VerifyEvery > 0 && l.passed(id, "verify", at, w.VerifyEvery):
			l.step(reconcile.SideBegun, id)
		case w.SyncedEvery > 0 && l.passed(id, "synced", at, w.SyncedEvery):
			l.step(reconcile.Confirm, id)
		}
	}
}

func (l *Loop) step(kind reconcile.InputKind, id string) {
	l.core.Step(&reconcile.Input{Kind: kind, Collection: id, Now: now()})
}

// passed reports whether an interval has passed since it was true last.
func (l *Loop) passed(id, what string, at time.Time, every time.Duration) bool {
	key := what + " " + id
	last, ok := l.last[key]
	if ok && at.Sub(last) < every {
		return false
	}
	l.last[key] = at
	return ok
}

// replaced reports whether every wanted collection of a collection's resource has synced.
func (l *Loop) replaced(id string) bool {
	for other := range l.wanted {
		if Resource(other) == Resource(id) && !l.core.Settled(other) {
			return false
		}
	}
	return true
}

// Resource is the resource of a collection's ID: "deployments.apps" of "deployments.apps:canary@shop".
func Resource(id string) string {
	if i := strings.IndexAny(id, ":@"); i >= 0 {
		return id[:i]
	}
	return id
}
