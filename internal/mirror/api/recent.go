package api

import (
	"context"
	"sync"

	"github.com/kubebridge/kubebridge/internal/mirror/store"
)

const (
	// recentBytes bounds the bodies of the changes that are kept for watches, and stretchBytes those of one stretch.
	recentBytes  = 64 << 20
	stretchBytes = 16 << 20
	// changeBytes is what a change takes beside its bodies, about.
	changeBytes = 1 << 10
)

// recent keeps the last changes of all resources, so that each change is read once for all watches that have seen everything before it.
// Any goroutine may use it.
type recent struct {
	store *store.Store

	mu    sync.Mutex
	known map[stretchKey]*stretch
	order []*stretch // the oldest first
	bytes int        // of those whose changes were read
}

// stretchKey identifies a stretch by where it begins.
type stretchKey struct {
	resource store.Resource
	behind   store.Position
}

// stretch are the changes of a resource behind one position, up to another that was served after it.
type stretch struct {
	stretchKey
	upTo store.Position

	done    chan struct{} // closed when the changes were read; until then only the watch that reads them uses the fields below
	all     []*store.Change
	of      map[string][]*store.Change // by namespace
	bytes   int
	counted bool // in recent.bytes
	tooLong bool // the changes are not kept
	err     error
	stopped bool // err is because the context of the watch that read ended
}

func newRecent(s *store.Store) *recent {
	return &recent{store: s, known: map[stretchKey]*stretch{}}
}

// behind returns the changes of a resource behind a position, up to another or a later one that is served; nil if they are too many. It ends with
// the cause of ctx if ctx ends. Then another watch that waits for the same changes reads them.
func (r *recent) behind(ctx context.Context, id store.Resource, at, upTo store.Position) (*stretch, error) {
	for {
		t := r.read(ctx, stretchKey{id, at}, upTo)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case t.stopped:
			continue
		case t.err != nil || t.tooLong:
			return nil, t.err
		}
		return t, nil
	}
}

// read returns the changes behind a position. One watch reads them, others wait for it. If ctx ends, nobody may use what it returns.
func (r *recent) read(ctx context.Context, key stretchKey, upTo store.Position) *stretch {
	r.mu.Lock()
	t, known := r.known[key]
	if !known {
		t = &stretch{stretchKey: key, upTo: upTo, done: make(chan struct{})}
		r.known[key] = t
		r.order = append(r.order, t)
	}
	r.mu.Unlock()
	if known {
		select {
		case <-t.done:
		case <-ctx.Done():
		}
		return t
	}
	t.fill(ctx, r.store)
	r.keep(t)
	close(t.done)
	return t
}

// keep counts what was read, and removes the oldest stretches if there is too much.
func (r *recent) keep(t *stretch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[t.stretchKey] != t {
		return
	}
	t.counted, r.bytes = true, r.bytes+t.bytes
	if t.err != nil { // another watch may try again
		delete(r.known, t.stretchKey)
	}
	for r.bytes > recentBytes && r.order[0] != t {
		oldest := r.order[0]
		r.order = r.order[1:]
		if oldest.counted {
			r.bytes -= oldest.bytes
		}
		if r.known[oldest.stretchKey] == oldest {
			delete(r.known, oldest.stretchKey)
		}
	}
}

func (t *stretch) fill(ctx context.Context, s *store.Store) {
	t.of = map[string][]*store.Change{}
	t.err = s.Changes(ctx, t.resource, "", t.behind, t.upTo, func(c *store.Change) bool {
		kept := *c
		t.all = append(t.all, &kept)
		t.of[c.Namespace] = append(t.of[c.Namespace], &kept)
		for _, o := range []*store.Object{c.Before, c.After} {
			if o != nil {
				t.bytes += len(o.Body)
			}
		}
		t.bytes += changeBytes
		t.tooLong = t.bytes > stretchBytes
		return !t.tooLong
	})
	t.stopped = t.err != nil && ctx.Err() != nil
	if t.tooLong {
		t.all, t.of, t.bytes = nil, nil, changeBytes
	}
	t.bytes += changeBytes
}

// in returns the changes of a namespace; of all namespaces if it is "".
func (t *stretch) in(namespace string) []*store.Change {
	if namespace == "" {
		return t.all
	}
	return t.of[namespace]
}
