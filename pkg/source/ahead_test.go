package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// The next page is requested while a page is handed on, and the request ends when it is no longer needed.
func TestNextPageIsReadMeanwhile(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			pageOf("9", "more", item("a", "1"), item("b", "2"))(w, r)
			return
		}
		close(asked)
		<-r.Context().Done() // it never answers
		close(left)
	}))
	defer srv.Close()
	enough := errors.New("enough")
	received := 0
	handler := HandlerFunc(func(ctx context.Context, _ Signal) error {
		if received++; received == 1 {
			return nil
		}
		select {
		case <-asked:
			return enough
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), listwatch.PageTimeout/4)
	defer cancel()
	col := NewCollection(Options{Client: newClient(t, &rest.Config{Host: srv.URL}), Target: configMaps(event.Collection{}), Handler: handler})
	if _, err := col.Survey(ctx, handler); !errors.Is(err, enough) || received != 2 {
		t.Errorf("received %d objects, %v", received, err)
	}
	<-left
}

// pageServer serves the pages of a list.
type pageServer map[string]answer // by continue token

func (m pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m[r.URL.Query().Get("continue")](w, r)
}

// survey lists, and returns the names of the objects that its handler received.
func survey(t *testing.T, client *Client, each func(name string)) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), listwatch.PageTimeout/2)
	defer cancel()
	var names []string
	h := HandlerFunc(func(_ context.Context, s Signal) error {
		names = append(names, s.Object.Name)
		if each != nil {
			each(s.Object.Name)
		}
		return nil
	})
	if _, err := NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: h}).Survey(ctx, h); err != nil {
		t.Error(err)
	}
	return names
}

// From the second page on, the next page is requested as soon as a page shows that there is one, so that the server works while
// a page is in transit.
func TestPageIsAskedForEarly(t *testing.T) {
	overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
		asked, large := make(chan struct{}), strings.Repeat("l", pageHead)
		client := serve(pageServer{
			"": pageOf("9", "2", item("a"+large, "1")),
			"2": func(w http.ResponseWriter, r *http.Request) {
				head, items, _ := strings.Cut(pageText("9", "3", item("b", "2"), item("c", "3"), item("d"+large, "4")), "[")
				fmt.Fprint(w, head, "[", items[:pageHead])
				_ = http.NewResponseController(w).Flush()
				select {
				case <-asked:
				case <-r.Context().Done():
				}
				fmt.Fprint(w, items[pageHead:])
			},
			"3": func(w http.ResponseWriter, r *http.Request) {
				close(asked)
				pageOf("9", "", item("e", "5"))(w, r)
			},
		})
		compare(t, survey(t, client, nil), []string{"a" + large, "b", "c", "d" + large, "e"})
	})
}

// An early request that fails is made again.
func TestEarlyPageThatFails(t *testing.T) {
	for name, fails := range map[string]answer{
		"refused": status(http.StatusTooManyRequests, "TooManyRequests"),
		"broken":  broken(`{"kind":"ConfigMapList",`),
	} {
		t.Run(name, func(t *testing.T) {
			overHTTP(t, func(t *testing.T, serve func(http.Handler) *Client) {
				var thirds atomic.Int32
				client := serve(pageServer{
					"":  pageOf("9", "2", item("a", "1")),
					"2": pageOf("9", "3", item("b", "2")),
					"3": func(w http.ResponseWriter, r *http.Request) {
						if thirds.Add(1) == 1 {
							fails(w, r)
							return
						}
						pageOf("9", "", item("c", "3"))(w, r)
					},
				})
				compare(t, survey(t, client, nil), []string{"a", "b", "c"})
				if n := thirds.Load(); n != 2 {
					t.Errorf("the third page was asked for %d times", n)
				}
			})
		})
	}
}

// An answer that a slow handler does not read is given up, so that the server need not keep it for long.
func TestEarlyPageIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 4 * unreadFor
		var tries atomic.Int32
		given := make(chan time.Duration, 1)
		client := inMemory(t, pageServer{
			"":  pageOf("9", "2", item("a", "1")),
			"2": pageOf("9", "3", item("b", "2")),
			"3": func(w http.ResponseWriter, r *http.Request) {
				pageOf("9", "4", item("c", "3"), item(strings.Repeat("d", 1<<20), "4"))(w, r)
			},
			"4": func(w http.ResponseWriter, r *http.Request) {
				asked := time.Now()
				if tries.Add(1) == 1 { // the answer begins, and is not read to its end
					fmt.Fprint(w, strings.Repeat(" ", 1<<10))
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					given <- time.Since(asked)
					return
				}
				pageOf("9", "", item("e", "5"))(w, r)
			},
		})
		names := survey(t, client, func(name string) {
			if name == "b" {
				time.Sleep(slow)
			}
		})
		compare(t, names, []string{"a", "b", "c", strings.Repeat("d", 1<<20), "e"})
		if after := <-given; after != unreadFor || tries.Load() != 2 {
			t.Errorf("given up after %s, want %s; asked for %d times", after, unreadFor, tries.Load())
		}
	})
}
