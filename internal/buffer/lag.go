package buffer

import (
	"sync"
	"time"
)

const (
	// A sink is behind when a record has waited for the bus for behindAfter, and no longer when none has waited for inStepBelow.
	behindAfter = 2 * time.Second
	inStepBelow = time.Second
)

// lag says whether a sink is behind. The zero value is not. It is safe for concurrent use.
type lag struct {
	mu      sync.Mutex
	behind  bool
	changed chan struct{}
}

// Waits says how long the oldest record has waited for the bus; 0: none waits.
func (l *lag) Waits(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := d > behindAfter || l.behind && d > inStepBelow
	if behind == l.behind {
		return
	}
	l.behind = behind
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Behind reports whether the sink is behind. The channel is closed when that changes.
func (l *lag) Behind() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.behind, l.changed
}
