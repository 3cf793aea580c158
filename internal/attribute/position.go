package attribute

import (
	"fmt"

	"github.com/kubebridge/kubebridge/internal/audit/join"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// Needed returns for each input the number from which on its records are needed again after a restart.
func (a *Attribution) Needed() join.Marks {
	needed := make(join.Marks, len(a.read))
	for input, number := range a.read {
		needed[input] = number + 1
	}
	for _, j := range a.joins {
		j.Lower(needed)
	}
	for _, v := range a.decided {
		v.Lower(needed)
	}
	return needed
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

// Restart forgets which numbers were read, and counts them from 1 again.
func (a *Attribution) Restart() { a.read = nil }

// StorePosition returns the change of the checkpoint that stores a position.
func StorePosition(position []byte) event.KV {
	return event.KV{Key: []byte(positionKey), Value: position}
}
