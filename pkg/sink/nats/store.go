package nats

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/checkpoint/file"
	"github.com/kubebridge/kubebridge/pkg/event"
)

const (
	defaultDelay = time.Second
	// mostPending bounds how far the bucket may fall behind, in keys: commits wait
	// from there on.
	mostPending = 50_000
	// closeTimeout bounds the last write. What it does not get done comes back from
	// the sink.
	closeTimeout = 5 * time.Second
)

// StoreOptions are what a store is made of. Sink is required.
type StoreOptions struct {
	Sink    *Sink         // the store stands beside it, and connects as it does, also to its embedded server
	Scratch string        // directory under which the working copy lies; "" is memory
	Delay   time.Duration // how long a commit that the sink can bring back may wait; 0 is 1 s
}

// Store is a [checkpoint.Store] and a [checkpoint.Loader] in a JetStream key-value bucket, to
// stand beside a [Sink] and to trail it. It must be loaded before it is used, and closed.
//
// A commit with the sink's mark ([checkpoint.MarkKey]) returns when the working copy
// has it; the bucket follows within [StoreOptions].Delay, many commits in one write. What a
// crash takes, [Sink.Tail] brings back. Every other commit is in the bucket when it
// returns, and with it all before it.
//
// What is written at once is one atomic publish (NATS 2.12, ADR-50), accepted only if
// the bucket's stream still ends where this writer knows it to: all of it is there or
// nothing, and a predecessor that is still alive is fenced. Its last message is the
// head, which names the writer. What is more than the server takes at once is written
// twice: packed first, which makes it durable, then key by key; a start that finds the packed
// form completes it.
//
// The bucket is one that NATS tools can read. A key is escaped to [A-Za-z0-9_=-].
type Store struct {
	o   StoreOptions
	log *zap.Logger

	mu      sync.Mutex
	local   *file.Store // the working copy; nil before Load
	pending map[string][]byte
	failing error // of the last write, nil if it succeeded

	writing sync.Mutex // held for what reads or writes the bucket
	bucket  bucket
	alone   bool // the sink's endpoint is the store's

	kick chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
}

var (
	_ checkpoint.Store  = (*Store)(nil)
	_ checkpoint.Loader = (*Store)(nil)
)

// NewStore returns a store that has not connected yet. Until Load it holds nothing.
func NewStore(o StoreOptions) *Store {
	o.Delay = cmp.Or(o.Delay, defaultDelay)
	return &Store{
		o: o, log: o.Sink.log, pending: map[string][]byte{},
		bucket: newBucket(o.Sink.endpoint),
		kick:   make(chan struct{}, 1),
	}
}

// Load takes the bucket over from its last writer, and copies it. The error wraps
// [checkpoint.ErrForeign], [checkpoint.ErrUnusable], [checkpoint.ErrOlder], [checkpoint.ErrNewer] or
// [checkpoint.ErrCorrupt], or is one to be tried again.
func (s *Store) Load(ctx context.Context) error {
	s.halt()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.load(ctx); err != nil {
		return s.bucket.wrap("read", err)
	}
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.trail(ctx) })
	return nil
}

func (s *Store) load(ctx context.Context) error {
	if err := s.fresh(); err != nil {
		return err
	}
	content, err := s.bucket.open(ctx, s.local.Commit)
	if err != nil {
		return err
	}
	s.mu.Lock()
	clear(s.pending)
	s.mu.Unlock()
	if content.torn {
		s.log.Warn("checkpoint was emptied, ends within a write, or somebody else wrote to it: a reset is declared", zap.String("bucket", s.Name()))
	}
	return s.take(ctx, content.redo)
}

// fresh makes an empty working copy.
func (s *Store) fresh() error {
	if err := s.dropCopy(); err != nil {
		return err
	}
	var (
		local *file.Store
		err   error
	)
	if s.o.Scratch == "" {
		local, err = file.OpenMem(s.bucket.id)
	} else {
		local, err = file.OpenScratch(s.o.Scratch, s.bucket.id)
	}
	s.setCopy(local)
	return err
}

func (s *Store) setCopy(local *file.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = local
}

func (s *Store) dropCopy() error {
	local := s.copy()
	s.setCopy(nil)
	if local == nil {
		return nil
	}
	return local.Close()
}

func (s *Store) copy() *file.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// Get returns the value of key, nil when there is none.
func (s *Store) Get(key []byte) ([]byte, error) {
	local := s.copy()
	if local == nil {
		return nil, nil
	}
	return local.Get(key)
}

// Scan calls fn for every key with the prefix, in byte order.
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	local := s.copy()
	if local == nil {
		return nil
	}
	return local.Scan(prefix, fn)
}

// Commit applies the changes to the working copy, and to the bucket: before it returns,
// unless they come with a mark and the bucket is not behind.
func (s *Store) Commit(ctx context.Context, changes []event.KV) error {
	if err := ctx.Err(); err != nil {
		return s.bucket.wrap("write", err)
	}
	if s.copy() == nil {
		return s.bucket.wrap("write", errors.New("not loaded"))
	}
	if err := s.take(ctx, changes); err != nil {
		return err
	}
	mayTrail := slices.ContainsFunc(changes, func(kv event.KV) bool {
		return kv.Value != nil && string(kv.Key) == string(checkpoint.MarkKey())
	})
	if !mayTrail || s.behind() {
		return s.flush(ctx)
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return nil
}

// take applies changes to the working copy and notes them for the bucket.
func (s *Store) take(ctx context.Context, changes []event.KV) error {
	if err := s.copy().Commit(ctx, changes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kv := range changes {
		s.pending[string(kv.Key)] = slices.Clone(kv.Value)
	}
	return nil
}

func (s *Store) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing != nil || len(s.pending) > mostPending
}

// trail writes to the bucket what has waited for long enough, until ctx ends.
func (s *Store) trail(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.o.Delay):
		}
		_ = s.flush(ctx) // the next Commit finds it failing, and returns why
	}
}

// flush writes everything that is pending.
func (s *Store) flush(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	changes := s.pending
	s.pending = map[string][]byte{}
	s.mu.Unlock()
	err := s.write(ctx, changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
	if err != nil {
		maps.Copy(changes, s.pending) // what came meanwhile is newer
		s.pending = changes
	}
	return s.bucket.wrap("write", err)
}

func (s *Store) write(ctx context.Context, changes map[string][]byte) error {
	if len(changes) == 0 {
		return nil
	}
	lost, err := s.bucket.ready(ctx)
	if err != nil {
		return err
	}
	if !lost {
		if err := s.mend(changes); err != nil {
			return err
		}
		if err := s.bucket.write(ctx, changes); err != nil {
			return err
		}
		if err := s.bucket.clean(ctx); err != nil {
			s.log.Info("checkpoint on the bus is not cleaned of what was deleted; the next write tries again", zap.String("bucket", s.Name()), zap.Error(err))
		}
		return nil
	}
	s.log.Warn("checkpoint was deleted from the bus, or lost its end there: it is written again", zap.String("bucket", s.Name()))
	all := map[string][]byte{}
	err = s.copy().Scan(nil, func(key, value []byte) error {
		all[string(key)] = slices.Clone(value)
		return nil
	})
	if err != nil {
		return err
	}
	return s.bucket.fill(ctx, all)
}

// mend adds to changes what foreign messages in the bucket have taken the place of.
func (s *Store) mend(changes map[string][]byte) error {
	if len(s.bucket.damaged) == 0 {
		return nil
	}
	return s.copy().Scan(nil, func(key, value []byte) error {
		t, _ := token(string(key))
		if _, newer := changes[string(key)]; !newer && s.bucket.damaged[t] {
			changes[string(key)] = slices.Clone(value)
		}
		return nil
	})
}

// Close writes what is pending, if the bus lets it, and releases everything. What it
// does not get done comes back from the sink at the next start.
func (s *Store) Close() error {
	s.halt()
	if s.copy() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		if err := s.flush(ctx); err != nil {
			s.log.Info("checkpoint on the bus trails; the next start catches up", zap.Error(err))
		}
		cancel()
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.bucket.hangUp()
	if s.alone {
		s.o.Sink.stop()
	}
	return s.dropCopy()
}

// halt ends the background's work.
func (s *Store) halt() {
	if s.stop != nil {
		s.stop()
		s.done.Wait()
		s.stop = nil
	}
}
