package source

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// etcd is an API server with one resource and its whole history. Watches send every change after their resourceVersion, and a bookmark
// every minute.
type etcd struct {
	mu      sync.Mutex
	changes []change // of all time, in order
	rv      int
	oldest  int           // watches from an earlier resourceVersion are refused
	more    chan struct{} // closed with the next change
	ends    chan struct{} // closed to end all watches
	breaks  bool          // watches do not end in order
	history int           // the number of the history, from which watches that are open send nothing any more
	open    int           // number of watches
	opened  int           // number of watches since the start
}

type change struct {
	name string
	rv   int
}

func newEtcd() *etcd {
	return &etcd{rv: 10, more: make(chan struct{}), ends: make(chan struct{})}
}

// change makes n changes of one transaction, which have one resourceVersion.
func (e *etcd) change(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rv++
	for range n {
		e.changes = append(e.changes, change{fmt.Sprint("o", len(e.changes)), e.rv})
	}
	close(e.more)
	e.more = make(chan struct{})
}

// otherResource changes an object of another resource: bookmarks then have a later resourceVersion.
func (e *etcd) otherResource() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rv++
}

// endAll ends all watches, as a server does when their time is over.
func (e *etcd) endAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.ends)
	e.ends = make(chan struct{})
}

// breakAll breaks the connections of all watches.
func (e *etcd) breakAll() {
	e.mu.Lock()
	e.breaks = true
	e.mu.Unlock()
	e.endAll()
}

// restore restores a backup from before the last n changes, and makes as many others.
func (e *etcd) restore(n int) {
	e.mu.Lock()
	e.history++
	e.changes = slices.Clone(e.changes[:len(e.changes)-n])
	e.rv = e.changes[len(e.changes)-1].rv
	e.mu.Unlock()
}

func (e *etcd) compact() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.oldest = e.rv
}

func (e *etcd) watches() (open, opened int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open, e.opened
}

// ServeHTTP implements [http.Handler].
func (e *etcd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/api/v1/configmaps" {
		status(http.StatusForbidden, "Forbidden")(w, r)
		return
	}
	if r.URL.Query().Get("watch") == "true" {
		e.watch(w, r)
		return
	}
	e.mu.Lock()
	var items []string
	for _, c := range e.changes {
		items = append(items, item(c.name, strconv.Itoa(c.rv)))
	}
	page := pageOf(strconv.Itoa(e.rv), "", items...)
	e.mu.Unlock()
	page(w, r)
}

func (e *etcd) watch(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	over := time.After(time.Duration(seconds) * time.Second)
	e.mu.Lock()
	ends, expired, history := e.ends, from < e.oldest, e.history
	e.breaks = false
	if !expired {
		e.open, e.opened = e.open+1, e.opened+1
		defer func() {
			e.mu.Lock()
			e.open--
			e.mu.Unlock()
		}()
	}
	next, _ := slices.BinarySearchFunc(e.changes, from+1, func(c change, rv int) int { return c.rv - rv })
	e.mu.Unlock()
	if err != nil || expired {
		_, _ = fmt.Fprint(w, errorFrame(http.StatusGone, "Expired"))
		return
	}
	bookmarks := time.NewTicker(time.Minute)
	defer bookmarks.Stop()
	flush := http.NewResponseController(w).Flush
	for flush() == nil {
		e.mu.Lock()
		if e.history != history {
			e.mu.Unlock()
			<-r.Context().Done()
			return
		}
		changes, more, rv := e.changes[next:], e.more, e.rv
		e.mu.Unlock()
		for _, c := range changes {
			if _, err := fmt.Fprint(w, frame("MODIFIED", c.name, strconv.Itoa(c.rv))); err != nil {
				return
			}
			next++
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-more:
		case <-bookmarks.C:
			_, _ = fmt.Fprint(w, bookmark(strconv.Itoa(rv)))
		case <-ends:
			e.mu.Lock()
			breaks := e.breaks
			e.mu.Unlock()
			if breaks {
				panic(http.ErrAbortHandler)
			}
			return
		case <-over:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// consumer is a collection, and a check that it receives every change after its position, in order. A change may come again, together
// with all that follow it.
type consumer struct {
	t      *testing.T
	e      *etcd
	client *Client
	name   string
	// delay is called for each signal, and may sleep.
	delay func()

	at     string // the position, from which the next Run begins
	next   int    // the index of the next change that was not received
	lists  int    // number of lists
	cancel context.CancelFunc
	done   chan struct{}
}

func newConsumer(t *testing.T, e *etcd, client *Client, name, at string) *consumer {
	c := &consumer{t: t, e: e, client: client, name: name, at: at, delay: func() {}}
	c.seek(at)
	return c
}

// seek records that everything up to a resourceVersion is known.
func (c *consumer) seek(at string) {
	rv, _ := strconv.Atoi(at)
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	next, _ := slices.BinarySearchFunc(c.e.changes, rv+1, func(c change, rv int) int { return c.rv - rv })
	c.next = max(c.next, next)
}

func (c *consumer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		target := configMaps(event.Collection{Entry: c.name})
		err := NewCollection(Options{Client: c.client, Target: target, Handler: c}).Run(ctx, event.Position{RV: c.at})
		if !errors.Is(err, context.Canceled) {
			c.t.Errorf("%s: %v", c.name, err)
		}
	}()
}

func (c *consumer) stop() {
	c.cancel()
	<-c.done
}

// Handle implements [Handler].
func (c *consumer) Handle(_ context.Context, s Signal) error {
	c.delay()
	switch s.Kind {
	case ListBegun:
		c.lists++
		if s.NewEpoch {
			c.next = 0
		}
	case ListEnded:
		c.seek(s.RV)
	case Modified:
		c.e.mu.Lock()
		all, restored := c.e.changes, c.e.history > 0
		c.e.mu.Unlock()
		i, _ := strconv.Atoi(strings.TrimPrefix(s.Object.Name, "o"))
		switch {
		case restored && i >= len(all): // of the earlier history: the consumer does not know yet that there is another one
			return nil
		case i > c.next:
			c.t.Errorf("%s received %s, and not %s", c.name, s.Object.Name, all[c.next].name)
		case i == c.next:
			c.next++
		case s.Object.ResourceVersion == c.at || event.Older(s.Object.ResourceVersion, c.at):
			c.t.Errorf("%s received %s, of resourceVersion %s, again after %s", c.name, s.Object.Name, s.Object.ResourceVersion, c.at)
		}
		if s.Object.ResourceVersion != strconv.Itoa(all[i].rv) {
			c.t.Errorf("%s received %s of another resourceVersion: memory was used again too early", c.name, s.Object.Name)
		}
		s.Object.Release()
	}
	if s.Resume != "" {
		c.at = s.Resume
	}
	if s.Kind == ListEnded {
		c.at = s.RV
	}
	return nil
}

// complete reports what a consumer has not received.
func (c *consumer) complete() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.next != len(c.e.changes) {
		c.t.Errorf("%s received %d changes of %d", c.name, c.next, len(c.e.changes))
	}
}

func withConsumers(t *testing.T, n int, f func(e *etcd, all []*consumer)) {
	synctest.Test(t, func(t *testing.T) {
		e := newEtcd()
		client := inMemory(t, e)
		var all []*consumer
		for i := range n {
			all = append(all, newConsumer(t, e, client, fmt.Sprint("c", i), "10"))
		}
		f(e, all)
		for _, c := range all {
			c.stop()
			c.complete()
		}
	})
}

// Collections that read one target share one watch, which is not closed while one of them needs it.
func TestOneWatchForAll(t *testing.T) {
	withConsumers(t, 3, func(e *etcd, all []*consumer) {
		for _, c := range all {
			c.start()
		}
		pass(time.Second)
		e.change(1)
		pass(time.Second)
		all[0].stop()
		e.change(2)
		pass(time.Second)
		if open, opened := e.watches(); open != 1 || opened != 1 {
			t.Errorf("%d watches are open, and %d were opened", open, opened)
		}
		all[0].start() // it was away for one change
		pass(time.Minute)
		if open, _ := e.watches(); open != 1 {
			t.Errorf("%d watches are open", open)
		}
	})
}

// When the server ends the watch, one request continues it for all.
func TestOneWatchFollows(t *testing.T) {
	withConsumers(t, 3, func(e *etcd, all []*consumer) {
		for _, c := range all {
			c.start()
		}
		pass(time.Second)
		e.change(1)
		for n := 2; n < 10; n++ {
			e.endAll()
			e.change(1)
			pass(time.Second)
			if open, opened := e.watches(); open != 1 || opened != n {
				t.Errorf("%d watches are open, and %d were opened, want %d", open, opened, n)
			}
		}
	})
}

// A collection that is far behind has a watch of its own until it has caught up.
func TestFarBehindThenShared(t *testing.T) {
	withConsumers(t, 2, func(e *etcd, all []*consumer) {
		all[0].start()
		for range 100 {
			e.change(1)
		}
		pass(time.Second)
		var behind atomic.Bool
		behind.Store(true)
		all[1].delay = func() {
			if behind.Load() {
				time.Sleep(100 * time.Millisecond)
			}
		}
		all[1].start()
		pass(time.Second)
		if open, _ := e.watches(); open != 2 {
			t.Errorf("%d watches are open while one is behind", open)
		}
		behind.Store(false)
		pass(time.Minute)
		if open, opened := e.watches(); open != 1 || opened != 2 {
			t.Errorf("%d watches are open, and %d were opened", open, opened)
		}
	})
}

// A collection that has far to go does not delay others that have come further: they leave its watch, and share another one.
func TestBacklogOfOneDelaysNobody(t *testing.T) {
	withConsumers(t, 3, func(e *etcd, all []*consumer) {
		for range 5000 {
			e.change(1)
		}
		all[0].delay = func() { time.Sleep(10 * time.Millisecond) }
		all[0].start()
		synctest.Wait()
		for _, c := range all[1:] {
			c.at = strconv.Itoa(e.rv)
			c.seek(c.at)
			c.start()
		}
		pass(5 * time.Second)
		e.change(1)
		pass(time.Second)
		all[1].complete()
		all[2].complete()
		if open, _ := e.watches(); open != 2 {
			t.Errorf("%d watches are open while one collection is behind, want 2", open)
		}
		pass(2 * time.Minute)
		if open, _ := e.watches(); open != 1 {
			t.Errorf("%d watches are open in the end", open)
		}
	})
}

// A collection whose handler blocks does not delay another one, and gets everything later.
func TestSlowCollectionDelaysNobody(t *testing.T) {
	withConsumers(t, 2, func(e *etcd, all []*consumer) {
		all[0].start()
		all[1].start()
		pass(time.Second)
		blocked := make(chan struct{})
		all[1].delay = func() { <-blocked }
		for range 2 * slowFrames {
			e.change(1)
			synctest.Wait()
		}
		all[0].complete()
		if n := subscribers(all[0].client); n != 1 {
			t.Errorf("%d collections share the watch, want only the fast one", n)
		}
		pass(2 * listwatch.MaxBlocked)
		if open, opened := e.watches(); open != 1 || opened != 1 {
			t.Errorf("%d watches are open, and %d were opened, while one is blocked", open, opened)
		}
		close(blocked)
		pass(2 * time.Minute)
		if open, _ := e.watches(); open != 1 {
			t.Errorf("%d watches are open after both have caught up", open)
		}
		if all[0].lists+all[1].lists > 0 {
			t.Error("there was a list")
		}
	})
}

// subscribers returns how many collections share the only watch.
func subscribers(client *Client) int {
	client.watches.mu.Lock()
	defer client.watches.mu.Unlock()
	for _, w := range client.watches.of {
		w.mu.Lock()
		defer w.mu.Unlock()
		if shared := w.joinable(""); shared != nil {
			return len(shared.subscribers)
		}
	}
	return 0
}

// When the server has another history, all collections find that out, and share a watch again.
func TestOneWatchInAnotherHistory(t *testing.T) {
	withConsumers(t, 3, func(e *etcd, all []*consumer) {
		for range 100 {
			e.change(1)
		}
		for _, c := range all {
			c.start()
		}
		pass(time.Second)
		e.restore(50)
		for range 10 {
			e.change(1)
			pass(time.Minute)
		}
		for _, c := range all {
			c.complete()
		}
		if n := subscribers(all[0].client); n != 3 {
			t.Errorf("%d collections share a watch, want 3", n)
		}
	})
}

// Once a collection has found another history, it joins no watch that was opened before, although that covers its position by number.
func TestWatchOfAnotherHistoryIsNotJoined(t *testing.T) {
	withConsumers(t, 2, func(e *etcd, all []*consumer) {
		for range 100 {
			e.change(1)
		}
		all[0].start()
		all[1].start()
		pass(time.Second)
		all[1].stop()
		e.restore(50)
		e.change(1)
		slow := make(chan struct{})
		all[1].delay = func() { <-slow }
		all[1].start()
		pass(time.Second)
		for range 100 {
			e.change(1)
		}
		close(slow) // now it gets past the position of the first collection
		for range 10 {
			e.change(1)
			pass(10 * time.Millisecond)
			all[1].complete()
		}
		if lists := all[0].lists; lists > 0 {
			t.Error("the first collection has found the new history before the test ended")
		}
		pass(5 * time.Minute)
	})
}

// A watch that follows the shared one begins where that ended, and not only where the collection is that opens it.
func TestFromWhereAWatchFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := ended{resume: "20", at: time.Now(), history: 3}
		for _, c := range []struct {
			at      string
			history uint64
			want    string
		}{
			{"20", 3, "20"},
			{"22", 3, "20"},
			{"19", 3, "19"}, // a watch from 20 would miss changes
			{"22", 4, "22"},
		} {
			if got := last.from(c.at, c.history); got != c.want {
				t.Errorf("at %s in history %d: from %s, want %s", c.at, c.history, got, c.want)
			}
		}
		time.Sleep(reopenWithin)
		if got := last.from("22", 3); got != "22" {
			t.Errorf("later: from %s, want 22", got)
		}
	})
}

var walks = flag.Int("watches.walks", 8, "number of random walks of TestSharedWatchesRandomly")

// In random walks, collections start, stop, block and are slow, while the server changes objects, ends watches and compacts. Every collection receives
// every change, and in the end all share one watch.
func TestSharedWatchesRandomly(t *testing.T) {
	t.Parallel()
	for seed := range *walks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			withConsumers(t, 4, func(e *etcd, all []*consumer) { walk(rand.New(rand.NewPCG(1, uint64(seed))), e, all) })
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

func walk(r *rand.Rand, e *etcd, all []*consumer) {
	var mu sync.Mutex // of delays
	delays, times := make([]time.Duration, len(all)), make([]int, len(all))
	running := make([]bool, len(all))
	for i, c := range all {
		c.delay = func() {
			mu.Lock()
			d := delays[i]
			if times[i]--; times[i] < 0 {
				d = 0
			}
			mu.Unlock()
			time.Sleep(d)
		}
	}
	slow := func(i int, d time.Duration) {
		mu.Lock()
		delays[i], times[i] = d, 20
		mu.Unlock()
	}
	for range 150 {
		i := r.IntN(len(all))
		switch n := r.IntN(20); {
		case n < 3 && !running[i]:
			all[i].start()
			running[i] = true
		case n == 3 && running[i]:
			all[i].stop()
			running[i] = false
		case n == 4:
			slow(i, []time.Duration{time.Millisecond, 200 * time.Millisecond, listwatch.MaxBlocked / 2, 2 * listwatch.MaxBlocked}[r.IntN(4)])
		case n < 8:
			slow(i, 0)
		case n == 8 && r.IntN(2) == 0:
			e.breakAll()
		case n == 8:
			e.endAll()
		case n == 9 && r.IntN(4) == 0:
			e.compact()
		case n == 10:
			for range r.IntN(3 * slowFrames / 2) {
				e.change(1)
			}
		case n < 16:
			for range 1 + r.IntN(5) {
				e.change(1 + r.IntN(2))
			}
		default:
			pass(time.Duration(r.IntN(3000)) * time.Millisecond)
		}
	}
	for i := range all {
		slow(i, 0)
		if !running[i] {
			all[i].start()
		}
	}
	pass(time.Minute)
	e.otherResource()
	pass(4 * time.Minute)
	if open, _ := e.watches(); open != 1 {
		all[0].t.Errorf("%d watches are open in the end", open)
	}
}
