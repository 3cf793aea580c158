package source

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// cutAfter is the minimum time after which the size of a page may be the reason why its answer was cut. A server that restarts, or a load
	// balancer, cuts answers at any time.
	cutAfter = time.Second
	// boundFor is how long a bound stays that is not used, for example of a namespace that was deleted.
	boundFor = 24 * time.Hour
)

// pageBounds bound the objects of pages, per target, after pages that did not arrive whole. An API server breaks an answer off when it takes longer
// than its --request-timeout, and over a slow link a page of large objects would be broken off each time. The zero value bounds nothing.
type pageBounds struct {
	mu sync.Mutex
	of map[Target]pageBound
}

// pageBound is the maximum number of objects of a page.
type pageBound struct {
	objects int
	failed  time.Duration // how long the last page took that failed
	used    time.Time
}

// limit returns the limit for a page that should have a limit.
func (b *pageBounds) limit(t Target, limit int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound, ok := b.of[t]
	if !ok {
		return limit
	}
	bound.used = time.Now()
	b.of[t] = bound
	return min(limit, bound.objects)
}

// failed records that a page of at most limit objects failed after the time took, and returns the limit with which it may arrive. It returns limit
// if that is 1.
func (b *pageBounds) failed(t Target, limit int, took time.Duration) int {
	if limit == 1 {
		return 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(b.of, func(_ Target, old pageBound) bool { return now.Sub(old.used) > boundFor })
	objects := limit / 4
	if old, ok := b.of[t]; ok {
		objects = min(objects, old.objects)
	}
	objects = max(objects, 1)
	if b.of == nil {
		b.of = map[Target]pageBound{}
	}
	b.of[t] = pageBound{objects, max(took, cutAfter), now}
	return objects
}

// arrived records that a page of n objects arrived whole. bounded: its limit was a bound. The first match applies:
//
//	fewer objects than the limit                             nothing: there were no more
//	not bounded                                              no bound is needed
//	of a former, smaller bound                               nothing
//	a page of twice the objects takes less time than the     the bound doubles
//	one that failed
func (b *pageBounds) arrived(t Target, n, limit int, bounded bool, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound, ok := b.of[t]
	switch {
	case !ok || n < limit:
	case !bounded:
		delete(b.of, t)
	case limit < bound.objects:
	case 2*took < bound.failed:
		if bound.objects *= 2; bound.objects >= maxPage {
			delete(b.of, t)
		} else {
			b.of[t] = bound
		}
	}
}

// sizeExplains reports whether a page that failed with err, took after its request, may arrive if it is smaller:
//
//	504                                             yes: a server behind the API server, or etcd, needs too long
//	429, and a server that cannot be reached        no
//	another status                                  after firstAnswer, if it is 500 or more
//	cut answers, and pages that the client gave up  after cutAfter
func sizeExplains(err error, took time.Duration) bool {
	var network *net.OpError
	switch code := statusCode(err); {
	case code == http.StatusGatewayTimeout:
		return true
	case code == http.StatusTooManyRequests, errors.As(err, &network) && network.Op != "read", errors.Is(err, errPageTooLarge):
		return false
	case code != 0:
		return code >= http.StatusInternalServerError && took >= firstAnswer
	default:
		return took >= cutAfter
	}
}
