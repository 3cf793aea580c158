package loop

import (
	"context"
	"errors"
)

// calls pass functions from other goroutines to the goroutine of [Loop.Run]. Any goroutine may use the methods, except for
// answering, which only Run's goroutine uses.
type calls struct {
	functions chan func(ctx context.Context) error
	pings     chan struct{} // answers [calls.Alive]
	ended     chan struct{} // closed when Run returns
}

func newCalls() calls {
	return calls{functions: make(chan func(context.Context) error), pings: make(chan struct{}), ended: make(chan struct{})}
}

// Alive reports whether the loop's goroutine answers before ctx ends. It also answers while it
// waits for the bus or the store.
func (c *calls) Alive(ctx context.Context) bool {
	select {
	case <-c.pings:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pings returns a channel on which a send answers [calls.Alive]: for a store that blocks the
// loop's goroutine while it waits.
func (c *calls) Pings() chan<- struct{} { return c.pings }

// answering runs f, which waits for the bus or the store, and answers pings meanwhile.
func (c *calls) answering(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	for {
		select {
		case err := <-done:
			return err
		case c.pings <- struct{}{}:
		}
	}
}

// do runs f in the loop's goroutine. An error of f also ends the loop. If ctx ends first, do returns,
// and f may still be running. If the loop has ended, f does not run.
func (c *calls) do(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	call := func(ctx context.Context) error {
		err := f(ctx)
		done <- err
		return err
	}
	select {
	case c.functions <- call:
	case <-c.ended:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrEnded is returned by a method of a loop whose Run has returned. The error of Run has the reason.
var ErrEnded = errors.New("the sink has ended")
