package nats

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// foreignEvery is how often foreign messages are logged at most.
const foreignEvery = time.Minute

// foreign counts the messages that stand on a pipeline's streams and that no bridge wrote there. Each counts once.
type foreign struct {
	log   *zap.Logger
	count atomic.Uint64

	mu     sync.Mutex
	seen   map[string]uint64 // by stream: the last one that was counted
	logged time.Time
}

// found takes note of a message.
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
	f.log.Warn("message ignored that this bridge did not write: somebody else can write to the stream",
		zap.String("stream", stream), zap.Uint64("sequence", seq), zap.String("subject", subject), zap.Uint64("ignored", n))
}
