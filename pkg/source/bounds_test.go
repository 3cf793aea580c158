package source

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

func countAll(into *int) Handler {
	return HandlerFunc(func(_ context.Context, s Signal) error {
		if s.Kind == Listed {
			*into++
		}
		return nil
	})
}

// Pages that the server breaks off, as it does after its --request-timeout, become smaller until they arrive whole, in this list and in the next
// ones, also of another Collection. Otherwise the list of large objects over a slow link would never end.
func TestPagesThatAreBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &crowd{n: 300, size: 10 << 10, each: 200 * time.Millisecond, timeout: 4 * time.Second} // 20 objects arrive
		client := inMemory(t, server)
		list := func(entry string) (n int, err error) {
			col := NewCollection(Options{Client: client, Target: configMaps(event.Collection{Entry: entry}), Handler: countAll(&n)})
			_, err = col.list(t.Context(), Signal{Kind: ListBegun})
			return n, err
		}
		for _, limit := range []int{firstPage, firstPage / 4} {
			if _, err := list("a"); !errors.As(err, new(cutError)) || server.pages[len(server.pages)-1] != limit {
				t.Fatalf("a first page that was broken off: %v; asked for pages of %v objects", err, server.pages)
			}
		}
		for _, entry := range []string{"a", "b"} {
			server.pages = nil
			if n, err := list(entry); err != nil || n != server.n {
				t.Fatalf("received %d objects, want %d: %v", n, server.n, err)
			}
			if slices.Max(server.pages) > 20 {
				t.Errorf("asked for pages of %v objects", server.pages)
			}
		}
	})
}

// A later page becomes smaller until it arrives, within the same list: attempts with fewer objects do not count.
func TestLaterPageThatIsBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &crowd{n: 110, slowFrom: 100, each: 3 * time.Second, timeout: 4 * time.Second} // one object arrives
		n := 0
		col := NewCollection(Options{Client: inMemory(t, server), Target: configMaps(event.Collection{}), Handler: countAll(&n)})
		if _, err := col.list(t.Context(), Signal{Kind: ListBegun}); err != nil || n != server.n {
			t.Fatalf("received %d objects, want %d: %v", n, server.n, err)
		}
		if want := []int{100, 1000, 250, 62, 15, 3, 1}; !slices.Equal(server.pages[:len(want)], want) || slices.Max(server.pages[len(want):]) > 1 {
			t.Errorf("asked for pages of %v objects", server.pages)
		}
	})
}

// A later page that the server does not answer in time is requested again with fewer objects.
func TestLaterPageThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []string
		client := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			limits = append(limits, r.URL.Query().Get("limit"))
			switch n, _ := strconv.Atoi(r.URL.Query().Get("limit")); {
			case r.URL.Query().Get("continue") == "":
				pageOf("9", "2", item("a", "1"))(w, r)
			case n > 250:
				<-r.Context().Done()
			default:
				pageOf("9", "", item("b", "2"))(w, r)
			}
		}))
		compare(t, survey(t, client, nil), []string{"a", "b"})
		compare(t, limits, []string{"100", "1000", "250"})
	})
}

// Failures that the size of a page does not explain do not make pages smaller.
func TestPagesThatFailSoonStayLarge(t *testing.T) {
	for name, fail := range map[string]answer{
		"broken off":   broken(`{"kind":"ConfigMapList",`),
		"no answer":    broken(),
		"500":          failing(500),
		"500 after 4s": func(w http.ResponseWriter, r *http.Request) { time.Sleep(4 * time.Second); failing(500)(w, r) },
		"429":          status(http.StatusTooManyRequests, "TooManyRequests"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limits []string
				client := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					limits = append(limits, r.URL.Query().Get("limit"))
					switch {
					case r.URL.Query().Get("continue") == "":
						pageOf("9", "2", item("a", "1"))(w, r)
					case len(limits) < 4:
						fail(w, r)
					default:
						pageOf("9", "", item("b", "2"))(w, r)
					}
				}))
				compare(t, survey(t, client, nil), []string{"a", "b"})
				compare(t, limits, []string{"100", "1000", "1000", "1000"})
			})
		})
	}
}

// A page that is too large is divided from the limit that it had.
func TestBoundedPageTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &crowd{n: 40, size: 1 << 20}
		client := inMemory(t, server)
		client.bounds.Failed(configMaps(event.Collection{}), 160, time.Second)
		n := 0
		col := NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: countAll(&n)})
		if _, err := col.list(t.Context(), Signal{Kind: ListBegun}); err != nil || n != server.n {
			t.Fatalf("received %d objects, %v", n, err)
		}
		if want := []int{40, 5}; !slices.Equal(server.pages[:2], want) {
			t.Errorf("asked for pages of %v objects, want %v first", server.pages, want)
		}
	})
}

// An exact list whose page is broken off is read in smaller pages, and one for which there was no time is so the next time.
func TestRecallInSmallerPages(t *testing.T) {
	limitsOf := func(p *past) (limits []string) {
		for _, u := range p.asked {
			limits = append(limits, u.Query().Get("limit"))
		}
		p.asked = nil
		return limits
	}
	for _, c := range []struct {
		name  string
		large answer
		want  [2][]string // limits of two recalls
	}{
		{"broken off after 4 s", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(4 * time.Second)
			broken(`{"kind":`)(w, r)
		}, [2][]string{{"100", "25"}, {"25"}}},
		{"no time", open(), [2][]string{{"100"}, {"25"}}},
		{"a future resourceVersion", status(http.StatusGatewayTimeout, "Timeout"), [2][]string{{"100"}, {"100"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &past{answer: func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("limit") == "100" {
						c.large(w, r)
						return
					}
					pageOf("50", "", item("o3", "1"))(w, r)
				}}
				col := NewCollection(Options{Client: inMemory(t, p), Target: configMaps(event.Collection{})})
				for _, want := range c.want {
					if err := col.Recall(t.Context(), "50", names(recallSingly+1), func(*Object) error { return nil }); err != nil {
						t.Error(err)
					}
					compare(t, limitsOf(p), want)
				}
			})
		})
	}
}
