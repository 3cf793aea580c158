package feed

import (
	"context"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// lendAfter is how long a list waits for its sink before it gives its slot back.
const lendAfter = 100 * time.Millisecond

// slotState is the state of the slot of a list.
//
//	state  Acquire  lend blocks  lend returns  Release
//	free   → held   –            –             –
//	held   –        → lent       –             → free
//	lent   –        –            → held        → free
//
// A lent slot becomes held when there is a shared slot again. If ctx ends first, it stays lent.
type slotState uint8

const (
	free slotState = iota // no list
	held                  // a slot of the sink and a shared slot
	lent                  // a slot of the sink only
)

// slot implements [source.Slots] for one list at a time. A list counts for two bounds. The bound of the sink
// limits its memory, and the list counts until it ends. The bound that all sinks share limits the load on the API server, and
// the list does not count while it waits for its sink.
type slot struct {
	own, shared *Lists
	attempt     source.Attempt
	timer       *time.Timer

	mu       sync.Mutex
	state    slotState
	blocking bool // the function of lend is running
}

func (r *Reader) newSlot() *slot { return &slot{own: r.own, shared: r.Lists} }

// Acquire implements [source.Slots].
func (s *slot) Acquire(ctx context.Context, a source.Attempt) error {
	if err := s.own.acquire(ctx, a); err != nil {
		return err
	}
	if err := s.shared.acquire(ctx, a); err != nil {
		s.own.release(a)
		return err
	}
	s.attempt = a
	s.set(held)
	return nil
}

// Release implements [source.Slots].
func (s *slot) Release(a source.Attempt) {
	if s.set(free) == held {
		s.shared.release(a)
	}
	s.own.release(a)
}

// lend calls f, and lets other lists use the slot while f blocks.
func (s *slot) lend(ctx context.Context, f func() error) error {
	if s.now() == free { // a watch, not a list
		return f()
	}
	s.block(true)
	if s.timer == nil {
		s.timer = time.AfterFunc(lendAfter, s.lendNow)
	} else {
		s.timer.Reset(lendAfter)
	}
	err := f()
	s.timer.Stop()
	s.block(false)
	if err != nil || s.now() == held {
		return err
	}
	if err := s.shared.acquire(ctx, s.attempt); err != nil {
		return err
	}
	s.set(held)
	return nil
}

func (s *slot) lendNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocking && s.state == held {
		s.state = lent
		s.shared.release(s.attempt)
	}
}

func (s *slot) now() slotState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// set returns the previous state.
func (s *slot) set(state slotState) slotState {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state
	s.state = state
	return before
}

func (s *slot) block(blocking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocking = blocking
}
