package webhook

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/internal/attribution/audit"
)

// Refusal is why a request is not answered with 200.
type Refusal uint8

// The reasons.
const (
	RefusedClient Refusal = iota // 401, 403
	RefusedForm                  // 400, 405, 415
	RefusedSize                  // 413
	RefusedSlow                  // 408, or the body did not come as a whole
	RefusedBusy                  // 429: too much is being received
	RefusedFull                  // 429: the inbox is full
	RefusedFailed                // 503
	refusals
)

// String returns the reason as it is used for metrics.
func (r Refusal) String() string {
	return [...]string{"client", "form", "size", "slow", "busy", "full", "failed"}[r]
}

// Counters are numbers since the start. The API server repeats what was refused. So Bytes and the numbers of events are of requests that
// were answered with 200, and an event counts twice only if the API server did not get that answer.
type Counters struct {
	Accepted   uint64           // requests answered with 200
	Refused    [refusals]uint64 // other requests, by Refusal
	Bytes      uint64
	Events     uint64 // the sum of the next three
	Stored     uint64
	Dropped    audit.Dropped // by audit.Drop
	Unparsable uint64
}

// RefusedByName returns the numbers of refused requests by [Refusal.String].
func (c *Counters) RefusedByName() map[string]uint64 {
	out := map[string]uint64{}
	for why, n := range c.Refused {
		out[Refusal(why).String()] = n
	}
	return out
}

type counts struct {
	mu sync.Mutex
	n  Counters
}

func (c *counts) get() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counts) refuse(why Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n.Refused[why]++
}

func (c *counts) accept(bytes int, b *audit.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n.Accepted++
	c.n.Bytes += uint64(bytes)
	c.n.Events += uint64(b.Events())
	c.n.Stored += uint64(len(b.Records))
	c.n.Unparsable += uint64(b.Unparsable)
	c.n.Dropped.Add(&b.Dropped)
}

// rarely logs a message at most once a minute.
type rarely struct {
	log *zap.Logger

	mu   sync.Mutex
	last map[string]time.Time
	held map[string]int // how often a message was not logged since
}

func (r *rarely) warn(message string, fields ...zap.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last, ok := r.last[message]; ok && now.Sub(last) < time.Minute {
		r.held[message]++
		return
	}
	if r.last == nil {
		r.last, r.held = map[string]time.Time{}, map[string]int{}
	}
	if n := r.held[message]; n > 0 {
		fields = append(fields, zap.Int("not-logged", n))
	}
	r.last[message], r.held[message] = now, 0
	r.log.Warn(message, fields...)
}
