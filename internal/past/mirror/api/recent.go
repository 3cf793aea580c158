package api

import (
	linked "container/list"
	"context"
	"sync"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
)

const (
	// recentBytes bounds the bodies of kept changes, also those that watches are sending; stretchBytes those of one
	// stretch.
	recentBytes  = 64 << 20
	stretchBytes = 16 << 20
	// changeBytes is what a change takes beside its bodies, about.
	changeBytes = 1 << 10
)

// recent keeps the last changes of all resources, so that each is read once for all watches that are as far. Any
// goroutine may use it.
type recent struct {
	store *store.Store

	mu    sync.Mutex
	known map[stretchKey]*stretch
	order *linked.List // the known ones, the oldest first
	bytes int          // of those that are known, or that a watch uses
}

type stretchKey struct {
	resource store.Resource
	behind   store.Position
}

// stretch are the changes of a resource behind one position, up to another that was served after it.
type stretch struct {
	stretchKey
	upTo store.Position

	place *linked.Element // in recent.order
	users int             // watches that read it, wait for it or send it; recent.mu guards it, as it does bytes
	bytes int             // in recent.bytes

	done    chan struct{} // closed when the changes were read; until then only the watch that reads them uses the fields below
	all     []*store.Change
	of      map[string][]*store.Change // by namespace
	tooLong bool                       // the changes are not kept
	err     error
	stopped bool // err is because the context of the watch that read ended
}

// behind returns the changes behind a position, up to another or a later served one; nil if they are too many, together
// with those that slow watches use. The caller releases them. If ctx ends, another watch that waits reads them.
func (r *recent) behind(ctx context.Context, id store.Resource, at, upTo store.Position) (*stretch, error) {
	for {
		t := r.read(ctx, stretchKey{id, at}, upTo)
		var err error
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case t.stopped:
			r.release(t)
			continue
		case t.err != nil || t.tooLong:
			err = t.err
		default:
			return t, nil
		}
		r.release(t)
		return nil, err
	}
}

// release is called when a watch does not use a stretch any more.
func (r *recent) release(t *stretch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.users--
	if r.known[t.stretchKey] != t {
		r.forget(t)
	}
}

// forget keeps other watches from finding a stretch. Its bytes count until no watch uses it. The caller holds r.mu.
func (r *recent) forget(t *stretch) {
	if r.known[t.stretchKey] == t {
		delete(r.known, t.stretchKey)
		r.order.Remove(t.place)
	}
	if t.users == 0 {
		r.bytes, t.bytes = r.bytes-t.bytes, 0
	}
}

// count adds to the bytes of a stretch. If there are too many, it forgets the oldest that no watch uses; false: not
// enough.
func (r *recent) count(t *stretch, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.bytes, r.bytes = t.bytes+bytes, r.bytes+bytes
	for e := r.order.Front(); e != nil && r.bytes > recentBytes; {
		oldest := e.Value.(*stretch) //nolint:forcetypeassert // the list has no others
		e = e.Next()
		if oldest.users == 0 {
			r.forget(oldest)
		}
	}
	return r.bytes <= recentBytes
}

// read returns the changes behind a position, which the caller releases. One watch reads, others wait. If ctx ends,
// nobody may use the result.
func (r *recent) read(ctx context.Context, key stretchKey, upTo store.Position) *stretch {
	r.mu.Lock()
	t, known := r.known[key]
	if !known {
		t = &stretch{stretchKey: key, upTo: upTo, done: make(chan struct{})}
		r.known[key], t.place = t, r.order.PushBack(t)
	}
	t.users++
	r.mu.Unlock()
	if known {
		select {
		case <-t.done:
		case <-ctx.Done():
		}
		return t
	}
	r.fill(ctx, t)
	close(t.done)
	return t
}

func (r *recent) fill(ctx context.Context, t *stretch) {
	r.count(t, changeBytes)
	t.of = map[string][]*store.Change{}
	t.err = r.store.Changes(ctx, t.resource, "", t.behind, t.upTo, func(c *store.Change) bool {
		kept := *c
		t.all = append(t.all, &kept)
		t.of[c.Namespace] = append(t.of[c.Namespace], &kept)
		bytes := changeBytes
		for _, o := range []*store.Object{c.Before, c.After} {
			if o != nil {
				bytes += len(o.Body)
			}
		}
		if c.After == nil {
			bytes += len(c.Last.Body)
		}
		t.tooLong = !r.count(t, bytes) || t.bytes > stretchBytes
		return !t.tooLong
	})
	t.stopped = t.err != nil && ctx.Err() != nil
	if t.tooLong {
		t.all, t.of = nil, nil
		r.count(t, changeBytes-t.bytes)
	}
	if t.err != nil { // another watch may try again
		r.mu.Lock()
		defer r.mu.Unlock()
		r.forget(t)
	}
}

// in returns the changes of a namespace; of all namespaces if it is "".
func (t *stretch) in(namespace string) []*store.Change {
	if namespace == "" {
		return t.all
	}
	return t.of[namespace]
}
