package attribute

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// Needed returns the number from which on records are needed again after a restart.
func (a *Attribution) Needed() uint64 {
	needed := a.marks(a.read + 1)
	for _, j := range a.joins {
		j.Lower(needed, a.overlapping)
	}
	for _, d := range a.decided {
		d.verdict.Lower(needed)
	}
	for _, c := range a.carried {
		c.verdict.Lower(needed)
	}
	return slices.Min(needed)
}

// Generation returns a number from 1 on that grows when the sink continues from its store. Records are then read from [Attribution.Stored] on.
func (a *Attribution) Generation() int { return a.generation }

// Stored returns the position of the reader of records in the store. nil: there is none.
func (a *Attribution) Stored() ([]byte, error) {
	position, err := a.store.Get([]byte(positionKey))
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	return position, nil
}

// Begin says that records are read from the one behind a number on. Those before may be missing. Numbers may have been used before, for records of
// another inbox.
func (a *Attribution) Begin(number uint64, now time.Time) {
	a.tick(now)
	a.read, a.seen = number, nil
	for _, j := range a.joins {
		j.Begin(a.marks(number), now)
	}
}

// StorePosition returns the change of the checkpoint that stores a position.
func StorePosition(position []byte) event.KV {
	return event.KV{Key: []byte(positionKey), Value: position}
}
