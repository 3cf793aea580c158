package nats

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/sink"
)

// A deleted key leaves a tombstone, a message without a value. The server cannot be made to forget it: a server that was
// killed reads its files again, and where the tombstone is gone, by expiry or by any purge but that of the whole
// stream, it finds the value before it (nats-server #8505). So every message carries the number of a cleaning pass.
// A pass begins a new number, and writes every value again, under that number; then the head says that messages with an
// older number are no longer valid, and the tombstones up to there may go: what comes back is known to be deleted.
//
// They go some time later. What is written last is what a server that loses its power may lose, and then it must
// have what was there before.
const (
	cleanFrom = 1000            // tombstones; and they must be half of the bucket
	cleanRead = 2000            // messages looked at after one write
	settle    = 5 * time.Minute // servers sync every two minutes, unless they are set to
)

// cleaning is how far that is.
type cleaning struct {
	least  int // tombstones from which the stream's size is asked for
	dead   int // tombstones, at most
	behind int // of these, those that came since the pass began

	to   uint64    // where the pass under way ends; 0: there is none
	at   uint64    // what is before has been looked at
	done time.Time // when the head said that all was written again
}

// clean goes a step on. It follows a write that succeeded; its error leaves nothing to be repaired.
func (b *bucket) clean(ctx context.Context) error {
	switch c := &b.cleaning; {
	case b.unsure || b.redo > 0:
		return nil
	case c.to == 0 && c.dead < max(c.least, b.cleanFrom):
		return nil
	case c.to == 0:
		return b.beginCleaning(ctx)
	case c.at <= c.to:
		return b.writeAgain(ctx)
	case c.done.IsZero():
		c.done = time.Now()
		return nil
	case time.Since(c.done) < b.settle:
		return nil
	default:
		return b.cutOff(ctx)
	}
}

// buried counts the tombstones that a write left.
func (c *cleaning) buried(n int) { c.dead, c.behind = c.dead+n, c.behind+n }

func (b *bucket) beginCleaning(ctx context.Context) error {
	found, err := b.find(ctx)
	if err != nil {
		return err
	}
	c := &b.cleaning
	if b.unsure = found.state.LastSeq != b.head; b.unsure { // somebody writes, or it was deleted
		return nil
	}
	if c.least = int(found.state.Msgs) / 2; c.dead >= c.least { // else it is worth it later
		c.to, c.at, c.behind = b.head, found.state.FirstSeq, 0
		b.pass++
	}
	return nil
}

// writeAgain writes again what has a value among the next messages. A value is replaced by the same value, in one publish with a
// head: a reader of the bucket meanwhile, or after a crash, finds the same content.
func (b *bucket) writeAgain(ctx context.Context) error {
	c := &b.cleaning
	var again []*nats.Msg
	at, seen, size := c.at, 0, 0
	which := sequences(c.at, c.to)
	which.ahead = cleanRead
	err := b.read(ctx, which, func(m jetstream.Msg, seq uint64) error {
		if at = seq + 1; seq > c.to {
			return sink.ErrEnough // it came since
		}
		t := strings.TrimPrefix(m.Subject(), b.prefix)
		_, redo := redoIndex(t)
		if seen++; b.wrote(m.Headers(), seq) && !redo && t != headToken && m.Headers().Get(headerOperation) == "" && passOf(m.Headers()) >= b.valid {
			copied := &nats.Msg{Subject: m.Subject(), Data: m.Data(), Header: nats.Header{}}
			if key := m.Headers().Get(headerKey); key != "" {
				copied.Header[headerKey] = []string{key}
			}
			again, size = append(again, copied), size+copied.Size()
		}
		if seen == cleanRead || len(again) >= b.most-1 || size >= chunkBytes {
			return sink.ErrEnough
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(again) > 0 {
		if err := b.publish(ctx, append(again, b.headMessage(0)), false); err != nil {
			return err
		}
	}
	if c.at = at; c.at > c.to {
		b.valid = b.pass // the next head says so
	}
	return nil
}

// cutOff ends a pass. The head stays, whatever came of it.
func (b *bucket) cutOff(ctx context.Context) error {
	found, err := b.find(ctx)
	if err != nil {
		return err
	}
	if b.unsure = found.state.LastSeq != b.head; b.unsure {
		return nil
	}
	c := &b.cleaning
	if err := b.purge(ctx, found, jetstream.WithPurgeSequence(min(c.to+1, b.head))); err != nil {
		return err
	}
	*c = cleaning{dead: c.behind}
	return nil
}
