package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// initialScript is a stub's answers to requests for streamed lists. The stub does not support other requests.
type initialScript struct {
	answers []answer

	mu    sync.Mutex
	asked []url.Values
}

func (s *stub) streamed(w http.ResponseWriter, r *http.Request) {
	s.initial.mu.Lock()
	n := len(s.initial.asked)
	s.initial.asked = append(s.initial.asked, r.URL.Query())
	s.initial.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if n < len(s.initial.answers) {
		s.initial.answers[n](w, r)
		return
	}
	status(http.StatusUnprocessableEntity, "Invalid")(w, r)
}

func (s *initialScript) requests() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// selected is a collection whose lists are streamed.
func selected() Target { return configMaps(event.Collection{LabelSelector: "audit=true"}) }

func initialEnd(rv string) string {
	return strings.Replace(bookmark(rv), `"metadata":{`, `"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},`, 1)
}

func TestStreamedList(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		s := newStub(t, nil, []answer{open(frame("MODIFIED", "b", "14"))})
		s.initial.answers = []answer{open(frame("ADDED", "a", "5"), frame("ADDED", "b", "7"), bookmark("9"),
			frame("MODIFIED", "a", "11"), frame("DELETED", "c", "12"), frame("DELETED", "d", "12"), initialEnd("13"), frame("ADDED", "late", "14"))}
		s.others = map[string]answer{"/api/v1/namespaces/s/configmaps/d": text200(`{"apiVersion":"v1","kind":"ConfigMap",` + item("d", "12")[1:])}
		r := run(t, Options{Client: serve(s), Target: selected()}, event.Position{}, nil)
		got := r.await(t, 8)
		r.stop()
		compare(t, got, []string{
			"begun snapshot from ", "listed a@5", "listed b@7", "listed a@11", "deleted c@12 >", "left d@12 >", "ended 13 >13", "modified b@14 >13",
		})
		q := s.initial.requests()[0]
		for name, want := range map[string]string{
			"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true",
			"resourceVersion": "", "labelSelector": "audit=true", "timeoutSeconds": "120",
		} {
			if q.Get(name) != want {
				t.Errorf("%s=%s, want %q", name, q.Get(name), want)
			}
		}
		if o := r.signals[1].Object; o.Kind != "ConfigMap" || o.APIVersion != "v1" {
			t.Errorf("%s %s", o.APIVersion, o.Kind)
		}
	})
}

// A list of a whole collection is paged, because pages cost the server less.
func TestListWithoutSelectionIsPaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("9", "")}, nil)
		r := run(t, Options{Client: inMemory(t, s)}, event.Position{}, nil)
		r.await(t, 2)
		r.stop()
		if asked := s.initial.requests(); len(asked) > 0 {
			t.Errorf("asked for %v", asked)
		}
	})
}

// A resource whose streamed list the server does not answer is paged for a while; others are not.
func TestStreamedListIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("9", ""), pageOf("10", "")}, nil)
		s.initial.answers = []answer{open(), closed(initialEnd("20"))}
		client := inMemory(t, s)
		silent, other := &recorder{}, &recorder{}
		of := NewCollection(Options{Client: client, Target: selected(), Handler: silent})
		for range 2 {
			if _, err := of.list(t.Context(), Signal{Kind: ListBegun}); err != nil {
				t.Error(err)
			}
		}
		compare(t, silent.received(), []string{"begun  from ", "ended 9 >9", "begun  from ", "ended 10 >10"})
		if _, err := NewCollection(Options{Client: client, Target: selected(), Handler: other}).list(t.Context(), Signal{Kind: ListBegun}); err != nil {
			t.Error(err)
		}
		compare(t, other.received(), []string{"begun  from ", "ended 20 >20"})
	})
}

// If a server does not support streamed lists, collections do not request one at every list, but try again later.
func TestStreamedListUnknown(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer answer
	}{
		{"400", status(http.StatusBadRequest, "BadRequest")},
		{"422", status(http.StatusUnprocessableEntity, "Invalid")},
		{"it ignores the request, and ends", closed()},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("9", "", item("a", "4")), pageOf("10", ""), pageOf("11", "")}, nil)
				s.initial.answers = []answer{c.answer, closed(initialEnd("20"))}
				client := inMemory(t, s)
				list := func(want ...string) {
					t.Helper()
					r, other := &recorder{}, selected()
					other.Collection.LabelSelector = fmt.Sprint("list=", len(s.initial.requests()))
					if _, err := NewCollection(Options{Client: client, Target: other, Handler: r}).list(t.Context(), Signal{Kind: ListBegun}); err != nil {
						t.Error(err)
					}
					compare(t, r.received(), want)
				}
				list("begun  from ", "listed a@4", "ended 9 >9")
				list("begun  from ", "ended 10 >10")
				time.Sleep(pagedFor)
				list("begun  from ", "ended 20 >20")
			})
		})
	}
}

// A list that breaks off after objects were passed on begins again, in pages. No
// ListEnded may follow the first try: objects that were not passed on yet would count
// as deleted.
func TestStreamedListBreaksOff(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  answer
		unknown bool
		err     string
	}{
		{"the connection breaks", broken(frame("ADDED", "a", "5")), false, "the connection broke"},
		{"an error in the stream", closed(frame("ADDED", "a", "5"), errorFrame(http.StatusGone, "Expired")), false, "the stub says Expired"},
		{"a frame of a new type", closed(frame("ADDED", "a", "5"), frame("NEW", "a", "5")), false, `unknown type "NEW"`},
		{"an end without a resourceVersion", closed(frame("ADDED", "a", "5"), initialEnd("")), false, listwatch.ErrNoVersion.Error()},
		{"silence", open(frame("ADDED", "a", "5"), bookmark("99")), true, errNoEnd.Error()},
		{"the end without a bookmark", closed(frame("ADDED", "a", "5")), true, errNoEnd.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("105", "", item("b", "4"))}, nil)
				s.initial.answers = []answer{c.answer}
				r := run(t, Options{Client: inMemory(t, s), Target: selected()}, event.Position{RV: "100", Void: true}, nil)
				pass(silentStream + 2*time.Second)
				waiting := r.awaitState(Waiting, 1)
				r.stop()
				compare(t, r.received(), []string{
					"begun interrupted from 100", "listed a@5",
					"begun interrupted from 100", "listed b@4", "ended 105 >105",
				})
				if ofResource := errors.As(waiting.Err, new(*ResourceError)); !strings.Contains(waiting.Err.Error(), c.err) || ofResource != c.unknown {
					t.Errorf("it says %v, and that this is the resource's: %t; want %q, %t", waiting.Err, ofResource, c.err, c.unknown)
				}
				if n := len(s.initial.requests()); n != 1 {
					t.Errorf("asked for %d streamed lists", n)
				}
			})
		})
	}
}

// A streamed list gives its slot back when the server sends little, or never ends, as a page does. It is a retry then.
func TestStreamedListIsTooSlow(t *testing.T) {
	every := func(d time.Duration, text string) answer {
		return func(w http.ResponseWriter, r *http.Request) {
			for rv := 1; r.Context().Err() == nil; rv++ {
				_, _ = fmt.Fprint(w, frame("MODIFIED", "a", fmt.Sprint(rv)), text)
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(d):
				case <-r.Context().Done():
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		answer answer
		most   time.Duration // that the slot is held
		unsure bool          // whether the server knows streamed lists
	}{
		{"an object every nine seconds", every(9*time.Second, ""), silentStream, false},
		{"an object every second", every(time.Second, ""), silentStream, false},
		{"much, and no end", every(time.Second, strings.Repeat(" ", leastProgress)), streamTimeout + streamGrace, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t, []answer{pageOf("9", "")}, nil)
				s.initial.answers = []answer{c.answer}
				client, slots := inMemory(t, s), &attempts{}
				of := NewCollection(Options{Client: client, Target: selected(), Handler: &recorder{}, Lists: slots})
				began := time.Now()
				if _, err := of.list(t.Context(), Signal{Kind: ListBegun}); err == nil {
					t.Error("the list has an end")
				}
				if took := time.Since(began); took > c.most+time.Second {
					t.Errorf("it held its slot for %s", took)
				}
				if client.streams.over() == c.unsure {
					t.Errorf("other resources are streamed: %t", client.streams.over())
				}
				if _, err := of.list(t.Context(), Signal{Kind: ListBegun}); err != nil {
					t.Error(err)
				}
				if got := fmt.Sprint(*slots); len(*slots) != 2 || !strings.HasPrefix(got, "[first ") || !strings.Contains(got, " retry ") {
					t.Errorf("attempts %s, want a first one and a retry", got)
				}
			})
		})
	}
}

// A slow link is not a slow server: a large list may take a minute.
func TestStreamedListOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		s.initial.answers = []answer{func(w http.ResponseWriter, _ *http.Request) {
			for i := range 12 {
				_, _ = fmt.Fprint(w, frame("ADDED", fmt.Sprint("a", i), fmt.Sprint(i+1)), strings.Repeat(" ", leastProgress))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(4 * time.Second)
			}
			_, _ = fmt.Fprint(w, initialEnd("20"))
		}}
		r := &recorder{}
		if rv, err := NewCollection(Options{Client: inMemory(t, s), Target: selected(), Handler: r}).list(t.Context(), Signal{Kind: ListBegun}); rv != "20" || err != nil {
			t.Errorf("it is at %s, %v, and received %v", rv, err, r.received())
		}
	})
}

// The test reads slowly: the server would cut off a stream that is not read.
func TestStreamedListIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Time, 1)
		s := newStub(t, []answer{pageOf("9", "", item("b", "4"))}, nil)
		s.initial.answers = []answer{func(w http.ResponseWriter, r *http.Request) {
			open(frame("ADDED", "a", "5"), frame("ADDED", "b", "4"))(w, r)
			gone <- time.Now()
		}}
		slow := func(_ context.Context, s Signal) error {
			if s.Kind == Listed && s.Object.Name == "a" {
				time.Sleep(time.Minute)
			}
			return nil
		}
		began := time.Now()
		r := run(t, Options{Client: inMemory(t, s), Target: selected()}, event.Position{}, slow)
		pass(65 * time.Second)
		r.stop()
		if d := (<-gone).Sub(began); d > listwatch.MaxBlocked+time.Second {
			t.Errorf("it was open for %s", d)
		}
		compare(t, r.received()[2:], []string{"begun interrupted from ", "listed b@4", "ended 9 >9"})
	})
}

// A clock that is set back must not make a pause longer, because the pause ends by the monotonic clock.
func TestPause(t *testing.T) {
	var p pause
	if !p.over() {
		t.Error("the zero value is not over")
	}
	if p.begin(time.Hour); p.over() {
		t.Error("it is over at once")
	}
	if end := p.until.Load(); !strings.Contains(end.String(), " m=") {
		t.Errorf("it ends at %s, by the wall clock alone", end)
	}
	if p.begin(-time.Nanosecond); !p.over() {
		t.Error("it is not over")
	}
}

// No object was passed on yet, so a paged list may succeed, or its error says why not.
func TestStreamedListRefused(t *testing.T) {
	for _, c := range []struct {
		code  int
		paged bool
	}{{403, true}, {500, true}, {429, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t, []answer{pageOf("9", "")}, nil)
			s.initial.answers = []answer{status(c.code, "ItIsSo")}
			client := inMemory(t, s)
			r := &recorder{}
			_, err := NewCollection(Options{Client: client, Target: selected(), Handler: r}).list(t.Context(), Signal{Kind: ListBegun})
			if c.paged != (err == nil) || c.paged != (len(r.received()) == 2) {
				t.Errorf("%d: %v, received %v", c.code, err, r.received())
			}
			if !client.streams.over() {
				t.Errorf("%d says nothing about what the server knows", c.code)
			}
		})
	}
}
