package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// A server that ends all watches at once gets no more requests from collections with a shared watch than from others: a collection that
// is further than that watch does not open it again and again.
func TestSharedWatchThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 150
		e := newEtcd()
		e.rv = 30
		var ends atomic.Bool
		var watches atomic.Int64
		client := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "true" || !ends.Load() {
				e.ServeHTTP(w, r)
				return
			}
			if watches.Add(1) > limit {
				<-r.Context().Done() // ends the loop that the test is about
			}
		}))
		behind, further := newConsumer(t, e, client, "behind", "10"), newConsumer(t, e, client, "further", "20")
		behind.start()
		pass(time.Second)
		further.start()
		pass(time.Second)
		if n := subscribers(client); n != 2 {
			t.Fatalf("%d collections share a watch, want 2", n)
		}
		ends.Store(true)
		e.endAll()
		pass(time.Second)
		if n := watches.Load(); n > limit {
			t.Errorf("more than %d watches were opened within a second", limit)
		}
		behind.stop()
		further.stop()
	})
}

// Errors of the server in a watch count only for the position from which the watch was opened: another collection that joined it needs no list.
func TestErrorsOfASharedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stub := newStub(t, nil, nil)
		failing := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "true" || r.URL.Query().Get("resourceVersion") != "10" || r.URL.Query().Get("timeoutSeconds") == "5" {
				stub.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(30 * time.Second):
				_, _ = fmt.Fprint(w, errorFrame(http.StatusInternalServerError, "InternalError"))
			case <-r.Context().Done():
			}
		}
		client := inMemory(t, http.HandlerFunc(failing))
		first := run(t, Options{Client: client}, event.Position{RV: "10"}, nil)
		pass(time.Second)
		expired := false
		joined := NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: &recorder{}, OnState: func(s State) {
			expired = expired || errors.Is(s.Err, ErrExpired)
			if s.Phase == Waiting {
				time.Sleep(10 * time.Second) // the first collection opens the watch again, and this one joins it
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- joined.Run(ctx, event.Position{RV: "20"}) }()
		pass(5 * time.Minute)
		first.stop()
		cancel()
		<-done
		if !slices.ContainsFunc(first.states, func(s State) bool { return errors.Is(s.Err, ErrExpired) }) {
			t.Error("the errors do not count for the collection from whose position the watches were opened")
		}
		if expired {
			t.Error("errors of a watch from another position count for the collection that joined it")
		}
	})
}

// A frame without a resourceVersion in a shared watch does not lead to earlier changes for a collection that is further.
func TestFrameWithoutVersionInASharedWatch(t *testing.T) {
	for _, rv := range []string{"", "0"} {
		synctest.Test(t, func(t *testing.T) {
			more := make(chan struct{})
			client := inMemory(t, newStub(t, nil, []answer{func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-more
				for _, f := range []string{frame("MODIFIED", "a", "11"), bookmark(rv), frame("MODIFIED", "b", "12"), frame("MODIFIED", "c", "21")} {
					_, _ = io.WriteString(w, f)
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}}))
			behind := run(t, Options{Client: client}, event.Position{RV: "10"}, nil)
			pass(time.Second)
			further := run(t, Options{Client: client}, event.Position{RV: "20"}, nil)
			pass(time.Second)
			close(more)
			pass(time.Second)
			got := further.received()
			if len(got) == 0 || got[len(got)-1] != "modified c@21 >20" || len(got) > 2 {
				t.Errorf("bookmark %q: received %q, want the change at 21", rv, got)
			}
			behind.stop()
			further.stop()
		})
	}
}

// What waits for a blocked collection counts until the collection has handled it, also after it has left the shared watch.
func TestBlockedCollectionCounts(t *testing.T) {
	withConsumers(t, 2, func(e *etcd, all []*consumer) {
		all[0].start()
		all[1].start()
		pass(time.Second)
		blocked := make(chan struct{})
		all[1].delay = func() { <-blocked }
		for range slowFrames / 2 {
			e.change(1)
			synctest.Wait()
		}
		waits := all[0].client.watches.slow.Load()
		if waits == 0 {
			t.Fatal("nothing waits for the blocked collection")
		}
		pass(2 * listwatch.MaxBlocked)
		if n := subscribers(all[0].client); n != 1 {
			t.Errorf("%d collections share the watch, want only the fast one", n)
		}
		if n := all[0].client.watches.slow.Load(); n != waits {
			t.Errorf("%d bytes count, want the %d that wait for the blocked collection", n, waits)
		}
		close(blocked)
		pass(2 * time.Minute)
		if n := all[0].client.watches.slow.Load(); n != 0 {
			t.Errorf("%d bytes count after everything was handled", n)
		}
	})
}
