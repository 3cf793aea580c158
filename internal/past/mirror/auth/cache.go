package auth

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// allowedTTL is how long a positive answer of the API server counts, refusedTTL how long a negative one. That the API server did not
	// answer is not kept.
	allowedTTL, refusedTTL = 10 * time.Second, 5 * time.Second
	// knownTTL is how long credentials count as known before, which has its own share of the questions.
	knownTTL = time.Hour
	// cacheEntries is the largest number of answers of one kind.
	cacheEntries = 4096
	// askTime bounds a question to the API server.
	askTime = 5 * time.Second
)

type key = [sha256.Size]byte

// await returns the answer to a question, which several requests may wait for, or an [UnansweredError] if ctx ends before.
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

// cache keeps answers. Positive and negative ones have a map each, so that many refused requests do not remove what others need.
type cache[V any] struct {
	mu               sync.Mutex
	allowed, refused map[key]kept[V]
}

type kept[V any] struct {
	value V
	at    time.Time
}

// get returns an answer that still counts. known says that there was a positive answer within knownTTL, which is value if none counts.
func (c *cache[V]) get(k key) (value V, found, known bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.allowed[k]; ok {
		age := now.Sub(a.at)
		if age < allowedTTL {
			return a.value, true, true
		}
		if known = age < knownTTL; known {
			value = a.value
		}
	}
	if a, ok := c.refused[k]; ok && now.Sub(a.at) < refusedTTL {
		return a.value, true, known
	}
	return value, false, known
}

func (c *cache[V]) put(k key, value V, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if allowed {
		delete(c.refused, k)
		c.allowed = add(c.allowed, k, value, knownTTL)
		return
	}
	delete(c.allowed, k)
	c.refused = add(c.refused, k, value, refusedTTL)
}

// add adds an entry. A full map first loses its old entries, or everything if there is none.
func add[V any](m map[key]kept[V], k key, value V, life time.Duration) map[key]kept[V] {
	now := time.Now()
	if m == nil {
		m = map[key]kept[V]{}
	}
	if _, has := m[k]; !has && len(m) >= cacheEntries {
		for other, a := range m {
			if now.Sub(a.at) >= life {
				delete(m, other)
			}
		}
		if len(m) >= cacheEntries {
			clear(m)
		}
	}
	m[k] = kept[V]{value, now}
	return m
}
