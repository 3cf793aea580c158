package store

import (
	"crypto/rand"

	"github.com/cockroachdb/pebble/v2"
)

const recordID = "id"

// ID returns a random text that only this store, and its copies, have: positions of two stores have nothing in common.
// The first call makes it. Any goroutine may call it.
func (s *Store) ID() (string, error) {
	if id, err := s.Record(recordID); err != nil || id != nil {
		return string(id), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, err := s.Record(recordID); err != nil || id != nil { // another goroutine has made it
		return string(id), err
	}
	text := rand.Text()
	if err := s.db.Set(recordKey(recordID), []byte(text), pebble.Sync); err != nil {
		return "", err
	}
	return text, s.disk.Err()
}
