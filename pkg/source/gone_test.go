package source

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// Resuming 3: a restarted API server no longer has events that another one behind the load balancer still serves. A gap would
// be wrong then.
func TestAnotherServerStillHasTheHistory(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, nil)
		var mu sync.Mutex
		restarted, watches := "", []string(nil) // connections
		end := make(chan struct{})
		balancer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "true" {
				s.ServeHTTP(w, r)
				return
			}
			mu.Lock()
			if restarted == "" {
				restarted = r.RemoteAddr
			}
			watches = append(watches, r.RemoteAddr)
			n := len(watches)
			mu.Unlock()
			switch {
			case r.RemoteAddr == restarted && n == 1:
				status(http.StatusGone, "Expired")(w, r)
			case n == 2:
				_, _ = w.Write([]byte(frame("ADDED", "a", "11") + frame("ADDED", "b", "12")))
				_ = http.NewResponseController(w).Flush()
				<-end
			default:
				open(frame("ADDED", "b", "12"), frame("ADDED", "c", r.URL.Query().Get("resourceVersion")+"9"))(w, r)
			}
		})
		r := run(t, Options{Client: serve(balancer)}, event.Position{RV: "10"}, nil)
		r.await(t, 2)
		close(end)
		got := r.await(t, 4)
		r.stop()
		compare(t, got, []string{"added a@11 >10", "added b@12 >11", "added b@12 >11", "added c@119 >12"})
		if watches[1] == restarted {
			t.Error("the second try went over the connection that had said 410")
		}
		if watches[2] == watches[1] {
			t.Error("a throw-away connection was used again")
		}
	})
}

// A 410 from one server is not a gap if another server still has the history.
func TestTriesOtherServers(t *testing.T) {
	for name, gone := range map[string]answer{
		"410 at open":      status(http.StatusGone, "Expired"),
		"410 in stream":    open(errorFrame(http.StatusGone, "Expired")),
		"refused, and 410": status(http.StatusGone, "Expired"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watches := answers(2, gone)
				if strings.HasPrefix(name, "refused") {
					watches = []answer{gone, status(http.StatusServiceUnavailable, "ServiceUnavailable")}
				}
				s := newStub(t, nil, append(watches, open(frame("ADDED", "a", "11"))))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(5 * time.Second)
				r.stop()
				compare(t, r.received(), []string{"added a@11 >10"})
			})
		})
	}
}

// A server that never begins to answer must not look like a server without events.
func TestWatchThatIsNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		s := newStub(t, nil, []answer{never, open(frame("ADDED", "a", "11"))})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(2 * time.Minute)
		if err := r.awaitState(Waiting, 1).Err; err == nil || !strings.Contains(err.Error(), "no answer within 1m30s") {
			t.Errorf("waiting because of %v", err)
		}
		r.stop()
		compare(t, r.received(), []string{"added a@11 >10"})
	})
}

// A frame larger than any object is the server's failure. The watch is retried several times, and in the end a list must close
// the gap.
func TestFrameTooLargeAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := frame("ADDED", "b", "12")
		big = strings.Replace(big, `"metadata"`, `"data":"`+strings.Repeat("x", maxFrame)+`","metadata"`, 1)
		watches := answers(listwatch.MaxFailures+otherServers, open(frame("ADDED", "a", "11"), big))
		s := newStub(t, []answer{pageOf("50", "", item("a", "11"))}, watches)
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(5 * time.Minute)
		r.stop()
		want := []string{}
		for range watches {
			want = append(want, "added a@11 >10")
		}
		compare(t, r.received(), append(want, "begun expired from 10", "listed a@11", "ended 50 >50"))
		if d := r.signals[len(want)].Detail; !strings.Contains(d, fmt.Sprint("more than ", maxFrame, " bytes")) {
			t.Errorf("detail %q does not say why", d)
		}
	})
}

// A list that breaks off after its begin has voided the position, for any cause of the failure. The next list is marked as
// interrupted.
func TestBrokenListIsInterrupted(t *testing.T) {
	for _, code := range []int{403, 404, 410, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := []answer{pageOf("60", "token", item("a", "5"))}
				tries := 1
				if code == 500 {
					tries = listwatch.PageTries
				}
				lists = append(lists, answers(tries, status(code, "ItIsSo"))...)
				lists = append(lists, status(code, "ItIsSo")) // refused before it begins, it stays interrupted
				if code == 500 {
					lists = append(lists, answers(listwatch.PageTries-1, status(code, "ItIsSo"))...)
				}
				s := newStub(t, append(lists, pageOf("70", "", item("a", "5"))), answers(1+otherServers, status(http.StatusGone, "Expired")))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(5 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{
					"begun expired from 10", "listed a@5",
					"begun interrupted from 10", "listed a@5", "ended 70 >70",
				})
			})
		})
	}
}
