package auth

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/sync/singleflight"
	lru "k8s.io/apimachinery/pkg/util/cache"
)

const (
	// allowedTTL is how long a positive answer of the API server counts, refusedTTL how long a negative one.
	allowedTTL, refusedTTL = 10 * time.Second, 5 * time.Second
	// knownTTL is how long credentials count as known before, which has its own share of the questions.
	knownTTL = time.Hour
	// cacheEntries is the largest number of answers of one kind.
	cacheEntries = 4096
	// askTime bounds a question to the API server.
	askTime = 5 * time.Second
)

type key = [sha256.Size]byte

// await returns an answer that several requests may wait for, or an [UnansweredError] if ctx ends before.
func await[V any](ctx context.Context, answer <-chan singleflight.Result) (v V, err error) {
	select {
	case a := <-answer:
		if a.Err != nil {
			return v, a.Err
		}
		return a.Val.(V), nil
	case <-ctx.Done():
		return v, &UnansweredError{"permissions cannot be checked now: the API server has not answered in time", ctx.Err()}
	}
}

// cache keeps answers, positive and negative ones apart: many refused requests do not remove what others need.
type cache[V any] struct{ allowed, refused *lru.LRUExpireCache }

func newCache[V any]() cache[V] {
	return cache[V]{lru.NewLRUExpireCache(cacheEntries), lru.NewLRUExpireCache(cacheEntries)}
}

// positive is an element of cache.allowed. Those of cache.refused are values.
type positive[V any] struct {
	value V
	at    time.Time
}

// get returns an answer that counts. known: there was a positive one within knownTTL, which is value if none counts.
func (c *cache[V]) get(k key) (value V, found, known bool) {
	if a, ok := c.allowed.Get(k); ok {
		p := a.(positive[V])
		if value, known = p.value, true; time.Since(p.at) < allowedTTL {
			return value, true, true
		}
	}
	if a, ok := c.refused.Get(k); ok {
		return a.(V), true, known
	}
	return value, false, known
}

func (c *cache[V]) put(k key, value V, allowed bool) {
	if allowed {
		c.refused.Remove(k)
		c.allowed.Add(k, positive[V]{value, time.Now()}, knownTTL)
		return
	}
	c.allowed.Remove(k)
	c.refused.Add(k, value, refusedTTL-1) // at refusedTTL it does not count any more
}
