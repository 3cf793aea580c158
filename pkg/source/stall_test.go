package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// then answers as a does, and after d as b does, in one stream.
func then(d time.Duration, first, second string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(first))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte(second))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// Resuming 5: with a dead conversion webhook the watch stays open without events, while LIST answers 500. The state must show
// this within two minutes and recover automatically, and the watch must not be closed for it.
func TestStalledWatchShows(t *testing.T) {
	for _, c := range []struct {
		name    string
		watch   answer
		probes  []answer
		after   time.Duration // when it is healed at the latest
		because string
		signals []string
	}{
		{"until a probe works", open(), append(answers(2, pageOf("10", "")), append(answers(4, failing(500)), pageOf("10", ""))...), 200 * time.Second, "the stub says ItIsSo", nil},
		{"until a frame comes", then(130*time.Second, "", frame("ADDED", "a", "11")), append(answers(2, pageOf("10", "")), answers(100, failing(500))...), 131 * time.Second, "the stub says ItIsSo", []string{"added a@11 >10"}},
		{"no answer at all", open(), append(answers(2, pageOf("10", "")), append(answers(2, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), pageOf("10", ""))...), 200 * time.Second, "no answer within 15s", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{c.watch})
				s.probes = c.probes
				begin := time.Now()
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(39 * time.Second)
				compare(t, phases(r), []string{"watching"})
				pass(81 * time.Second)
				stalled := r.awaitState(Stalled, 1)
				if stalled.Err == nil || !strings.Contains(stalled.Err.Error(), c.because) {
					t.Errorf("stalled because of %v", stalled.Err)
				}
				if d := stalled.Until.Sub(stalled.Since); d != probeEvery {
					t.Errorf("the next probe comes after %s", d)
				}
				pass(c.after - time.Since(begin))
				healed := r.awaitState(Watching, 2)
				if healed.Err != nil {
					t.Errorf("healed, but %v", healed.Err)
				}
				r.stop()
				compare(t, r.received(), c.signals)
				if n := len(s.await(1, true)); n != 1 {
					t.Errorf("%d watches", n)
				}
			})
		})
	}
}

// A watch that is dead while the server works is detected by a second watch, and opened again from where all events are known
// to be passed on.
func TestDeadWatchIsReplaced(t *testing.T) {
	const present = "999999999999999999999999" // the resourceVersion of the probes
	const later = "999999999999999999999999999"
	for name, second := range map[string][]answer{
		"by an event":    {closed(frame("ADDED", "b", "12"), frame("ADDED", "c", "13"))},
		"by a bookmark":  {closed(frame("ADDED", "b", "12"), bookmark("90"))},
		"by what is new": {then(4*time.Second, frame("ADDED", "b", "12"), frame("ADDED", "c", "13"))},
		"by a bookmark, although the history that the position needs is gone": {failing(410), closed(bookmark(present))},
		"by a later bookmark, although the history is gone, in the stream":    {closed(errorFrame(410, "Expired")), then(4*time.Second, "", bookmark(later))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11"), frame("ADDED", "b", "12")), open(frame("ADDED", "b", "12"), frame("ADDED", "c", "13"))})
				s.secondWatches = second
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(2 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{"added a@11 >10", "added b@12 >11", "added b@12 >11", "added c@13 >12"})
				if rv := s.secondAsked[0].Get("resourceVersion"); rv != "11" || s.secondAsked[0].Get("allowWatchBookmarks") != "true" {
					t.Errorf("the second watch: %v", s.secondAsked[0].Values)
				}
				if n := len(s.secondAsked); n < len(second) {
					t.Fatalf("%d second watches", n)
				}
				if len(second) > 1 && s.secondAsked[1].Get("resourceVersion") != present {
					t.Errorf("after a 410, the second watch: %v", s.secondAsked[1].Values)
				}
				if rv := s.await(2, true)[1].Get("resourceVersion"); rv != "11" {
					t.Errorf("watched again from %s, want 11", rv)
				}
			})
		})
	}
}

// A reader that counts a watch as complete too early removes collections of deleted namespaces with what is unread, and a periodic synced event
// claims that nothing is missing.
func TestInStep(t *testing.T) {
	behind := append([]answer{pageOf("10", "")}, answers(20, pageOf("30", ""))...)
	for _, c := range []struct {
		name   string
		watch  answer
		probes []answer
		second answer
		want   []time.Duration // since the begin: everything before that was received
		within time.Duration
	}{
		{"a bookmark behind the probe", then(20*time.Second, "", bookmark("31")), behind, closed(), []time.Duration{0}, 40 * time.Second},
		{"an event behind the probe", then(20*time.Second, "", frame("ADDED", "a", "31")), behind, closed(), []time.Duration{0}, 40 * time.Second},
		{"a bookmark at the probe, and nothing more", then(20*time.Second, "", bookmark("30")), behind, closed(), []time.Duration{0}, 40 * time.Second},
		{"a bookmark at the probe: more changes may have its version", then(20*time.Second, "", bookmark("30")), behind, closed(), nil, 24 * time.Second},
		{"a bookmark before the probe", then(20*time.Second, "", bookmark("29")), behind, closed(), nil, 40 * time.Second},
		{"nothing, and the second watch has nothing either", open(), behind, closed(), []time.Duration{95 * time.Second}, 2 * time.Minute},
		{"nothing, and the second watch hangs", open(), behind, open(), nil, 4 * time.Minute},
		{"nothing, and the second watch has a change", open(), behind, closed(frame("ADDED", "a", "20")), nil, 2 * time.Minute},
		{
			"the server has lost its etcd: the same bookmark again, and probes fail", paced(time.Minute, bookmark("31"), bookmark("31"), bookmark("31"), bookmark("31")),
			append(answers(2, pageOf("30", "")), answers(20, failing(500))...), closed(bookmark("31")),
			[]time.Duration{0},
			290 * time.Second,
		},
		{
			"another server than that of the watches answers the probes", paced(time.Minute, bookmark("29"), bookmark("29"), bookmark("29"), bookmark("29")),
			behind, closed(bookmark("29")), nil, 290 * time.Second,
		},
		{
			"a second watch at that server", paced(time.Minute, bookmark("29"), bookmark("29"), bookmark("29")),
			behind, closed(bookmark("30")),
			[]time.Duration{155 * time.Second},
			4 * time.Minute,
		},
		{"the server does not answer", failing(403), answers(20, failing(403)), closed(), nil, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, append([]answer{c.watch}, answers(20, failing(403))...))
				if len(c.want) == 0 || c.want[0] > 0 {
					s.watches[1] = open()
				}
				s.probes, s.secondWatches = c.probes, answers(9, c.second)
				var got []time.Duration
				begin := time.Now()
				r := run(t, Options{Client: inMemory(t, s), OnInStep: func(before time.Time) { got = append(got, before.Sub(begin)) }}, event.Position{RV: "10"}, nil)
				pass(c.within)
				r.stop()
				if len(got) != len(c.want) || len(got) > 0 && (got[0] < c.want[0] || got[0] > c.want[0]+probeEvery) {
					t.Errorf("in step as of %v, want %v", got, c.want)
				}
			})
		})
	}
}

// paced answers a watch with frames, each after a pause, and leaves it open.
func paced(pause time.Duration, frames ...string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for _, f := range frames {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
			}
			_, _ = w.Write([]byte(f))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
}

// A watch that was just opened has not brought yet what was missed. The collection is in step when it has passed what a probe showed.
func TestInStepAfterTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, []answer{paced(2*time.Second, frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), bookmark("13"))})
		s.probes = append(answers(2, pageOf("12", "")), answers(20, failing(500))...)
		received := 0
		var had []int
		r := run(t, Options{Client: inMemory(t, s), OnInStep: func(time.Time) { had = append(had, received) }}, event.Position{RV: "10"},
			func(context.Context, Signal) error { received++; return nil })
		pass(time.Minute)
		r.stop()
		if !slices.Equal(had, []int{3}) {
			t.Errorf("in step after %v signals, want once, after all three", had)
		}
	})
}

// Consumers of a periodic synced event rely on it that a quiet collection is shown to be complete about once a minute, and that no proof is older than
// two minutes. In the cluster of this test, something changes all the time.
func TestInStepOftenEnough(t *testing.T) {
	const minutes = 5
	for _, c := range []struct {
		name   string
		events time.Duration // between two events; 0: there are none
		marks  bool          // the server sends bookmarks
		lazy   bool          // what the server's cache knows comes from probes
		ends   time.Duration // when the server ends each watch
		breaks bool          // the server breaks it then, instead of ending it in order
		oldest time.Duration // the latest proof
	}{
		{"a quiet collection", 0, true, false, 0, false, 90 * time.Second},
		{"a quiet collection, and an etcd that reports progress only when it is asked", 0, true, true, 0, false, 100 * time.Second},
		{"a busy collection", time.Second, true, false, 0, false, 80 * time.Second},
		{"a collection with few events", 39 * time.Second, true, false, 0, false, 2 * time.Minute},
		{"no bookmarks", 0, false, false, 0, false, 125 * time.Second},
		{"a proxy that ends watches before their first bookmark", 0, true, false, 30 * time.Second, false, 150 * time.Second},
		{"such a proxy, and an event that each watch repeats", 1000 * time.Hour, true, false, 30 * time.Second, false, 150 * time.Second},
		{"a proxy that breaks watches after 15 s", 0, true, false, 15 * time.Second, true, 150 * time.Second},
		{"a proxy that breaks watches after 30 s", 0, true, false, 30 * time.Second, true, 150 * time.Second},
		{"a proxy that breaks watches after 60 s", 0, true, false, 60 * time.Second, true, 170 * time.Second}, // with or without a bookmark
		{"a proxy that breaks watches after 15 s, and no bookmarks", 0, false, false, 15 * time.Second, true, 150 * time.Second},
		{"a proxy that breaks watches after 30 s, and no bookmarks", 0, false, false, 30 * time.Second, true, 150 * time.Second},
		{"a proxy that breaks watches after 60 s, and no bookmarks", 0, false, false, 60 * time.Second, true, 150 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				version := func() string { return strconv.Itoa(1000 + int(time.Since(begin)/time.Millisecond)) }
				var known atomic.Value
				known.Store("1000")
				cached := func() string {
					if !c.lazy {
						return version()
					}
					return known.Load().(string)
				}
				s := newStub(t, nil, nil)
				watch := func(ends, mark time.Duration, breaks bool) answer {
					return func(w http.ResponseWriter, r *http.Request) {
						flush := func(text string) {
							_, _ = w.Write([]byte(text))
							_ = http.NewResponseController(w).Flush()
						}
						flush("")
						if c.events > time.Hour {
							flush(frame("ADDED", "a", "1000"))
						}
						over, marks, events := make(<-chan time.Time), make(<-chan time.Time), make(<-chan time.Time)
						if ends > 0 {
							over = time.After(ends)
						}
						if c.marks {
							marks = time.Tick(mark)
						}
						if c.events > 0 {
							events = time.Tick(c.events)
						}
						for {
							select {
							case <-r.Context().Done():
								return
							case <-over:
								if breaks {
									panic(http.ErrAbortHandler)
								}
								return
							case <-marks:
								flush(bookmark(cached()))
							case <-events:
								flush(frame("ADDED", "b", version()))
							}
						}
					}
				}
				s.watches, s.secondWatches = answers(30, watch(c.ends, time.Minute, c.breaks)), answers(30, watch(secondWatchFor, secondWatchFor-2*time.Second, false))
				s.probes = answers(100, func(w http.ResponseWriter, r *http.Request) {
					known.Store(version())
					pageOf(version(), "")(w, r)
				})
				proven, oldest, proofs := begin, time.Duration(0), 0
				r := run(t, Options{Client: inMemory(t, s), OnInStep: func(before time.Time) {
					oldest = max(oldest, time.Since(proven))
					proven = before
					proofs++
				}}, event.Position{RV: "999"}, nil)
				pass(minutes*time.Minute - time.Second)
				r.stop()
				if oldest = max(oldest, time.Since(proven)); oldest > c.oldest {
					t.Errorf("the last proof was up to %s old, want at most %s", oldest, c.oldest)
				}
				most := 4 * minutes
				if c.breaks { // one before each watch, and one when it is open
					most += 2 * len(s.await(1, true))
				}
				if n := len(s.probed); n > most {
					t.Errorf("%d probes in %d minutes", n, minutes)
				}
				if n := len(s.secondAsked); n > minutes {
					t.Errorf("%d second watches", n)
				}
				shown := slices.DeleteFunc(phases(r), func(phase string) bool { return c.breaks && phase == string(Waiting) })
				compare(t, slices.Compact(shown), []string{"watching"})
				t.Logf("%s: oldest %s, %d proofs, %d probes, %d second watches", c.name, oldest, proofs, len(s.probed), len(s.secondAsked))
			})
		})
	}
}

// Where resourceVersions are not numbers, nobody can see that the watch is behind a probe whose version it was at for less than settled. Such probes
// must not keep later ones from being a proof.
func TestInStepAfterProbesThatWereOvertaken(t *testing.T) {
	for _, overtaken := range []int{1, maxPending + 2} {
		t.Run(strconv.Itoa(overtaken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := func(n int) string { return fmt.Sprint("v", n) }
				frames := make(chan string, 100)
				s := newStub(t, nil, []answer{func(w http.ResponseWriter, r *http.Request) {
					for {
						_ = http.NewResponseController(w).Flush()
						select {
						case f := <-frames:
							_, _ = w.Write([]byte(f))
						case <-r.Context().Done():
							return
						}
					}
				}})
				var quiet time.Time
				s.probes = append([]answer{pageOf(version(0), "")}, answers(100, func(w http.ResponseWriter, r *http.Request) {
					n := len(s.probed) - 1
					if n > overtaken {
						pageOf(version(2*overtaken), "")(w, r)
						return
					}
					pageOf(version(2*n-1), "")(w, r)
					quiet = time.Now()
					frames <- frame("ADDED", "a", version(2*n-1)) + frame("ADDED", "b", version(2*n))
				})...)
				var proven []time.Time
				r := run(t, Options{Client: inMemory(t, s), OnInStep: func(before time.Time) { proven = append(proven, before) }}, event.Position{RV: version(0)}, nil)
				pass(time.Duration(overtaken) * time.Minute)
				r.stop()
				if len(r.received()) != 2*overtaken {
					t.Fatalf("received %v", r.received())
				}
				if len(proven) == 0 || proven[0].Sub(quiet) > quietFor+quietSpan/2 {
					t.Errorf("in step as of %v, and nothing changes since %s", proven, quiet)
				}
			})
		})
	}
}

// While OnInStep blocks, nothing is read. That no frame is handled then does not show that none follows.
func TestInStepWhileNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks = settled + 2*time.Second
		second := make(chan struct{})
		s := newStub(t, nil, []answer{func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-second
			time.Sleep(probeEvery - blocks/2) // so that the next probe is due while OnInStep blocks
			_, _ = w.Write([]byte(frame("ADDED", "a", "12")))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, _ = w.Write([]byte(frame("ADDED", "b", "12")))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}})
		s.probes = append([]answer{pageOf("10", ""), pageOf("11", ""), func(w http.ResponseWriter, r *http.Request) {
			pageOf("12", "")(w, r)
			close(second)
		}}, answers(100, pageOf("12", ""))...)
		var received atomic.Int32
		var had []int32
		r := run(t, Options{Client: inMemory(t, s), OnInStep: func(time.Time) {
			had = append(had, received.Load())
			time.Sleep(blocks)
		}}, event.Position{RV: "10"}, func(context.Context, Signal) error { received.Add(1); return nil })
		pass(90 * time.Second)
		r.stop()
		if len(had) < 2 || had[0] != 1 || had[1] != 2 {
			t.Errorf("in step after %v frames, want 1, which is behind the probe at 11, and then 2", had)
		}
	})
}

// Core Events never get bookmarks, and a quiet collection has no events: its watch stays open, and its state is unchanged.
func TestQuietIsNotStalled(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  answer
		second answer
	}{
		{"no bookmarks, and nothing new", open(), closed()},
		{"no bookmarks, and what was seen again", open(frame("ADDED", "a", "11")), closed(frame("ADDED", "a", "11"))},
		{"the history that the position needs is gone", open(), failing(410)},
		{"the history is gone, in the stream", open(), closed(errorFrame(410, "Expired"))},
		{"bookmarks, of what was seen", open(bookmark("11")), closed(bookmark("11"))},
		{"a server that ends no watches", open(), open()},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{c.first})
				s.secondWatches = answers(20, c.second)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(5*time.Minute - time.Second)
				r.stop()
				compare(t, phases(r), []string{"watching"})
				if n := len(s.await(1, true)); n != 1 {
					t.Errorf("%d watches", n)
				}
				if n := len(s.secondAsked); n < 1 || n > 7 {
					t.Errorf("%d second watches in five minutes", n)
				}
				if n := len(s.probed); n < 4 || n > 12 {
					t.Errorf("%d probes in five minutes", n)
				}
			})
		})
	}
}

// If the server's history has not moved, a watch without events is normal, and no second watch is opened.
func TestWatchInStepNeedsNoSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, []answer{open(bookmark("11"))})
		s.probes = answers(20, pageOf("11", ""))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(5*time.Minute - time.Second)
		r.stop()
		compare(t, phases(r), []string{"watching"})
		if len(s.secondAsked) > 0 {
			t.Errorf("%d second watches", len(s.secondAsked))
		}
	})
}

// When a server that has sent bookmarks sends none any more on two watches at once,
// it is not known whether it sends all changes.
func TestBookmarksStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, []answer{then(310*time.Second, bookmark("11"), bookmark("90"))})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(2 * time.Minute)
		if err := r.awaitState(Stalled, 1).Err; err == nil || !strings.Contains(err.Error(), "no bookmarks any more") {
			t.Errorf("stalled because of %v", err)
		}
		pass(180 * time.Second) // probes work, and yet it stays what it is
		got := phases(r)
		for _, p := range got[1:] {
			if p != string(Stalled) {
				t.Errorf("phases %v", got)
				break
			}
		}
		pass(20 * time.Second)
		r.awaitState(Watching, 2)
		r.stop()
	})
}

// If a second watch is refused, it stays unknown whether the first one is dead.
func TestSecondWatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		s.secondWatches = answers(20, failing(403))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(2 * time.Minute)
		if err := r.awaitState(Stalled, 1).Err; err == nil || !strings.HasPrefix(err.Error(), "second watch: the stub says") {
			t.Errorf("stalled because of %v", err)
		}
		r.stop()
	})
}

// freezer dials connections and can make all of them half-open: written data is lost, and nothing is received any more.
type freezer struct {
	dial func(context.Context, string, string) (net.Conn, error)

	mu    sync.Mutex
	conns []*frozenConn
	black bool // new ones hang
}

type frozenConn struct {
	net.Conn
	once   sync.Once
	frozen chan struct{}
	closed chan struct{}
}

func (f *freezer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	black := f.black
	f.mu.Unlock()
	if black {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := f.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	fc := &frozenConn{Conn: c, frozen: make(chan struct{}), closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, fc)
	return fc, nil
}

func (f *freezer) freeze(black bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		close(c.frozen)
	}
	f.conns, f.black = nil, black
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.black = false
}

func (c *frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *frozenConn) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

func (c *frozenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// HTTP/2 pings detect a half-open TCP connection of a watch; over HTTP/1.1 nothing does. Events from that time must be passed
// on within two minutes. If the whole network is down, the state must say it.
func TestHalfOpenConnection(t *testing.T) {
	for _, major := range []int{1, 2} {
		for _, black := range []bool{false, true} {
			t.Run(map[int]string{1: "HTTP1", 2: "HTTP2"}[major]+map[bool]string{false: "", true: ", network gone"}[black], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11")), open(frame("ADDED", "b", "12")), open(frame("ADDED", "b", "12")), open(frame("ADDED", "b", "12"))})
					s.secondWatches = answers(9, closed(frame("ADDED", "b", "12")))
					l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
					srv := &httptest.Server{Listener: l, EnableHTTP2: major == 2, Config: &http.Server{Handler: s}}
					cfg := &rest.Config{Host: "http://stub"}
					if major == 2 {
						srv.StartTLS()
						cfg.Host, cfg.Insecure = "https://stub", true
					} else {
						srv.Start()
					}
					t.Cleanup(srv.Close)
					net := &freezer{dial: l.dial}
					cfg.Dial = net.Dial
					r := run(t, Options{Client: newClient(t, cfg)}, event.Position{RV: "10"}, nil)
					pass(time.Second)
					if q := s.await(1, true)[0]; q.major != major {
						t.Fatalf("HTTP/%d", q.major)
					}
					net.freeze(black)
					pass(2 * time.Minute)
					if black {
						r.stateMu.Lock()
						last := r.states[len(r.states)-1]
						r.stateMu.Unlock()
						if last.Phase != Stalled && last.Phase != Waiting && last.Err == nil {
							t.Errorf("after two minutes without a network the state is %+v", last)
						}
						net.thaw()
						pass(2 * time.Minute)
					}
					r.stop()
					compare(t, r.received(), []string{"added a@11 >10", "added b@12 >10"})
				})
			})
		}
	}
}
