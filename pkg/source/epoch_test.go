package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

const newHistory = "begun history from 100, a new epoch"

func afterASecond(a answer) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second)
		a(w, r)
	}
}

func failing(code int) answer { return status(code, "ItIsSo") }

// Resuming 2: a watch from a resourceVersion beyond a restored etcd gets the status 200, but no events until the counter passes
// that resourceVersion.
func TestHistoryIsAnotherOne(t *testing.T) {
	restored := []answer{pageOf("40", "", item("a", "30"))}
	relisted := []string{newHistory, "listed a@30", "ended 40 >40"}
	early, late := pageOf("41", ""), pageOf("100", "")
	for _, c := range []struct {
		name            string
		lists           []answer
		watches, probes []answer
		want            []string
		from            string // of the last watch
	}{
		{"restored while the bridge was away", restored, nil, []answer{early}, relisted, "40"},
		{
			"restored while the bridge was away, and the probe before the watch failed", restored,
			[]answer{open()},
			[]answer{failing(500), early},
			relisted, "40",
		},
		{
			"restored just before the watch was open", restored,
			[]answer{open()},
			[]answer{late, early},
			relisted, "40",
		},
		{
			"restored while the watch was open, which broke", restored,
			[]answer{broken(frame("ADDED", "x", "101"))},
			[]answer{late, late, early},
			append([]string{"added x@101 >100"}, relisted...), "40",
		},
		{
			"restored while the watch was open, which ended well", restored,
			[]answer{afterASecond(closed(frame("ADDED", "x", "101")))},
			[]answer{late, late, early},
			append([]string{"added x@101 >100"}, relisted...), "40",
		},
		{
			"a frame goes back", restored,
			[]answer{open(frame("ADDED", "x", "101"), frame("ADDED", "y", "99"))},
			nil, append([]string{"added x@101 >100"}, relisted...), "40",
		},
		{
			"found by the probe before a list", restored, answers(1+otherServers, failing(410)),
			[]answer{late, early},
			relisted, "40",
		},
		{
			"found when a list has come to its end, since no probe was answered",
			append([]answer{pageOf("40", "", item("a", "30"))}, restored...), answers(1+otherServers, failing(410)),
			answers(9, failing(403)), append([]string{"begun expired from 100", "listed a@30"}, relisted...), "40",
		},
		{
			"the list of the new history breaks off",
			[]answer{pageOf("40", "token", item("a", "30")), failing(410), pageOf("42", "")},
			nil,
			[]answer{early},
			[]string{newHistory, "listed a@30", "begun interrupted from ", "ended 42 >42"},
			"42",
		},
		{
			"the list of the new history is refused first", append([]answer{failing(403)}, restored...), nil,
			[]answer{early},
			relisted, "40",
		},
		{"as far as it was", nil, []answer{open(frame("ADDED", "x", "101"))}, answers(9, late), []string{"added x@101 >100"}, "100"},
		{"no number", nil, []answer{open(frame("ADDED", "x", "101"))}, answers(9, pageOf("n0", "")), []string{"added x@101 >100"}, "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, c.lists, c.watches)
				s.probes = c.probes
				r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "100"}, nil)
				pass(30 * time.Second)
				watches := s.await(1, true)
				r.stop()
				compare(t, r.received(), c.want)
				if rv := watches[len(watches)-1].Get("resourceVersion"); rv != c.from {
					t.Errorf("the last watch is from %s, want %s", rv, c.from)
				}
				for _, s := range r.signals {
					if s.NewEpoch && (s.Reason != event.ReasonHistory || s.Detail == "") {
						t.Errorf("a new epoch with %+v", s)
					}
				}
			})
		})
	}
}

// A position trails what was seen, and a void position may belong to nothing. A server that is behind what was seen was still
// restored.
func TestBehindWhatWasSeen(t *testing.T) {
	for name, c := range map[string]struct {
		from           event.Position
		lists, watches []answer
		probes         []answer
		want           []string
	}{
		"before a watch": {
			event.Position{RV: "100"},
			[]answer{pageOf("101", "")},
			nil,
			[]answer{pageOf("101", "")},
			[]string{newHistory, "ended 101 >101"},
		},
		"while a watch is open": {
			event.Position{RV: "100"},
			[]answer{pageOf("101", "")},
			[]answer{open()},
			[]answer{pageOf("102", ""), pageOf("101", "")},
			[]string{newHistory, "ended 101 >101"},
		},
		"before a list": {
			event.Position{},
			[]answer{pageOf("101", "")},
			nil,
			[]answer{pageOf("101", "")},
			[]string{"begun history from , a new epoch", "ended 101 >101"},
		},
		"by a list, since no probe was answered": {
			event.Position{},
			[]answer{pageOf("101", ""), pageOf("101", "")},
			nil,
			[]answer{failing(403)},
			[]string{"begun snapshot from ", "begun history from , a new epoch", "ended 101 >101"},
		},
		"it is not behind": {
			event.Position{},
			[]answer{pageOf("102", "")},
			nil,
			[]answer{pageOf("102", ""), pageOf("102", "")},
			[]string{"begun snapshot from ", "ended 102 >102"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, c.lists, c.watches)
				s.probes = c.probes
				seen := "102"
				r := run(t, Options{Client: inMemory(t, s), Seen: func() string { return seen }}, c.from, func(_ context.Context, s Signal) error {
					if s.NewEpoch {
						seen = ""
					}
					return nil
				})
				pass(30 * time.Second)
				r.stop()
				compare(t, r.received(), c.want)
			})
		})
	}
}

// Events that a watch still sends from the old history must not be passed on after a probe that was sent later has found the
// new history.
func TestProbeComesBeforeFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, _ = w.Write([]byte(frame("ADDED", "x", "101")))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		s := newStub(t, []answer{pageOf("40", "")}, []answer{slow})
		s.probes = []answer{pageOf("100", ""), pageOf("41", "")}
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "100"}, nil)
		pass(time.Minute)
		r.stop()
		compare(t, r.received(), []string{newHistory, "ended 40 >40"})
	})
}

// A failed probe proves nothing. The watch continues, and the state says that its history was not verified, until a probe
// succeeds.
func TestUnverifiedHistoryShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := func(w http.ResponseWriter, r *http.Request) {
			for rv := 101; r.Context().Err() == nil; rv++ {
				_, _ = fmt.Fprint(w, frame("MODIFIED", "x", fmt.Sprint(rv)))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Second):
				}
			}
		}
		s := newStub(t, nil, []answer{busy})
		s.probes = answers(3, failing(403))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{RV: "100"}, nil)
		pass(time.Minute + 50*time.Second)
		r.stop()
		if n := len(r.received()); n < 100 {
			t.Errorf("%d signals", n)
		}
		compare(t, phases(r), []string{"watching", "watching"})
		if err := r.awaitState(Watching, 1).Err; err == nil || !strings.Contains(err.Error(), "the stub says ItIsSo") {
			t.Errorf("it does not say that the history is not verified: %v", err)
		}
		if err := r.awaitState(Watching, 2).Err; err != nil {
			t.Errorf("it still says %v", err)
		}
	})
}

// A pipeline that starts an epoch has nothing to compare and nothing to resume.
func TestVoidPositionOfANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("40", "")}, nil)
		s.probes = answers(1, pageOf("40", ""))
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{Void: true}, nil)
		pass(10 * time.Second)
		r.stop()
		compare(t, r.received(), []string{"begun interrupted from ", "ended 40 >40"})
		if n := len(s.probed); n != 1 {
			t.Errorf("%d probes, want the one after the watch was opened", n)
		}
	})
}

// Collections of one resource share probes. Each compares the result with what it had seen when the probe was sent; a
// collection that is ahead sends another probe.
func TestSharedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		slow := func(rv string) answer {
			return func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Second); pageOf(rv, "")(w, r) }
		}
		s.probes = []answer{slow("100"), slow("120"), slow("90")}
		client := inMemory(t, s)
		c := NewCollection(Options{Client: client, Target: configMaps(event.Collection{LabelSelector: "a=b"})})
		d := NewCollection(Options{Client: client, Target: configMaps(event.Collection{FieldSelector: "x=y"})})
		type result struct {
			rv  string
			err error
		}
		ask := func(c *Collection, seen string) chan result {
			done, since := make(chan result, 1), time.Now().Add(-time.Millisecond)
			go func() { rv, err := c.probe(t.Context(), seen, since); done <- result{rv, err} }()
			synctest.Wait()
			return done
		}
		first, same := ask(c, "100"), ask(d, "99")
		time.Sleep(time.Second / 2)
		since := time.Now().Add(-time.Second)
		ahead := make(chan result, 1)
		go func() { rv, err := c.probe(t.Context(), "110", since); ahead <- result{rv, err} }()
		if a, b := <-first, <-same; a != (result{"100", nil}) || b != a {
			t.Errorf("got %v and %v", a, b)
		}
		if a := <-ahead; a != (result{"120", nil}) {
			t.Errorf("ahead of the shared probe: got %v", a)
		}
		if n := len(s.probed); n != 2 {
			t.Errorf("%d probes, want 2", n)
		}
		if a := <-ask(c, "110"); !errors.Is(a.err, errHistory) {
			t.Errorf("a history that is shorter: got %v", a)
		}
	})
}

// A user who may only list one name must be able to probe.
func TestProbeOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		c := NewCollection(Options{Client: inMemory(t, s), Target: configMaps(event.Collection{FieldSelector: "metadata.name=x,data=y"})})
		if _, err := c.probe(t.Context(), "1", time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := s.probed[0].Get("fieldSelector"); got != "metadata.name=x" {
			t.Errorf("asked with fieldSelector %q", got)
		}
	})
}

// Another cluster at the same address is not another history of this cluster, so it is no evidence about the known objects.
func TestAnotherClusterAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		now     answer
		watches []answer
		probes  []answer
		foreign bool
		want    []string
	}{
		{"when a history seems to be another one", owner("2"), nil, []answer{pageOf("41", "")}, true, nil},
		{"when a watch expires", owner("2"), answers(1+otherServers, failing(410)), nil, true, nil},
		{"when a collection seems to be gone", owner("2"), answers(1, failing(403)), nil, true, nil},
		{"the same", owner("1"), answers(1+otherServers, failing(410)), nil, false, []string{"begun expired from 100", "ended 140 >140"}},
		{"not known", failing(500), answers(1+otherServers, failing(410)), nil, false, nil},
		{"created again a moment ago", notThere("namespaces", "kube-system"), answers(1+otherServers, failing(410)), nil, false, nil},
		{"not known, and gone", failing(500), answers(9, failing(403)), nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("140", "")}, c.watches)
				s.path = "/api/v1/namespaces/s/configmaps"
				s.probes = c.probes
				s.others = map[string]answer{
					kubeSystem:             owner("1"),
					"/api/v1/namespaces/s": notThere("namespaces", "s"),
				}
				client := inMemory(t, s)
				if uid, err := client.ClusterUID(t.Context()); uid != "1" || err != nil {
					t.Fatal(uid, err)
				}
				s.mu.Lock()
				s.others[kubeSystem] = c.now
				s.mu.Unlock()
				r := run(t, Options{Client: client, Target: configMaps(event.Collection{Namespace: "s"})}, event.Position{RV: "100"}, nil)
				pass(time.Minute)
				if c.foreign {
					if err := r.ended(); !errors.Is(err, ErrOtherCluster) || !strings.Contains(err.Error(), "UID 2, not 1") {
						t.Errorf("Run returned %v", err)
					}
				} else {
					r.stop()
				}
				compare(t, r.received(), c.want)
			})
		})
	}
}

// The address may start to point at another cluster while the evidence is read. The cluster is checked after all of it was
// read: objects that another cluster lacks must not be reported as deleted.
func TestTheClusterChangesMeanwhile(t *testing.T) {
	const ns = "/api/v1/namespaces/s"
	for _, c := range []struct {
		name    string
		now     answer
		change  func(s *stub, change func(answer) answer)
		foreign bool
		want    []string
	}{
		{"in a paged list", owner("2"), func(s *stub, change func(answer) answer) {
			s.lists = []answer{pageOf("140", "more", item("a", "5")), change(pageOf("140", "", item("b", "6")))}
		}, true, []string{"begun interrupted from 100", "listed a@5", "listed b@6"}},
		{"in a streamed list", owner("2"), func(s *stub, change func(answer) answer) {
			s.initial.answers = []answer{change(closed(frame("ADDED", "a", "5"), initialEnd("140")))}
		}, true, []string{"begun interrupted from 100", "listed a@5"}},
		{"in the proof that a namespace is gone", owner("2"), func(s *stub, change func(answer) answer) {
			s.lists, s.others[ns] = answers(1, failing(403)), change(notThere("namespaces", "s"))
		}, true, nil},
		{"it is not known", failing(500), func(s *stub, change func(answer) answer) {
			s.lists = []answer{change(pageOf("140", ""))}
		}, false, []string{"begun interrupted from 100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, nil, nil)
				s.path, s.others = ns+"/configmaps", map[string]answer{kubeSystem: owner("1")}
				c.change(s, func(a answer) answer {
					return func(w http.ResponseWriter, r *http.Request) {
						s.mu.Lock()
						s.others[kubeSystem] = c.now
						s.mu.Unlock()
						a(w, r)
					}
				})
				client := inMemory(t, s)
				if _, err := client.ClusterUID(t.Context()); err != nil {
					t.Fatal(err)
				}
				target := selected()
				target.Collection.Namespace = "s"
				r := run(t, Options{Client: client, Target: target}, event.Position{RV: "100", Void: true}, nil)
				pass(time.Minute)
				if c.foreign {
					if err := r.ended(); !errors.Is(err, ErrOtherCluster) {
						t.Errorf("Run returned %v", err)
					}
				} else if r.stop(); !strings.Contains(r.awaitState(Waiting, 1).Err.Error(), "not known whether this is still the same cluster") {
					t.Errorf("it waits for %v", r.awaitState(Waiting, 1).Err)
				}
				compare(t, r.received(), c.want)
			})
		})
	}
}
