package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// past is a server of exact lists that records its requests.
type past struct {
	answer func(w http.ResponseWriter, r *http.Request)

	mu    sync.Mutex
	asked []*url.URL
}

func (p *past) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.URL)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	p.answer(w, r)
}

func names(n int) []Name {
	var out []Name
	for i := range n {
		out = append(out, Name{"s", fmt.Sprintf("o%d", i)})
	}
	return out
}

// recall asks for n objects and returns what was found.
func (p *past) recall(t *testing.T, target Target, n int) ([]string, error) {
	t.Helper()
	var got []string
	c := NewCollection(Options{Client: inMemory(t, p), Target: target, Lists: newSlots(1)})
	if err := c.lists.Acquire(t.Context(), First); err != nil { // as in a handler
		t.Fatal(err)
	}
	err := c.Recall(t.Context(), "50", names(n), func(o *Object) error {
		if o.Kind != "ConfigMap" || !strings.HasPrefix(string(o.Raw), `{"apiVersion":"v1","kind":"ConfigMap",`) {
			t.Errorf("not restored: %s", o.Raw)
		}
		got = append(got, o.Name)
		return nil
	})
	return got, err
}

func TestRecallAsksForFewByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &past{answer: func(w http.ResponseWriter, r *http.Request) {
			name := ""
			_, _ = fmt.Sscanf(r.URL.Query().Get("fieldSelector"), "metadata.name=%s", &name)
			name, _, _ = strings.Cut(name, ",")
			items := []string{item(name, "40"), item("another", "41")} // of a server that ignores selectors
			if name == "o1" {
				items = nil
			}
			pageOf("50", "", items...)(w, r)
		}}
		got, err := p.recall(t, configMaps(event.Collection{LabelSelector: "a=b", FieldSelector: "data.x=y"}), 3)
		if err != nil || !slices.Equal(got, []string{"o0", "o2"}) {
			t.Errorf("found %v, %v", got, err)
		}
		for i, u := range p.asked {
			q := u.Query()
			if u.Path != "/api/v1/namespaces/s/configmaps" || q.Get("resourceVersion") != "50" || q.Get("resourceVersionMatch") != "Exact" ||
				q.Get("fieldSelector") != fmt.Sprintf("metadata.name=o%d,data.x=y", i) || q.Get("labelSelector") != "a=b" {
				t.Errorf("asked for %s", u)
			}
		}
	})
}

func TestRecallReadsAListForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &past{answer: func(w http.ResponseWriter, r *http.Request) {
			switch q := r.URL.Query(); q.Get("continue") {
			case "":
				if q.Get("resourceVersion") != "50" || q.Get("resourceVersionMatch") != "Exact" || q.Has("fieldSelector") {
					t.Errorf("asked for %v", q)
				}
				pageOf("50", "1", item("o3", "1"), item("another", "2"))(w, r)
			case "1":
				if q.Has("resourceVersion") || q.Has("resourceVersionMatch") { // which servers refuse
					t.Errorf("asked for %v", q)
				}
				pageOf("50", "2", item("o30", "3"))(w, r)
			default:
				status(http.StatusGone, "Expired")(w, r)
			}
		}}
		got, err := p.recall(t, configMaps(event.Collection{}), recallSingly+1)
		if err != nil || !slices.Equal(got, []string{"o3", "o30"}) {
			t.Errorf("found %v, %v", got, err)
		}
	})
}

func TestRecallStopsWhenAllAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []string
		for _, n := range names(recallSingly + 1) {
			items = append(items, item(n.Name, "1"))
		}
		p := &past{answer: pageOf("50", "more", items...)}
		if got, err := p.recall(t, configMaps(event.Collection{}), recallSingly+1); err != nil || len(got) != len(items) || len(p.asked) != 1 {
			t.Errorf("found %d, %v; asked %d times", len(got), err, len(p.asked))
		}
	})
}

// A state that cannot be recalled is unknown. A refusal is reported, because an operator can act on it.
func TestRecallFromAServerThatCannot(t *testing.T) {
	internal := func(message string) answer {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"code":500}`, message)
		}
	}
	for _, c := range []struct {
		name   string
		answer answer
		err    string // "": none
		asked  int
		took   time.Duration
	}{
		{"compacted", status(http.StatusGone, "Expired"), "", 1, 0},
		{"not there yet", status(http.StatusGatewayTimeout, "Timeout"), "", 1, 0},
		{"not there yet, before Kubernetes 1.34", internal("etcdserver: mvcc: required revision is a future revision"), "", 1, 0},
		{"etcd fails", internal("etcdserver: request timed out"), "recall configmaps.v1 at resourceVersion 50: list: etcdserver: request timed out", 1, 0},
		{"no such resourceVersion", status(http.StatusBadRequest, "BadRequest"), "", 1, 0},
		{"cut off", broken(`{"metadata":{"resourceVersion":"50"},"items":[` + item("o0", "1")), "", 1, 0},
		{"no answer", open(), "", 1, recallTimeout},
		{"forbidden", status(http.StatusForbidden, "Forbidden"), "recall configmaps.v1 at resourceVersion 50: list: the stub says Forbidden", 1, 0},
		{"nonsense", text200(`<html>`), "parse", 1, 0},
	} {
		for _, n := range []int{2, recallSingly + 1} {
			t.Run(fmt.Sprint(c.name, ", ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := &past{answer: c.answer}
					began := time.Now()
					got, err := p.recall(t, configMaps(event.Collection{}), n)
					if len(got) > 0 || len(p.asked) != c.asked || time.Since(began) != c.took {
						t.Errorf("found %v; asked %d times in %s", got, len(p.asked), time.Since(began))
					}
					if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
						t.Errorf("got %v, want %q", err, c.err)
					}
				})
			})
		}
	}
}

func TestRecallEnds(t *testing.T) {
	mine := errors.New("mine")
	p := &past{answer: pageOf("50", "", item("o0", "1"))}
	c := NewCollection(Options{Client: inMemory(t, p), Target: configMaps(event.Collection{})})
	if err := c.Recall(t.Context(), "50", names(2), func(*Object) error { return mine }); err != mine {
		t.Errorf("found's error: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Recall(ctx, "50", names(2), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	asked := len(p.asked)
	if err := errors.Join(c.Recall(t.Context(), "50", nil, nil), c.Recall(t.Context(), "", names(1), nil)); err != nil || len(p.asked) != asked {
		t.Errorf("nothing to ask for: got %v", err)
	}
}

// A survey passes on objects without the begin and end of a list, because a handler would take these for a gap.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, []answer{pageOf("9", "t", item("a", "4")), broken(), pageOf("11", "", item("b", "5"))}, nil)
		lists := newSlots(1)
		c := NewCollection(Options{Client: inMemory(t, s), Target: selected(), Lists: lists})
		r := &recorder{hook: func(context.Context, Signal) error {
			if len(lists) == 0 {
				t.Error("it takes no slot of Lists")
			}
			return nil
		}}
		rv, err := c.Survey(t.Context(), r)
		if err != nil || rv != "9" {
			t.Errorf("got %s, %v", rv, err)
		}
		compare(t, r.received(), []string{"listed a@4", "listed b@5"})
		if raw := string(r.signals[0].Object.Raw); !strings.HasPrefix(raw, `{"apiVersion":"v1","kind":"ConfigMap",`) {
			t.Errorf("not restored: %s", raw)
		}
		if len(lists) != 0 {
			t.Error("it kept its slot")
		}
	})
}

func TestSurveyFails(t *testing.T) {
	mine := errors.New("mine")
	for _, c := range []struct {
		name  string
		lists []answer
		hook  func(context.Context, Signal) error
		want  string
	}{
		{"refused", []answer{status(http.StatusForbidden, "Forbidden")}, nil, "survey of configmaps.v1: list: the stub says Forbidden"},
		{"the token is gone", []answer{pageOf("9", "t", item("a", "4")), status(http.StatusGone, "Expired")}, nil, "survey of configmaps.v1: list: the stub says Expired"},
		{"the handler's own", []answer{pageOf("9", "", item("a", "4"))}, func(context.Context, Signal) error { return mine }, "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				col := NewCollection(Options{Client: inMemory(t, newStub(t, c.lists, nil)), Target: configMaps(event.Collection{})})
				rv, err := col.Survey(t.Context(), &recorder{hook: c.hook})
				if rv != "" || err == nil || err.Error() != c.want {
					t.Errorf("got %q, %v, want %s", rv, err, c.want)
				}
			})
		})
	}
}

func TestRecallOfNamesThatNeedEscaping(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Query().Get("fieldSelector")
		w.Header().Set("Content-Type", "application/json")
		pageOf("50", "")(w, r)
	}))
	defer srv.Close()
	target := Target{Resource: Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Name: "clusterroles", Kind: "ClusterRole"}}
	c := NewCollection(Options{Client: newClient(t, &rest.Config{Host: srv.URL}), Target: target})
	if err := c.Recall(t.Context(), "50", []Name{{Name: "system:a,b=c"}}, nil); err != nil || got != `metadata.name=system:a\,b\=c` {
		t.Errorf("asked for %s, %v", got, err)
	}
}

// The address may start to point at another cluster while a survey is read. Its resourceVersion and its objects say nothing about the first
// cluster then.
func TestSurveyOfAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		s.others = map[string]answer{kubeSystem: owner("1")}
		s.lists = []answer{func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.others[kubeSystem] = owner("2")
			s.mu.Unlock()
			pageOf("9", "", item("a", "4"))(w, r)
		}}
		client := inMemory(t, s)
		if _, err := client.ClusterUID(t.Context()); err != nil {
			t.Fatal(err)
		}
		rv, err := NewCollection(Options{Client: client, Target: configMaps(event.Collection{})}).Survey(t.Context(), &recorder{})
		if rv != "" || !errors.Is(err, ErrOtherCluster) {
			t.Errorf("got %q, %v, want ErrOtherCluster", rv, err)
		}
	})
}

// failsFor answers as owner does, except for its first n answers after the first one.
func failsFor(n int, fail answer) (a answer, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return func(w http.ResponseWriter, r *http.Request) {
		if i := int(asked.Add(1)); i > 1 && i <= 1+n {
			fail(w, r)
			return
		}
		owner("1")(w, r)
	}, asked
}

// A check of the cluster's identity that fails once does not make a list that was read begin again. If it keeps failing, or the server refuses it,
// the list has no end.
func TestClusterCheckAfterAListIsRetried(t *testing.T) {
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, c := range []struct {
		name  string
		n     int
		fail  answer
		ends  bool
		asked int32
	}{
		{"once", 1, failing(500), true, 3},
		{"no answer", 1, hangs, true, 3},
		{"often", listwatch.PageTries - 1, failing(503), true, 1 + listwatch.PageTries},
		{"always", 100, failing(500), false, 1 + listwatch.PageTries},
		{"refused", 100, failing(403), false, 2},
	} {
		for name, list := range map[string]func(context.Context, *Collection) (string, error){
			"list": func(ctx context.Context, c *Collection) (string, error) {
				return c.list(ctx, Signal{Kind: ListBegun})
			},
			"survey": func(ctx context.Context, c *Collection) (string, error) { return c.Survey(ctx, &recorder{}) },
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t, []answer{pageOf("9", "", item("a", "4"))}, nil)
					a, asked := failsFor(c.n, c.fail)
					s.others = map[string]answer{kubeSystem: a}
					client := inMemory(t, s)
					if _, err := client.ClusterUID(t.Context()); err != nil {
						t.Fatal(err)
					}
					rv, err := list(t.Context(), NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: &recorder{}}))
					if (rv == "9") != c.ends || (err == nil) != c.ends || asked.Load() != c.asked {
						t.Errorf("got %q, %v; asked %d times, want %d", rv, err, asked.Load(), c.asked)
					}
				})
			})
		}
	}
}

// Collections share a failed check of the cluster's identity also if the check took long.
func TestSlowFailedClusterCheckIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t, nil, nil)
		a, asked := failsFor(100, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		s.others = map[string]answer{kubeSystem: a}
		client := inMemory(t, s)
		if _, err := client.ClusterUID(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := client.SameCluster(t.Context(), time.Now()); err == nil {
				t.Error("a failed check is no error")
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
}
