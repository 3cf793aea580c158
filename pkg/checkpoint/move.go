package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// ErrMoved is returned for a store that is not the one in force: its checkpoint was moved to another store, or a move to it has not ended.
var ErrMoved = errors.New("the checkpoint is in another store")

// Move is what a store records of a move of the checkpoint from or to it: see internal/operate/move.
type Move struct {
	ID    string    `json:"id"` // of the move: both stores have the same
	State MoveState `json:"state"`
	Other string    `json:"other"` // the other store, as people know it
}

// MoveState is how far a move has come, for one of its stores.
type MoveState string

// The states of a move.
const (
	// Incoming: the content of the other store is being copied to this one, which is not in force yet.
	Incoming MoveState = "incoming"
	// Arrived: the other store is not in force any more, and this one is.
	Arrived MoveState = "arrived"
	// Leaving: the other store is in force if it is in the state Arrived of the same move, otherwise this one is.
	Leaving MoveState = "leaving"
	// Moved: this store is not in force any more, the other one is.
	Moved MoveState = "moved"
)

// MoveKey is the key of a [Move].
func MoveKey() []byte { return []byte("!move") }

// RunningKey is the key of a note that a bridge has the checkpoint in use. A bridge that ends as it should removes the note. Only stores on
// a bus have it: a directory is locked.
func RunningKey() []byte { return []byte("!running") }

// Change returns the change that records m.
func (m Move) Change() event.KV {
	b, _ := json.Marshal(m) // plain strings: cannot fail
	return event.KV{Key: MoveKey(), Value: b}
}

// ReadMove returns what a store has recorded of a move; the zero value: nothing. The error may wrap [ErrCorrupt].
func ReadMove(store Store) (m Move, err error) {
	value, err := store.Get(MoveKey())
	if err != nil {
		return m, err
	}
	return decodeMove(value)
}

func decodeMove(value []byte) (m Move, err error) {
	if value == nil {
		return m, nil
	}
	if err := json.Unmarshal(value, &m); err != nil || m.ID == "" {
		return m, fmt.Errorf("%w: its record of a move does not parse", ErrCorrupt)
	}
	return m, nil
}

// CheckMove returns an error that wraps [ErrMoved] for a store that is not in force.
func CheckMove(store Store) error {
	value, err := store.Get(MoveKey())
	if err == nil {
		err = CheckMoveRecord(value)
	}
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	return nil
}

// CheckMoveRecord is [CheckMove] for a store that has this value of [MoveKey].
func CheckMoveRecord(value []byte) error {
	m, err := decodeMove(value)
	switch {
	case err != nil:
		return err
	case m.State == Moved:
		return fmt.Errorf("%w: it was moved to %s: use the configuration that keeps it there, or empty this store with `bridge checkpoint reset --forget`", ErrMoved, m.Other)
	case m.State == Incoming:
		return fmt.Errorf("%w: a move from %s has not ended: run `bridge checkpoint move` again, or use the configuration that keeps it there", ErrMoved, m.Other)
	}
	return nil
}
