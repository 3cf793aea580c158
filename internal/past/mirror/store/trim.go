package store

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const trimBatch = 1000

func momentTime(key []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(key[len(key)-8:]) ^ 1<<63)).UTC()
}

// Trim deletes what only views below a position need: replaced versions, and changes and moments of the time before.
// Other views do not change, also if it does not finish; lower ones are [ErrTrimmed] from now on. Lists that began
// before a call must have ended before the next one. Any goroutine may call it.
func (s *Store) Trim(ctx context.Context, r Resource, floor Position) error {
	s.trimming.Lock()
	defer s.trimming.Unlock()
	if s.trimmed[r].Compare(floor) >= 0 {
		return nil
	}
	s.mu.Lock()
	if s.floors[r].Compare(floor) < 0 {
		s.floors[r] = floor
	}
	s.mu.Unlock()
	var keys [][]byte
	flush := func(least int) error {
		if len(keys) == 0 || len(keys) < least {
			return ctx.Err()
		}
		b := s.db.NewBatch()
		for _, k := range keys {
			if err := b.Delete(k, nil); err != nil {
				return err
			}
		}
		keys = keys[:0]
		return errors.Join(b.Commit(pebble.NoSync), ctx.Err()) // what comes back after a crash is deleted again
	}
	remove := func(key []byte) error {
		keys = append(keys, append([]byte{}, key...))
		return flush(trimBatch)
	}
	if err := s.trimDrops(r, remove); err != nil {
		return err
	}
	if err := s.trimVersions(r, floor, remove); err != nil {
		return err
	}
	var err error
	for key := range rows(s.db, resourceKey(keyChange, r), append(changeKey(r, floor), 0), &err) {
		if err = remove(key); err != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	err = s.scan(resourceKey(keyMoment, r), func(key, value []byte) error {
		if readPosition(value).Compare(floor) >= 0 {
			return nil
		}
		return remove(key)
	})
	if err != nil {
		return err
	}
	if err := flush(0); err != nil {
		return err
	}
	s.trimmed[r] = floor
	return nil
}

// trimDrops removes the drops whose versions the last Trim has deleted. That Trim kept them: its lists could still meet
// such versions.
func (s *Store) trimDrops(r Resource, remove func(key []byte) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for collection, drops := range s.drops[r] {
		n, _ := searchEra(drops, s.trimmed[r].Era) // a drop concerns versions of its own era as well
		for _, d := range drops[:n] {
			if err := remove(dropKey(r, collection, d.era)); err != nil {
				return err
			}
		}
		if s.drops[r][collection] = slices.Clone(drops[n:]); n == len(drops) {
			delete(s.drops[r], collection)
		}
	}
	return nil
}

// trimVersions removes versions. A deletion goes after its object's older versions, which would be shown without it.
func (s *Store) trimVersions(r Resource, floor Position, remove func(key []byte) error) error {
	prefix := resourceKey(keyVersion, r)
	var last versionID
	var deletion []byte // of last's object and collection, as the newest version at or below the floor
	kept := false       // a version of last's object and collection that is at or below the floor was seen
	removeDeletion := func() error {
		if deletion == nil {
			return nil
		}
		key := deletion
		deletion = nil
		return remove(key)
	}
	err := s.scan(prefix, func(key, value []byte) error {
		id, err := readVersionKey(len(prefix), key)
		if err != nil {
			return err
		}
		if id.Name != last.Name || id.collection != last.collection {
			kept = false
			if err := removeDeletion(); err != nil {
				return err
			}
		}
		last = id
		if id.at.Compare(floor) > 0 {
			return nil
		}
		newest := !kept
		kept = true
		switch {
		case !newest, s.dropped(r, id.collection, id.at, floor):
			return remove(key)
		case len(value) > 0 && value[0]&flagDeleted != 0:
			deletion = slices.Clone(key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return removeDeletion()
}
