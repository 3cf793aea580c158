package nats

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// foreignEvery is the minimum time between two log lines about foreign messages.
const foreignEvery = time.Minute

// foreign counts the messages on a pipeline's streams that were not written there by a bridge. Each message counts once.
type foreign struct {
	log   *zap.Logger
	count atomic.Uint64

	mu     sync.Mutex
	seen   map[string]uint64 // by stream: the last one that was counted
	logged time.Time
}

// found counts a message.
func (f *foreign) found(stream string, seq uint64, subject string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq <= f.seen[stream] {
		return
	}
	if f.seen == nil {
		f.seen = map[string]uint64{}
	}
	f.seen[stream] = seq
	n := f.count.Add(1)
	if time.Since(f.logged) < foreignEvery {
		return
	}
	f.logged = time.Now()
	f.log.Warn("ignored message that the bridge did not write: another client can write to the stream",
		zap.String("stream", stream), zap.Uint64("sequence", seq), zap.String("subject", subject), zap.Uint64("ignored", n))
}
