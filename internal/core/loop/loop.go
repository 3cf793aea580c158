package loop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/delivery"
	"github.com/kubebridge/kubebridge/internal/core/durable"
	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Limits of a batch, and of the pause before a collection is resumed after its route refused. Two batches exist at a time: one
// is delivered while the other fills.
const (
	BatchRecords = 2000
	BatchBytes   = 4 << 20
	// LastPause is the longest pause. The first pause is firstPause, and each next pause is twice the previous one.
	LastPause  = 2 * time.Minute
	firstPause = 5 * time.Second
	// firstResetPause is the pause before a reset is repeated because the bus has lost it, too. Later pauses are longer, up to LastPause.
	firstResetPause = time.Second
	// firstSidePause and lastSidePause are the shortest and the longest pause after a failed list beside the watch.
	firstSidePause, lastSidePause = time.Second, time.Minute
)

const (
	// batchChanges bounds the inventory changes of a batch that come without records.
	batchChanges = 4 * BatchRecords
	// frameBudget bounds the bytes of frames that have been read but not delivered.
	frameBudget = 32 << 20
	// maxWaiting bounds the bytes of listed objects that wait: see [Handler.Listed].
	maxWaiting = frameBudget / 8
	// inStepFor is how long it counts that a collection was in step with the API server: a synced event without a gap claims that the
	// collection is complete up to its time, so it is not published if the last proof is older. pkg/source has one about once a minute,
	// and decides within that time whether a watch without frames is quiet or dead.
	inStepFor = 2 * time.Minute
	// silentDelay is how long a batch without records waits before it is committed.
	silentDelay = time.Second
)

// Reader reads collections.
type Reader interface {
	// Read lists and watches a collection as want says, until ctx ends, and passes what it
	// reads to h. An error other than the error of ctx ends the loop.
	Read(ctx context.Context, collection string, want reconcile.Read, h *Handler) error
	// Side lists a collection beside its watch.
	Side(ctx context.Context, collection string, want reconcile.Read, h *Handler) error
}

// Encoder prepares sightings of objects and makes records. One goroutine uses it.
type Encoder interface {
	// Key passes on the key of all digests, before the first call of Prepare.
	Key(key []byte)
	// Prepare completes a sighting with the digests of the object, the results of the filter and
	// the ignore rules, and whether the event is a dead letter. known is the
	// inventory entry of the sighting's key, nil for none.
	Prepare(collection string, s *reconcile.Sighting, known *reconcile.Object, inDoubt bool)
	// Encode makes the record of an item, and the changes of the store that are committed with it besides
	// the item's own changes. Items come in order, each once. If a list led to the gap that is encoded,
	// detail says in one sentence for a human why the list began; "": the reason is not known.
	Encode(i *reconcile.Item, detail string, at time.Time) (event.Record, []event.KV)
	// Reject records that the bus refuses the record of an item. The loop then continues the
	// collection from the store, and the item's event is made so that it fits, or becomes a dead
	// letter. If Reject returns an error, neither is possible and the collection is suspended.
	Reject(i *reconcile.Item, e *sink.RecordError) error
	// Sealed is called when the filling batch goes on its way: records that are encoded next belong to another batch. It
	// returns changes of the store that are committed with the batch. If the batch is not committed, the next call
	// returns them again.
	Sealed() []event.KV
	// Forgotten returns the changes of the store that are committed with the removal of an inventory entry.
	Forgotten(collection, key string) []event.KV
	// Committed is called when the batch on its way is on the bus and in the store. Its records are no
	// longer used.
	Committed(items []reconcile.Item)
	// Dropped is called when the changes of a collection that are not in the store have been discarded.
	Dropped(collection string)
}

// Observer is called at each step for logs, metrics and status. Its methods are called from the goroutine of [Loop.Run], and must not
// block.
type Observer interface {
	// ListBegun is called when a list begins that reconciles. An interrupted list begins again, in the same
	// run if possible.
	ListBegun(collection string)
	// Committed is called when a batch is on the bus and in the store. It must not keep the records.
	Committed(c *Commit)
	// Queued is called with the sizes of the batch on its way and of the filling batch.
	Queued(flying, filling Load)
	// Suspended is called when a collection is suspended until a time, because the bus refuses its route or
	// one of its records. A nil error means that it resumes.
	Suspended(collection string, until time.Time, err error)
	// EditWaits is called when changed settings of a collection begin to wait, or wait no longer: see [Wanted].Keep.
	EditWaits(collection string, waits bool)
}

// Commit is a batch that is on the bus and in the store.
type Commit struct {
	Items   []reconcile.Item
	Records []event.Record // of Items, in order
	Changed []string       // collections whose [Loop.State] may have changed; may have duplicates
}

// Load is the size of a batch.
type Load struct {
	Records int
	Bytes   int       // of the records' values
	Since   time.Time // when its first content came; zero: it is empty
}

// Options are the options of a loop. All are required except Linger, Replan, Delayer and Chronicle.
type Options struct {
	Delivery *delivery.Delivery
	Store    checkpoint.Store
	Reader   Reader
	Encoder  Encoder
	Observer Observer
	Linger   time.Duration // how long a batch waits for more records; 0: not at all
	// Replan requests another plan. It is called when a collection becomes absent, or stops being
	// absent: see [reconcile.Absent]. It must not block. nil: no other plan is requested.
	Replan    func()
	Delayer   Delayer   // nil: no change waits
	Chronicle Chronicle // nil: all events are about objects and collections
	Log       *zap.Logger
}

// Loop runs one sink.
type Loop struct {
	Options
	calls
	reads *reads

	// Only Run's goroutine uses the fields below.
	core      *reconcile.Core
	inventory *durable.Inventory
	key       []byte // of digests
	plan      *planState
	batches   *batches
	suspended *suspensions
	stopping  bool
	at        time.Time // when the loop woke up, or take received the current message and the messages that waited with it
}

// New returns a loop that is not running yet.
func New(o Options) *Loop {
	l := &Loop{Options: o, calls: newCalls(), reads: newReads(&o), plan: newPlanned(), suspended: newSuspensions(o.Observer)}
	l.batches = &batches{Options: &l.Options, plan: l.plan, budget: l.reads.budget, written: make(chan error, 1), check: busCheck{done: make(chan error, 1)}, objects: map[string]int64{}, counted: map[string]uint64{}}
	l.batches.open = l.batches.newBatch()
	l.reads.committed = l.committed
	l.reads.source = func(ctx context.Context, collection string, read uint64, direct bool) error {
		return l.do(ctx, func(context.Context) error {
			l.sourceChanged(collection, read, direct)
			return nil
		})
	}
	l.reads.editWaits = l.editWaits
	return l
}

// committed implements [Handler.Committed].
func (l *Loop) committed(ctx context.Context, collection string) (position string, epoch uint64, err error) {
	type answer struct {
		position string
		epoch    uint64
	}
	var found answer
	err = l.do(ctx, func(context.Context) error {
		position, r, err := durable.Position(l.Store, collection)
		// Before the gap of a list is committed, the store has a position of before the list.
		if c := l.core.Collection(collection); c != nil && c.Continues(&r) {
			found = answer{position, r.Epoch}
		}
		return err
	})
	if err != nil { // the call may still be running
		return "", 0, err
	}
	return found.position, found.epoch, nil
}

// Run opens the delivery and delivers until stop ends. Then it delivers the emitted events, until
// ctx ends. It returns nil when everything is committed.
func (l *Loop) Run(ctx, stop context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		close(l.ended)
		cancel()
		l.reads.running.Wait()
		l.batches.running.Wait()
		err = errors.Join(err, l.Delivery.Close())
	}()
	opening, giveUp := context.WithCancel(ctx)
	defer giveUp()
	opened := context.AfterFunc(stop, giveUp) // until the delivery is open, there is no event to deliver
	if err := l.open(opening); err != nil {
		if stop.Err() != nil {
			return nil
		}
		return err
	}
	opened()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stopped := stop.Done()
	for {
		if err := l.advance(ctx); err != nil {
			return err
		}
		if l.stopping && l.batches.inFlight == nil && l.batches.check.end == nil && (l.core.Idle() || !l.plan.made) {
			l.Delivery.Finish(ctx)
			return nil
		}
		select {
		case m := <-l.inputs():
			err = l.take(m)
		case f := <-l.functions:
			err = f(ctx)
		case err = <-l.batches.written:
			err = l.finished(ctx, err)
		case err = <-l.batches.check.done:
			err = l.checked(ctx, err)
		case l.pings <- struct{}{}:
		case now := <-tick.C:
			l.tick(now)
		case <-l.batches.due():
		case <-l.delayed():
		case <-stopped:
			stopped, l.stopping, l.batches.draining = nil, true, true
			l.batches.check.due = false
			if l.batches.check.end != nil {
				l.batches.check.end()
			}
			l.reads.stopAll()
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

// inputs returns the channel of messages from readers, or nil while none is accepted.
func (l *Loop) inputs() <-chan message {
	if l.batches.full() || l.stopping {
		return nil
	}
	return l.reads.in
}

// delayed returns a channel that fires when a delayed message has waited long enough; nil while none can be handled.
func (l *Loop) delayed() <-chan time.Time {
	if l.batches.full() {
		return nil
	}
	return l.reads.delays.due()
}

// State is the state of a collection.
type State struct {
	Run, Incarnation uint64 // 0: there is none
	Skips            bool   // objects of the first list are not published
	Absent           bool   // the resource or the namespace does not exist
	Objects          int64  // in the store's inventory; below 0: no list of the incarnation has been complete yet
	Position         string // resourceVersion up to which the inventory is complete, including uncommitted changes; "": see [reconcile.Core.Complete]
}

// State returns the state of a collection. It is called from Run's goroutine.
func (l *Loop) State(collection string) State {
	s := State{Objects: -1}
	if c := l.core.Collection(collection); c != nil {
		s.Run, s.Incarnation, s.Position, s.Absent = c.Run, c.Incarnation, l.core.Complete(collection), c.Phase == reconcile.Absent
		if c.SyncedEpoch != 0 {
			s.Objects = l.batches.objects[collection]
		}
	}
	if w := l.plan.wanted[collection]; w != nil {
		s.Skips = w.properties.Skip
	}
	return s
}

// open connects and continues from the content of the store.
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

// load makes a core that continues from the content of the store.
func (l *Loop) load() error {
	state, err := durable.Load(l.Store)
	if err != nil {
		return err
	}
	l.inventory = durable.NewInventory(l.Store)
	if err := errors.Join(l.plan.load(l.Store), l.loadKey()); err != nil {
		return err
	}
	l.core = reconcile.NewCore(l.inventory, state, l.number(time.Now()))
	needs := l.Delivery.Needs()
	l.core.Omit(!needs.Intents, !needs.State)
	if err := l.batches.load(l.core); err != nil {
		return err
	}
	if l.Chronicle != nil {
		if err := l.Chronicle.Restore(l.Store, "", time.Now()); err != nil {
			return err
		}
	}
	for id := range l.plan.wanted {
		l.adopt(id)
	}
	if l.plan.made {
		l.batches.noteLatest(l.plan.number()...)
	}
	for id := range l.plan.wanted {
		l.configure(id)
	}
	for id := range l.plan.removed {
		l.step(reconcile.Remove, id)
	}
	return nil
}

// loadKey passes the key of digests on to the encoder. If the store has none, it makes one.
func (l *Loop) loadKey() error {
	stored, err := durable.LoadKey(l.Store)
	if err != nil {
		return err
	}
	switch {
	case stored != nil:
		l.key = stored
	case l.key == nil: // otherwise the note with the key is not durable yet
		var change event.KV
		l.key, change = durable.NewKey()
		l.batches.note(change)
	}
	l.Encoder.Key(l.key)
	return nil
}

// reset begins another incarnation of every collection, so consumers drop their copies. No batch
// is on its way to the bus.
func (l *Loop) reset(ctx context.Context, why error) error {
	l.reads.stopAll()
	l.reads.discard()
	entries := l.batches.restart()
	l.plan.announceAgain(l.batches.open.notes)
	l.suspended.clear()
	if l.core != nil {
		for _, id := range l.core.IDs() {
			l.Encoder.Dropped(id)
		}
	}
	for pause := time.Duration(0); errors.Is(why, sink.ErrReset); pause = min(2*pause+firstResetPause, LastPause) {
		if err := l.answering(func() error { return sleep(ctx, pause) }); err != nil {
			return err
		}
		l.Log.Warn("reset started", zap.Error(why))
		state, err := durable.Load(l.Store)
		if err != nil {
			return err
		}
		reborn, err := l.plan.reborn(l.Store)
		if err != nil {
			return err
		}
		var kept []event.KV
		if l.Delivery.Needs().Kept {
			if kept, err = durable.Kept(l.Store); err != nil {
				return err
			}
		}
		l.batches.note(reborn...) // after waiting notes, which have the previous birth
		why = l.answering(func() error {
			changes := slices.Concat(kept, entries, durable.ResetChanges(state), reborn)
			return l.Delivery.Reset(ctx, append(changes, event.KV{Key: checkpoint.ResetKey()}))
		})
	}
	if why != nil {
		return why
	}
	return l.load()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// take handles a message and the messages that wait behind it, while the batch has room.
func (l *Loop) take(m message) error {
	for {
		waiting := len(l.reads.in) // before the time is taken: what comes later must not seem to be there already
		l.at = time.Now()
		if err := l.release(); err != nil {
			return err
		}
		for ; ; waiting-- {
			if err := l.handle(m); err != nil {
				return err
			}
			if l.batches.full() {
				return nil
			}
			if waiting == 0 {
				break
			}
			m = <-l.reads.in // nobody else receives
		}
		select {
		case m = <-l.reads.in:
		default:
			return nil
		}
	}
}

// handle handles a message, or delays it.
func (l *Loop) handle(m message) error {
	if l.delay(m) {
		return nil
	}
	return l.handleNow(m)
}

func (l *Loop) handleNow(m message) error {
	switch {
	case m.ended != nil:
		return m.ended
	case m.call != nil:
		m.call(l)
		l.reads.drop(m)
		return nil
	}
	switch in := m.input; in.Kind {
	case reconcile.ListBegun:
		if in.Read == l.core.Reading(in.Collection).Number {
			l.reads.dropWaiting(in.Collection) // these objects belong to an interrupted list
			l.Observer.ListBegun(in.Collection)
		}
	case reconcile.ListEnded:
		for _, key := range l.reads.waitingKeys(in.Collection) {
			l.decideWaiting(in.Collection, key)
		}
	case reconcile.Sighted:
		l.decideWaiting(in.Collection, in.Sighting.Key) // a streamed list can have several states of an object
		if m.own != nil && len(l.core.Replaces(in)) > 0 && l.reads.wait(m) {
			return nil
		}
	case reconcile.SideEnded, reconcile.SideBroken:
		if w := l.plan.wanted[in.Collection]; w != nil && in.Side == l.core.Reading(in.Collection).Side {
			c := l.core.Collection(in.Collection)
			w.sideOver(in.Kind == reconcile.SideEnded, l.at, c.Resync || c.SamplesDue())
		}
	}
	l.decide(m)
	return nil
}

// decideWaiting ends the wait of a listed object, if there is one.
func (l *Loop) decideWaiting(collection, key string) {
	if m, waits := l.reads.takeWaiting(collection, key); waits {
		l.decide(m)
	}
}

// decide passes an input on to the core.
func (l *Loop) decide(m message) {
	l.batches.encode("", l.at) // what is there already did not follow from this message, which may have been delayed
	before := l.core.Pending()
	m.input.Now = l.number(l.at)
	if s := m.input.Sighting; s != nil && !l.core.Late(m.input) { // what the core ignores is neither prepared nor counted
		known, inDoubt := l.core.Object(m.input.Collection, s.Key)
		l.Encoder.Prepare(m.input.Collection, s, known, inDoubt)
		l.batches.stepObject(m.input, s.Key, known != nil)
	} else {
		l.core.Step(m.input)
	}
	at := l.at
	if !m.received.IsZero() {
		at = m.received
	}
	l.batches.encode(m.detail, at)
	if m.release != nil {
		m.release() // records have copied what they need
	}
	if l.core.Pending() > before {
		l.batches.open.held += m.bytes // until it is delivered
	} else {
		l.reads.budget.Release(m.bytes)
	}
}

// finished handles the end of the delivery of a batch.
func (l *Loop) finished(ctx context.Context, err error) error {
	var (
		route  *sink.RouteError
		record *sink.RecordError
	)
	switch {
	case err == nil:
		l.suspended.delivered(l.batches.committed().sealed.Items)
		return nil
	case errors.As(err, &route):
		l.refused(ctx, route)
		return nil
	case errors.As(err, &record):
		l.rejected(ctx, record)
		return nil
	case errors.Is(err, sink.ErrReset):
		return l.reset(ctx, err)
	}
	return err
}

// checked handles the end of a check of the bus.
func (l *Loop) checked(ctx context.Context, err error) error {
	l.batches.check.end()
	l.batches.check.end = nil
	switch {
	case l.stopping: // it was ended; what is left to deliver shows whether the bus works
		return nil
	case errors.Is(err, sink.ErrReset):
		return l.reset(ctx, err)
	}
	return err
}

// stopped returns the error for a stop before the bus has acknowledged every event.
func (l *Loop) stopped() error {
	return fmt.Errorf("stopped while %d events were not acknowledged by the bus: they are delivered after the next start", l.batches.unacknowledged())
}

// number returns the time as the number of a run. It is never below the plan's birth, even if the clock was set back: consumers
// would ignore the run.
func (l *Loop) number(at time.Time) uint64 { return max(milliseconds(at), l.plan.numbers.Birth) }

func milliseconds(at time.Time) uint64 { return uint64(at.UnixMilli()) }

// advance takes every step that is possible without waiting.
func (l *Loop) advance(ctx context.Context) error {
	l.at = time.Now()
	if err := l.resume(l.at); err != nil {
		return err
	}
	if !l.plan.made {
		return nil
	}
	if err := l.release(); err != nil {
		return err
	}
	l.batches.forget()
	l.batches.encode("", time.Now())
	l.batches.dispatch(ctx)
	l.batches.queued()
	for _, id := range l.core.Open() {
		l.follow(ctx, id)
	}
	for id := range l.reads.open {
		l.follow(ctx, id) // the collection may have closed, or left the core
	}
	return l.inventory.Err()
}

// follow makes the reader read a collection as the core wants.
func (l *Loop) follow(ctx context.Context, id string) {
	want := l.core.Reading(id)
	want.Stop = want.Stop || l.stopping
	l.reads.follow(ctx, id, want)
}

// tick takes the steps that are due at intervals.
func (l *Loop) tick(at time.Time) {
	l.batches.check.due = l.Delivery.Checks() && !l.stopping
	l.write(at)
	if l.plan.made && l.Replan != nil && !slices.Equal(absent(l.core), l.plan.proved) {
		l.Replan()
	}
	for _, id := range l.core.Open() {
		c := l.core.Collection(id)
		w := l.plan.wanted[id]
		switch {
		case c.Phase == reconcile.Leaving && l.plan.replaced(id, l.core):
			l.step(reconcile.Release, id)
		case c.Phase != reconcile.InStep || w == nil: // how its events are published may not be known yet: see unnamed
		case l.batches.full(): // what is due stays due until the bus has taken a batch
		case c.SamplesDue():
			if !at.Before(w.retryAt) {
				l.step(reconcile.SideBegun, id)
			}
		case l.plan.announcementDue(id) && !c.Resync && l.inStep(id, at): // a synced event would close the gap of the resync
			l.confirm(w)
			l.batches.encode("", time.Now())
		case c.Resync:
			if !at.Before(w.retryAt) {
				full := c.Full
				l.step(reconcile.SideBegun, id)
				if c.Full != full { // otherwise the resync goes on, and what is demanded meanwhile comes after it
					w.demanded = min(w.demanded, c.Full) // if the clock was set back, this run is not as high
				}
			}
		case w.resyncDue(c.Full, at):
			l.step(reconcile.Demand, id)
		case passed(&w.verified, at, w.VerifyEvery):
			l.step(reconcile.SideBegun, id)
		case l.inStep(id, at) && l.unconfirmed(w) && passed(&w.synced, at, w.SyncedEvery):
			l.confirm(w)
		}
	}
}

// inStep reports whether a collection was in step with the API server lately.
func (l *Loop) inStep(id string, at time.Time) bool {
	last := l.reads.inStep(id)
	return !last.IsZero() && at.Sub(last) <= inStepFor
}

// unconfirmed reports whether a periodic synced event would say more than the last one: the collection was in step later, or has come further.
func (l *Loop) unconfirmed(w *wantedCollection) bool {
	return l.reads.inStep(w.ID).After(w.confirmed.inStep) || l.core.Collection(w.ID).Position != w.confirmed.position
}

// confirm emits a periodic synced event.
func (l *Loop) confirm(w *wantedCollection) {
	w.confirmed = confirmation{l.core.Collection(w.ID).Position, l.reads.inStep(w.ID)}
	l.step(reconcile.Confirm, w.ID)
}

// runTime returns when a run began. The number of a run is a time, except after the clock was set back.
func runTime(run uint64) time.Time { return time.UnixMilli(int64(run)) }

// resyncDue reports whether a resync was demanded, or the interval of resyncs has passed, since full, the run in which every object was
// published last. If the clock was set back and that run lies ahead, the interval counts from the last resync of this process, or from
// its start.
func (w *wantedCollection) resyncDue(full uint64, at time.Time) bool {
	if full < w.demanded {
		return true
	}
	if since := at.Sub(runTime(full)); since >= 0 {
		return w.ResyncEvery > 0 && since >= w.ResyncEvery
	}
	return passed(&w.resynced, at, w.ResyncEvery)
}

func (l *Loop) step(kind reconcile.InputKind, id string) {
	l.core.Step(&reconcile.Input{Kind: kind, Collection: id, Now: l.number(time.Now())})
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
