package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/internal/delivery"
	"github.com/kubebridge/kubebridge/internal/durable"
	"github.com/kubebridge/kubebridge/internal/plan"
	"github.com/kubebridge/kubebridge/internal/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Limits of a batch, and of the pause before a route that refused is tried again. Two batches exist at a time: one
// is delivered while the other fills.
const (
	BatchRecords = 2000
	BatchBytes   = 4 << 20
	// LastPause is the longest pause; the first one is firstPause, and the next ones are twice the one before.
	LastPause  = 2 * time.Minute
	firstPause = 5 * time.Second
)

const (
	// batchChanges bounds the inventory changes of a batch that come without records.
	batchChanges = 4 * BatchRecords
	// frameBudget bounds the bytes of frames that were read and are not delivered yet.
	frameBudget = 32 << 20
	// silentDelay is how long a batch without records waits before it is committed.
	silentDelay = time.Second
)

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
	// Prepare completes a sighting: with the digests of an object that was seen, what the filter and
	// the ignore rules say of it, and whether its event is a dead letter. known is the
	// inventory entry of the sighting's key, nil for none.
	Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool)
	// Encode makes the record of an item, and the changes of the store that go with it beside
	// the item's own. Items come in order, each once. If a list led to the gap that is encoded,
	// detail says in one sentence for a human why the list began; "": that is not known.
	Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV)
	// Reject notes that the bus does not take the record of an item. The loop then continues the
	// collection from the store, and the item's event is made so that it fits, or is a dead
	// letter. An error says that nothing can be done: the collection is suspended for a while.
	Reject(i *reconcile.Item, e *sink.RecordError) error
	// Sealed says that the batch that fills is on its way: what is encoded next is of another one. It
	// returns changes of the store that are committed with the batch; without the commit it returns them
	// again.
	Sealed() []event.KV
	// Forgotten returns the changes of the store that go with the removal of an inventory entry.
	Forgotten(collection, key string) []event.KV
	// Committed says that the batch on its way is on the bus and in the store. Its records are not
	// used any more.
	Committed(items []reconcile.Item)
	// Dropped says that what is not in the store of a collection has been given up.
	Dropped(collection string)
}

// Observer learns what happens. Its methods are called from the goroutine of [Loop.Run], and do not
// block.
type Observer interface {
	// ListBegun says that a list begins that reconciles. A list that breaks off begins again, in the same
	// run if that is possible.
	ListBegun(collection string)
	// Committed says that a batch is on the bus and in the store. It may not keep the records.
	Committed(c *Commit)
	// Queued says what is on its way, and what fills the next batch.
	Queued(flying, filling Load)
	// Suspended says that a collection waits until a time, since the bus refuses its route or
	// one of its records. A nil error: it goes on.
	Suspended(collection string, until time.Time, err error)
}

// Commit is a batch that is on the bus and in the store.
type Commit struct {
	Items   []reconcile.Item
	Records []event.Record // of Items, in order
	Changed []string       // collections of which [Loop.State] may be another one; each at least once
}

// Load is the size of a batch.
type Load struct {
	Records int
	Bytes   int       // of the records' values
	Since   time.Time // when its first content came; zero: it is empty
}

// Options are what a loop is made of. All are required but Linger and Replan.
type Options struct {
	Delivery *delivery.Delivery
	Store    checkpoint.Store
	Reader   Reader
	Encoder  Encoder
	Observer Observer
	Linger   time.Duration // how long a batch waits for more records; 0: not at all
	// Replan asks for another plan. It is called when a collection becomes absent, or stops being
	// absent: see [reconcile.Absent]. It must not block. nil: no other plan is asked for.
	Replan func()
	Log    *zap.Logger
}

// Loop is one sink at work.
type Loop struct {
	Options
	in      chan message
	calls   chan func(ctx context.Context) error
	pings   chan struct{} // answers [Loop.Alive]
	ended   chan struct{} // closed when Run returns
	budget  *semaphore.Weighted
	running sync.WaitGroup

	// All below belongs to Run's goroutine.
	core      *reconcile.Core
	inventory *durable.Inventory
	wanted    map[string]*wanted
	objects   map[string]int64    // in the inventories of the store, by collection
	removed   map[string]struct{} // collections that the plan has removed
	reads     map[string]*reading
	suspended map[string]time.Time     // collections that are not in the core, until then
	pauses    map[string]time.Duration // how long collections were suspended last, until they deliver
	filling   batch
	flying    *flight
	written   chan error
	seq       uint64 // of batches; unlike the core's it goes on after a reset
	stopping  bool
	planned   bool // the first plan is there: until then nothing is encoded
	numbers   plan.Numbers
	owed      map[string]struct{} // by the keys of the store: see owe
	proved    []string            // collections that were absent when the plan was made
}

// batch is what the loop knows of a batch.
type batch struct {
	bytes int
	held  int64     // of the frame budget
	since time.Time // when its first content came
	// notes are durable before its records, and with them.
	notes []event.KV
	grown map[string]int64 // how many inventory entries it adds, by collection
}

// flight is a batch on its way.
type flight struct {
	batch
	seq    uint64
	sealed *reconcile.Batch
	// items are what is written: the items of sealed, and in the mode Intents also items of dropped
	// collections that the bus already has, or gets before the others. records are made of items.
	items   []reconcile.Item
	records []event.Record
	settled settled
	unkept  []event.KV // of the encoder, for the commit
}

// settled is, in the mode Log, what the bus already has of a batch on its way.
type settled struct {
	items   []reconcile.Item
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
		Options: o, in: make(chan message, 64), calls: make(chan func(context.Context) error), pings: make(chan struct{}), ended: make(chan struct{}), budget: semaphore.NewWeighted(frameBudget),
		wanted: map[string]*wanted{}, objects: map[string]int64{}, removed: map[string]struct{}{}, reads: map[string]*reading{}, suspended: map[string]time.Time{}, pauses: map[string]time.Duration{},
		written: make(chan error, 1), owed: map[string]struct{}{},
	}
}

// Run opens the delivery and delivers until stop ends; then it finishes what was decided, for as
// long as ctx lets it. It returns nil when everything is committed.
func (l *Loop) Run(ctx, stop context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		close(l.ended)
		cancel()
		l.running.Wait()
		err = errors.Join(err, l.Delivery.Close())
	}()
	if err := l.open(ctx); err != nil {
		if stop.Err() != nil && ctx.Err() != nil {
			return nil
		}
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
		if l.stopping && l.flying == nil && (l.core.Idle() || !l.planned) {
			return nil
		}
		select {
		case m := <-in:
			err = l.take(m)
		case f := <-l.calls:
			err = f(ctx)
		case err = <-l.written:
			err = l.finished(ctx, err)
		case l.pings <- struct{}{}:
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
		switch {
		case err != nil && ctx.Err() != nil:
			return l.stopped()
		case err != nil:
			return err
		}
	}
}

// Alive reports whether the loop's goroutine answers before ctx ends. It also answers while it
// waits for the bus or the store.
func (l *Loop) Alive(ctx context.Context) bool {
	select {
	case <-l.pings:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pings returns a channel on which a send answers [Loop.Alive]: for a store that blocks the
// loop's goroutine while it waits.
func (l *Loop) Pings() chan<- struct{} { return l.pings }

// State is what the loop knows of a collection.
type State struct {
	Run, Incarnation uint64 // 0: there is none
	Skips            bool   // what the first list finds is not published
	Objects          int64  // in the store's inventory; below 0: no list of the incarnation was complete yet
	Position         string // up to which the inventory is complete, with what is not committed yet; "": not known
}

// State returns the state of a collection. It is called from Run's goroutine.
func (l *Loop) State(collection string) State {
	s := State{Objects: -1}
	if c := l.core.Collection(collection); c != nil {
		s.Run, s.Incarnation, s.Position = c.Run, c.Incarnation, c.Position
		if c.Synced != 0 {
			s.Objects = l.objects[collection]
		}
	}
	if w := l.wanted[collection]; w != nil {
		s.Skips = w.properties.Skip
	}
	return s
}

// answering runs f, which waits for the bus or the store, and answers pings meanwhile.
func (l *Loop) answering(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	for {
		select {
		case err := <-done:
			return err
		case l.pings <- struct{}{}:
		}
	}
}

// open connects and continues from what the store holds.
func (l *Loop) open(ctx context.Context) error {
	asked, err := l.resetAsked()
	if err != nil {
		return err
	}
	err = l.answering(func() error { return l.Delivery.Open(ctx, asked) })
	if err == nil {
		asked, err = l.resetAsked() // some stores have their content only once the delivery is open
	}
	switch {
	case err == nil && asked:
		return l.reset(ctx, errAsked)
	case errors.Is(err, sink.ErrReset):
		return l.reset(ctx, err)
	case err != nil:
		return err
	}
	return l.load()
}

// errAsked is the reason of a reset that an operator has asked for.
var errAsked = fmt.Errorf("%w: an operator asked for a reset", sink.ErrReset)

// resetAsked reports whether an operator has asked for a reset.
func (l *Loop) resetAsked() (bool, error) {
	value, err := l.Store.Get(checkpoint.ResetKey())
	if err != nil {
		return false, fmt.Errorf("read the checkpoint: %w", err)
	}
	return bytes.Equal(value, checkpoint.ResetRequested()), nil
}

// load makes a core that continues from what the store holds.
func (l *Loop) load() error {
	state, err := durable.Load(l.Store)
	if err != nil {
		return err
	}
	l.inventory = durable.NewInventory(l.Store)
	if err := l.loadPlan(); err != nil {
		return err
	}
	l.core = reconcile.NewCore(l.inventory, state, now())
	l.core.Omit(l.Delivery.Mode() != delivery.Intents, l.Delivery.Mode() != delivery.Log)
	clear(l.objects)
	for _, id := range l.core.IDs() {
		if err := l.count(id); err != nil {
			return err
		}
	}
	for id := range l.wanted {
		l.configure(id)
	}
	for id := range l.removed {
		l.step(reconcile.Remove, id)
	}
	return nil
}

// reset gives up what consumers have been sent: every collection begins another incarnation. Nothing
// is on its way to the bus.
func (l *Loop) reset(ctx context.Context, why error) error {
	l.stopReads()
	l.discard()
	l.budget.Release(l.filling.held)
	notes := l.filling.notes
	if l.flying != nil {
		l.budget.Release(l.flying.held)
		notes = append(l.flying.notes, notes...)
	}
	l.filling, l.flying = batch{notes: notes}, nil
	clear(l.suspended)
	if l.core != nil {
		for _, id := range l.core.IDs() {
			l.Encoder.Dropped(id)
		}
	}
	for errors.Is(why, sink.ErrReset) {
		l.Log.Warn("reset started: the bus no longer holds what it acknowledged", zap.Error(why))
		state, err := durable.Load(l.Store)
		if err != nil {
			return err
		}
		why = l.answering(func() error {
			changes := append(durable.ResetChanges(state), event.KV{Key: checkpoint.ResetKey()})
			return l.Delivery.Reset(ctx, changes)
		})
	}
	if why != nil {
		return why
	}
	return l.load()
}

// now is the time in the unit of run numbers.
func now() uint64 { return uint64(time.Now().UnixMilli()) }

// advance does everything that can be done without waiting.
func (l *Loop) advance(ctx context.Context) error {
	if err := l.resume(time.Now()); err != nil {
		return err
	}
	if !l.planned {
		return nil
	}
	l.forget()
	l.encode("")
	l.dispatch(ctx)
	l.queued()
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
	if l.planned && l.Replan != nil && !slices.Equal(l.absent(), l.proved) {
		l.Replan()
	}
	for _, id := range l.core.IDs() {
		c := l.core.Collection(id)
		w := l.wanted[id]
		switch {
		case c.Phase == reconcile.Leaving && l.replaced(id):
			l.step(reconcile.Release, id)
		case c.Phase != reconcile.InStep || !l.planned:
		case l.owes(id) && !c.Resync: // a synced event would close the gap of the resync
			l.step(reconcile.Confirm, id)
			l.encode("")
		case c.Resync:
			l.step(reconcile.SideBegun, id)
		case w == nil: // no plan has named it since the start
		case w.ResyncEvery > 0 && at.Sub(runTime(c.Full)) >= w.ResyncEvery:
			l.step(reconcile.Demand, id)
		case passed(&w.verified, at, w.VerifyEvery):
			l.step(reconcile.SideBegun, id)
		case passed(&w.synced, at, w.SyncedEvery):
			l.step(reconcile.Confirm, id)
		}
	}
}

// runTime is when a run began: the number of a run is a time where the clock was not set back.
func runTime(run uint64) time.Time { return time.UnixMilli(int64(run)) }

func (l *Loop) step(kind reconcile.InputKind, id string) {
	l.core.Step(&reconcile.Input{Kind: kind, Collection: id, Now: now()})
}

// passed reports whether an interval has passed since passed last returned true, or since last was
// set. The interval begins with the first call; 0: it never passes.
func passed(last *time.Time, at time.Time, every time.Duration) bool {
	begun := !last.IsZero()
	if every == 0 || begun && at.Sub(*last) < every {
		return false
	}
	*last = at
	return begun
}
