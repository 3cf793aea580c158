package source

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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
	for name, second := range map[string]answer{
		"by an event":    closed(frame("ADDED", "b", "12"), frame("ADDED", "c", "13")),
		"by a bookmark":  closed(frame("ADDED", "b", "12"), bookmark("90")),
		"by what is new": then(4*time.Second, frame("ADDED", "b", "12"), frame("ADDED", "c", "13")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11"), frame("ADDED", "b", "12")), open(frame("ADDED", "b", "12"), frame("ADDED", "c", "13"))})
				s.secondWatches = []answer{second}
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(2 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{"added a@11 >10", "added b@12 >11", "added b@12 >11", "added c@13 >12"})
				if rv := s.secondAsked[0].Get("resourceVersion"); rv != "11" || s.secondAsked[0].Get("allowWatchBookmarks") != "true" {
					t.Errorf("the second watch: %v", s.secondAsked[0].Values)
				}
				if rv := s.await(2, true)[1].Get("resourceVersion"); rv != "11" {
					t.Errorf("watched again from %s, want 11", rv)
				}
			})
		})
	}
}

// A reader that counts a watch as complete too early removes collections of deleted namespaces with what is unread.
func TestInStep(t *testing.T) {
	for _, c := range []struct {
		name   string
		watch  answer
		second answer
		want   []time.Duration // since the begin: everything before that was received
		within time.Duration
	}{
		{"a bookmark behind the probe", then(20*time.Second, "", bookmark("31")), closed(), []time.Duration{0}, 40 * time.Second},
		{"an event behind the probe", then(20*time.Second, "", frame("ADDED", "a", "31")), closed(), []time.Duration{0}, 40 * time.Second},
		{"a bookmark at the probe: more changes may have its version", then(20*time.Second, "", bookmark("30")), closed(), nil, 40 * time.Second},
		{"a bookmark before the probe", then(20*time.Second, "", bookmark("29")), closed(), nil, 40 * time.Second},
		{"nothing, and the second watch has nothing either", open(), closed(), []time.Duration{95 * time.Second}, 2 * time.Minute},
		{"nothing, and the second watch has a change", open(), closed(frame("ADDED", "a", "20")), nil, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, []answer{c.watch, open()})
				s.probes = append([]answer{pageOf("10", "")}, answers(20, pageOf("30", ""))...)
				s.secondWatches = answers(3, c.second)
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

// A time at which the API server had not answered counts as one up to which nothing is missing. A frame counts as of when it was read, and not as
// of when a slow handler had room for it.
func TestContact(t *testing.T) {
	slow := func(context.Context, Signal) error { time.Sleep(5 * time.Second); return nil }
	for _, c := range []struct {
		name   string
		watch  answer
		hook   func(context.Context, Signal) error
		probes []answer
		want   []time.Duration // since the begin, rounded to seconds
	}{
		{
			"a probe, the watch and frames, and then no answers",
			then(20*time.Second, frame("ADDED", "a", "31"), bookmark("32")+errorFrame(500, "InternalError")), nil,
			append([]answer{pageOf("30", ""), pageOf("30", "")}, answers(100, failing(403))...),
			[]time.Duration{0, 0, 20 * time.Second},
		},
		{
			"a handler that blocks",
			closed(frame("ADDED", "a", "31"), frame("ADDED", "b", "32"), errorFrame(500, "InternalError")), slow,
			append([]answer{pageOf("30", ""), pageOf("30", "")}, answers(100, failing(403))...),
			[]time.Duration{0, 0, 0},
		},
		{
			"the probe before the watch is refused",
			closed(errorFrame(500, "InternalError")), nil, answers(100, failing(403)), nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, append([]answer{c.watch}, answers(200, failing(403))...))
				s.probes = c.probes
				var got []time.Duration
				begin := time.Now()
				r := run(t, Options{Client: inMemory(t, s), OnContact: func(at time.Time) { got = append(got, at.Sub(begin).Round(time.Second)) }},
					event.Position{RV: "10"}, c.hook)
				pass(10 * time.Minute)
				r.stop()
				if !slices.Equal(got, c.want) {
					t.Errorf("contacts at %v, want %v", got, c.want)
				}
			})
		})
	}
}
