package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/sink"
)

// DefaultCheckpointTopic is the template of a checkpoint's topic. It has the cluster's name and
// not its UID, so that two clusters with one name use one topic, and the second cluster is
// refused.
const DefaultCheckpointTopic = "kubebridge.{name}.{cluster}.{sink}"

// CheckpointTopic fills in a template of a topic's name; "" means [DefaultCheckpointTopic].
func CheckpointTopic(template string, id event.Identity) string {
	if template == "" {
		template = DefaultCheckpointTopic
	}
	return id.Expand(template)
}

// TransactionalID returns the transactional.id of a checkpoint's writer. It is the same for
// every process that runs the sink, so each process fences its predecessor.
func TransactionalID(id event.Identity) string {
	return "kubebridge." + id.Bridge + "." + id.ClusterUID + "." + id.Sink
}

// StoreOptions are the options of a store.
type StoreOptions struct {
	Options
	// Topic is the topic's name; "" is [CheckpointTopic] of the default.
	Topic string
	// Replicas is the replication factor of a topic that the store creates; 0 is
	// the broker's default.
	Replicas int
	// TransactionTimeout is the time after which Kafka aborts a transaction that has
	// not ended; 0 is 15 s. If a transaction takes longer, the next ones get a longer
	// timeout, up to two minutes.
	TransactionTimeout time.Duration
	// StandAlone is set for a sink that does not write in transactions. Load
	// then fences the predecessor, and Commit writes to the topic.
	StandAlone bool

	anyOwner bool // accept any identity and any format
}

// Store is a [checkpoint.Store] and a [checkpoint.Loader] in a compacted topic. Get
// and Scan may be called from several goroutines at once, other methods from one at a time.
//
// Each sink has a topic of its own, with one partition. Key and value of a record
// are key and value of the checkpoint; a null value deletes the key. The topic is written only in
// transactions, by one transactional.id, and read with isolation level
// read_committed, so an interrupted commit is not visible. A Transactional
// writes its events in the same transactions ([Store.Transact]); for other sinks
// [Store.Commit] uses separate transactions.
//
// A writer writes a record under one fixed key when it begins, and every transaction
// writes that record again. If a commit was not answered, this record shows whether
// the transaction was committed, and whether another writer has taken over since. This does not
// depend on the error codes of the broker.
//
// Get and Scan are answered from a working copy in a temporary directory.
type Store struct {
	o     StoreOptions
	id    event.Identity
	admin *admin
	topic string
	log   *zap.Logger
	run   string // the run of this writer, see writerKey

	copy    *file.Store
	next    int64  // offset up to which copy holds the topic
	owner   []byte // identity record in the topic; nil: none
	ownerAt int64  // its offset, or a later one of its transaction: it comes before all content
	used    bool   // the topic has or had records
	wasRead bool   // this process has read the topic

	writer writer
	state  finding // of the topic
	answer finding // of the brokers
	warned bool    // the warning that the topic's configuration cannot be read was logged
}

var (
	_ checkpoint.Store  = (*Store)(nil)
	_ checkpoint.Loader = (*Store)(nil)
	_ sink.Checker      = (*Store)(nil)
)

// NewStore returns a store that has not connected yet. The caller closes it. An error is about the configuration, a file
// it names, or the working copy.
func NewStore(o StoreOptions) (*Store, error) {
	a, err := newAccess(o.Options)
	if err != nil {
		return nil, err
	}
	if o.Topic == "" {
		o.Topic = CheckpointTopic("", o.Identity)
	}
	if o.TransactionTimeout == 0 {
		o.TransactionTimeout = 15 * time.Second
	}
	s := &Store{o: o, id: o.Identity, admin: newAdmin(a), topic: o.Topic, log: a.log}
	return s, s.empty()
}

// empty begins a new working copy.
func (s *Store) empty() error {
	err := s.closeCopy()
	s.next, s.owner, s.used = 0, nil, false
	if err != nil {
		return err
	}
	s.copy, err = file.OpenScratch("", s.id)
	if err != nil {
		s.log.Warn("keeping the checkpoint's working copy in memory: set TMPDIR to a writable directory", zap.Error(err))
		s.copy, err = file.OpenMem(s.id)
	}
	return err
}

func (s *Store) closeCopy() error {
	if s.copy == nil {
		return nil
	}
	return s.copy.Close()
}

// Get implements [checkpoint.Store].
func (s *Store) Get(key []byte) ([]byte, error) { return s.copy.Get(key) }

// Scan implements [checkpoint.Store].
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	return s.copy.Scan(prefix, fn)
}

// Commit implements [checkpoint.Store]. For a sink that writes in
// transactions it only updates the working copy, because the changes are already durable. Otherwise it writes the
// changes; if another process has taken over, the error wraps [checkpoint.ErrFenced].
func (s *Store) Commit(ctx context.Context, changes []event.KV) error {
	if s.o.StandAlone && len(changes) > 0 {
		if err := s.Transact(ctx, 0, changes, nil); err != nil {
			return s.final(err)
		}
	}
	return s.copy.Commit(ctx, changes)
}

// Check implements [sink.Checker]. For a sink that writes in transactions it does nothing, because the sink looks at the topic.
func (s *Store) Check(ctx context.Context) error {
	if !s.o.StandAlone {
		return nil
	}
	err := s.answer.latest(pingEvery, func() error { return s.admin.ping(ctx) })
	if err == nil {
		err = s.final(s.state.latest(metadataTTL, func() error { return s.inspect(ctx) }))
	}
	return err
}

// Load implements [checkpoint.Loader]. With StandAlone it is Open. Otherwise the sink has called Open, which has read the topic as its only
// writer: if the topic was deleted since, the next write reports the loss.
func (s *Store) Load(ctx context.Context) error {
	if s.o.StandAlone {
		return s.final(s.Open(ctx))
	}
	return nil
}

// Open prepares the topic, reads its content, checks its identity, and only
// then fences a predecessor. It may be called again after an error. producer
// are options for the client that Transact uses. The error for a
// checkpoint of another sink wraps the error of [checkpoint.CheckIdentity]. The error for a
// topic with unusable settings wraps [checkpoint.ErrUnusable].
func (s *Store) Open(ctx context.Context, producer ...kgo.Opt) error {
	s.Release()
	s.run = rand.Text()
	s.writer = writer{opts: producer}
	_, err := s.ensureTopic(ctx)
	if err == nil {
		err = s.catchUp(ctx, committed)
	}
	if err == nil {
		err = s.takeOver(ctx)
	}
	if err != nil {
		s.Release()
		return fmt.Errorf("checkpoint topic %q: %w", s.topic, err)
	}
	return nil
}

// Close releases the writer and removes the working copy.
func (s *Store) Close() error {
	s.Release()
	s.admin.close()
	err := s.closeCopy()
	s.copy = nil
	return err
}

// catchUp fills the copy and checks its identity.
func (s *Store) catchUp(ctx context.Context, end end) error {
	if err := s.fill(ctx, end); err != nil {
		return err
	}
	return s.checkOwner()
}

// skipRemoved moves next to the beginning of the topic if records behind next were removed. They may have had the identity, which comes before
// all content: without it, takeOver requests a reset.
func (s *Store) skipRemoved(ctx context.Context, to int64) error {
	if to <= s.next {
		return nil
	}
	first, err := s.end(ctx, beginning)
	if err != nil || first <= s.next {
		return err
	}
	s.log.Warn("records were removed from the beginning of the checkpoint topic", zap.String("topic", s.topic), zap.Int64("offsets", first-s.next))
	if err := s.empty(); err != nil {
		return err
	}
	s.next, s.used = first, true
	return nil
}

// copyAtOnce is the number of keys per commit when all keys of a topic change.
const copyAtOnce = 2000

// fill reads the missing records into the copy, up to an end of the topic.
func (s *Store) fill(ctx context.Context, end end) error {
	to, err := s.end(ctx, end)
	if err != nil {
		return err
	}
	switch {
	case to < s.next && end == committed: // an open transaction holds back records that have been read already
		return nil
	case to < s.next:
		s.log.Warn("checkpoint topic was truncated or created again: reading it from the beginning", zap.String("topic", s.topic))
		if err := s.empty(); err != nil {
			return err
		}
		s.used = true
	}
	if err := s.skipRemoved(ctx, to); err != nil {
		return err
	}
	var changes []event.KV
	flush := func() error {
		err := s.copy.Commit(ctx, changes)
		changes = changes[:0]
		return err
	}
	began, from := time.Now(), s.next
	err = s.read(ctx, s.next, to, func(r *kgo.Record) error {
		s.used = true
		switch key := string(r.Key); key {
		case string(checkpoint.IdentityKey()):
			s.owner, s.ownerAt = r.Value, r.Offset
			return nil
		case writerKey:
			return nil
		}
		if changes = append(changes, event.KV{Key: r.Key, Value: r.Value}); len(changes) < copyAtOnce {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		s.next = from // reading the same records again is harmless
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	s.next = to
	if to > from {
		level := zap.InfoLevel
		if s.wasRead { // these records were written since, mostly by this process
			level = zap.DebugLevel
		}
		s.wasRead = true
		s.log.Log(level, "checkpoint read", zap.String("topic", s.topic), zap.Int64("offsets", to-from), zap.Duration("took", time.Since(began).Round(time.Millisecond)))
	}
	return nil
}

func (s *Store) checkOwner() error {
	if s.owner == nil || s.o.anyOwner {
		return nil
	}
	return s.advise(checkpoint.CheckIdentity(s.owner, s.id))
}

// advise adds the remedy to an error of [checkpoint.CheckIdentity].
func (s *Store) advise(err error) error {
	reset := "give it up with `bridge checkpoint reset`"
	if name := s.id.Sink; name != "" {
		reset = "give it up with `bridge checkpoint reset --sink " + name + "`"
	}
	switch {
	case errors.Is(err, checkpoint.ErrForeign):
		return fmt.Errorf("%w: give this bridge another name, or another checkpoint.kafka.topic", err)
	case errors.Is(err, checkpoint.ErrNewer):
		return fmt.Errorf("%w: run the newer version, or %s", err, reset)
	case errors.Is(err, checkpoint.ErrOlder), errors.Is(err, checkpoint.ErrCorrupt):
		return fmt.Errorf("%w: %s", err, reset)
	}
	return err
}
