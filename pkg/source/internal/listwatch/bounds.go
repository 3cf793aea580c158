package listwatch

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of pages, and of attempts for one.
const (
	MaxPage     = 1000            // objects
	PageTimeout = 2 * time.Minute // for one page, to its last byte
	PageTries   = 5               // attempts per page except the first page, before the list begins again
	SlowTries   = 1               // further attempts after one that the server did not answer in time: the list holds its slot
	// FirstAnswer is how long a first attempt waits for the server to begin its answer, and then for each further part of
	// the answer. After that time the list ends and gives its slot back. A retry waits for PageTimeout.
	FirstAnswer = 5 * time.Second
	// CutAfter is the minimum time after which the size of a page may be the reason why its answer was cut. A server that restarts, or a load
	// balancer, cuts answers at any time.
	CutAfter = time.Second
	// BoundFor is how long a bound stays that is not used, for example of a namespace that was deleted.
	BoundFor = 24 * time.Hour
)

// Bounds bound the objects of pages, per key, after pages that did not arrive whole. An API server breaks an answer off when it takes longer
// than its --request-timeout, and over a slow link a page of large objects would be broken off each time. The zero value bounds nothing.
type Bounds[K comparable] struct {
	mu sync.Mutex
	of map[K]pageBound
}

// pageBound is the maximum number of objects of a page.
type pageBound struct {
	objects int
	failed  time.Duration // how long the last page took that failed
	used    time.Time
}

// Limit returns the limit for a page that should have a limit.
func (b *Bounds[K]) Limit(key K, limit int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound, ok := b.of[key]
	if !ok {
		return limit
	}
	bound.used = time.Now()
	b.of[key] = bound
	return min(limit, bound.objects)
}

// Failed records that a page of at most limit objects failed after the time took, and returns the limit with which it may arrive. It returns limit
// if that is 1.
func (b *Bounds[K]) Failed(key K, limit int, took time.Duration) int {
	if limit == 1 {
		return 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(b.of, func(_ K, old pageBound) bool { return now.Sub(old.used) > BoundFor })
	objects := limit / 4
	if old, ok := b.of[key]; ok {
		objects = min(objects, old.objects)
	}
	objects = max(objects, 1)
	if b.of == nil {
		b.of = map[K]pageBound{}
	}
	b.of[key] = pageBound{objects, max(took, CutAfter), now}
	return objects
}

// Arrived records that a page of n objects arrived whole. bounded: its limit was a bound. The first match applies:
//
//	fewer objects than the limit                             nothing: there were no more
//	not bounded                                              no bound is needed
//	of a former, smaller bound                               nothing
//	a page of twice the objects takes less time than the     the bound doubles
//	one that failed
func (b *Bounds[K]) Arrived(key K, n, limit int, bounded bool, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound, ok := b.of[key]
	switch {
	case !ok || n < limit:
	case !bounded:
		delete(b.of, key)
	case limit < bound.objects:
	case 2*took < bound.failed:
		if bound.objects *= 2; bound.objects >= MaxPage {
			delete(b.of, key)
		} else {
			b.of[key] = bound
		}
	}
}

// SizeExplains reports whether a page that failed with err, took after its request, may arrive if it is smaller:
//
//	504                                             yes: a server behind the API server, or etcd, needs too long
//	429, and a server that cannot be reached        no
//	another status                                  after FirstAnswer, if it is 500 or more
//	cut answers, and pages that the client gave up  after CutAfter
func SizeExplains(err error, took time.Duration) bool {
	var network *net.OpError
	switch code := StatusCode(err); {
	case code == http.StatusGatewayTimeout:
		return true
	case code == http.StatusTooManyRequests, errors.As(err, &network) && network.Op != "read":
		return false
	case code != 0:
		return code >= http.StatusInternalServerError && took >= FirstAnswer
	default:
		return took >= CutAfter
	}
}
