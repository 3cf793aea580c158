package consumer

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// State is a copy of clusters' objects. The zero value is empty and ready. Its
// methods may be called from several goroutines; messages of one partition must
// come in order.
type State struct {
	// Whole says that the source begins with everything that was ever told, or at
	// least with the last word on every object: a topic that keeps all, or a
	// compacted one. Then a collection counts as complete without its first list
	// or a reset having been seen. Set it before the first message.
	Whole bool
	// Remember is how many deleted objects are remembered, so that an old message
	// that comes late does not bring one back. 0 is 65536.
	Remember int

	mu          sync.RWMutex
	entries     map[objectKey]*entry
	names       map[Name]*entry // of those that exist
	collections map[collectionKey]*collection
	removed     []*entry // in the order in which they ended
}

// defaultRemember costs some 20 MB when it is full.
const defaultRemember = 1 << 16

// Name is an object's name in the copy.
type Name struct {
	Cluster   string // the configured name
	Resource  string // "pods", "deployments.apps"
	Namespace string // "" where there is none
	Name      string
}

// NameOf is the name of an event's object.
func NameOf(e *event.Received) Name {
	c := event.Collection{Group: e.Group, Resource: e.Resource}
	return Name{Cluster: e.Cluster, Resource: c.ResourceID(), Namespace: e.Namespace, Name: e.Name}
}

// Change is an event that told the copy something new.
type Change struct {
	Event *event.Received
	// Gone is what the copy held before and no longer holds: the former state of
	// an object that changed, the last of one that was deleted, all objects that a
	// reset dropped. The objects are as they were last told, without their Data.
	Gone []*event.Received
}

// Changes reads source until it ends, the caller stops, or ctx does, and yields
// what is new to the copy. Repetitions, dead letters, tombstones and events of
// unknown types are passed over.
//
// A message that is no event is yielded as an error that wraps
// [event.ErrNotEvent]; whoever goes on iterating skips it. Every other error is
// the source's, and the last. io.EOF ends the sequence without an error.
func (s *State) Changes(ctx context.Context, source Source) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for {
			m, err := source.Next(ctx)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(Change{}, err)
				}
				return
			}
			change, err := s.Apply(m)
			switch {
			case errors.Is(err, ErrNoEvent), errors.Is(err, event.ErrUnknownType):
				continue
			case err == nil && change.Event == nil:
				continue
			}
			if !yield(change, err) {
				return
			}
		}
	}
}

// Apply takes one message. A Change without an Event is a repetition: the copy
// knew it. Errors are those of [Decode], and leave the copy as it was.
func (s *State) Apply(m Message) (Change, error) {
	e, err := Decode(m)
	if err != nil {
		return Change{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries, s.names, s.collections = map[objectKey]*entry{}, map[Name]*entry{}, map[collectionKey]*collection{}
	}
	gone, news := []*event.Received(nil), false
	if e.Type.OfCollection() {
		gone, news = s.tellCollection(e, m)
	} else {
		gone, news = s.tellObject(e, m)
	}
	if !news {
		return Change{}, nil
	}
	return Change{Event: e, Gone: gone}, nil
}

// Get returns an object as it was last told: the event without its Data. The
// caller must not change it.
func (s *State) Get(n Name) (*event.Received, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if known := s.names[n]; known != nil {
		return known.object, true
	}
	return nil, false
}

// All returns the objects as they were when it was called, in the order of their
// names. The caller must not change them.
func (s *State) All() iter.Seq2[Name, *event.Received] {
	s.mu.RLock()
	names := slices.SortedFunc(maps.Keys(s.names), compareNames)
	objects := make([]*event.Received, len(names))
	for i, n := range names {
		objects[i] = s.names[n].object
	}
	s.mu.RUnlock()
	return func(yield func(Name, *event.Received) bool) {
		for i, n := range names {
			if !yield(n, objects[i]) {
				return
			}
		}
	}
}

func compareNames(a, b Name) int {
	for _, c := range []int{
		strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Namespace, b.Namespace),
	} {
		if c != 0 {
			return c
		}
	}
	return strings.Compare(a.Name, b.Name)
}

// Len is how many objects the copy holds.
func (s *State) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.names)
}

// Complete reports up to which resourceVersion, and since when, the copy of a
// collection is complete: every partition has said so, and none has opened a gap
// since. Later changes may be in the copy as well. ok is false while a gap is
// open, once the collection is closed, and where the source does not reach back to
// anything that told all of its objects (see [State.Whole]).
//
// While nothing happens at stays where it is, unless the bridge is configured to
// repeat it (syncedEvery).
func (s *State) Complete(cluster, collection string) (resourceVersion string, at time.Time, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.collections[collectionKey{cluster, collection}]
	if c == nil {
		return "", time.Time{}, false
	}
	var least *progress
	for _, p := range c.places {
		if !p.synced || p.open || p.closed != "" || !p.whole && !s.Whole {
			return "", time.Time{}, false
		}
		if least == nil || compare(p.at, least.at) < 0 {
			least = p
		}
		if at.IsZero() || p.time.Before(at) {
			at = p.time
		}
	}
	if len(c.places) < c.partitions() {
		return "", time.Time{}, false
	}
	return least.at.rv, at, true
}

// Collections are the collections that the bus has spoken of and that are not
// closed, as cluster and collection, in no order.
func (s *State) Collections() iter.Seq2[string, string] {
	s.mu.RLock()
	var open []collectionKey
	for key, c := range s.collections {
		for _, p := range c.places {
			if p.closed == "" {
				open = append(open, key)
				break
			}
		}
	}
	s.mu.RUnlock()
	return func(yield func(string, string) bool) {
		for _, key := range open {
			if !yield(key.cluster, key.id) {
				return
			}
		}
	}
}
