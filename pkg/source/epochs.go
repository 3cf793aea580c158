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

// early returns the rest of epochEvery since the last new epoch; at 0 or below another one may begin.
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
