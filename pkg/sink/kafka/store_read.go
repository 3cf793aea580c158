package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stall is how long reading may make no progress: another producer's open
// transaction can hold back what was written after it, until it times out.
const stall = 20 * time.Second

// errStalled says that stall has passed.
var errStalled = fmt.Errorf("no answer for %v: check the brokers and the network", stall)

// end is how far reading goes.
type end int

const (
	// committed is before the first transaction that is still open.
	committed end = iota
	// written is all that is written now; reading waits for open transactions.
	written
)

// client is one that ends with ctx: a request's own context does not end the wait
// for a broker that takes a connection and says nothing.
func (s *Store) client(ctx context.Context, more ...kgo.Opt) (*kgo.Client, error) {
	// Full slice expressions: the options are shared.
	return kgo.NewClient(append(append(s.o.Client[:len(s.o.Client):len(s.o.Client)], more...), kgo.WithContext(ctx))...)
}

// end asks where the topic ends. Brokers learn of a new topic one after another:
// that one does not know it yet is no answer.
func (s *Store) end(ctx context.Context, e end) (offset int64, err error) {
	for until := time.Now().Add(spread); ; {
		offset, err = s.askEnd(ctx, e)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || time.Now().After(until) {
			return offset, err
		}
		select {
		case <-ctx.Done():
			return 0, err
		case <-time.After(spread / 20):
		}
	}
}

func (s *Store) askEnd(ctx context.Context, e end) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errStalled)
	defer cancel()
	c, err := s.client(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	list := kadm.NewClient(c).ListEndOffsets
	if e == committed {
		list = kadm.NewClient(c).ListCommittedOffsets
	}
	offsets, err := list(ctx, s.topic)
	if err == nil {
		err = offsets.Error()
	}
	o, ok := offsets.Lookup(s.topic, 0)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, fmt.Errorf("ask for its end: %w", context.Cause(ctx))
	case err != nil:
		return 0, fmt.Errorf("ask for its end: %w", explain(err))
	case !ok:
		return 0, errors.New("ask for its end: it has no partition 0")
	}
	return o.Offset, nil
}

// read calls fn for the committed records from one offset to before another, in
// order. Control records take offsets, and so may what is never shown: they only
// mark progress.
func (s *Store) read(ctx context.Context, from, to int64, fn func(*kgo.Record) error) error {
	if from >= to {
		return nil
	}
	c, err := s.client(ctx,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().At(from)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		kgo.KeepRetryableFetchErrors(),
		kgo.FetchMaxWait(250*time.Millisecond),
		kgo.FetchMaxPartitionBytes(4<<20),
		kgo.FetchMaxBytes(4<<20),
	)
	if err != nil {
		return err
	}
	defer c.Close()
	var last error // that may heal
	for {
		wait, cancel := context.WithTimeout(ctx, stall)
		progress := false
		for !progress && wait.Err() == nil {
			fetches := c.PollFetches(wait)
			fetches.EachError(func(_ string, _ int32, err error) {
				if wait.Err() == nil {
					last = err
				}
			})
			for _, r := range fetches.Records() {
				progress = true
				if r.Offset < to && !r.Attrs.IsControl() {
					if err := fn(r); err != nil {
						cancel()
						return err
					}
				}
				if r.Offset >= to-1 {
					cancel()
					return nil
				}
			}
		}
		cancel()
		switch {
		case progress:
		case ctx.Err() != nil:
			return ctx.Err()
		case last != nil:
			return fmt.Errorf("nothing came for %v: %w", stall, explain(last))
		default:
			return fmt.Errorf("nothing came for %v: another producer's transaction may be open on it: if this lasts, `kafka-transactions.sh find-hanging` says which", stall)
		}
	}
}
