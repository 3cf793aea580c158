package scale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// changes are what was published in one namespace while it is watched.
type changes struct {
	mu        sync.Mutex
	versions  []uint64
	published []time.Time // before the sink was called
}

func (c *changes) add(version uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions, c.published = append(c.versions, version), append(c.published, at)
}

// nth returns the nth change; ok is false if there is none.
func (c *changes) nth(n int) (version uint64, at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n >= len(c.versions) {
		return 0, at, false
	}
	return c.versions[n], c.published[n], true
}

func (c *changes) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

// watcher is one watch of a namespace. It must receive all changes of the namespace, once and in order.
type watcher struct {
	namespace string
	changes   *changes
	received  int
	latencies []time.Duration
}

// run reads until ctx ends or the watch does. It calls opened once the answer has begun, and received after each change.
func (w *watcher) run(ctx context.Context, client *http.Client, url string, opened func(), received func()) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	a, err := client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return errors.New(a.Status)
	}
	opened()
	lines := bufio.NewReader(a.Body)
	for {
		begin, err := lines.ReadSlice('\n') // the first 4 KiB, which have the metadata
		at := time.Now()
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if wrong := w.take(begin, at); wrong != nil {
			return wrong
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return err
		}
		received()
	}
}

var modified, versionMember = []byte(`{"type":"MODIFIED",`), []byte(`"resourceVersion":"`)

// take checks the beginning of a line.
func (w *watcher) take(line []byte, at time.Time) error {
	_, rest, found := bytes.Cut(line, versionMember)
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	version, err := strconv.ParseUint(string(text), 10, 64)
	if !found || err != nil || !bytes.HasPrefix(line, modified) {
		return fmt.Errorf("a watch of %s received %.200s", w.namespace, line)
	}
	expected, published, ok := w.changes.nth(w.received)
	if !ok || expected != version {
		return fmt.Errorf("change %d in %s is of resourceVersion %d, want %d: a change is missing, repeated or out of order", w.received, w.namespace, version, expected)
	}
	w.received++
	w.latencies = append(w.latencies, at.Sub(published))
	return nil
}

// quantile returns the value below which a part of them is. It sorts them.
func quantile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(part*float64(len(all))))]
}
