package store

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// Empty reports whether the batch has no changes.
func (b *Batch) Empty() bool { return b.b.Empty() }

// Put adds a state of an object in a collection, and the change that a watch sees.
func (b *Batch) Put(r Resource, o Name, collection string, at Position, v *Version) error {
	if err := b.b.Set(versionKey(r, o, collection, at), appendVersion(nil, v), nil); err != nil {
		return err
	}
	return b.b.Set(changeKey(r, at), appendChange(nil, o, collection, v.Time), nil)
}

// Newest returns the newest state of an object in a collection, without its body, also if it is only in this batch. found is false if there
// is none.
func (b *Batch) Newest(r Resource, o Name, collection string) (at Position, v Version, found bool, err error) {
	prefix := appendText(objectKey(r, o), collection)
	it, err := b.b.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end(prefix)})
	if err != nil {
		return at, v, false, err
	}
	if it.First() {
		at, found = readPosition(it.Key()[len(prefix):]).newestFirst(), true
		v, _, err = splitVersion(it.Value())
	}
	return at, v, found, errors.Join(err, it.Error(), it.Close())
}

// RemoveAfter removes the states of an object in a collection that the era of a position has after it, with their changes. No view that was read may
// show them.
func (b *Batch) RemoveAfter(r Resource, o Name, collection string, after Position) error {
	prefix := appendText(objectKey(r, o), collection)
	it, err := b.b.NewIter(&pebble.IterOptions{
		LowerBound: versionKey(r, o, collection, Position{after.Era, ^uint64(0), ^uint64(0)}), UpperBound: versionKey(r, o, collection, after),
	})
	if err != nil {
		return err
	}
	var all []Position
	for ok := it.First(); ok; ok = it.Next() {
		all = append(all, readPosition(it.Key()[len(prefix):]).newestFirst())
	}
	err = errors.Join(it.Error(), it.Close())
	for _, at := range all {
		err = errors.Join(err, b.b.Delete(versionKey(r, o, collection, at), nil), b.b.Delete(changeKey(r, at), nil))
	}
	return err
}

// Drop makes a collection hold no objects in views of an era, or of later ones, but for versions that have a number above seq. No view of the era was
// read before.
func (b *Batch) Drop(r Resource, collection string, era, seq uint64) error {
	b.drops = append(b.drops, drop{r, collection, dropAt{era, seq}})
	return b.b.Set(dropKey(r, collection, era), binary.BigEndian.AppendUint64(nil, seq), nil)
}

// Dropped reports whether a version of a collection does not count in a view, because the collection was dropped in between.
func (b *Batch) Dropped(r Resource, collection string, at, view Position) bool {
	for _, d := range b.drops {
		if d.resource == r && d.collection == collection && d.hides(at, view) {
			return true
		}
	}
	return b.s.dropped(r, collection, at, view)
}

// MoveAfter gives the changes of an era after a position a new era, except those of some collections and those that a drop hides. They keep
// resourceVersion and order. It returns the collections that they belong to, with the highest resourceVersion of each, and the changes that it has left in these collections.
func (b *Batch) MoveAfter(r Resource, after Position, era uint64, except []string) (moved map[string]uint64, left []Left, err error) {
	prefix := resourceKey(keyChange, r)
	it, err := b.b.NewIter(&pebble.IterOptions{LowerBound: changeKey(r, after), UpperBound: changeKey(r, Position{Era: after.Era + 1})})
	if err != nil {
		return nil, nil, err
	}
	var moves []change
	for ok := it.First(); ok; ok = it.Next() {
		c, err := readChange(len(prefix), it.Key(), it.Value())
		if err != nil {
			return nil, nil, errors.Join(err, it.Close())
		}
		switch {
		case c.at == after, b.Dropped(r, c.collection, c.at, c.at):
		case slices.Contains(except, c.collection):
			left = append(left, Left{c.collection, c.at})
		default:
			moves = append(moves, c)
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, nil, err
	}
	moved = map[string]uint64{}
	for _, c := range moves {
		if err := b.move(r, c, era); err != nil {
			return nil, nil, err
		}
		moved[c.collection] = c.at.Version
	}
	return moved, left, nil
}

// Left is a change that keeps its era.
type Left struct {
	Collection string
	At         Position
}

// move gives a version and its change a new era.
func (b *Batch) move(r Resource, c change, era uint64) error {
	from := versionKey(r, c.Name, c.collection, c.at)
	value, closer, err := b.b.Get(from)
	if err != nil {
		return fmt.Errorf("move a change of %s: %w", r.Name, err)
	}
	to := c.at
	to.Era = era
	err = b.b.Set(versionKey(r, c.Name, c.collection, to), append([]byte{}, value...), nil)
	return errors.Join(err, closer.Close(), b.b.Set(changeKey(r, to), appendChange(nil, c.Name, c.collection, c.time), nil), b.b.Delete(from, nil), b.b.Delete(changeKey(r, c.at), nil))
}

// ChangeTimes calls fn for the changes of an era after a position, in order, with the time of each, except those that a drop hides. It ends early,
// without an error, if fn returns false.
func (b *Batch) ChangeTimes(r Resource, after Position, fn func(at Position, t time.Time) bool) (err error) {
	prefix := resourceKey(keyChange, r)
	it, err := b.b.NewIter(&pebble.IterOptions{LowerBound: append(changeKey(r, after), 0), UpperBound: changeKey(r, Position{Era: after.Era + 1})})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Error(), it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		c, err := readChange(len(prefix), it.Key(), it.Value())
		if err != nil {
			return err
		}
		if !b.Dropped(r, c.collection, c.at, c.at) && !fn(c.at, c.time) {
			return nil
		}
	}
	return nil
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
