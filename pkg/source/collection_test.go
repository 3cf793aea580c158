package source

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signals (-want +got):\n%s", diff)
	}
}

// The watch continues from the resourceVersion of the first page. Otherwise changes during the later pages would be lost.
func TestSnapshotThenWatch(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t,
			[]answer{pageOf("100", "token 1&=", item("a", "5"), item("b", "7")), pageOf("105", "token 2"), pageOf("106", "", item("c", "9"))},
			[]answer{open(frame("ADDED", "d", "101"), frame("MODIFIED", "a", "104"), bookmark("110"), frame("DELETED", "b", "112"))})
		r := run(t, Options{Client: serve(s)}, event.Position{}, nil)
		got := r.await(t, 9)
		r.stop()
		compare(t, got, []string{
			"begun snapshot from ", "listed a@5", "listed b@7", "listed c@9", "ended 100 >100",
			"added d@101 >100", "modified a@104 >101", "progress 110 >104", "deleted b@112 >110",
		})
		if raw, want := string(r.signals[1].Object.Raw), `{"apiVersion":"v1","kind":"ConfigMap",`+item("a", "5")[1:]; raw != want {
			t.Errorf("a listed object: got %s, want %s", raw, want)
		}
		if o := r.signals[5].Object; o.Kind != "ConfigMap" || o.APIVersion != "v1" || o.UID != "uid-d" || o.Namespace != "s" {
			t.Errorf("a watched object: %+v", o)
		}

		lists := s.await(3, false)
		for i, token := range []string{"", "token 1&=", "token 2"} {
			q := lists[i]
			if q.Get("continue") != token {
				t.Errorf("page %d: continue %q, want %q", i, q.Get("continue"), token)
			}
			if n, err := strconv.Atoi(q.Get("limit")); err != nil || n < 1 || n > listwatch.MaxPage {
				t.Errorf("page %d: limit %q", i, q.Get("limit"))
			}
			if q.Has("resourceVersion") || q.Has("watch") {
				t.Errorf("page %d is not a consistent list: %v", i, q.Values)
			}
		}
		w := s.await(1, true)[0]
		if w.Get("resourceVersion") != "100" || w.Get("allowWatchBookmarks") != "true" {
			t.Errorf("watch: %v", w.Values)
		}
		if n, err := strconv.Atoi(w.Get("timeoutSeconds")); err != nil || n < 300 || n > 600 {
			t.Errorf("watch: timeoutSeconds %q, want 300 to 600", w.Get("timeoutSeconds"))
		}
		for _, q := range append(lists, w) {
			if q.Has("labelSelector") || q.Has("fieldSelector") {
				t.Errorf("a selector that nobody asked for: %v", q.Values)
			}
		}
		compare(t, phases(r), []string{"reconciling", "watching"})
	})
}

func phases(r *running) []string {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	var out []string
	for _, p := range r.phases {
		out = append(out, string(p))
	}
	return out
}

func TestSelection(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, []answer{pageOf("100", "")}, nil)
		s.path = "/api/v1/namespaces/payments/configmaps"
		target := configMaps(event.Collection{Namespace: "payments", LabelSelector: "audit=true,tier in (a,b)", FieldSelector: "metadata.name=x"})
		r := run(t, Options{Client: serve(s), Target: target}, event.Position{}, nil)
		s.await(1, true)
		r.stop()
		for _, q := range append(s.await(1, true), s.await(1, false)...) {
			if q.Get("labelSelector") != "audit=true,tier in (a,b)" || q.Get("fieldSelector") != "metadata.name=x" {
				t.Errorf("got %v", q.Values)
			}
		}
	})
}

func TestTargetPath(t *testing.T) {
	for _, c := range []struct {
		target Target
		want   string
	}{
		{Target{Resource: Resource{Version: "v1", Name: "pods"}}, "/api/v1/pods"},
		{Target{event.Collection{Namespace: "s"}, Resource{Version: "v1", Name: "pods"}}, "/api/v1/namespaces/s/pods"},
		{Target{Resource: Resource{Group: "apps", Version: "v1", Name: "deployments"}}, "/apis/apps/v1/deployments"},
		{Target{event.Collection{Namespace: "s"}, Resource{Group: "a.example.com", Version: "v1beta1", Name: "things"}}, "/apis/a.example.com/v1beta1/namespaces/s/things"},
	} {
		if got := c.target.path(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A position that can be resumed needs no list, because a list would be a gap.
func TestResume(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, []answer{open(frame("MODIFIED", "a", "120"))})
		r := run(t, Options{Client: serve(s)}, event.Position{RV: "115"}, nil)
		got := r.await(t, 1)
		r.stop()
		compare(t, got, []string{"modified a@120 >115"})
		if rv := s.await(1, true)[0].Get("resourceVersion"); rv != "115" {
			t.Errorf("watched from %s", rv)
		}
	})
}

func TestVoidPositionLists(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, []answer{pageOf("200", "")}, nil)
		r := run(t, Options{Client: serve(s)}, event.Position{RV: "115", Void: true}, nil)
		got := r.await(t, 2)
		s.await(1, true)
		r.stop()
		compare(t, got, []string{"begun interrupted from 115", "ended 200 >200"})
		if r.signals[0].Detail == "" {
			t.Error("no word of why")
		}
	})
}

// After a watch ends without an error, the next watch begins where all events are known to be passed on. Later events come
// again.
func TestWatchEnds(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, []answer{
			closed(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), frame("ADDED", "c", "12")),
			closed(frame("ADDED", "b", "12"), frame("ADDED", "c", "12"), frame("ADDED", "d", "12"), bookmark("20")),
		})
		r := run(t, Options{Client: serve(s)}, event.Position{RV: "10"}, nil)
		watches := s.await(3, true)
		r.stop()
		compare(t, r.received(), []string{
			"added a@11 >10", "added b@12 >11", "added c@12 >11",
			"added b@12 >11", "added c@12 >11", "added d@12 >11", "progress 20 >12",
		})
		for i, want := range []string{"10", "11", "12"} {
			if got := watches[i].Get("resourceVersion"); got != want {
				t.Errorf("watch %d: from %s, want %s", i, got, want)
			}
		}
	})
}

// Every form of "gone" must lead to a list, and never to silence, if more connections, possibly to other servers, get the same
// answer.
func TestExpired(t *testing.T) {
	const detail = "resourceVersion 10 is no longer served"
	for _, c := range []struct {
		name    string
		watches []answer
	}{
		{"410 at open", answers(1+otherServers, status(http.StatusGone, "Expired"))},
		{"410 at open, reason Gone", answers(1+otherServers, status(http.StatusGone, "Gone"))},
		{"410 at open, no status in the body", answers(1+otherServers, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "it is gone", http.StatusGone)
		})},
		{"410 in the stream", answers(1+otherServers, open(errorFrame(http.StatusGone, "Expired")))},
		{"in the stream, reason Expired alone", answers(1+otherServers, open(errorFrame(0, "Expired")))},
		{"in the stream, reason Gone alone", answers(1+otherServers, open(errorFrame(0, "Gone")))},
		{"410 in the stream, after an event", answers(1+otherServers, open(frame("ADDED", "x", "11"), errorFrame(http.StatusGone, "Expired")))},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("50", "", item("a", "40"))}, c.watches)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(5 * time.Second)
				r.stop()
				watches := s.await(len(c.watches)+1, true)
				got := r.received()
				for strings.HasPrefix(got[0], "added x@11 >10") {
					got = got[1:]
				}
				compare(t, got, []string{"begun expired from 10", "listed a@40", "ended 50 >50"})
				if d := r.signals[len(r.signals)-3].Detail; !strings.HasPrefix(d, detail) {
					t.Errorf("detail %q does not begin with %q", d, detail)
				}
				if rv := watches[len(watches)-1].Get("resourceVersion"); rv != "50" {
					t.Errorf("watched from %s after the list", rv)
				}
			})
		})
	}
}

// Two empty watches followed by one with events are normal server behavior, not a gap.
func TestTwoEmptyWatchesAreNoGap(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, []answer{closed(), closed(), closed(bookmark("11")), closed(), closed()})
		r := run(t, Options{Client: serve(s)}, event.Position{RV: "10"}, nil)
		s.await(6, true)
		r.stop()
		compare(t, r.received(), []string{"progress 11 >10"})
	})
}

// An object whose frame is cut off is not passed on, and comes again with the next watch.
func TestBrokenWatch(t *testing.T) {
	half := frame("ADDED", "c", "13")[:40]
	for _, c := range []struct {
		name  string
		watch answer
	}{
		{"the connection breaks in a frame", broken(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), half)},
		{"the connection breaks between frames", broken(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"))},
		{"the stream ends in a frame", closed(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), half)},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				s := newStub(t, nil, []answer{c.watch, open(frame("ADDED", "b", "12"), frame("ADDED", "c", "13"))})
				r := run(t, Options{Client: serve(s)}, event.Position{RV: "10"}, nil)
				got := r.await(t, 4)
				r.stop()
				compare(t, got, []string{"added a@11 >10", "added b@12 >11", "added b@12 >11", "added c@13 >12"})
				if rv := s.await(2, true)[1].Get("resourceVersion"); rv != "11" {
					t.Errorf("watched again from %s, want 11", rv)
				}
				if st := r.awaitState(Waiting, 1); st.Err == nil || !st.Until.After(st.Since) {
					t.Errorf("state %+v", st)
				}
			})
		})
	}
}

// One ConfigMap full of "<" is 6.24 MB on the wire.
func TestLargeFrame(t *testing.T) {
	big := frame("ADDED", "big", "11")
	big = strings.Replace(big, `"metadata"`, `"data":{"k":"`+strings.Repeat(`\u003c`, 1_040_000)+`"},"metadata"`, 1)
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, []answer{open(big, frame("ADDED", "small", "12"))})
		r := run(t, Options{Client: serve(s)}, event.Position{RV: "10"}, nil)
		got := r.await(t, 2)
		r.stop()
		compare(t, got, []string{"added big@11 >10", "added small@12 >11"})
		if n := len(r.signals[0].Object.Raw); n < 6_240_000 {
			t.Errorf("%d bytes", n)
		}
	})
}

// Cancellation must end a collection at once, in every state, and leave no goroutine behind (TestMain checks that).
func TestCancelEndsRun(t *testing.T) {
	block := func(ctx context.Context, _ Signal) error { <-ctx.Done(); return ctx.Err() }
	slow := open // a list that never comes
	for _, c := range []struct {
		name           string
		lists, watches []answer
		hook           func(context.Context, Signal) error
		until          func(*running, *stub)
	}{
		{"while it watches", []answer{pageOf("5", "")}, nil, nil, func(r *running, s *stub) { r.awaitState(Watching, 1) }},
		{"while a list is on its way", []answer{slow()}, nil, nil, func(_ *running, s *stub) { s.await(1, false) }},
		{"while it waits", []answer{status(http.StatusForbidden, "Forbidden")}, nil, nil, func(r *running, _ *stub) { r.awaitState(Waiting, 1) }},
		{"while a page is tried again", []answer{status(http.StatusInternalServerError, "InternalError")}, nil, nil, func(_ *running, s *stub) { s.await(1, false) }},
		{"while the handler blocks in a list", []answer{pageOf("5", "")}, nil, block, func(r *running, _ *stub) { r.await(r.t, 1) }},
		{"while the handler blocks in a watch", []answer{pageOf("5", "")}, []answer{open(frame("ADDED", "a", "6"))}, func(ctx context.Context, s Signal) error {
			if s.Kind == Added {
				return block(ctx, s)
			}
			return nil
		}, func(r *running, _ *stub) { r.await(r.t, 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				s := newStub(t, c.lists, c.watches)
				r := run(t, Options{Client: serve(s)}, event.Position{}, c.hook)
				c.until(r, s)
				begin := time.Now()
				r.stop()
				if d := time.Since(begin); d > 20*time.Second {
					t.Errorf("it took %s", d)
				}
			})
		})
	}
}

// The handler's error must be returned unchanged.
func TestHandlerErrorEndsRun(t *testing.T) {
	mine := errors.New("mine")
	for _, kind := range []SignalKind{ListBegun, Listed, ListEnded, Added, Progress} {
		overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
			s := newStub(t, []answer{pageOf("5", "", item("a", "3"))}, []answer{open(frame("ADDED", "b", "6"), bookmark("9"))})
			r := run(t, Options{Client: serve(s)}, event.Position{}, func(_ context.Context, s Signal) error {
				if s.Kind == kind {
					return mine
				}
				return nil
			})
			if err := <-r.done; err != mine {
				t.Errorf("signal %d: got %v, want %v", kind, err, mine)
			}
			if last := r.signals[len(r.signals)-1].Kind; last != kind {
				t.Errorf("signal %d came after the error in %d", last, kind)
			}
		})
	}
}
