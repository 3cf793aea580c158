// Package delivery makes batches durable: their records on the bus, and their changes in the
// checkpoint store.
//
// How the two become durable together depends on the sink:
//
//	mode         order of writes                                      after a crash
//	Transaction  records and changes in one transaction of the bus    both, or neither
//	Log          Before; then records with their own changes; then    Open applies what the bus has beyond the store
//	             all changes
//	Intents      Before; then records; then changes                   what Before says is in doubt
package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Mode says how records and checkpoint become durable together.
type Mode uint8

// The modes.
const (
	Transaction Mode = iota
	Log
	Intents
)

func (m Mode) String() string { return [...]string{"transaction", "log", "intents"}[m] }

// Needs says what a mode needs of batches, and what it leaves of a batch that the bus refused.
type Needs struct {
	Intents   bool // Batch.Before says which objects are about to be published, Batch.Changes that it is settled
	State     bool // Record.State has the record's own changes, Batch.Silent those that no record has
	Kept      bool // the bus may have lost the checkpoint with the records: a reset commits durable.Kept, too
	Preceding Preceding
}

// Preceding says where the records are that precede one that the bus refused.
type Preceding uint8

// Where they are.
const (
	NotWritten   Preceding = iota // not on the bus
	WithChanges                   // on the bus, with their own changes: see [Delivery.Settle]
	MaybeWritten                  // on the bus, or written by the next Deliver, which must have all of them
)

// Needs returns what a mode needs.
func (m Mode) Needs() Needs {
	return [...]Needs{
		Transaction: {Kept: true, Preceding: NotWritten},
		Log:         {State: true, Preceding: WithChanges},
		Intents:     {Intents: true, Preceding: MaybeWritten},
	}[m]
}

// The operations that [Options.Retry] is given for each batch.
const (
	WriteToBus       = "write to the bus"
	CommitCheckpoint = "commit the checkpoint"
)

// CheckBus is the operation that [Options.Once] is given.
const CheckBus = "check the bus"

// foldChanges is how many records of the bus are applied to the store in one commit.
const foldChanges = 2000

// Batch is what is made durable together.
type Batch struct {
	// Seq identifies a batch. If two calls have the same Seq, the second one delivers the same batch
	// again; records may have been taken out of it.
	Seq uint64
	// Records are in order per key. Record.State are the changes that a reader of the bus
	// applies in the mode Log.
	Records []event.Record
	// Before must be in the store before the bus gets the records. The mode Transaction ignores it.
	Before []event.KV
	// Changes are committed with the records.
	Changes []event.KV
	// Silent are the changes in Changes that no record's State has. In the mode Log a store may
	// write the other changes later, since the bus has them.
	Silent []event.KV
}

// Options are what a [Delivery] is made of. All are required but Retry and Once.
type Options struct {
	Sink  sink.Sink
	Store checkpoint.Store
	// Retry repeats do until it succeeds, ctx ends, or it fails for good; operation is for logs.
	// nil: do is called once.
	Retry func(ctx context.Context, operation string, do func() error) error
	// Once calls do once. It returns errors that are for good, and reports the others. nil: all errors are returned.
	Once func(ctx context.Context, operation string, do func() error) error
}

// Delivery writes to one sink and its store. One goroutine uses it; it neither opens nor closes
// the store.
type Delivery struct {
	sink  sink.Sink
	store checkpoint.Store
	retry func(ctx context.Context, operation string, do func() error) error
	once  func(ctx context.Context, operation string, do func() error) error
	mode  Mode
	// Each is nil if the sink or the store does not offer it. transactions is of the mode Transaction, log of the mode Log.
	transactions sink.Transactional
	log          sink.Log
	lossy        sink.Lossy
	exposed      sink.Exposed
	loader       checkpoint.Loader
	checkers     []sink.Checker // the sink, the store, or both
}

// New returns a delivery that is not open yet.
func New(o Options) *Delivery {
	d := &Delivery{sink: o.Sink, store: o.Store, retry: o.Retry, once: o.Once, mode: Intents}
	call := func(_ context.Context, _ string, do func() error) error { return do() }
	if d.retry == nil {
		d.retry = call
	}
	if d.once == nil {
		d.once = call
	}
	for _, part := range []any{o.Sink, o.Store} {
		if c, ok := part.(sink.Checker); ok {
			d.checkers = append(d.checkers, c)
		}
	}
	d.transactions, _ = o.Sink.(sink.Transactional)
	d.log, _ = o.Sink.(sink.Log)
	d.lossy, _ = o.Sink.(sink.Lossy)
	d.exposed, _ = o.Sink.(sink.Exposed)
	d.loader, _ = o.Store.(checkpoint.Loader)
	switch {
	case d.transactions != nil:
		d.mode = Transaction
	case d.log != nil:
		d.mode = Log
	}
	return d
}

// Needs returns what the delivery's mode needs.
func (d *Delivery) Needs() Needs { return d.mode.Needs() }

// Lost returns how many records the bus does not have, or may not have, although they counted as
// delivered; nil unless the sink delivers at most once. It may be called from any goroutine.
func (d *Delivery) Lost() *uint64 {
	if d.lossy == nil {
		return nil
	}
	n := d.lossy.Lost()
	return &n
}

// Foreign returns how many messages were found that the bridge did not write; nil unless the sink looks for them. It may be
// called from any goroutine.
func (d *Delivery) Foreign() *uint64 {
	if d.exposed == nil {
		return nil
	}
	n := d.exposed.Foreign()
	return &n
}

// Open connects, fences a predecessor where the bus can do that, and applies to the store what the
// bus holds beyond it. reset says that the store's content will be given up: then Open does not look for the
// end of the last batch on the bus, but in the mode Log, where it applies what the bus still has: collections of which
// the store knows nothing yet must end, too. It may be called again after an error. An error that
// wraps [sink.ErrReset] says that the bus has lost what it acknowledged, or that the store has lost everything: what the bus still has
// does not replace it, since the numbers of the plan are not in records. The delivery is open
// then, and [Delivery.Reset] has to follow. One that wraps [checkpoint.ErrMoved] is final: the store is not in force.
func (d *Delivery) Open(ctx context.Context, reset bool) error {
	mark, err := d.openStore(ctx, reset)
	if err != nil || d.mode != Log || reset && mark == nil {
		return err
	}
	records, err := d.fold(ctx, mark)
	switch {
	case reset && errors.Is(err, sink.ErrReset):
		return nil
	case err != nil:
		return err
	case mark == nil && records > 0: // every start commits a mark before it publishes
		return fmt.Errorf("%w, or the checkpoint is lost: the bus has %d records of this sink, and the checkpoint is empty", sink.ErrReset, records)
	}
	// Which log this is must be known before it has anything, or a log that takes its place would not be noticed. And the log may forget what the
	// sink wrote when it opened: that is no loss.
	return d.commitToStore(ctx, []event.KV{{Key: checkpoint.MarkKey(), Value: d.log.Mark()}})
}

// openStore opens the sink and reads the store. It returns the mark.
func (d *Delivery) openStore(ctx context.Context, reset bool) (mark []byte, err error) {
	if mark, err = d.mark(reset); err != nil {
		return nil, err
	}
	if d.loader == nil {
		if err := checkpoint.CheckMove(d.store); err != nil {
			return nil, err
		}
	}
	if err := d.open(ctx, mark); err != nil || d.loader == nil {
		return mark, err
	}
	if err := d.retry(ctx, "read the checkpoint", func() error { return d.loader.Load(ctx) }); err != nil {
		return nil, err
	}
	if err := checkpoint.CheckMove(d.store); err != nil {
		return nil, err
	}
	before := mark
	if mark, err = d.mark(reset); err != nil {
		return nil, err
	}
	if d.mode != Log && !bytes.Equal(mark, before) { // a log's Tail is given the mark
		if err := d.open(ctx, mark); err != nil {
			return nil, err
		}
	}
	changes := []event.KV{{Key: checkpoint.RunningKey(), Value: time.Now().UTC().AppendFormat(nil, time.RFC3339)}}
	if d.mode == Transaction && mark != nil { // of another mode, which would find it outdated later
		changes = append(changes, event.KV{Key: checkpoint.MarkKey()})
	}
	return mark, d.Commit(ctx, 0, changes)
}

func (d *Delivery) open(ctx context.Context, mark []byte) error {
	return d.retry(ctx, "open the bus", func() error { return d.sink.Open(ctx, mark) })
}

// mark returns where the last batch ends on the bus. The mode Log needs it also for a reset. Some stores have the request for a reset only
// once they are loaded.
func (d *Delivery) mark(reset bool) ([]byte, error) {
	asked, err := d.store.Get(checkpoint.ResetKey())
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	if d.mode != Log && (reset || bytes.Equal(asked, checkpoint.ResetRequested())) {
		return nil, nil
	}
	mark, err := d.store.Get(checkpoint.MarkKey())
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	return mark, nil
}

// fold applies what the bus holds beyond the store, and returns the number of its records. If the store has lost its mark, the reset that follows
// must survive a crash, so it is requested with the first changes.
func (d *Delivery) fold(ctx context.Context, from []byte) (records int, err error) {
	err = d.retry(ctx, "read the bus back", func() error {
		var (
			changes []event.KV
			last    []byte
		)
		records = 0
		if from == nil {
			changes = []event.KV{{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()}}
		}
		flush := func() error {
			if last == nil {
				return nil
			}
			err := d.commitToStore(ctx, append(changes, event.KV{Key: checkpoint.MarkKey(), Value: last}))
			changes, last = nil, nil
			return err
		}
		err := d.log.Tail(ctx, from, func(state []event.KV, mark []byte) error {
			changes, last = append(changes, state...), mark
			if records++; records%foldChanges == 0 {
				return flush()
			}
			return nil
		})
		if err != nil {
			return err
		}
		return flush()
	})
	return records, err
}

// Deliver blocks until a batch is durable. It returns one of these errors, or another one if
// retrying does not help:
//
//   - [sink.RouteError]: a route refuses records. [Needs.Preceding] says where the records before Index are. The caller
//     delivers the batch without the records of that route: in the mode Log also without those before Index, as another
//     batch, otherwise with the same Seq.
//   - [sink.RecordError]: the bus cannot store one record. The rest is as for a [sink.RouteError].
//   - one that wraps [sink.ErrReset]: the bus has lost what it acknowledged. [Delivery.Reset] follows.
//   - one that wraps [sink.ErrFenced] or [checkpoint.ErrFenced]: another writer has taken over.
func (d *Delivery) Deliver(ctx context.Context, b *Batch) error {
	if len(b.Records) == 0 {
		return d.Commit(ctx, b.Seq, b.Changes)
	}
	if d.mode != Transaction && len(b.Before) > 0 {
		if err := d.commitToStore(ctx, b.Before); err != nil {
			return err
		}
	}
	mark, err := d.write(ctx, &event.Batch{Seq: b.Seq, Records: b.Records, Commit: event.Commit{Changes: b.Changes}})
	if err != nil {
		return err
	}
	changes := b.Changes
	if mark != nil {
		changes = append(changes[:len(changes):len(changes)], event.KV{Key: checkpoint.MarkKey(), Value: mark})
	}
	if err := d.commitToStore(ctx, changes); err != nil {
		return err
	}
	if d.mode == Log && d.loader != nil {
		// The bus does not have these changes: a commit without a mark makes them durable.
		return d.commitToStore(ctx, b.Silent)
	}
	return nil
}

// Checks reports whether [Delivery.Check] does anything.
func (d *Delivery) Checks() bool { return len(d.checkers) > 0 }

// Check finds out whether the bus works while nothing is delivered. Its error is one for good, as of [Delivery.Deliver], or that of ctx.
func (d *Delivery) Check(ctx context.Context) error {
	return d.once(ctx, CheckBus, func() error {
		for _, c := range d.checkers {
			if err := c.Check(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle is for the mode Log, after Deliver has returned an error: it commits the changes of those
// records of the batch that the bus has. In the other modes it does nothing.
func (d *Delivery) Settle(ctx context.Context, records []event.Record) error {
	if d.mode != Log || len(records) == 0 {
		return nil
	}
	var changes []event.KV
	for i := range records {
		changes = append(changes, records[i].State...)
	}
	return d.commitToStore(ctx, append(changes, event.KV{Key: checkpoint.MarkKey(), Value: d.log.Mark()}))
}

// Commit makes changes durable that come without records. seq is as Batch.Seq; 0: there is no batch.
func (d *Delivery) Commit(ctx context.Context, seq uint64, changes []event.KV) error {
	if d.mode == Transaction {
		err := d.retry(ctx, WriteToBus, func() error { return d.transactions.Commit(ctx, seq, changes) })
		if err != nil {
			return err
		}
	}
	return d.commitToStore(ctx, changes)
}

// Reset commits changes, by which the store gives up what consumers have been sent. In the mode Log
// the same commit stores where the bus ends now; in the others it removes the mark. The next start
// does not look for earlier records on the bus.
func (d *Delivery) Reset(ctx context.Context, changes []event.KV) error {
	mark := event.KV{Key: checkpoint.MarkKey()}
	if d.mode == Log {
		mark.Value = d.log.Mark()
	}
	if err := d.Commit(ctx, 0, append(changes[:len(changes):len(changes)], mark)); err != nil {
		return err
	}
	if d.mode != Log {
		return nil
	}
	return d.commitToStore(ctx, changes) // a commit without a mark is durable when it returns
}

// Finish is called when everything is committed and nothing follows. A store that may make commits durable later
// does so now, as far as it can within finishTimeout: it may be on a server that ends with the sink. What
// it cannot do now, the next start takes from the sink, but for kept bodies. A store on the bus learns that no bridge runs on it.
func (d *Delivery) Finish(ctx context.Context) {
	if d.loader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	ended := []event.KV{{Key: checkpoint.RunningKey()}}
	if d.mode == Transaction && d.transactions.Commit(ctx, 0, ended) != nil {
		return
	}
	_ = d.store.Commit(ctx, ended) // durable with all before it, since it sets no mark
}

// finishTimeout bounds [Delivery.Finish].
const finishTimeout = 5 * time.Second

// Close ends the connections of the sink.
func (d *Delivery) Close() error { return d.sink.Close() }

// write writes to the bus. Errors about a route or a record are the caller's, and no outage.
func (d *Delivery) write(ctx context.Context, b *event.Batch) (mark []byte, err error) {
	var refused error
	err = d.retry(ctx, WriteToBus, func() (err error) {
		var (
			route  *sink.RouteError
			record *sink.RecordError
		)
		mark, err = d.sink.Write(ctx, b)
		if errors.As(err, &route) || errors.As(err, &record) {
			refused, err = err, nil
		}
		return err
	})
	if err == nil {
		err = refused
	}
	return mark, err
}

func (d *Delivery) commitToStore(ctx context.Context, changes []event.KV) error {
	if len(changes) == 0 {
		return nil
	}
	return d.retry(ctx, CommitCheckpoint, func() error { return d.store.Commit(ctx, changes) })
}
