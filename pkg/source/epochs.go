package source

import (
	"sync"
	"time"
)

// Epochs remembers when the last new epoch of a storage began. Share one among the collections that read the storage, and keep
// it when a collection is read again: see [Options].Epochs. The zero value remembers none. It is safe for concurrent use.
type Epochs struct {
	mu   sync.Mutex
	last time.Time
}

// early returns the part of epochEvery that has not passed since the last new epoch. If it is 0 or negative, a new
// epoch may begin.
func (e *Epochs) early() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return epochEvery - time.Since(e.last)
}

func (e *Epochs) begun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = time.Now()
}
