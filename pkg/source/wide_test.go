package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// flood is a server whose watches send as much as the client reads.
type flood struct {
	mu      sync.Mutex
	from    []string         // the resourceVersions of watches, and
	address []string         // whence they came
	written atomic.Int64     // bytes, in all
	last    int              // resourceVersion; 0 is: no end
	moved   chan struct{}    // has room for one
	answer  http.HandlerFunc // to what is no watch
}

func (f *flood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("watch") == "" {
		f.answer(w, r)
		return
	}
	f.mu.Lock()
	f.from, f.address = append(f.from, q.Get("resourceVersion")), append(f.address, r.RemoteAddr)
	f.mu.Unlock()
	rv, _ := strconv.Atoi(q.Get("resourceVersion"))
	for rv++; f.last == 0 || rv <= f.last; rv++ {
		n, err := fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"s","uid":"u","resourceVersion":"%d"},"data":{"k":%q}}}`+"\n", rv, filler[:16<<10])
		f.written.Add(int64(n))
		if err != nil {
			return
		}
		select {
		case f.moved <- struct{}{}:
		default:
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func serveFlood(t *testing.T, last int) (*flood, *Client) {
	t.Helper()
	f := &flood{last: last, moved: make(chan struct{}, 1), answer: func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
			fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"c","resourceVersion":"1"}}`)
			return
		}
		pageOf("1000000", "")(w, r)
	}}
	srv := httptest.NewUnstartedServer(f)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return f, newClient(t, &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
}

// A watch with many events moves to a connection where that is cheap, and no event is lost in the move. When it ends, other
// watches can use such a connection.
func TestBusyWatchIsWidened(t *testing.T) {
	const last = 10 + 2*busyBytes>>14
	f, client := serveFlood(t, last)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	next := 11
	c := NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: HandlerFunc(func(_ context.Context, s Signal) error {
		if s.Kind != Modified {
			return nil
		}
		switch rv, _ := strconv.Atoi(s.Object.ResourceVersion); {
		case rv > next:
			t.Errorf("received %d, and not %d", rv, next)
		case rv < next-1:
			t.Errorf("received %d again, after %d", rv, next-1)
		default:
			next = rv + 1
		}
		if next > last {
			if len(client.wide) != 1 {
				t.Errorf("%d wide watches", len(client.wide))
			}
			cancel()
		}
		return nil
	})})
	if err := c.Run(ctx, event.Position{RV: "10"}); !errors.Is(err, context.Canceled) || next <= last {
		t.Fatalf("received up to %d of %d: %v", next-1, last, err)
	}
	if len(f.from) != 2 || f.from[1] == "10" || f.address[0] == f.address[1] {
		t.Errorf("watches from %v, by %v", f.from, f.address)
	}
	if len(client.wide) != 0 {
		t.Errorf("%d are still wide", len(client.wide))
	}
}

// Watches that are not read receive no more than their buffers hold.
func TestStalledWatchesAreBounded(t *testing.T) {
	const n = 200
	f, client := serveFlood(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var running sync.WaitGroup
	for i := range n {
		c := NewCollection(Options{Client: client, Target: configMaps(event.Collection{LabelSelector: fmt.Sprint("n=", i)}), Handler: HandlerFunc(func(ctx context.Context, _ Signal) error {
			<-ctx.Done()
			return ctx.Err()
		})})
		running.Go(func() { _ = c.Run(ctx, event.Position{RV: "10"}) })
	}
	for quiet := false; !quiet && ctx.Err() == nil; { // the server writes until it has to wait
		select {
		case <-f.moved:
		case <-time.After(500 * time.Millisecond):
			f.mu.Lock()
			quiet = len(f.from) == n
			f.mu.Unlock()
		}
	}
	alive := heap()
	cancel()
	running.Wait()
	const server = 4 << 10 // what net/http writes behind a handler's back
	if most := int64(n * (streamBuffer + keepBuffer + server)); f.written.Load() > most+n<<14 {
		t.Errorf("%d watches took in %d KiB, want at most %d", n, f.written.Load()>>10, most>>10)
	}
	t.Logf("%d KiB each; %d KiB of heap each, with the server's", f.written.Load()/n>>10, alive/n>>10)
}
