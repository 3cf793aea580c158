package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
)

// limit is a number of questions a second, and at once.
type limit struct {
	rate  float32
	burst int
}

// Limits for known users, and for unknown tokens by their addresses. A user with the 512 watches that one address may
// have asks up to 26 questions a second.
var (
	userLimit, usersLimit       = limit{30, 100}, limit{200, 400}
	unknownLimit, unknownsLimit = limit{5, 20}, limit{20, 40}
)

// shareIdle is how long a share is kept after its last question. It is full again by then.
const shareIdle = time.Minute

// BusyError says that somebody has asked too much.
type BusyError struct{ who string }

func (e *BusyError) Error() string { return fmt.Sprintf("too many checks for %s", e.who) }

// shares limits the questions of everybody, and of all together. Any goroutine may use it.
type shares struct {
	each limit
	all  flowcontrol.RateLimiter

	mu sync.Mutex
	by *lru.LRUExpireCache // limiters
}

func newShares(each, all limit) *shares {
	limiter := flowcontrol.NewTokenBucketRateLimiter(all.rate, all.burst)
	return &shares{each: each, all: limiter, by: lru.NewLRUExpireCache(cacheEntries)}
}

// acquire takes a question from the share of who, and waits for one of all. It returns a [BusyError] if there is none.
func (s *shares) acquire(ctx context.Context, who string) error {
	if !s.limiterFor(who).TryAccept() || s.all.Wait(ctx) != nil {
		return &BusyError{who}
	}
	return nil
}

func (s *shares) limiterFor(who string) flowcontrol.RateLimiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.by.Get(who)
	if !known {
		one = flowcontrol.NewTokenBucketRateLimiter(s.each.rate, s.each.burst)
	}
	s.by.Add(who, one, shareIdle)
	return one.(flowcontrol.RateLimiter)
}
