package source

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
