package pipeline

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
	"github.com/kubebridge/kubebridge/pkg/source"
)

const (
	batchRecords = 2000
	batchBytes   = 4 << 20
	// batchChanges bounds what a batch moves in the checkpoint without a record.
	batchChanges = 4 * batchRecords
	// frameBudget bounds the bytes of frames that were read and are not yet
	// delivered, over all collections of a lane: two batches, what waits for the
	// second, and room for the largest frame.
	frameBudget = 32 << 20
	// silentDelay is how long a commit waits that moves positions only.
	silentDelay = time.Second
)

// LaneOptions are what a lane is made of. All but Linger are required.
type LaneOptions struct {
	Identity event.Identity
	Sink     sink.Sink
	Store    checkpoint.Store
	Shape    Shape
	Client   *source.Client
	Lists    *semaphore.Weighted // shared by all lanes: lists under way at once
	Linger   time.Duration       // how long a batch waits for company; 0: not at all
	Log      *zap.Logger
	Metrics  *Metrics
	// Delivered is called with the records of each batch that is committed, from
	// the lane's goroutine. It may not keep them. nil: nobody listens.
	Delivered func([]event.Record)
	Outage    *outage // that all lanes share; nil: of its own
}

// Lane is one sink with its own watches, batches, positions and inventory.
type Lane struct {
	*reporter
	id         event.Identity
	sink       sink.Sink
	store      checkpoint.Store
	shape      Shape
	linger     time.Duration
	onDelivery func([]event.Record)
	cluster    reader

	calls  chan call
	in     chan parcel
	pings  chan struct{}
	poke   chan struct{} // a collection ended by itself: what is wanted should be looked at again
	budget *semaphore.Weighted

	// All below belongs to Run's goroutine.
	reads     checkpoint.Store // store, with patience
	inv       *inventory
	members   map[string]*member
	collect   context.Context // of the members' goroutines
	running   sync.WaitGroup
	settled   bool               // every configured resource has become a member
	closing   map[string]*member // no longer wanted, see closeDue
	suspended []suspension       // since the last signal, see suspendAll
	shut      map[string]shut    // closed collections that the store does not know as such yet
	resetRun  string             // of a reset that is not over
	resetWhy  string             // known in the run that began it
	current   *batch
	spare     *batch     // memory for the next one; nil: none
	text      event.Text // of events
	scratch   []byte     // for bodies on their way
	mac       hash.Hash  // of seal; nil: not made yet
	sealed    []byte
	keeper    *keeper                    // nil until it is first used
	moved     map[*member]event.Position // positions that the current batch commits
	since     time.Time                  // when the current batch got its first content
	emitted   uint64                     // records so far
	writing   bool
	stopping  bool // nothing more comes
	inFlight  int  // records of the batch being written
	written   chan result
}

// reader reads collections: the API server's, or a test's.
type reader interface {
	// read reads a collection until ctx ends, or for ever ended.
	read(ctx context.Context, j job) error
	// survey lists a collection beside its watch.
	survey(ctx context.Context, t source.Target, h source.Handler) (rv string, err error)
}

// parcel is what reaches the lane from a collection's goroutine.
type parcel struct {
	member *member
	signal source.Signal
	bytes  int64             // taken from the budget
	ask    chan<- []vanished // what the list that has just ended lacks
	recall *recalled         // what became of one of those
	survey *survey           // the signal belongs to it; ListEnded, or ended, is its end
	ended  error             // the collection, or its survey, ended by itself
}

// shut is a collection that was closed.
type shut struct {
	batch uint64 // that says so
	lives uint64 // it has had
}

// call is what somebody else wants done in the lane's goroutine.
type call struct {
	do   func(ctx context.Context) error
	done chan<- error
}

// NewLane returns a lane that is not yet running.
func NewLane(o LaneOptions) *Lane {
	l := &Lane{
		id: o.Identity, sink: o.Sink, store: o.Store, shape: o.Shape,
		linger: o.Linger, onDelivery: o.Delivered, reporter: newReporter(o.Identity.Sink, o.Log, o.Metrics, o.Outage),
		calls:   make(chan call),
		in:      make(chan parcel, 64),
		pings:   make(chan struct{}),
		poke:    make(chan struct{}, 1),
		budget:  semaphore.NewWeighted(frameBudget),
		members: map[string]*member{},
		closing: map[string]*member{},
		shut:    map[string]shut{},
		moved:   map[*member]event.Position{},
		written: make(chan result, 1),
	}
	l.cluster = &apiReader{lane: l, client: o.Client, lists: o.Lists}
	return l
}

// Status returns the lane's present state.
func (l *Lane) Status() LaneStatus {
	lossy, _ := l.sink.(sink.Lossy)
	return l.present(lossy)
}

// do runs f in the lane's goroutine, between two signals. An error of f ends the
// lane. When ctx ends first, f may still run: what it writes must not be read then.
func (l *Lane) do(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	select {
	case l.calls <- call{f, done}:
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

// Run opens the sink and delivers until stop ends; then it finishes what is
// enqueued, for as long as ctx lets it. It returns nil when everything enqueued
// is committed. It neither opens nor closes the store; it closes the sink.
func (l *Lane) Run(ctx, stop context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	collections, stopCollections := context.WithCancel(ctx)
	l.collect = collections
	defer func() {
		cancel()
		stopCollections()
		l.running.Wait()
		if l.writing {
			<-l.written
		}
		err = errors.Join(err, l.sink.Close())
	}()

	l.current = l.fresh(1)
	if err := l.answering(func() error { return l.openSink(stop) }); err != nil {
		if stop.Err() != nil {
			return nil
		}
		return err
	}
	l.reads = patient{l.store, ctx, l.pings, l.reminder(), l.id.Sink}
	if l.inv, err = newInventory(l.reads); err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	if err := l.answering(func() error { return l.recall(ctx) }); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	stopping := stop.Done()
	for {
		l.dispatch(ctx)
		l.status.filling.is(l.current)
		in := l.in
		if l.current.full() {
			in = nil
		}
		if stopping == nil {
			in = nil
			if !l.writing && l.idle() {
				l.log.Info("everything enqueued is committed")
				return nil
			}
		}
		select {
		case p := <-in:
			err = l.takeAll(ctx, p)
		case c := <-l.calls:
			if err = c.do(ctx); errors.Is(err, errBatchFailed) {
				c.done <- nil // the lane ends, or begins anew, and what it is to watch is looked at again
			} else {
				c.done <- err
			}
		case r := <-l.written:
			err = l.finish(ctx, r)
		case <-tick.C:
			l.release()
			if stopping != nil {
				err = l.tick(ctx)
			}
		case <-l.due():
		case l.pings <- struct{}{}:
		case <-stopping:
			stopping, l.stopping = nil, true
			stopCollections()
			l.running.Wait()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if errors.Is(err, errBatchFailed) {
			err = l.finish(ctx, <-l.written)
		}
		if err == nil && len(l.suspended) > 0 {
			err = l.suspendAll(ctx)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return l.cutShort()
		case err != nil:
			return err
		}
	}
}

// answering runs f, which waits for the bus, and answers pings meanwhile.
func (l *Lane) answering(f func() error) error {
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

// Alive reports whether the lane's loop answers before ctx ends. It does while
// it waits for the bus, too.
func (l *Lane) Alive(ctx context.Context) bool {
	select {
	case <-l.pings:
		return true
	case <-ctx.Done():
		return false
	}
}

// answerPing answers Alive if it waits.
func (l *Lane) answerPing() {
	select {
	case l.pings <- struct{}{}:
	default:
	}
}

// takeAll handles a parcel and those that wait behind it, while the batch has room.
func (l *Lane) takeAll(ctx context.Context, p parcel) error {
	for range cap(l.in) {
		if err := l.take(ctx, p); err != nil || l.current.full() || len(l.suspended) > 0 {
			return err
		}
		select {
		case p = <-l.in:
		default:
			return nil
		}
	}
	return l.take(ctx, p)
}

// take handles one parcel and accounts for its bytes.
func (l *Lane) take(ctx context.Context, p parcel) error {
	before := l.emitted
	err := l.handle(ctx, p)
	if o := p.signal.Object; o != nil {
		o.Release() // the batch has copied what it needs
	}
	if l.emitted != before {
		l.current.held += p.bytes // until it is delivered
	} else {
		l.budget.Release(p.bytes)
	}
	return err
}

func (l *Lane) handle(ctx context.Context, p parcel) error {
	switch {
	case p.survey != nil:
		return l.surveyed(ctx, p)
	case p.ask != nil:
		list, err := l.absent(p.member)
		p.ask <- list
		return err
	case p.recall != nil:
		return l.recalled(ctx, p.member, p.recall)
	case p.ended != nil:
		return l.ended(ctx, p.member, p.ended)
	default:
		return l.observe(ctx, p.member, p.signal)
	}
}

// pass hands a parcel to the lane's goroutine. It blocks while the lane has
// enough to do.
func (l *Lane) pass(ctx context.Context, p parcel) error {
	if o := p.signal.Object; o != nil {
		p.bytes = min(int64(len(o.Raw)), frameBudget/4)
	}
	if err := l.budget.Acquire(ctx, p.bytes); err != nil {
		return err
	}
	select {
	case l.in <- p:
		return nil
	case <-ctx.Done():
		l.budget.Release(p.bytes)
		return ctx.Err()
	}
}
