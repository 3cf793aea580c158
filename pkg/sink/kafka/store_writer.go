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

// writerKey is the key of the record "<run> <n>" that every transaction writes:
// the run of the writer, and the number of the transaction within the run.
const writerKey = "!writer"

// maxTransactionTimeout is the longest timeout of transactions, for a slow bus.
const maxTransactionTimeout = 2 * time.Minute

// untilFlush is longer than it takes to pass a batch to the client, so that records are
// sent in few requests: when Flush is called, or when a request is full.
const untilFlush = time.Second

// markers is the pause for Kafka to write the end of a transaction to its
// partitions, which Kafka does after its answer. Records that are produced to these partitions earlier
// wait for 20 ms by default (add.partitions.to.txn.retry.backoff.ms, since
// the broker itself adds partitions, KIP-890).
const markers = 3 * time.Millisecond

// errUnknown marks a transaction whose outcome is unknown.
var errUnknown = errors.New("no answer to the end of the transaction")

// lostError says how the topic lost committed records. Its text goes to consumers, for whom
// Kafka's own text about an offset would not be useful.
type lostError struct{ how string }

func (e *lostError) Error() string { return e.how }
func (*lostError) Unwrap() error   { return kerr.OffsetOutOfRange }

// writer is the state of a transactional producer over its generations.
type writer struct {
	opts    []kgo.Opt
	client  *kgo.Client        // nil: the next transaction needs a new generation
	own     *own               // of client
	kill    context.CancelFunc // of client: ends all its waits
	timeout time.Duration
	n       uint64    // transactions begun
	ended   time.Time // time of the latest commit
	base    int64     // offset after this writer's last committed writer record
	began   bool      // the first one is committed, base is valid
	fenced  bool
	lost    error // the topic has lost records; returned by restart

	unknown doubt
}

// doubt is the transaction whose outcome is unknown; zero: there is none.
type doubt struct {
	n, seq    uint64
	committed bool // the transaction was found committed: base is after it, and it is not read again
}

// Transact commits the changes, and the records of produce, in one transaction: all or
// none of them. produce (nil: no records) names the partitions, and returns when
// all its records are acknowledged; its error is returned unchanged. seq identifies
// the transaction when it is repeated after an error: it is then not
// written again if it was committed after all. A transaction with seq 0 is always written.
//
// An error that wraps [kerr.ProducerFenced] means that another process has taken
// over: it is final. An error that wraps [kerr.OffsetOutOfRange] means that the
// topic has lost committed records, or was deleted. It is returned once, after the topic has the
// request for a reset. After any other error the same transaction may be
// repeated.
func (s *Store) Transact(ctx context.Context, seq uint64, changes []event.KV, produce func(context.Context, *kgo.Client) error) error {
	committed, err := s.Settle(ctx, seq)
	if err != nil || committed {
		return err
	}
	return s.attempt(ctx, transaction{seq, changes, produce})
}

// Settle finds out whether a transaction that ended with an error was committed
// after all. The errors are those of Transact. After a success it sends no request.
func (s *Store) Settle(ctx context.Context, seq uint64) (committed bool, err error) {
	w := &s.writer
	switch {
	case w.fenced:
		return false, s.takenOver()
	case w.client != nil:
		return false, nil
	}
	if err := s.renew(ctx); err != nil {
		return false, fmt.Errorf("checkpoint topic %q: %w", s.topic, laterError(err))
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

// Release closes the producer. An open transaction is aborted when the
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

// final converts errors to the errors of [checkpoint].
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
// a predecessor, then the store reads all records, and then writes the identity.
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
		if s.used { // a part of the records may be missing
			s.log.Warn("checkpoint topic has no identity record, reset requested", zap.String("topic", s.topic))
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
	s.owner, s.ownerAt = first[0].Value, s.writer.base
	return s.copy.Commit(ctx, first[1:])
}

// renew begins a new generation after a failure. When it returns nil, the outcome of the
// last transaction is known.
func (s *Store) renew(ctx context.Context) error {
	w := &s.writer
	switch {
	case !w.began:
		return errors.New("it is not open")
	case w.lost != nil:
		return s.restart(ctx)
	}
	// Check this before the producer's initialisation, which would fence the writer that has
	// fenced this one.
	err := s.witness(ctx, committed)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return s.remake(ctx, err)
	case w.lost != nil:
		return s.restart(ctx)
	case err != nil:
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

// remake restarts if the topic was deleted. The proof is that the topic can be created; that a
// broker does not have it is no proof.
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

// restart begins again in a topic that was truncated or created again, and returns the reason as
// an error. It writes the request for a reset to the topic, for a start after a crash. The working copy stays:
// the caller deletes its content.
func (s *Store) restart(ctx context.Context) error {
	w := &s.writer
	s.Release()
	if _, err := s.ensureTopic(ctx); err != nil {
		return err
	}
	if err := s.initProducer(ctx); err != nil {
		return err
	}
	var err error
	if w.base, err = s.end(ctx, beginning); err != nil {
		return err
	}
	if s.owner == nil { // the copy was emptied
		s.owner = checkpoint.EncodeIdentity(s.id)
	}
	first := []event.KV{
		{Key: checkpoint.IdentityKey(), Value: s.owner},
		{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()},
	}
	if err := s.attempt(ctx, transaction{changes: first}); err != nil {
		return err
	}
	s.ownerAt = w.base
	err, w.lost = w.lost, nil
	return err
}

// witness reads the writers since this writer's last transaction.
func (s *Store) witness(ctx context.Context, e end) error {
	w := &s.writer
	to, err := s.end(ctx, e)
	if err != nil {
		return err
	}
	// Kafka answers the end of a transaction before its marker is in the
	// topic. Until then the committed records end before the transaction.
	if to < w.base && e == written {
		w.lost = &lostError{fmt.Sprintf("it ends at offset %d and was written up to %d", to, w.base)}
		return w.lost
	}
	err = s.read(ctx, w.base, to, func(r *kgo.Record) error {
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
	if errors.Is(err, kerr.OffsetOutOfRange) {
		w.lost = &lostError{fmt.Sprintf("records behind offset %d were removed", w.base)}
		return w.lost
	}
	return err
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
		if errors.Is(err, kerr.InvalidTransactionTimeout) && w.timeout > s.o.TransactionTimeout { // it was raised for a slow bus
			w.timeout = s.o.TransactionTimeout
			return fmt.Errorf("initialise transactional id %q with a longer timeout: %w", TransactionalID(s.id), err)
		}
		return fmt.Errorf("initialise transactional id %q: %w", TransactionalID(s.id), s.explain(err))
	}
	w.client, w.kill, w.own = c, kill, o
	return nil
}

// attempt runs one transaction on the present producer. After a failure the producer is closed, and
// the initialisation of the next producer aborts the transaction.
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
		return fmt.Errorf("checkpoint topic %q: %w", s.topic, lost(s.explain(err)))
	}
	if first < w.base { // the topic was created again without a failed request
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

// awaitMarkers waits until Kafka accepts records without a delay.
func (w *writer) awaitMarkers(ctx context.Context) {
	if left := time.Until(w.ended.Add(markers)); left > 0 {
		_ = pause(ctx, left) // the caller checks ctx
	}
}

// awaitLayout waits until the client has recorded the partitions of new topics in this
// transaction. The client sends their first records shortly before that. If it has recorded no
// written partition, EndTransaction aborts and reports success (franz-go v1.22.2). Purging a topic
// waits for the client's work on the layout of topics, so awaitLayout purges a name that no topic can have. It
// does not wait for a client that ctx has killed: that client has certainly not ended the transaction.
func (w *writer) awaitLayout(ctx context.Context) error {
	w.client.PurgeTopicsFromProducing("")
	return ctx.Err()
}

// abort ends the transaction, so that consumers need not wait until the next one
// begins. If abort fails, the initialisation of the next producer aborts the transaction.
func (s *Store) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s.writer.client.AbortBufferedRecords(ctx) == nil {
		_ = s.writer.client.EndTransaction(ctx, kgo.TryAbort)
	}
}

// harmless reports whether the producer is still usable after the error. An unusable
// producer must not try to recover, because it could fence its successor.
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

// lost hides a broker's error that the producer is fenced, because a transaction that timed
// out has the same error. Only the topic shows the cause.
func lost(err error) error {
	for _, e := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.OffsetOutOfRange, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID} {
		if errors.Is(err, e) {
			return fmt.Errorf("the broker no longer takes this producer: %v", err) //nolint:errorlint // hidden on purpose
		}
	}
	return err
}
