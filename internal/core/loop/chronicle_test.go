package loop

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
)

// A reset discards the messages that wait for the loop. The goroutine that passes audit records on must go on afterwards, or no change is
// attributed any more.
func TestResetAnswersPage(t *testing.T) {
	l := &Loop{reads: newReads(&Options{Log: zap.NewNop()})}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	type answer struct {
		planned bool
		err     error
	}
	answers := make(chan answer)
	go func() {
		planned, err := l.Page(ctx, 10, nil)
		answers <- answer{planned, err}
	}()
	m := <-l.reads.in
	l.reads.in <- m
	l.reads.discard()
	if a := <-answers; a.planned || a.err != nil {
		t.Errorf("got %v, %v, want that there is no plan", a.planned, a.err)
	}
}

// The goroutine that passes audit records on closes its reader once Page has returned. The loop may handle the message later.
func TestPageDoesNotWriteAfterItsEnd(t *testing.T) {
	l := &Loop{reads: newReads(&Options{Log: zap.NewNop()}), plan: &planState{made: true}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := l.Page(ctx, 10, nil) // to call it would be a panic
		ended <- err
	}()
	m := <-l.reads.in
	cancel()
	if err := <-ended; err == nil {
		t.Error("Page returned no error after the end of its context")
	}
	if err := l.handleNow(m); err != nil {
		t.Fatal(err)
	}
}
