// Package move moves a checkpoint between a directory and the bus of its sink. A kill at any point leaves exactly one of the two stores
// in force: the one that a bridge can start with. A bridge refuses the other one.
//
// No write changes two stores at once, so the bus has the decision. The writes of a move, in order; the one that decides is in capitals:
//
//	directory → bus    bus: incoming; bus: the content; directory: leaving; bus: ARRIVED; directory: moved
//	bus → directory    directory: incoming; directory: the content; bus: MOVED; directory: nothing recorded
//
// What a start does with what it finds:
//
//	bus                   starts, unless the bus is incoming or moved
//	directory, moved      refuses
//	directory, leaving    asks the bus: refuses if that has arrived in the same move; otherwise it removes the record, and starts
//	directory, incoming   asks the bus: if that has moved in the same move it removes the record, and starts; otherwise it refuses
//
// The writer of a killed move may still have a write on its way to the bus. So a directory that is leaving becomes the bus's writer, which
// fences the former one, before it takes the answer for final.
package move

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// copyAtOnce and copyBytes bound one commit of a copy.
const (
	copyAtOnce = 2000
	copyBytes  = 2 << 20
)

// End is a store that this process alone writes to, and its name.
type End struct {
	checkpoint.Store
	Name string // as people know it, for example "topic kubebridge.prod"
}

// ToBus moves a checkpoint from a directory to the store on the bus with that name. If an earlier call was interrupted, it completes that.
// An error that wraps [checkpoint.ErrMoved] says that the checkpoint is not in the directory.
func ToBus(ctx context.Context, directory End, bus Bus, name string) error {
	err := Settle(ctx, directory, bus)
	if errors.Is(err, checkpoint.ErrMoved) {
		return elsewhere(directory, name, err)
	}
	if err != nil {
		return err
	}
	store, err := bus.Claim(ctx, name)
	if err != nil {
		return err
	}
	err = toBus(ctx, directory, End{store, name})
	return errors.Join(err, store.Close())
}

func toBus(ctx context.Context, directory, bus End) error {
	if err := bus.vacant(); err != nil {
		return err
	}
	id := rand.Text()
	arriving := checkpoint.Move{ID: id, State: checkpoint.Incoming, Other: directory.Name}
	leaving := checkpoint.Move{ID: id, State: checkpoint.Leaving, Other: bus.Name}
	if err := bus.fill(ctx, directory, arriving); err != nil {
		return err
	}
	if err := directory.record(ctx, leaving); err != nil {
		return err
	}
	arriving.State = checkpoint.Arrived
	if err := bus.record(ctx, arriving); err != nil {
		return err
	}
	leaving.State = checkpoint.Moved
	return directory.record(ctx, leaving)
}

// ToDirectory moves a checkpoint from the store on the bus with that name to a directory. It is otherwise like ToBus.
func ToDirectory(ctx context.Context, bus Bus, name string, directory End) error {
	settled := Settle(ctx, directory, bus)
	if settled != nil && !errors.Is(settled, checkpoint.ErrMoved) { // that one may be replaced
		return settled
	}
	store, err := bus.Claim(ctx, name)
	if err != nil {
		return err
	}
	from := End{store, name}
	if err = checkpoint.CheckMove(store); err == nil {
		err = toDirectory(ctx, from, directory)
	} else if settled == nil && errors.Is(err, checkpoint.ErrMoved) {
		err = elsewhere(from, directory.Name, err)
	}
	return errors.Join(err, store.Close())
}

func toDirectory(ctx context.Context, bus, directory End) error {
	if err := directory.vacant(); err != nil {
		return err
	}
	id := rand.Text()
	if err := directory.fill(ctx, bus, checkpoint.Move{ID: id, State: checkpoint.Incoming, Other: bus.Name}); err != nil {
		return err
	}
	if err := bus.record(ctx, checkpoint.Move{ID: id, State: checkpoint.Moved, Other: directory.Name}); err != nil {
		return err
	}
	return directory.forget(ctx)
}

// elsewhere returns nil if the checkpoint was moved from a store to the one that is called target, otherwise the error err.
func elsewhere(from End, target string, err error) error {
	m, failed := checkpoint.ReadMove(from)
	if failed == nil && m.State == checkpoint.Moved && m.Other == target {
		return nil
	}
	return fmt.Errorf("%s: %w", from.Name, err)
}

// vacant returns an error if a store has a checkpoint that a move to it would replace.
func (e End) vacant() error {
	m, err := checkpoint.ReadMove(e)
	if err != nil || m.State == checkpoint.Incoming || m.State == checkpoint.Moved {
		return err
	}
	err = e.Scan(nil, func(key, _ []byte) error {
		if isOwn(key) || bytes.Equal(key, checkpoint.ResetKey()) {
			return nil
		}
		return errFull
	})
	if errors.Is(err, errFull) {
		return fmt.Errorf("%s has a checkpoint already: empty it with `bridge checkpoint reset --forget`, if it is not needed", e.Name)
	}
	return err
}

var errFull = errors.New("not empty")

// isOwn reports whether a key says something of the store, and not of the checkpoint.
func isOwn(key []byte) bool {
	return bytes.Equal(key, checkpoint.IdentityKey()) || bytes.Equal(key, checkpoint.MoveKey()) || bytes.Equal(key, checkpoint.RunningKey())
}

// fill replaces the content of a store, which first records m.
func (e End) fill(ctx context.Context, from End, m checkpoint.Move) error {
	if err := e.record(ctx, m); err != nil {
		return err
	}
	var (
		changes []event.KV
		size    int
	)
	flush := func() error {
		if err := e.Commit(ctx, changes); err != nil {
			return fmt.Errorf("write to %s: %w", e.Name, err)
		}
		changes, size = nil, 0
		return nil
	}
	collect := func(key, value []byte) error {
		if isOwn(key) {
			return nil
		}
		changes = append(changes, event.KV{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		if size += len(key) + len(value); len(changes) < copyAtOnce && size < copyBytes {
			return nil
		}
		return flush()
	}
	if err := e.Scan(nil, func(key, _ []byte) error { return collect(key, nil) }); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	// A value may be empty, but not nil: that would delete the key.
	if err := from.Scan(nil, func(key, value []byte) error { return collect(key, append([]byte{}, value...)) }); err != nil {
		return err
	}
	return flush()
}

// record makes the record of a move durable, and what was committed before it. No bridge runs on the store.
func (e End) record(ctx context.Context, m checkpoint.Move) error {
	if err := e.Commit(ctx, []event.KV{m.Change(), {Key: checkpoint.RunningKey()}}); err != nil {
		return fmt.Errorf("record the move in %s: %w", e.Name, err)
	}
	return nil
}

func (e End) forget(ctx context.Context) error {
	if err := e.Commit(ctx, []event.KV{{Key: checkpoint.MoveKey()}}); err != nil {
		return fmt.Errorf("record the move in %s: %w", e.Name, err)
	}
	return nil
}

// Opened is a store that must be closed.
type Opened = bus.Opened

// Bus opens the store on the bus that a directory's record of a move names. The errors wrap fs.ErrNotExist if there is no such store.
type Bus interface {
	// Read opens it without disturbing its writer.
	Read(ctx context.Context, name string) (Opened, error)
	// Claim opens it as its writer.
	Claim(ctx context.Context, name string) (Opened, error)
}

// Settle is called at a start with a directory, which the caller has locked. It returns nil if the directory is in force. The error
// wraps [checkpoint.ErrMoved] if it is not.
func Settle(ctx context.Context, directory End, bus Bus) error {
	m, err := checkpoint.ReadMove(directory)
	if err != nil || m.State != checkpoint.Leaving && m.State != checkpoint.Incoming {
		return errors.Join(err, checkpoint.CheckMove(directory))
	}
	other, err := stateOf(ctx, bus.Read, m)
	if err == nil && m.State == checkpoint.Leaving && other == checkpoint.Incoming {
		other, err = stateOf(ctx, bus.Claim, m)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: a move of the checkpoint has not ended, and %s cannot be asked which of the two is in force: %w", directory.Name, m.Other, err)
	case m.State == checkpoint.Leaving && other == checkpoint.Arrived:
		m.State = checkpoint.Moved
		return errors.Join(directory.record(ctx, m), checkpoint.CheckMove(directory))
	case m.State == checkpoint.Incoming && other != checkpoint.Moved:
		return checkpoint.CheckMove(directory)
	}
	return directory.forget(ctx)
}

// stateOf returns the state of a move on the bus; "" if the bus has no such move.
func stateOf(ctx context.Context, open func(context.Context, string) (Opened, error), m checkpoint.Move) (state checkpoint.MoveState, err error) {
	store, err := open(ctx, m.Other)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	other, err := checkpoint.ReadMove(store)
	if err != nil || other.ID != m.ID {
		return "", err
	}
	return other.State, nil
}
