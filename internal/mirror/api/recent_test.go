package api

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/kubebridge/kubebridge/internal/mirror/store"
)

// leaving is a context that ends when it is asked. asked returns once another watch waits for what the owner of the context reads.
type leaving struct {
	context.Context
	asked func()
}

func (c leaving) Err() error {
	c.asked()
	return context.Canceled
}

// waiting is a context that closes begun when its owner begins to wait for something.
type waiting struct {
	context.Context
	begun func()
}

func (c waiting) Done() <-chan struct{} {
	c.begun()
	return c.Context.Done()
}

// TestReaderLeaves: changes that several watches wait for are read by another one, if the client of the watch that reads them leaves.
func TestReaderLeaves(t *testing.T) {
	b := threePods(t)
	id := store.Resource{Cluster: "prod", Name: "pods"}
	at := b.mirror.Resource(id).Served
	b.deleted("pods", web, 60)
	upTo := b.mirror.Resource(id).Served
	type answer struct {
		changes int
		err     error
	}
	answers, waits := make(chan answer), make(chan struct{})
	other := waiting{t.Context(), sync.OnceFunc(func() { close(waits) })}
	gone := leaving{t.Context(), sync.OnceFunc(func() {
		go func() {
			x, err := b.server.recent.behind(other, id, at, upTo)
			if err != nil {
				answers <- answer{0, err}
				return
			}
			answers <- answer{len(x.in("")), nil}
		}()
		<-waits
	})}
	if x, err := b.server.recent.behind(gone, id, at, upTo); x != nil || err == nil {
		t.Errorf("for the client that left: %v (%v)", x, err)
	}
	if got := <-answers; got.err != nil || got.changes != 1 {
		t.Errorf("for the other one: %d changes (%v)", got.changes, got.err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the time is over")
	cancel(cause)
	if _, err := b.server.recent.behind(ended, id, upTo, store.Position{Era: 2}); !errors.Is(err, cause) {
		t.Errorf("after its time: %v", err)
	}
}
