package buffer

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/core/feed"
	"github.com/kubebridge/kubebridge/internal/core/loop"
	"github.com/kubebridge/kubebridge/internal/core/plan"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// Sink is how one sink uses the buffer. It is safe for concurrent use.
type Sink struct {
	buffer *Buffer // nil: there is none
	name   string
	log    *zap.Logger
	lag    lag

	mu      sync.Mutex
	allowed map[string]bool // by collection
}

// NewSink returns the use of a buffer by the sink of a name. Without a buffer nothing is recorded.
func NewSink(b *Buffer, name string, log *zap.Logger) *Sink {
	return &Sink{buffer: b, name: name, log: log, allowed: map[string]bool{}}
}

// Backlogs returns what [feed.Options].Backlog is; nil: there is no buffer.
func (s *Sink) Backlogs() func(collection string, onState func(source.State)) feed.Backlog {
	if s.buffer == nil {
		return nil
	}
	return func(collection string, onState func(source.State)) feed.Backlog {
		return &backlog{Sink: s, collection: collection, onState: onState}
	}
}

// Allows reports whether a collection may be buffered.
func (s *Sink) Allows(collection string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allowed[collection]
}

// Allow says whether a collection is to be buffered, and whether values of it are hidden on the bus. Such values are
// not on the disk in clear, so what was buffered of a collection that may not be buffered any more is deleted.
func (s *Sink) Allow(collection string, buffered, hides bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	allowed := buffered && (!hides || s.buffer != nil && s.buffer.Sealed)
	s.allowed[collection] = allowed
	if s.buffer == nil {
		return
	}
	s.buffer.Hide(s.name, collection, hides)
	if !allowed {
		s.buffer.Forbid(s.name, collection)
	}
}

// Forget forgets whether a collection is buffered.
func (s *Sink) Forget(collection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.allowed, collection)
}

// Recorded returns the target of a recording of a collection by a selection that the sink reads, or will read. Whether
// it has whole objects is as for c. ok is false if there is none.
func (s *Sink) Recorded(c *event.Collection, selection string) (t source.Target, ok bool) {
	if s.buffer == nil {
		return t, false
	}
	for _, t := range s.buffer.Recorded(s.name, c.ID()) {
		of := plan.InVersion(plan.SelectionOf(&t.Collection), t.Resource.Version)
		if of == selection && t.Collection.MetadataOnly == c.MetadataOnly {
			return t, true
		}
	}
	return t, false
}

// Come says that the sink has a plan, and so reads its collections: see [Buffer.Come].
func (s *Sink) Come() {
	if s.buffer != nil {
		s.buffer.Come(s.name)
	}
}

// Queued says which records wait for the bus: those of the batch on its way, and of the next one.
func (s *Sink) Queued(sent, next loop.Load) {
	oldest := sent.Since
	if sent.Records == 0 {
		oldest = next.Since
	}
	if sent.Records+next.Records == 0 || oldest.IsZero() {
		s.lag.Waits(0)
		return
	}
	s.lag.Waits(time.Since(oldest))
}

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
