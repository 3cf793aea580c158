package source

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// pass lets the fake time pass, and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A refusal proves nothing. No list begins, and none ends, because the end of a list would declare every object deleted.
func TestRefusedListIsNoList(t *testing.T) {
	for _, code := range []int{401, 403, 404, 429, 500, 503, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refuse := func(w http.ResponseWriter, r *http.Request) { status(code, "ItIsSo")(w, r) }
				s := newStub(t, append(answers(40, refuse), pageOf("9", "", item("a", "4"))), nil)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "3", Void: true}, nil)
				pass(time.Minute)
				if got := r.received(); len(got) > 0 {
					t.Fatalf("received %v", got)
				}
				r.stateMu.Lock()
				last := r.states[len(r.states)-1]
				r.stateMu.Unlock()
				if last.Phase != Waiting && last.Phase != Reconciling {
					t.Errorf("phase %s", last.Phase)
				}
				waiting := r.awaitState(Waiting, 1)
				if !strings.Contains(waiting.Err.Error(), "the stub says ItIsSo") {
					t.Errorf("it does not say why it waits: %v", waiting.Err)
				}
				asked := len(s.await(1, false))
				if asked < 4 || asked > 40 {
					t.Errorf("asked %d times in a minute", asked)
				}
				pass(30 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{"begun interrupted from 3", "listed a@4", "ended 9 >9"})
			})
		})
	}
}

// RBAC revoked, a version no longer served, an API server that is not ready: the
// position is kept, and nothing is passed on.
func TestRefusedWatchKeepsThePosition(t *testing.T) {
	for _, code := range []int{401, 403, 404, 429, 500, 503, 504} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, append(answers(9, status(code, "ItIsSo")), open(frame("ADDED", "a", "11"))))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(4 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{"added a@11 >10"})
				watches := s.await(10, true)
				for i, w := range watches {
					if w.Get("resourceVersion") != "10" {
						t.Errorf("watch %d: from %s", i, w.Get("resourceVersion"))
					}
					if i > 0 {
						wait, least := w.at.Sub(watches[i-1].at), min(listwatch.FirstRetry<<(i-1), 30*time.Second)
						most := least * 3 / 2
						if i == 1 {
							least, most = 0, listwatch.FirstRetry
						}
						if wait < least || wait > most {
							t.Errorf("try %d came after %s, want %s to %s", i, wait, least, most)
						}
					}
				}
			})
		})
	}
}

// An API server that is reachable again is found within seconds, however long it was away: while none can be reached, the
// bridge's position gets older and may expire.
func TestUnreachableServerIsFoundSoon(t *testing.T) {
	for _, outage := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
		for name, failure := range map[string]error{
			"refused": &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
			"cut off": io.EOF,
		} {
			t.Run(fmt.Sprintf("%s for %s", name, outage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11"))})
					cfg := inMemoryConfig(t, s)
					dial, back := cfg.Dial, time.Now().Add(outage)
					tries := 0
					cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
						if time.Now().Before(back) {
							tries++
							return nil, failure
						}
						return dial(ctx, network, address)
					}
					r := run(t, Options{Client: newClient(t, cfg)}, event.Position{RV: "10"}, nil)
					time.Sleep(time.Until(back) + listwatch.UnreachableRetry)
					synctest.Wait()
					r.stop()
					compare(t, r.received(), []string{"added a@11 >10"})
					if most := 2*int(outage/(listwatch.UnreachableRetry/2)) + 20; tries > most {
						t.Errorf("it was tried %d times, want at most %d", tries, most)
					}
				})
			})
		}
	}
}

// Most important while a CRD's storage is (re)initializing.
func TestRetryAfter(t *testing.T) {
	for name, refuse := range map[string]answer{
		"in a header": func(w http.ResponseWriter, _ *http.Request) { // priority and fairness
			w.Header().Set("Retry-After", "7")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		},
		"in a status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(strings.Replace(statusText(429, "TooManyRequests"), `"code"`, `"details":{"retryAfterSeconds":7},"code"`, 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{refuse, pageOf("9", "")}, []answer{refuse, open(frame("ADDED", "a", "11"))})
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
				pass(time.Minute)
				r.stop()
				compare(t, r.received(), []string{"begun snapshot from ", "ended 9 >9", "added a@11 >9"})
				for _, watch := range []bool{false, true} {
					asked := s.await(2, watch)
					if d := asked[1].at.Sub(asked[0].at); d < 7*time.Second || d > 8*time.Second {
						t.Errorf("watch=%t: again after %s, want 7 s", watch, d)
					}
				}
			})
		})
	}
}

// A proxy that answers Retry-After with a day does not stop a collection for a day.
func TestRetryAfterIsBounded(t *testing.T) {
	for _, seconds := range []int{121, 86400} {
		refused := apierrors.NewTooManyRequests("later", seconds)
		if d := listwatch.NewBackoff().After(refused); d != listwatch.LongestRetry {
			t.Errorf("Retry-After: %d is heeded for %s, want %s", seconds, d, listwatch.LongestRetry)
		}
	}
}

// If a continue token expires, the list does not end; it begins again.
func TestContinueTokenGone(t *testing.T) {
	for name, gone := range map[string]answer{
		"410": status(http.StatusGone, "Expired"),
		"reason alone": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(statusText(0, "Expired")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{
					pageOf("100", "token", item("a", "5")), gone,
					pageOf("120", "token", item("b", "110")), pageOf("120", "", item("c", "111")),
				}, nil)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
				pass(time.Minute)
				r.stop()
				compare(t, r.received(), []string{
					"begun snapshot from ", "listed a@5",
					"begun interrupted from ", "listed b@110", "listed c@111", "ended 120 >120",
				})
				lists := s.await(4, false)
				for i, want := range []string{"", "token", "", "token"} {
					if got := lists[i].Get("continue"); got != want {
						t.Errorf("list %d: continue %q, want %q", i, got, want)
					}
				}
				if rv := s.await(1, true)[0].Get("resourceVersion"); rv != "120" {
					t.Errorf("watched from %s", rv)
				}
			})
		})
	}
}

// A later page that fails is requested again with its token. If it keeps failing, the list stops without its end.
func TestLaterPageFails(t *testing.T) {
	for name, fail := range map[string]answer{
		"500":                 status(http.StatusInternalServerError, "InternalError"),
		"a broken connection": broken(`{"metadata":{"resourceVersion":"100"},"items":[` + item("x", "9")),
		"half a page":         text200(`{"metadata":{"resourceVersion":"100"},"items":[` + item("x", "9")),
		"no list at all":      text200(`{"hello":"world"}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := []answer{pageOf("100", "token", item("a", "5")), fail, pageOf("100", "token 2", item("b", "6"))}
				lists = append(lists, answers(listwatch.PageTries, fail)...)
				lists = append(lists, pageOf("130", "", item("c", "7")))
				s := newStub(t, lists, nil)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
				pass(5 * time.Minute)
				r.stop()
				compare(t, r.received(), []string{
					"begun snapshot from ", "listed a@5", "listed b@6",
					"begun interrupted from ", "listed c@7", "ended 130 >130",
				})
				for i, q := range s.await(len(lists), false) {
					want := "token 2"
					switch {
					case i == 0 || i == len(lists)-1:
						want = ""
					case i < 3:
						want = "token"
					}
					if got := q.Get("continue"); got != want {
						t.Errorf("list %d: continue %q, want %q", i, got, want)
					}
				}
			})
		})
	}
}

// A pipeline that waits for its bus must not occupy the API server's buffers. The watch is closed, and the next one starts from
// the last signal that was passed on.
func TestBlockedHandlerClosesTheWatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		block time.Duration
		ends  bool
	}{{"longer than allowed", listwatch.MaxBlocked + 20*time.Second, true}, {"shorter", listwatch.MaxBlocked - time.Second, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var frames []string
				for rv := 11; rv < 200; rv++ {
					frames = append(frames, frame("ADDED", fmt.Sprint("o", rv), fmt.Sprint(rv)))
				}
				// The handler blocks in 13. What was read ahead is passed on before the next watch.
				const last = 13 + aheadFrames
				s := newStub(t, nil, []answer{open(frames...), open(frames[last-11:]...)})
				blocked := false
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, func(_ context.Context, s Signal) error {
					if s.Object.Name == "o13" && !blocked {
						blocked = true
						time.Sleep(c.block)
					}
					return nil
				})
				begin := time.Now()
				synctest.Wait()
				if got := len(r.received()); got != 3 {
					t.Fatalf("%d signals while the handler blocks", got)
				}
				first := s.await(1, true)[0]
				pass(listwatch.MaxBlocked - time.Second/2)
				select {
				case <-first.gone:
					t.Fatalf("the watch was closed after %s", time.Since(begin))
				default:
				}
				pass(time.Second)
				select {
				case <-first.gone:
					if !c.ends {
						t.Fatal("the watch was closed")
					}
				default:
					if c.ends {
						t.Fatal("the watch is still open")
					}
				}
				pass(time.Minute)
				r.stop()

				got, want := r.received(), []string{"added o11@11 >10", "added o12@12 >11", "added o13@13 >12"}
				for rv := 14; rv <= last; rv++ {
					want = append(want, fmt.Sprintf("added o%d@%d >%d", rv, rv, rv-1))
				}
				if c.ends { // further events may have the last resourceVersion
					w := s.await(2, true)
					if got, want := w[1].Get("resourceVersion"), fmt.Sprint(last-1); got != want {
						t.Errorf("watched again from %s, want %s", got, want)
					}
					if d := w[1].at.Sub(begin); d < c.block || d > c.block+time.Second {
						t.Errorf("watched again after %s, while the handler blocked for %s", d, c.block)
					}
				}
				for rv := last + 1; rv < 200; rv++ {
					want = append(want, fmt.Sprintf("added o%d@%d >%d", rv, rv, rv-1))
				}
				compare(t, got, want)
			})
		})
	}
}

// A handler that takes longer than listwatch.MaxBlocked for every event, which closes each watch, receives every event once, also if the server has no
// later event, or many at one resourceVersion.
func TestHandlerThatAlwaysBlocks(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("l", 2*slowBytes)
	for name, rvs := range map[string][]int{
		"one event":             {11},
		"each its own":          {11, 12, 13, 14},
		"all at one":            {11, 11, 11, 11},
		"many at one, then one": append(slices.Repeat([]int{11}, aheadFrames+8), 12),
	} {
		for _, size := range []int{1, aheadBytes, len(large)} {
			t.Run(fmt.Sprint(name, ", ", size), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var all, want []string
					for i, rv := range rvs {
						object := fmt.Sprint(i, large[:size])
						all = append(all, frame("ADDED", object, fmt.Sprint(rv)))
						want = append(want, object+"@"+fmt.Sprint(rv))
					}
					s := newStub(t, nil, answers(1000, func(w http.ResponseWriter, r *http.Request) {
						from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
						var later []string
						for i, rv := range rvs {
							if rv > from {
								later = append(later, all[i])
							}
						}
						open(later...)(w, r)
					}))
					r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, func(context.Context, Signal) error {
						time.Sleep(listwatch.MaxBlocked + time.Second)
						return nil
					})
					pass(time.Duration(len(rvs)+4) * (listwatch.MaxBlocked + 2*time.Second))
					r.stop()
					var got []string
					for _, s := range r.signals {
						got = append(got, s.Object.Name+"@"+s.Object.ResourceVersion)
					}
					compare(t, got, want)
				})
			})
		}
	}
}

// The server may go back to an earlier history while the handler blocks. An event of the new history is passed on, although it has the
// resourceVersion and the object of one that was handled.
func TestBlockedHandlerAndAnotherHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := strings.Replace(frame("MODIFIED", "a", "11"), `"uid"`, `"labels":{"new":"true"},"uid"`, 1)
		s := newStub(t, nil, []answer{open(frame("MODIFIED", "a", "11")), open(changed)})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, func(context.Context, Signal) error {
			time.Sleep(listwatch.MaxBlocked + time.Second)
			return nil
		})
		pass(time.Minute)
		r.stop()
		compare(t, r.received(), []string{"modified a@11 >10", "modified a@11 >10"})
	})
}

// A slow pipeline that goes on keeps its watch, also where the frames that were read together take longer than one may.
func TestSlowHandlerKeepsTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), frame("ADDED", "c", "13"), frame("ADDED", "d", "14"))})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, func(context.Context, Signal) error {
			time.Sleep(listwatch.MaxBlocked / 2)
			return nil
		})
		pass(time.Minute)
		r.stop()
		compare(t, r.received(), []string{"added a@11 >10", "added b@12 >11", "added c@13 >12", "added d@14 >13"})
		if n := len(s.await(1, true)); n != 1 {
			t.Errorf("%d watches, want one", n)
		}
	})
}

// A watch of large objects is not read ahead of what is handled.
func TestReadAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		s := &stream{
			watched: &watched{all: new(watches)}, cancel: func() {}, body: from, room: make(chan struct{}, 1), closed: make(chan struct{}),
		}
		u := s.newSubscriber("10")
		s.subscribers = []*subscriber{u}
		s.reader.Go(func() { s.read(&Collection{}, newFrameReader(from, keepBuffer, &pieces{})) })
		defer u.close()
		large := frame("ADDED", strings.Repeat("o", aheadBytes), "11")
		var written atomic.Int64
		go func() {
			for range 3 {
				_, _ = io.WriteString(to, large) // fails at the end
				written.Add(1)
			}
		}()
		for n := range int64(3) {
			synctest.Wait()
			if got := written.Load(); got > n+1 {
				t.Fatalf("%d frames were read, and %d were handled", got, n)
			}
			f, ok := u.next()
			if !ok {
				t.Fatalf("frame %d did not arrive", n)
			}
			u.handled(f.size())
		}
	})
}

// Over HTTP/1.1 nobody notices a connection that is half open.
func TestSilentWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, []answer{open(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"))})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(2*listwatch.MinWatch + listwatch.GraceWatch + time.Second)
		watches := s.await(2, true)
		r.stop()
		if rv := watches[1].Get("resourceVersion"); rv != "11" {
			t.Errorf("watched again from %s, want 11", rv)
		}
		asked, err := time.ParseDuration(watches[0].Get("timeoutSeconds") + "s")
		if err != nil {
			t.Fatal(err)
		}
		if d := watches[1].at.Sub(watches[0].at); d < asked+listwatch.GraceWatch || d > asked+listwatch.GraceWatch+3*time.Second {
			t.Errorf("watched again after %s, having asked for %s", d, asked)
		}
	})
}

// Empty watches that last for a normal time belong to a quiet collection.
func TestSlowEmptyWatchesAreNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, answers(20, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		}))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(time.Minute)
		s.await(21, true)
		r.stop()
		compare(t, r.received(), nil)
	})
}

// A server that ends every watch after the same event must not get requests without a pause. A server whose watches make
// progress must not be delayed.
func TestWatchesThatLeadNowhereArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, answers(1000, closed(frame("ADDED", "a", "11"))))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(10 * time.Minute)
		waiting := r.awaitState(Waiting, 1)
		r.stop()
		if n := len(s.await(2, true)); n < 15 || n > 30 {
			t.Errorf("%d watches in ten minutes", n)
		}
		if waiting.Err == nil || !strings.Contains(waiting.Err.Error(), "from resourceVersion 10 ended at once") {
			t.Errorf("it waits for %v", waiting.Err)
		}
	})
	t.Run("but not where they lead on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var watches []answer
			for rv := 11; rv < 61; rv++ {
				watches = append(watches, closed(frame("ADDED", "a", fmt.Sprint(rv)), frame("ADDED", "a", fmt.Sprint(rv+1))))
			}
			s := newStub(t, nil, watches)
			began := time.Now()
			r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
			last := s.await(len(watches)+1, true)[len(watches)]
			r.stop()
			if d := last.at.Sub(began); d > 0 {
				t.Errorf("they took %s", d)
			}
		})
	})
}

// A server that lists, but answers every watch with 410, must not get list requests without a pause.
func TestListsThatLeadNowhereArePaced(t *testing.T) {
	for name, gone := range map[string]answer{
		"410 at open":   status(http.StatusGone, "Expired"),
		"empty watches": closed(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, answers(1000, pageOf("50", "")), answers(4000, gone))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(10 * time.Minute)
				r.stop()
				lists := s.await(2, false)
				if n := len(lists); n < 10 || n > 30 {
					t.Errorf("%d lists in ten minutes", n)
				}
				got := r.received()
				compare(t, got[:4], []string{"begun expired from 10", "ended 50 >50", "begun expired from 50", "ended 50 >50"})
			})
		})
	}
}

// But when the last one ended a while ago, a position that is gone is listed again
// without a pause.
func TestListAfterAQuietWhileIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Second)
		}
		s := newStub(t, answers(2, pageOf("50", "")), append([]answer{quiet}, answers(1+otherServers, status(http.StatusGone, "Expired"))...))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
		pass(time.Minute)
		r.stop()
		last := s.await(2+otherServers, true)[1+otherServers]
		if d := s.await(2, false)[1].at.Sub(last.at); d > 100*time.Millisecond {
			t.Errorf("the list came %s after the last answer that the position is gone", d)
		}
	})
}

// An event whose previous value etcd has compacted cannot be read again by any number of retries, so in the end a list must
// close the gap.
func TestErrorInTheStreamAgainAndAgain(t *testing.T) {
	cannot := errorFrame(http.StatusInternalServerError, "InternalError")
	synctest.Test(t, func(t *testing.T) {
		stuck := open(frame("ADDED", "b", "12"), cannot)
		watches := append([]answer{open(frame("ADDED", "a", "11"), frame("ADDED", "b", "12"), cannot)}, answers(listwatch.MaxFailures-1+otherServers, stuck)...)
		watches = append(watches, open(frame("ADDED", "c", "51")))
		s := newStub(t, []answer{pageOf("50", "", item("a", "11"))}, watches)
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(5 * time.Minute)
		r.stop()
		want := []string{"added a@11 >10"}
		for range listwatch.MaxFailures + otherServers {
			want = append(want, "added b@12 >11")
		}
		compare(t, r.received(), append(want, "begun expired from 11", "listed a@11", "ended 50 >50", "added c@51 >50"))
	})
	t.Run("but not when the watch gets on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var watches []answer
			for rv := 11; rv < 11+2*listwatch.MaxFailures; rv++ {
				watches = append(watches, open(frame("ADDED", "a", fmt.Sprint(rv)), frame("ADDED", "a", fmt.Sprint(rv+1)), cannot))
			}
			s := newStub(t, nil, watches)
			r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
			pass(10 * time.Minute)
			s.await(len(watches)+1, true)
			r.stop()
			if n := len(r.received()); n != 2*len(watches) {
				t.Errorf("%d signals: %v", n, r.received())
			}
		})
	})
}

// A frame that cannot be processed must not be requested twice a second without end.
func TestPoisonedFrameIsPaced(t *testing.T) {
	for name, poison := range map[string]string{
		"an unknown type": frame("RENAMED", "b", "12"),
		"no object":       `{"type":"ADDED","object":{}}`,
		"no JSON":         `{"type":"ADDED","object":<html>}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, answers(1000, open(frame("ADDED", "a", "11"), poison)))
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(10 * time.Minute)
				waiting := r.awaitState(Waiting, 10)
				r.stop()
				for _, line := range r.received() {
					if !strings.HasPrefix(line, "added a@11 ") {
						t.Errorf("received %s", line)
					}
				}
				if n := len(r.received()); n < 15 || n > 30 {
					t.Errorf("%d watches in ten minutes", n)
				}
				if waiting.Err == nil || !strings.HasPrefix(waiting.Err.Error(), "watch: ") {
					t.Errorf("it does not say why it waits: %v", waiting.Err)
				}
			})
		})
	}
}

// A connection that breaks sometimes is opened again at once.
func TestBackoffStartsAnewAfterASoundWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		breaks := func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(listwatch.SoundWatch + time.Second)
			panic(http.ErrAbortHandler)
		}
		s := newStub(t, nil, answers(10, breaks))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(20 * time.Minute)
		r.stop()
		watches := s.await(11, true)
		for i := range 10 {
			if d := watches[i+1].at.Sub(watches[i].at) - listwatch.SoundWatch - time.Second; d > time.Second {
				t.Errorf("try %d came after %s", i+1, d)
			}
		}
	})
}

// attempts implements [Slots] without a bound, and notes how long each list had its slot.
type attempts []string

func (a *attempts) Acquire(_ context.Context, n Attempt) error {
	*a = append(*a, map[Attempt]string{First: "first", Retry: "retry"}[n]+" "+time.Now().Format("15:04:05"))
	return nil
}

func (a *attempts) Release(Attempt) { (*a)[len(*a)-1] += " " + time.Now().Format("15:04:05") }

// dribble answers at once with headers, and then with the text in pieces of n bytes, one after each d.
func dribble(text string, n int, d time.Duration) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		for rest := text; rest != ""; {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				return
			}
			piece := rest[:min(n, len(rest))]
			rest = rest[len(piece):]
			_, _ = io.WriteString(w, piece)
		}
	}
}

// A list that the server does not answer, or whose answer stalls, gives its slot back soon, and is tried again as a retry,
// which has more time. A retry may take slots that only retries compete for, so a list that fails quickly, or came to its
// end, is followed by a first attempt. A slow page that makes progress is read to its end.
func TestListsThatAreNotAnswered(t *testing.T) {
	const minute = 60 * time.Second
	large := strings.Repeat("l", 10*leastProgress) // which is in the item twice
	begun := `{"kind":"ConfigMapList",`
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	takes := func(d time.Duration, a answer) answer {
		return func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(d)
			a(w, r)
		}
	}
	for _, c := range []struct {
		name  string
		lists []answer
		held  []time.Duration
		tries []string
	}{
		{"never, then late", []answer{hangs, hangs, takes(time.Minute, pageOf("50", ""))}, []time.Duration{listwatch.FirstAnswer, listwatch.PageTimeout, time.Minute}, []string{"first", "retry", "retry"}},
		{"with an error", []answer{takes(4*time.Second, status(http.StatusInternalServerError, "InternalError")), pageOf("50", "")}, []time.Duration{4 * time.Second, 0}, []string{"first", "first"}},
		{"forbidden", []answer{status(http.StatusForbidden, "Forbidden"), pageOf("50", "")}, []time.Duration{0, 0}, []string{"first", "first"}},
		{"a timeout behind the server", []answer{status(http.StatusGatewayTimeout, "Timeout"), pageOf("50", "")}, []time.Duration{0, 0}, []string{"first", "retry"}},
		{"with a late error", []answer{hangs, takes(30*time.Second, status(http.StatusInternalServerError, "InternalError")), pageOf("50", "")}, []time.Duration{listwatch.FirstAnswer, 30 * time.Second, 0}, []string{"first", "retry", "retry"}},
		{"with an error again", []answer{hangs, status(http.StatusInternalServerError, "InternalError"), pageOf("50", "")}, []time.Duration{listwatch.FirstAnswer, 0, 0}, []string{"first", "retry", "first"}},
		{"one byte", []answer{open("{"), open("{"), pageOf("50", "")}, []time.Duration{listwatch.FirstAnswer, listwatch.PageTimeout, 0}, []string{"first", "retry", "retry"}},
		{"a byte every second", []answer{dribble(begun+strings.Repeat(" ", 1000), 1, time.Second), pageOf("50", "")}, []time.Duration{listwatch.FirstAnswer, 0}, []string{"first", "retry"}},
		{"a stalled later page", []answer{pageOf("40", "token", item("a", "5")), open("{"), pageOf("40", "", item("b", "6"))}, []time.Duration{laterAnswer}, []string{"first"}},
		{"a large page on a slow link", []answer{dribble(pageText("50", "", item("a"+large, "5")), leastProgress, 4*time.Second)}, []time.Duration{84 * time.Second}, []string{"first"}},
		{"a large page with pauses, as a retry", []answer{hangs, dribble(pageText("50", "", item("a"+large, "5")), 8*leastProgress, 20*time.Second)}, []time.Duration{listwatch.FirstAnswer, minute}, []string{"first", "retry"}},
		{"a later page", []answer{pageOf("40", "token", item("a", "5")), hangs, pageOf("40", "", item("b", "6"))}, []time.Duration{laterAnswer}, []string{"first"}},
		{"a later page, again and again", []answer{pageOf("40", "token", item("a", "5")), hangs, hangs, pageOf("50", "")}, []time.Duration{2 * laterAnswer, 0}, []string{"first", "retry"}},
		{"too many requests", []answer{status(http.StatusTooManyRequests, "TooManyRequests"), pageOf("50", "")}, []time.Duration{0, 0}, []string{"first", "first"}},
		{"nobody there", []answer{broken(), pageOf("50", "")}, []time.Duration{0, 0}, []string{"first", "first"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slots attempts
				s := newStub(t, c.lists, []answer{open()})
				r := run(t, Options{Client: inMemory(t, s), Lists: &slots}, event.Position{}, nil)
				pass(6 * time.Minute)
				r.stop()
				if len(slots) != len(c.tries) {
					t.Fatalf("lists: %q", slots)
				}
				for i, line := range slots {
					var attempt, from, to string
					if _, err := fmt.Sscan(line, &attempt, &from, &to); err != nil {
						t.Fatal(err)
					}
					began, _ := time.Parse("15:04:05", from)
					ended, _ := time.Parse("15:04:05", to)
					if held := ended.Sub(began); attempt != c.tries[i] || held < c.held[i] || held > c.held[i]+time.Second {
						t.Errorf("list %d was a %s and held its slot for %s, want %s for %s", i, attempt, held, c.tries[i], c.held[i])
					}
				}
			})
		})
	}
}

// After a restart of the API server, every collection gets a 410. Their lists must not all come at the same time.
func TestListsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(4 * time.Second)
			pageOf("50", "")(w, r)
		}
		s := newStub(t, answers(3, slow), nil)
		client, lists := inMemory(t, s), newSlots(2)
		var all []*running
		for range 3 {
			all = append(all, run(t, Options{Client: client, Lists: lists}, event.Position{}, nil))
		}
		pass(2 * time.Second)
		if n := len(s.await(1, false)); n != 2 {
			t.Errorf("%d lists at once, want 2", n)
		}
		pass(20 * time.Second)
		for _, r := range all {
			compare(t, r.received(), []string{"begun snapshot from ", "ended 50 >50"})
		}
		asked := s.await(3, false)
		if d := asked[2].at.Sub(asked[0].at); d != 4*time.Second {
			t.Errorf("the third list came after %s", d)
		}
		for _, r := range all {
			r.stop()
		}
		if len(lists) != 0 {
			t.Error("a list that is over still counts")
		}
	})
	t.Run("waiting for a turn ends with the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			lists := newSlots(1)
			lists <- struct{}{}
			r := run(t, Options{Client: inMemory(t, newStub(t, nil, nil)), Lists: lists}, event.Position{}, nil)
			pass(time.Hour)
			r.stop()
			compare(t, r.received(), nil)
		})
	})
}
