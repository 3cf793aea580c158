package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// Transactional is a [sink.Sink] that writes each batch and its commit in one
// transaction of its checkpoint store.
type Transactional struct {
	store  *Store
	topics *topics // with the store's client

	open  bool
	final error  // why the sink no longer writes
	seq   uint64 // of the latest batch
	done  bool   // the latest batch is committed
	made  made   // of Write
	// alone are partitions of the latest batch whose records are sent one by one,
	// to find the one that the broker rejects.
	alone map[partition]bool
	// answer is that of the brokers, state is that of the topics.
	answer, state finding

	mu     sync.Mutex // the client calls limit from a goroutine of its own
	limits map[string]int
}

var (
	_ sink.Sink          = (*Transactional)(nil)
	_ sink.Transactional = (*Transactional)(nil)
	_ sink.Checker       = (*Transactional)(nil)
)

// NewTransactional returns a sink for `delivery: exactly-once` that has not
// connected yet. It shares the store's connections.
func NewTransactional(s *Store) *Transactional {
	return &Transactional{store: s, topics: newTopics(s.admin, s.id), limits: map[string]int{}}
}

// Commit implements [sink.Transactional].
func (x *Transactional) Commit(ctx context.Context, seq uint64, changes []event.KV) error {
	_, err := x.Write(ctx, &event.Batch{Seq: seq, Commit: event.Commit{Changes: changes}})
	return err
}

// Open implements [sink.Sink]. It checks the credentials, then the identity of the checkpoint,
// and then fences the predecessor. It does not use the mark. It returns a [sink.RefusedError] for wrong credentials and for a
// topic whose number of partitions has changed. If a
// topic was deleted and created again, Open writes a request for a reset to the checkpoint.
func (x *Transactional) Open(ctx context.Context, _ []byte) error {
	x.open, x.final, x.seq, x.done = false, nil, 0, false
	x.topics.forget()
	if err := x.topics.open(ctx); err != nil {
		return err
	}
	x.topics.connected()
	for _, why := range x.topics.weakBrokers(ctx) {
		x.topics.log.Warn(why)
	}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	codec := codecs[slices.Index(compressions, x.topics.config.Compression)]
	err := x.store.Open(ctx, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytesFn(x.limit))
	if err == nil {
		err = x.readPins(ctx)
	}
	x.open = err == nil
	return err
}

// readPins compares the topics with the pins in the checkpoint. If a topic
// was deleted and created again, it writes a request for a reset to the checkpoint.
func (x *Transactional) readPins(ctx context.Context) (err error) {
	if x.topics.pins, err = scanPins(x.store.Scan); err != nil || len(x.topics.pins) == 0 {
		return err
	}
	found, _, err := x.topics.lookUp(ctx, slices.Sorted(maps.Keys(x.topics.pins)))
	if err != nil {
		return err
	}
	remade, moved := x.topics.pins.compare(found) // a missing or hidden topic is handled when it is written to
	if len(moved) > 0 {
		return refuse(moved[0])
	}
	var changes []event.KV
	for _, name := range remade {
		x.topics.log.Warn("topic was deleted and created again, reset requested", zap.Error(&remadeError{name}))
		changes = append(changes, event.KV{Key: []byte(pinPrefix + name)})
	}
	if changes == nil {
		return nil
	}
	changes = append(changes, event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()})
	if err := x.store.Transact(ctx, 0, changes, nil); err != nil {
		return err
	}
	for _, name := range remade {
		delete(x.topics.pins, name)
	}
	return x.store.copy.Commit(ctx, changes)
}

// limit returns the maximum bytes of a record batch for a topic: the limit of the
// topic, but low enough that one rejection does not concern all records.
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
// returns nil. After an error, no part of them is visible to a consumer that
// reads committed records only. For a record that Kafka refuses it returns a
// [sink.RecordError]. For a topic that refuses it returns a [sink.RouteError]; the records
// before its Index are written with the rest when Write is called again. For a topic
// whose number of partitions has changed it returns a [sink.RefusedError]. For a topic that was deleted
// and created again it returns [sink.ErrReset], after at most one minute. It returns no mark.
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
	switch {
	case err == nil:
		x.done = true
		x.answer = finding{at: time.Now()}
		return nil, nil
	case errors.As(err, new(*sink.RecordError)):
		return nil, err
	}
	x.topics.close() // the next connection reads the layout again
	x.topics.forget()
	return nil, x.judge(ctx, err)
}

// Check implements [sink.Checker]. It looks at the checkpoint's topic and at the topics of events once a minute: both can change, and can be
// deleted and created again, while there is nothing to write.
func (x *Transactional) Check(ctx context.Context) error {
	if x.final != nil {
		return x.final
	}
	err := x.answer.latest(pingEvery, func() error { return x.topics.ping(ctx) })
	if err != nil {
		return err
	}
	err = x.state.latest(metadataTTL, func() error {
		if err := x.store.inspect(ctx); err != nil {
			return err
		}
		if len(x.topics.pins) == 0 {
			return nil
		}
		_, err := x.topics.refresh(ctx, nil)
		return err
	})
	return x.judge(ctx, err)
}

// judge converts an error of the topics or the store to one of [sink].
func (x *Transactional) judge(ctx context.Context, err error) error {
	var (
		moved  *partitionsError
		remade *remadeError
	)
	switch {
	case err == nil:
	case errors.As(err, &moved):
		err = refuse(err)
	case errors.As(err, &remade):
		x.store.Release() // a client cannot write to a topic whose id has changed
		err = fmt.Errorf("%w: %w", sink.ErrReset, err)
	case errors.Is(err, kerr.ProducerFenced):
		x.final = fmt.Errorf("%w: %w", sink.ErrFenced, err)
		err = x.final
	case errors.Is(err, kerr.OffsetOutOfRange):
		clear(x.topics.pins) // they are written again
		err = fmt.Errorf("%w: %w", sink.ErrReset, err)
	case ctx.Err() != nil:
		err = fmt.Errorf("write to Kafka: %w", ctx.Err())
	}
	if errors.Is(err, sink.ErrReset) {
		x.state = finding{} // the error is about the state before the reset
	}
	return err
}

func (x *Transactional) write(ctx context.Context, b *event.Batch) error {
	// Settle first, because a committed batch must not be reported as refused.
	if committed, err := x.store.Settle(ctx, b.Seq); committed || err != nil {
		return err
	}
	names := routes(b, func(int) bool { return true })
	for {
		if err := x.topics.resolve(ctx, names); err != nil {
			return routeError(b, err)
		}
		changes, fresh, err := x.pin(b, names)
		if err != nil {
			return err
		}
		queues, err := x.topics.plan(ctx, b, nil)
		if err != nil {
			return err
		}
		x.shareLimits()
		p := &production{batch: b, queues: queues, alone: x.alone, made: &x.made}
		p.fill() // before the transaction begins, because it may have to wait for the end of the previous one
		err = x.store.Transact(ctx, b.Seq, changes, p.run)
		if len(x.made.records) > 0 { // not all records were acknowledged
			x.made = made{}
		}
		var failed *deliveryError
		switch {
		case err == nil:
			maps.Copy(x.topics.pins, fresh)
			return nil
		case !errors.As(err, &failed):
			return err
		}
		if err := x.refused(ctx, b, names, failed); err != nil {
			return err
		}
		x.alone[failed.partition] = true // the repeated batch shows which record is rejected
	}
}

// pin returns the batch's changes together with changes that pin the topics that are written to for the first
// time, and these pins.
func (x *Transactional) pin(b *event.Batch, names []string) ([]event.KV, pins, error) {
	changes, fresh := b.Commit.Changes[:len(b.Commit.Changes):len(b.Commit.Changes)], pins{}
	for _, name := range names {
		is := x.topics.known[name].pin()
		was, ok := x.topics.pins[name]
		is.id = cmp.Or(is.id, was.id)
		if ok && was.partitions != is.partitions {
			return nil, nil, &partitionsError{topic: name, was: was.partitions, is: is.partitions}
		}
		fresh[name] = is
		if was != is {
			changes = append(changes, event.KV{Key: []byte(pinPrefix + name), Value: []byte(is.String())})
		}
	}
	return changes, fresh, nil
}

// refused returns the error of a transaction in which one record was not written. It returns nil if the broker rejects the content of
// a request: the rejected record is then found by sending the partition's records one by one. It also returns nil if the records have other keys now.
func (x *Transactional) refused(ctx context.Context, b *event.Batch, names []string, failed *deliveryError) error {
	cause := failed.err
	if !aboutRecords(cause) {
		if errors.Is(cause, kerr.TopicAuthorizationFailed) {
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
		failed.topic.limit = 0 // the limit was too high
	} else if again, err := x.topics.rekeyed(ctx, failed.partition.topic); again || err != nil {
		return err
	}
	if x.alone[failed.partition] {
		return rejected
	}
	return nil
}

// blame returns the refusal of the topic that made a transaction fail with
// TOPIC_AUTHORIZATION_FAILED. Before Kafka 4.0, topics are added to a transaction in
// one request, and the client fails the records of all topics when one topic is refused.
// It returns nil if the brokers do not show which topic it is.
func (x *Transactional) blame(ctx context.Context, names []string) error {
	meta, err := x.topics.describeTopics(ctx, names)
	if err != nil {
		return nil // the error of the transaction is more useful
	}
	for i := range meta.Topics {
		t := &meta.Topics[i]
		if errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.TopicAuthorizationFailed) || !mayWrite(t.AuthorizedOperations) {
			return x.topics.unusable(*t.Topic, kerr.TopicAuthorizationFailed)
		}
	}
	return nil
}

func (x *Transactional) shareLimits() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, t := range x.topics.known {
		x.limits[name] = t.limit
	}
}

// Close implements [sink.Sink].
func (x *Transactional) Close() error {
	x.store.Release()
	x.topics.close()
	x.open = false
	return nil
}
