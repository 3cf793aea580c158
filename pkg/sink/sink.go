// Package sink is the contract between internal/core/delivery and a bus.
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
// All errors except those of this package are temporary: the caller waits and calls again.
type Sink interface {
	// Open connects, creates missing topics or streams if it may, checks that it may write to existing ones, and fences a
	// predecessor if the bus supports that. It may be called again, also after a success, and then begins
	// like the first call. mark is the last mark that Write returned and that is in the store; nil: there is none.
	//
	// Errors: [RefusedError], and those of pkg/checkpoint if the sink opens its store.
	Open(ctx context.Context, mark []byte) error

	// Write blocks until every record of the batch is durable on the bus, or until an error or the end of ctx. What
	// durable means is in the sink's package comment. A batch without records is no error. Once Write has returned nil, the sink does not
	// use the batch's memory, except its strings.
	//
	// Records of one route and key are in order on the bus, across batches and errors. A sink that delivers at least once may
	// repeat a record, even after newer records, because the bus may still process a request that was given up without an answer.
	//
	// After an error Write may be called with:
	//   - the same batch: the same Seq and records, except records that are taken out after a [RecordError] or a
	//     [RouteError]. Then Write continues behind what it knows to be durable. See [Place].
	//   - another batch, with another Seq: the previous batch is given up. Its records that are on the bus stay there.
	//
	// mark is the end of the batch on the bus, and is stored with the batch's changes; nil: the mark has not changed.
	//
	// Errors: [RecordError], [RouteError], [RefusedError], [ErrReset], [ErrFenced].
	Write(ctx context.Context, b *event.Batch) (mark []byte, err error)

	// Close releases all resources. No goroutine of the sink runs after it returns.
	// Records that Write has not acknowledged may or may not be on the bus.
	Close() error
}

// Log is implemented by a Sink that can read back its records. The store may then be behind the bus.
//
// After a [RecordError] or a [RouteError] of a Log's Write, all records before Index are durable, and no record from Index on.
type Log interface {
	// Tail calls fn for every record after from (nil: all of them) in order,
	// with the State it was written with and the mark that ends with it. It is
	// called after Open and before Write, and again after an error. An error of fn ends it and is returned.
	//
	// Errors: [ErrReset] if the bus no longer has the records after from, or a State is not known. [ErrFenced] if another writer has
	// taken over since Open: from may then be later than the records that this sink has seen, and the bus has lost no record.
	Tail(ctx context.Context, from []byte, fn func(state []event.KV, mark []byte) error) error

	// Mark returns the end of this sink's records on the bus. It may be called after Open. After an error of
	// Write, the end is the last record that is known to be durable.
	Mark() []byte
}

// Transactional is implemented by a Sink whose Write makes [event.Batch.Commit] durable in one transaction with the records: all
// or none of them. After a [RecordError] or a [RouteError] no part of the batch is durable. A Sink that is not
// Transactional ignores Commit.
type Transactional interface {
	// Commit makes changes durable that come without records. seq and errors are as in Write; 0: the call is not a repetition.
	Commit(ctx context.Context, seq uint64, changes []event.KV) error
}

// Lossy is implemented by a Sink with delivery at-most-once: its Write returns nil even if the bus
// does not have a record.
type Lossy interface {
	// Lost returns the number of records that were not written, or may not have been, since the
	// sink was made. It never decreases, and may be called from any goroutine.
	Lost() uint64
}

// Exposed is implemented by a Sink whose stream should have messages of this bridge only. Other messages are ignored and counted.
type Exposed interface {
	// Foreign returns the number of other messages that were found since the sink was made, on the bus and in the sink's store. It
	// never decreases, and may be called from any goroutine.
	Foreign() uint64
}

// Checker is implemented by a Sink, or by a store on the bus, that can find out whether its bus works while there is nothing to write.
type Checker interface {
	// Check returns nil if the bus works as far as the sink knows. It is called about once a second after Open, while no other method runs, and
	// writes wait for it. So Check itself decides how often it sends a request, and waits at most 15 s for an answer.
	//
	// While Check returns an error, the sink counts as failing. Check and Write are called as before. Errors: as of Write, except
	// [RecordError] and [RouteError].
	Check(ctx context.Context) error
}

// ErrFenced is returned when another writer has taken over. It is final: the
// sink does not write again.
var ErrFenced = errors.New("another writer has taken over")

// ErrReset is returned when the bus has lost records that it had acknowledged, or does not have a
// recorded mark. The caller begins new incarnations of all collections, and continues with the same
// sink, without another Open.
var ErrReset = errors.New("the bus no longer holds what it acknowledged")

// RecordError is returned when the bus refuses one record independently of other records. Neither this record nor
// later records of its route and key have been written. Records before it are durable, or are written by the next
// Write: see [Log] and [Transactional]. The caller takes out this record and all later records of the same collection.
type RecordError struct {
	Index int // in Batch.Records
	Size  int // bytes; 0 if the size is not the reason
	Limit int // maximum size on the bus in bytes; 0 if the size is not the reason
	Err   error
}

func (e *RecordError) Error() string {
	if e.Limit > 0 {
		return fmt.Sprintf("record %d: %d bytes are more than the %d the bus takes: %v", e.Index, e.Size, e.Limit, e.Err)
	}
	return fmt.Sprintf("record %d: %v", e.Index, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// RouteError is returned by Write when one route refuses records, because the topic or stream is missing
// or the bridge may not write to it. All records before Index are durable, or are written
// by the next Write: see [Log] and [Transactional]. No record from Index on is known to be durable, on any route.
// The caller takes out, from Index on, the records of every
// collection that uses the route, and calls Write again, or it calls Write
// again with the same batch.
type RouteError struct {
	Index int    // in Batch.Records: the first record that was refused
	Route string // its topic or subject
	Err   error  // names it
	// Missing: the bus has no such route, and a write does not create it. What only ends a collection there is not needed.
	Missing bool
}

func (e *RouteError) Error() string { return e.Err.Error() }

func (e *RouteError) Unwrap() error { return e.Err }

// RefusedError is returned by Open for errors that retries do not correct: wrong credentials, a
// certificate that is not accepted, a
// stream that belongs to another bridge. Write returns it only if continuing would
// break the order that consumers rely on. The program exits with code 3.
type RefusedError struct {
	What string // the thing, for example `stream "K8S_prod"`
	Err  error
	Hint string // the remedy
}

func (e *RefusedError) Error() string {
	s := e.What + ": " + e.Err.Error()
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

func (e *RefusedError) Unwrap() error { return e.Err }
