// Package checkpoint is the contract between internal/core/delivery and a checkpoint store. It has the keys that all stores keep in the same
// way: the identity, the format, and the bus's mark. internal/core/durable defines the other keys.
package checkpoint

import (
	"context"
	"errors"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Store keeps the checkpoint of one sink: a small map that is ordered by key. Get and Scan may be called from several
// goroutines, also during a Commit. Commit is called by one goroutine at a time. The caller that opens a store closes it.
type Store interface {
	// Get returns the value of key, nil when there is none. The value belongs to the
	// caller.
	Get(key []byte) ([]byte, error)

	// Scan calls fn for every key with the prefix, in byte order, on a consistent
	// snapshot: it sees all changes of a Commit or none. fn may call Get and Commit. The slices are valid only during the
	// call. Scan stops at an error of fn and returns it.
	Scan(prefix []byte, fn func(key, value []byte) error) error

	// Commit applies all changes, or none; the last change of a key counts. When it has returned nil, Get and Scan see
	// them, and they are durable: every later opening of the store finds them. There are two exceptions:
	//   - A [Loader] may make a commit that sets [MarkKey] durable later. A crash then loses the last such commits, each as a
	//     whole. A commit that does not set MarkKey is durable with all before it when it returns.
	//   - Beside a sink that writes the checkpoint in its own transactions, a store applies only what the sink has made
	//     durable.
	//
	// After an error it is not known whether the changes are applied or durable; the same changes may be committed
	// again. The store keeps neither keys nor values: it copies them. If ctx has ended before the call, nothing is changed and
	// the error wraps ctx's.
	//
	// Errors: [ErrFenced], [ErrCorrupt]. Any other one is temporary.
	Commit(ctx context.Context, changes []event.KV) error
}

// Loader is implemented by a store that is on the bus.
type Loader interface {
	// Load reads the store's content. It is called after the sink's Open has succeeded, and again after an
	// error. Until it has succeeded, Get returns nil for keys that are not read yet, and Commit is not called.
	//
	// Errors: those of this package, which are final. Any other one is temporary.
	Load(ctx context.Context) error
}

// ErrForeign is returned by opening or Load for a checkpoint that belongs to another cluster, bridge or
// sink.
var ErrForeign = errors.New("checkpoint belongs to another cluster, bridge or sink")

// ErrLocked is returned by opening a checkpoint that another process holds.
var ErrLocked = errors.New("checkpoint is in use by another process")

// ErrFenced is returned by Commit and Load when another process has taken the checkpoint over.
// It is final: the store does not write again.
var ErrFenced = errors.New("another process has taken the checkpoint over")

// ErrUnusable is returned by Load for a checkpoint in a topic or bucket whose settings
// would delete its content. Commit does not return it: settings that become unusable
// later are a temporary error.
var ErrUnusable = errors.New("checkpoint cannot be kept there")

// ErrCorrupt is returned when the stored data cannot have been written in the format of the checkpoint, or when a part of it is
// missing.
var ErrCorrupt = errors.New("checkpoint is damaged")

// ErrNewer is returned by opening or Load for a checkpoint in the format of a newer version: see [Version].
var ErrNewer = errors.New("checkpoint was written by a newer version")

// ErrOlder is returned by opening or Load for a checkpoint in the format of an older version: see [Version].
var ErrOlder = errors.New("checkpoint was written by an older version")
