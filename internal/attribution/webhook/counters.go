package webhook

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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

// rarely returns a logger that logs each message at most once a minute.
func rarely(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 1, 0)
	}))
}
