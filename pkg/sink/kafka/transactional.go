package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Journal is the checkpoint, as a sink sees it that writes in transactions:
// [Store] is one. One goroutine calls it.
type Journal interface {
	// Open checks whose the checkpoint is and then shuts out whoever wrote to it
	// before. It may be called again, after an error or to begin anew. producer are
	// options of the client that Transact hands out.
	Open(ctx context.Context, producer ...kgo.Opt) error

	// Transact makes the changes, and what produce writes with the client,
	// durable at once, or nothing of it. produce (nil: nothing more) names
	// partitions and returns when its records are acknowledged; its error is
	// returned as it is. A transaction that is repeated after an error under the same seq (but 0) is not written
	// twice. An error that wraps kerr.ProducerFenced says that somebody else has
	// called Open since, kerr.OffsetOutOfRange that the checkpoint is lost.
	Transact(ctx context.Context, seq uint64, changes []event.KV, produce func(context.Context, *kgo.Client) error) error

	// Settle reports whether a transaction that ended with an error was committed
	// after all. The errors are those of Transact.
	Settle(ctx context.Context, seq uint64) (committed bool, err error)

	// Scan is that of a checkpoint store, as of Open.
	Scan(prefix []byte, fn func(key, value []byte) error) error

	// Release ends the client. Nothing of it runs after it returns.
	Release()
}

// Transactional is a [sink.Sink] that writes each batch and its commit in one
// transaction.
type Transactional struct {
	topics  *Sink     // looks after the topics, and tries the credentials
	client  []kgo.Opt // for looking at topics' ids, which kafka-go does not read
	journal Journal

	open   bool
	final  error     // why nothing is written any more
	seq    uint64    // of the latest batch
	done   bool      // and whether it is committed
	pins   pins      // the topics, as the checkpoint has them
	seen   pins      // the topics, as Kafka has them
	looked time.Time // when it was last asked
	made   made      // of Write
	// alone are partitions of the latest batch whose records are sent one by one,
	// to find the one that the broker rejects.
	alone map[partition]bool

	mu     sync.Mutex // the client asks from a goroutine of its own
	limits map[string]int
}

var (
	_ sink.Sink          = (*Transactional)(nil)
	_ sink.Transactional = (*Transactional)(nil)
)

// NewTransactional returns a sink for `delivery: exactly-once` that has not
// connected yet. An error is about the configuration, or a file it names.
func NewTransactional(o Options, j Journal) (*Transactional, error) {
	topics, err := New(o)
	if err != nil {
		return nil, err
	}
	client, err := ClientOptions(topics.config, o.Identity)
	if err != nil {
		return nil, err
	}
	x := &Transactional{
		topics: topics, client: client, journal: j,
		pins: pins{}, seen: pins{}, limits: map[string]int{},
	}
	topics.gone = func(name string) bool {
		delete(x.seen, name)
		return x.pins[name].id != ""
	}
	return x, nil
}

// Commit implements [sink.Transactional].
func (x *Transactional) Commit(ctx context.Context, seq uint64, changes []event.KV) error {
	_, err := x.Write(ctx, &event.Batch{Seq: seq, Commit: event.Commit{Changes: changes}})
	return err
}

// Open implements [sink.Sink]: credentials first, then whose checkpoint it is,
// then the predecessor is shut out. The mark is not used. Wrong credentials and a
// topic whose number of partitions has changed are a [sink.RefusedError]. Where a
// topic was made anew, the checkpoint asks for a declared reset from then on.
func (x *Transactional) Open(ctx context.Context, mark []byte) error {
	x.open, x.final, x.seq, x.done = false, nil, 0, false
	if err := x.topics.Open(ctx, mark); err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	codec := codecs[slices.Index(compressions, x.topics.config.Compression)]
	err := x.journal.Open(ctx, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytesFn(x.limit))
	if err == nil {
		err = x.readPins(ctx)
	}
	x.open = err == nil
	return err
}

// limit is the most bytes that a record batch for a topic may have: what the
// topic takes, but not so much that a single rejection concerns everything.
func (x *Transactional) limit(topic string) int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.limits[topic]
	if n == 0 {
		n = brokerMaxBytes
	}
	return int32(min(max(n, 512), math.MaxInt32/2))
}

// Write implements [sink.Sink]. The batch and its commit are durable when it
// returns nil; after an error nothing of them is to be seen by a consumer that
// reads committed records only. A record that Kafka will not take is a
// [sink.RecordError]. A topic that refuses is a [sink.RouteError]; what stands
// before its Index is written with the rest, when Write is called again. A topic
// whose number of partitions changes is a [sink.RefusedError]; one that is made
// anew is a [sink.ErrReset], within a minute at most. It returns no mark.
func (x *Transactional) Write(ctx context.Context, b *event.Batch) ([]byte, error) {
	switch {
	case x.final != nil:
		return nil, x.final
	case !x.open:
		return nil, errors.New("write to Kafka: the sink is not open")
	case b.Seq == 0 || b.Seq != x.seq:
		x.seq, x.done, x.alone = b.Seq, false, map[partition]bool{}
	case x.done:
		return nil, nil
	}
	err := ctx.Err()
	if err == nil {
		err = x.write(ctx, b)
	}
	var (
		poison *sink.RecordError
		moved  *partitionsError
	)
	switch {
	case err == nil:
		x.done = true
		return nil, nil
	case errors.As(err, &poison):
		return nil, err
	case errors.As(err, &moved):
		err = refuse(err)
	case errors.Is(err, kerr.ProducerFenced):
		x.final = fmt.Errorf("%w: %w", sink.ErrFenced, err)
		err = x.final
	case errors.Is(err, kerr.OffsetOutOfRange):
		clear(x.pins) // they are written again
		err = fmt.Errorf("%w: %w", sink.ErrReset, err)
	case ctx.Err() != nil:
		err = fmt.Errorf("write to Kafka: %w", ctx.Err())
	}
	x.topics.drop() // the next connection learns the layout anew
	clear(x.seen)
	return nil, err
}

func (x *Transactional) write(ctx context.Context, b *event.Batch) error {
	// First of all: what is committed must not be reported as refused.
	if committed, err := x.journal.Settle(ctx, b.Seq); committed || err != nil {
		return err
	}
	names := x.topics.routes(b)
	for {
		if err := x.identify(ctx, names); err != nil {
			return routeError(b, err)
		}
		if err := x.topics.resolve(ctx, names); err != nil {
			return routeError(b, err)
		}
		changes, fresh, err := x.pin(ctx, b, names)
		if err != nil {
			return routeError(b, err)
		}
		queues, err := x.topics.plan(ctx, b)
		if err != nil {
			return err
		}
		x.shareLimits()
		p := &production{batch: b, queues: queues, alone: x.alone, made: &x.made}
		p.fill() // before the transaction, which may have to wait for the end of the last one
		err = x.journal.Transact(ctx, b.Seq, changes, p.run)
		if len(x.made.records) > 0 { // not all were acknowledged
			x.made = made{}
		}
		var failed *deliveryError
		switch {
		case err == nil:
			maps.Copy(x.pins, fresh)
			return nil
		case !errors.As(err, &failed):
			return err
		}
		cause := fromFranz(failed.err)
		if !aboutRecords(cause) {
			if errors.Is(cause, kafka.TopicAuthorizationFailed) {
				if err := x.blame(ctx, names); err != nil {
					return routeError(b, err)
				}
			}
			err := fmt.Errorf("topic %q, partition %d: %w", failed.partition.topic, failed.id, x.topics.explain(cause))
			return routeError(b, refusalOf(failed.partition.topic, cause, err))
		}
		q := queue{partition: failed.partition, topic: failed.topic, rest: []item{failed.item}}
		rejected := q.reject(cause)
		if tooLarge(cause) {
			failed.topic.limit = 0 // it has proved too high
		}
		if x.alone[failed.partition] {
			return rejected
		}
		x.alone[failed.partition] = true // the batch again, and which record it is shows
	}
}

func (x *Transactional) shareLimits() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, t := range x.topics.topics {
		x.limits[name] = t.limit
	}
}

// Close implements [sink.Sink].
func (x *Transactional) Close() error {
	x.journal.Release()
	x.open = false
	return x.topics.Close()
}
