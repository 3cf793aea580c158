package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
)

// pipes is a listener whose connections do not keep a synctest bubble from detecting that it is idle.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

// bytesEvery answers with one byte every d, and never ends.
func bytesEvery(w http.ResponseWriter, r *http.Request, d time.Duration) {
	for r.Context().Err() == nil {
		_, _ = io.WriteString(w, " ")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
}

// If a server begins its answers and does not end them, eight resources hold the slots for lists for seconds and not
// for minutes. Once these lists are retries, a list that failed with status 500 does not wait behind them.
func TestAnswersThatDoNotEnd(t *testing.T) {
	for name, every := range map[string]time.Duration{"one byte": time.Hour, "a byte every second": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refused sync.Once
				serve := func(w http.ResponseWriter, r *http.Request) {
					path := r.URL.Path
					switch {
					case strings.HasPrefix(path, "/apis/slow.example.com/"):
						bytesEvery(w, r, every)
					case !strings.HasPrefix(path, "/apis/good.example.com/"):
						w.WriteHeader(http.StatusForbidden)
					case r.URL.Query().Get("watch") == "true":
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
					default:
						if strings.HasSuffix(path, "/refused") {
							first := false
							refused.Do(func() { first = true })
							if first {
								w.WriteHeader(http.StatusInternalServerError)
								return
							}
						}
						_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`)
					}
				}
				listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
				srv := &http.Server{Handler: http.HandlerFunc(serve)}
				served := make(chan error, 1)
				go func() { served <- srv.Serve(listener) }()
				client, err := source.NewClient(&rest.Config{Host: "http://server", Dial: listener.dial})
				if err != nil {
					t.Fatal(err)
				}

				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				reader := New(Options{Lists: NewLists(4)})
				// start reads a resource. It returns the time after which each of its lists ends.
				start := func(group, resource string) (listed <-chan time.Duration) {
					began, ended := time.Now(), make(chan time.Duration, 100)
					c := source.NewCollection(source.Options{
						Client: client,
						Lists:  reader.newSlot(),
						Target: source.Target{
							Collection: event.Collection{Group: group, Resource: resource},
							Resource:   source.Resource{Group: group, Version: "v1", Name: resource, Kind: "It"},
						},
						Handler: source.HandlerFunc(func(_ context.Context, s source.Signal) error {
							if s.Kind == source.ListEnded {
								ended <- time.Since(began)
							}
							return nil
						}),
					})
					running.Go(func() { _ = c.Run(ctx, event.Position{}) })
					return ended
				}
				within := func(most time.Duration, what string, listed <-chan time.Duration) {
					t.Helper()
					select {
					case took := <-listed:
						if took > most {
							t.Errorf("the list of %s took %s, want at most %s", what, took, most)
						}
					case <-time.After(time.Hour):
						t.Errorf("there is no list of %s", what)
					}
				}
				for i := range 8 {
					start("slow.example.com", fmt.Sprint("slow", i))
				}
				synctest.Wait() // the lists hold all slots, or wait for one
				within(15*time.Second, "a resource behind first attempts", start("good.example.com", "good"))
				time.Sleep(time.Minute) // all other lists are retries by then
				within(2*time.Second, "a resource that is refused once", start("good.example.com", "refused"))

				cancel()
				running.Wait()
				client.Close()
				_ = srv.Close()
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
