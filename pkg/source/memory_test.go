package source

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// crowd is a server of n objects of a given size, which it generates while it writes them.
type crowd struct {
	n, size    int
	itemsFirst bool // as in lists of custom resources
	unpaged    bool // it does not heed the limit
	// Each object from slowFrom on takes the time each, and an answer that takes longer than timeout is broken off.
	slowFrom      int
	each, timeout time.Duration

	mu    sync.Mutex
	pages []int
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to := min(from+limit, c.n)
	if c.unpaged {
		to = c.n
	}
	c.mu.Lock()
	c.pages = append(c.pages, limit)
	c.mu.Unlock()
	more := ""
	if to < c.n {
		more = strconv.Itoa(to)
	}
	w.Header().Set("Content-Type", "application/json")
	began := time.Now()
	out := bufio.NewWriter(w)
	defer out.Flush()
	metadata := fmt.Sprintf(`"metadata":{"resourceVersion":"9","continue":%q}`, more)
	if c.itemsFirst {
		fmt.Fprint(out, `{"apiVersion":"v1","items":[`)
	} else {
		fmt.Fprint(out, `{"kind":"ConfigMapList","apiVersion":"v1",`, metadata, `,"items":[`)
	}
	for i := from; i < to; i++ {
		if i > from {
			_ = out.WriteByte(',')
		}
		if i >= c.slowFrom {
			time.Sleep(c.each)
		}
		if time.Since(began) > c.timeout && c.timeout > 0 {
			_ = out.Flush()
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(out, `{"metadata":{"name":"o%d","namespace":"s","uid":"u%d","resourceVersion":"5"},"data":{"k":"`, i, i)
		_, _ = out.WriteString(filler[:c.size])
		_, _ = out.WriteString(`"}}`)
	}
	if c.itemsFirst {
		fmt.Fprint(out, `],`, metadata, `}`)
	} else {
		fmt.Fprint(out, `]}`)
	}
}

var filler = strings.Repeat("x", 1<<20)

// weigher counts the signals that it receives, and measures the heap at every every-th.
type weigher struct {
	seen, every int
	peak        uint64 // bytes
}

func (h *weigher) Handle(_ context.Context, s Signal) error {
	if s.Kind != Listed {
		return nil
	}
	if h.seen++; h.seen%h.every == 0 {
		h.peak = max(h.peak, heap())
	}
	return nil
}

// heap is what is alive, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A list of any size needs the memory of two pages and of the page that arrives, because a hundred collections may begin with
// lists.
func TestListTakesThePagesMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		crowd *crowd
		bound uint64 // bytes
	}{
		{"many objects", &crowd{n: 100_000, size: 256}, 3 * targetPage},
		{"many custom resources", &crowd{n: 100_000, size: 256, itemsFirst: true}, 3 * targetPage},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(c.crowd)
			defer srv.Close()
			h := &weigher{every: c.crowd.n / 10}
			client := newClient(t, &rest.Config{Host: srv.URL})
			col := NewCollection(Options{Client: client, Target: configMaps(event.Collection{}), Handler: h})
			before := heap()
			if _, err := col.list(t.Context(), Signal{Kind: ListBegun}); err != nil {
				t.Fatal(err)
			}
			if h.seen != c.crowd.n {
				t.Errorf("received %d objects, want %d", h.seen, c.crowd.n)
			}
			if h.peak > before+c.bound {
				t.Errorf("the heap grew by %d bytes, want at most %d", h.peak-before, c.bound)
			}
			t.Logf("%d pages; the heap grew by %d KiB at most", len(c.crowd.pages), (int64(h.peak)-int64(before))>>10)
		})
	}
}

// A first page that is too large is requested again with a smaller limit.
func TestPageTooLarge(t *testing.T) {
	server := &crowd{n: 40, size: 1 << 20}
	srv := httptest.NewServer(server)
	defer srv.Close()
	h := &weigher{every: 3}
	col := NewCollection(Options{Client: newClient(t, &rest.Config{Host: srv.URL}), Target: configMaps(event.Collection{}), Handler: h})
	before := heap()
	if _, err := col.list(t.Context(), Signal{Kind: ListBegun}); err != nil || h.seen != server.n {
		t.Fatalf("received %d objects, %v", h.seen, err)
	}
	if h.peak > before+2*largestPage {
		t.Errorf("the heap grew by %d bytes, want at most %d", h.peak-before, 2*largestPage)
	}
	if server.pages[0] != firstPage || server.pages[1] != firstPage/8 || server.pages[2] != 1 {
		t.Errorf("asked for pages of %v objects", server.pages)
	}
}

// A server that ignores the limit is read up to a bounded size.
func TestServerThatDoesNotPage(t *testing.T) {
	server := &crowd{n: 33, size: 1 << 20, unpaged: true}
	srv := httptest.NewServer(server)
	defer srv.Close()
	h := &weigher{every: 1 << 30}
	col := NewCollection(Options{Client: newClient(t, &rest.Config{Host: srv.URL}), Target: configMaps(event.Collection{}), Handler: h})
	if _, err := col.list(t.Context(), Signal{Kind: ListBegun}); err != nil || h.seen != server.n {
		t.Fatalf("received %d objects, %v", h.seen, err)
	}
}
