package consumer

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// State is a copy of clusters' objects. The zero value is empty and ready. Its
// methods may be called from several goroutines; messages of one partition must
// come in order. All messages of a cluster must come from one sink of one bridge.
type State struct {
	// Compacted says that the topics are compacted, or that the streams have a limit of messages per
	// subject: messages may be missing that later ones replace. A collection is then
	// complete only while the last message of every partition had AtEnd set. Set it before
	// the first message.
	Compacted bool
	// Remember is how many deleted objects are remembered, so that an old message that comes
	// late does not bring one back. 0 is 65536.
	Remember int

	mu          sync.RWMutex
	births      map[string]uint64 // by cluster
	plans       map[resourceKey]plan
	collections map[collectionKey]*collection
	atEnd       map[place]bool
	names       map[Name][]*slot // of those that hold an object
	ended       []*slot          // in the order in which they ended
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
	return Name{Cluster: e.Cluster, Resource: resourceOf(e), Namespace: e.Namespace, Name: e.Name}
}

func resourceOf(e *event.Received) string {
	c := event.Collection{Group: e.Group, Resource: e.Resource}
	return c.ResourceID()
}

// Change is what one event changed.
type Change struct {
	// Event is nil if the event changed nothing: it is a repetition, or of something that has ended.
	Event *event.Received
	// Gone are the states of objects that the copy showed before and does not show any more. Shown are
	// those that it shows now and did not show before. A deletion from one of two collections
	// that hold an object may have both. The states are events without their Data.
	Gone, Shown []*event.Received
}

// Changes reads source until it ends, the caller stops, or ctx does, and yields the
// changes. Repetitions, dead letters and events of unknown types are passed over.
//
// A message that is no event is yielded as an error that wraps [event.ErrNotEvent]; a
// caller that continues the iteration skips it. Every other error is the source's, and the
// last. io.EOF ends the sequence without an error.
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

// Apply takes one message. Errors are those of [Decode]; the message then changes nothing but
// how far its partition has been read.
func (s *State) Apply(m Message) (Change, error) {
	e, err := Decode(m)
	return s.Take(m, e), err
}

// Take is Apply for a message of which [Decode] has returned e, nil for an error.
func (s *State) Take(m Message, e *event.Received) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.collections == nil {
		s.births, s.plans, s.collections = map[string]uint64{}, map[resourceKey]plan{}, map[collectionKey]*collection{}
		s.atEnd, s.names = map[place]bool{}, map[Name][]*slot{}
	}
	s.atEnd[m.place()] = m.AtEnd
	if e == nil {
		return Change{}
	}
	change := Change{}
	if e.Plan != nil {
		s.takePlan(e, &change)
	}
	c := s.collectionOf(e, &change)
	switch {
	case c == nil:
	case e.Type.OfCollection():
		if s.applyCollection(c, e, &m, &change) {
			change.Event = e
		}
	case s.applyObject(c, e, &m, &change):
		change.Event = e
	}
	if change.Event == nil && len(change.Gone) > 0 { // a birth alone
		change.Event = e
	}
	return change
}

// Get returns an object as it is shown: the event without its Data. Of several objects of the name
// it is the one with the highest version. The caller must not change it.
func (s *State) Get(n Name) (*event.Received, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var newest *event.Received
	for _, e := range s.shown(n) {
		if newest == nil || compareVersions(e, newest) > 0 {
			newest = e
		}
	}
	return newest, newest != nil
}

// All returns the objects as they were when it was called, in the order of their names. While the
// collections of a resource are read to different versions, several objects can have one
// name: one that is deleted, and its successor. The caller must not change them.
func (s *State) All() iter.Seq2[Name, *event.Received] {
	s.mu.RLock()
	var names []Name
	var objects []*event.Received
	for _, n := range slices.SortedFunc(maps.Keys(s.names), compareNames) {
		for _, e := range s.shown(n) {
			names, objects = append(names, n), append(objects, e)
		}
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
	return cmp.Or(
		cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// Len is how many names of objects the copy holds.
func (s *State) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.names)
}

// AsOf is up to where a copy is complete. Later changes may be in the copy as well.
type AsOf struct {
	Epoch uint64
	// ResourceVersion is "" if the resource, or the namespace of one of its collections, did not exist at
	// Time: that has no version, and it may exist again at the version of another collection.
	ResourceVersion string
	Time            time.Time // of the last synced event, by the bridge's clock
}

// lower makes a the least of both. The zero value is higher than all others, no version is lower than any.
func (a *AsOf) lower(b AsOf) {
	if a.Epoch == 0 || a.ResourceVersion != "" &&
		(b.ResourceVersion == "" || compareVersion(b.Epoch, b.ResourceVersion, a.Epoch, a.ResourceVersion) < 0) {
		a.Epoch, a.ResourceVersion = b.Epoch, b.ResourceVersion
	}
	if a.Time.IsZero() || b.Time.Before(a.Time) {
		a.Time = b.Time
	}
}

// Complete reports whether the copy has every object of a resource ("pods",
// "deployments.apps") that the sink's configuration selects, and as of when. It is the least
// of what the collections of the resource have reached; [State.Collections] has each. An object
// that moves between two collections may be missing or be held by both until both have been
// read past that move.
//
// While nothing happens the time stays where it is, unless the bridge is configured to
// repeat synced events (syncedEvery).
func (s *State) Complete(cluster, resource string) (at AsOf, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.plans[resourceKey{cluster, resource}]
	edits := map[string]uint64{}
	for key, c := range s.collections {
		if c.resource != (resourceKey{cluster, resource}) || c.closed {
			continue
		}
		last, inStep := s.inStep(c)
		if !inStep {
			return AsOf{}, false
		}
		at.lower(last.at)
		edits[key.id] = last.edit
	}
	if len(edits) == 0 || event.PlanDigest(edits) != p.digest {
		return AsOf{}, false
	}
	return at, true
}

// Resources are the resources, as cluster and resource ("pods"), that have a collection which
// is not closed, sorted. For each, [State.Complete] reports whether the copy has all of it.
func (s *State) Resources() iter.Seq2[string, string] {
	s.mu.RLock()
	var all []resourceKey
	for _, c := range s.collections {
		if !c.closed {
			all = append(all, c.resource)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b resourceKey) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.resource, b.resource))
	})
	all = slices.Compact(all)
	return func(yield func(string, string) bool) {
		for _, r := range all {
			if !yield(r.cluster, r.resource) {
				return
			}
		}
	}
}

// Collection is what the copy knows of a collection.
type Collection struct {
	Cluster string
	ID      string // see [event.ParseCollection]
	// Phase is the lowest of those of its partitions.
	Phase       Phase
	Run         uint64 // the highest that was read
	Incarnation uint64
	// Reason is that of the last gap, or of closed.
	Reason event.Reason
	// AsOf is that of the last synced event, of the partition that has read least.
	AsOf AsOf
}

// Collections are the collections that the copy knows, closed ones included, sorted.
func (s *State) Collections() []Collection {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []Collection
	for key, c := range s.collections {
		last, _ := s.inStep(c)
		all = append(all, Collection{
			Cluster: key.cluster, ID: key.id, Phase: s.phase(c), Run: c.run, Incarnation: c.incarnation, Reason: c.reason, AsOf: last.at,
		})
	}
	slices.SortFunc(all, func(a, b Collection) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.ID, b.ID)) })
	return all
}
