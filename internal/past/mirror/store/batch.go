package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Batch is a set of changes that is committed as a whole. One goroutine uses it, and a store has one batch at a time.
type Batch struct {
	s     *Store
	b     *pebble.Batch
	drops []drop
}

// Batch begins a batch.
func (s *Store) Batch() *Batch { return &Batch{s: s, b: s.db.NewIndexedBatch()} }

// Put adds a state of an object in a collection, and the change that a watch sees.
func (b *Batch) Put(r Resource, o Name, collection string, at Position, v *Version) error {
	if err := b.b.Set(versionKey(r, o, collection, at), appendVersion(nil, v), nil); err != nil {
		return err
	}
	return b.b.Set(changeKey(r, at), appendChange(nil, o, collection, v.Time), nil)
}

// Newest returns the newest state of an object in a collection, without its body, also if it is only in this batch.
func (b *Batch) Newest(r Resource, o Name, collection string) (at Position, v Version, found bool, err error) {
	prefix := appendText(objectKey(r, o), collection)
	for key, value := range rows(b.b, prefix, end(prefix), &err) {
		at, found = readPosition(key[len(prefix):]).newestFirst(), true
		v, _, err = splitVersion(value)
		break
	}
	return at, v, found, err
}

// RemoveAfter removes the states of an object in a collection, and their changes, after a position in its era. No view
// that was read may show them.
func (b *Batch) RemoveAfter(r Resource, o Name, collection string, after Position) (err error) {
	newest, last := versionKey(r, o, collection, Position{after.Era, ^uint64(0), ^uint64(0)}), versionKey(r, o, collection, after)
	var all []Position
	for key := range rows(b.b, newest, last, &err) {
		all = append(all, readPosition(key[len(key)-positionBytes:]).newestFirst())
	}
	for _, at := range all {
		err = errors.Join(err, b.b.Delete(versionKey(r, o, collection, at), nil), b.b.Delete(changeKey(r, at), nil))
	}
	return err
}

// Drop makes a collection hold no objects in views of an era and later ones, but versions with a number above seq. No
// view of the era was read before.
func (b *Batch) Drop(r Resource, collection string, era, seq uint64) error {
	b.drops = append(b.drops, drop{r, collection, dropAt{era, seq}})
	return b.b.Set(dropKey(r, collection, era), binary.BigEndian.AppendUint64(nil, seq), nil)
}

// Dropped reports whether a version does not count in a view, because its collection was dropped in between.
func (b *Batch) Dropped(r Resource, collection string, at, view Position) bool {
	return b.s.dropped(r, collection, at, view) || slices.ContainsFunc(b.drops, func(d drop) bool {
		return d.resource == r && d.collection == collection && d.hides(at, view)
	})
}

// MoveAfter gives the changes of an era after a position a new era, except those of some collections and those that a
// drop hides. It returns the collections that they belong to, with the highest resourceVersion of each, and the changes
// that it left.
func (b *Batch) MoveAfter(r Resource, after Position, era uint64, except []string) (moved map[string]uint64, left []Left, err error) {
	var moves []change
	for c := range b.changesAfter(r, after, &err) {
		if slices.Contains(except, c.collection) {
			left = append(left, Left{c.collection, c.at})
		} else {
			moves = append(moves, c)
		}
	}
	moved = map[string]uint64{}
	for _, c := range moves {
		err = errors.Join(err, b.move(r, c, era))
		moved[c.collection] = c.at.Version
	}
	return moved, left, err
}

// changesAfter returns the changes of an era after a position, in order, except those that a drop hides.
func (b *Batch) changesAfter(r Resource, after Position, failed *error) iter.Seq[change] {
	return func(yield func(change) bool) {
		from := changeKey(r, after)
		for key, value := range rows(b.b, append(from, 0), changeKey(r, Position{Era: after.Era + 1}), failed) {
			c, err := readChange(len(from)-positionBytes, key, value)
			if *failed = err; err != nil || !b.Dropped(r, c.collection, c.at, c.at) && !yield(c) {
				return
			}
		}
	}
}

// Left is a change that keeps its era.
type Left struct {
	Collection string
	At         Position
}

func (b *Batch) move(r Resource, c change, era uint64) error {
	from := versionKey(r, c.Name, c.collection, c.at)
	value, closer, err := b.b.Get(from)
	if err != nil {
		return fmt.Errorf("move a change of %s: %w", r.Name, err)
	}
	to := Position{era, c.at.Version, c.at.Seq}
	return errors.Join(
		b.b.Set(versionKey(r, c.Name, c.collection, to), append([]byte{}, value...), nil), closer.Close(),
		b.b.Set(changeKey(r, to), appendChange(nil, c.Name, c.collection, c.time), nil),
		b.b.Delete(from, nil), b.b.Delete(changeKey(r, c.at), nil),
	)
}

// ChangeTimes calls fn for the changes of an era after a position, in order, except those that a drop hides, until fn
// returns false.
func (b *Batch) ChangeTimes(r Resource, after Position, fn func(at Position, t time.Time) bool) (err error) {
	for c := range b.changesAfter(r, after, &err) {
		if !fn(c.at, c.time) {
			break
		}
	}
	return err
}

// SetMoment records the position that shows what was published up to a time.
func (b *Batch) SetMoment(r Resource, t time.Time, at Position) error {
	return b.b.Set(momentKey(r, t.UnixMicro()), appendPosition(nil, at), nil)
}

// SetRecord sets a record of the caller. A nil value deletes it.
func (b *Batch) SetRecord(name string, value []byte) error {
	if value == nil {
		return b.b.Delete(recordKey(name), nil)
	}
	return b.b.Set(recordKey(name), value, nil)
}

// DeleteRecords deletes all records whose names begin with prefix.
func (b *Batch) DeleteRecords(prefix string) error {
	from := recordKey(prefix)
	return b.b.DeleteRange(from, end(from), nil)
}

// Commit makes the changes durable. After an error the store cannot be written any more: open it again.
func (b *Batch) Commit() error {
	if err := b.s.disk.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if err := b.b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("write to the data directory: %w", err)
	}
	if err := b.s.disk.Err(); err != nil { // and the batch is not reused: pebble may still hold it
		return fmt.Errorf("write to the data directory: %w", err)
	}
	b.s.mu.Lock()
	for _, d := range b.drops {
		b.s.addDrop(d)
	}
	b.s.mu.Unlock()
	return b.b.Close()
}

// Discard ends a batch that is not committed.
func (b *Batch) Discard() error { return b.b.Close() }

// Len returns the size of the batch in bytes, which it takes in memory until it is committed.
func (b *Batch) Len() int { return b.b.Len() }
