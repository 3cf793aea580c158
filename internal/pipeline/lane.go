package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// frameBudget bounds the bytes of frames that were read and are not yet
	// delivered, over all collections of a lane: two batches, what waits for the
	// second, and room for the largest frame.
	frameBudget = 32 << 20
	// silentDelay is how long a commit waits that moves positions only.
	silentDelay = time.Second
)

const reasonReset = "reset"

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
	// the lane's goroutine. nil: nobody listens.
	Delivered func([]event.Record)
}

// Lane is one sink with its own watches, batches, positions and inventory.
type Lane struct {
	id         event.Identity
	sink       sink.Sink
	store      checkpoint.Store
	shape      Shape
	client     *source.Client
	lists      *semaphore.Weighted
	linger     time.Duration
	log        *zap.Logger
	metrics    *Metrics
	onDelivery func([]event.Record)
	status     laneStatus
	// collect reads a collection until ctx ends; tests have others than the API
	// server's.
	collect func(ctx context.Context, m *member)

	targets chan targets
	in      chan parcel
	pings   chan struct{}
	budget  *semaphore.Weighted

	// All below belongs to Run's goroutine.
	inv      *inventory
	members  map[string]*member
	settled  bool   // every configured resource has become a member
	resetRun string // of a reset that is not over
	resetWhy string // known in the run that began it
	current  *batch
	moved    map[string]event.Position // positions that the current batch commits
	silent   []event.KV                // other changes without a record
	since    time.Time                 // when the current batch got its first content
	emitted  uint64                    // records so far
	writing  bool
	inFlight int // records of the batch being written
	written  chan result
}

// member is a collection of the lane.
type member struct {
	id       string
	resource string // for metrics and inventory keys
	target   source.Target
	position event.Position // tentative: enqueued, not yet committed
	stated   event.Position // the last one that a record carries
	list     *listing       // nil unless a list is under way
	reset    string         // the run of the reset it is in; "": none
	declared bool           // the bus was told of the reset: what comes now only fills up
	stop     context.CancelFunc
	done     chan struct{}
}

func (m *member) entryKey(namespace, name string) []byte {
	return checkpoint.EntryKey(m.resource, namespace, name)
}

func (m *member) prefix() []byte {
	return checkpoint.EntryPrefix(m.resource, m.target.Collection.Namespace)
}

func (m *member) field() zap.Field { return zap.String("collection", m.id) }

// parcel is a signal on its way from a collection to the lane.
type parcel struct {
	member *member
	signal source.Signal
	bytes  int64 // taken from the budget
}

type targets struct {
	list []source.Target
	last bool // nothing that is configured is missing any more
}

// NewLane returns a lane that is not yet running.
func NewLane(o LaneOptions) *Lane {
	l := &Lane{
		id: o.Identity, sink: o.Sink, store: o.Store, shape: o.Shape, client: o.Client, lists: o.Lists,
		linger: o.Linger, onDelivery: o.Delivered, log: o.Log.With(zap.String("sink", o.Identity.Sink)), metrics: o.Metrics,
		targets: make(chan targets),
		in:      make(chan parcel, 64),
		pings:   make(chan struct{}),
		budget:  newBudget(),
		members: map[string]*member{},
		moved:   map[string]event.Position{},
		written: make(chan result, 1),
	}
	l.collect = l.readCluster
	return l
}

func newBudget() *semaphore.Weighted { return semaphore.NewWeighted(frameBudget) }

// Add gives the running lane collections to watch. last says that everything
// that is configured has now been given: what the checkpoint knows beyond that
// is closed.
func (l *Lane) Add(ctx context.Context, list []source.Target, last bool) error {
	select {
	case l.targets <- targets{list, last}:
		return nil
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
	var running sync.WaitGroup
	defer func() {
		cancel()
		stopCollections()
		running.Wait()
		if l.writing {
			<-l.written
		}
		err = errors.Join(err, l.sink.Close())
	}()

	if l.inv, err = newInventory(l.store); err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	l.current = newBatch(1)
	if err := l.answering(func() error { return l.openSink(stop) }); err != nil {
		if stop.Err() != nil {
			return nil
		}
		return err
	}
	if err := l.answering(func() error { return l.recall(ctx) }); err != nil {
		return err
	}
	start := func(m *member) {
		runCtx, cancel := context.WithCancel(collections)
		m.stop, m.done = cancel, make(chan struct{})
		running.Go(func() {
			defer close(m.done)
			l.collect(runCtx, m)
		})
	}
	stopping := stop.Done()
	for {
		l.dispatch(ctx)
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
			err = l.take(ctx, p)
		case t := <-l.targets:
			err = l.join(ctx, t, start)
		case r := <-l.written:
			err = l.finish(ctx, r, start)
		case <-l.due():
		case l.pings <- struct{}{}:
		case <-stopping:
			stopping = nil
			stopCollections()
			running.Wait()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if errors.Is(err, errBatchFailed) {
			err = l.finish(ctx, <-l.written, start)
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

// take handles one parcel and accounts for its bytes.
func (l *Lane) take(ctx context.Context, p parcel) error {
	before := l.emitted
	err := l.observe(ctx, p.member, p.signal)
	if l.emitted != before {
		l.current.held += p.bytes // until it is delivered
	} else {
		l.budget.Release(p.bytes)
	}
	return err
}

// laneHandler hands a collection's signals to its lane.
type laneHandler struct {
	lane   *Lane
	member *member
}

// Handle implements source.Handler.
func (h laneHandler) Handle(ctx context.Context, s source.Signal) error {
	var bytes int64
	if s.Object != nil {
		bytes = min(int64(len(s.Object.Raw)), frameBudget/4)
	}
	if err := h.lane.budget.Acquire(ctx, bytes); err != nil {
		return err
	}
	select {
	case h.lane.in <- parcel{h.member, s, bytes}:
		return nil
	case <-ctx.Done():
		h.lane.budget.Release(bytes)
		return ctx.Err()
	}
}

func (l *Lane) readCluster(ctx context.Context, m *member) {
	c := source.NewCollection(source.Options{
		Client: l.client, Target: m.target, Handler: laneHandler{l, m}, Lists: l.lists,
		OnState: func(s source.State) { l.stateChanged(m, s) },
	})
	_ = c.Run(ctx, m.position) // it ends only with ctx, or with Handle, which ends only with ctx
}

// join makes targets members and starts them.
func (l *Lane) join(ctx context.Context, t targets, start func(*member)) error {
	for _, target := range t.list {
		id := target.Collection.ID()
		if l.members[id] != nil {
			return fmt.Errorf("collection %s is asked for twice", id)
		}
		m := &member{id: id, resource: target.Collection.ResourceID(), target: target}
		stored, err := l.store.Get(checkpoint.PositionKey(id))
		if err != nil {
			return err
		}
		if stored != nil {
			if m.position, err = checkpoint.DecodePosition(stored); err != nil {
				return fmt.Errorf("collection %s: %w", id, err)
			}
			m.stated = m.position
		}
		if l.resetRun != "" && !m.position.Resumable() {
			m.reset, m.declared = l.resetRun, stored != nil
		}
		l.members[id] = m
		l.status.add(m, l.metrics, l.id.Sink)
		l.log.Info("collection joins", m.field(), zap.String("gvr", target.Resource.String()),
			zap.String("kind", target.Resource.Kind), zapPosition(m.position))
		start(m)
	}
	if t.last {
		l.settled = true
		return l.closeStale(ctx)
	}
	return nil
}

// closeStale ends the collections that the checkpoint knows and the
// configuration no longer has (design rule 10): no deletions, one "closed".
func (l *Lane) closeStale(ctx context.Context) error {
	stale := map[string]event.Position{}
	err := l.store.Scan(checkpoint.PositionPrefix(), func(key, value []byte) (err error) {
		if id := checkpoint.PositionOf(key); l.members[id] == nil {
			stale[id], err = checkpoint.DecodePosition(value)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(stale)) {
		c := event.ParseCollection(id)
		reason := "removed"
		if l.covered(&c) {
			reason = "selection" // another collection of this resource goes on
		} else if err := l.forget(checkpoint.EntryPrefix(c.ResourceID(), c.Namespace)); err != nil {
			return err
		}
		if err := l.room(ctx); err != nil {
			return err
		}
		l.log.Info("collection closed", zap.String("collection", id), zapReason(reason))
		l.emit(&member{id: id, resource: c.ResourceID(), target: source.Target{Collection: c}}, &event.Event{
			Type: event.Closed, Origin: event.Reconcile, Time: time.Now(), ResourceVersion: stale[id].RV,
			Report: &event.Report{Reason: reason, From: stale[id].RV},
		}, []event.KV{{Key: checkpoint.PositionKey(id)}})
	}
	return nil
}

// covered reports whether a member keeps the inventory of c's objects.
func (l *Lane) covered(c *event.Collection) bool {
	for _, m := range l.members {
		mc := &m.target.Collection
		if mc.ResourceID() == c.ResourceID() && (mc.Namespace == "" || c.Namespace == "" || mc.Namespace == c.Namespace) {
			return true
		}
	}
	return false
}

// forget enqueues the removal of inventory nobody watches.
func (l *Lane) forget(prefix []byte) error {
	return l.store.Scan(prefix, func(key, _ []byte) error {
		l.silent = append(l.silent, event.KV{Key: append([]byte(nil), key...)})
		return nil
	})
}
