package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
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

// blocked is an answer whose client does not read until it is let.
type blocked struct {
	sent chan<- struct{}
	read <-chan struct{}
}

func (b *blocked) write(...[]byte) error {
	b.sent <- struct{}{}
	<-b.read
	return errGone
}

func (b *blocked) flush() error { return nil }

// events is an answer that calls wrote for each event.
type events struct{ wrote func() }

func (e events) write(...[]byte) error { e.wrote(); return nil }

func (e events) flush() error { return nil }

// TestSlowWatchReadsAlone: a watch that sends slowly does not keep the changes that it has in memory with others. It gets all of them.
func TestSlowWatchReadsAlone(t *testing.T) {
	b := threePods(t)
	b.server.limits.share = -1
	id := store.Resource{Cluster: "prod", Name: "pods"}
	at := b.mirror.Resource(id).Served
	for version := range 5 {
		b.object("pods", event.Modified, event.Watch, thing{"shop", "web", "u-1", 60 + version, ""})
	}
	upTo, users := b.mirror.Resource(id).Served, []int{}
	r := b.server.recent
	q := &request{Request: httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil), resource: b.mirror.Resource(id)}
	w := &watcher{s: b.server, q: q, o: &options{}, at: at, live: true, nextCheck: time.Now().Add(time.Hour)}
	w.w = events{func() { users = append(users, r.known[stretchKey{id, at}].users) }}
	if err := w.changes(upTo); err != nil || w.at != upTo {
		t.Errorf("it is at %v, want %v (%v)", w.at, upTo, err)
	}
	if !slices.Equal(users, []int{0, 0, 0, 0, 0}) {
		t.Errorf("the changes were sent while %v watches had them in memory", users)
	}
}

// TestSlowWatches: watches that send slowly, at positions of their own, keep no more changes in memory together than one bound, and one each.
func TestSlowWatches(t *testing.T) {
	b := threePods(t)
	id := store.Resource{Cluster: "prod", Name: "pods"}
	const watches, behind, size = 50, 16, 256 << 10
	large := thing{"shop", "large", "u-9", 60, "a=" + strings.Repeat("x", size)}
	b.object("pods", event.Added, event.Watch, large)
	at := []store.Position{b.mirror.Resource(id).Served}
	for range watches + behind {
		large.version++
		b.object("pods", event.Modified, event.Watch, large)
		at = append(at, b.mirror.Resource(id).Served)
	}
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	sent, read, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for i := range watches {
		q := &request{Request: httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil), resource: b.mirror.Resource(id)}
		w := &watcher{s: b.server, w: &blocked{sent, read}, q: q, o: &options{}, at: at[i], live: true, nextCheck: time.Now().Add(time.Hour)}
		go func() { done <- w.changes(at[i+behind]) }()
		<-sent
	}
	if held, most := heap()-before, recentBytes+watches*2*size+8<<20; held > most {
		t.Errorf("the watches hold %d MiB, want at most %d", held>>20, most>>20)
	}
	close(read)
	for range watches {
		if err := <-done; !errors.Is(err, errGone) {
			t.Error(err)
		}
	}
	if r := b.server.recent; r.bytes > recentBytes || r.bytes < recentBytes/2 || r.order.Len() != len(r.known) {
		t.Errorf("%d bytes of %d known stretches (%d) are kept", r.bytes, len(r.known), r.order.Len())
	}
}
