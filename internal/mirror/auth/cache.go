package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// allowedFor is how long a positive answer of the API server counts, refusedFor how long a negative one. That the API server did not
	// answer is not kept.
	allowedFor, refusedFor = 10 * time.Second, 5 * time.Second
	// knownFor is how long credentials count as known before, which has its own share of the questions.
	knownFor = time.Hour
	// cacheEntries is the largest number of answers of one kind.
	cacheEntries = 4096
	// askTime bounds a question to the API server.
	askTime = 5 * time.Second
)

type key = [sha256.Size]byte

// cache keeps answers. Positive and negative ones have a map each, so that many refused requests do not remove what others need.
type cache[V any] struct {
	mu               sync.Mutex
	allowed, refused map[key]kept[V]
}

type kept[V any] struct {
	value V
	at    time.Time
}

// get returns an answer that still counts. known says that there was a positive answer within knownFor, which is value if none counts.
func (c *cache[V]) get(k key) (value V, found, known bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.allowed[k]; ok {
		age := now.Sub(a.at)
		if age < allowedFor {
			return a.value, true, true
		}
		if known = age < knownFor; known {
			value = a.value
		}
	}
	if a, ok := c.refused[k]; ok && now.Sub(a.at) < refusedFor {
		return a.value, true, known
	}
	return value, false, known
}

func (c *cache[V]) put(k key, value V, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if allowed {
		delete(c.refused, k)
		c.allowed = add(c.allowed, k, value, knownFor)
		return
	}
	delete(c.allowed, k)
	c.refused = add(c.refused, k, value, refusedFor)
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
