// Package file is the checkpoint store on a local disk: one directory per pipeline,
// held by one process.
//
// A commit is one synced write. A failure of the disk (full, read-only, missing) is
// treated as a crash at that moment: the commit returns the error, the store
// keeps the directory locked, and the next call recovers from the content of the
// disk. So a store works again when the disk works again.
//
// Damage is an error of [Open], or of the call that reads the damaged data. Checksums detect changed
// bytes. The number of commits, which is kept twice, detects missing commits:
// see count.go. After a power failure the file with that number may be about one
// second old, or, without later commits, as old as the system's delay for writing a file
// to the disk. If the disk loses synced commits that are newer than the file, this is not
// detected.
package file

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/kubebridge/internal/base/diskguard"
	"github.com/kubebridge/kubebridge/pkg/checkpoint"
	"github.com/kubebridge/kubebridge/pkg/event"
)

// ErrClosed is returned by a store that has been closed.
var ErrClosed = errors.New("checkpoint is closed")

// ErrReadOnly is returned by Commit on a store of [OpenReadOnly].
var ErrReadOnly = errors.New("checkpoint is open for reading only")

// Options of a store. The zero value has the defaults.
type Options struct {
	// CacheBytes is the maximum memory of a store, for blocks that it has read and
	// changes that are not yet in tables. 0 means 32 MiB.
	CacheBytes int64

	fs       vfs.FS // nil is the disk
	readOnly bool
	scratch  bool // the store's files are deleted with the store
	memory   bool // the data need not survive the store, so no log is written
}

// Store is a [checkpoint.Store] in a directory. Its methods may be called from
// several goroutines at once, as that contract says.
type Store struct {
	path string
	sink string
	opts Options
	lock *pebble.Lock

	mu     sync.Mutex
	idle   sync.Cond // signals that users is 0
	users  int       // number of calls that are using db
	db     *pebble.DB
	disk   *diskguard.Guard // the disk of db
	count  *counter         // the counter of db; nil if the store is open for reading only
	closed bool
	broken error // damage that was found; it is final

	background sync.WaitGroup
}

var _ checkpoint.Store = (*Store)(nil)

// Open opens the checkpoint of a pipeline, and creates it where path is absent or an
// empty directory. The errors wrap [checkpoint.ErrLocked], [checkpoint.ErrForeign],
// [checkpoint.ErrCorrupt], [checkpoint.ErrNewer], [checkpoint.ErrOlder] or
// [ErrNotCheckpoint], or are errors of the disk. Each names the path and the remedy.
func Open(path string, id event.Identity, opts Options) (*Store, error) {
	opts.readOnly = false
	return open(path, &id, opts)
}

// OpenMem opens an empty checkpoint in memory.
func OpenMem(id event.Identity) (*Store, error) {
	return open("/memory", &id, Options{fs: vfs.NewMem(), memory: true})
}

// OpenReadOnly opens an existing checkpoint of any identity for reading. It
// takes the same lock as [Open]. The error wraps fs.ErrNotExist when there is none.
func OpenReadOnly(path string) (*Store, error) {
	return open(path, nil, Options{readOnly: true})
}

func open(path string, id *event.Identity, opts Options) (_ *Store, err error) {
	s := &Store{path: path, opts: opts}
	s.idle.L = &s.mu
	if id != nil {
		s.sink = id.Sink
	}
	if s.opts.fs == nil {
		s.opts.fs = vfs.Default
		if s.path, err = canonical(path); err != nil {
			return nil, s.wrap(err)
		}
	}
	if err := s.start(id); err != nil {
		return nil, s.wrap(cmp.Or(err, s.stop()))
	}
	return s, nil
}

// start takes the lock and opens the checkpoint at path, or creates it.
func (s *Store) start(id *event.Identity) error {
	on := s.opts.fs
	found, err := inspect(on, s.path)
	if err != nil {
		return err
	}
	if s.opts.readOnly && found != complete {
		return fs.ErrNotExist
	}
	if err := makeDir(on, s.path); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if s.lock, err = lock(on, s.path); err != nil {
		return err
	}
	// Another process may have changed the directory before this one got the lock.
	if found, err = inspect(on, s.path); err != nil {
		return err
	}
	if found != complete {
		return s.create(*id, found == wasReset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reopen(false); err != nil || id == nil {
		return err
	}
	return s.checkIdentity(*id)
}

// create makes a new checkpoint. It writes the final marker last: the files of an interrupted
// creation have no data and are removed. After a reset the old
// marker stays until then, so that the request for a declared reset is not lost.
func (s *Store) create(id event.Identity, afterReset bool) error {
	on := s.opts.fs
	first := []event.KV{{Key: checkpoint.IdentityKey(), Value: checkpoint.EncodeIdentity(id)}}
	if afterReset {
		first = append(first, event.KV{Key: checkpoint.ResetKey(), Value: checkpoint.ResetRequested()})
	} else if err := writeMarker(on, s.path, markUnfinished); err != nil {
		return err
	}
	if err := clear(on, s.path); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reopen(true); err != nil {
		return err
	}
	if err := classify(s.apply(first)); err != nil {
		return err
	}
	return writeMarker(on, s.path, fmt.Sprintf(markFormat, checkpoint.Version))
}

// checkIdentity refuses a checkpoint of another identity, and stores changed fields that
// may change.
func (s *Store) checkIdentity(id event.Identity) error {
	stored, err := s.get(checkpoint.IdentityKey())
	if err != nil {
		return classify(err)
	}
	if err := checkpoint.CheckIdentity(stored, id); err != nil {
		return err
	}
	want := checkpoint.EncodeIdentity(id)
	if bytes.Equal(stored, want) {
		return nil
	}
	return classify(s.apply([]event.KV{{Key: checkpoint.IdentityKey(), Value: want}}))
}

// Identity returns the identity of the checkpoint.
func (s *Store) Identity() (event.Identity, error) {
	var record struct {
		Version  int            `json:"version"`
		Identity event.Identity `json:"identity"`
	}
	stored, err := s.Get(checkpoint.IdentityKey())
	if err != nil {
		return event.Identity{}, err
	}
	if err := json.Unmarshal(stored, &record); err != nil {
		return event.Identity{}, s.wrap(fmt.Errorf("%w: its identity record does not parse", checkpoint.ErrCorrupt))
	}
	// The identities are equal, so CheckIdentity can fail only because of the format.
	if err := checkpoint.CheckIdentity(stored, record.Identity); err != nil {
		return event.Identity{}, s.wrap(err)
	}
	return record.Identity, nil
}

// Get returns the value of key, nil when there is none.
func (s *Store) Get(key []byte) (value []byte, err error) {
	err = s.use(func() error {
		value, err = s.get(key)
		return err
	})
	return value, err
}

// Scan calls fn for every key with the prefix, in byte order, on a consistent
// snapshot. fn may call Get and Commit.
func (s *Store) Scan(prefix []byte, fn func(key, value []byte) error) error {
	var stopped error
	err := s.use(func() (err error) {
		o := pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)}
		if len(prefix) == 0 {
			o.LowerBound = prefixEnd(countKey)
		}
		it, err := s.db.NewIter(&o)
		if err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, it.Close()) }()
		for ok := it.First(); ok && stopped == nil; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			stopped = fn(it.Key(), value)
		}
		return it.Error()
	})
	if stopped != nil {
		return stopped
	}
	return err
}

// Commit makes all changes durable, or none, with one synced write. It checks ctx
// only before it begins.
func (s *Store) Commit(ctx context.Context, changes []event.KV) error {
	if err := ctx.Err(); err != nil {
		return s.wrap(err)
	}
	if s.opts.readOnly {
		return s.wrap(ErrReadOnly)
	}
	return s.use(func() error { return s.apply(changes) })
}

// Close waits for running calls and releases the directory. It must not be
// called from a Scan. All committed changes are durable, even if Close fails.
func (s *Store) Close() error { return s.wrap(s.stop()) }

func (s *Store) stop() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for s.users > 0 {
		s.idle.Wait()
	}
	var err error
	if s.db != nil && !s.opts.readOnly {
		// Damage in a table is always found; at the end of a log it looks like
		// the end of the log.
		err = s.db.Flush()
	}
	err = cmp.Or(s.closeDB(), err)
	s.mu.Unlock()
	s.background.Wait()
	if s.opts.scratch {
		// Remove the directory while it is locked, so that no other process removes it as abandoned. A process that
		// does so as soon as the lock's file is gone, and creates that file again, removes the directory instead.
		if failed := os.RemoveAll(s.path); !errors.Is(failed, syscall.ENOTEMPTY) {
			err = cmp.Or(err, failed)
		}
	}
	if s.lock != nil {
		err = cmp.Or(err, s.lock.Close())
	}
	return err
}

// use runs a call on an open database. It returns a failure of the disk during the call
// as the error of the call.
func (s *Store) use(call func() error) (err error) {
	if err := s.acquire(); err != nil {
		return s.wrap(err)
	}
	defer func() {
		err = classify(cmp.Or(s.disk.Err(), err))
		s.release(err)
		err = s.wrap(err)
	}()
	return call()
}

func (s *Store) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.db != nil && s.disk.Err() != nil {
		if s.users > 0 { // a Scan is running, possibly the one that makes this call
			return classify(s.disk.Err())
		}
		_ = s.closeDB() // the failure was returned before, or reopen returns it again
	}
	if s.db == nil {
		if err := s.reopen(false); err != nil {
			return err
		}
	}
	s.users++
	return nil
}

func (s *Store) release(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.keepDamage(err) // keeps the damage for the next call
	s.users--
	if s.users == 0 {
		s.idle.Broadcast()
	}
}

// failed stops a database whose disk is frozen, because it would continue to retry.
func (s *Store) failed(disk *diskguard.Guard) {
	s.background.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.db != nil && s.disk == disk && s.users == 0 {
			_ = s.closeDB() // the next call opens it again and returns the error
		}
	})
}

// reopen opens the database that is on the disk, or a new one. s.mu is held.
func (s *Store) reopen(create bool) error {
	if s.broken != nil {
		return s.broken
	}
	if s.opts.memory && !create { // changes that were not in a table are lost
		return s.keepDamage(fmt.Errorf("%w: it was in memory, where its database has failed", checkpoint.ErrCorrupt))
	}
	disk := diskguard.New(s.opts.fs, nil)
	disk.OnFail, disk.Volatile = func() { s.failed(disk) }, s.opts.scratch
	s.disk = disk
	if err := s.openWhole(create); err != nil {
		return s.keepDamage(cmp.Or(s.closeDB(), err))
	}
	if disk.Err() != nil {
		return s.closeDB()
	}
	return nil
}

// openWhole opens the database if it has every commit that was synced. s.mu is held.
func (s *Store) openWhole(create bool) (err error) {
	var synced uint64
	if !create {
		if synced, err = syncedCommits(s.opts.fs, s.path); err != nil {
			return classify(err)
		}
	}
	if !create && !s.opts.readOnly {
		// Opening for writing moves the log into tables. Check for missing commits
		// before that, while restoring a missing file still repairs the checkpoint.
		reading := s.opts
		reading.readOnly = true
		db, err := openPebble(s.path, s.lock, s.disk, reading, false)
		if err != nil {
			return classifyOpen(cmp.Or(s.disk.Err(), err))
		}
		_, err = checkCommits(db, synced)
		if err = cmp.Or(err, db.Close()); err != nil {
			return classify(cmp.Or(s.disk.Err(), err))
		}
	}
	db, err := openPebble(s.path, s.lock, s.disk, s.opts, create)
	if err != nil {
		return classifyOpen(cmp.Or(s.disk.Err(), err))
	}
	s.db = db
	stored, err := checkCommits(db, synced)
	if err == nil && !s.opts.readOnly {
		s.count, err = newCounter(s.disk, s.path, stored, create)
	}
	return classify(err)
}

// closeDB closes the database. s.mu is held and nobody uses it.
func (s *Store) closeDB() error {
	if s.db == nil {
		return nil
	}
	var err error
	if s.count != nil {
		err = s.count.close()
	}
	err = cmp.Or(s.db.Close(), err)
	s.db, s.count = nil, nil
	return s.keepDamage(classify(cmp.Or(s.disk.Err(), err)))
}

// keepDamage records damage. s.mu is held.
func (s *Store) keepDamage(err error) error {
	if s.broken == nil && errors.Is(err, checkpoint.ErrCorrupt) {
		s.broken = err
	}
	return err
}

func (s *Store) wrap(err error) error { return pathError(s.path, s.sink, err) }

func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	value := append([]byte{}, v...)
	return value, closer.Close()
}

func (s *Store) apply(changes []event.KV) error {
	b := s.db.NewBatch()
	if err := b.Merge(countKey, countOne, nil); err != nil {
		return cmp.Or(err, b.Close())
	}
	for _, c := range changes {
		var err error
		if c.Value == nil {
			err = b.Delete(c.Key, nil)
		} else {
			err = b.Set(c.Key, c.Value, nil)
		}
		if err != nil {
			return cmp.Or(err, b.Close())
		}
	}
	durable := pebble.Sync
	if s.opts.memory {
		durable = pebble.NoSync
	}
	if err := b.Commit(durable); err != nil {
		return err
	}
	if err := s.disk.Err(); err != nil {
		return err // and the batch is not reused: pebble may still hold it
	}
	return cmp.Or(b.Close(), s.count.add())
}

// prefixEnd returns the first key prefixEnd all keys with the prefix, nil when there is none.
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return append(bytes.Clone(prefix[:i]), prefix[i]+1)
		}
	}
	return nil
}
