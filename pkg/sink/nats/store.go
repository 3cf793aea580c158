package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
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

// StoreOptions of a store. Connect and Identity are required.
type StoreOptions struct {
	// Connect makes a connection of the store's own. It is called by Load, and again
	// should the connection be closed.
	Connect  func() (*nats.Conn, error)
	Identity event.Identity
	Bucket   string        // "": [BucketName] of Identity
	Replicas int           // of a bucket that is created; 0 is 1
	Scratch  string        // directory under which the working copy lies; "" is memory
	Delay    time.Duration // how long a commit that the sink can bring back may wait; 0 is 1 s
	Log      *zap.Logger   // nil: silent

	chunk     int           // messages at once; 0 is what servers take
	cleanFrom int           // tombstones; 0 is the constant
	settle    time.Duration // 0 is the constant
}

// Store is a [checkpoint.Store] and a [checkpoint.Loader]. It must be loaded before it
// is used, and closed.
type Store struct {
	o    StoreOptions
	name string // of the bucket

	mu      sync.Mutex
	local   *file.Store // the working copy; nil before Load
	dir     string      // of local, "" in memory
	pending map[string][]byte
	failing error // of the last write, nil if it succeeded

	writing sync.Mutex // held for what reads or writes the bucket
	bucket  bucket

	kick chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
}

var (
	_ checkpoint.Store  = (*Store)(nil)
	_ checkpoint.Loader = (*Store)(nil)
)

// New returns a store that has not connected yet. Until Load it holds nothing.
func NewStore(o StoreOptions) *Store {
	if o.Delay == 0 {
		o.Delay = defaultDelay
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	name := cmp.Or(o.Bucket, BucketName(o.Identity))
	stream, prefix := place(name)
	return &Store{
		o: o, name: name,
		pending: map[string][]byte{},
		bucket: bucket{
			connect: o.Connect, stream: stream, prefix: prefix,
			id: o.Identity, replicas: max(o.Replicas, 1),
			writer: nuid.Next(), most: cmp.Or(o.chunk, chunkRecords),
			cleanFrom: cmp.Or(o.cleanFrom, cleanFrom), settle: cmp.Or(o.settle, settle),
		},
		kick: make(chan struct{}, 1),
	}
}

// Load takes the bucket over from whoever wrote to it, and copies it. The error wraps
// [checkpoint.ErrForeign], [checkpoint.ErrUnusable], [checkpoint.ErrOlder], [checkpoint.ErrNewer] or
// [checkpoint.ErrCorrupt], or is one to be tried again.
func (s *Store) Load(ctx context.Context) error {
	s.halt()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.load(ctx); err != nil {
		return s.wrap("read", err)
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
		s.o.Log.Warn("checkpoint was emptied, ends within a write, or somebody else wrote to it: a reset is declared", zap.String("bucket", s.name))
	}
	return s.take(ctx, content.redo)
}

// fresh makes an empty working copy.
func (s *Store) fresh() error {
	if err := s.dropCopy(); err != nil {
		return err
	}
	if s.o.Scratch == "" {
		local, err := file.OpenMem(s.o.Identity)
		s.setCopy(local, "")
		return err
	}
	dir, err := os.MkdirTemp(s.o.Scratch, "kubebridge-checkpoint-")
	if err != nil {
		return err
	}
	local, err := file.Open(dir, s.o.Identity, file.Options{})
	s.setCopy(local, dir)
	return err
}

func (s *Store) setCopy(local *file.Store, dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local, s.dir = local, dir
}

func (s *Store) dropCopy() error {
	local, dir := s.copy(), s.dir
	s.setCopy(nil, "")
	var err error
	if local != nil {
		err = local.Close()
	}
	if dir != "" {
		err = cmp.Or(err, os.RemoveAll(dir))
	}
	return err
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
		return s.wrap("write", err)
	}
	if s.copy() == nil {
		return s.wrap("write", errors.New("not loaded"))
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
	return s.wrap("write", err)
}

func (s *Store) write(ctx context.Context, changes map[string][]byte) error {
	if len(changes) == 0 {
		return nil
	}
	anew, err := s.bucket.ready(ctx)
	if err != nil {
		return err
	}
	if !anew {
		if err := s.bucket.write(ctx, changes); err != nil {
			return err
		}
		if err := s.bucket.clean(ctx); err != nil {
			s.o.Log.Info("checkpoint on the bus is not cleaned of what was deleted; the next write tries again", zap.String("bucket", s.name), zap.Error(err))
		}
		return nil
	}
	s.o.Log.Warn("checkpoint was deleted from the bus, or lost its end there: it is written again", zap.String("bucket", s.name))
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

// Close writes what is pending, if the bus lets it, and releases everything. What it
// does not get done comes back from the sink at the next start.
func (s *Store) Close() error {
	s.halt()
	if s.copy() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		if err := s.flush(ctx); err != nil {
			s.o.Log.Info("checkpoint on the bus trails; the next start catches up", zap.Error(err))
		}
		cancel()
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.bucket.close()
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

func (s *Store) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, checkpoint.ErrForeign):
		hint = ": give this bridge or sink another name, or delete the bucket"
	case errors.Is(err, checkpoint.ErrUnusable):
		hint = ": correct it with `nats stream edit`, or give this bridge or sink another name"
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrOlder):
		hint = ": give it up with `bridge checkpoint reset --sink " + s.o.Identity.Sink + "`"
	case errors.Is(err, checkpoint.ErrNewer):
		hint = ": run the newer version, or give it up with `bridge checkpoint reset --sink " + s.o.Identity.Sink + "`"
	}
	return fmt.Errorf("%s checkpoint of sink %q in bucket %q: %w%s", verb, s.o.Identity.Sink, s.name, err, hint)
}
