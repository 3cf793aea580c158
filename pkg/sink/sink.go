// Package sink is the contract between internal/delivery and a bus.
package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Sink writes batches to a bus. Its methods are called one at a time: Open until it succeeds, then Write, then
// Close. Close may also be called without Open, or after Open has failed.
//
// Errors that are none of this package's are temporary: the caller waits, and calls again.
type Sink interface {
	// Open connects, creates what it may create, checks that what it finds may be written to, and fences a
	// predecessor where the bus can do that. It may be called again, also after a success: then it begins
	// as the first call did. mark is the last one that Write returned and the store holds; nil: there is none.
	//
	// Errors: [RefusedError], and those of pkg/checkpoint if the sink opens its store.
	Open(ctx context.Context, mark []byte) error

	// Write blocks until every record of the batch is durable on the bus, or until an error or the end of ctx. What
	// durable means is in the sink's package comment. A batch without records is no error. Once Write has returned nil, the sink does not
	// use the batch's memory, except its strings.
	//
	// Records of one route and key are in order on the bus, across batches and errors. A sink that delivers at least once may
	// repeat a record, also behind newer ones: a request that was given up without an answer may still be served.
	//
	// After an error Write may be called with:
	//   - the same batch: the same Seq and records, except records that are taken out after a [RecordError] or a
	//     [RouteError]. Then Write continues behind what it knows to be durable. See [Place].
	//   - another batch, with another Seq: the former one is given up. What of it is on the bus stays there.
	//
	// mark says where the batch ends on the bus, and is stored with the batch's changes; nil: as before.
	//
	// Errors: [RecordError], [RouteError], [RefusedError], [ErrReset], [ErrFenced].
	Write(ctx context.Context, b *event.Batch) (mark []byte, err error)

	// Close releases everything. Nothing of the sink runs after it returns.
	// Records that Write has not acknowledged may or may not be on the bus.
	Close() error
}

// Log is offered by a Sink that can read back what it wrote. The store may then be behind the bus.
//
// After a [RecordError] or a [RouteError] of a Log's Write, all records before Index are durable, and none from Index on.
type Log interface {
	// Tail calls fn for every record after from (nil: all of them) in order,
	// with the State it was written with and the mark that ends with it. It is
	// called after Open and before Write, and again after an error. An error of fn ends it and is returned.
	//
	// Errors: [ErrReset] if the bus no longer has what follows from, or a State is not known. [ErrFenced] if another writer has
	// followed since Open: from may then be beyond what this one has seen, and the bus has lost nothing.
	Tail(ctx context.Context, from []byte, fn func(state []event.KV, mark []byte) error) error

	// Mark returns where the bus ends, as far as this sink has written, from Open on. After an error of
	// Write, that is the last record that is known to be durable.
	Mark() []byte
}

// Transactional is offered by a Sink whose Write makes [event.Batch.Commit] durable in one transaction with the records: all
// of both, or nothing. After a [RecordError] or a [RouteError] nothing of the batch is durable. A Sink that is not
// Transactional ignores Commit.
type Transactional interface {
	// Commit makes changes durable that come without records. seq and errors are as in Write; 0: it is no repetition.
	Commit(ctx context.Context, seq uint64, changes []event.KV) error
}

// Lossy is offered by a Sink that returns nil from Write also for records that its bus
// does not have: at most once.
type Lossy interface {
	// Lost is how many records could not be written, or may not have been, since the
	// sink was made. It never falls, and may be called from any goroutine.
	Lost() uint64
}

// Exposed is offered by a Sink whose bus is to have messages of this bridge only. Others are ignored and counted.
type Exposed interface {
	// Foreign is how many such messages were found since the sink was made, on the bus and in the store beside the sink. It
	// never falls, and may be called from any goroutine.
	Foreign() uint64
}

// ErrFenced is returned when another writer has taken over. It is final: the
// sink does not write again.
var ErrFenced = errors.New("another writer has taken over")

// ErrReset is returned when the bus has lost what it had acknowledged, or when a
// recorded mark is not to be found on it. The caller begins new incarnations of all collections, and goes on with the same
// sink, without another Open.
var ErrReset = errors.New("the bus no longer holds what it acknowledged")

// RecordError is returned when one record cannot be stored as it is, whatever becomes of the others. Neither it nor
// anything behind it of its route and key has been written. Records before it are durable, or are written by the next
// Write: see [Log] and [Transactional]. The caller takes that record out, and all behind it of the same collection.
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

// RouteError is returned by Write when one route refuses: it may not
// be written to, or is not there. Everything before Index is durable, or is written
// by the next Write: see [Log] and [Transactional]. Nothing from Index on is known to be durable, on any route.
// The caller takes out records at Index and behind it, those of
// every collection that uses the route, and calls Write again; or it calls Write
// again with the same batch.
type RouteError struct {
	Index int    // in Batch.Records: the first record that was refused
	Route string // its topic or subject
	Err   error  // names it
}

func (e *RouteError) Error() string { return e.Err.Error() }

func (e *RouteError) Unwrap() error { return e.Err }

// RefusedError is returned by Open for what waiting does not heal: wrong credentials, a
// certificate that is not accepted, a
// stream that belongs to another bridge. Write returns it only where going on would
// break the order that consumers rely on. The program exits with code 3.
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
