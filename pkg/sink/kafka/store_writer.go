package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// writerKey is the key of the record "<run> <n>" that every transaction renews:
// who wrote it, and the how many-th of that run it is.
const writerKey = "!writer"

// maxTransactionTimeout is what a slow bus is given in the end.
const maxTransactionTimeout = 2 * time.Minute

// untilFlush is longer than it takes to hand over a batch: what there is of it is
// sent when Flush is called, in few requests, or when it fills one.
const untilFlush = time.Second

// markers is how long Kafka is given to write the end of a transaction to its
// partitions, which it does after it has answered. What is produced to them before
// that it holds, for 20 ms by default (add.partitions.to.txn.retry.backoff.ms, since
// the broker itself adds them, KIP-890).
const markers = 3 * time.Millisecond

// errUnknown marks a transaction of which it is not known whether it was committed.
var errUnknown = errors.New("no answer to the end of the transaction")

// lostError says how the topic lost what was committed to it. Consumers read
// these words, and Kafka's own, of an offset, would not help them.
type lostError struct{ how string }

func (e *lostError) Error() string { return e.how }
func (*lostError) Unwrap() error   { return kerr.OffsetOutOfRange }

// writer is the state of a transactional producer over its generations.
type writer struct {
	opts    []kgo.Opt
	client  *kgo.Client        // nil: a new generation is due
	own     *own               // of client
	kill    context.CancelFunc // of client: it ends whatever it waits for
	timeout time.Duration
	n       uint64    // transactions begun
	ended   time.Time // when the latest was committed
	base    int64     // offset behind our last committed writer record
	began   bool      // the first one is committed, base is valid
	fenced  bool
	lost    error // the topic is not what was written; returned by restart

	unknown doubt
}

// doubt is about the transaction whose outcome is not known; zero: there is none.
type doubt struct {
	n, seq    uint64
	committed bool // it was seen: base is behind it, and it is not seen again
}

// Transact commits the changes, and what produce writes, in one transaction, or
// none of it. produce (nil: nothing more) names the partitions, and returns when
// everything of its own is acknowledged; its error is returned as it is. seq distinguishes
// the transaction from others when it is repeated after an error: it is then not
// written again if it was committed after all. 0 is always written.
//
// An error that wraps [kerr.ProducerFenced] says that another process has taken
// over: it is final. One that wraps [kerr.OffsetOutOfRange] says, once, that the
// topic has lost what was committed to it, or was deleted; it holds by then the
// request for a declared reset. After any other the same transaction may be tried
// again.
func (s *Store) Transact(ctx context.Context, seq uint64, changes []event.KV, produce func(context.Context, *kgo.Client) error) error {
	committed, err := s.Settle(ctx, seq)
	if err != nil || committed {
		return err
	}
	return s.attempt(ctx, transaction{seq, changes, produce})
}

// Settle finds out whether a transaction that ended with an error was committed
// after all. The errors are those of Transact. It costs nothing after a success.
func (s *Store) Settle(ctx context.Context, seq uint64) (committed bool, err error) {
	w := &s.writer
	switch {
	case w.fenced:
		return false, s.takenOver()
	case w.client != nil:
		return false, nil
	}
	if err := s.renew(ctx); err != nil {
		if errors.Is(err, checkpoint.ErrUnusable) { // final at the start only
			err = errors.New(err.Error())
		}
		return false, fmt.Errorf("checkpoint topic %q: %w", s.topic, err)
	}
	was := w.unknown
	w.unknown = doubt{}
	return was.committed && seq != 0 && seq == was.seq, nil
}

type transaction struct {
	seq     uint64
	changes []event.KV
	produce func(context.Context, *kgo.Client) error
}

// Release gives up the producer. A transaction that is open is aborted when the
// next producer begins, or when it times out.
func (s *Store) Release() {
	if s.writer.client != nil {
		s.writer.client.Close()
		s.writer.kill()
		s.writer.client = nil
	}
}

func (s *Store) takenOver() error {
	return fmt.Errorf("checkpoint topic %q: %w: another process runs this sink of this bridge", s.topic, kerr.ProducerFenced)
}

// final translates errors that [checkpoint] has a name for.
func (s *Store) final(err error) error {
	switch {
	case errors.Is(err, kerr.ProducerFenced):
		return fmt.Errorf("%w: %w", checkpoint.ErrFenced, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, err)
	}
	return err
}

// takeOver begins to write: the producer's initialisation fences and aborts
// a predecessor, then all that is written is read, then the identity is written.
func (s *Store) takeOver(ctx context.Context) error {
	if err := s.initProducer(ctx); err != nil {
		return err
	}
	if err := s.catchUp(ctx, written); err != nil {
		return err
	}
	var first []event.KV
	if s.owner == nil {
		first = append(first, event.KV{Key: checkpoint.IdentityKey(), Value: checkpoint.EncodeIdentity(s.id)})
		if s.used { // a part may be missing
			s.log.Warn("the checkpoint topic does not say whose it is: a reset follows", zap.String("topic", s.topic))
			first = append(first, event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()})
		}
	}
	if err := s.attempt(ctx, transaction{changes: first}); err != nil {
		return err
	}
	s.writer.began = true
	if s.owner != nil {
		return nil
	}
	s.owner = first[0].Value
	return s.copy.Commit(ctx, first[1:])
}

// renew begins a new generation after a failure. What became of the transaction of
// unknown outcome is known when it returns nil.
func (s *Store) renew(ctx context.Context) error {
	w := &s.writer
	switch {
	case !w.began:
		return errors.New("it is not open")
	case w.lost != nil:
		return s.restart(ctx)
	}
	// Before the producer's initialisation would fence the one that has
	// fenced us.
	err := s.witness(ctx, committed)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return s.remake(ctx, err)
	}
	if err != nil {
		return err
	}
	if err := s.initProducer(ctx); err != nil {
		return err
	}
	err = s.witness(ctx, written)
	switch {
	case w.lost != nil:
		return s.restart(ctx)
	case err != nil:
		s.Release()
		return err
	}
	return nil
}

// remake restarts where the topic was deleted. That a broker does not know it is
// no proof; that it can be created is.
func (s *Store) remake(ctx context.Context, unknown error) error {
	created, err := s.ensureTopic(ctx)
	switch {
	case err != nil:
		return err
	case !created:
		return unknown
	}
	s.writer.lost = &lostError{"it was deleted"}
	return s.restart(ctx)
}

// restart begins again in a topic that was cut off or made again, and returns that as
// an error. Who comes after a crash learns of it from the topic. The working copy stays:
// the caller deletes what is in it.
func (s *Store) restart(ctx context.Context) error {
	w := &s.writer
	s.Release()
	if _, err := s.ensureTopic(ctx); err != nil {
		return err
	}
	if err := s.initProducer(ctx); err != nil {
		return err
	}
	w.base = 0
	first := []event.KV{
		{Key: checkpoint.IdentityKey(), Value: s.owner},
		{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()},
	}
	if err := s.attempt(ctx, transaction{changes: first}); err != nil {
		return err
	}
	err := w.lost
	w.lost = nil
	return err
}

// witness reads who has written since our last transaction.
func (s *Store) witness(ctx context.Context, e end) error {
	w := &s.writer
	to, err := s.end(ctx, e)
	if err != nil {
		return err
	}
	// The answer to the end of a transaction comes before its marker is in the
	// topic: until then what is committed ends before it.
	if to < w.base && e == written {
		w.lost = &lostError{fmt.Sprintf("it ends at offset %d and was written up to %d", to, w.base)}
		return w.lost
	}
	return s.read(ctx, w.base, to, func(r *kgo.Record) error {
		if string(r.Key) != writerKey {
			return nil
		}
		run, n, _ := strings.Cut(string(r.Value), " ")
		if run != s.run {
			w.fenced = true
			return s.takenOver()
		}
		w.base = r.Offset + 1
		if w.unknown.n != 0 && n == strconv.FormatUint(w.unknown.n, 10) {
			w.unknown.committed = true
		}
		return nil
	})
}

func (s *Store) initProducer(ctx context.Context) error {
	w := &s.writer
	w.timeout = max(w.timeout, s.o.TransactionTimeout)
	life, kill := context.WithCancel(context.Background())
	o := &own{}
	c, err := kgo.NewClient(slices.Concat(s.admin.options(&atomic.Int32{}), w.opts, []kgo.Opt{
		kgo.WithContext(life),
		kgo.TransactionalID(TransactionalID(s.id)),
		kgo.TransactionTimeout(w.timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(untilFlush),
		kgo.MaxBufferedBytes(32 << 20),
		kgo.WithHooks(o),
	})...)
	if err != nil {
		kill()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stall, errNoAnswer)
	defer cancel()
	alive := context.AfterFunc(ctx, kill)
	_, _, err = c.ProducerID(ctx)
	if !alive() {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		kill()
		return fmt.Errorf("initialise transactional id %q: %w", TransactionalID(s.id), explain(err))
	}
	w.client, w.kill, w.own = c, kill, o
	return nil
}

// attempt runs one transaction on the producer at hand, which does not survive a
// failure: the next one's initialisation aborts what this one began.
func (s *Store) attempt(ctx context.Context, t transaction) (err error) {
	w := &s.writer
	limit, cancel := context.WithTimeout(ctx, w.timeout*4/5)
	defer cancel()
	alive := context.AfterFunc(limit, w.kill)
	defer func() {
		if !alive() {
			s.Release()
		}
	}()
	w.n++
	began := time.Now()
	defer func() {
		if err == nil {
			return
		}
		switch {
		case ctx.Err() != nil:
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case limit.Err() != nil:
			err = fmt.Errorf("the transaction took longer than %v: %w", w.timeout*4/5, err)
			w.timeout = min(2*w.timeout, max(maxTransactionTimeout, s.o.TransactionTimeout))
		}
		s.log.Debug("transaction failed", zap.Error(err), zap.Duration("after", time.Since(began)))
		if !errors.Is(err, errUnknown) && harmless(err) {
			s.abort(ctx)
		}
		s.Release()
	}()
	w.awaitMarkers(limit)
	if err := w.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", lost(err))
	}
	// Before t.produce, whose Flush then sends everything at once.
	s.buffer(limit, t.changes)
	if t.produce != nil {
		if err := t.produce(limit, w.client); err != nil {
			return lost(err)
		}
	}
	first, last, err := w.awaitAcks(limit)
	if err != nil {
		return fmt.Errorf("checkpoint topic %q: %w", s.topic, lost(explain(err)))
	}
	if first < w.base { // it was made again, and no request failed of it
		w.lost = &lostError{fmt.Sprintf("offset %d was written a second time, it had been written up to %d", first, w.base)}
		return fmt.Errorf("checkpoint topic %q: %w", s.topic, lost(w.lost))
	}
	if err := w.awaitLayout(limit); err != nil {
		return err
	}
	if err := w.client.EndTransaction(limit, kgo.TryCommit); err != nil {
		w.unknown = doubt{n: w.n, seq: t.seq}
		return fmt.Errorf("%w: %w", errUnknown, lost(err))
	}
	w.base, w.unknown, w.ended = last+1, doubt{}, time.Now()
	return nil
}

// awaitMarkers waits until what is produced is taken at once.
func (w *writer) awaitMarkers(ctx context.Context) {
	if left := time.Until(w.ended.Add(markers)); left > 0 {
		_ = pause(ctx, left) // what follows knows of ctx
	}
}

// awaitLayout waits until the client has noted the partitions of the topics that it
// met in this transaction. It sends their first records a moment before it does, and
// EndTransaction aborts, and reports success, when it knows of no partition that was
// written to (franz-go v1.22.2). Purging runs behind what the client does with a
// topic's layout, and of a name that no topic can have there is nothing to purge. A
// client that ctx has killed does not wait: that nothing was ended is then certain.
func (w *writer) awaitLayout(ctx context.Context) error {
	w.client.PurgeTopicsFromProducing("")
	return ctx.Err()
}

// abort ends the transaction, so that consumers need not wait until the next one
// begins. That it may fail is why the next producer's initialisation aborts too.
func (s *Store) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s.writer.client.AbortBufferedRecords(ctx) == nil {
		_ = s.writer.client.EndTransaction(ctx, kgo.TryAbort)
	}
}

// harmless reports whether the producer itself is sound after the error. One
// that is not must not try to recover by itself: it could fence its successor.
func harmless(err error) bool {
	for _, e := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.PolicyViolation,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// lost hides that a broker called the producer fenced: a transaction that timed
// out looks the same. Only the topic shows which it was.
func lost(err error) error {
	for _, e := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.OffsetOutOfRange, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID} {
		if errors.Is(err, e) {
			return fmt.Errorf("the broker no longer takes this producer: %v", err) //nolint:errorlint // hidden on purpose
		}
	}
	return err
}
