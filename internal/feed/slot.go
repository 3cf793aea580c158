package feed

import (
	"context"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/source"
)

// lendAfter is how long a list waits for its sink before it gives its slot back.
const lendAfter = 100 * time.Millisecond

// slotState is what a slot of a list has.
//
//	state  Acquire  lend blocks  lend returns  Release
//	free   → held   –            –             –
//	held   –        → lent       –             → free
//	lent   –        –            → held        → free
//
// A lent slot becomes held when there is a shared slot again. If ctx ends before, it stays lent.
type slotState uint8

const (
	free slotState = iota // no list
	held                  // one of the sink's, and one of the shared ones
	lent                  // one of the sink's
)

// slot implements [source.Slots] for one list at a time. It counts for each of two bounds. The sink's
// own bounds its memory, until the list ends. For the one that all sinks share the list does not count
// while it waits for its sink.
type slot struct {
	own, shared *Lists
	attempt     source.Attempt
	timer       *time.Timer

	mu       sync.Mutex
	state    slotState
	blocking bool // lend's function is under way
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
	if s.now() == free { // a watch
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

// set returns the state before.
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
