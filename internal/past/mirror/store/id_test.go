package store

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestID: a store keeps its ID, also if several goroutines ask first, and no other store has it.
func TestID(t *testing.T) {
	fsys := vfs.NewMem()
	s := openTest(t, fsys)
	var ids [10]string
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			var err error
			if ids[i], err = s.ID(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	must(t, s.Close())
	s = openTest(t, fsys)
	defer s.Close()
	again, err := s.ID()
	must(t, err)
	for _, id := range ids {
		if id == "" || id != again {
			t.Errorf("the IDs are %q, and %q after opening again", ids, again)
			break
		}
	}
	other := openTest(t, vfs.NewMem())
	defer other.Close()
	if id, err := other.ID(); err != nil || id == again {
		t.Errorf("another store has %q (%v)", id, err)
	}
}
