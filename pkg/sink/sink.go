// Package sink is the contract between a lane and a bus.
package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Sink writes batches to a bus. A lane calls its methods one at a time, from one
// goroutine at any moment: Open until it succeeds, then Write, then Close.
type Sink interface {
	// Open connects, creates what it may create, checks that what it finds
	// belongs to this lane, and shuts out a predecessor where the bus can do that.
	// It may be called again after an error. mark is what the last committed
	// Write returned, nil when nothing is recorded.
	Open(ctx context.Context, mark []byte) error

	// Write blocks until every record of the batch is durable on the bus, in
	// order per key, or until an error or the end of ctx. It never reorders and
	// never skips. After an error nothing of it is in flight any more, and it
	// may be called again with the same batch (same Seq, same records, except
	// those the lane replaced or took out after a *RecordError, see [Place]): it
	// then continues after what is already durable. Once it has returned nil, nothing
	// of the sink holds the batch's memory (its strings aside): the lane uses it again.
	//
	// The mark says where the batch ends on the bus; the lane stores it in the
	// same commit. nil where the bus has no such thing.
	Write(ctx context.Context, b *event.Batch) (mark []byte, err error)

	// Close releases everything. Nothing of the sink runs after it returns.
	// Records that Write has not acknowledged may or may not be on the bus.
	Close() error
}

// Log is offered by a Sink that can read back what it wrote: the checkpoint may
// then trail the bus, and the lane needs no intents. When its Write returns a
// [RecordError] or a [RouteError], the records before Index are on the bus.
type Log interface {
	// Tail calls fn for every record after from (nil: all of them) in order,
	// with the State it was written with and the mark that ends with it. It is
	// called once, after Open. An error that wraps ErrReset says that the bus no
	// longer holds what follows from.
	Tail(ctx context.Context, from []byte, fn func(state []event.KV, mark []byte) error) error

	// Mark is where the bus ends, as far as this sink has written, from Open on. A
	// reset begins there: what stands before it is nothing to Tail any more.
	Mark() []byte
}

// Transactional is offered by a Sink that makes a batch's Commit durable in one
// transaction with its records: all of both, or nothing. The store is then told
// of what is durable already, and the lane needs no intents.
type Transactional interface {
	// Transactional does nothing. Write also takes batches without records, whose
	// Seq is 0: a change of the checkpoint alone.
	Transactional()
}

// Lossy is offered by a Sink that returns nil from Write also for records that its bus
// does not have: at most once.
type Lossy interface {
	// Lost is how many records could not be written, or may not have been, since the
	// sink was made. It never falls, and may be called from any goroutine.
	Lost() uint64
}

// ErrFenced is returned when another writer has taken over. It is final: the
// sink will not write again.
var ErrFenced = errors.New("another writer has taken over")

// ErrReset is returned when the bus lost what it had acknowledged, or when a
// recorded mark is not to be found on it. The lane answers with a declared reset.
var ErrReset = errors.New("the bus no longer holds what it acknowledged")

// RecordError is returned when one record, and no other, cannot be stored as it
// is. Neither it nor anything behind it of its key has been written. The lane
// replaces that record, may replace others of its key behind it or take them out,
// and calls Write again.
type RecordError struct {
	Index int // in Batch.Records
	Size  int // bytes; 0 when size is not the matter
	Limit int // bytes the bus takes; 0 when size is not the matter
	Err   error
}

func (e *RecordError) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("record %d: %d bytes are more than the %d the bus takes: %v", e.Index, e.Size, e.Limit, e.Err)
	}
	return fmt.Sprintf("record %d: %v", e.Index, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// RouteError is returned by Write when one route, and no other, refuses: it may not
// be written to, or is not there. Everything before Index is durable, or is written
// by the next call of Write (all of a [Transactional]'s is). Nothing from Index on is known to be, also of other routes: a later record may carry a position
// beyond the refused one. The lane takes records out at Index and behind it, those of
// every collection that uses the route, and calls Write again; or it calls Write
// again with the same batch, if the route may have healed.
type RouteError struct {
	Index int    // in Batch.Records: the first record that was refused
	Route string // its topic or subject
	Err   error  // names it
}

func (e *RouteError) Error() string { return e.Err.Error() }

func (e *RouteError) Unwrap() error { return e.Err }

// RefusedError is returned by Open for what no retry heals: wrong credentials, a
// certificate that is not accepted, a
// stream that belongs to another bridge. Write returns it only where going on would
// break the order that consumers rely on. The program
// exits with code 3. Every other error is retried for ever.
type RefusedError struct {
	What string // the thing, for example `stream "K8S_prod"`
	Err  error
	Hint string // what to do
}

func (e *RefusedError) Error() string {
	s := e.What + ": " + e.Err.Error()
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

func (e *RefusedError) Unwrap() error { return e.Err }
