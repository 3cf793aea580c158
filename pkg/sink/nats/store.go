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
	// maxPending bounds the number of keys that are not yet written to the bucket. Above it, commits wait
	// for the bucket.
	maxPending = 50_000
	// closeTimeout bounds the last write. Changes that are not written by then come back from
	// the sink at the next start.
	closeTimeout = 5 * time.Second
)

// StoreOptions are the options of a store. Sink is required.
type StoreOptions struct {
	Sink    *Sink         // the sink whose checkpoint this is; the store connects as it does, also to its embedded server
	Scratch string        // directory for the working copy; "" keeps it in memory
	Delay   time.Duration // how long a commit with the sink's mark may wait before it is written; 0 is 1 s
}

// Store is a [checkpoint.Store] and a [checkpoint.Loader] in a JetStream key-value bucket. It belongs to
// a [Sink] and trails its stream. Load it before use, and close it.
//
// A commit with the sink's mark ([checkpoint.MarkKey]) returns when the working copy
// has it. The bucket follows within [StoreOptions].Delay, with many commits in one write. If a
// crash loses such commits, [Sink.Tail] brings them back. Every other commit, and all commits before it, are in the
// bucket when it returns.
//
// A write is one atomic publish (NATS 2.12, ADR-50), which the server accepts only if
// the bucket's stream still ends where this writer expects. So it is stored completely or
// not at all, and a running predecessor is fenced. Its last message is the
// head, which names the writer. A write that exceeds the server's limit is written
// twice: first in packed form, which makes it durable, then key by key. A start that finds the packed
// form completes the write.
//
// NATS tools can read the bucket. Keys are escaped to [A-Za-z0-9_=-].
type Store struct {
	o   StoreOptions
	log *zap.Logger

	applying sync.Mutex // held while changes go to the working copy and to pending, so that a write has all changes that the copy has

	mu      sync.Mutex
	local   *file.Store // the working copy; nil before Load
	pending map[string][]byte
	failing error // the error of the last write; nil if it succeeded

	writing sync.Mutex // held while the bucket is read or written
	bucket  bucket
	alone   bool // the endpoint belongs to the store

	kick chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
}

var (
	_ checkpoint.Store  = (*Store)(nil)
	_ checkpoint.Loader = (*Store)(nil)
)

// NewStore returns a store that has not connected yet. Until Load it is empty.
func NewStore(o StoreOptions) *Store {
	o.Delay = cmp.Or(o.Delay, defaultDelay)
	s := &Store{
		o: o, log: o.Sink.log, pending: map[string][]byte{},
		bucket: newBucket(o.Sink.endpoint),
		kick:   make(chan struct{}, 1),
	}
	o.Sink.store = s
	return s
}

// Load fences the last writer of the bucket, and copies the bucket. The error wraps
// [checkpoint.ErrForeign], [checkpoint.ErrUnusable], [checkpoint.ErrOlder], [checkpoint.ErrNewer] or
// [checkpoint.ErrCorrupt], or [checkpoint.ErrFenced] if a later writer has opened the sink, or is temporary.
func (s *Store) Load(ctx context.Context) error {
	s.stopTrailing()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.load(ctx); err != nil {
		return s.bucket.wrap("read", err)
	}
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.writeDelayed(ctx) })
	return nil
}

func (s *Store) load(ctx context.Context) error {
	if err := s.fresh(); err != nil {
		return err
	}
	// A starter that was overtaken must not fence its successor.
	content, err := s.bucket.open(ctx, s.o.Sink.overtaken, s.local.Commit)
	if err != nil {
		return err
	}
	s.mu.Lock()
	clear(s.pending)
	s.mu.Unlock()
	if content.torn {
		s.log.Warn("checkpoint was emptied, has an incomplete write, or has messages of another client: reset requested", zap.String("bucket", s.Name()))
	}
	return s.applyLocal(ctx, content.redo)
}

// fresh replaces the working copy by an empty one.
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

// Commit applies the changes to the working copy and to the bucket. It does not wait for the bucket if
// the changes contain the sink's mark and the bucket is not behind.
func (s *Store) Commit(ctx context.Context, changes []event.KV) error {
	if err := ctx.Err(); err != nil {
		return s.bucket.wrap("write", err)
	}
	if s.copy() == nil {
		return s.bucket.wrap("write", errors.New("not loaded"))
	}
	if err := s.applyLocal(ctx, changes); err != nil {
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

// applyLocal applies changes to the working copy and records them for the bucket.
func (s *Store) applyLocal(ctx context.Context, changes []event.KV) error {
	s.applying.Lock()
	defer s.applying.Unlock()
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
	return s.failing != nil || len(s.pending) > maxPending
}

// writeDelayed writes pending changes to the bucket after their delay, until ctx is cancelled.
func (s *Store) writeDelayed(ctx context.Context) {
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
		_ = s.flush(ctx) // the next Commit returns the error
	}
}

// flush writes all pending changes.
func (s *Store) flush(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.applying.Lock()
	s.mu.Lock()
	changes := s.pending
	s.pending = map[string][]byte{}
	s.mu.Unlock()
	s.applying.Unlock()
	err := s.write(ctx, changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
	if err != nil {
		maps.Copy(changes, s.pending) // changes that came in the meantime are newer
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
		if err := s.addRepairs(changes); err != nil {
			return err
		}
		if err := s.bucket.write(ctx, changes); err != nil {
			return err
		}
		if err := s.bucket.clean(ctx, s.Get); err != nil {
			s.log.Info("removal of deleted keys from the checkpoint failed, retrying with the next write", zap.String("bucket", s.Name()), zap.Error(err))
		}
		return nil
	}
	s.log.Warn("checkpoint was deleted from the bus, or lost its end: writing it again", zap.String("bucket", s.Name()))
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

// addRepairs adds to changes the keys whose messages in the bucket were replaced by foreign ones.
func (s *Store) addRepairs(changes map[string][]byte) error {
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

// Close writes pending changes, if the bus allows it, and releases all resources. Changes that are not
// written come back from the sink at the next start.
func (s *Store) Close() error {
	s.stopTrailing()
	if s.copy() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		if err := s.flush(ctx); err != nil {
			s.log.Info("checkpoint on the bus is behind; the next start catches up", zap.Error(err))
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

// stopTrailing ends the background goroutine.
func (s *Store) stopTrailing() {
	if s.stop != nil {
		s.stop()
		s.done.Wait()
		s.stop = nil
	}
}
