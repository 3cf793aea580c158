package source

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// from10 answers a watch from the resourceVersion 10 with a, during a time, and keeps other watches open.
func from10(a answer, during time.Duration) answer {
	end := time.Now().Add(during)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("resourceVersion") == "10" && time.Now().Before(end) {
			a(w, r)
			return
		}
		open()(w, r)
	}
}

// A server that has lost the history may end every watch at once, without an error. A gateway may do the same while its server restarts, so the
// history counts as lost only after a while, and only if the server answers probes.
func TestWatchesThatEndAtOnce(t *testing.T) {
	noList := text200("") // a gateway ends the body of each answer
	for _, c := range []struct {
		name   string
		during time.Duration
		probes []answer
		want   []string
	}{
		{"always", time.Hour, nil, []string{"begun expired from 10", "listed a@40", "ended 50 >50"}},
		{"for a few seconds", 8 * time.Second, nil, nil},
		{"while probes fail", time.Minute, answers(1000, noList), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("50", "", item("a", "40"))}, answers(1000, from10(closed(), c.during)))
				s.probes = c.probes
				began := time.Now()
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(5 * time.Minute)
				r.stop()
				compare(t, r.received(), c.want)
				if c.want == nil {
					return
				}
				if d := s.await(1, false)[0].at.Sub(began); d < listwatch.EmptyFor || d > time.Minute {
					t.Errorf("the list came after %s", d)
				}
				if d := r.signals[0].Detail; !strings.HasPrefix(d, "resourceVersion 10 is no longer served") {
					t.Errorf("detail %q", d)
				}
				if n := len(s.await(3, true)); n < listwatch.EmptyCloses+otherServers || n > 40 {
					t.Errorf("%d watches", n)
				}
			})
		})
	}
}

// While etcd has no leader, the API server ends watches of resources without a watch cache with an internal error. Probes fail, too. The
// history is not lost.
func TestErrorsInTheStreamWhileProbesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		noLeader := errorFrame(http.StatusInternalServerError, "InternalError")
		s := newStub(t, nil, answers(1000, from10(open(noLeader), outage)))
		up := time.Now().Add(outage)
		s.probes = answers(1000, func(w http.ResponseWriter, r *http.Request) {
			if time.Now().Before(up) {
				status(http.StatusInternalServerError, "InternalError")(w, r)
				return
			}
			pageOf("20", "")(w, r)
		})
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
		pass(outage + time.Minute)
		r.stop()
		compare(t, r.received(), nil)
	})
}

// Rare errors of the server do not add up: after a long watch, earlier ones do not count.
func TestRareErrorsInTheStream(t *testing.T) {
	for name, long := range map[string]string{"the watch that fails is long": errorFrame(http.StatusInternalServerError, "InternalError"), "a long watch ends in order": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				after5 := func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(5 * time.Minute)
					closed(long)(w, r)
				}
				var watches []answer
				for range 3 * listwatch.MaxFailures {
					watches = append(watches, after5, closed(errorFrame(http.StatusInternalServerError, "InternalError")))
				}
				s := newStub(t, nil, watches)
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "10"}, nil)
				pass(3 * time.Hour)
				r.stop()
				compare(t, r.received(), nil)
				if n := len(s.await(1, true)); n <= len(watches) {
					t.Errorf("%d watches, want more than %d", n, len(watches))
				}
			})
		})
	}
}
