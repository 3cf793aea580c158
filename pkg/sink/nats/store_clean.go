package nats

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// A deleted key leaves a tombstone: a message without a value. Tombstones cannot simply be purged: a server that was
// killed reads its files again, and if a tombstone is gone (by expiry, or by any purge other than of the whole
// stream), the value before it comes back (nats-server #8505). So every message carries the number of a cleaning pass.
// A pass starts a new number and writes every value again with it. Then the head declares messages with a
// lower number dead, and the tombstones of the pass can be purged: values that come back are known to be deleted.
//
// The purge follows after a delay. A server that loses power may lose the last writes, and must then still
// have the content from before the pass.
const (
	cleanFrom         = 1000            // tombstones that start a pass, if they are half of the bucket's messages
	cleanRead         = 2000            // messages that are read after one write
	defaultPurgeDelay = 5 * time.Minute // by default servers sync every two minutes
)

// cleaning has the state of the present pass.
type cleaning struct {
	minDead   int // below this number of tombstones the stream's size is not requested
	dead      int // upper bound of the number of tombstones
	deadSince int // how many of these were written since the pass began

	passEnd  uint64    // the last sequence of the present pass; 0: no pass is running
	next     uint64    // the next sequence to read; earlier ones were read
	passDone time.Time // when the head declared that all values were written again
}

// clean does one step of the cleaning. It is called after a write that succeeded. get returns the present value of a key, which may not be
// in the bucket yet. After an error nothing needs to be repaired.
func (b *bucket) clean(ctx context.Context, get func(key []byte) ([]byte, error)) error {
	switch c := &b.cleaning; {
	case b.headUnknown || b.redo > 0:
		return nil
	case c.passEnd == 0 && c.dead < max(c.minDead, b.cleanFrom):
		return nil
	case c.passEnd == 0:
		return b.beginCleaning(ctx)
	case c.next <= c.passEnd:
		return b.writeAgain(ctx, get)
	case c.passDone.IsZero():
		c.passDone = time.Now()
		return nil
	case time.Since(c.passDone) < b.purgeDelay:
		return nil
	default:
		return b.endCleaning(ctx)
	}
}

// addTombstones counts tombstones that a write leaves.
func (c *cleaning) addTombstones(n int) { c.dead, c.deadSince = c.dead+n, c.deadSince+n }

func (b *bucket) beginCleaning(ctx context.Context) error {
	found, err := b.find(ctx)
	if err != nil {
		return err
	}
	c := &b.cleaning
	if b.headUnknown = found.state.LastSeq != b.head; b.headUnknown { // another writer is at work, or the stream was deleted
		return nil
	}
	if c.minDead = int(found.state.Msgs) / 2; c.dead >= c.minDead { // otherwise there are too few tombstones in proportion
		c.passEnd, c.next, c.deadSince = b.head, found.state.FirstSeq, 0
		b.pass++
	}
	return nil
}

// writeAgain writes the values among the next messages again. Each value replaces itself, in one publish with a
// head, so that concurrent readers of the bucket, and a start after a crash, find the same content.
//
// The replica that is read may lag, and return values that were replaced or deleted since. So only present values are written again. A key
// with another present value needs no copy: the value was written since and has the number of this pass, or it is in the next write,
// whose head is the first that can declare the older value dead.
func (b *bucket) writeAgain(ctx context.Context, get func(key []byte) ([]byte, error)) error {
	c := &b.cleaning
	var again []*nats.Msg
	at, seen, size := c.next, 0, 0
	which := sequences(c.next, c.passEnd)
	which.ahead = cleanRead
	err := b.read(ctx, which, func(m jetstream.Msg, seq uint64) error {
		if at = seq + 1; seq > c.passEnd {
			return sink.ErrEnough // it was written after the pass began
		}
		t := strings.TrimPrefix(m.Subject(), b.prefix)
		_, redo := redoIndex(t)
		if seen++; b.wrote(m.Headers(), seq) && !redo && t != headToken && m.Headers().Get(headerOperation) == "" && passOf(m.Headers()) >= b.valid {
			key, err := keyOf(t, m.Headers())
			if err != nil {
				return err
			}
			if value, err := b.present(key, get); err != nil {
				return err
			} else if value != nil && bytes.Equal(value, m.Data()) {
				copied := put(b.prefix, string(key), value)
				again, size = append(again, copied), size+copied.Size()
			}
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
	if c.next = at; c.next > c.passEnd {
		b.valid = b.pass // the next head declares older messages dead
	}
	return nil
}

// present returns the present value of a key of the bucket.
func (b *bucket) present(key []byte, get func(key []byte) ([]byte, error)) ([]byte, error) {
	if string(key) == string(checkpoint.IdentityKey()) { // the working copy has an identity of its own
		return checkpoint.EncodeIdentity(b.id), nil
	}
	return get(key)
}

// endCleaning ends a pass by purging its messages. It never purges the head.
func (b *bucket) endCleaning(ctx context.Context) error {
	found, err := b.find(ctx)
	if err != nil {
		return err
	}
	if b.headUnknown = found.state.LastSeq != b.head; b.headUnknown {
		return nil
	}
	c := &b.cleaning
	if err := b.purge(ctx, found, jetstream.WithPurgeSequence(min(c.passEnd+1, b.head))); err != nil {
		return err
	}
	*c = cleaning{dead: c.deadSince}
	return nil
}
