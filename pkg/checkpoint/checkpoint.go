// Package checkpoint is the contract between a lane and the place where it
// remembers how far it got, and the encoding of what it remembers.
//
// A store is a small ordered map. What its keys mean is settled here, once for
// every store: positions, the inventory, intents and the bus's mark.
package checkpoint

import (
	"context"
	"errors"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Store keeps one lane's checkpoint. Get and Scan may be called while a Commit
// is under way; they then see either state of each key. Only one Commit is under
// way at a time.
type Store interface {
	// Get returns the value of key, nil when there is none. The value is the
	// caller's.
	Get(key []byte) ([]byte, error)

	// Scan calls fn for every key with the prefix, in byte order, on a consistent
	// snapshot. The slices are valid only during the call. It stops at fn's error
	// and returns it.
	Scan(prefix []byte, fn func(key, value []byte) error) error

	// Commit makes all changes durable, or none. It blocks until they are.
	// After an error nothing is known to be durable and the same changes may be
	// committed again. The store keeps neither keys nor values: it copies them.
	Commit(ctx context.Context, changes []event.KV) error
}

// Loader is offered by a store whose contents lie elsewhere, such as on the bus.
type Loader interface {
	// Load reads them. It is called after the sink was opened, which has shut out a
	// predecessor, and before anything else but Get of [MarkKey]; again after an
	// error, until it succeeds. Errors that wrap one of this package's are final.
	Load(ctx context.Context) error
}

// ErrForeign is returned on opening a checkpoint that another cluster, bridge or
// sink wrote.
var ErrForeign = errors.New("checkpoint belongs to another cluster, bridge or sink")

// ErrLocked is returned on opening a checkpoint that another process holds.
var ErrLocked = errors.New("checkpoint is in use by another process")

// ErrFenced is returned by Commit when another process has taken the checkpoint over.
// It is final: the store will not write again.
var ErrFenced = errors.New("another process has taken the checkpoint over")

// ErrUnusable is returned on opening a checkpoint in a topic or bucket whose settings
// would lose what it holds. Commit does not return it: settings that become unusable
// later are an ordinary error.
var ErrUnusable = errors.New("checkpoint cannot be kept there")

// ErrCorrupt is returned when what is stored cannot have been written by this or
// an older version of the program.
var ErrCorrupt = errors.New("checkpoint is damaged")

// ErrNewer is returned on opening a checkpoint that a newer version wrote.
var ErrNewer = errors.New("checkpoint was written by a newer version")

// ErrOlder is returned on opening a checkpoint in a format that an older version
// wrote and this one does not read.
var ErrOlder = errors.New("checkpoint was written by an older version")
